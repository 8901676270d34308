/*
 * The driver: loaded when a card's memory is first met, and cards made ready at their first use: the primary context retained, the
 * page kernel loaded, chunks pinned. All that takes long, so it is done by threads that register or open memory, never by a worker.
 */
#include "device/cuda.h"
#include "base/time.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIBRARY       "libcuda.so.1"
#define CHUNKS_BYTES  ((size_t)WF_DEVICE_CHUNKS * WF_DEVICE_CHUNK)
#define CLOSE_WAIT_NS ((uint64_t)WF_DEVICE_NOT_CLOSED * WF_S)

/* ---- one engine's view ---- */

struct wf_devices *wf_devices_make(const struct wf_log *log)
{
	struct wf_devices *devices = calloc(1, sizeof(*devices));
	pthread_condattr_t clock;

	if (!devices)
		return NULL;
	devices->log = log;
	atomic_store(&devices->status, -EAGAIN);
	atomic_store(&devices->holders, 1);
	pthread_mutex_init(&devices->lock, NULL);
	pthread_mutex_init(&devices->making, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&devices->fewer, &clock);
	pthread_condattr_destroy(&clock);
	return devices;
}

void wf_devices_set_share(struct wf_devices *devices, uint32_t percent)
{
	atomic_store_explicit(&devices->share, percent, memory_order_relaxed);
}

uint32_t wf_devices_opened(struct wf_devices *devices)
{
	return atomic_load(&devices->opened);
}

void wf_devices_hold(struct wf_devices *devices)
{
	atomic_fetch_add(&devices->holders, 1);
}

static void free_card(struct wf_card *card)
{
	const struct wf_cuda *cuda = &card->devices->cuda;

	if (atomic_load(&card->abandoned))
		return; /* its copiers keep it */
	if (!wf_card_enter(card)) {
		if (card->module)
			cuda->module_unload(card->module);
		if (card->chunks)
			cuda->host_free(card->chunks);
		wf_card_leave(card);
	}
	cuda->primary_release(card->device);
	free(card);
}

/* The library stays loaded: drivers have threads of their own. */
static void free_devices(struct wf_devices *devices)
{
	for (int i = 0; i < WF_CARDS_MOST; i++)
		if (devices->card[i])
			free_card(devices->card[i]);
	pthread_mutex_destroy(&devices->lock);
	pthread_mutex_destroy(&devices->making);
	pthread_cond_destroy(&devices->fewer);
	free(devices);
}

void wf_devices_put(struct wf_devices *devices)
{
	bool last;

	/* Under the lock, so that nobody frees it between the count and the signal. */
	pthread_mutex_lock(&devices->lock);
	last = atomic_fetch_sub(&devices->holders, 1) == 1;
	pthread_cond_broadcast(&devices->fewer);
	pthread_mutex_unlock(&devices->lock);
	if (last)
		free_devices(devices);
}

void wf_devices_close(struct wf_devices *devices)
{
	uint64_t until = wf_now_ns() + CLOSE_WAIT_NS;
	struct timespec limit = { .tv_sec = (time_t)(until / WF_S), .tv_nsec = (long)(until % WF_S) };

	if (!devices)
		return;
	pthread_mutex_lock(&devices->lock);
	while (atomic_load(&devices->holders) > 1 && !pthread_cond_timedwait(&devices->fewer, &devices->lock, &limit))
		continue;
	devices->closed = true;
	pthread_mutex_unlock(&devices->lock);
	wf_devices_put(devices);
}

/* Not under the lock. A thread that the driver has held up may outlive the log. */
static __attribute__((format(printf, 3, 4))) void say(struct wf_devices *devices, enum weft_log_level level,
						      const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	pthread_mutex_lock(&devices->lock);
	if (!devices->closed)
		wf_log(devices->log, level, "device memory: %s", text);
	pthread_mutex_unlock(&devices->lock);
}

void wf_device_log(struct wf_devices *devices, enum weft_log_level level, const char *what, cu_result result)
{
	say(devices, level, "%s: %s", what, wf_cuda_name(devices, result));
}

/* ---- the library ---- */

