/*
 * The oracle knows which operations there are, what each may end as, which operation owns every byte of memory, and
 * what must have arrived where. Node threads call it; world.lock guards what nodes share.
 */
#include "torture.h"

#include <errno.h>
#include <stddef.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MISSING_NS (400 * WEFT_MILLISECOND) /* an end that is this late is missing */
#define ARRIVE_NS  (2 * WEFT_SECOND) /* an arrival that a done operation announced is in the receiver's queue by then */
#define UNQUIET_NS (3 * WEFT_SECOND) /* memory that may still be touched is left alone for this long */
#define STILL_NS   (700 * WEFT_MILLISECOND) /* threads delayed this long: peers may pass their limit of a second */

static const char *const kind_name[KINDS] = {
	"write", "pages", "scatter", "read", "send", "call", "barrier", "expect"
};

void fail(const struct op *op, const char *format, ...)
{
	va_list arguments;

	fflush(stdout);
	fprintf(stderr, "torture: FAILED, seed %llu: ", (unsigned long long)world.seed);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "\n");
	if (op) {
		uint64_t deadline = op->deadline_ns == UINT64_MAX ? 0 : op->deadline_ns - op->submitted_ns;

		fprintf(stderr,
			"  operation %llx: %s by node %u (generation %u) to nodes %x, handle "
			"%llx, %llu bytes, "
			"notify %d, deadline after %.3f ms%s%s\n",
			(unsigned long long)op->id, kind_name[op->kind], (uint32_t)(op->id >> 12 & 15), op->generation,
			op->targets, (unsigned long long)op->handle, (unsigned long long)op->bytes, (int)op->notify,
			(double)deadline / 1e6, op->excused ? ", cancelled by us" : "",
			op->active ? "" : ", not active");
		for (uint32_t i = 0; i < op->notes && i < NOTES; i++)
			fprintf(stderr, "    %+10.3f ms  %s %lld\n",
				((double)op->note[i].ns - (double)op->submitted_ns) / 1e6, op->note[i].what,
				(long long)op->note[i].value);
		for (uint32_t i = 0; i < op->runs; i++)
			fprintf(stderr, "    slots %u+%u of node %u %s\n", op->run[i].first, op->run[i].count,
				op->run[i].node, op->run[i].in ? "in" : "out");
	}
	if (getenv("TORTURE_PAUSE")) /* for a debugger */
		pause();
	_exit(1);
}

void op_note(struct op *op, const char *what, int64_t value)
{
	if (op->notes < NOTES)
		op->note[op->notes++] = (struct note){ now_ns(), what, value };
}

/* ---- memory ---- */

uint8_t *run_base(const struct run *run)
{
	return world.node[run->node].arena[run->in].base + run->first * SLOT;
}

void op_fill(const struct op *op, uint32_t run, uint64_t bytes, uint64_t seed)
{
	pthread_rwlock_rdlock(&world.memory);
	pattern_fill(run_base(&op->run[run]), bytes, seed, 0);
	pthread_rwlock_unlock(&world.memory);
}

static bool all_are(const uint8_t *at, uint64_t bytes, uint8_t value)
{
	return !bytes || (at[0] == value && !memcmp(at, at + 1, bytes - 1));
}

static bool free_slot(struct arena *arena, uint32_t slot, uint64_t now)
{
	if (arena->owned[slot] == 2 && now >= arena->until_ns[slot]) {
		memset(arena->base + slot * SLOT, arena->guard[slot], SLOT);
		arena->owned[slot] = 0;
	}
	return !arena->owned[slot];
}

