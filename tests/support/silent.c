/* A peer that falls silent, and a witness that is served all the while; silent.h says what for. */
#include "support/silent.h"
#include "support/watch.h"

#include <string.h>
#include <sys/mman.h>

#define BYTES         (4u << 20) /* size of each peer's region */
#define MEMORY        (8u << 20) /* ours: the source of writes, the target of reads, the source of the witness's writes */
#define READ_AT       (4u << 20)
#define WITNESS_AT    (6u << 20)
#define WITNESS_BYTES (256u << 10)
#define WITNESS_LIMIT (10 * S) /* even a busy machine serves a live peer by then */
/* Promised: an operation ends by its deadline and this. A sanitizer makes closing and opening rails many
 * times slower. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LATE (2 * S)
#else
#define LATE (100 * MS)
#endif

static const char *const kinds[OP_KINDS] = { "write", "counted write", "read", "send", "call", "barrier" };

struct weft_config silent_config(void)
{
	struct weft_config config = side_config();

	config.heartbeat_ns = HEARTBEAT;
	config.peer_limit_ns = PEER_LIMIT;
	config.rail_limit_ns = 500 * MS;
	return config;
}

/* ---- the witness ---- */

static void write_to_witness(struct silent *silent)
{
	struct weft_write write = {
		sizeof(write), silent->region, WITNESS_AT, silent->witness_remote, 0, WITNESS_BYTES
	};
	struct weft_op op = { .size = sizeof(op), .queue = silent->witnessed, .timeout_ns = WITNESS_LIMIT };

	assert_status(weft_write(silent->here.engine, &write, &op, NULL), 0);
	silent->serving = true;
}

static void witness_served(struct silent *silent, const struct weft_event *event)
{
	assert_int_equal(event->type, WEFT_EVENT_END);
	if (event->status)
		fail_msg("after %llu writes to the witness one ended with %s: %s", (unsigned long long)silent->served,
			 weft_strerror(event->status), event->error ? event->error->text : "");
	silent->serving = false;
	silent->served++;
}

/* One write after the other: takes those that ended and starts the next. */
static void serve(struct silent *silent)
{
	struct weft_event event;

	if (silent->serving) {
		if (weft_queue_poll(silent->witnessed, &event, sizeof(event), 1) != 1)
			return;
		witness_served(silent, &event);
		weft_event_release(&event);
	}
	write_to_witness(silent);
}

/* The witness holds what was written last. */
static void check_witness(struct silent *silent)
{
	struct weft_event event;

	for (int i = 0; i < 2; i++) {
		if (i) {
			pattern_fill(silent->memory + WITNESS_AT, WITNESS_BYTES, silent->served, 0);
			write_to_witness(silent);
		}
		if (!silent->serving)
			continue;
		assert_int_equal(weft_queue_wait(silent->witnessed, &event, sizeof(event), 1, LIMIT), 1);
		witness_served(silent, &event);
		weft_event_release(&event);
	}
	peer_check(&silent->witness, silent->witness_number, 0, WITNESS_BYTES, silent->served - 1);
}

/* ---- coming and going ---- */

void silent_open(struct silent *silent)
{
	struct weft_config config = silent_config();
	struct weft_event event;
	struct blob descriptor;

	memset(silent, 0, sizeof(*silent));
	watch_start();
	assert_status(side_open(&silent->here, &config), 0);
	assert_status(weft_queue_open(silent->here.engine, 0, &silent->ends), 0);
	assert_status(weft_queue_open(silent->here.engine, 0, &silent->witnessed), 0);
	silent->memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(silent->memory != MAP_FAILED);
	assert_status(weft_region_register(silent->here.engine, silent->memory, MEMORY, 0, &silent->region), 0);
	peer_start(&silent->witness, &config);
	silent->witness_number = peer_region(&silent->witness, BYTES, WEFT_REMOTE_WRITE, &descriptor);
	assert_status(weft_peer_add(silent->here.engine, silent->witness.address.data, silent->witness.address.bytes,
				    NULL, &silent->witness_peer),
		      0);
	assert_status(side_wait_peer(&silent->here, WEFT_EVENT_PEER_UP, silent->witness_peer, LIMIT, &event), 0);
	weft_event_release(&event);
	silent->witness_remote = import(&silent->here, silent->witness_peer, &descriptor);
}

void silent_close(struct silent *silent)
{
	peer_stop(&silent->witness);
	assert_status(side_close(&silent->here), 0);
	munmap(silent->memory, MEMORY);
	watch_stop();
}

void silent_add(struct silent *silent, const struct blob *address, const struct blob *descriptor)
{
	assert_status(weft_peer_add(silent->here.engine, address->data, address->bytes, NULL, &silent->other_peer), 0);
	silent->other_remote = import(&silent->here, silent->other_peer, descriptor);
	silent->operations = 0;
	silent->gone_ns = 0;
	silent->refuses = false;
}