/* An address can only be a card's if the application has got it from the driver, whose library is then in this process: it comes
 * with the kernel's driver and is never linked in. glibc answers from its list of libraries, by their own names, and loads nothing.
 */
bool wf_cuda_is_here(void)
{
	void *library = dlopen(LIBRARY, RTLD_LAZY | RTLD_NOLOAD);

	if (library)
		dlclose(library);
	return library;
}

static int look_up(struct wf_devices *devices)
{
	struct wf_cuda *cuda = &devices->cuda;
	bool all = true;

#define LOOK_UP(name, field, parameters)                                                                               \
	cuda->field = (cu_result(*) parameters)dlsym(devices->library, #name);                                         \
	all &= cuda->field != NULL;
	WF_CUDA_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
	cuda->flush = (cu_result(*)(int, int))dlsym(devices->library, "cuFlushGPUDirectRDMAWrites");
	return all ? 0 : -ENODEV;
}

static int load(struct wf_devices *devices)
{
	devices->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!devices->library) {
		say(devices, WEFT_LOG_INFO, "%s", dlerror());
		return -ENODEV;
	}
	if (look_up(devices)) {
		say(devices, WEFT_LOG_WARN, "the driver is older than CUDA 11.2");
		return -ENODEV;
	}
	return 0;
}

int wf_cuda_load(struct wf_devices *devices)
{
	int status = atomic_load_explicit(&devices->status, memory_order_acquire);

	if (status != -EAGAIN)
		return status; /* the CPU's memory does not wait for who makes a card */
	pthread_mutex_lock(&devices->making);
	status = atomic_load_explicit(&devices->status, memory_order_relaxed);
	if (status == -EAGAIN) {
		status = load(devices);
		atomic_store_explicit(&devices->status, status, memory_order_release);
	}
	pthread_mutex_unlock(&devices->making);
	return status;
}

int wf_cuda_start(struct wf_devices *devices)
{
	int error = wf_cuda_load(devices), count = 0;
	cu_result result;

	if (error)
		return error;
	result = devices->cuda.init(0); /* again and again is fine */
	if (!result)
		result = devices->cuda.device_count(&count);
	if (!result && count)
		return 0;
	wf_device_log(devices, WEFT_LOG_WARN, "starting the driver", result ? result : CU_NO_DEVICE);
	return -ENODEV;
}

int wf_cuda_errno(cu_result result)
{
	switch (result) {
	case CU_SUCCESS:
		return 0;
	case CU_NOT_READY:
		return -EAGAIN;
	case CU_OUT_OF_MEMORY:
		return -ENOMEM;
	case CU_INVALID_VALUE:
		return -EINVAL;
	case CU_NO_DEVICE:
		return -ENODEV;
	case CU_NOT_SUPPORTED:
	case CU_NOT_PERMITTED:
		return -EOPNOTSUPP;
	default:
		return -EIO;
	}
}

const char *wf_cuda_name(const struct wf_devices *devices, cu_result result)
{
	const char *name = NULL;

	return devices->cuda.error_name && !devices->cuda.error_name(result, &name) && name ? name : "unknown error";
}

/* ---- cards ---- */

int wf_card_enter(const struct wf_card *card)
{
	return wf_cuda_errno(card->devices->cuda.context_push(card->context));
}

void wf_card_leave(const struct wf_card *card)
{
	cu_context ours;

	card->devices->cuda.context_pop(&ours);
}

const char *wf_card_pci(const struct wf_card *card)
{
	return card->pci;
}

const uint8_t *wf_card_uuid(const struct wf_card *card)
{
	return card->uuid;
}

int wf_card_ordinal(const struct wf_card *card)
{
	return card->ordinal;
}

void wf_card_abandon(struct wf_card *card)
{
	atomic_store(&card->abandoned, 1);
}

int wf_card_flush(struct wf_card *card)
{
	int error;

	if (!card->needs_flush)
		return 0;
	error = wf_card_enter(card);
	if (error)
		return error;
	error = wf_cuda_errno(card->devices->cuda.flush(CU_FLUSH_CURRENT, CU_FLUSH_TO_OWNER));
	wf_card_leave(card);
	return error;
}

