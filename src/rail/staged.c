/*
 * A card's memory on a NIC that cannot reach it: our end of a write or a read passes through a pinned chunk near the card. A write
 * is copied into the chunk by the card and posted from there when that is over; a read is posted into the chunk, and completes when
 * the card has copied it out. The layers above see an operation that takes a little longer. Nothing here waits for the card, except
 * for a bounded time when the endpoint is shut. Runs on the worker that owns the rail; readying a card on any thread.
 */
#include "base/time.h"
#include "device/device.h"
#include "rail/host.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define OPS       8u /* of a rail: with chunks of WF_DEVICE_CHUNK more than a window of most links */
#define CARDS     16u
#define SETTLE_NS (50 * WF_MS)

enum state {
	FREE,
	COPYING, /* a write's bytes into the chunk */
	READY,   /* the provider had no room */
	POSTED,
	LANDING,  /* a read's bytes out of the chunk */
	OVER,     /* to be told: status */
	DRIFTING, /* taken back while the card copied; untold */
	GONE,     /* it was posted when the endpoint was shut: what it may still complete is a write's, or nothing */
};

struct staged {
	enum state state;
	struct wf_rma_run run; /* as the NIC gets it */
	struct wf_rma rma;
	void *near;
	char *chunk;
	uint32_t card;
	int flight, status;
};

struct wf_staged {
	struct wf_rail *rail;
	uint32_t used;          /* ops that are not free */
	_Atomic uint64_t bytes; /* that cards have copied; relaxed */
	struct staged op[OPS];
	/* Only added to, under the rail's lock; the count is published after the entry (release, acquire). */
	_Atomic uint32_t cards;
	struct {
		struct wf_card *card;
		struct wf_copier *copier;
		struct fid_mr *mr; /* of its chunks; NULL: the provider wants none */
		void *desc;
	} card[CARDS];
};

/* ---- readying ---- */

static int register_chunks(struct wf_rail *rail, struct wf_card *card, struct fid_mr **ret_mr)
{
	uint64_t bytes;
	void *chunks = wf_card_chunks(card, &bytes);

	*ret_mr = NULL;
	if (!chunks)
		return -ENOMEM;
	return rail->needs_local ? wf_rail_register_local(rail, chunks, bytes, ret_mr) : 0;
}

static int add_card(struct wf_staged *staged, struct wf_card *card)
{
	uint32_t count = atomic_load_explicit(&staged->cards, memory_order_relaxed);
	int error;

	for (uint32_t i = 0; i < count; i++)
		if (staged->card[i].card == card)
			return 0;
	if (count == CARDS)
		return -ENOMEM;
	error = register_chunks(staged->rail, card, &staged->card[count].mr);
	if (!error)
		error = wf_copier_open(card, &staged->card[count].copier);
	if (error) {
		if (staged->card[count].mr)
			fi_close(&staged->card[count].mr->fid);
		return error;
	}
	staged->card[count].desc = staged->card[count].mr ? fi_mr_desc(staged->card[count].mr) : NULL;
	staged->card[count].card = card;
	atomic_store_explicit(&staged->cards, count + 1, memory_order_release);
	return 0;
}

int wf_staged_prepare(struct wf_rail *rail, struct wf_card *card)
{
	struct wf_staged *staged;
	int error;

	pthread_mutex_lock(&rail->staged_lock);
	staged = atomic_load_explicit(&rail->staged, memory_order_relaxed);
	if (!staged && (staged = calloc(1, sizeof(*staged)))) {
		staged->rail = rail;
		/* Release: pairs with the worker's acquire in wf_rail_poll() and wf_staged_rma(). */
		atomic_store_explicit(&rail->staged, staged, memory_order_release);
		atomic_fetch_or_explicit(&rail->odd, WF_ODD_STAGED, memory_order_release);
	}
	error = staged ? add_card(staged, card) : -ENOMEM;
	pthread_mutex_unlock(&rail->staged_lock);
	return error;
}

/* ---- operations ---- */

static void give_back(struct wf_staged *staged, struct staged *op)
{
	if (op->flight >= 0)
		wf_copier_give(staged->card[op->card].copier, op->flight);
	if (op->chunk)
		wf_card_chunk_give(staged->card[op->card].card, op->chunk);
	op->flight = -1;
	op->chunk = NULL;
}

