/*
 * For tests on machines without a card: the part of NVIDIA's driver library that card.c calls. What it hands out cannot be touched
 * by this process, as a card's memory cannot: the bytes are kept elsewhere, and only the two copies know where. One allocation.
 */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

int cuInit(unsigned flags);
int cuDeviceGet(int *ret_device, int ordinal);
int cuDevicePrimaryCtxRetain(void **ret_context, int device);
int cuCtxSetCurrent(void *context);
int cuCtxSynchronize(void);
int cuMemAlloc_v2(uintptr_t *ret_address, size_t bytes);
int cuMemcpyHtoD_v2(uintptr_t to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, uintptr_t from, size_t bytes);
int cuGetErrorString(int result, const char **ret_text);

enum { OK, NOT_INITIALISED = 3, OUT_OF_MEMORY = 2, BAD_ADDRESS = 1 };

static int initialised, retained, context_in_use;
static char *bytes_of_card, *address_of_card;
static size_t size_of_card;

int cuInit(unsigned flags)
{
	initialised = 1;
	return flags ? BAD_ADDRESS : OK;
}

int cuDeviceGet(int *ret_device, int ordinal)
{
	*ret_device = ordinal + 7;
	return initialised && !ordinal ? OK : NOT_INITIALISED;
}

int cuDevicePrimaryCtxRetain(void **ret_context, int device)
{
	*ret_context = &retained;
	return device == 7 ? OK : NOT_INITIALISED;
}

int cuCtxSetCurrent(void *context)
{
	context_in_use = context == &retained;
	return context_in_use ? OK : NOT_INITIALISED;
}

int cuCtxSynchronize(void)
{
	return context_in_use ? OK : NOT_INITIALISED;
}

int cuMemAlloc_v2(uintptr_t *ret_address, size_t bytes)
{
	if (!context_in_use)
		return NOT_INITIALISED;
	bytes_of_card = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	address_of_card = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_of_card = bytes;
	*ret_address = (uintptr_t)address_of_card;
	return bytes_of_card == MAP_FAILED || address_of_card == MAP_FAILED ? OUT_OF_MEMORY : OK;
}

int cuMemcpyHtoD_v2(uintptr_t to, const void *from, size_t bytes)
{
	if (to != (uintptr_t)address_of_card || bytes > size_of_card)
		return BAD_ADDRESS;
	memcpy(bytes_of_card, from, bytes);
	return OK;
}

int cuMemcpyDtoH_v2(void *to, uintptr_t from, size_t bytes)
{
	if (from != (uintptr_t)address_of_card || bytes > size_of_card)
		return BAD_ADDRESS;
	memcpy(to, bytes_of_card, bytes);
	return OK;
}

int cuGetErrorString(int result, const char **ret_text)
{
	*ret_text = result == BAD_ADDRESS ? "invalid argument" : "not initialised";
	return OK;
}
