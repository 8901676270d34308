/* One random call on an engine that the caller has entered. */
#include "random.h"

#include <errno.h>
#include <string.h>

typedef void (*action)(struct caller *caller, struct station *station);

static const char text[CHUNK / 2]; /* of messages */

/* ---- operations ---- */

static const int submit_errors[] = { EAGAIN, ENOENT,   EHOSTDOWN,  ESTALE, EACCES, EBUSY,
				     ERANGE, EMSGSIZE, EOPNOTSUPP, EINVAL, 0 };

struct order {
	struct outlet *outlet;
	struct weft_op op;
	const struct weft_op *use; /* &op, or NULL */
	_Atomic uint64_t *end;     /* where the transfer is noted whose end is kept; NULL: it is not */
};

static uint64_t some_timeout(struct caller *caller)
{
	static const uint64_t timeouts[] = { WEFT_MICROSECOND, WEFT_MILLISECOND, 20 * WEFT_MILLISECOND,
					     200 * WEFT_MILLISECOND, WEFT_SECOND };

	return timeouts[pick(caller, COUNT(timeouts))];
}

/* A free place for an operation whose end somebody is to wait for. NULL: wait for others first. */
static _Atomic uint64_t *take_end(struct caller *caller, struct station *station)
{
	_Atomic uint64_t *end = &station->end[pick(caller, ENDS)];
	uint64_t none = 0;

	return atomic_compare_exchange_strong(end, &none, UINT64_MAX) ? end : NULL;
}

/* Makes options for an operation, and holds the queue that they name. */
static void take_order(struct caller *caller, struct station *station, bool data, struct order *ret_order)
{
	struct outlet *outlet = &station->outlet[pick(caller, QUEUES)];
	struct weft_op *op = &ret_order->op;

	memset(ret_order, 0, sizeof(*ret_order));
	op->size = sizeof(*op);
	ret_order->use = pick(caller, 20) ? op : NULL;
	op->timeout_ns = some_timeout(caller);
	if (pick(caller, 8) && ret_order->use) {
		op->queue = outlet_enter(outlet);
		ret_order->outlet = op->queue ? outlet : NULL;
	} else if (ret_order->use && (ret_order->end = take_end(caller, station)))
		op->flags = WEFT_KEEP_END;
	if (op->queue || ret_order->end)
		op->tag = ticket_take(station, ret_order->outlet, now_ns() + op->timeout_ns);
	if (!data)
		return;
	op->notify = (enum weft_notify)pick(caller, 3);
	op->notify_tag = pick(caller, 100);
	op->immediate = (uint32_t)pick(caller, 50);
	op->notify_payload = "a payload";
	op->notify_bytes = op->notify == WEFT_NOTIFY_FENCED ? (uint32_t)pick(caller, 9) : 0;
	if (op->notify == WEFT_NOTIFY_FENCED && pick(caller, 3) == 0)
		op->flags |= WEFT_CHECKSUM;
}

static void give_order(struct caller *caller, struct station *station, struct order *order, int status,
		       weft_transfer transfer)
{
	if (status)
		ticket_void(order->op.tag);
	else
		atomic_store(&station->transfer[atomic_fetch_add(&station->transfers, 1) % TRANSFERS], transfer);
	if (order->end)
		atomic_store(order->end, status ? 0 : transfer);
	if (order->outlet)
		outlet_leave(order->outlet);
}

static uint64_t some_bytes(struct caller *caller)
{
	static const uint64_t sizes[] = { 0, 1, 64, 4096, 65536, CHUNK / 2 };

	return sizes[pick(caller, COUNT(sizes))];
}

/* From the first half of a region to the second: peers do not write what we send, which would be a race. */
static struct weft_write some_write(struct caller *caller, struct station *station)
{
	uint64_t bytes = some_bytes(caller);

	return (struct weft_write){ sizeof(struct weft_write),
				    HANDLE(caller, station->region),
				    pick(caller, CHUNK / 2 - bytes + 1),
				    HANDLE(caller, station->remote),
				    CHUNK / 2 + pick(caller, CHUNK / 2 - bytes + 1),
				    bytes };
}

static void write_range(struct caller *caller, struct station *station)
{
	struct weft_write write = some_write(caller, station);
	weft_transfer transfer = 0;
	struct order order;
	int status;

	take_order(caller, station, true, &order);
	CALL(caller, weft_write, status, submit_errors, station->engine, &write, order.use, &transfer);
	give_order(caller, station, &order, status, transfer);
}

static void read_range(struct caller *caller, struct station *station)
{
	struct weft_write as = some_write(caller, station);
	struct weft_read read = { sizeof(read), as.to, as.from_offset, as.from, as.to_offset, as.bytes };
	weft_transfer transfer = 0;
	struct order order;
	int status;

	take_order(caller, station, false, &order);
	CALL(caller, weft_read, status, submit_errors, station->engine, &read, order.use, &transfer);
	give_order(caller, station, &order, status, transfer);
}

