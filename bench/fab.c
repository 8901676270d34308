/* Opens libfabric for the bare benchmarks: each side calls it once, before anything is measured. */
#include "fab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define VERSION    FI_VERSION(1, 14)
#define OPEN_TRIES 64
enum { WANTED = -2 };

void fab_check(long rc, const char *what)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, fi_strerror((int)-rc));
	exit(1);
}

void fab_shuffle(uint32_t *list, uint64_t count, uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;

	for (uint64_t i = 0; i < count; i++)
		list[i] = (uint32_t)i;
	for (uint64_t i = count; i > 1; i--) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		uint64_t other = (uint64_t)(((unsigned __int128)state * i) >> 64);
		uint32_t kept = list[i - 1];

		list[i - 1] = list[other];
		list[other] = kept;
	}
}

static struct fi_info *ask(const char *name, const char *node, uint64_t op_flags)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;

	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->tx_attr->op_flags = op_flags;
	hints->fabric_attr->prov_name = strdup(name);
	if (fi_getinfo(VERSION, node, NULL, node ? FI_SOURCE : 0, hints, &info))
		info = NULL;
	fi_freeinfo(hints);
	return info;
}

/* shm names its file by process id and a running number: if a killed process left its file behind, the next number
 * is free. */
static void open_endpoint(struct fab_rail *rail)
{
	int error = -FI_EBUSY;

	for (int i = 0; i < OPEN_TRIES && error == -FI_EBUSY; i++) {
		if (rail->ep)
			fi_close(&rail->ep->fid);
		fab_check(fi_endpoint(rail->domain, rail->info, &rail->ep, NULL), "fi_endpoint");
		fab_check(fi_ep_bind(rail->ep, &rail->eq->fid, 0), "fi_ep_bind");
		fab_check(fi_ep_bind(rail->ep, &rail->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
		fab_check(fi_ep_bind(rail->ep, &rail->av->fid, 0), "fi_ep_bind");
		error = fi_enable(rail->ep);
	}
	fab_check(error, "fi_enable");
}

static void open_rail(struct fab *fab, struct fab_rail *rail, struct fi_info *info, uint64_t flags)
{
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_DATA, .size = 4096, .wait_obj = FI_WAIT_NONE };
	struct fi_av_attr av = { .type = info->domain_attr->av_type };
	struct fi_eq_attr eq = { .wait_obj = FI_WAIT_NONE };
	size_t depth = info->tx_attr->size;

	rail->info = fi_dupinfo(info);
	rail->flags = flags;
	rail->info->tx_attr->op_flags = 0;
	fab_check(fi_fabric(info->fabric_attr, &rail->fabric, NULL), "fi_fabric");
	fab_check(fi_domain(rail->fabric, rail->info, &rail->domain, NULL), "fi_domain");
	fab_check(fi_eq_open(rail->fabric, &eq, &rail->eq, NULL), "fi_eq_open");
	if (fab->wait_fd == WANTED)
		cq.wait_obj = FI_WAIT_FD;
	fab_check(fi_cq_open(rail->domain, &cq, &rail->cq, NULL), "fi_cq_open");
	if (fab->wait_fd == WANTED && fi_control(&rail->cq->fid, FI_GETWAIT, &fab->wait_fd))
		fab->wait_fd = -1;
	fab_check(fi_av_open(rail->domain, &av, &rail->av, NULL), "fi_av_open");
	open_endpoint(rail);
	fab_check(
	    fi_mr_reg(rail->domain, fab->memory, fab->bytes, FI_WRITE | FI_REMOTE_WRITE, 0, 1, 0, &rail->mr, NULL),
	    "fi_mr_reg");
	rail->desc = fi_mr_desc(rail->mr);
	if (depth < fab->queue_ops)
		fab->queue_ops = depth;
	if (!(info->mode & (FI_CONTEXT | FI_CONTEXT2)))
		return;
	rail->contexts = calloc(depth, sizeof *rail->contexts);
	rail->idle = calloc(depth, sizeof *rail->idle);
	while (rail->contexts && rail->idle && rail->idle_count < depth) {
		rail->idle[rail->idle_count] = &rail->contexts[rail->idle_count];
		rail->idle_count++;
	}
}

static void open_messages(struct fab *fab)
{
	size_t bytes = (FAB_RECEIVES + 1) * FAB_MESSAGE;

	fab->messages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (fab->messages == MAP_FAILED)
		fab_check(-FI_ENOMEM, "mmap");
	fab_check(
	    fi_mr_reg(fab->rail[0].domain, fab->messages, bytes, FI_SEND | FI_RECV, 0, 2, 0, &fab->message_mr, NULL),
	    "fi_mr_reg");
}

void fab_open(struct fab *fab, const char *provider, size_t bytes, bool waits)
{
	bool is_tcp = !strcmp(provider, "tcp"), is_shm = !strcmp(provider, "shm");
	/* libfabric 1 calls its native provider "net"; "tcp" there means the same below another layer. */
	const char *name = is_tcp && FI_MAJOR(fi_version()) < 2 ? "net" : provider;
	/* Over tcp a plain completion only means "in the socket". A completed write over shared memory has landed. */
	uint64_t flags = is_shm ? 0 : FI_DELIVERY_COMPLETE;
	struct fi_info *list = ask(name, is_tcp ? "127.0.0.1" : NULL, flags);

	if (!list && flags && !is_tcp) {
		flags = 0;
		list = ask(name, NULL, 0);
	}
	if (!list)
		fab_check(-FI_ENODATA, name);
	memset(fab, 0, sizeof *fab);
	snprintf(fab->provider, sizeof fab->provider, "%s", name);
	fab->wait_fd = waits && is_tcp ? WANTED : -1; /* the others have none */
	fab->queue_ops = UINT64_MAX;
	fab->bytes = bytes;
	fab->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (fab->memory == MAP_FAILED)
		fab_check(-FI_ENOMEM, "mmap");
	madvise(fab->memory, bytes, MADV_HUGEPAGE); /* as weft bench: writing another's memory costs per page */
	for (struct fi_info *info = list; info && fab->rails < FAB_RAILS; info = info->next) {
		open_rail(fab, &fab->rail[fab->rails++], info, flags);
		if (info->nic && info->nic->link_attr)
			fab->line_bps += (double)info->nic->link_attr->speed;
		if (is_tcp || is_shm)
			break; /* the remaining entries repeat these */
	}
	fi_freeinfo(list);
	open_messages(fab);
}

void fab_card(struct fab *fab, struct fab_card *card)
{
	memset(card, 0, sizeof *card);
	card->rails = (uint32_t)fab->rails;
	for (int i = 0; i < fab->rails; i++) {
		struct fab_rail *rail = &fab->rail[i];
		size_t bytes = FAB_NAME;

		fab_check(fi_getname(&rail->ep->fid, card->rail[i].name, &bytes), "fi_getname");
		card->rail[i].name_bytes = bytes;
		card->rail[i].key = fi_mr_key(rail->mr);
		card->rail[i].base = rail->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)fab->memory : 0;
	}
}