static void release(struct wf_staged *staged, struct staged *op)
{
	give_back(staged, op);
	op->state = FREE;
	staged->used--;
}

static void end_with(struct staged *op, int status)
{
	op->status = status;
	op->state = OVER;
}

static void card_failed(struct wf_staged *staged, struct staged *op)
{
	wf_rail_note_error(staged->rail, EIO, wf_copier_error(staged->card[op->card].copier));
	end_with(op, -ENOTRECOVERABLE);
}

/* Returns 0, -EAGAIN, or another negative errno. */
static int post(struct wf_staged *staged, struct staged *op)
{
	int error = 0;

	return wf_rail_rma_by_nic(staged->rail, &op->run, &op->rma, 1, false, &error) ? 0 : error;
}

static int take(struct wf_staged *staged, struct wf_card *card, struct staged **ret_op)
{
	uint32_t at = 0, which = 0, cards = atomic_load_explicit(&staged->cards, memory_order_acquire);
	struct staged *op;

	while (at < OPS && staged->op[at].state != FREE)
		at++;
	while (which < cards && staged->card[which].card != card)
		which++;
	if (which == cards)
		return -EOPNOTSUPP;
	if (at == OPS)
		return -EAGAIN;
	op = &staged->op[at];
	*op = (struct staged){ .card = which, .flight = -1, .chunk = wf_card_chunk_take(card) };
	if (!op->chunk)
		return -EAGAIN;
	op->flight = wf_copier_take(staged->card[which].copier);
	op->state = OVER;
	staged->used++;
	if (op->flight < 0) {
		release(staged, op);
		return -EAGAIN;
	}
	*ret_op = op;
	return 0;
}

/* Between the card and the chunk, with an event behind it. */
static bool card_copies(struct wf_staged *staged, struct staged *op, void *to, const void *from)
{
	struct wf_copier *copier = staged->card[op->card].copier;

	atomic_fetch_add_explicit(&staged->bytes, op->rma.bytes, memory_order_relaxed);
	return !wf_copier_copy(copier, to, from, op->rma.bytes) && !wf_copier_launch(copier, op->flight);
}

static int begin(struct wf_staged *staged, const struct wf_rma_run *run, const struct wf_rma *rma)
{
	const struct wf_device_memory *memory = run->desc;
	struct staged *op;
	int error = rma->ranges || rma->bytes > WF_DEVICE_CHUNK ? -EMSGSIZE : take(staged, memory->card, &op);

	if (error)
		return error;
	op->run = *run;
	op->rma = *rma;
	op->near = rma->local;
	op->rma.local = op->chunk;
	op->run.desc = staged->card[op->card].desc;
	op->run.cards = false;
	if (run->read) {
		error = post(staged, op);
		op->state = POSTED;
		if (error)
			release(staged, op);
		return error;
	}
	op->state = COPYING;
	if (!card_copies(staged, op, op->chunk, op->near))
		card_failed(staged, op);
	return 0;
}

int wf_staged_rma(struct wf_rail *rail, const struct wf_rma_run *run, const struct wf_rma *rma, int count,
		  int *ret_error)
{
	struct wf_staged *staged = atomic_load_explicit(&rail->staged, memory_order_acquire);
	int posted = 0, error = staged ? 0 : -EOPNOTSUPP;

	while (posted < count && !error) {
		error = begin(staged, run, &rma[posted]);
		posted += !error;
	}
	if (error)
		*ret_error = error;
	return posted;
}

/* ---- the turn ---- */

static void go_on(struct wf_staged *staged, struct staged *op)
{
	int status;

	if (op->state == DRIFTING && wf_copier_look(staged->card[op->card].copier, op->flight) != -EAGAIN) {
		release(staged, op);
		return;
	}
	if (op->state == COPYING || op->state == LANDING) {
		status = wf_copier_look(staged->card[op->card].copier, op->flight);
		if (status == -EAGAIN)
			return;
		if (status)
			card_failed(staged, op);
		else if (op->state == LANDING)
			end_with(op, 0);
		else
			op->state = READY;
	}
	if (op->state != READY)
		return;
	status = post(staged, op);
	if (!status)
		op->state = POSTED;
	else if (status != -EAGAIN)
		end_with(op, status);
}

