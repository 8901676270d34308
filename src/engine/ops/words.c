/* Waiting for words, looking at them, and storing them; words.h says whose they are and on which thread. */
#include "engine/ops/words.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/core/remote.h"
#include "engine/ops/request.h"
#include "engine/ops/transfer.h"
#include "engine/peer/peer.h"
#include "wire/manifest.h"

#include <errno.h>
#include <stdlib.h>

#define LOOKS_PER_TURN  512 /* words, and … */
#define STARTS_PER_TURN 64  /* … operations that start; then the rails get their turn */
#define SPIN_NS                                                                                                        \
	(20 * WF_MS) /* the worker looks without a pause while a word has changed within this time; then it naps … */
#define NAP_PART     1000         /* … for this part of the time since, … */
#define NAP_LEAST_NS (50 * WF_US) /* … within these limits */
#define NAP_MOST_NS  (1 * WF_MS)

/*
 * A word and what waits for it, in the order in which it starts. Values are numbers on a circle, so the order begins at the far
 * side of a value that the word had: base, when everything that it had reached by then was started. What waits is then beyond
 * base, and keeps its order while the word moves on from base by less than half of the circle.
 */
struct wf_watched {
	const _Atomic uint64_t *at;
	uint64_t base;
	uint64_t seen; /* at the last look. Not base: there is more to start */
	struct wf_heap_node *first;
};

static bool reached(uint64_t word, uint64_t value)
{
	return (int64_t)(word - value) >= 0;
}

static struct wf_transfer *transfer_of(const struct wf_heap_node *node)
{
	return wf_container(node, struct wf_transfer, words.node);
}

/* from: the base. */
static bool before(const struct wf_heap_node *a, const struct wf_heap_node *b, uint64_t from)
{
	const struct wf_op_words *left = &transfer_of(a)->words, *right = &transfer_of(b)->words;
	uint64_t far = from + (UINT64_C(1) << 63) + 1;

	if (left->start_value != right->start_value)
		return left->start_value - far < right->start_value - far;
	return (int64_t)(left->order - right->order) < 0;
}

/* ---- the table ---- */

int wf_words_open(struct wf_group *group, uint32_t most)
{
	struct wf_words *words = &group->words;
	uint32_t slots = 64;

	while (slots < 2 * most)
		slots *= 2;
	words->room = most;
	words->mask = slots - 1;
	words->word = calloc(most, sizeof(*words->word));
	words->table = calloc(slots, sizeof(*words->table));
	return words->word && words->table ? 0 : -ENOMEM;
}

void wf_words_close(struct wf_group *group)
{
	free(group->words.word);
	free(group->words.table);
}

uint64_t wf_words_bytes(const struct wf_group *group)
{
	return (uint64_t)group->words.room * sizeof(*group->words.word) +
	       ((uint64_t)group->words.mask + 1) * sizeof(*group->words.table);
}

static uint32_t hash(const struct wf_words *words, const _Atomic uint64_t *at)
{
	return (uint32_t)((uintptr_t)at / 8 * UINT64_C(0x9e3779b97f4a7c15) >> 32) & words->mask;
}

/* Where it is, or where it would be: an empty slot. */
static uint32_t slot_of(const struct wf_words *words, const _Atomic uint64_t *at)
{
	uint32_t slot = hash(words, at);

	while (words->table[slot] && words->word[words->table[slot] - 1].at != at)
		slot = (slot + 1) & words->mask;
	return slot;
}

/* There is room: as many as operations that can wait. */
static struct wf_watched *add(struct wf_words *words, const _Atomic uint64_t *at, uint64_t now)
{
	struct wf_watched *word = &words->word[words->count++];

	words->table[slot_of(words, at)] = words->count;
	*word = (struct wf_watched){ .at = at, .base = now, .seen = now };
	return word;
}

/* Frees its slot and moves what was pushed past it, so that probing still finds everything. The last word takes its place. */
static void drop(struct wf_words *words, struct wf_watched *word)
{
	uint32_t number = (uint32_t)(word - words->word) + 1, hole = slot_of(words, word->at), at = hole;
	struct wf_watched *last = &words->word[words->count - 1];

	words->table[hole] = 0;
	for (at = (at + 1) & words->mask; words->table[at]; at = (at + 1) & words->mask) {
		uint32_t wanted = hash(words, words->word[words->table[at] - 1].at);

		if (((at - wanted) & words->mask) >= ((at - hole) & words->mask)) {
			words->table[hole] = words->table[at];
			words->table[at] = 0;
			hole = at;
		}
	}
	if (word != last) {
		words->table[slot_of(words, last->at)] = number;
		*word = *last;
	}
	words->count--;
}

