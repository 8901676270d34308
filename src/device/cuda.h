/*
 * The part of NVIDIA's driver API that weft uses, declared by hand from its documentation, so that nothing of CUDA is needed to
 * build; and what the files of src/device/ share. No other folder includes it. A second vendor is a second set of these files
 * behind device.h.
 *
 * Functions are looked up by the names of the library's ABI, where _v2 means the present form of a call ("cuMemcpyAsync" never had
 * another; its _ptsz variant differs only for the default stream, which weft does not use). cuGetProcAddress would give the newest
 * form for a version that we name; these forms have been in every libcuda since 11.2, and a name in the symbol table is easier to
 * fake and to read in a stack.
 */
#ifndef WF_DEVICE_CUDA_H
#define WF_DEVICE_CUDA_H

#include "device/device.h"

#include <pthread.h>
#include <stdatomic.h>

typedef int cu_result;
typedef int cu_device;
typedef uint64_t cu_pointer;
typedef struct cu_context_object *cu_context;
typedef struct cu_stream_object *cu_stream;
typedef struct cu_event_object *cu_event;
typedef struct cu_module_object *cu_module;
typedef struct cu_function_object *cu_function;
typedef uint64_t cu_handle; /* CUmemGenericAllocationHandle */
struct cu_ipc {
	uint8_t bytes[WF_DEVICE_HANDLE];
};
struct cu_location {
	int type, id;
};
struct cu_access {
	struct cu_location location;
	int flags;
};

enum {
	CU_SUCCESS = 0,
	CU_INVALID_VALUE = 1,
	CU_OUT_OF_MEMORY = 2,
	CU_NOT_INITIALIZED = 3,
	CU_DEINITIALIZED = 4,
	CU_NO_DEVICE = 100,
	CU_INVALID_CONTEXT = 201,
	CU_NOT_READY = 600,
	CU_NOT_PERMITTED = 800,
	CU_NOT_SUPPORTED = 801,
};
/* CUpointer_attribute */
enum {
	CU_POINTER_CONTEXT = 1,
	CU_POINTER_MEMORY_TYPE = 2,
	CU_POINTER_BUFFER_ID = 7,
	CU_POINTER_IS_MANAGED = 8,
	CU_POINTER_ORDINAL = 9,
	CU_POINTER_LEGACY_IPC = 10,
	CU_POINTER_HANDLE_TYPES = 14,
	CU_POINTER_MEMPOOL = 17,
};
enum { CU_MEMORY_HOST = 1, CU_MEMORY_DEVICE = 2 };
/* CUdevice_attribute */
enum { CU_DEVICE_PROCESSORS = 16, CU_DEVICE_FLUSH = 117, CU_DEVICE_ORDERING = 118, CU_DEVICE_DMABUF = 124 };
enum { CU_FLUSH_HOST = 1, CU_ORDERING_OWNER = 100, CU_FLUSH_TO_OWNER = 100, CU_FLUSH_CURRENT = 0 };
enum { CU_HANDLE_FILE = 1, CU_LOCATION_DEVICE = 1, CU_ACCESS_READWRITE = 3 };
enum { CU_STREAM_NON_BLOCKING = 1, CU_EVENT_DISABLE_TIMING = 2, CU_HOST_PORTABLE = 1, CU_IPC_LAZY_PEER = 1 };