#define PAGES 40

/* Pages to take, in any order and some of them twice, and pages to fill, each once. */
static void some_pages(struct caller *caller, uint32_t from[PAGES], uint32_t to[PAGES])
{
	for (uint32_t i = 0; i < PAGES; i++) {
		from[i] = (uint32_t)pick(caller, PAGES);
		to[i] = (i * 7 + 3) % PAGES;
	}
}

static void write_pages(struct caller *caller, struct station *station)
{
	uint32_t from[PAGES], to[PAGES];
	struct weft_write_pages pages = { .size = sizeof(pages),
					  .page_bytes = 64u << pick(caller, 6),
					  .to_offset = CHUNK / 2,
					  .count = pick(caller, PAGES + 1),
					  .from = HANDLE(caller, station->region),
					  .from_index = pick(caller, 4) ? from : NULL,
					  .to = HANDLE(caller, station->remote),
					  .to_index = pick(caller, 4) ? to : NULL };
	weft_transfer transfer = 0;
	struct order order;
	int status;

	some_pages(caller, from, to);
	take_order(caller, station, true, &order);
	CALL(caller, weft_write_pages, status, submit_errors, station->engine, &pages, order.use, &transfer);
	give_order(caller, station, &order, status, transfer);
}

static void read_pages(struct caller *caller, struct station *station)
{
	uint32_t from[PAGES], to[PAGES];
	struct weft_read_pages pages = { .size = sizeof(pages),
					 .page_bytes = 64u << pick(caller, 6),
					 .to_offset = CHUNK / 2,
					 .count = pick(caller, PAGES + 1),
					 .from = HANDLE(caller, station->remote),
					 .from_index = pick(caller, 4) ? from : NULL,
					 .to = HANDLE(caller, station->region),
					 .to_index = pick(caller, 4) ? to : NULL };
	weft_transfer transfer = 0;
	struct order order;
	int status;

	some_pages(caller, from, to);
	take_order(caller, station, false, &order);
	CALL(caller, weft_read_pages, status, submit_errors, station->engine, &pages, order.use, &transfer);
	give_order(caller, station, &order, status, transfer);
}

static void scatter(struct caller *caller, struct station *station)
{
	struct weft_write parts[5];
	uint32_t count = (uint32_t)pick(caller, COUNT(parts) + 1);
	weft_transfer transfer = 0;
	struct order order;
	int status;

	for (uint32_t i = 0; i < count; i++)
		parts[i] = some_write(caller, station);
	take_order(caller, station, true, &order);
	CALL(caller, weft_scatter, status, submit_errors, station->engine, parts, count, order.use, &transfer);
	give_order(caller, station, &order, status, transfer);
}

static void send_message(struct caller *caller, struct station *station)
{
	uint64_t bytes = some_bytes(caller);
	weft_transfer transfer = 0;
	struct order order;
	int status;

	take_order(caller, station, false, &order);
	CALL(caller, weft_send, status, submit_errors, station->engine, HANDLE(caller, station->peer),
	     pick(caller, 100), text, bytes, order.use, &transfer);
	give_order(caller, station, &order, status, transfer);
}

static void call_peer(struct caller *caller, struct station *station)
{
	uint64_t bytes = some_bytes(caller);
	weft_transfer transfer = 0;
	struct order order;
	int status;

	take_order(caller, station, false, &order);
	CALL(caller, weft_call, status, submit_errors, station->engine, HANDLE(caller, station->peer),
	     pick(caller, 100), text, bytes, order.use, &transfer);
	give_order(caller, station, &order, status, transfer);
}

/* Replies to any call that came in: once, twice, or long after. */
static void reply(struct caller *caller, struct station *station)
{
	struct call *call = &station->call[pick(caller, CALLS)];
	uint64_t bytes = some_bytes(caller);
	weft_transfer transfer = 0;
	struct order order;
	int status;

	take_order(caller, station, false, &order);
	CALL(caller, weft_reply, status, submit_errors, station->engine, atomic_load(&call->peer),
	     atomic_load(&call->call), pick(caller, 4) ? 0 : -ENODATA, text, bytes, order.use, &transfer);
	give_order(caller, station, &order, status, transfer);
}

static void barrier(struct caller *caller, struct station *station)
{
	weft_peer peers[3];
	uint32_t count = (uint32_t)pick(caller, COUNT(peers) + 1);
	weft_transfer transfer = 0;
	struct order order;
	int status;

	for (uint32_t i = 0; i < count; i++)
		peers[i] = HANDLE(caller, station->peer);
	take_order(caller, station, false, &order);
	CALL(caller, weft_barrier, status, submit_errors, station->engine, peers, count, pick(caller, 8), order.use,
	     &transfer);
	give_order(caller, station, &order, status, transfer);
}

