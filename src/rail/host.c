/*
 * The local rail under the interface of rail.h: the functions there pass on the calls for a rail that has one. Nothing of libfabric.
 * Runs on the worker that owns the rail; registering on any thread.
 */
#include "base/hot.h"
#include "device/device.h"
#include "local/allocation.h"
#include "rail/host.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_BYTES   (4u << 20) /* some turns' worth of copying */
#define WINDOW_OPS     256u
#define ADDRESS_FORMAT 0x6c6f6361u /* of no libfabric provider */
#define BATCH          64

_Static_assert((int)WF_ENDS == WF_LOCAL_ENDS, "an endpoint has the same number in both layers");

static int failed(struct wf_rail *rail, int error)
{
	if (error != -EAGAIN)
		wf_rail_note_error(rail, -error,
				   error == -EKEYREJECTED   ? "the memory's key is not valid any more"
				   : error == -EHOSTUNREACH ? "no process of this host listens there"
				   : error == -EOPNOTSUPP   ? "the memory is a card's, and this process cannot open it"
				   : error == -ENOTRECOVERABLE && wf_local_why(rail->local) ? wf_local_why(rail->local)
											    : strerror(-error));
	return error;
}

static void set_limits(struct wf_rail_limits *limits)
{
	*limits = (struct wf_rail_limits){ .max_bytes = UINT64_MAX,
					   .queue_ops = WF_LOCAL_OPS,
					   .window_ops = WINDOW_OPS,
					   .window_bytes = WINDOW_BYTES,
					   .window_first = WINDOW_BYTES,
					   .inject_bytes = WF_LOCAL_FRAME,
					   .rma_ranges = WF_RMA_RANGES,
					   .empty_immediate = true,
					   .address_format = ADDRESS_FORMAT,
					   .delivery_complete = true,
					   .close_quiesces = true,
					   .immediate = true,
					   .immediates = WF_IMMEDIATES_ROOM,
					   .waits = true,
					   .local = true };
}

/* Sandboxes may have no memfds, no abstract sockets or no boot id: better known before an engine depends on it. */
static int try_local(const struct wf_log *log)
{
	struct wf_local *local;
	int error = wf_local_open(1, log, &local);

	if (error)
		return error;
	error = wf_local_listen(local);
	wf_local_close(local);
	return error;
}