/* Takes slots for `bytes` at node `at`; nothing may have touched them since they were given back. */
bool op_run(struct op *op, uint32_t at, bool in, uint64_t bytes)
{
	struct arena *arena = &world.node[at].arena[in];
	struct node *self = &world.node[op->id >> 12 & 15];
	uint32_t count = bytes ? (uint32_t)((bytes + SLOT - 1) / SLOT) : 1, first = 0, got = 0;
	uint64_t now = now_ns();

	if (op->runs == RUNS)
		return false;
	pthread_mutex_lock(&world.lock);
	for (uint32_t i = 0, slot = random_below(&self->random, SLOTS); i < SLOTS + count && got < count; i++, slot++) {
		if (slot >= SLOTS) {
			slot = 0;
			got = 0;
		}
		if (!got)
			first = slot;
		got = free_slot(arena, slot, now) ? got + 1 : 0;
	}
	if (got == count)
		memset(&arena->owned[first], 1, count);
	pthread_mutex_unlock(&world.lock);
	if (got < count)
		return false;
	op->run[op->runs++] = (struct run){ (uint8_t)at, in, (uint16_t)first, (uint16_t)count };
	for (uint32_t i = first; i < first + count; i++)
		if (in && !all_are(arena->base + i * SLOT, SLOT, arena->guard[i]))
			fail(op, "slot %u of node %u changed while no operation owned it", i, at);
	return true;
}

void op_move(struct op *op, uint32_t run, uint64_t offset, const void *from, uint64_t bytes)
{
	op->move[op->moves++] = (struct move){ from, (uint8_t)run, (uint32_t)offset, (uint32_t)bytes };
	op->bytes += bytes;
}

/* Paints what the run should hold when everything has landed. */
static void paint(const struct op *op, uint32_t run, uint8_t *image)
{
	const struct run *at = &op->run[run];
	const struct arena *arena = &world.node[at->node].arena[at->in];

	for (uint32_t i = 0; i < at->count; i++)
		memset(image + i * SLOT, arena->guard[at->first + i], SLOT);
	for (uint32_t i = 0; i < op->moves; i++)
		if (op->move[i].run == run)
			memcpy(image + op->move[i].offset, op->move[i].from, op->move[i].bytes);
}

static void check_memory(struct op *op, uint8_t *image, bool done)
{
	for (uint32_t run = 0; run < op->runs; run++) {
		const struct run *at = &op->run[run];
		const struct arena *arena = &world.node[at->node].arena[at->in];
		const uint8_t *real = run_base(at);

		if (!at->in)
			continue;
		paint(op, run, image);
		if (!memcmp(real, image, at->count * SLOT))
			continue;
		for (uint64_t i = 0; i < at->count * SLOT; i++) {
			uint8_t guard = arena->guard[at->first + i / SLOT];

			if (real[i] != image[i] && (done || real[i] != guard))
				fail(op, "byte %llu of slots %u+%u at node %u is %02x, not %02x%s",
				     (unsigned long long)i, at->first, at->count, at->node, real[i], image[i],
				     done ? (real[i] == guard ? ": not written though done" : "")
					  : " nor what was there before");
		}
	}
}

/* Nothing may have landed: its start word has not come. */
static void check_untouched(const struct op *op)
{
	for (uint32_t run = 0; run < op->runs; run++) {
		const struct run *at = &op->run[run];
		const struct arena *arena = &world.node[at->node].arena[at->in];

		for (uint32_t i = at->first; at->in && i < (uint32_t)at->first + at->count; i++)
			if (!all_are(arena->base + i * SLOT, SLOT, arena->guard[i]))
				fail(op, "slot %u of node %u was written before its word had come", i, at->node);
	}
}

/* Gives the slots back, filled anew, so that anything that lands from now on shows. */
static void release_memory(struct node *node, struct op *op, bool quiescent)
{
	uint64_t now = now_ns();

	pthread_rwlock_rdlock(&world.memory);
	for (uint32_t r = 0; r < op->runs; r++) {
		struct arena *arena = &world.node[op->run[r].node].arena[op->run[r].in];
		uint32_t first = op->run[r].first, count = op->run[r].count;

		for (uint32_t i = first; op->run[r].in && i < first + count; i++) {
			arena->guard[i] = (uint8_t)random_next(&node->random.state);
			memset(arena->base + i * SLOT, arena->guard[i], SLOT);
			arena->until_ns[i] = now + UNQUIET_NS;
		}
	}
	pthread_rwlock_unlock(&world.memory);
	pthread_mutex_lock(&world.lock);
	for (uint32_t r = 0; r < op->runs; r++) {
		struct arena *arena = &world.node[op->run[r].node].arena[op->run[r].in];

		memset(&arena->owned[op->run[r].first], quiescent || !op->run[r].in ? 0 : 2, op->run[r].count);
	}
	node->active--;
	op->id = 0;
	pthread_mutex_unlock(&world.lock);
}

