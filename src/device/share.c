/*
 * A card's memory between processes of one host: handed over by a handle of 64 bytes (memory of cuMemAlloc) or by descriptors (of
 * cuMemCreate, one per allocation, laid side by side again where they are opened). Opening and closing may start a driver, create a
 * context or wait for the card, so each is done by a thread of its own, and a worker only looks how far that is. What is opened
 * comes from another process: its size is asked of the driver.
 */
#include "device/cuda.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PART_MOST (UINT64_C(1) << 46)

struct wf_device_opened {
	struct wf_devices *devices;
	struct wf_card *card;
	_Atomic int status;       /* -EINPROGRESS until the rest is set: release and acquire */
	_Atomic uint32_t holders; /* its user, and the thread that opens it: the last one closes it */
	bool here;                /* memory of this process */
	char *at;
	cu_pointer mapped; /* 0: nothing is */
	uint64_t reserved; /* FILE: its length */
	uint32_t laid;     /* FILE: parts laid out */
	struct wf_device_offer offer;
};

/* ---- handing over ---- */

int wf_device_export(const struct wf_device_memory *memory, uint32_t part, uint8_t ret_handle[WF_DEVICE_HANDLE],
		     int *ret_fd)
{
	const struct wf_cuda *cuda = &memory->devices->cuda;
	const struct wf_device_part *it = &memory->part[part];
	cu_handle allocation;
	cu_result result;
	int fd = -1, error;

	*ret_fd = -1;
	memset(ret_handle, 0, WF_DEVICE_HANDLE);
	if (part >= memory->count || it->way == WF_WAY_NONE)
		return -EOPNOTSUPP;
	if (it->way == WF_WAY_IPC) {
		memcpy(ret_handle, it->handle, WF_DEVICE_HANDLE);
		return 0;
	}
	error = wf_card_enter(memory->card);
	if (error)
		return error;
	result = cuda->handle_retain(&allocation, (void *)(uintptr_t)it->base);
	if (!result) {
		result = cuda->handle_export(&fd, allocation, CU_HANDLE_FILE, 0);
		cuda->handle_release(allocation);
	}
	wf_card_leave(memory->card);
	if (!result)
		*ret_fd = fd;
	return wf_cuda_errno(result);
}

/* ---- mapping ---- */

static void close_files(struct wf_device_offer *offer)
{
	for (uint32_t i = 0; i < offer->count; i++)
		if (offer->part[i].fd >= 0) {
			close(offer->part[i].fd);
			offer->part[i].fd = -1;
		}
}

/* In the card's context, for this and the next three. */
static int open_handle(struct wf_device_opened *opened)
{
	const struct wf_cuda *cuda = &opened->devices->cuda;
	cu_pointer base = 0;
	struct cu_ipc handle;
	size_t bytes = 0;
	int error;

	memcpy(handle.bytes, opened->offer.part[0].handle, sizeof(handle.bytes));
	error = wf_cuda_errno(cuda->ipc_open(&opened->mapped, handle, CU_IPC_LAZY_PEER));
	if (error) {
		opened->mapped = 0;
		return error;
	}
	error = wf_cuda_errno(cuda->address_range(&base, &bytes, opened->mapped));
	if (!error && (base != opened->mapped || opened->offer.offset > bytes ||
		       opened->offer.bytes > bytes - opened->offer.offset))
		error = -EPROTO; /* its owner says that it is longer than it is */
	return error;
}

static cu_result lay(struct wf_device_opened *opened, uint32_t part, uint64_t at)
{
	const struct wf_cuda *cuda = &opened->devices->cuda;
	cu_handle allocation;
	cu_result result =
	    cuda->handle_import(&allocation, (void *)(intptr_t)opened->offer.part[part].fd, CU_HANDLE_FILE);

	if (result)
		return result;
	result = cuda->map(opened->mapped + at, opened->offer.part[part].bytes, 0, allocation, 0);
	cuda->handle_release(allocation); /* the mapping holds it */
	return result;
}

static int open_files(struct wf_device_opened *opened)
{
	const struct wf_cuda *cuda = &opened->devices->cuda;
	struct cu_access access = { { CU_LOCATION_DEVICE, opened->card->device }, CU_ACCESS_READWRITE };
	uint64_t at = 0;
	cu_result result;

	for (uint32_t i = 0; i < opened->offer.count; i++)
		opened->reserved += opened->offer.part[i].bytes;
	result = cuda->address_reserve(&opened->mapped, opened->reserved, 0, 0, 0);
	if (result) {
		opened->mapped = 0;
		return wf_cuda_errno(result);
	}
	for (uint32_t i = 0; i < opened->offer.count && !result; i++) {
		result = lay(opened, i, at);
		opened->laid += !result;
		at += opened->offer.part[i].bytes;
	}
	if (!result)
		result = cuda->set_access(opened->mapped, opened->reserved, &access, 1);
	return wf_cuda_errno(result);
}