int wf_nics_add_local(struct wf_nics *nics, uint32_t count, const struct wf_log *log)
{
	int error = try_local(log);
	struct wf_nic *grown;

	if (error) {
		wf_log(log, WEFT_LOG_INFO, "peers of this host are reached over NICs: %s", strerror(-error));
		return -ENOSYS;
	}
	grown = realloc(nics->nic, (nics->count + count) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	nics->nic = grown;
	for (uint32_t i = 0; i < count; i++) {
		struct wf_nic *nic = &grown[nics->count++];

		memset(nic, 0, sizeof(*nic));
		if (count > 1)
			snprintf(nic->name, sizeof(nic->name), "local%u", i);
		else
			snprintf(nic->name, sizeof(nic->name), "local");
		snprintf(nic->provider, sizeof(nic->provider), "local");
		nic->local = true;
		nic->rank = wf_quirks_of("local", NULL)->rank;
	}
	return 0;
}

int wf_host_open(struct wf_rail *rail)
{
	int error = wf_local_open(rail->receive_frames, rail->log, &rail->local);

	if (!error) {
		wf_local_use_devices(rail->local, rail->devices);
		set_limits(&rail->limits);
		error = wf_host_reopen(rail);
	}
	return error ? failed(rail, error) : 0;
}

void wf_host_shut(struct wf_rail *rail, enum wf_end which)
{
	rail->host_open[WF_OUTGOING] = false;
	if (which == WF_OUTGOING) {
		rail->unquiet = !wf_local_take_back(rail->local, WF_OUTGOING);
		return;
	}
	rail->host_open[WF_PUBLISHED] = false;
	wf_local_leave(rail->local);
}

int wf_host_reopen(struct wf_rail *rail)
{
	int error = rail->host_open[WF_PUBLISHED] ? 0 : wf_local_listen(rail->local);

	if (error)
		return failed(rail, error);
	rail->host_open[WF_PUBLISHED] = rail->host_open[WF_OUTGOING] = true;
	return 0;
}

int wf_host_address(struct wf_rail *rail, uint8_t *address, uint8_t *bytes)
{
	if (*bytes < WF_LOCAL_ADDRESS)
		return -ENOBUFS;
	wf_local_address(rail->local, address);
	*bytes = WF_LOCAL_ADDRESS;
	return 0;
}

int wf_host_insert(struct wf_rail *rail, enum wf_end end, const uint8_t *address, uint8_t bytes, uint64_t *ret_target)
{
	int error = wf_local_insert(rail->local, (int)end, address, bytes, ret_target);

	return error ? failed(rail, error) : 0;
}

int wf_host_register(struct wf_rail *rail, void *base, uint64_t bytes, uint32_t access,
		     struct wf_rail_memory *ret_memory)
{
	struct wf_local_file file;
	bool is_ours = rail->allocations && wf_allocation_find(rail->allocations, base, bytes, &file);
	int error;

	memset(ret_memory, 0, sizeof(*ret_memory));
	if (!access)
		return 0; /* what is only used here needs nothing */
	error = wf_local_register(rail->local, base, bytes, access, is_ours ? &file : NULL, &ret_memory->key);
	if (error)
		return error;
	ret_memory->mr = ret_memory->host = rail;
	ret_memory->base = (uintptr_t)base;
	return 0;
}

int wf_host_register_device(struct wf_rail *rail, const struct wf_device_memory *device, uint32_t access,
			    struct wf_rail_memory *ret_memory)
{
	int error = 0;

	wf_local_prepare_card(rail->local, device->card);
	if (access)
		error = wf_local_register_device(rail->local, device, access, &ret_memory->key);
	if (error)
		return error;
	ret_memory->host = access ? rail : NULL;
	ret_memory->mr = ret_memory->host;
	ret_memory->base = device->base;
	ret_memory->desc = (void *)(uintptr_t)device;
	return 0;
}

void wf_host_unregister(struct wf_rail_memory *memory)
{
	struct wf_rail *rail = memory->host;

	if (memory->mr && !wf_local_unregister(rail->local, memory->key))
		wf_log(rail->log, WEFT_LOG_WARN,
		       "rail %s: a process was stopped in the middle of a copy: it may still finish that in the memory "
		       "that was "
		       "taken back",
		       rail->name);
	memory->mr = NULL;
	memory->host = NULL;
}

uint64_t wf_rail_mapped_bytes(const struct wf_rail *rail)
{
	return rail->local ? wf_local_mapped_bytes(rail->local) : 0;
}

bool wf_rail_is_quiet(const struct wf_rail *rail)
{
	return !rail->unquiet;
}

bool wf_rail_is_here(const struct wf_rail *rail, const uint8_t *address, uint8_t bytes)
{
	return rail->local && wf_local_is_here(rail->local, address, bytes);
}

/* ---- posting ---- */

/* All ranges of an operation, or none. */
static int post_ranges(struct wf_rail *rail, const struct wf_local_run *run, const struct wf_rma *rma)
{
	int error = 0;

	if (!wf_local_has_room(rail->local, (uint32_t)rma->range_count))
		return -EAGAIN;
	for (int i = 0; i < rma->range_count && !error; i++) {
		struct wf_local_copy copy = { i + 1 == rma->range_count ? rma->wr : NULL, rma->ranges[i].local,
					      rma->ranges[i].remote, rma->ranges[i].bytes, 0 };

		error = wf_local_post(rail->local, run, &copy);
	}
	return error;
}

WF_HOT int wf_host_rma(struct wf_rail *rail, const struct wf_rma_run *run, const struct wf_rma *rma, int count,
		       bool more, int *ret_error)
{
	struct wf_local_run local = { .target = run->target,
				      .key = run->key,
				      .immediate = run->immediate,
				      .has_immediate = run->has_immediate,
				      .read = run->read,
				      .cards = run->cards,
				      .near = run->cards ? run->desc : NULL,
				      .list = run->list };
	int error = wf_local_begin(rail->local, &local), posted = 0;

	for (; posted < count && !error; posted++) {
		struct wf_local_copy copy = { rma[posted].wr, rma[posted].local, rma[posted].remote, rma[posted].bytes,
					      rma[posted].first };

		error = !run->list && rma[posted].ranges ? post_ranges(rail, &local, &rma[posted])
							 : wf_local_post(rail->local, &local, &copy);
		if (error)
			break;
	}
	if (!more)
		wf_local_go(rail->local);
	if (error)
		*ret_error = failed(rail, error);
	return posted;
}

WF_HOT int wf_host_send(struct wf_rail *rail, const struct wf_outbound *out)
{
	int error = wf_local_send(rail->local, out->target, out->buffer, out->bytes);

	return __builtin_expect(error != 0, 0) ? failed(rail, error) : 0;
}

/* ---- completions ---- */

WF_HOT int wf_host_poll(struct wf_rail *rail, struct wf_completion *completions, int max)
{
	struct wf_local_end end[BATCH];
	int got = wf_local_poll(rail->local, end, max < BATCH ? max : BATCH);

	for (int i = 0; i < got; i++) {
		completions[i] = (struct wf_completion){ .wr = end[i].context,
							 .status = end[i].status,
							 .immediate = end[i].immediate,
							 .bytes = end[i].bytes };
		if (__builtin_expect(end[i].status != 0, 0))
			failed(rail, end[i].status);
	}
	return got;
}