void check_arenas(void)
{
	for (uint32_t n = 0; n < world.nodes; n++) {
		struct arena *arena = &world.node[n].arena[true];

		for (uint32_t i = 0; i < SLOTS; i++)
			if (!arena->owned[i] && !all_are(arena->base + i * SLOT, SLOT, arena->guard[i]))
				fail(NULL, "slot %u of node %u changed after its operation had ended", i, n);
	}
}

/* ---- operations ---- */

struct op *op_take(struct node *node, enum kind kind, uint32_t targets)
{
	struct op *op = NULL;

	pthread_mutex_lock(&world.lock);
	for (uint32_t i = 0; i < OPS && !op; i++) {
		uint32_t at = node->next_op++ % OPS;

		if (!node->op[at].id) {
			uint64_t serial = ++world.serial;

			op = &node->op[at];
			memset(op, 0, offsetof(struct op, run));
			op->bytes = op->barrier = 0;
			op->id = serial << 16 | node->index << 12 | at;
			world.arrived[serial % SERIALS] = 0;
		}
	}
	if (op) {
		op->kind = kind;
		op->targets = targets;
		op->generation = node->generation;
		for (uint32_t n = 0; n < world.nodes; n++)
			op->known[n] = node->link[n].generation;
		op->active = true;
		op->submitted_ns = now_ns();
		op->deadline_ns = UINT64_MAX;
		node->active++;
	}
	pthread_mutex_unlock(&world.lock);
	return op;
}

static struct counted *counted_of(const struct op *op)
{
	uint32_t at = op->kind == KIND_EXPECT ? (uint32_t)(op->id >> 12 & 15) : (uint32_t)__builtin_ctz(op->targets);
	struct counted *counted = &world.counted[at][op->immediate % IMMEDIATES];

	return counted->immediate == op->immediate ? counted : NULL;
}

/* If threads are delayed for long, even live peers are silent for their limit. */
bool machine_stood_still(uint64_t now)
{
	watch_settle();
	return watch_lateness(now - 2 * WEFT_SECOND) + watch_waited(now - WEFT_SECOND) >= STILL_NS;
}

void op_accepted(struct node *node, struct op *op, int rc, weft_transfer handle)
{
	if (!rc) {
		pthread_mutex_lock(&world.lock);
		op->handle = handle;
		world.tally.submitted[op->kind]++;
		op_note(op, "accepted", 0);
		pthread_mutex_unlock(&world.lock);
		atomic_fetch_add(&world.submitted, 1);
		return;
	}
	if (rc != -EAGAIN && rc != -EHOSTDOWN &&
	    !((rc == -ESTALE || rc == -ENOENT) &&
	      world.faults & (1u << FAULT_PEERS | 1u << FAULT_REGIONS | 1u << FAULT_REOPEN)))
		fail(op, "submitting said %s", weft_strerror(rc));
	if (rc == -EHOSTDOWN && !(world.faults & ~HARMLESS) && !machine_stood_still(now_ns()))
		fail(op, "submitting said the peer is down, and nothing was done to it");
	pthread_mutex_lock(&world.lock);
	word_refused(node, op);
	op->active = false;
	world.tally.refused++;
	world.tally.full += rc == -EAGAIN;
	if (op->notify == WEFT_NOTIFY_COUNTED && counted_of(op)) {
		counted_of(op)->submitted -= op->immediates;
		counted_of(op)->failed = true;
	}
	for (uint32_t i = 0; rc == -ENOENT && i < world.nodes; i++)
		if (op->targets & 1u << i)
			node->link[i].generation = 0; /* gone: add it again */
	pthread_mutex_unlock(&world.lock);
	release_memory(node, op, true);
}

