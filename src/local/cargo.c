/*
 * Operations with a card's memory at one end or at both. The card makes the copies while the worker goes on, some at a time; lists
 * of pages go in one launch. Between a card and the CPU's memory of another process, or of ours that is not pinned, the bytes pass
 * through a pinned chunk: the card copies one side of it, the CPU the other. Where the far end is a card's, its owner sees in our
 * pipe which region we hold, and waits for that when it takes the region back. Runs on the worker that owns the rail.
 */
#include "base/time.h"
#include "local/internal.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define CPU_COPIES 2 /* chunks that the CPU copies per turn, so that a turn stays short */

/* ---- what there is ---- */

static int make_room(struct wf_local *local)
{
	if (local->cargo)
		return 0;
	local->flight = calloc(WF_FLIGHTS, sizeof(*local->flight));
	local->cargo = local->flight ? calloc(WF_LOCAL_OPS, sizeof(*local->cargo)) : NULL;
	return local->cargo ? 0 : -EAGAIN; /* there may be memory later */
}

static struct wf_copier *copier_of(struct wf_local *local, struct wf_card *card)
{
	struct wf_copier *copier = NULL;
	uint32_t i = 0;

	pthread_mutex_lock(&local->copiers_lock);
	while (i < WF_COPIERS && local->copier[i].card && local->copier[i].card != card)
		i++;
	if (i < WF_COPIERS && !local->copier[i].card && !wf_copier_open(card, &local->copier[i].copier))
		local->copier[i].card = card;
	if (i < WF_COPIERS && local->copier[i].card == card)
		copier = local->copier[i].copier;
	pthread_mutex_unlock(&local->copiers_lock);
	return copier;
}

void wf_local_prepare_card(struct wf_local *local, struct wf_card *card)
{
	copier_of(local, card);
}

uint64_t wf_local_card_bytes(const struct wf_local *local)
{
	return atomic_load_explicit(&((struct wf_local *)(uintptr_t)local)->card_bytes, memory_order_relaxed);
}

const char *wf_local_why(const struct wf_local *local)
{
	return local->why;
}

int wf_cargo_post(struct wf_local *local, const struct wf_local_run *run, const struct wf_local_copy *copy)
{
	struct wf_cargo *cargo;
	uint32_t i = 0;

	/* One that is a part of an operation would end before the others. */
	if (!copy->context)
		return -EOPNOTSUPP;
	if (make_room(local))
		return -EAGAIN;
	while (i < WF_LOCAL_OPS && local->cargo[i].used)
		i++;
	if (i == WF_LOCAL_OPS)
		return -EAGAIN; /* of those that were taken back some are not over */
	cargo = &local->cargo[i];
	*cargo = (struct wf_cargo){ .line = local->begun,
				    .opened = local->begun_at,
				    .context = copy->context,
				    .card = run->near ? run->near->card : NULL,
				    .foreign = run->near && run->near->foreign,
				    .used = true,
				    .read = run->read,
				    .has_immediate = run->has_immediate,
				    .immediate = run->immediate,
				    .near = copy->local,
				    .far = copy->remote,
				    .left = copy->bytes,
				    .list = run->list,
				    .page = copy->first };
	wf_list_append(&local->waiting, &cargo->link);
	local->begun_at->jobs++;
	local->posted++;
	local->cargoes++;
	return 0;
}

/* ---- ends ---- */

static void release_cargo(struct wf_local *local, struct wf_cargo *cargo)
{
	wf_list_remove(&cargo->link);
	wf_opened_used(cargo->opened);
	cargo->used = false;
	local->cargoes--;
}

/* Nothing of it is under way. Returns false if its immediate finds no room: it waits for some. */
static bool end_cargo(struct wf_local *local, struct wf_cargo *cargo)
{
	struct wf_record record = { .kind = WF_RECORD_IMMEDIATE, .immediate = cargo->immediate };
	struct wf_line *line = cargo->line;
	bool tells = cargo->has_immediate && !cargo->status && cargo->context && line;
	int error = tells ? wf_pipe_put(&line->pipe, &record, NULL) : 0;

	if (error == -EAGAIN) {
		wf_list_remove(&cargo->link);
		wf_list_append(&local->landed, &cargo->link);
		return false;
	}
	if (error)
		cargo->status = -ECONNRESET;
	else if (tells)
		wf_line_ring(line);
	wf_copies_tell_end(local, cargo->context, cargo->status);
	release_cargo(local, cargo);
	if (error)
		wf_line_break(line, "it breaks the pipe's rules");
	return true;
}

static void fail_cargo(struct wf_cargo *cargo, int status)
{
	if (!cargo->status)
		cargo->status = status;
	cargo->left = 0;
}

