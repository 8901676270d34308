/*
 * What tests ask of the fake libcuda beside the driver's own functions. Its cards' memory is out of the CPU's reach (PROT_NONE): who
 * touches it outside the fake's copies crashes. Environment: FAKE_CUDA_CARDS, FAKE_CUDA_BYTES (of a card), FAKE_CUDA_NO_IPC,
 * FAKE_CUDA_NO_MODULE (the page kernel does not load), FAKE_CUDA_ORDERING (of writes by NICs), FAKE_CUDA_NO_PINNED, FAKE_CUDA_NO_DIRECT
 * and FAKE_CUDA_NO_DMABUF (what the card says of NICs), FAKE_CUDA_WRONG (what copies and kernels move lacks its last byte).
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fake_kind {
	FAKE_PLAIN,   /* cuMemAlloc */
	FAKE_POOL,    /* of a pool: no other process gets at it */
	FAKE_VIRTUAL, /* cuMemCreate and cuMemMap: parts of FAKE_PART_BYTES side by side */
	FAKE_MANAGED, /* the CPU may touch it too */
	FAKE_PINNED,  /* the CPU's, known to the driver */
	FAKE_FOREIGN, /* cuMemAlloc in a context that is not the primary one */
};
#define FAKE_PART_BYTES (64u << 10)

/* NULL: the card has no room. The driver is started if it was not. */
void *fake_cuda_alloc(int card, size_t bytes, enum fake_kind kind);
void fake_cuda_free(void *memory); /* waits for copies, as the driver does */
void fake_cuda_write(void *memory, const void *from, size_t bytes);
void fake_cuda_read(const void *memory, void *to, size_t bytes);
bool fake_cuda_controls(
    void); /* false: it is a real card (tests/gpu/real.c), and the next four do nothing, nor is anything counted */
void fake_cuda_hold(bool hold);             /* copies that were asked for wait until it is lifted */
void fake_cuda_slow(uint32_t microseconds); /* each copy takes this much longer */
void fake_cuda_stall(bool stall);           /* who makes a card ready waits in the driver until it is lifted */
void fake_cuda_lose(bool lost);             /* from now on every call fails, as with a card that fell off the bus */

struct fake_counts {
	uint64_t copies, launches, pages; /* asked for */
	uint64_t pageable;                /* copies from or to memory of the CPU that is not pinned: they block */
	uint64_t contextless;             /* calls that failed for want of a context */
	uint64_t illegal;                 /* accesses to what is not there */
	uint64_t flushes;
	uint64_t stalled;                                                    /* threads that wait in the driver */
	uint64_t waiting;                                                    /* copies asked for and not made */
	int64_t contexts;                                                    /* primary ones retained … */
	int64_t streams, events, modules, pinned, opened, reserved, handles; /* … and what else was not given back */
};
struct fake_counts fake_cuda_counts(void);
int fake_cuda_depth(void); /* contexts on this thread's stack */
#endif
