/*
 * Copies by a card: a stream, on which copies and page kernels run in order, and events, which say how far it is. Nothing here
 * waits for the card. One thread's: the worker of the rail that has the copier.
 */
#include "device/cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define THREADS       512u
#define BLOCKS_BESIDE 32u         /* saturate PCIe either way */
#define BLOCKS        4u          /* per processor of the card: with these it moves what its memory can */
#define CUT_LEAST     (64u << 10) /* a page is cut if there are too few for the grid */

/* Copiers whose cards do not end their copies. Nobody uses them again; kept here, they do not look like leaks. */
static _Atomic(struct wf_copier *) kept;

struct wf_copier {
	struct wf_copier *next; /* kept */
	struct wf_card *card;
	cu_stream stream;
	cu_result failed; /* last */
	uint32_t taken;   /* bit i: flight i is in use */
	uint32_t *lists;  /* pinned: the two index lists of each flight, where the kernel reads them */
	cu_event event[WF_DEVICE_FLIGHTS];
};

static int failed(struct wf_copier *copier, cu_result result)
{
	if (result && result != CU_NOT_READY)
		copier->failed = result;
	return wf_cuda_errno(result);
}

static int enter(struct wf_copier *copier)
{
	return failed(copier, copier->card->devices->cuda.context_push(copier->card->context));
}

const char *wf_copier_error(const struct wf_copier *copier)
{
	return wf_cuda_name(copier->card->devices, copier->failed);
}

/* In the card's context. */
static cu_result equip(struct wf_copier *copier)
{
	const struct wf_cuda *cuda = &copier->card->devices->cuda;
	cu_result result = cuda->stream_create(&copier->stream, CU_STREAM_NON_BLOCKING);

	for (uint32_t i = 0; i < WF_DEVICE_FLIGHTS && !result; i++)
		result = cuda->event_create(&copier->event[i], CU_EVENT_DISABLE_TIMING);
	if (!result && copier->card->module &&
	    cuda->host_alloc((void **)&copier->lists,
			     (size_t)WF_DEVICE_FLIGHTS * 2 * WF_DEVICE_LISTED * sizeof(*copier->lists),
			     CU_HOST_PORTABLE))
		copier->lists = NULL; /* pages are copied one by one */
	return result;
}

int wf_copier_open(struct wf_card *card, struct wf_copier **ret_copier)
{
	struct wf_copier *copier = calloc(1, sizeof(*copier));
	int error;

	if (!copier)
		return -ENOMEM;
	copier->card = card;
	error = wf_card_enter(card);
	if (!error) {
		error = failed(copier, equip(copier));
		wf_card_leave(card);
	}
	if (error)
		wf_copier_close(copier);
	else
		*ret_copier = copier;
	return error;
}

void wf_copier_close(struct wf_copier *copier)
{
	const struct wf_cuda *cuda;

	if (!copier)
		return;
	if (atomic_load(&copier->card->abandoned)) {
		copier->next = atomic_load(&kept);
		while (!atomic_compare_exchange_weak(&kept, &copier->next, copier))
			continue;
		return;
	}
	cuda = &copier->card->devices->cuda;
	if (!wf_card_enter(copier->card)) {
		for (uint32_t i = 0; i < WF_DEVICE_FLIGHTS; i++)
			if (copier->event[i])
				cuda->event_destroy(copier->event[i]);
		if (copier->stream)
			cuda->stream_destroy(copier->stream);
		if (copier->lists)
			cuda->host_free(copier->lists);
		wf_card_leave(copier->card);
	}
	free(copier);
}

int wf_copier_take(struct wf_copier *copier)
{
	for (int i = 0; i < (int)WF_DEVICE_FLIGHTS; i++)
		if (!(copier->taken & 1u << i)) {
			copier->taken |= 1u << i;
			return i;
		}
	return -1;
}

void wf_copier_give(struct wf_copier *copier, int flight)
{
	copier->taken &= ~(1u << flight);
}

int wf_copier_copy(struct wf_copier *copier, void *to, const void *from, uint64_t bytes)
{
	int error = enter(copier);

	if (error)
		return error;
	error = failed(copier, copier->card->devices->cuda.copy((uintptr_t)to, (uintptr_t)from, bytes, copier->stream));
	wf_card_leave(copier->card);
	return error;
}

/* ---- pages ---- */

static uint64_t place(const uint32_t *index, uint64_t first, uint64_t i, uint64_t stride)
{
	return (index ? index[first + i] : first + i) * stride;
}

static cu_result copy_each(struct wf_copier *copier, const struct wf_device_pages *pages)
{
	cu_result result = CU_SUCCESS;

	for (uint64_t i = 0; i < pages->count && !result; i++)
		result = copier->card->devices->cuda.copy(
		    (uintptr_t)pages->to + place(pages->to_index, pages->first, i, pages->to_stride),
		    (uintptr_t)pages->from + place(pages->from_index, pages->first, i, pages->from_stride),
		    pages->page_bytes, copier->stream);
	return result;
}

static uint32_t blocks_for(const struct wf_copier *copier, const struct wf_device_pages *pages)
{
	uint32_t share = atomic_load_explicit(&copier->card->devices->share, memory_order_relaxed);
	uint32_t blocks = pages->beside ? BLOCKS_BESIDE : BLOCKS * copier->card->processors;

	blocks = share && share < 100 ? blocks * share / 100 : blocks;
	return blocks ? blocks : 1;
}

