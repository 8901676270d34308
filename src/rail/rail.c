/*
 * Opening, reopening and closing a rail: fabric, domain, endpoint, completion queue, address vector, event queue.
 * Limits come from fi_info, exceptions from quirks.c. Runs on the worker that owns the rail.
 */
#include "rail/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE_OPS_MAX   1024u     /* more in flight only adds latency on any link we know */
#define WINDOW_OPS_MAX  256u
#define OPEN_TRIES      64

#define WINDOW_TIME_NS  UINT64_C(200000) /* bytes a link moves in so long cover its latency many times */

void wf_rail_note_error(struct wf_rail *rail, int provider_error, const char *text)
{
	rail->error.provider_error = provider_error;
	snprintf(rail->error.text, sizeof(rail->error.text), "%s", text);
}

static int failed(struct wf_rail *rail, const char *what, int error)
{
	char text[128];

	snprintf(text, sizeof(text), "%s: %s", what, fi_strerror(-error));
	wf_rail_note_error(rail, -error, text);
	wf_log(rail->log, WEFT_LOG_WARN, "rail %s: %s", rail->name, text);
	return error;
}

/* Whether writes can be asked to complete only when delivered: a provider says so by accepting the hint. */
static bool offers_delivery(const struct fi_info *info)
{
	struct fi_info *hints = fi_dupinfo(info), *found = NULL;
	bool offers;

	if (!hints)
		return false;
	hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
	hints->handle = NULL;
	offers = !fi_getinfo(WF_FI_VERSION, NULL, NULL, 0, hints, &found);
	if (found)
		fi_freeinfo(found);
	fi_freeinfo(hints);
	return offers;
}

static uint32_t at_most(uint64_t value, uint64_t limit)
{
	return (uint32_t)(value < limit ? value : limit);
}

static void set_limits(struct wf_rail *rail, const struct wf_nic *nic)
{
	const struct fi_info *info = rail->info;
	const struct wf_quirks *quirks = rail->quirks;
	struct wf_rail_limits *limits = &rail->limits;
	uint64_t bytes = nic->link_bps / 8 * WINDOW_TIME_NS / UINT64_C(1000000000);

	limits->max_bytes = info->ep_attr->max_msg_size;
	limits->queue_ops = at_most(info->tx_attr->size, QUEUE_OPS_MAX);
	limits->window_ops = quirks->window_ops ? quirks->window_ops : at_most(limits->queue_ops / 2, WINDOW_OPS_MAX);
	if (limits->window_ops > limits->queue_ops / 2)
		limits->window_ops = limits->queue_ops / 2;
	limits->window_bytes = quirks->window_bytes ? quirks->window_bytes : bytes > 1 << 20 ? bytes : 1 << 20;
	limits->adapts = !nic->link_bps;
	limits->inject_bytes = at_most(info->tx_attr->inject_size, UINT32_MAX);
	limits->rma_ranges = at_most(info->tx_attr->iov_limit, at_most(info->tx_attr->rma_iov_limit, WF_RMA_RANGES));
	limits->empty_immediate = !quirks->no_empty_immediate;
	limits->frame_least = quirks->frame_least;
	if (quirks->one_range)
		limits->rma_ranges = 1;
	limits->address_format = info->addr_format;
	limits->delivery_complete = quirks->delivery_implied || offers_delivery(info);
	limits->target_looks = quirks->target_looks;
	limits->close_quiesces = quirks->close_quiesces;
	limits->immediate = info->domain_attr->cq_data_size >= 4;
	rail->rma_flags = limits->delivery_complete && !quirks->delivery_implied ? FI_DELIVERY_COMPLETE : 0;
	rail->immediate_flags = FI_REMOTE_CQ_DATA | (quirks->immediate_needs_delivery ? FI_DELIVERY_COMPLETE : 0);
	rail->needs_local = info->domain_attr->mr_mode & FI_MR_LOCAL;
}

static int open_cq(struct wf_rail *rail)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD };
	int error = -FI_ENOSYS;

	/* Never more completions outstanding than the queue holds: some NICs lose what does not fit. */
	attr.size = rail->limits.queue_ops + rail->receive_frames + WF_IMMEDIATES_ROOM;
	if (!rail->quirks->no_wait)
		error = fi_cq_open(rail->domain, &attr, &rail->cq, NULL);
	rail->wait_fd = !error;
	if (error) {
		attr.wait_obj = FI_WAIT_NONE;
		error = fi_cq_open(rail->domain, &attr, &rail->cq, NULL);
	}
	rail->limits.waits = rail->wait_fd;
	return error ? failed(rail, "opening the completion queue", error) : 0;
}

static int open_endpoint(struct wf_rail *rail)
{
	struct fi_av_attr av = { .type = rail->info->domain_attr->av_type };
	struct fi_eq_attr eq = { .wait_obj = FI_WAIT_NONE };
	int error;

	/* Some providers call abort() on an internal error when no event queue is bound. */
	if ((error = fi_eq_open(rail->fabric, &eq, &rail->eq, NULL)))
		return failed(rail, "opening the event queue", error);
	if ((error = open_cq(rail)))
		return error;
	if ((error = fi_av_open(rail->domain, &av, &rail->av, NULL)))
		return failed(rail, "opening the address vector", error);
	if ((error = fi_endpoint(rail->domain, rail->info, &rail->ep, NULL)))
		return failed(rail, "opening the endpoint", error);
	if ((error = fi_ep_bind(rail->ep, &rail->eq->fid, 0)) ||
	    (error = fi_ep_bind(rail->ep, &rail->cq->fid, FI_TRANSMIT | FI_RECV)) ||
	    (error = fi_ep_bind(rail->ep, &rail->av->fid, 0)))
		return failed(rail, "binding the endpoint", error);
	if ((error = fi_enable(rail->ep)))
		return failed(rail, "enabling the endpoint", error);
	return 0;
}