static void expect(struct caller *caller, struct station *station)
{
	weft_transfer transfer = 0;
	struct order order;
	int status;

	take_order(caller, station, false, &order);
	CALL(caller, weft_expect, status, submit_errors, station->engine,
	     pick(caller, 2) ? HANDLE(caller, station->peer) : 0, (uint32_t)pick(caller, 50), pick(caller, 10),
	     order.use, &transfer);
	give_order(caller, station, &order, status, transfer);
}

static void cancel(struct caller *caller, struct station *station)
{
	static const int allowed[] = { ENOENT, 0 };
	int status;

	CALL(caller, weft_transfer_cancel, status, allowed, station->engine, HANDLE(caller, station->transfer));
}

/* ---- queues ---- */

static const int end_errors[] = { ECANCELED, ETIMEDOUT,  EHOSTDOWN, ESTALE,  EMSGSIZE, EIO,
				  EBADMSG,   EREMOTEIO,  EBUSY,     ENOBUFS, EACCES,   ENETDOWN,
				  EPROTO,    EOPNOTSUPP, ENODATA,   ERANGE,  0 };

static void take_event(struct caller *caller, struct station *station, struct weft_event *event)
{
	struct call *call = &station->call[atomic_fetch_add(&station->calls, 1) % CALLS];

	switch (event->type) {
	case WEFT_EVENT_END:
	case WEFT_EVENT_REPLY:
	case WEFT_EVENT_COUNTED:
		check(caller, "an operation", event->status, end_errors);
		caller->done += !event->status;
		caller->failed += event->status != 0;
		ticket_ended(station, event->tag, weft_strerror(event->status));
		break;
	case WEFT_EVENT_CALL:
		atomic_store(&call->peer, event->peer);
		atomic_store(&call->call, event->call);
		if (pick(caller, 4)) {
			int status = weft_reply(station->engine, event->peer, event->call, 0, event->data,
						event->bytes < 4096 ? event->bytes : 4096, NULL, NULL);

			check(caller, "weft_reply", status, submit_errors);
		}
		break;
	case WEFT_EVENT_PEER_UP: /* a peer that came by a hello can be talked to as well */
		if (pick(caller, 4) == 0)
			atomic_store(&station->peer[pick(caller, PEERS)], event->peer);
		break;
	default:
		caller->arrived++;
		break;
	}
	if (event->owner && caller->kept_count < KEPT && pick(caller, 4) == 0) {
		atomic_fetch_add(&station->users, 1); /* we are inside, so it cannot be gone */
		caller->kept[caller->kept_count++] = (struct kept){ station, *event };
	} else {
		weft_event_release(event);
	}
}

static void take_events(struct caller *caller, struct station *station)
{
	struct outlet *outlet = &station->outlet[pick(caller, QUEUES)];
	weft_queue *queue = outlet_enter(outlet);
	struct weft_event event[16];
	int got, max = 1 + (int)pick(caller, COUNT(event));

	if (!queue)
		return;
	if (pick(caller, 4))
		CALL(caller, weft_queue_poll, got, nothing, queue, event, sizeof(*event), max);
	else
		CALL(caller, weft_queue_wait, got, nothing, queue, event, sizeof(*event), max,
		     pick(caller, 4 * WEFT_MILLISECOND));
	for (int i = 0; i < got; i++)
		take_event(caller, station, &event[i]);
	if (pick(caller, 50) == 0 && weft_queue_fd(queue) < 0)
		fail("a queue has no descriptor");
	outlet_leave(outlet);
}

/* One of those who wait for the same end gets it; the others, and those who come later, find that it is gone. */
static void wait_for_end(struct caller *caller, struct station *station)
{
	static const int allowed[] = { ENOENT, ETIMEDOUT, 0 };
	_Atomic uint64_t *end = &station->end[pick(caller, ENDS)];
	uint64_t transfer = pick(caller, 8) ? atomic_load(end) : HANDLE(caller, station->transfer);
	struct weft_event event;
	int status;

	if (!transfer || transfer == UINT64_MAX)
		return;
	CALL(caller, weft_transfer_wait, status, allowed, station->engine, transfer, pick(caller, 4 * WEFT_MILLISECOND),
	     &event, sizeof(event));
	if (!status)
		take_event(caller, station, &event);
	if (!status || status == -ENOENT)
		atomic_compare_exchange_strong(end, &transfer, 0);
}