static int attribute(const struct wf_card *card, int which)
{
	int value = 0;

	return card->devices->cuda.device_attribute(&value, which, card->device) ? 0 : value;
}

/* In the card's context. What fails here is done without. */
static void equip(struct wf_card *card)
{
	static const char *const name[] = { "weft_pages_16", "weft_pages_4", "weft_pages_1" };
	const struct wf_cuda *cuda = &card->devices->cuda;
	cu_result result = cuda->module_load(&card->module, wf_pages_ptx);

	for (int i = 0; i < 3 && !result; i++)
		result = cuda->module_function(&card->pages[i], card->module, name[i]);
	if (result) {
		say(card->devices, WEFT_LOG_WARN,
		    "card %s does not load the page kernel (%s): pages are copied one by one", card->pci,
		    wf_cuda_name(card->devices, result));
		if (card->module)
			cuda->module_unload(card->module);
		card->module = NULL;
	}
	result = cuda->host_alloc((void **)&card->chunks, CHUNKS_BYTES, CU_HOST_PORTABLE);
	if (result) {
		say(card->devices, WEFT_LOG_WARN, "no pinned memory for card %s: %s", card->pci,
		    wf_cuda_name(card->devices, result));
		card->chunks = NULL;
	}
}

static void describe(struct wf_card *card)
{
	const struct wf_cuda *cuda = &card->devices->cuda;

	cuda->device_uuid(card->uuid, card->device);
	cuda->device_pci(card->pci, sizeof(card->pci), card->device);
	card->processors = (uint32_t)attribute(card, CU_DEVICE_PROCESSORS);
	card->dmabuf = attribute(card, CU_DEVICE_DMABUF);
	/* What is written by others is in order for the card that owns the memory from CU_ORDERING_OWNER on. */
	card->needs_flush = cuda->flush && attribute(card, CU_DEVICE_FLUSH) & CU_FLUSH_HOST &&
			    attribute(card, CU_DEVICE_ORDERING) < CU_ORDERING_OWNER;
}

/* One at a time. */
static int make_card(struct wf_devices *devices, int ordinal, struct wf_card **ret_card)
{
	struct wf_card *card = calloc(1, sizeof(*card));
	cu_result result;
	int error;

	if (!card)
		return -ENOMEM;
	card->devices = devices;
	card->ordinal = ordinal;
	result = devices->cuda.device_get(&card->device, ordinal);
	if (!result)
		result = devices->cuda.primary_retain(&card->context, card->device);
	if (result) {
		say(devices, WEFT_LOG_WARN, "card %d: %s", ordinal, wf_cuda_name(devices, result));
		free(card);
		return result == CU_OUT_OF_MEMORY ? -ENOMEM : -EIO;
	}
	describe(card);
	error = wf_card_enter(card);
	if (error) {
		free_card(card);
		return error;
	}
	equip(card);
	wf_card_leave(card);
	*ret_card = devices->card[ordinal] = card;
	return 0;
}

int wf_card_find(struct wf_devices *devices, int ordinal, struct wf_card **ret_card)
{
	int error = 0;

	if (ordinal < 0 || ordinal >= WF_CARDS_MOST)
		return -ENODEV;
	pthread_mutex_lock(&devices->making);
	if (devices->card[ordinal])
		*ret_card = devices->card[ordinal];
	else
		error = make_card(devices, ordinal, ret_card);
	pthread_mutex_unlock(&devices->making);
	return error;
}

int wf_card_find_uuid(struct wf_devices *devices, const uint8_t *uuid, struct wf_card **ret_card)
{
	uint8_t here[WF_DEVICE_UUID];
	cu_device device;
	int count = 0;

	devices->cuda.device_count(&count);
	for (int i = 0; i < count && i < WF_CARDS_MOST; i++)
		if (!devices->cuda.device_get(&device, i) && !devices->cuda.device_uuid(here, device) &&
		    !memcmp(here, uuid, sizeof(here)))
			return wf_card_find(devices, i, ret_card);
	return -ENODEV;
}