/* Returns how late the end was when it had certainly not come yet. Time that the node spends before its next look,
 * including slow calls and naps of this oracle, is not the engine's lateness. */
static uint64_t lateness_of(const struct op *op, uint64_t absent_ns)
{
	return op->deadline_ns < absent_ns ? absent_ns - op->deadline_ns : 0;
}

static bool too_late(const struct op *op, uint64_t late)
{
	return watch_is_late(op->deadline_ns, op->deadline_ns + late, LATE_NS + world.slack_ns);
}

static void check_deadline(struct op *op, uint64_t absent_ns)
{
	uint64_t late = lateness_of(op, absent_ns);

	if (too_late(op, late))
		fail(op,
		     "ended %.0f ms after its deadline (meanwhile threads were woken up to %.0f ms late and "
		     "waited %.0f ms for a "
		     "CPU)",
		     (double)late / 1e6, (double)watch_lateness(op->deadline_ns) / 1e6,
		     (double)watch_waited(op->deadline_ns) / 1e6);
}

static void check_status(struct op *op, int status, uint64_t now)
{
	if (!status)
		return;
	if (status == -ECANCELED && op->excused)
		return;
	if (status == -ETIMEDOUT && now >= op->deadline_ns)
		return;
	if (op->kind == KIND_CALL && status <= -200 && status > -260)
		return; /* the status of the application at the other end */
	if ((status == -EHOSTDOWN || status == -EIO || status == -EREMOTEIO) &&
	    (world.faults & ~HARMLESS || machine_stood_still(now)))
		return;
	/* Where RDMA is emulated, peers are asked to leave a region before it goes. */
	if (status == -ESTALE && world.faults & (1u << FAULT_REGIONS | 1u << FAULT_REVOKE))
		return;
	/* Taking back a cancelled operation may cost its rail; counted writes are not sent again over another rail. */
	if (status == -EIO && op->notify == WEFT_NOTIFY_COUNTED && world.faults)
		return;
	fail(op, "ended with %d (%s), and nothing asked for that", status, weft_strerror(status));
}

/* A done operation announced something: it must be in the receiver's queue, if the receiver still lives. */
static void expect_arrival(struct op *op)
{
	for (uint32_t n = 0; n < world.nodes; n++) {
		struct node *at = &world.node[n];

		if (!(op->targets & 1u << n) || world.arrived[(op->id >> 16) % SERIALS] & 1u << n || !op->known[n] ||
		    at->published.generation != op->known[n])
			continue;
		if (at->pendings == PENDING)
			fail(op, "%u announcements have not arrived at node %u", at->pendings, n);
		at->pending[at->pendings++] = (struct pending){ op->id, now_ns(), op->submitted_ns, op->kind };
	}
}

static void end_counted(struct op *op, int status)
{
	struct counted *counted = counted_of(op);
	uint64_t now = now_ns();

	if (!counted)
		return;
	if (op->kind != KIND_EXPECT) {
		if (status)
			counted->failed = true;
		else
			counted->done += op->immediates;
		counted->done_ns = now;
		return;
	}
	if (!status && counted->submitted < counted->expected && !(world.faults & 1u << FAULT_DUP))
		fail(op, "counted %u immediates where %u were sent", counted->expected, counted->submitted);
	if (status == -ETIMEDOUT && !(world.faults & ~HARMLESS) && counted->done >= counted->expected &&
	    watch_is_late(counted->done_ns, op->deadline_ns, WEFT_SECOND))
		fail(op, "timed out although all %u immediates had landed", counted->expected);
	if (status || counted->failed || counted->submitted != counted->expected)
		world.node[op->id >> 12 & 15].dirty_immediates++;
}

static void end_barrier(struct op *op)
{
	struct barrier *barrier = &world.barrier[op->barrier % BARRIERS];

	if (barrier->id == op->barrier && (barrier->entered & barrier->members) != barrier->members)
		fail(op, "left barrier %llu: %x had entered of %x", (unsigned long long)op->barrier, barrier->entered,
		     barrier->members);
}