static void open_queue(struct caller *caller, struct station *station)
{
	struct outlet *outlet = &station->outlet[1 + pick(caller, QUEUES - 1)];
	weft_queue *queue;
	int alone = 0, status;

	if (!atomic_compare_exchange_strong(&outlet->users, &alone, -1))
		return;
	if (!atomic_load(&outlet->queue)) {
		CALL(caller, weft_queue_open, status, nothing, station->engine, 0, &queue);
		atomic_store(&outlet->queue, queue);
	}
	atomic_store(&outlet->users, 0);
}

static void close_queue(struct caller *caller, struct station *station)
{
	static const int allowed[] = { EBUSY, 0 };
	struct outlet *outlet = &station->outlet[1 + pick(caller, QUEUES - 1)];
	int alone = 0, status;

	if (!atomic_compare_exchange_strong(&outlet->users, &alone, -1))
		return;
	if (atomic_load(&outlet->queue)) {
		CALL(caller, weft_queue_close, status, allowed, outlet->queue);
		if (!status) {
			tickets_void(station, outlet); /* unread ends went with it */
			atomic_store(&outlet->queue, NULL);
		}
	}
	atomic_store(&outlet->users, 0);
}

static void listen_on(struct caller *caller, struct station *station)
{
	struct outlet *outlet = &station->outlet[pick(caller, QUEUES)];
	weft_queue *queue = outlet_enter(outlet);
	int status;

	if (!queue)
		return;
	CALL(caller, weft_queue_listen, status, nothing, queue);
	outlet_leave(outlet);
}

/* ---- the rest ---- */

static void ask(struct caller *caller, struct station *station)
{
	static const int allowed[] = { ENOENT, 0 };
	struct weft_rail_info rail;
	struct weft_peer_info peer;
	struct weft_path_info path;
	struct weft_engine_info info;
	struct weft_config config = WEFT_CONFIG_INIT;
	uint8_t blob[BLOB];
	size_t bytes = sizeof(blob);
	int status;

	CALL(caller, weft_engine_info, status, nothing, station->engine, &info, sizeof(info));
	CALL(caller, weft_engine_config, status, nothing, station->engine, &config, sizeof(config));
	CALL(caller, weft_rail_info, status, allowed, station->engine, (uint32_t)pick(caller, info.rails + 1), &rail,
	     sizeof(rail));
	CALL(caller, weft_peer_info, status, allowed, station->engine, HANDLE(caller, station->peer), &peer,
	     sizeof(peer));
	CALL(caller, weft_path_info, status, allowed, station->engine, HANDLE(caller, station->peer),
	     (uint32_t)pick(caller, info.rails + 1), (uint32_t)pick(caller, 3), &path, sizeof(path));
	CALL(caller, weft_engine_address, status, nothing, station->engine, blob, &bytes);
	pthread_mutex_lock(&world.board->lock);
	world.board->engine[station->number].address.bytes = (uint32_t)bytes;
	memcpy(world.board->engine[station->number].address.data, blob, bytes);
	pthread_mutex_unlock(&world.board->lock);
}

static void progress(struct caller *caller, struct station *station)
{
	static const int allowed[] = { EINVAL, EBUSY, 0 };
	int status;

	for (int i = 0; i < 10; i++)
		CALL(caller, weft_engine_progress, status, allowed, station->engine);
}

static void release_one(struct caller *caller, struct station *station)
{
	if (!caller->kept_count)
		return;
	weft_event_release(&caller->kept[--caller->kept_count].event);
	station_leave(caller->kept[caller->kept_count].station);
}

static const struct {
	action action;
	uint32_t weight;
} actions[] = {
	{ add_peer, 30 },      { remove_peer, 8 },   { replace_peer, 8 },   { cancel_peer, 3 },
	{ import_remote, 50 }, { close_remote, 5 },  { export_region, 10 }, { register_region, 10 },
	{ close_region, 4 },   { revoke_region, 4 }, { write_range, 60 },   { read_range, 30 },
	{ write_pages, 40 },   { read_pages, 20 },   { scatter, 20 },       { send_message, 60 },
	{ call_peer, 40 },     { reply, 10 },        { barrier, 10 },       { expect, 20 },
	{ cancel, 20 },        { take_events, 300 }, { wait_for_end, 60 },  { open_queue, 5 },
	{ close_queue, 3 },    { listen_on, 3 },     { ask, 10 },           { progress, 40 },
	{ release_one, 40 },
};

void random_call(struct caller *caller, struct station *station)
{
	uint64_t all = 0, at;

	for (size_t i = 0; i < COUNT(actions); i++)
		all += actions[i].weight;
	at = pick(caller, all);
	for (size_t i = 0; i < COUNT(actions); i++) {
		if (at < actions[i].weight) {
			actions[i].action(caller, station);
			return;
		}
		at -= actions[i].weight;
	}
}
