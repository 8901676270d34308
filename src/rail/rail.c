/*
 * Opens, reopens and closes a rail: fabric, domain, completion queue, and an address vector and an event queue for each
 * of its two endpoints. Limits come from fi_info, exceptions from quirks.c. Runs on the worker that owns the rail.
 */
#include "rail/host.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_OPS_MAX    256u
#define WINDOW_FIRST      (1u << 20)
#define OPEN_TRIES        64
#define OUTGOING_RECEIVES 256u
#define READS_AT_CLOSE    64 /* of up to 32 messages each */

#define WINDOW_TIME_NS UINT64_C(200000) /* a window of what the link moves in this time covers its latency many times */

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

/* Returns whether writes can be asked to complete only on delivery: a provider says so by accepting the hint. */
static bool offers_delivery(const struct fi_info *info)
{
	struct fi_info *hints = fi_dupinfo(info), *found = NULL;
	bool offers;

	if (!hints)
		return false;
	hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
	hints->handle = NULL;
	offers = !fi_getinfo(wf_fi_version(), NULL, NULL, 0, hints, &found);
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
	limits->queue_ops = at_most(info->tx_attr->size, WF_QUEUE_OPS_MAX);
	limits->window_ops = quirks->window_ops ? quirks->window_ops : at_most(limits->queue_ops / 2, WINDOW_OPS_MAX);
	if (limits->window_ops > limits->queue_ops / 2)
		limits->window_ops = limits->queue_ops / 2;
	limits->window_bytes = quirks->window_bytes ? quirks->window_bytes : bytes > 1 << 20 ? bytes : 1 << 20;
	/* A socket's path may be slower than its interface says. */
	limits->adapts = !nic->link_bps || quirks->sockets;
	limits->window_first =
	    limits->adapts && limits->window_bytes > WINDOW_FIRST ? WINDOW_FIRST : limits->window_bytes;
	limits->inject_bytes = at_most(info->tx_attr->inject_size, UINT32_MAX);
	limits->rma_ranges = at_most(info->tx_attr->iov_limit, at_most(info->tx_attr->rma_iov_limit, WF_RMA_RANGES));
	limits->empty_immediate = !quirks->no_empty_immediate;
	limits->frame_least = quirks->frame_least;
	if (quirks->one_range)
		limits->rma_ranges = 1;
	limits->address_format = info->addr_format;
	limits->delivery_complete = quirks->delivery_implied || offers_delivery(info);
	limits->target_looks = quirks->target_looks;
	limits->dead_keys_kill = quirks->emulates;
	limits->outlives_keys = quirks->sockets;
	limits->numbers_messages = quirks->idle_addresses;
	limits->holds_back = quirks->holds_back;
	limits->sockets = quirks->sockets;
	limits->close_quiesces = quirks->close_quiesces;
	limits->immediate = info->domain_attr->cq_data_size >= 4;
	rail->rma_flags = limits->delivery_complete && !quirks->delivery_implied ? FI_DELIVERY_COMPLETE : 0;
	rail->immediate_flags = FI_REMOTE_CQ_DATA | (quirks->immediate_needs_delivery ? FI_DELIVERY_COMPLETE : 0);
	rail->needs_local = info->domain_attr->mr_mode & FI_MR_LOCAL;
}

/* Completions other than peers' immediates: what both endpoints post, and what a provider posts for itself. */
static size_t own_completions(const struct wf_rail *rail)
{
	const struct fi_info *info = rail->info;
	size_t ours = 2 * (size_t)rail->limits.queue_ops + rail->receive_frames;
	size_t theirs = rail->quirks->receives ? 2 * info->tx_attr->size + info->rx_attr->size + OUTGOING_RECEIVES : 0;

	return ours > theirs ? ours : theirs;
}

static int try_cq(struct wf_rail *rail, struct fi_cq_attr *attr)
{
	int error = -FI_ENOSYS;

	attr->wait_obj = FI_WAIT_FD;
	if (!rail->quirks->no_wait)
		error = fi_cq_open(rail->domain, attr, &rail->cq, NULL);
	rail->wait_fd = !error;
	if (error) {
		attr->wait_obj = FI_WAIT_NONE;
		error = fi_cq_open(rail->domain, attr, &rail->cq, NULL);
	}
	return error;
}

/* Never lets more completions be outstanding than the queue holds: some NICs lose what does not fit. A queue without
 * room for all immediates is shared out in smaller parts (greeting.c). */