void fab_meet(struct fab *fab, const struct fab_card *card)
{
	for (int i = 0; i < fab->rails && i < (int)card->rails; i++) {
		struct fab_rail *rail = &fab->rail[i];

		if (fi_av_insert(rail->av, card->rail[i].name, 1, &rail->peer, 0, NULL) != 1)
			fab_check(-FI_EINVAL, "fi_av_insert");
		rail->key = card->rail[i].key;
		rail->base = card->rail[i].base;
	}
}

void fab_close(struct fab *fab)
{
	for (int i = 0; i < fab->rails; i++)
		fi_close(&fab->rail[i].ep->fid);
	fi_close(&fab->message_mr->fid);
	for (int i = 0; i < fab->rails; i++) {
		struct fab_rail *rail = &fab->rail[i];

		fi_close(&rail->mr->fid);
		fi_close(&rail->av->fid);
		fi_close(&rail->cq->fid);
		fi_close(&rail->eq->fid);
		fi_close(&rail->domain->fid);
		fi_close(&rail->fabric->fid);
		fi_freeinfo(rail->info);
		free(rail->contexts);
		free(rail->idle);
	}
	munmap(fab->messages, (FAB_RECEIVES + 1) * FAB_MESSAGE);
	munmap(fab->memory, fab->bytes);
}