static void end_under_lock(struct node *node, struct op *op, const struct weft_event *event, uint64_t absent_ns)
{
	int status = event->status;
	uint64_t late = lateness_of(op, absent_ns);

	op->active = false;
	op_note(op, "ended", status);
	if (!status)
		world.tally.done[op->kind]++;
	world.tally.ended[op->kind][status > -160 && status <= 0 ? -status : 159]++;
	if (late > world.tally.late_max_ns)
		world.tally.late_max_ns = late;
	world.tally.unquiet += !event->quiescent;
	if (!status)
		world.tally.bytes += op->bytes;
	if (op->notify == WEFT_NOTIFY_COUNTED || op->kind == KIND_EXPECT)
		end_counted(op, status);
	if (!status && op->kind == KIND_BARRIER)
		end_barrier(op);
	if (!status && (op->notify == WEFT_NOTIFY_FENCED || op->kind == KIND_SEND))
		expect_arrival(op);
	if (!status && op->kind == KIND_CALL && !world.arrived[(op->id >> 16) % SERIALS])
		fail(op, "a call was answered that never arrived");
	if (world.verbose && atomic_load(&world.phase) == PHASE_PROBE && op->kind == KIND_WRITE)
		fprintf(stderr, "%.3f n%u: a probe of n%d ended with %d (%s)\n", (double)now_ns() / 1e9, node->index,
			__builtin_ctz(op->targets), status, event->error ? event->error->text : "");
	if (!status && atomic_load(&world.phase) == PHASE_PROBE && op->kind == KIND_WRITE)
		node->link[__builtin_ctz(op->targets)].probed = true;
	if (op->handle)
		node->stale[node->stales++ % STALE] = op->handle;
}

void op_ended(struct node *node, const struct weft_event *event, uint64_t absent_ns)
{
	struct op *op = &node->op[event->tag % OPS];
	uint64_t now = now_ns();
	bool data = op->kind <= KIND_READ, kept;

	if (op->id != event->tag || !op->active)
		fail(op->id ? op : NULL,
		     "node %u: an end (tag %llx, transfer %llx, status %d) of an operation that is not there",
		     node->index, (unsigned long long)event->tag, (unsigned long long)event->transfer, event->status);
	if (event->transfer != op->handle)
		fail(op, "its end names transfer %llx", (unsigned long long)event->transfer);
	check_status(op, event->status, now);
	check_deadline(op, absent_ns);
	if (event->status && event->status != -ECANCELED && event->status > -200 && !event->error)
		fail(op, "ended with %d and no explanation", event->status);
	if (!event->status && data && event->bytes != op->bytes)
		fail(op, "done, and its end says %llu bytes", (unsigned long long)event->bytes);
	kept = word_kept_it(op);
	pthread_mutex_lock(&world.lock);
	word_ended(node, op, event->status);
	end_under_lock(node, op, event, absent_ns);
	pthread_mutex_unlock(&world.lock);
	if (data && kept)
		check_untouched(op);
	if (data) {
		if (world.quiesces && !event->quiescent)
			fail(op, "ended with memory that may still be touched, which these NICs never do");
		check_memory(op, node->image, !event->status);
	}
	release_memory(node, op, event->quiescent);
}

void op_dropped(struct node *node, struct op *op)
{
	pthread_mutex_lock(&world.lock);
	word_dropped(node, op);
	op->active = false;
	if (op->notify == WEFT_NOTIFY_COUNTED && counted_of(op))
		counted_of(op)->failed = true;
	pthread_mutex_unlock(&world.lock);
	if (op->kind <= KIND_READ)
		check_memory(op, node->image, false);
	release_memory(node, op, world.quiesces);
}

void op_excuse(struct node *node, uint32_t target)
{
	pthread_mutex_lock(&world.lock);
	for (uint32_t i = 0; i < OPS; i++)
		if (node->op[i].id && node->op[i].active && node->op[i].targets & 1u << target) {
			node->op[i].excused = true;
			op_note(&node->op[i], "its peer is cancelled or removed", target);
		}
	pthread_mutex_unlock(&world.lock);
}