static void unmap(struct wf_device_opened *opened)
{
	const struct wf_cuda *cuda = &opened->devices->cuda;
	uint64_t at = opened->mapped;

	if (opened->offer.way == WF_WAY_IPC) {
		cuda->ipc_close(opened->mapped);
		return;
	}
	for (uint32_t i = 0; i < opened->laid; at += opened->offer.part[i++].bytes)
		cuda->unmap(at, opened->offer.part[i].bytes);
	cuda->address_free(opened->mapped, opened->reserved);
}

static void release(struct wf_device_opened *opened)
{
	struct wf_devices *devices = opened->devices;

	if (opened->mapped && !wf_card_enter(opened->card)) {
		unmap(opened);
		wf_card_leave(opened->card);
	}
	close_files(&opened->offer);
	atomic_fetch_sub(&devices->opened, 1);
	free(opened);
	wf_devices_put(devices);
}

/* ---- threads ---- */

static int begin_thread(void *(*run)(void *opened), void *opened)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int error;

	sigfillset(&all); /* signals are the application's */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	error = pthread_create(&thread, &attributes, run, opened);
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error ? -ENOMEM : 0;
}

static void *release_beside(void *opened)
{
	release(opened);
	return NULL;
}

static int open_it(struct wf_device_opened *opened)
{
	int error = wf_cuda_start(opened->devices);

	if (!error)
		error = wf_card_find_uuid(opened->devices, opened->offer.uuid, &opened->card);
	if (error || opened->here)
		return error;
	error = wf_card_enter(opened->card);
	if (error)
		return error;
	error = opened->offer.way == WF_WAY_IPC ? open_handle(opened) : open_files(opened);
	wf_card_leave(opened->card);
	if (!error)
		opened->at = (char *)(uintptr_t)opened->mapped + opened->offer.offset;
	return error;
}

static void *open_beside(void *context)
{
	struct wf_device_opened *opened = context;
	int error = open_it(opened);

	close_files(&opened->offer);
	/* Release: pairs with wf_device_look(). */
	atomic_store_explicit(&opened->status, error == -EAGAIN || error == -EINPROGRESS ? -EIO : error,
			      memory_order_release);
	if (atomic_fetch_sub(&opened->holders, 1) == 1)
		release(opened);
	return NULL;
}

/* ---- opening ---- */

static bool is_whole(const struct wf_device_offer *offer)
{
	uint64_t total = 0;

	if (!offer->count || offer->count > WF_DEVICE_PARTS || !offer->bytes)
		return false;
	for (uint32_t i = 0; i < offer->count; i++) {
		if (!offer->part[i].bytes || offer->part[i].bytes > PART_MOST)
			return false;
		total += offer->part[i].bytes;
	}
	if (offer->way == WF_WAY_IPC ? offer->count != 1 : offer->way != WF_WAY_FILE)
		return false;
	return offer->offset <= total && offer->bytes <= total - offer->offset;
}

static int begin(struct wf_devices *devices, const struct wf_device_offer *offer, void *here,
		 struct wf_device_opened **ret_opened)
{
	struct wf_device_opened *opened = calloc(1, sizeof(*opened));
	struct wf_device_offer files = *offer;
	int error = -ENOMEM;

	if (opened) {
		opened->devices = devices;
		opened->offer = *offer;
		opened->here = here;
		opened->at = here;
		atomic_store(&opened->status, -EINPROGRESS);
		atomic_store(&opened->holders, 2);
		wf_devices_hold(devices);
		atomic_fetch_add(&devices->opened, 1);
		error = begin_thread(open_beside, opened);
	}
	if (error && opened)
		release(opened);
	else if (error)
		close_files(&files);
	if (!error)
		*ret_opened = opened;
	return error;
}

int wf_device_open(struct wf_devices *devices, const struct wf_device_offer *offer,
		   struct wf_device_opened **ret_opened)
{
	struct wf_device_offer files = *offer;

	if (is_whole(offer))
		return begin(devices, offer, NULL, ret_opened);
	files.count = files.count < WF_DEVICE_PARTS ? files.count : WF_DEVICE_PARTS;
	close_files(&files);
	return -EPROTO;
}

int wf_device_open_here(struct wf_devices *devices, const struct wf_device_offer *offer, void *at,
			struct wf_device_opened **ret_opened)
{
	struct wf_device_offer files = *offer;

	close_files(&files);
	files.count = 0;
	return begin(devices, &files, at, ret_opened);
}

int wf_device_look(const struct wf_device_opened *opened, void **ret_at, struct wf_card **ret_card)
{
	/* Acquire: pairs with open_beside(). */
	int status =
	    atomic_load_explicit(&((struct wf_device_opened *)(uintptr_t)opened)->status, memory_order_acquire);

	if (!status) {
		*ret_at = opened->at;
		*ret_card = opened->card;
	}
	return status;
}

void wf_device_shut(struct wf_device_opened *opened)
{
	if (!opened || atomic_fetch_sub(&opened->holders, 1) != 1)
		return; /* the thread that opens it closes it */
	if (!opened->mapped || begin_thread(release_beside, opened))
		release(opened);
}
