/*
 * Memory of cards (GPUs): what a NIC's DMA does to it is a copy by the card's driver, which is opened when the first region of a
 * card is registered or reached; its few types are declared by hand. A writer opens the peer's memory by CUDA IPC, so only whole
 * allocations of cuMemAlloc can be registered; for others registering fails as with a NIC that cannot reach the card. What goes
 * between a card and a CPU's memory passes through a pinned buffer. Every copy is over when card_move() returns. Any thread.
 */
#include "prov.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DEVICES 16
#define OPENED  64
#define BOUNCE  (256u << 10)

typedef struct handle {
	uint8_t bytes[WIRE_CARD_HANDLE];
} cu_handle;

/* name in the library, ours, parameters: those of 11.2 */
#define FUNCTIONS(X)                                                                                                   \
	X(cuInit, init, (unsigned))                                                                                    \
	X(cuDeviceGetCount, count, (int *))                                                                            \
	X(cuDeviceGet, get, (int *, int))                                                                              \
	X(cuDeviceGetUuid, uuid, (void *, int))                                                                        \
	X(cuDevicePrimaryCtxRetain, retain, (void **, int))                                                            \
	X(cuDevicePrimaryCtxRelease_v2, release, (int))                                                                \
	X(cuCtxPushCurrent_v2, push, (void *))                                                                         \
	X(cuCtxPopCurrent_v2, pop, (void **))                                                                          \
	X(cuPointerGetAttribute, attribute, (void *, int, uint64_t))                                                   \
	X(cuMemGetAddressRange_v2, range, (uint64_t *, size_t *, uint64_t))                                            \
	X(cuIpcGetMemHandle, ipc_get, (cu_handle *, uint64_t))                                                         \
	X(cuIpcOpenMemHandle_v2, ipc_open, (uint64_t *, cu_handle, unsigned))                                          \
	X(cuIpcCloseMemHandle, ipc_close, (uint64_t))                                                                  \
	X(cuMemHostAlloc, host_alloc, (void **, size_t, unsigned))                                                     \
	X(cuMemFreeHost, host_free, (void *))                                                                          \
	X(cuStreamCreate, stream_create, (void **, unsigned))                                                          \
	X(cuStreamDestroy_v2, stream_destroy, (void *))                                                                \
	X(cuStreamSynchronize, synchronize, (void *))                                                                  \
	X(cuMemcpyAsync, copy, (uint64_t, uint64_t, size_t, void *))

enum { CU_ORDINAL = 9, CU_MEMORY_TYPE = 2, CU_DEVICE = 2, CU_NON_BLOCKING = 1, CU_PORTABLE = 1, CU_LAZY_PEER = 1 };

struct device {
	uint8_t uuid[WIRE_CARD_UUID];
	void *context, *stream, *bounce; /* context NULL: not used yet */
};

struct opened {
	uint64_t at; /* 0: free */
	int device;
	uint8_t handle[WIRE_CARD_HANDLE];
};

static struct {
	pthread_mutex_t lock;
	void *library;
	bool failed;
#define FIELD(name, field, parameters) int(*field) parameters;
	FUNCTIONS(FIELD)
#undef FIELD
	int devices;
	struct device device[DEVICES];
	struct opened opened[OPENED];
	uint32_t next; /* of opened: which gives way */
	uint32_t users;
} driver = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- the driver, under its lock ---- */