void wf_rail_shut(struct wf_rail *rail)
{
	/* The endpoint first: from here on nothing of what was posted can touch memory. */
	if (rail->ep)
		fi_close(&rail->ep->fid);
	if (rail->av)
		fi_close(&rail->av->fid);
	if (rail->cq)
		fi_close(&rail->cq->fid);
	if (rail->eq)
		fi_close(&rail->eq->fid);
	rail->kept = 0;
	rail->unrung = false;
	rail->ep = NULL;
	rail->av = NULL;
	rail->cq = NULL;
	rail->eq = NULL;
}

int wf_rail_reopen(struct wf_rail *rail)
{
	int error = -FI_EBUSY;

	/* shm names its file by process id and a running number, and a process that was killed leaves it behind: when ids
	 * come round again the name is taken, and the next number is not. */
	for (int i = 0; i < OPEN_TRIES && error == -FI_EBUSY; i++) {
		wf_rail_shut(rail);
		error = open_endpoint(rail);
	}
	if (error)
		wf_rail_shut(rail);
	return error;
}

bool wf_rail_is_open(const struct wf_rail *rail)
{
	return rail->ep != NULL;
}

int wf_rail_open(const struct wf_nic *nic, uint32_t receive_frames, const struct wf_log *log, struct wf_rail **ret_rail)
{
	struct wf_rail *rail = calloc(1, sizeof(*rail));
	int error = -ENOMEM;

	if (!rail)
		return error;
	rail->log = log;
	rail->receive_frames = receive_frames;
	snprintf(rail->name, sizeof(rail->name), "%s", nic->name);
	rail->info = fi_dupinfo(nic->info);
	if (!rail->info)
		goto fail;
	rail->quirks = wf_quirks_of(rail->info->fabric_attr->prov_name);
	if (rail->quirks->keep_addresses) {
		rail->keep = calloc(rail->quirks->keep_addresses, sizeof(*rail->keep));
		if (!rail->keep)
			goto fail;
	}
	set_limits(rail, nic);
	rail->info->tx_attr->op_flags = 0; /* asked for operation by operation */
	rail->info->rx_attr->op_flags = 0;
	if ((error = fi_fabric(rail->info->fabric_attr, &rail->fabric, NULL))) {
		failed(rail, "opening the fabric", error);
		goto fail;
	}
	if ((error = fi_domain(rail->fabric, rail->info, &rail->domain, NULL))) {
		failed(rail, "opening the domain", error);
		goto fail;
	}
	error = wf_rail_reopen(rail);
	if (error)
		goto fail;
	*ret_rail = rail;
	return 0;
fail:
	wf_rail_close(rail);
	return error;
}

void wf_rail_close(struct wf_rail *rail)
{
	if (!rail)
		return;
	wf_rail_shut(rail);
	if (rail->domain)
		fi_close(&rail->domain->fid);
	if (rail->fabric)
		fi_close(&rail->fabric->fid);
	if (rail->info)
		fi_freeinfo(rail->info);
	free(rail->keep);
	free(rail);
}

const struct wf_rail_limits *wf_rail_limits(const struct wf_rail *rail)
{
	return &rail->limits;
}

const struct wf_rail_error *wf_rail_last_error(const struct wf_rail *rail)
{
	return &rail->error;
}

int wf_rail_address(struct wf_rail *rail, uint8_t *address, uint8_t *bytes)
{
	size_t length = *bytes;
	int error = fi_getname(&rail->ep->fid, address, &length);

	if (error)
		return failed(rail, "asking for the endpoint's address", error);
	*bytes = (uint8_t)length;
	return 0;
}

static bool find_kept(const struct wf_rail *rail, const uint8_t *address, uint8_t bytes, uint64_t *ret_target)
{
	for (uint32_t i = 0; i < rail->kept; i++)
		if (rail->keep[i].bytes == bytes && !memcmp(rail->keep[i].address, address, bytes)) {
			*ret_target = rail->keep[i].target;
			return true;
		}
	return false;
}

int wf_rail_insert(struct wf_rail *rail, const uint8_t *address, uint8_t bytes, uint64_t *ret_target)
{
	fi_addr_t target = FI_ADDR_NOTAVAIL;
	int inserted;

	if (find_kept(rail, address, bytes, ret_target))
		return 0;
	if (rail->keep && (rail->kept == rail->quirks->keep_addresses || bytes > sizeof(rail->keep->address)))
		return -EMLINK;
	inserted = fi_av_insert(rail->av, address, 1, &target, 0, NULL);
	if (inserted != 1 || target == FI_ADDR_NOTAVAIL)
		return failed(rail, "inserting a peer's address", inserted < 0 ? inserted : -FI_EINVAL);
	if (rail->keep) {
		rail->keep[rail->kept].bytes = bytes;
		memcpy(rail->keep[rail->kept].address, address, bytes);
		rail->keep[rail->kept++].target = target;
	}
	*ret_target = target;
	return 0;
}

void wf_rail_remove(struct wf_rail *rail, uint64_t target)
{
	fi_addr_t address = target;

	if (rail->av && !rail->keep)
		fi_av_remove(rail->av, &address, 1, 0);
}

const char *wf_rail_libfabric_version(void)
{
	static char text[16]; /* written with the same bytes by whoever comes first */
	uint32_t version = fi_version();

	snprintf(text, sizeof(text), "%u.%u", FI_MAJOR(version), FI_MINOR(version));
	return text;
}
