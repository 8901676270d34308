/*
 * Words of the torture test: operations that start by one, which a thread of its own stores later or never, end words, and
 * words that notifications store at their receivers. Nodes call this as they submit and as ends come; the oracle judges.
 */
#include "torture.h"

#include <string.h>
#include <time.h>

#define DUE      4096
#define CELLS    (WORD_SLOTS * SLOT / sizeof(uint64_t)) /* of a node, for words that others' notifications store */
#define QUIET_NS (10 * WEFT_SECOND) /* the notification of an operation that failed may still come */

/* Who knows the cell of an operation that ended well may give it to another at once. */
struct cells {
	uint64_t until_ns[CELLS]; /* 0: free; UINT64_MAX: an operation's */
	uint32_t next;
};

struct due {
	uint64_t ns, value, *word;
};

static uint64_t start_word[NODES][OPS + 1], last_value[NODES][OPS + 1], end_word[NODES][OPS];
static struct cells cells[NODES];
static struct due due[DUE];
static uint32_t dues;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the dues */
static pthread_t thread;
static _Atomic int running;

static uint64_t load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static bool reached(uint64_t word, uint64_t value)
{
	return (int64_t)(word - value) >= 0;
}

/* ---- who stores start words ---- */

static void store_what_is_due(uint64_t now)
{
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < dues;) {
		if (due[i].ns > now) {
			i++;
			continue;
		}
		if (!reached(*due[i].word, due[i].value)) /* only we write it */
			__atomic_store_n(due[i].word, due[i].value, __ATOMIC_RELEASE);
		due[i] = due[--dues];
	}
	pthread_mutex_unlock(&lock);
}

static void *store_words(void *unused)
{
	while (atomic_load(&running)) {
		struct timespec nap = { .tv_nsec = 50000 };

		store_what_is_due(now_ns());
		nanosleep(&nap, NULL);
	}
	return NULL;
}

void words_start(void)
{
	for (uint32_t n = 0; n < world.nodes; n++)
		memset(world.node[n].arena[true].owned, 3, WORD_SLOTS);
	atomic_store(&running, 1);
	pthread_create(&thread, NULL, store_words, NULL);
}

void words_stop(void)
{
	atomic_store(&running, 0);
	pthread_join(thread, NULL);
}

/* ---- submitting ---- */

/* A word of the operation's own, or one that many wait for. */
static void set_start(struct node *node, struct op *op, struct weft_op *to)
{
	uint32_t own = (uint32_t)(op - node->op), at = random_chance(&node->random, 50) ? own : OPS;
	bool never = random_chance(&node->random, 5) && at != OPS, full;
	uint64_t delay_ns =
	    random_below(&node->random, random_chance(&node->random, 10) ? 30000 : 1000) * WEFT_MICROSECOND;

	op->start_word = &start_word[node->index][at];
	op->start_value = last_value[node->index][at] += 1 + random_below(&node->random, 3);
	to->start_word = op->start_word;
	to->start_value = op->start_value;
	world.tally.waits++;
	if (never) {
		to->timeout_ns = (1 + random_below(&node->random, 30000)) * WEFT_MICROSECOND;
		op->deadline_ns = op->submitted_ns + to->timeout_ns;
		return;
	}
	pthread_mutex_lock(&lock);
	full = dues == DUE;
	if (!full)
		due[dues++] = (struct due){ now_ns() + delay_ns, op->start_value, op->start_word };
	pthread_mutex_unlock(&lock);
	if (full)
		to->start_word = op->start_word = NULL;
}

void word_start(struct node *node, struct op *op, struct weft_op *to)
{
	uint32_t at = (uint32_t)(op - node->op);

	if (atomic_load(&world.phase) != PHASE_RUN)
		return;
	if (op->kind != KIND_EXPECT && random_chance(&node->random, 25))
		set_start(node, op, to);
	if (random_chance(&node->random, 50)) {
		__atomic_store_n(&end_word[node->index][at], 0, __ATOMIC_RELAXED);
		op->end_value = op->id;
		to->end_word = &end_word[node->index][at];
		to->end_value = op->id;
	}
}

void word_notify(struct node *node, struct op *op, struct weft_op *to)
{
	uint32_t at = (uint32_t)__builtin_ctz(op->targets);
	struct cells *free = &cells[at];
	uint64_t now = now_ns();

	if (to->notify != WEFT_NOTIFY_FENCED || !random_chance(&node->random, 30))
		return;
	pthread_mutex_lock(&world.lock);
	for (uint32_t i = 0; i < 64 && !op->cell; i++) {
		uint32_t number = free->next++ % CELLS;

		if (free->until_ns[number] <= now) {
			free->until_ns[number] = UINT64_MAX;
			op->cell_node = at;
			op->cell = (uint64_t *)world.node[at].arena[true].base + number;
			op->cell_before = load(op->cell);
		}
	}
	pthread_mutex_unlock(&world.lock);
	if (!op->cell)
		return;
	to->notify_word = node->link[at].in;
	to->notify_word_offset = (uint64_t)((uint8_t *)op->cell - world.node[at].arena[true].base);
	to->notify_word_value = op->id;
}

/* ---- judging ---- */

/* Under the world's lock. */
static void give_cell(struct op *op, bool settled)
{
	uint64_t *base = (uint64_t *)world.node[op->cell_node].arena[true].base;

	if (op->cell)
		cells[op->cell_node].until_ns[op->cell - base] = settled ? 0 : now_ns() + QUIET_NS;
	op->cell = NULL;
}

static uint64_t end_of(const struct node *node, const struct op *op)
{
	return load(&end_word[node->index][op - node->op]);
}

void word_refused(struct node *node, struct op *op)
{
	if (op->end_value && end_of(node, op))
		fail(op, "it was refused, and its end word written");
	if (op->cell && load(op->cell) != op->cell_before)
		fail(op, "it was refused, and its word written at the receiver");
	give_cell(op, true);
}

void word_arrived(const struct node *node, struct op *op)
{
	if (op->active && op->cell && op->cell_node == node->index && load(op->cell) != op->id)
		fail(op, "its notification came before its word: %llx", (unsigned long long)load(op->cell));
}

bool word_kept_it(const struct op *op)
{
	return op->start_word && !reached(load(op->start_word), op->start_value);
}

void word_ended(struct node *node, struct op *op, int status)
{
	uint64_t is = op->end_value ? end_of(node, op) : 0, should = op->end_value + (status ? WEFT_WORD_FAILED : 0);

	if (op->end_value && is != should)
		fail(op, "ended with %d, and its end word is %llx, not %llx", status, (unsigned long long)is,
		     (unsigned long long)should);
	if (!status && word_kept_it(op))
		fail(op, "done before its word had come");
	world.tally.end_words += op->end_value != 0;
	if (op->cell && load(op->cell) != op->id && (!status || load(op->cell) != op->cell_before))
		fail(op, "ended with %d, and its word at the receiver is %llx", status,
		     (unsigned long long)load(op->cell));
	world.tally.cells += op->cell && !status;
	give_cell(op, !status);
}

void word_dropped(struct node *node, struct op *op)
{
	uint64_t is = op->end_value ? end_of(node, op) : 0;

	if (op->end_value && is != op->end_value && is != op->end_value + WEFT_WORD_FAILED)
		fail(op, "its engine has closed, and its end word is %llx", (unsigned long long)is);
	give_cell(op, false);
}