/* ---- looking ---- */

static void leave(struct wf_watched *word, struct wf_transfer *transfer)
{
	wf_heap_remove(&word->first, &transfer->words.node, before, word->base);
	transfer->words.waits = false;
}

/* The word went back, or on by more than half of the circle: the order begins elsewhere now. */
static void sort_anew(struct wf_watched *word, uint64_t now)
{
	struct wf_heap_node *all = wf_heap_take_all(&word->first), *next;

	word->base = now;
	for (; all; all = next) {
		next = all->next;
		wf_heap_add(&word->first, all, before, now);
	}
}

/* Starts what the word has reached, at most `most` of it: how many. Nothing else may be done with the word when nothing waits for
 * it any more. What starts may end at once, but begins and ends nothing that waits. */
static uint32_t start_reached(struct wf_watched *word, uint64_t now, uint32_t most)
{
	uint32_t started = 0;

	if (!reached(now, word->base)) {
		sort_anew(word, now);
		most = UINT32_MAX; /* else nobody would know that there is more */
	}
	word->seen = now;
	while (word->first && reached(now, transfer_of(word->first)->words.start_value)) {
		struct wf_transfer *transfer = transfer_of(word->first);

		if (started == most)
			return started;
		leave(word, transfer);
		wf_transfer_start(transfer);
		started++;
	}
	word->base = now;
	return started;
}

/* How long the worker may nap while it waits for words: not at all at first, then for a part of the time that was waited. */
static void set_nap(struct wf_group *group)
{
	struct wf_words *words = &group->words;
	uint64_t quiet = wf_group_now(group) - words->moved_ns, nap = quiet / NAP_PART;

	if (!words->count)
		group->worker.nap_most_ns = WF_NEVER;
	else if (quiet < SPIN_NS)
		group->worker.nap_most_ns = 0;
	else
		group->worker.nap_most_ns = nap < NAP_LEAST_NS ? NAP_LEAST_NS : nap > NAP_MOST_NS ? NAP_MOST_NS : nap;
}

int wf_words_look(struct wf_group *group)
{
	struct wf_words *words = &group->words;
	uint32_t left = words->count < LOOKS_PER_TURN ? words->count : LOOKS_PER_TURN, started = 0, at = words->next;

	while (left-- && words->count && started < STARTS_PER_TURN) {
		struct wf_watched *word = &words->word[at < words->count ? at : (at = 0)];
		/* Acquire: pairs with the store by the thread or stream that made the source ready. */
		uint64_t now = atomic_load_explicit(word->at, memory_order_acquire);

		at++;
		if (now == word->seen && now == word->base)
			continue;
		if (now != word->seen)
			words->moved_ns = wf_group_now(group);
		started += start_reached(word, now, STARTS_PER_TURN - started);
		if (word->first)
			continue;
		drop(words, word);
		at--; /* another is in its place */
	}
	words->next = at;
	set_nap(group);
	return (int)started;
}

/* ---- on the home ---- */

static struct wf_words *words_of(const struct wf_transfer *transfer)
{
	return &transfer->peer->home->words;
}

bool wf_words_wait(struct wf_transfer *transfer)
{
	struct wf_op_words *own = &transfer->words;
	struct wf_group *group = transfer->peer->home;
	struct wf_words *words = &group->words;
	uint32_t number = words->table[slot_of(words, own->start)];
	struct wf_watched *word = number ? &words->word[number - 1] : NULL;
	uint64_t now = atomic_load_explicit(own->start, memory_order_acquire); /* as in wf_words_look() */

	if (word && (now != word->seen || now != word->base))
		start_reached(word, now, UINT32_MAX); /* those before us first */
	if (reached(now, own->start_value)) {
		if (word && !word->first) {
			drop(words, word);
			set_nap(group); /* it may have been the last, and then nobody looks */
		}
		return false;
	}
	if (!word)
		word = add(words, own->start, now);
	own->order = words->order++;
	own->waits = true;
	wf_heap_add(&word->first, &own->node, before, word->base);
	words->moved_ns = wf_group_now(group);
	set_nap(group);
	return true;
}

void wf_words_forget(struct wf_transfer *transfer)
{
	struct wf_words *words = words_of(transfer);
	struct wf_watched *word = &words->word[words->table[slot_of(words, transfer->words.start)] - 1];

	leave(word, transfer);
	if (!word->first)
		drop(words, word);
	set_nap(transfer->peer->home);
}

