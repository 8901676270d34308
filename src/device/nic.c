/*
 * What NICs that reach a card by themselves need of its driver: the context while memory is registered, a descriptor of the memory,
 * and a flush of what they wrote before anybody is told of it. Any thread.
 */
#include "device/cuda.h"

#include <errno.h>
#include <unistd.h>

bool wf_devices_here(void)
{
	return wf_cuda_is_here();
}

int wf_device_descriptor(const struct wf_device_memory *memory, int *ret_fd, uint64_t *ret_base)
{
	const struct wf_cuda *cuda = &memory->devices->cuda;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = memory->base & ~(page - 1);
	uint64_t end = (memory->base + memory->bytes + page - 1) & ~(page - 1);
	cu_result result;
	int fd = -1;

	if (!memory->dmabuf || !cuda->range_handle)
		return -EOPNOTSUPP;
	result = cuda->range_handle(&fd, first, end - first, CU_RANGE_DMABUF, 0);
	if (result)
		return wf_cuda_errno(result);
	*ret_fd = fd;
	*ret_base = first;
	return 0;
}

void wf_card_hears_nics(struct wf_card *card, bool hears)
{
	struct wf_devices *devices = card->devices;

	if (!card->needs_flush)
		return;
	if (!hears) {
		atomic_fetch_sub(&card->heard, 1);
		return;
	}
	atomic_fetch_add(&card->heard, 1);
	/* Release: who sees the bit sees the card in its place, which never changes. */
	atomic_fetch_or_explicit(&devices->flushed, UINT64_C(1) << card->ordinal, memory_order_release);
}

static int flush_card(struct wf_card *card)
{
	int error = wf_card_enter(card);
	cu_result result = CU_SUCCESS;

	if (!error) {
		result = card->devices->cuda.flush(CU_FLUSH_CURRENT, CU_FLUSH_TO_OWNER);
		wf_card_leave(card);
	}
	if (!error && !result)
		return 0;
	if (!atomic_exchange(&card->flush_failed, true)) /* once: it goes on failing */
		wf_device_log(card->devices, WEFT_LOG_ERROR, "making what NICs wrote visible to the card", result);
	return -EIO;
}

int wf_devices_flush(struct wf_devices *devices)
{
	uint64_t cards = atomic_load_explicit(&devices->flushed, memory_order_acquire);
	int error = 0;

	for (; cards; cards &= cards - 1) {
		struct wf_card *card = devices->card[__builtin_ctzll(cards)];

		if (atomic_load(&card->heard) && flush_card(card))
			error = -EIO;
	}
	return error;
}
