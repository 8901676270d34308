/* What the files of the fake share: its memory, its queue, its rules. */
#ifndef FAKE_CUDA_INTERNAL_H
#define FAKE_CUDA_INTERNAL_H

#include "device/cuda.h"
#include "fake-cuda/fake.h"

#define CARDS_MOST   8
#define BLOCKS_MOST  1024
#define FAKE_DIRECT  116 /* CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED */
#define FAKE_LOST    214 /* CUDA_ERROR_ECC_UNCORRECTABLE */
#define FAKE_ILLEGAL 700
#define FAKE_ALIGNED 716
#define FAKE_MAP     205
#define FAKE_HANDLE  400

struct block {
	bool live, mapped;  /* mapped: a file of cuMemMap */
	bool accessible;    /* cuMemSetAccess was called, or is not needed */
	char *base, *alias; /* as the card sees it, and as the fake does */
	size_t bytes;
	int card, fd;
	enum fake_kind kind;
	uint64_t id;
	bool ours;          /* charged to the card here */
	uint32_t opened;    /* by cuIpcOpenMemHandle: how often */
	uint64_t origin[2]; /* whose it is: process and id */
	uint64_t pinned;
};

struct fake {
	pthread_mutex_t lock;
	pthread_cond_t change;
	bool started, lost, hold, stall, running;
	int cards;
	uint32_t slow_us;
	size_t left_out;  /* of every copy: bytes at its end */
	cu_result sticky; /* a copy went wrong: every later call says so */
	size_t used[CARDS_MOST], most;
	struct block block[BLOCKS_MOST];
	uint64_t ids;
	struct fake_counts counts;
};
extern struct fake fake;

/* What every entry point begins with: the lock, and whether the call may go on. unlock() ends it. */
cu_result fake_enter(bool needs_context);
cu_result fake_leave(cu_result result);
int fake_current_card(void); /* of the context on top; -1: none */

/* memory.c, under the lock */
struct block *fake_find(uint64_t address);
struct block *fake_new(int card, size_t bytes, enum fake_kind kind, int fd, void *at);
void fake_drop(struct block *block);
/* Copies if every byte at both ends is there. */
cu_result fake_move(uint64_t to, uint64_t from, size_t bytes);
cu_result fake_check(uint64_t address, size_t bytes, bool *ret_pageable); /* whether all of it is there */

/* stream.c, under the lock */
void fake_drain(void); /* waits until nothing is asked for any more, unless it is held */
#endif