void silent_connect(struct silent *silent)
{
	struct weft_config config = silent_config();
	struct blob descriptor;
	struct weft_event event;

	config.flags |= silent->other_flags;
	peer_start(&silent->other, &config);
	silent->other_number =
	    peer_region(&silent->other, 2 * BYTES, WEFT_REMOTE_WRITE | WEFT_REMOTE_READ, &descriptor);
	silent_add(silent, &silent->other.address, &descriptor);
	assert_status(side_wait_peer(&silent->here, WEFT_EVENT_PEER_UP, silent->other_peer, LIMIT, &event), 0);
	weft_event_release(&event);
}

void silent_disconnect(struct silent *silent)
{
	assert_status(weft_remote_close(silent->here.engine, silent->other_remote), 0);
	assert_status(weft_peer_remove(silent->here.engine, silent->other_peer), 0);
	if (silent->other.pid)
		peer_stop(&silent->other);
	check_witness(silent);
}

/* ---- operations ---- */

static int submit(struct silent *silent, enum operation_kind kind, struct weft_op *op)
{
	struct weft_write write = { sizeof(write), silent->region, 0, silent->other_remote, 0, BYTES };
	struct weft_read read = { sizeof(read), silent->other_remote, 0, silent->region, READ_AT, 1u << 20 };
	weft_engine *engine = silent->here.engine;

	switch (kind) {
	case OP_WRITE:
		op->notify = WEFT_NOTIFY_FENCED;
		op->notify_tag = op->tag;
		return weft_write(engine, &write, op, NULL);
	case OP_COUNTED:
		op->notify = WEFT_NOTIFY_COUNTED;
		op->immediate = 7;
		return weft_write(engine, &write, op, NULL);
	case OP_READ:
		return weft_read(engine, &read, op, NULL);
	case OP_SEND:
		return weft_send(engine, silent->other_peer, op->tag, silent->memory, 10000, op, NULL);
	case OP_CALL:
		return weft_call(engine, silent->other_peer, op->tag, silent->memory, 100, op, NULL);
	default:
		return weft_barrier(engine, &silent->other_peer, 1, op->tag, op, NULL);
	}
}

void silent_submit(struct silent *silent, uint64_t timeout_ns)
{
	for (int kind = 0; kind < OP_KINDS; kind++) {
		struct operation *operation = &silent->operation[silent->operations];
		struct weft_op op = {
			.size = sizeof(op), .queue = silent->ends, .tag = ++silent->operations, .timeout_ns = timeout_ns
		};
		int status;

		assert_true(silent->operations <= OPERATIONS);
		*operation =
		    (struct operation){ .kind = (enum operation_kind)kind, .deadline_ns = now_ns() + timeout_ns };
		status = submit(silent, operation->kind, &op);
		if (!status)
			continue;
		assert_status(status, -EHOSTDOWN);
		operation->ended = true;
		operation->ended_ns = now_ns();
		operation->status = status;
		operation->scope = WEFT_SCOPE_PEER;
	}
}

static void take_end(struct silent *silent, struct weft_event *event)
{
	struct operation *operation = &silent->operation[event->tag - 1];

	assert_true(event->tag && event->tag <= silent->operations);
	assert_int_equal(event->type, operation->kind == OP_CALL ? WEFT_EVENT_REPLY : WEFT_EVENT_END);
	if (operation->ended)
		fail_msg("a %s ended twice", kinds[operation->kind]);
	operation->ended = true;
	operation->ended_ns = now_ns();
	operation->status = event->status;
	if (event->error) {
		memcpy(operation->text, event->error->text, sizeof(operation->text));
		operation->scope = event->error->scope;
	}
	weft_event_release(event);
}

/* Returns when a gone peer is given up, as far as `now` matters. An engine that finds that it stood still itself for
 * longer than a heartbeat starts counting again, since it may have missed what was said meanwhile. */
static uint64_t limit_of(const struct silent *silent, uint64_t now)
{
	uint64_t limit = silent->gone_ns + PEER_LIMIT + HEARTBEAT;

	if (!silent->gone_ns)
		return UINT64_MAX;
	return now > limit && watch_excuse(silent->gone_ns) >= HEARTBEAT ? limit + 2 * PEER_LIMIT : limit;
}

/* By its deadline, or the limit of a peer that is gone; later only if the machine delayed threads. */
static void check_in_time(const struct silent *silent, const struct operation *operation, uint64_t now)
{
	uint64_t due = operation->deadline_ns, limit;

	if (operation->ended)
		return;
	limit = limit_of(silent, now);
	if (limit < due)
		due = limit;
	if (watch_is_late(due, now, LATE))
		fail_msg("a %s%s has not ended %.0f ms after it should have", kinds[operation->kind],
			 due < operation->deadline_ns ? " to a peer that is gone" : "", (double)(now - due) / 1e6);
}

void silent_drain(struct silent *silent)
{
	uint32_t left;

	do {
		struct weft_event event;
		uint64_t before = now_ns(); /* what is not in the queue after it was not there then */
		int got = weft_queue_wait(silent->ends, &event, sizeof(event), 1, MS);

		assert_true(got >= 0);
		if (got)
			take_end(silent, &event);
		serve(silent);
		left = 0;
		for (uint32_t i = 0; i < silent->operations; i++) {
			left += !silent->operation[i].ended;
			if (!got)
				check_in_time(silent, &silent->operation[i], before);
		}
	} while (left);
	check_witness(silent);
}