static bool look_up(void)
{
	bool all = true;

#define LOOK_UP(name, field, parameters)                                                                               \
	driver.field = (int(*) parameters)dlsym(driver.library, #name);                                                \
	all &= driver.field != NULL;
	FUNCTIONS(LOOK_UP)
#undef LOOK_UP
	return all;
}

static bool start(void)
{
	if (driver.library || driver.failed)
		return !driver.failed;
	driver.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	driver.failed = !driver.library || !look_up() || driver.init(0) || driver.count(&driver.devices);
	if (driver.failed)
		sim_log("memory of cards cannot be reached: there is no driver that works");
	if (driver.devices > DEVICES)
		driver.devices = DEVICES;
	for (int i = 0; i < driver.devices; i++)
		driver.uuid(driver.device[i].uuid, i);
	return !driver.failed;
}

/* Leaves the device's context current. False: it cannot be used. */
static bool enter(int number)
{
	struct device *device = &driver.device[number];
	bool fresh = !device->context;

	if (fresh && driver.retain(&device->context, number)) {
		device->context = NULL;
		return false;
	}
	if (driver.push(device->context))
		return false;
	if (!fresh)
		return true;
	if (!driver.stream_create(&device->stream, CU_NON_BLOCKING)) {
		if (!driver.host_alloc(&device->bounce, BOUNCE, CU_PORTABLE))
			return true;
		driver.stream_destroy(device->stream);
	}
	driver.pop(&device->context);
	driver.release(number);
	device->context = NULL;
	return false;
}

static void leave(void)
{
	void *ours;

	driver.pop(&ours);
}

static void close_opened(struct opened *opened)
{
	if (opened->at && enter(opened->device)) {
		driver.ipc_close(opened->at);
		leave();
	}
	opened->at = 0;
}

static void stop(void)
{
	for (int i = 0; i < OPENED; i++)
		close_opened(&driver.opened[i]);
	for (int i = 0; i < driver.devices; i++) {
		struct device *device = &driver.device[i];

		if (!device->context || !enter(i))
			continue;
		driver.host_free(device->bounce);
		driver.stream_destroy(device->stream);
		leave();
		driver.release(i);
		device->context = NULL;
	}
}

/* What a domain uses of it is given back when the last such domain closes. */
static bool join(struct domain *dom)
{
	if (!start())
		return false;
	driver.users += !dom->uses_cards;
	dom->uses_cards = true;
	return true;
}

void card_leave(struct domain *dom)
{
	if (!dom->uses_cards)
		return;
	pthread_mutex_lock(&driver.lock);
	if (!--driver.users)
		stop();
	pthread_mutex_unlock(&driver.lock);
}

/* ---- registering ---- */

static int describe(uint64_t base, uint64_t bytes, struct wire_card *card)
{
	uint64_t at = 0;
	uint32_t type = 0;
	int number = 0;
	size_t length = 0;
	cu_handle handle;

	if (driver.attribute(&type, CU_MEMORY_TYPE, base) || type != CU_DEVICE ||
	    driver.attribute(&number, CU_ORDINAL, base) || number < 0 || number >= driver.devices || !enter(number))
		return -FI_EINVAL;
	if (driver.range(&at, &length, base) || base - at > length || bytes > length - (base - at) ||
	    driver.ipc_get(&handle, at)) {
		leave();
		return -FI_EOPNOTSUPP;
	}
	leave();
	card->base = at;
	memcpy(card->handle, handle.bytes, sizeof card->handle);
	memcpy(card->uuid, driver.device[number].uuid, sizeof card->uuid);
	return 0;
}

int card_register(struct domain *dom, uint64_t base, uint64_t bytes, uint32_t *ret_number)
{
	struct wire_card card;
	int rc = -FI_ENOMEM;

	pthread_mutex_lock(&driver.lock);
	if (!join(dom))
		rc = -FI_ENOSYS;
	else
		rc = describe(base, bytes, &card);
	pthread_mutex_unlock(&driver.lock);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < WIRE_CARDS; i++)
		if (!dom->card_taken[i]) {
			dom->card_taken[i] = true;
			dom->wire->card[i] = card; /* before its key is released, after the last one was retired */
			*ret_number = i;
			return 0;
		}
	return -FI_ENOMEM;
}

void card_unregister(struct domain *dom, uint32_t number)
{
	dom->card_taken[number] = false;
}

/* ---- moving, under the lock ---- */

static int device_of(const uint8_t *uuid)
{
	for (int i = 0; i < driver.devices; i++)
		if (!memcmp(driver.device[i].uuid, uuid, WIRE_CARD_UUID))
			return i;
	return -1;
}

/* Where the peer's allocation is mapped here; 0: it cannot be. The one that was opened longest ago gives way. */
static uint64_t open_far(const struct wire_card *card, int device)
{
	struct opened *opened;
	cu_handle handle;

	for (int i = 0; i < OPENED; i++)
		if (driver.opened[i].at && !memcmp(driver.opened[i].handle, card->handle, sizeof card->handle))
			return driver.opened[i].at;
	opened = &driver.opened[driver.next++ % OPENED];
	close_opened(opened);
	memcpy(handle.bytes, card->handle, sizeof handle.bytes);
	if (!enter(device))
		return 0;
	if (driver.ipc_open(&opened->at, handle, CU_LAZY_PEER))
		opened->at = 0;
	leave();
	opened->device = device;
	memcpy(opened->handle, card->handle, sizeof opened->handle);
	return opened->at;
}