/* What the provider completed. Returns whether it is to be told now. */
static bool completed(struct wf_staged *staged, const struct wf_completion *completion)
{
	for (uint32_t i = 0; i < OPS; i++) {
		struct staged *op = &staged->op[i];

		if ((op->state != POSTED && op->state != GONE) || op->rma.wr != completion->wr)
			continue;
		if (op->state == GONE)
			return !op->run.read || completion->status;
		if (op->run.read && !completion->status) {
			op->state = LANDING;
			if (!card_copies(staged, op, op->near, op->chunk))
				card_failed(staged, op);
			return false;
		}
		release(staged, op);
		return true;
	}
	return true;
}

int wf_staged_advance(struct wf_staged *staged, struct wf_completion *completions, int max)
{
	int count = 0;

	for (uint32_t i = 0; i < OPS && staged->used && count < max; i++) {
		struct staged *op = &staged->op[i];

		if (op->state != FREE)
			go_on(staged, op);
		if (op->state != OVER)
			continue;
		completions[count++] = (struct wf_completion){ .wr = op->rma.wr, .status = op->status };
		release(staged, op);
	}
	return count;
}

int wf_staged_filter(struct wf_staged *staged, struct wf_completion *completions, int count)
{
	int kept = 0;

	for (int i = 0; i < count; i++)
		if (!staged->used || !completions[i].wr || completions[i].wr->kind > WF_WR_READ ||
		    completed(staged, &completions[i]))
			completions[kept++] = completions[i];
	return kept;
}

bool wf_staged_is_busy(const struct wf_staged *staged)
{
	for (uint32_t i = 0; i < OPS && staged->used; i++)
		if (staged->op[i].state == COPYING || staged->op[i].state == READY || staged->op[i].state == LANDING ||
		    staged->op[i].state == OVER)
			return true;
	return false;
}

uint64_t wf_rail_card_bytes(const struct wf_rail *rail)
{
	struct wf_staged *staged =
	    atomic_load_explicit(&((struct wf_rail *)(uintptr_t)rail)->staged, memory_order_acquire);

	if (rail->local)
		return wf_local_card_bytes(rail->local);
	return staged ? atomic_load_explicit(&staged->bytes, memory_order_relaxed) : 0;
}

/* ---- shutting and opening ---- */

static bool is_flying(const struct staged *op)
{
	return op->state == COPYING || op->state == LANDING;
}

/* The poster takes them all back. A write that is still being copied touches none of its memory; a read may. */
bool wf_staged_shut(struct wf_staged *staged)
{
	uint64_t until = wf_now_ns() + SETTLE_NS;
	bool quiet = true;

	for (uint32_t i = 0; i < OPS && staged->used; i++) {
		struct staged *op = &staged->op[i];

		while (is_flying(op) && wf_copier_look(staged->card[op->card].copier, op->flight) == -EAGAIN &&
		       wf_now_ns() < until)
			sched_yield();
		if (is_flying(op) && wf_copier_look(staged->card[op->card].copier, op->flight) == -EAGAIN) {
			quiet &= op->state != LANDING;
			op->state = DRIFTING; /* its chunk and its flight are the card's until it is over */
		} else if (op->state == POSTED) {
			give_back(staged, op); /* the endpoint is closed: nothing uses its chunk any more */
			op->state = GONE;
		} else if (op->state != FREE && op->state != GONE && op->state != DRIFTING) {
			release(staged, op);
		}
	}
	return quiet;
}

void wf_staged_reopened(struct wf_staged *staged)
{
	for (uint32_t i = 0; i < OPS && staged->used; i++)
		if (staged->op[i].state == GONE)
			release(staged, &staged->op[i]);
}

void wf_staged_close(struct wf_staged *staged)
{
	uint32_t cards = staged ? atomic_load(&staged->cards) : 0;

	if (!staged)
		return;
	wf_staged_shut(staged);
	wf_staged_reopened(staged);
	for (uint32_t i = 0; i < OPS; i++)
		if (staged->op[i].state == DRIFTING &&
		    wf_copier_look(staged->card[staged->op[i].card].copier, staged->op[i].flight) == -EAGAIN)
			wf_card_abandon(staged->card[staged->op[i].card].card);
		else if (staged->op[i].state == DRIFTING)
			release(staged, &staged->op[i]);
	for (uint32_t i = 0; i < cards; i++) {
		wf_copier_close(staged->card[i].copier);
		if (staged->card[i].mr)
			fi_close(&staged->card[i].mr->fid);
	}
	free(staged);
}