/* ---- ends ---- */

void wf_words_end(struct wf_transfer *transfer, int status)
{
	struct wf_op_words *own = &transfer->words;
	_Atomic uint64_t *end =
	    atomic_exchange(&own->end, NULL); /* once: a thread that closes the engine may come first */

	/* Release: who sees it sees what landed. The program may unmap it as soon as it has the event, which comes after this. */
	if (end)
		atomic_store_explicit(end, status ? own->failed_value : own->end_value, memory_order_release);
}

void wf_words_end_left(struct weft_engine *engine)
{
	for (uint32_t i = 0; i < wf_transfer_slots(engine); i++) {
		struct wf_transfer *transfer = wf_transfer_at(engine, i);

		if (atomic_load(&transfer->holds) && (uint32_t)atomic_load(&transfer->state) != WF_STOP_DONE)
			wf_words_end(transfer, -ECANCELED);
	}
}

/* ---- on the caller's thread ---- */

static bool is_aligned(const void *word)
{
	return (uintptr_t)word % sizeof(uint64_t) == 0;
}

int wf_words_check(const struct weft_op *op)
{
	if (!is_aligned(op->start_word) || !is_aligned(op->end_word))
		return -EINVAL;
	/* A stream that waits for end_value must go on when the operation has failed. */
	if (op->end_word && op->end_failed_value && !reached(op->end_failed_value, op->end_value))
		return -EINVAL;
	if (op->notify_word && (op->notify != WEFT_NOTIFY_FENCED || op->notify_word_offset % sizeof(uint64_t)))
		return -EINVAL;
	/* A pointer that is no good shows here, not in a worker. */
	if (op->start_word)
		(void)atomic_load_explicit((const _Atomic uint64_t *)op->start_word, memory_order_relaxed);
	return 0;
}

void wf_words_take(struct wf_transfer *transfer, const struct weft_op *op)
{
	struct wf_op_words *own = &transfer->words;

	own->start = (const _Atomic uint64_t *)op->start_word;
	own->start_value = op->start_value;
	atomic_store_explicit(&own->end, (_Atomic uint64_t *)op->end_word, memory_order_relaxed);
	own->end_value = op->end_value;
	own->failed_value = op->end_failed_value ? op->end_failed_value : op->end_value + WEFT_WORD_FAILED;
}

int wf_words_suit_scatter(struct weft_engine *engine, const struct weft_op *op, const struct wf_slice *slices,
			  uint32_t count)
{
	struct wf_remote *remote = wf_handle_get(&engine->remotes, op->notify_word);
	bool suits = false;

	if (!remote)
		return wf_request_no_such(engine, "remote", op->notify_word);
	for (uint32_t i = 0; i < count && !suits; i++)
		suits = slices[i].remote->peer == remote->peer;
	wf_handle_put(&engine->remotes, op->notify_word);
	return suits ? 0 : -EINVAL;
}

/* The receiver checks all of this again, and whether it still holds. */
static int check_remote(const struct wf_transfer *transfer, const struct wf_remote *remote, uint64_t offset)
{
	const struct wf_slice slice = { .remote = (struct wf_remote *)remote };

	if (atomic_load_explicit(&remote->revoked, memory_order_relaxed))
		return -ESTALE;
	if (!(remote->access & WEFT_REMOTE_WRITE))
		return -EACCES;
	if (!wf_inside(offset, sizeof(uint64_t), remote->bytes))
		return -ERANGE;
	return wf_request_incarnation(transfer, &slice);
}

int wf_words_name(struct wf_transfer *transfer, const struct weft_op *op, struct wf_manifest *manifest)
{
	struct weft_engine *engine = transfer->engine;
	struct wf_remote *remote = wf_handle_get(&engine->remotes, op->notify_word);
	int error = 0;

	if (!remote)
		return wf_request_no_such(engine, "remote", op->notify_word);
	if (remote->peer == transfer->peer->handle) {
		error = check_remote(transfer, remote, op->notify_word_offset);
		manifest->has_word = true;
		manifest->word = (struct wf_manifest_range){ remote->region, remote->proof, op->notify_word_offset,
							     sizeof(uint64_t) };
		manifest->word_value = op->notify_word_value;
	} else if (!transfer->parent) {
		error = -EINVAL;
	}
	wf_handle_put(&engine->remotes, op->notify_word);
	return error;
}
