/* Memory on an NVIDIA card. One thread; what is taken stays until the process ends. */
#include "card.h"

#include "common.h"

#include <dlfcn.h>

/* What cuda.h would declare. A result of 0 is success; an address on the card is as wide as a pointer. */
static struct {
	int (*init)(unsigned flags);
	int (*device)(int *ret_device, int ordinal);
	int (*retain)(void **ret_context, int device);
	int (*use)(void *context);
	int (*wait)(void);
	int (*alloc)(uintptr_t *ret_address, size_t bytes);
	int (*to_card)(uintptr_t to, const void *from, size_t bytes);
	int (*to_host)(void *to, uintptr_t from, size_t bytes);
	int (*text)(int result, const char **ret_text);
} cuda;

static void must(int result, const char *what)
{
	const char *text = NULL;

	if (result && cuda.text(result, &text))
		text = NULL;
	if (result)
		die("the card: %s: %s", what, text ? text : "an error without a name");
}

void card_open(void)
{
	static const char *const names[] = { "cuInit",          "cuDeviceGet",      "cuDevicePrimaryCtxRetain",
					     "cuCtxSetCurrent", "cuCtxSynchronize", "cuMemAlloc_v2",
					     "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2",  "cuGetErrorString" };
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *context;
	int device;

	if (!library)
		die("no card here: %s", dlerror());
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		void *found = dlsym(library, names[i]);

		if (!found)
			die("the card: libcuda.so.1 has no %s", names[i]);
		memcpy((char *)&cuda + i * sizeof(found), &found, sizeof(found)); /* in the order of the struct */
	}
	must(cuda.init(0), "cuInit");
	must(cuda.device(&device, 0), "cuDeviceGet");
	must(cuda.retain(&context, device), "cuDevicePrimaryCtxRetain");
	must(cuda.use(context), "cuCtxSetCurrent");
}

void *card_take(size_t bytes)
{
	uintptr_t address;

	must(cuda.alloc(&address, bytes), "cuMemAlloc");
	return (void *)address;
}

/* A NIC does not wait for the card's own work, so both return when the bytes are in place. */
void card_put(void *card, const void *host, size_t bytes)
{
	must(cuda.to_card((uintptr_t)card, host, bytes), "cuMemcpyHtoD");
	must(cuda.wait(), "cuCtxSynchronize");
}

void card_get(void *host, const void *card, size_t bytes)
{
	must(cuda.to_host(host, (uintptr_t)card, bytes), "cuMemcpyDtoH");
	must(cuda.wait(), "cuCtxSynchronize");
}