/* One end of a copy: a card's address, an address here, or one of a process. */
struct end {
	int device; /* -1: a CPU's */
	pid_t pid;  /* 0: this process */
	uint64_t at;
};

static int copy_host(const struct end *end, void *bounce, size_t bytes, bool into_bounce)
{
	struct iovec here = { bounce, bytes }, there = { (void *)(uintptr_t)end->at, bytes };
	ssize_t n;

	if (!end->pid) {
		memcpy(into_bounce ? bounce : there.iov_base, into_bounce ? there.iov_base : bounce, bytes);
		return 0;
	}
	n = into_bounce ? process_vm_readv(end->pid, &here, 1, &there, 1, 0)
			: process_vm_writev(end->pid, &here, 1, &there, 1, 0);
	return n == (ssize_t)bytes ? 0 : n < 0 && errno == ESRCH ? EFA_UNRESPONSIVE : EFA_BAD_ADDRESS;
}

static int copy_card(uint64_t to, uint64_t from, size_t bytes, const struct device *device)
{
	return driver.copy(to, from, bytes, device->stream) || driver.synchronize(device->stream) ? EFA_BAD_ADDRESS : 0;
}

/* At most BOUNCE bytes unless both are cards'. */
static int copy(const struct end *to, const struct end *from, size_t bytes)
{
	int number = to->device >= 0 ? to->device : from->device, status;
	const struct device *device = &driver.device[number];
	uint64_t bounce;

	if (!enter(number))
		return EFA_BAD_ADDRESS;
	bounce = (uint64_t)(uintptr_t)device->bounce;
	if (to->device >= 0 && from->device >= 0) {
		status = copy_card(to->at, from->at, bytes, device);
	} else if (to->device >= 0) {
		status = copy_host(from, device->bounce, bytes, true);
		status = status ? status : copy_card(to->at, bounce, bytes, device);
	} else {
		status = copy_card(bounce, from->at, bytes, device);
		status = status ? status : copy_host(to, device->bounce, bytes, false);
	}
	leave();
	return status;
}

/* The card that an address of ours belongs to. */
static int near_device(uint64_t address)
{
	int number = -1;

	return driver.attribute(&number, CU_ORDINAL, address) || number >= driver.devices ? -1 : number;
}

static int find_far(const struct card_move *move, struct end *far)
{
	uint64_t mapped;

	*far = (struct end){ -1, move->peer->local ? 0 : move->peer->address.pid, move->far };
	if (!move->card)
		return 0;
	far->device = device_of(move->card->uuid);
	if (far->device < 0)
		return EFA_BAD_ADDRESS;
	far->pid = 0;
	if (move->peer->local)
		return 0;
	mapped = open_far(move->card, far->device);
	far->at = mapped + (move->far - move->card->base);
	return mapped ? 0 : EFA_BAD_ADDRESS;
}

static int move_all(const struct card_move *move)
{
	struct end far;
	int status = find_far(move, &far);

	for (size_t i = 0; i < move->count && !status; i++) {
		struct end near = { -1, 0, (uint64_t)(uintptr_t)move->near[i].iov_base };
		size_t left = move->near[i].iov_len, n;

		if (move->near_card[i] && (near.device = near_device(near.at)) < 0)
			return EFA_BAD_ADDRESS; /* it was freed */
		if (near.device < 0 && far.device < 0)
			return EFA_BAD_ADDRESS; /* ranges of both kinds in one request */
		for (; left && !status; left -= n, near.at += n, far.at += n) {
			n = left < BOUNCE || (near.device >= 0 && far.device >= 0) ? left : BOUNCE;
			status = move->outward ? copy(&far, &near, n) : copy(&near, &far, n);
		}
	}
	return status;
}

int card_move(struct domain *dom, const struct card_move *move)
{
	int status = EFA_BAD_ADDRESS;

	pthread_mutex_lock(&driver.lock);
	if (join(dom))
		status = move_all(move);
	pthread_mutex_unlock(&driver.lock);
	return status;
}