static void maybe_end(struct wf_local *local, struct wf_cargo *cargo)
{
	if (cargo->left)
		return;
	wf_list_remove(&cargo->link);
	if (!cargo->flights)
		end_cargo(local, cargo);
}

/* ---- holding a peer's card's memory ---- */

/* Its owner sees that we hold it, or we see that it took it back: as copy() in copy.c. -EAGAIN: too many are held. */
static int hold(struct wf_line *line, const struct wf_opened *opened, int *ret_hold)
{
	_Atomic uint64_t *place;
	int at = 0;

	while (at < (int)WF_PIPE_HOLDS && line->held & 1u << at)
		at++;
	if (at == (int)WF_PIPE_HOLDS)
		return -EAGAIN;
	place = &line->pipe.shared->holding[at];
	atomic_store(place, (uint64_t)opened->slot + 1);
	if (atomic_load(&line->board->life[opened->slot]) != opened->life) {
		atomic_store(place, 0);
		return -EKEYREJECTED;
	}
	line->held |= 1u << at;
	*ret_hold = at;
	return 0;
}

static void let_go(struct wf_flight *flight)
{
	struct wf_line *line = flight->cargo->line;

	if (flight->hold < 0 || !line)
		return;
	atomic_store_explicit(&line->pipe.shared->holding[flight->hold], 0, memory_order_release);
	line->held &= ~(1u << flight->hold);
	flight->hold = -1;
}

/* ---- lists ---- */

/* Where page i begins in the owner's region; UINT64_MAX: outside it. */
static uint64_t far_page(const struct wf_cargo *cargo, uint64_t i)
{
	const struct wf_page_list *list = cargo->list;
	uint64_t offset = cargo->far - cargo->opened->base + wf_page_offset(list->far_index, i, list->far_stride);

	return offset <= cargo->opened->bytes && cargo->opened->bytes - offset >= list->page_bytes ? offset
												   : UINT64_MAX;
}

static char *near_page(const struct wf_cargo *cargo, uint64_t i)
{
	return cargo->near + wf_page_offset(cargo->list->near_index, i, cargo->list->near_stride);
}

static bool pages_are_inside(const struct wf_cargo *cargo, uint64_t pages)
{
	for (uint64_t i = 0; i < pages; i++)
		if (far_page(cargo, cargo->page + i) == UINT64_MAX)
			return false;
	return true;
}

/* ---- the CPU's side of a chunk ---- */

static void copy_near(const struct wf_flight *flight, bool into_chunk)
{
	const struct wf_cargo *cargo = flight->cargo;
	uint64_t page_bytes = cargo->list ? cargo->list->page_bytes : flight->bytes;

	for (uint64_t i = 0, at = 0; at < flight->bytes; i++, at += page_bytes) {
		char *near = cargo->list ? near_page(cargo, flight->page + i) : flight->near;

		if (into_chunk)
			memcpy(flight->chunk + at, near, page_bytes);
		else
			memcpy(near, flight->chunk + at, page_bytes);
	}
}

static int copy_far(const struct wf_flight *flight)
{
	const struct wf_cargo *cargo = flight->cargo;
	struct wf_far_ranges ranges = { .read = cargo->read, .bytes = flight->bytes };
	uint64_t page_bytes = cargo->list ? cargo->list->page_bytes : flight->bytes;
	int64_t copied;

	for (uint64_t at = 0; at < flight->bytes; at += page_bytes) {
		uint64_t far =
		    cargo->list ? cargo->opened->base + far_page(cargo, flight->page + ranges.count) : flight->far;

		ranges.near[ranges.count] = (struct iovec){ flight->chunk + at, page_bytes };
		ranges.far[ranges.count++] = (struct iovec){ (void *)(uintptr_t)far, page_bytes };
	}
	copied = wf_copies_now(cargo->line, cargo->opened, &ranges);
	if (copied == -EPERM)
		return -EACCES;
	return copied < 0 ? (int)copied : (uint64_t)copied < flight->bytes ? -EFAULT : 0;
}

/* ---- the card's side ---- */