/* The kernel for what every address and length is a multiple of. */
static cu_function kernel_for(const struct wf_card *card, const struct wf_device_pages *pages)
{
	uint64_t all =
	    (uintptr_t)pages->to | (uintptr_t)pages->from | pages->to_stride | pages->from_stride | pages->page_bytes;

	return card->pages[all % 16 == 0 ? 0 : all % 4 == 0 ? 1 : 2];
}

static cu_result launch(struct wf_copier *copier, int flight, const struct wf_device_pages *pages)
{
	uint32_t *to_index = copier->lists + (size_t)flight * 2 * WF_DEVICE_LISTED, blocks = blocks_for(copier, pages);
	uint32_t *from_index = to_index + WF_DEVICE_LISTED, cuts = 1, items;
	uint64_t to = (uintptr_t)pages->to, from = (uintptr_t)pages->from, first = pages->first, cut_bytes, most;
	uint64_t to_list = 0, from_list = 0, to_stride = pages->to_stride, from_stride = pages->from_stride;
	uint64_t page_bytes = pages->page_bytes;
	void *parameters[] = { &to,         &from,      &to_list, &from_list, &to_stride, &from_stride,
			       &page_bytes, &cut_bytes, &first,   &cuts,      &items };

	most = page_bytes / CUT_LEAST;
	if (pages->count < blocks && most > 1)
		cuts = (uint32_t)(blocks / pages->count < most ? (blocks + pages->count - 1) / pages->count : most);
	cut_bytes = ((page_bytes + cuts - 1) / cuts + 15) & ~UINT64_C(15);
	items = cuts * (uint32_t)pages->count;
	if (pages->to_index) {
		memcpy(to_index, pages->to_index + first, pages->count * sizeof(*to_index));
		to_list = (uintptr_t)to_index;
	}
	if (pages->from_index) {
		memcpy(from_index, pages->from_index + first, pages->count * sizeof(*from_index));
		from_list = (uintptr_t)from_index;
	}
	return copier->card->devices->cuda.launch(kernel_for(copier->card, pages), items < blocks ? items : blocks, 1,
						  1, THREADS, 1, 1, 0, copier->stream, parameters, NULL);
}

int wf_copier_pages(struct wf_copier *copier, int flight, const struct wf_device_pages *pages)
{
	int error = enter(copier);
	bool listed = copier->lists && !pages->by_copies && pages->count <= WF_DEVICE_LISTED;

	if (error)
		return error;
	if (pages->count)
		error = failed(copier, listed ? launch(copier, flight, pages) : copy_each(copier, pages));
	wf_card_leave(copier->card);
	return error;
}

/* ---- ends ---- */

int wf_copier_launch(struct wf_copier *copier, int flight)
{
	int error = enter(copier);

	if (error)
		return error;
	error = failed(copier, copier->card->devices->cuda.event_record(copier->event[flight], copier->stream));
	wf_card_leave(copier->card);
	return error;
}

int wf_copier_look(struct wf_copier *copier, int flight)
{
	int error = enter(copier);

	if (error)
		return error;
	error = failed(copier, copier->card->devices->cuda.event_query(copier->event[flight]));
	wf_card_leave(copier->card);
	return error;
}

/* ---- chunks ---- */

bool wf_card_has_chunks(const struct wf_card *card)
{
	return card->chunks;
}

void *wf_card_chunks(const struct wf_card *card, uint64_t *ret_bytes)
{
	*ret_bytes = (uint64_t)WF_DEVICE_CHUNKS * WF_DEVICE_CHUNK;
	return card->chunks;
}

void *wf_card_pin(struct wf_card *card, uint64_t bytes)
{
	void *memory = NULL;

	if (wf_card_enter(card))
		return NULL;
	if (card->devices->cuda.host_alloc(&memory, bytes, CU_HOST_PORTABLE))
		memory = NULL;
	wf_card_leave(card);
	return memory;
}

void wf_card_unpin(struct wf_card *card, void *memory)
{
	if (!memory || atomic_load(&card->abandoned) || wf_card_enter(card))
		return;
	card->devices->cuda.host_free(memory);
	wf_card_leave(card);
}

void *wf_card_chunk_take(struct wf_card *card)
{
	uint32_t taken = atomic_load_explicit(&card->chunks_taken, memory_order_relaxed), at;

	if (!card->chunks)
		return NULL;
	do {
		at = (uint32_t)__builtin_ctz(~taken);
		if (taken == (1u << WF_DEVICE_CHUNKS) - 1)
			return NULL;
	} while (!atomic_compare_exchange_weak_explicit(&card->chunks_taken, &taken, taken | 1u << at,
							memory_order_acquire, memory_order_relaxed));
	return card->chunks + (size_t)at * WF_DEVICE_CHUNK;
}

void wf_card_chunk_give(struct wf_card *card, void *chunk)
{
	uint32_t at = (uint32_t)((size_t)((char *)chunk - card->chunks) / WF_DEVICE_CHUNK);

	atomic_fetch_and_explicit(&card->chunks_taken, ~(1u << at), memory_order_release);
}