static int open_cq(struct wf_rail *rail)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_DATA };
	size_t own = own_completions(rail), room = WF_IMMEDIATES_ROOM;
	int error;

	do {
		attr.size = own + room;
		error = try_cq(rail, &attr);
		room /= 2;
	} while (error && room);
	if (error)
		return failed(rail, "opening the completion queue", error);
	/* Providers store the real size there. */
	rail->limits.immediates = attr.size > own ? at_most(attr.size - own, WF_IMMEDIATES_ROOM) : 0;
	rail->limits.waits = rail->wait_fd;
	return 0;
}

/* If another process opened the same port at the same moment, listening fails: the next try uses the next port. */
static int not_enabled(struct wf_rail *rail, int error)
{
	failed(rail, "enabling the endpoint", error);
	if (error == -FI_EADDRINUSE && rail->ports.high)
		return -FI_EBUSY;
	if (error != -FI_EINVAL || !rail->quirks->sized_by_universe)
		return error;
	wf_log(rail->log, WEFT_LOG_ERROR, "rail %s: enabling the endpoint: %s. Is the card's queue too small? Set %s",
	       rail->name, fi_strerror(-error), "FI_UNIVERSE_SIZE=16 in the environment, or the number of peers");
	return -EIO;
}

/* An endpoint that rests must not complete into a queue that is read for its successor. */
static int open_own_cq(struct wf_rail *rail, struct wf_endpoint *end)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_DATA,
				   .size = own_completions(rail),
				   .wait_obj = FI_WAIT_NONE };
	int error = fi_cq_open(rail->domain, &attr, &end->cq, NULL);

	return error ? failed(rail, "opening the outgoing endpoint's completion queue", error) : 0;
}

static int open_endpoint(struct wf_rail *rail, enum wf_end which)
{
	struct wf_endpoint *end = &rail->end[which];
	struct fi_av_attr av = { .type = rail->info->domain_attr->av_type };
	struct fi_eq_attr eq = { .wait_obj = FI_WAIT_NONE };
	size_t receives = rail->info->rx_attr->size;
	int error;

	/* Some providers call abort() on an internal error if no event queue is bound. */
	if ((error = fi_eq_open(rail->fabric, &eq, &end->eq, NULL)))
		return failed(rail, "opening the event queue", error);
	if (!rail->cq && (error = open_cq(rail)))
		return error;
	if (which == WF_OUTGOING && rail->quirks->shares_memory && (error = open_own_cq(rail, end)))
		return error;
	if ((error = fi_av_open(rail->domain, &av, &end->av, NULL)))
		return failed(rail, "opening the address vector", error);
	/* Only providers send to the outgoing endpoint, their own answers. Receive buffers are most of an endpoint's
	 * memory. */
	if (which == WF_OUTGOING && receives > OUTGOING_RECEIVES)
		rail->info->rx_attr->size = OUTGOING_RECEIVES;
	error = wf_rail_endpoint(rail, which == WF_PUBLISHED, &end->ep);
	rail->info->rx_attr->size = receives;
	if (error)
		return failed(rail, "opening the endpoint", error);
	if ((error = fi_ep_bind(end->ep, &end->eq->fid, 0)) ||
	    (error = fi_ep_bind(end->ep, end->cq ? &end->cq->fid : &rail->cq->fid, FI_TRANSMIT | FI_RECV)) ||
	    (error = fi_ep_bind(end->ep, &end->av->fid, 0)))
		return failed(rail, "binding the endpoint", error);
	if ((error = fi_enable(end->ep)))
		return not_enabled(rail, error);
	wf_strangers_limit_reads(rail, which);
	if (which == WF_OUTGOING)
		wf_rail_ask(rail, end->ep);
	return 0;
}

/* Has the provider handle what came in; completions of ours stay to be read. */
static void read_before_close(struct wf_rail *rail)
{
	for (int i = 0; rail->quirks && rail->quirks->read_before_close && rail->cq && i < READS_AT_CLOSE; i++)
		fi_cq_read(rail->cq, NULL, 0);
}

void wf_rail_close_end(struct wf_endpoint *end)
{
	/* The endpoint first: from here on nothing that was posted can touch memory. */
	if (end->ep)
		fi_close(&end->ep->fid);
	if (end->av)
		fi_close(&end->av->fid);
	if (end->eq)
		fi_close(&end->eq->fid);
	if (end->cq)
		fi_close(&end->cq->fid);
	wf_addresses_forget(&end->addresses);
	end->ep = NULL;
	end->av = NULL;
	end->eq = NULL;
	end->cq = NULL;
	end->posted = 0;
	end->shared = false;
}