/* A notification, message or call has come to `node`: exactly once, and what it announces is there. */
void arrived(struct node *node, uint64_t id, const char *what)
{
	struct op *op = &world.node[id >> 12 & 7].op[id % OPS];
	uint8_t *seen;

	pthread_mutex_lock(&world.lock);
	if (id >> 16 > world.serial || world.serial - (id >> 16) >= SERIALS)
		fail(NULL, "node %u: a %s of an operation %llx that never was", node->index, what,
		     (unsigned long long)id);
	seen = &world.arrived[(id >> 16) % SERIALS];
	if (op->id != id)
		op = NULL;
	if (*seen & 1u << node->index)
		fail(op, "node %u: its %s (%llx) came twice", node->index, what, (unsigned long long)id);
	*seen |= (uint8_t)(1u << node->index);
	if (op) {
		op_note(op, what, node->index);
		/* While the operation runs, its memory is its own; a fence means that all of it is there now. */
		if (op->active && op->notify == WEFT_NOTIFY_FENCED && !(op->targets & (op->targets - 1)))
			check_memory(op, node->image, true);
		word_arrived(node, op);
	}
	for (uint32_t i = 0; i < node->pendings; i++)
		if (node->pending[i].id == id) {
			node->pending[i] = node->pending[--node->pendings];
			break;
		}
	pthread_mutex_unlock(&world.lock);
}

/* Prints what our threads do at this moment, and whether the end still comes: late, or never? */
static void diagnose(struct node *node, const struct op *op)
{
	uint64_t start = now_ns();
	struct weft_event event;

	list_threads();
	while (now_ns() - start < 3 * WEFT_SECOND)
		for (int q = 0; q < 3; q++)
			if (weft_queue_poll(node->queue[q], &event, sizeof(event), 1) == 1 && event.tag == op->id &&
			    (event.type == WEFT_EVENT_END || event.type == WEFT_EVENT_REPLY)) {
				fprintf(stderr, "  its end came %.1f ms after it was missed: %d\n",
					(double)(now_ns() - start) / 1e6, event.status);
				return;
			}
	fprintf(stderr, "  its end did not come in another 3 s\n");
}

/* Not ended at all, long after its deadline; late ends are judged when they come. */
static void check_missing(struct node *node, struct op *op, uint64_t now)
{
	uint64_t late = lateness_of(op, now);

	if (late > LATE_NS + world.slack_ns + MISSING_NS && too_late(op, late - MISSING_NS)) {
		diagnose(node, op);
		fail(op, "has not ended %.0f ms after its deadline", (double)late / 1e6);
	}
}

/* The node's queues were found empty after `now`: everything that should have ended or arrived by then has been
 * taken. */
void check_overdue(struct node *node, uint64_t now)
{
	pthread_mutex_lock(&world.lock);
	for (uint32_t i = 0; i < OPS; i++)
		if (node->op[i].id && node->op[i].active && node->op[i].handle)
			check_missing(node, &node->op[i], now);
	if (node->replies &&
	    now > node->replies_by_ns + MISSING_NS + world.slack_ns + watch_excuse(node->replies_by_ns))
		fail(NULL, "node %u: %u replies have not ended, all past their deadlines", node->index, node->replies);
	for (uint32_t i = 0; i < node->pendings; i++)
		if (now > node->pending[i].since_ns + ARRIVE_NS + watch_excuse(node->pending[i].since_ns)) {
			struct pending *lost = &node->pending[i];

			fail(NULL,
			     "node %u: what operation %llx (%s) of node %u announced was lost: submitted "
			     "%.3f, done %.3f, now "
			     "%.3f",
			     node->index, (unsigned long long)lost->id, kind_name[lost->kind],
			     (uint32_t)(lost->id >> 12 & 7), (double)lost->submitted_ns / 1e9,
			     (double)lost->since_ns / 1e9, (double)now / 1e9);
		}
	pthread_mutex_unlock(&world.lock);
}