/* What the card copies: between the two ends, or between one of them and the chunk. */
static int card_copies(struct wf_flight *flight)
{
	const struct wf_cargo *cargo = flight->cargo;
	const struct wf_page_list *list = cargo->list;
	bool near_card = cargo->card, far_card = cargo->opened->card;
	char *far_at = cargo->opened->at;
	char *near = near_card ? (list ? cargo->near : flight->near) : flight->chunk;
	char *far = far_card ? far_at + ((list ? cargo->far : flight->far) - cargo->opened->base) : flight->chunk;
	struct wf_device_pages pages = { .first = flight->page };

	if (!list)
		return cargo->read ? wf_copier_copy(flight->copier, near, far, flight->bytes)
				   : wf_copier_copy(flight->copier, far, near, flight->bytes);
	pages.page_bytes = list->page_bytes;
	pages.count = flight->bytes / list->page_bytes;
	pages.beside = flight->chunk;
	pages.by_copies = cargo->foreign || (near_card && far_card && cargo->card != cargo->opened->card);
	/* In a chunk the pages of this flight follow each other from its beginning on. */
	pages.from = cargo->read ? far : near;
	pages.to = cargo->read ? near : far;
	pages.from_index = cargo->read ? list->far_index : list->near_index;
	pages.to_index = cargo->read ? list->near_index : list->far_index;
	pages.from_stride = cargo->read ? list->far_stride : list->near_stride;
	pages.to_stride = cargo->read ? list->near_stride : list->far_stride;
	if (flight->chunk && pages.from == flight->chunk) {
		pages.from_index = NULL;
		pages.from_stride = list->page_bytes;
		pages.from = flight->chunk - flight->page * list->page_bytes;
	} else if (flight->chunk) {
		pages.to_index = NULL;
		pages.to_stride = list->page_bytes;
		pages.to = flight->chunk - flight->page * list->page_bytes;
	}
	return wf_copier_pages(flight->copier, flight->number, &pages);
}

/* ---- flights ---- */

static struct wf_flight *free_flight(struct wf_local *local)
{
	for (uint32_t i = 0; i < WF_FLIGHTS; i++)
		if (!local->flight[i].cargo)
			return &local->flight[i];
	return NULL;
}

static void release_flight(struct wf_local *local, struct wf_flight *flight)
{
	let_go(flight);
	if (flight->chunk)
		wf_card_chunk_give(flight->card, flight->chunk);
	wf_copier_give(flight->copier, flight->number);
	flight->cargo->flights--;
	local->flights--;
	flight->cargo = NULL;
}

/* How much of the cargo goes in one flight. 0: none can. */
static uint64_t portion(const struct wf_cargo *cargo, bool by_chunk)
{
	uint64_t page_bytes = cargo->list ? cargo->list->page_bytes : 1, pages = cargo->left / page_bytes;
	uint64_t most = !by_chunk ? (cargo->list ? WF_DEVICE_LISTED : pages) : WF_DEVICE_CHUNK / page_bytes;

	if (by_chunk && cargo->list && most > WF_RANGES)
		most = WF_RANGES;
	return (pages < most ? pages : most) * page_bytes;
}

/* Takes what a flight needs. -EAGAIN: not all of it is free now. */
static int equip(struct wf_local *local, struct wf_cargo *cargo, struct wf_flight *flight, bool by_chunk)
{
	struct wf_card *card = cargo->card ? cargo->card : cargo->opened->card;
	int error = 0;

	*flight = (struct wf_flight){ .card = card, .hold = -1, .copier = copier_of(local, card) };
	if (!flight->copier || (by_chunk && !wf_card_has_chunks(card))) {
		local->why =
		    flight->copier ? "there is no pinned memory for the card" : "the card's driver makes no copies";
		return -ENOTRECOVERABLE;
	}
	flight->number = wf_copier_take(flight->copier);
	if (flight->number < 0)
		return -EAGAIN;
	if (by_chunk && !(flight->chunk = wf_card_chunk_take(card)))
		error = -EAGAIN;
	if (!error && cargo->opened->card)
		error = hold(cargo->line, cargo->opened, &flight->hold);
	flight->cargo = cargo;
	cargo->flights++;
	local->flights++;
	if (error)
		release_flight(local, flight);
	return error;
}

/* Begins one flight. Returns 0; -EAGAIN: later; or why the cargo fails. */
static int launch(struct wf_local *local, struct wf_cargo *cargo)
{
	bool by_chunk = !cargo->card || !cargo->opened->card;
	struct wf_flight *flight = free_flight(local);
	uint64_t bytes = portion(cargo, by_chunk);
	int error;

	if (!bytes)
		return cargo->left ? -EOPNOTSUPP : 0;
	if (cargo->list && !pages_are_inside(cargo, bytes / cargo->list->page_bytes))
		return -EFAULT;
	error = flight ? equip(local, cargo, flight, by_chunk) : -EAGAIN;
	if (error)
		return error;
	flight->near = cargo->near;
	flight->far = cargo->far;
	flight->page = cargo->page;
	flight->bytes = bytes;
	flight->to_far = by_chunk && cargo->card && !cargo->read;
	flight->to_near = by_chunk && !cargo->card && cargo->read;
	if (by_chunk && !cargo->card && !cargo->read)
		copy_near(flight, true);
	if (by_chunk && cargo->card && cargo->read)
		error = copy_far(flight);
	if (!error && (card_copies(flight) || wf_copier_launch(flight->copier, flight->number))) {
		/* Some of it may be under way: the driver has failed, and with it all that the card was doing. */
		local->why = wf_copier_error(flight->copier);
		error = -ENOTRECOVERABLE;
	}
	if (error) {
		release_flight(local, flight);
		return error;
	}
	cargo->left -= bytes;
	atomic_fetch_add_explicit(&local->card_bytes, bytes, memory_order_relaxed);
	if (cargo->list) {
		cargo->page += bytes / cargo->list->page_bytes;
	} else {
		cargo->near += bytes;
		cargo->far += bytes;
	}
	return 0;
}