static void close_endpoint(struct wf_rail *rail, struct wf_endpoint *end, bool readable)
{
	if (end->ep)
		read_before_close(rail);
	/* Without memory for that it closes, which is what it always did. */
	if (!end->shared || wf_resting_begin(rail, end, readable))
		wf_rail_close_end(end);
}

void wf_rail_shut(struct wf_rail *rail, enum wf_end which)
{
	if (rail->local) {
		wf_host_shut(rail, which);
		return;
	}
	wf_strangers_leave(rail, which);
	close_endpoint(rail, &rail->end[WF_OUTGOING], which == WF_OUTGOING);
	if (atomic_load(&rail->staged))
		rail->unquiet = !wf_staged_shut(atomic_load(&rail->staged));
	rail->unrung = false;
	if (rail->quirks && rail->quirks->direct)
		rail->rma_flags = 0; /* until an inserted address needs more */
	if (which == WF_OUTGOING)
		return;
	wf_resting_read(rail);
	close_endpoint(rail, &rail->end[WF_PUBLISHED], false);
	if (rail->cq)
		fi_close(&rail->cq->fid);
	rail->cq = NULL;
	rail->failures.count = rail->failures.next = 0;
}

static int reopen_endpoint(struct wf_rail *rail, enum wf_end which)
{
	int error = -FI_EBUSY;

	/* shm names its file by process id and a running number, and a killed process leaves it behind. When process
	 * ids wrap around, the name is taken, but the next number is free. */
	for (int i = 0; i < OPEN_TRIES && error == -FI_EBUSY; i++) {
		wf_rail_shut(rail, which);
		error = open_endpoint(rail, which);
	}
	if (error)
		wf_rail_shut(rail, which);
	return error;
}

int wf_rail_reopen(struct wf_rail *rail)
{
	int error = 0;

	if (rail->local)
		return wf_host_reopen(rail);
	wf_resting_read(rail);
	if (atomic_load(&rail->staged) && !rail->end[WF_OUTGOING].ep)
		wf_staged_reopened(atomic_load(&rail->staged));
	if (wf_resting_full(rail))
		return failed(rail, "engines of this process still use many closed endpoints", -FI_EBUSY);
	for (enum wf_end which = WF_PUBLISHED; which < WF_ENDS && !error; which++)
		if (!rail->end[which].ep)
			error = reopen_endpoint(rail, which);
	return error;
}

/* The providers that register beside the worker are those whose endpoints are the card's. Sockets are the worker's: it looks at
 * those of all its rails (strangers.c). */
bool wf_rail_reopens_beside(const struct wf_rail *rail)
{
	return rail->quirks->registers_beside && !rail->quirks->sockets && !rail->local;
}

bool wf_rail_is_open(const struct wf_rail *rail, enum wf_end end)
{
	return rail->end[end].ep != NULL || rail->host_open[end];
}

static int make_room(struct wf_rail *rail)
{
	rail->failures.room = 2 * rail->limits.queue_ops + rail->receive_frames;
	if (rail->quirks->sockets && !(rail->abandoned = wf_abandoned_open()))
		return -ENOMEM;
	rail->failures.entry = calloc(rail->failures.room, sizeof(*rail->failures.entry));
	if (!rail->failures.entry)
		return -ENOMEM;
	/* A provider has one reason or the other to keep addresses: those that stay for good are never idle. */
	assert(!rail->quirks->keep_addresses || !rail->quirks->idle_addresses);
	for (int i = 0; i < WF_ENDS; i++) {
		rail->end[i].addresses.most = rail->quirks->keep_addresses;
		rail->end[i].addresses.idle_most = rail->quirks->idle_addresses;
	}
	return 0;
}

