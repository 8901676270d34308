/*
 * A domain is one simulated NIC. Each opened domain is a NIC of its own, with its own rate: two engines in one process
 * are two hosts.
 */
#include "prov.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define VISITOR (UINT64_C(1) << 63) /* marks a thread that closes a region: both sides wait for each other */

static bool take_inside(struct domain *dom, uint64_t self, uint64_t *ret_other)
{
	*ret_other = 0;
	/* Relaxed on purpose: this detects a race and must not hide it from ThreadSanitizer. */
	return atomic_compare_exchange_strong_explicit(&dom->inside, ret_other, self, memory_order_relaxed,
						       memory_order_relaxed);
}

void dom_visit(struct domain *dom)
{
	uint64_t self = (uint64_t)syscall(SYS_gettid) | VISITOR, other;

	if (dom->locking)
		pthread_mutex_lock(&dom->mutex);
	else
		while (!take_inside(dom, self, &other))
			sched_yield();
}

void dom_enter_slow(struct domain *dom, const char *call)
{
	if (dom->locking) {
		pthread_mutex_lock(&dom->mutex);
		return;
	}
	if (dom->strict) {
		uint64_t self = (uint64_t)syscall(SYS_gettid), other;

		while (!take_inside(dom, self, &other))
			if (other & VISITOR)
				sched_yield();
			else
				strict_fail(
				    "%s: threads %llu and %llu are in one domain at once under FI_THREAD_DOMAIN", call,
				    (unsigned long long)other, (unsigned long long)self);
	}
}

void dom_leave_slow(struct domain *dom)
{
	if (dom->locking)
		pthread_mutex_unlock(&dom->mutex);
	else if (dom->strict)
		atomic_store_explicit(&dom->inside, 0, memory_order_relaxed);
}

static int domain_close(struct fid *fid)
{
	struct domain *dom = container_of(fid, struct domain, fid.fid);

	if (atomic_load(&dom->refs))
		return -FI_EBUSY;
	if (dom->eq)
		atomic_fetch_sub(&dom->eq->refs, 1);
	wire_destroy(dom->map);
	pthread_mutex_destroy(&dom->mutex);
	pthread_mutex_destroy(&dom->mr_mutex);
	free(dom->mr_free);
	atomic_fetch_sub(&dom->fabric->refs, 1);
	free(dom);
	return 0;
}

static int domain_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct domain *dom = container_of(fid, struct domain, fid.fid);

	if (other->fclass != FI_CLASS_EQ)
		return -FI_EINVAL;
	if (dom->eq)
		atomic_fetch_sub(&dom->eq->refs, 1);
	dom->eq = container_of(other, struct event_queue, fid.fid);
	atomic_fetch_add(&dom->eq->refs, 1);
	return 0;
}

static struct fi_ops domain_fid_ops = {
	.size = sizeof domain_fid_ops,
	.close = domain_close,
	.bind = domain_bind,
	.control = stub_control,
	.ops_open = stub_ops_open,
};

static ssize_t no_such(void)
{
	return -FI_ENOSYS;
}

#define NO(member) .member = (__typeof__(((struct fi_ops_domain *)0)->member))(void (*)(void))no_such

static struct fi_ops_domain domain_ops = {
	.size = sizeof domain_ops,
	.av_open = av_open,
	.cq_open = cq_open,
	.endpoint = ep_open,
	NO(scalable_ep),
	NO(cntr_open),
	NO(poll_open),
	NO(stx_ctx),
	NO(srx_ctx),
	NO(query_atomic),
	NO(query_collective),
	NO(endpoint2),
};

static void set_rates(struct domain *dom, const struct sim_spec *spec)
{
	double ticks_per_byte = spec->rate_bps ? 8e9 / (double)spec->rate_bps * sim_ticks_per_ns : 0;

	dom->ticks_per_byte = (uint64_t)(ticks_per_byte * (double)(1u << FIXED_SHIFT) + 0.5);
	dom->op_ticks = sim_ticks_of_ns(spec->op_ns);
	dom->latency_ticks = sim_ticks_of_ns(spec->latency_ns);
	dom->jitter_ticks = sim_ticks_of_ns(spec->jitter_ns);
	dom->post_ticks = sim_ticks_of_ns(spec->post_ns);
	dom->patience_ticks = sim_ticks_of_ns(20000);
	dom->poll_ticks = sim_ticks_of_ns(spec->poll_ns);
}

int domain_open(struct fid_fabric *fid, struct fi_info *info, struct fid_domain **ret_domain, void *context)
{
	struct fabric *fabric = container_of(fid, struct fabric, fid);
	struct domain *dom;
	struct config *config;
	int nic;

	config = config_of_nic(info->nic, &nic);
	if (!config)
		return -FI_EINVAL;
	dom = calloc(1, sizeof *dom);
	if (!dom)
		return -FI_ENOMEM;
	dom->map = wire_create(WIRE_NIC, sizeof(struct wire_nic));
	if (!dom->map) {
		sim_log("cannot create a segment in /dev/shm for NIC %d", nic);
		free(dom);
		return -FI_ENOMEM;
	}
	dom->config = config;
	dom->control = config->control;
	dom->nic = nic;
	dom->fabric = fabric;
	dom->locking = info->domain_attr->threading != FI_THREAD_DOMAIN;
	dom->strict = config->spec.strict != 0;
	dom->guarded = dom->locking || dom->strict;
	dom->local_keys = config->spec.personality != SIM_EFA;
	dom->ordered_sends = config->spec.personality != SIM_EFA_DIRECT;
	dom->ordered_rma = config->spec.personality == SIM_VERBS;
	dom->forgets = config->spec.personality == SIM_EFA;
	dom->shm = config->spec.as_efa && config->spec.personality == SIM_EFA &&
		   ((info->caps & FI_LOCAL_COMM) || !(info->caps & FI_REMOTE_COMM));
	dom->emulated = config->spec.personality == SIM_EFA &&
			(config->spec.emulated || fabric->fid.api_version < config->spec.rdma_api);
	dom->numbers = config->spec.as_efa && config->spec.personality == SIM_EFA;
	dom->counts_polls = config->spec.target_progress || config->spec.as_efa || dom->emulated;
	dom->queues = info->tx_attr->size + info->rx_attr->size;
	dom->copy = config->spec.copy;
	set_rates(dom, &config->spec);
	dom->wire = wire_memory(dom->map);
	snprintf(dom->wire->host, sizeof dom->wire->host, "%s", config->spec.host);
	dom->wire->nic = (uint32_t)nic;
	dom->wire->emulated = dom->emulated;
	atomic_store(&dom->wire->ticks_per_byte, dom->ticks_per_byte);
	dom->random = (config->spec.seed + 1) * 0x9e3779b97f4a7c15ull + (uint64_t)nic + 1;
	/* Keeps a key of the same NIC of another host from being valid here by accident. */
	dom->mr_generation = dom->wire->head.id % 255;
	pthread_mutex_init(&dom->mutex, NULL);
	pthread_mutex_init(&dom->mr_mutex, NULL);
	dom->fid.fid.fclass = FI_CLASS_DOMAIN;
	dom->fid.fid.context = context;
	dom->fid.fid.ops = &domain_fid_ops;
	dom->fid.ops = &domain_ops;
	dom->fid.mr = &mr_ops;
	atomic_fetch_add(&fabric->refs, 1);
	*ret_domain = &dom->fid;
	return 0;
}