/* The card is through with it. */
static void land(struct wf_local *local, struct wf_flight *flight, int status)
{
	struct wf_cargo *cargo = flight->cargo;
	struct wf_line *line = cargo->line;

	if (status) {
		local->why = wf_copier_error(flight->copier);
		status = -ENOTRECOVERABLE;
	} else if (cargo->context && flight->to_far && line) {
		status = copy_far(flight); /* what was taken back lands nowhere any more */
	} else if (cargo->context && flight->to_near) {
		copy_near(flight, false);
	}
	if (status)
		fail_cargo(cargo, status);
	release_flight(local, flight);
	maybe_end(local, cargo);
	if (status == -ESRCH && line) {
		wf_line_break(line, "the process has ended");
		wf_line_process_ended(line);
	}
}

static void land_all(struct wf_local *local)
{
	int copies = CPU_COPIES;

	for (uint32_t i = 0; i < WF_FLIGHTS && local->flights; i++) {
		struct wf_flight *flight = &local->flight[i];
		int status;

		if (!flight->cargo || ((flight->to_far || flight->to_near) && !copies))
			continue;
		status = wf_copier_look(flight->copier, flight->number);
		if (status == -EAGAIN)
			continue;
		copies -= flight->to_far || flight->to_near;
		land(local, flight, status);
	}
}

void wf_cargo_go(struct wf_local *local)
{
	struct wf_link *link;
	int launches = WF_FLIGHTS, error = 0;

	land_all(local);
	while ((link = local->landed.next) != &local->landed)
		if (!end_cargo(local, wf_container(link, struct wf_cargo, link)))
			break;
	while (launches-- && error != -EAGAIN && !wf_list_empty(&local->waiting)) {
		struct wf_cargo *cargo = wf_container(local->waiting.next, struct wf_cargo, link);
		struct wf_line *line = cargo->line;

		error = launch(local, cargo);
		if (error && error != -EAGAIN)
			fail_cargo(cargo, error);
		if (error == -EAGAIN)
			return;
		/* Those that are longer take turns. */
		wf_list_remove(&cargo->link);
		wf_list_append(&local->waiting, &cargo->link);
		maybe_end(local, cargo);
		if (error == -ESRCH) {
			wf_line_break(line, "the process has ended");
			wf_line_process_ended(line);
		}
	}
}

/* ---- what fails or is taken back ---- */

void wf_cargo_fail(struct wf_local *local, const struct wf_line *line)
{
	for (uint32_t i = 0; local->cargoes && i < WF_LOCAL_OPS; i++) {
		struct wf_cargo *cargo = &local->cargo[i];

		if (!cargo->used || (line && cargo->line != line))
			continue;
		if (!line) {
			local->posted -= cargo->context != NULL;
			cargo->context = NULL;
		}
		fail_cargo(cargo, -ECONNRESET);
		/* The pipe's memory goes with the line; the copies themselves go on, and their memory is not ours to give
		 * back until they are over. */
		if (line)
			cargo->line = NULL;
		wf_list_remove(&cargo->link);
		if (!cargo->flights)
			end_cargo(local, cargo);
	}
}

bool wf_cargo_settle(struct wf_local *local, uint64_t limit_ns)
{
	uint64_t until = wf_now_ns() + limit_ns;

	while (local->flights) {
		land_all(local);
		if (local->flights && wf_now_ns() > until)
			return false;
		if (local->flights)
			sched_yield();
	}
	return true;
}

/* Flights that do not end leave everything that they use where it is: it is the card's. */
void wf_cargo_close(struct wf_local *local)
{
	bool over = !local->flights;

	/* A peer's card's memory stays mapped under the copies. */
	for (uint32_t i = 0; local->cargoes && i < WF_LOCAL_OPS; i++)
		if (local->cargo[i].used && !local->cargo[i].opened->card)
			release_cargo(local, &local->cargo[i]);
	for (uint32_t i = 0; i < WF_COPIERS && local->copier[i].card; i++) {
		if (!over)
			wf_card_abandon(local->copier[i].card);
		wf_copier_close(local->copier[i].copier);
	}
	free(local->cargo);
	free(local->flight);
}