int wf_rail_open(const struct wf_nic *nic, uint32_t receive_frames, const struct wf_log *log, struct wf_rail **ret_rail)
{
	struct wf_rail *rail = calloc(1, sizeof(*rail));
	int error = -ENOMEM;

	if (!rail)
		return error;
	pthread_mutex_init(&rail->staged_lock, NULL);
	rail->log = log;
	rail->receive_frames = receive_frames;
	rail->ports = nic->ports;
	snprintf(rail->name, sizeof(rail->name), "%s", nic->name);
	if (nic->local) {
		rail->quirks = wf_quirks_of(nic->provider, NULL);
		rail->allocations = nic->allocations;
		rail->devices = nic->devices;
		error = wf_host_open(rail);
		if (error)
			goto fail;
		*ret_rail = rail;
		return 0;
	}
	rail->info = fi_dupinfo(nic->info);
	if (!rail->info)
		goto fail;
	rail->quirks = wf_quirks_of(rail->info->fabric_attr->prov_name, rail->info->fabric_attr->name);
	wf_rail_tame(rail);
	set_limits(rail, nic);
	error = make_room(rail);
	if (error)
		goto fail;
	rail->info->tx_attr->op_flags = 0; /* asked for per operation */
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
	wf_rail_shut(rail, WF_PUBLISHED);
	wf_staged_close(atomic_load(&rail->staged));
	pthread_mutex_destroy(&rail->staged_lock);
	wf_local_close(rail->local);
	wf_abandoned_close(rail->abandoned);
	if (wf_resting_end(rail)) {
		if (rail->domain)
			fi_close(&rail->domain->fid);
		if (rail->fabric)
			fi_close(&rail->fabric->fid);
	}
	if (rail->info)
		fi_freeinfo(rail->info);
	for (int i = 0; i < WF_ENDS; i++)
		wf_addresses_free(&rail->end[i].addresses);
	free(rail->failures.entry);
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
	int error;

	if (rail->local)
		return wf_host_address(rail, address, bytes);
	error = fi_getname(&rail->end[WF_PUBLISHED].ep->fid, address, &length);

	if (error)
		return failed(rail, "asking for the endpoint's address", error);
	*bytes = (uint8_t)length;
	return 0;
}

/* Addresses come from peers, and providers read up to the end of a text, or as many bytes as their own addresses
 * have. */
static bool is_address(const struct wf_rail *rail, const struct wf_endpoint *end, const uint8_t *address, uint8_t bytes)
{
	uint8_t own[256];
	size_t length = sizeof(own);

	if (rail->info->addr_format == FI_ADDR_STR)
		return memchr(address, 0, bytes);
	return !fi_getname(&end->ep->fid, own, &length) && length == bytes;
}

int wf_rail_insert(struct wf_rail *rail, enum wf_end which, const uint8_t *address, uint8_t bytes, uint64_t *ret_target)
{
	struct wf_endpoint *end = &rail->end[which];
	int error;

	if (rail->local)
		return wf_host_insert(rail, which, address, bytes, ret_target);
	if (!is_address(rail, end, address, bytes))
		return -EINVAL;
	error = wf_addresses_insert(&end->addresses, end->av, address, bytes, ret_target);
	/* Checked again for an address that is kept, because another process may have it by now. The result applies
	 * to the whole rail: the provider decides by the first peer it has met. */
	if (rail->quirks->direct && !wf_rail_copies_directly(rail, address, bytes))
		rail->rma_flags = FI_DELIVERY_COMPLETE;
	if (rail->quirks->shares_memory && which == WF_OUTGOING && wf_rail_in_process(address, bytes))
		end->shared = true;
	return error && error != -EMLINK ? failed(rail, "inserting a peer's address", error) : error;
}

void wf_rail_remove(struct wf_rail *rail, enum wf_end which, const uint8_t *address, uint8_t bytes)
{
	struct wf_endpoint *end = &rail->end[which];

	if (rail->local)
		wf_local_remove(rail->local, (int)which, address);
	if (end->av && wf_addresses_remove(&end->addresses, end->av, address, bytes))
		wf_abandoned_removed(rail->abandoned);
}

bool wf_rail_has(const struct wf_rail *rail, enum wf_end end, const uint8_t *address, uint8_t bytes)
{
	if (rail->local)
		return wf_local_has(rail->local, (int)end, address);
	return wf_addresses_have(&rail->end[end].addresses, address, bytes);
}

void wf_rail_note_lost(struct wf_rail *rail, enum wf_end end, uint64_t target)
{
	wf_addresses_note_lost(&rail->end[end].addresses, target);
}

bool wf_rail_has_lost(const struct wf_rail *rail, enum wf_end end, const uint8_t *address, uint8_t bytes)
{
	return wf_addresses_have_lost(&rail->end[end].addresses, address, bytes);
}

void wf_rail_libfabric_version(char *text, size_t bytes)
{
	uint32_t version = fi_version();

	snprintf(text, bytes, "%u.%u", FI_MAJOR(version), FI_MINOR(version));
}
