/* A card's memory through NVIDIA's driver. Its few types are declared here by hand, from its documentation. */
#include "card.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"

typedef int result;
typedef struct context_object *context;
struct ipc_handle {
	char bytes[64];
};
enum { OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101 };
enum { ATTRIBUTE_DIRECT = 116, ATTRIBUTE_DMABUF = 124 };

/* The names of the library's ABI, as in src/device/cuda.h. */
#define FUNCTIONS(X)                                                                                                   \
	X(cuInit, init, (unsigned int flags))                                                                          \
	X(cuGetErrorName, error_name, (result error, const char **ret_name))                                           \
	X(cuDeviceGetCount, count, (int *ret_count))                                                                   \
	X(cuDeviceGet, device, (int *ret_device, int number))                                                          \
	X(cuDeviceGetName, name, (char *ret_text, int bytes, int device))                                              \
	X(cuDeviceGetPCIBusId, pci, (char *ret_text, int bytes, int device))                                           \
	X(cuDeviceGetAttribute, attribute, (int *ret_value, int attribute, int device))                                \
	X(cuDevicePrimaryCtxRetain, retain, (context * ret_context, int device))                                       \
	X(cuDevicePrimaryCtxRelease_v2, release, (int device))                                                         \
	X(cuCtxPushCurrent_v2, push, (context context))                                                                \
	X(cuCtxPopCurrent_v2, pop, (context * ret_context))                                                            \
	X(cuCtxSynchronize, settle, (void))                                                                            \
	X(cuMemGetInfo_v2, room, (size_t * ret_free, size_t * ret_total))                                              \
	X(cuMemAlloc_v2, alloc, (uint64_t * ret_memory, size_t bytes))                                                 \
	X(cuMemFree_v2, free, (uint64_t memory))                                                                       \
	X(cuMemcpyHtoD_v2, put, (uint64_t to, const void *from, size_t bytes))                                         \
	X(cuMemcpyDtoH_v2, get, (void *to, uint64_t from, size_t bytes))                                               \
	X(cuIpcGetMemHandle, ipc_get, (struct ipc_handle * ret_handle, uint64_t memory))

static struct {
	void *library; /* stays loaded: drivers have threads of their own */
#define FIELD(symbol, field, parameters) result(*field) parameters;
	FUNCTIONS(FIELD)
#undef FIELD
} cuda;

struct cmd_card {
	int device;
	context context;
	uint64_t memory;
	uint64_t bytes;
};

static const char *name_of(result error)
{
	const char *name = NULL;

	return cuda.error_name(error, &name) == 0 && name ? name : "an unknown error";
}

static int fail(int error, result failed, const char *what, char *why, size_t room)
{
	snprintf(why, room, "%s: the driver says %s", what, name_of(failed));
	return error;
}

static int load(char *why, size_t room)
{
	bool all = true;

	if (cuda.library)
		return 0;
	cuda.library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!cuda.library) {
		snprintf(
		    why, room,
		    "no NVIDIA driver is here (%.120s): install it, in a container ask for the cards (--gpus all), "
		    "or use --mem host; 'weft doctor' says what is missing",
		    dlerror());
		return -ENODEV;
	}
#define LOOK_UP(symbol, field, parameters)                                                                             \
	cuda.field = (result(*) parameters)dlsym(cuda.library, #symbol);                                               \
	all &= cuda.field != NULL;
	FUNCTIONS(LOOK_UP)
#undef LOOK_UP
	if (all)
		return 0;
	dlclose(cuda.library);
	cuda.library = NULL;
	snprintf(why, room, "the NVIDIA driver here is older than CUDA 11.2: install a newer one");
	return -ENODEV;
}

static int start(int *ret_count, char *why, size_t room)
{
	int error = load(why, room);
	result failed;

	*ret_count = 0;
	if (error)
		return error;
	failed = cuda.init(0); /* again and again is fine */
	if (!failed)
		failed = cuda.count(ret_count);
	if (!failed && *ret_count > 0)
		return 0;
	*ret_count = 0;
	snprintf(why, room,
		 "the NVIDIA driver finds no card (%s): 'nvidia-smi' should list one; in a container ask for the cards "
		 "(--gpus all), and look at CUDA_VISIBLE_DEVICES",
		 failed ? name_of(failed) : "it counts none");
	return -ENODEV;
}

/* The primary context, as torch and others have it. */
static int enter(struct cmd_card *card, char *why, size_t room)
{
	result failed = cuda.push(card->context);

	return failed ? fail(-EIO, failed, "the card cannot be used", why, room) : 0;
}

static void leave(void)
{
	context ours;

	cuda.pop(&ours);
}