/* result, name in the library, our name, parameters. Those that end with a question mark may be missing from an old driver. */
#define WF_CUDA_FUNCTIONS(X)                                                                                           \
	X(cuInit, init, (unsigned int flags))                                                                          \
	X(cuGetErrorName, error_name, (cu_result error, const char **ret_name))                                        \
	X(cuDeviceGetCount, device_count, (int *ret_count))                                                            \
	X(cuDeviceGet, device_get, (cu_device * ret_device, int ordinal))                                              \
	X(cuDeviceGetUuid, device_uuid, (void *ret_uuid, cu_device device))                                            \
	X(cuDeviceGetPCIBusId, device_pci, (char *ret_text, int bytes, cu_device device))                              \
	X(cuDeviceGetAttribute, device_attribute, (int *ret_value, int attribute, cu_device device))                   \
	X(cuDevicePrimaryCtxRetain, primary_retain, (cu_context * ret_context, cu_device device))                      \
	X(cuDevicePrimaryCtxRelease_v2, primary_release, (cu_device device))                                           \
	X(cuCtxPushCurrent_v2, context_push, (cu_context context))                                                     \
	X(cuCtxPopCurrent_v2, context_pop, (cu_context * ret_context))                                                 \
	X(cuPointerGetAttribute, pointer_attribute, (void *ret_value, int attribute, cu_pointer pointer))              \
	X(cuMemGetAddressRange_v2, address_range, (cu_pointer * ret_base, size_t * ret_bytes, cu_pointer pointer))     \
	X(cuMemcpyAsync, copy, (cu_pointer to, cu_pointer from, size_t bytes, cu_stream stream))                       \
	X(cuMemHostAlloc, host_alloc, (void **ret_memory, size_t bytes, unsigned int flags))                           \
	X(cuMemFreeHost, host_free, (void *memory))                                                                    \
	X(cuStreamCreate, stream_create, (cu_stream * ret_stream, unsigned int flags))                                 \
	X(cuStreamDestroy_v2, stream_destroy, (cu_stream stream))                                                      \
	X(cuEventCreate, event_create, (cu_event * ret_event, unsigned int flags))                                     \
	X(cuEventDestroy_v2, event_destroy, (cu_event event))                                                          \
	X(cuEventRecord, event_record, (cu_event event, cu_stream stream))                                             \
	X(cuEventQuery, event_query, (cu_event event))                                                                 \
	X(cuModuleLoadData, module_load, (cu_module * ret_module, const void *image))                                  \
	X(cuModuleUnload, module_unload, (cu_module module))                                                           \
	X(cuModuleGetFunction, module_function, (cu_function * ret_function, cu_module module, const char *name))      \
	X(cuLaunchKernel, launch,                                                                                      \
	  (cu_function function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,  \
	   unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, cu_stream stream, void **parameters, \
	   void **extra))                                                                                              \
	X(cuIpcGetMemHandle, ipc_get, (struct cu_ipc * ret_handle, cu_pointer pointer))                                \
	X(cuIpcOpenMemHandle_v2, ipc_open, (cu_pointer * ret_pointer, struct cu_ipc handle, unsigned int flags))       \
	X(cuIpcCloseMemHandle, ipc_close, (cu_pointer pointer))                                                        \
	X(cuMemRetainAllocationHandle, handle_retain, (cu_handle * ret_handle, void *address))                         \
	X(cuMemRelease, handle_release, (cu_handle handle))                                                            \
	X(cuMemExportToShareableHandle, handle_export,                                                                 \
	  (void *ret_shareable, cu_handle handle, int type, unsigned long long flags))                                 \
	X(cuMemImportFromShareableHandle, handle_import, (cu_handle * ret_handle, void *shareable, int type))          \
	X(cuMemAddressReserve, address_reserve,                                                                        \
	  (cu_pointer * ret_pointer, size_t bytes, size_t alignment, cu_pointer address, unsigned long long flags))    \
	X(cuMemAddressFree, address_free, (cu_pointer pointer, size_t bytes))                                          \
	X(cuMemMap, map,                                                                                               \
	  (cu_pointer pointer, size_t bytes, size_t offset, cu_handle handle, unsigned long long flags))               \
	X(cuMemUnmap, unmap, (cu_pointer pointer, size_t bytes))                                                       \
	X(cuMemSetAccess, set_access, (cu_pointer pointer, size_t bytes, const struct cu_access *access, size_t count))

struct wf_cuda {
#define WF_CUDA_FIELD(name, field, parameters) cu_result(*field) parameters;
	WF_CUDA_FUNCTIONS(WF_CUDA_FIELD)
#undef WF_CUDA_FIELD
	cu_result (*flush)(int target, int scope); /* cuFlushGPUDirectRDMAWrites, from 11.3 on; may be NULL */
};

#define WF_CARDS_MOST 64

struct wf_card {
	struct wf_devices *devices;
	cu_device device;
	int ordinal;
	cu_context context; /* the primary one, retained */
	uint8_t uuid[WF_DEVICE_UUID];
	char pci[20];
	uint32_t processors;
	bool needs_flush, dmabuf;
	cu_module module;      /* NULL: it does not load; pages are copied one by one */
	cu_function pages[3];  /* by 16, 4 and 1 bytes */
	_Atomic int abandoned; /* copies of it do not end: it is left as it is */
	char *chunks;          /* pinned; NULL: there was no memory */
	_Atomic uint32_t
	    chunks_taken; /* bit i: chunk i is in use. Acquire and release: who takes it sees what was done before */
};

struct wf_devices {
	const struct wf_log *log;
	_Atomic uint32_t holders; /* the engine, and threads that open and close memory; the last one frees it */
	_Atomic uint32_t opened;  /* mappings */
	_Atomic uint32_t share;
	pthread_mutex_t lock;   /* of this and the next two; never held while the driver works */
	pthread_cond_t fewer;   /* holders */
	bool closed;            /* the log is gone */
	pthread_mutex_t making; /* loading, and making cards: a driver may hang in that */
	_Atomic int
	    status; /* of loading; -EAGAIN: not tried yet. Its release pairs with the acquire of who calls the driver */
	void *library;
	struct wf_cuda cuda;
	struct wf_card *card[WF_CARDS_MOST];
};

/* driver.c */
bool wf_cuda_is_here(void);                    /* the driver is in this process: else no address can be a card's */
int wf_cuda_load(struct wf_devices *devices);  /* the library: 0 or -ENODEV, remembered */
int wf_cuda_start(struct wf_devices *devices); /* the driver too: 0; -ENODEV: no card. May take a second */
int wf_cuda_errno(cu_result result);           /* 0 or a negative errno */
const char *wf_cuda_name(const struct wf_devices *devices, cu_result result);
/* The card, made ready at its first use. -ENODEV: there is none; -EIO, -ENOMEM. Waits for who makes one. */
int wf_card_find(struct wf_devices *devices, int ordinal, struct wf_card **ret_card);
int wf_card_find_uuid(struct wf_devices *devices, const uint8_t *uuid, struct wf_card **ret_card);
/* Calls of the driver for a card stand between these two: the caller's own context is left as it was. 0 or a negative errno. */
int wf_card_enter(const struct wf_card *card);
void wf_card_leave(const struct wf_card *card);
void wf_devices_hold(struct wf_devices *devices);
void wf_devices_put(struct wf_devices *devices);
void wf_device_log(struct wf_devices *devices, enum weft_log_level level, const char *what, cu_result result);
/* pages.c: the page kernel */
extern const char wf_pages_ptx[];
#endif