void silent_serve_until(struct silent *silent, uint64_t deadline_ns)
{
	uint64_t before = silent->served;
	struct weft_event event;

	do {
		assert_int_equal(weft_queue_wait(silent->ends, &event, sizeof(event), 1, MS),
				 0); /* nothing is in flight there */
		serve(silent);
	} while (now_ns() < deadline_ns || silent->served == before);
	check_witness(silent);
}

/* The earlier of the deadline and the peer's limit ends an operation. If the machine delayed the thread that handles
 * both, or the submitter, the limit may have passed too. */
static bool limit_came_first(const struct silent *silent, const struct operation *operation)
{
	if (operation->status != -EHOSTDOWN)
		return false;
	if (silent->refuses)
		return true;
	return (silent->gone_ns && operation->deadline_ns + HEARTBEAT > silent->gone_ns + PEER_LIMIT) ||
	       (operation->ended_ns > operation->deadline_ns + LATE &&
		!watch_is_late(operation->deadline_ns, operation->ended_ns, LATE));
}

void silent_ended(struct silent *silent, uint32_t from, uint32_t to, int expected, uint32_t done)
{
	for (uint32_t i = from; i < to; i++) {
		const struct operation *operation = &silent->operation[i];

		if (!operation->status && done & 1u << operation->kind)
			continue;
		/* Never repeated over another connection: the end of the first one is also theirs. */
		if (operation->kind == OP_COUNTED && operation->status == -EIO)
			continue;
		if (expected == -ETIMEDOUT && limit_came_first(silent, operation))
			continue;
		if (operation->status != expected)
			fail_msg("a %s ended with %d (%s: %s), not %d", kinds[operation->kind], operation->status,
				 weft_strerror(operation->status), operation->text, expected);
		assert_true(expected != -EHOSTDOWN || operation->scope == WEFT_SCOPE_PEER);
	}
}

void silent_is_down(struct silent *silent)
{
	struct weft_event event;

	assert_status(side_wait_peer(&silent->here, WEFT_EVENT_PEER_DOWN, silent->other_peer, LIMIT, &event), 0);
	assert_status(event.status, -EHOSTDOWN);
	assert_non_null(event.error);
	assert_int_equal(event.error->scope, WEFT_SCOPE_PEER);
	assert_true(event.error->text[0] != 0);
	weft_event_release(&event);
}

/* Writes to memory that was not written before: over tcp, bytes of an operation that was given up may still be in a
 * socket and land. */
static int write_elsewhere(struct silent *silent)
{
	struct weft_write write = { sizeof(write), silent->region, 0, silent->other_remote, BYTES, BYTES };
	struct weft_op op = { .size = sizeof(op), .queue = silent->ends, .tag = 1, .timeout_ns = LONG };

	silent->operations = 1;
	silent->operation[0] = (struct operation){ .kind = OP_WRITE, .deadline_ns = now_ns() + LONG };
	return weft_write(silent->here.engine, &write, &op, NULL);
}

/* Up may still refer to the connection that the other side is about to give up: then it comes up once more. */
void silent_is_back(struct silent *silent)
{
	uint64_t limit = now_ns() + 2 * LIMIT;
	int status = -EHOSTDOWN;

	silent->gone_ns = 0;
	pattern_fill(silent->memory, BYTES, limit, 0);
	while (status) {
		if (now_ns() > limit)
			fail_msg("a peer that is there again is not reached: %s", weft_strerror(status));
		status = write_elsewhere(silent);
		if (!status) {
			silent_drain(silent);
			status = silent->operation[0].status;
		} else {
			silent->operations = 0;
			silent_serve_until(silent, now_ns() + 10 * MS);
		}
		assert_true(!status || status == -EHOSTDOWN);
	}
	peer_check(&silent->other, silent->other_number, BYTES, BYTES, limit);
	silent->operations = 0;
}

void silent_ghost(struct blob *ret_address, struct blob *ret_descriptor)
{
	struct weft_config config = silent_config();
	struct peer ghost;

	peer_start(&ghost, &config);
	peer_region(&ghost, 4u << 20, WEFT_REMOTE_WRITE | WEFT_REMOTE_READ, ret_descriptor);
	*ret_address = ghost.address;
	peer_kill(&ghost);
}

void silent_never_answers(struct silent *silent, const struct blob *address, const struct blob *descriptor)
{
	silent_add(silent, address, descriptor);
	silent->gone_ns = now_ns();
	silent_submit(silent, SHORT);
	silent_submit(silent, LONG);
	silent_drain(silent);
	silent_ended(silent, 0, OP_KINDS, -ETIMEDOUT, 0);
	silent_ended(silent, OP_KINDS, 2 * OP_KINDS, -EHOSTDOWN, 0);
	silent_is_down(silent);
	silent_disconnect(silent);
}