int cmd_card_open(uint32_t number, struct cmd_card **ret_card, char *why, size_t room)
{
	struct cmd_card *card;
	int count, error = start(&count, why, room);
	result failed;

	if (error)
		return error;
	if (number >= (uint32_t)count) {
		snprintf(why, room, "there is no card cuda:%u here: the driver shows %d, numbered from 0", number,
			 count);
		return -ENODEV;
	}
	card = calloc(1, sizeof *card);
	if (!card) {
		snprintf(why, room, "out of memory");
		return -ENOMEM;
	}
	failed = cuda.device(&card->device, (int)number);
	if (!failed)
		failed = cuda.retain(&card->context, card->device);
	if (failed) {
		free(card);
		return fail(-EIO, failed, "the card cannot be used", why, room);
	}
	*ret_card = card;
	return 0;
}

void cmd_card_close(struct cmd_card *card)
{
	char why[80];

	if (!card)
		return;
	if (card->memory && enter(card, why, sizeof why) == 0) {
		cuda.free(card->memory);
		leave();
	}
	cuda.release(card->device);
	free(card);
}

int cmd_card_alloc(struct cmd_card *card, uint64_t bytes, void **ret_memory, char *why, size_t room)
{
	int error = enter(card, why, room);
	size_t left = 0, total = 0;
	result failed;

	if (error)
		return error;
	failed = cuda.alloc(&card->memory, bytes);
	if (failed)
		card->memory = 0;
	if (failed == OUT_OF_MEMORY && cuda.room(&left, &total) == 0) {
		snprintf(why, room, "the card has no room for %llu MiB: %zu of its %zu MiB are free",
			 (unsigned long long)bytes >> 20, left >> 20, total >> 20);
		error = -ENOMEM;
	} else if (failed) {
		error = fail(failed == OUT_OF_MEMORY ? -ENOMEM : -EIO, failed, "no memory of the card's", why, room);
	}
	leave();
	*ret_memory = (void *)(uintptr_t)card->memory;
	return error;
}

int cmd_card_put(struct cmd_card *card, void *to, const void *from, uint64_t bytes, char *why, size_t room)
{
	int error = enter(card, why, room);
	result failed;

	if (error)
		return error;
	failed = cuda.put((uintptr_t)to, from, bytes);
	/* The call returns when the bytes have left our memory, which may be before they are in the card's. */
	if (!failed)
		failed = cuda.settle();
	leave();
	return failed ? fail(-EIO, failed, "writing to the card's memory", why, room) : 0;
}

int cmd_card_get(struct cmd_card *card, void *to, const void *from, uint64_t bytes, char *why, size_t room)
{
	int error = enter(card, why, room);
	result failed;

	if (error)
		return error;
	failed = cuda.get(to, (uintptr_t)from, bytes);
	leave();
	return failed ? fail(-EIO, failed, "reading the card's memory", why, room) : 0;
}

/* By trying it: drivers of guests and of old cards have no handles, and say so only then. */
static void try_card(uint32_t number, struct cmd_card_facts *facts)
{
	struct ipc_handle handle;
	struct cmd_card *card;
	void *memory;
	result failed;

	if (cmd_card_open(number, &card, facts->not_usable, sizeof facts->not_usable) < 0)
		return;
	if (cmd_card_alloc(card, 1 << 20, &memory, facts->not_usable, sizeof facts->not_usable) == 0 &&
	    enter(card, facts->not_usable, sizeof facts->not_usable) == 0) {
		failed = cuda.ipc_get(&handle, card->memory);
		if (failed)
			snprintf(facts->not_local, sizeof facts->not_local, "cuIpcGetMemHandle says %s",
				 name_of(failed));
		leave();
	}
	cmd_card_close(card);
}

static bool has(int device, int attribute)
{
	int value = 0;

	return cuda.attribute(&value, attribute, device) == 0 && value;
}

uint32_t cmd_card_list(struct cmd_card_facts *facts, uint32_t most, char *why, size_t room)
{
	int count, device;

	if (start(&count, why, room) < 0)
		return 0;
	for (uint32_t i = 0; i < (uint32_t)count && i < most; i++) {
		facts[i] = (struct cmd_card_facts){ .name = "?", .pci = "?" };
		if (cuda.device(&device, (int)i))
			continue;
		cuda.name(facts[i].name, sizeof facts[i].name, device);
		cuda.pci(facts[i].pci, sizeof facts[i].pci, device);
		facts[i].direct = has(device, ATTRIBUTE_DIRECT);
		facts[i].dmabuf = has(device, ATTRIBUTE_DMABUF);
		try_card(i, &facts[i]);
	}
	return (uint32_t)count;
}
