/* One random call on an engine that the caller has entered. */
#include "random.h"

#include <errno.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

typedef void (*action)(struct caller *caller, struct station *station);

/* A slot of a table: mostly one that is filled, sometimes an empty or stale one. */
#define HANDLE(caller, table) atomic_load(&(table)[pick(caller, COUNT(table))])

/* Makes the call known to the watchdog. */
#define CALL(caller, name, status, allowed, ...)                                                                       \
	do {                                                                                                           \
		enter_call(caller, #name);                                                                             \
		status = name(__VA_ARGS__);                                                                            \
		leave_call(caller);                                                                                    \
		check(caller, #name, status, allowed);                                                                 \
	} while (0)

static const int nothing[] = { 0 };
static const char text[CHUNK / 2]; /* of messages */

/* ---- peers ---- */

static bool take_blob(struct caller *caller, struct blob *ret_blob, bool region)
{
	uint32_t e = (uint32_t)pick(caller, world.processes) * ENGINES + (uint32_t)pick(caller, world.engines);
	const struct blob *blob = &world.board->engine[e].address;

	if (region)
		blob = &world.board->engine[e].region[pick(caller, REGIONS)];
	else if (pick(caller, 8) == 0)
		blob = &world.board->engine[e].old_address;
	pthread_mutex_lock(&world.board->lock);
	*ret_blob = *blob;
	pthread_mutex_unlock(&world.board->lock);
	if (ret_blob->bytes && pick(caller, 50) == 0) /* as it may come out of a broken socket */
		ret_blob->data[pick(caller, ret_blob->bytes)] ^= (uint8_t)(1 + pick(caller, 255));
	if (ret_blob->bytes && pick(caller, 100) == 0)
		ret_blob->bytes = (uint32_t)pick(caller, ret_blob->bytes);
	return ret_blob->bytes;
}

static const int blob_errors[] = { EINVAL,   EPROTO, EBADMSG,  EPROTONOSUPPORT, EHOSTUNREACH, ENOENT,
				   EALREADY, ESTALE, EMSGSIZE, ERANGE,          ENOTSUP,      0 };

static void add_peer(struct caller *caller, struct station *station)
{
	struct blob blob;
	weft_peer peer;
	int status;

	if (!take_blob(caller, &blob, false))
		return;
	CALL(caller, weft_peer_add, status, blob_errors, station->engine, blob.data, blob.bytes, &peer);
	if (status == -ENOENT)
		fail("weft_peer_add() returned -ENOENT");
	if (!status)
		atomic_store(&station->peer[pick(caller, PEERS)], peer);
}

static void remove_peer(struct caller *caller, struct station *station)
{
	static const int allowed[] = { ENOENT, 0 };
	int status;

	CALL(caller, weft_peer_remove, status, allowed, station->engine, HANDLE(caller, station->peer));
}

static void replace_peer(struct caller *caller, struct station *station)
{
	struct blob blob;
	int status;

	if (take_blob(caller, &blob, false))
		CALL(caller, weft_peer_replace, status, blob_errors, station->engine, HANDLE(caller, station->peer),
		     blob.data, blob.bytes);
}

static void cancel_peer(struct caller *caller, struct station *station)
{
	static const int allowed[] = { ENOENT, 0 };
	int status;

	CALL(caller, weft_cancel_peer, status, allowed, station->engine, HANDLE(caller, station->peer));
}

static void import_remote(struct caller *caller, struct station *station)
{
	struct blob blob;
	weft_remote remote;
	int status;

	if (!take_blob(caller, &blob, true))
		return;
	CALL(caller, weft_remote_import, status, blob_errors, station->engine, HANDLE(caller, station->peer), blob.data,
	     blob.bytes, &remote);
	if (!status)
		atomic_store(&station->remote[pick(caller, REMOTES)], remote);
}

static void close_remote(struct caller *caller, struct station *station)
{
	static const int allowed[] = { ENOENT, EBUSY, 0 };
	int status;

	CALL(caller, weft_remote_close, status, allowed, station->engine, HANDLE(caller, station->remote));
}

/* ---- regions ---- */

static void export_region(struct caller *caller, struct station *station)
{
	static const int allowed[] = { ENOENT, ESTALE, EACCES, 0 };
	uint64_t slot = pick(caller, REGIONS);
	struct blob blob;
	size_t bytes = sizeof(blob.data);
	int status;

	CALL(caller, weft_region_export, status, allowed, station->engine, atomic_load(&station->region[slot]),
	     blob.data, &bytes);
	if (status)
		return;
	blob.bytes = (uint32_t)bytes;
	pthread_mutex_lock(&world.board->lock);
	world.board->engine[station->number].region[slot] = blob;
	pthread_mutex_unlock(&world.board->lock);
}

static void register_region(struct caller *caller, struct station *station)
{
	static const int closing[] = { ENOENT, EBUSY, 0 };
	uint64_t slot = pick(caller, REGIONS), none = 0;
	weft_region region;
	int status;

	if (atomic_load(&station->region[slot]))
		return;
	if (pick(caller, 2))
		CALL(caller, weft_region_register, status, nothing, station->engine, station->memory + slot * CHUNK,
		     CHUNK, (uint32_t)pick(caller, 4), &region);
	else
		CALL(caller, weft_region_register_near, status, nothing, station->engine,
		     station->memory + slot * CHUNK, CHUNK, (uint32_t)pick(caller, 4), "numa:0", &region);
	if (!atomic_compare_exchange_strong(&station->region[slot], &none, region))
		CALL(caller, weft_region_close, status, closing, station->engine, region);
	else
		export_region(caller, station);
}

static void close_region(struct caller *caller, struct station *station)
{
	static const int allowed[] = { ENOENT, EBUSY, 0 };
	uint64_t slot = pick(caller, REGIONS), region = atomic_load(&station->region[slot]);
	int status;

	CALL(caller, weft_region_close, status, allowed, station->engine, region);
	if (!status)
		atomic_compare_exchange_strong(&station->region[slot], &region, 0);
}

static void revoke_region(struct caller *caller, struct station *station)
{
	static const int allowed[] = { ENOENT, EBUSY, EALREADY, 0 };
	int status;

	CALL(caller, weft_region_revoke, status, allowed, station->engine, HANDLE(caller, station->region));
}

/* ---- operations ---- */

static const int submit_errors[] = { EAGAIN, ENOENT,   EHOSTDOWN,  ESTALE, EACCES, EBUSY,
				     ERANGE, EMSGSIZE, EOPNOTSUPP, EINVAL, 0 };

struct order {
	struct outlet *outlet;
	struct weft_op op;
	const struct weft_op *use; /* &op, or NULL */
};

static uint64_t some_timeout(struct caller *caller)
{
	static const uint64_t timeouts[] = { WEFT_MICROSECOND, WEFT_MILLISECOND, 20 * WEFT_MILLISECOND,
					     200 * WEFT_MILLISECOND, WEFT_SECOND };

	return timeouts[pick(caller, COUNT(timeouts))];
}

/* Options for an operation, and a hold on the queue that it names. */
static void take_order(struct caller *caller, struct station *station, bool data, struct order *ret_order)
{
	struct outlet *outlet = &station->outlet[pick(caller, QUEUES)];
	struct weft_op *op = &ret_order->op;

	memset(ret_order, 0, sizeof(*ret_order));
	ret_order->use = pick(caller, 20) ? op : NULL;
	op->timeout_ns = some_timeout(caller);
	if (pick(caller, 8) && ret_order->use) {
		op->queue = outlet_enter(outlet);
		ret_order->outlet = op->queue ? outlet : NULL;
	}
	if (op->queue)
		op->tag = ticket_take(station, outlet, now_ns() + op->timeout_ns);
	if (!data)
		return;
	op->notify.kind = (enum weft_notify_kind)pick(caller, 3);
	op->notify.tag = pick(caller, 100);
	op->notify.immediate = (uint32_t)pick(caller, 50);
	op->notify.payload = "a payload";
	op->notify.payload_bytes = op->notify.kind == WEFT_NOTIFY_FENCED ? pick(caller, 9) : 0;
	if (op->notify.kind == WEFT_NOTIFY_FENCED && pick(caller, 3) == 0)
		op->flags = WEFT_CHECKSUM;
}

static void give_order(struct caller *caller, struct station *station, struct order *order, int status,
		       weft_transfer transfer)
{
	if (status)
		ticket_void(order->op.tag);
	else
		atomic_store(&station->transfer[atomic_fetch_add(&station->transfers, 1) % TRANSFERS], transfer);
	if (order->outlet)
		outlet_leave(order->outlet);
}

static uint64_t some_bytes(struct caller *caller)
{
	static const uint64_t sizes[] = { 0, 1, 64, 4096, 65536, CHUNK / 2 };

	return sizes[pick(caller, COUNT(sizes))];
}

/* From the first half of a region to the second: what peers write is not what we send, which would be a race. */
static struct weft_write some_write(struct caller *caller, struct station *station)
{
	uint64_t bytes = some_bytes(caller);

	return (struct weft_write){ HANDLE(caller, station->region), pick(caller, CHUNK / 2 - bytes + 1),
				    HANDLE(caller, station->remote), CHUNK / 2 + pick(caller, CHUNK / 2 - bytes + 1),
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
	struct weft_read read = { as.to, as.from_offset, as.from, as.to_offset, as.bytes };
	weft_transfer transfer = 0;
	struct order order;
	int status;

	take_order(caller, station, false, &order);
	CALL(caller, weft_read, status, submit_errors, station->engine, &read, order.use, &transfer);
	give_order(caller, station, &order, status, transfer);
}

static void write_pages(struct caller *caller, struct station *station)
{
	uint32_t from[40], to[40];
	struct weft_pages pages = { .page_bytes = 64u << pick(caller, 6),
				    .to_offset = CHUNK / 2,
				    .count = pick(caller, COUNT(from) + 1),
				    .from = HANDLE(caller, station->region),
				    .from_index = pick(caller, 4) ? from : NULL,
				    .to = HANDLE(caller, station->remote),
				    .to_index = pick(caller, 4) ? to : NULL };
	weft_transfer transfer = 0;
	struct order order;
	int status;

	for (uint32_t i = 0; i < COUNT(from); i++) {
		from[i] = (uint32_t)pick(caller, 40);
		to[i] = (i * 7 + 3) % 40;
	}
	take_order(caller, station, true, &order);
	CALL(caller, weft_write_pages, status, submit_errors, station->engine, &pages, order.use, &transfer);
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

/* Any call that came in: once, twice, or long after. */
static void reply(struct caller *caller, struct station *station)
{
	struct call *call = &station->call[pick(caller, CALLS)];
	int status;

	CALL(caller, weft_reply, status, submit_errors, station->engine, atomic_load(&call->peer),
	     atomic_load(&call->call), pick(caller, 4) ? 0 : -ENODATA, text, some_bytes(caller));
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
	CALL(caller, weft_expect, status, submit_errors, station->engine, (uint32_t)pick(caller, 50), pick(caller, 10),
	     order.use, &transfer);
	give_order(caller, station, &order, status, transfer);
}

static void cancel(struct caller *caller, struct station *station)
{
	static const int allowed[] = { ENOENT, 0 };
	int status;

	CALL(caller, weft_cancel, status, allowed, station->engine, HANDLE(caller, station->transfer));
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
						event->bytes < 4096 ? event->bytes : 4096);

			check(caller, "weft_reply", status, submit_errors);
		}
		break;
	case WEFT_EVENT_PEER_UP: /* who came by a hello can be talked to as well */
		if (pick(caller, 4) == 0)
			atomic_store(&station->peer[pick(caller, PEERS)], event->peer);
		break;
	default:
		caller->arrived++;
		break;
	}
	if (event->owner && caller->kept_count < KEPT && pick(caller, 4) == 0) {
		atomic_fetch_add(&station->users, 1); /* we are in it: it cannot be gone */
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
		CALL(caller, weft_queue_poll, got, nothing, queue, event, max);
	else
		CALL(caller, weft_queue_wait, got, nothing, queue, event, max, pick(caller, 4 * WEFT_MILLISECOND));
	for (int i = 0; i < got; i++)
		take_event(caller, station, &event[i]);
	if (pick(caller, 50) == 0 && weft_queue_fd(queue) < 0)
		fail("a queue has no descriptor");
	outlet_leave(outlet);
}

static void open_queue(struct caller *caller, struct station *station)
{
	struct outlet *outlet = &station->outlet[1 + pick(caller, QUEUES - 1)];
	weft_queue *queue;
	int alone = 0, status;

	if (!atomic_compare_exchange_strong(&outlet->users, &alone, -1))
		return;
	if (!atomic_load(&outlet->queue)) {
		CALL(caller, weft_queue_open, status, nothing, station->engine, &queue);
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
			tickets_void(station, outlet); /* ends that lay there went with it */
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
	struct weft_info info;
	struct weft_config config = WEFT_CONFIG_INIT;
	uint8_t blob[BLOB];
	size_t bytes = sizeof(blob);
	int status;

	CALL(caller, weft_engine_info, status, nothing, station->engine, &info);
	CALL(caller, weft_engine_config, status, nothing, station->engine, &config);
	CALL(caller, weft_rail_info, status, allowed, station->engine, (uint32_t)pick(caller, info.rails + 1), &rail);
	CALL(caller, weft_peer_info, status, allowed, station->engine, HANDLE(caller, station->peer), &peer);
	CALL(caller, weft_path_info, status, allowed, station->engine, HANDLE(caller, station->peer),
	     (uint32_t)pick(caller, info.rails + 1), (uint32_t)pick(caller, 3), &path);
	CALL(caller, weft_address, status, nothing, station->engine, blob, &bytes);
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
		CALL(caller, weft_progress, status, allowed, station->engine);
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
	{ write_pages, 40 },   { scatter, 20 },      { send_message, 60 },  { call_peer, 40 },
	{ reply, 10 },         { barrier, 10 },      { expect, 20 },        { cancel, 20 },
	{ take_events, 300 },  { open_queue, 5 },    { close_queue, 3 },    { listen_on, 3 },
	{ ask, 10 },           { progress, 40 },     { release_one, 40 },
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
