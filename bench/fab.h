/*
 * The least of libfabric that moves pages: bench/raw and bench/piece compare an engine with it. One thread drives one
 * side; nothing is retried, failed over, timed or checked on the way.
 */
#ifndef BENCH_FAB_H
#define BENCH_FAB_H

#include "../tests/support/clock.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAB_RAILS = 64, FAB_NAME = 128, FAB_IOVS = 4, FAB_BATCH = 64, FAB_RECEIVES = 16, FAB_MESSAGE = 8192 };

struct fab_rail {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	struct fid_mr *mr;
	void *desc;
	fi_addr_t peer;
	uint64_t key, base; /* of the peer's memory */
	uint64_t flags;     /* for every write */
	unsigned in_flight;
	struct fi_context2 *contexts; /* NULL: the provider needs none */
	void **idle;                  /* contexts not in flight */
	unsigned idle_count;
};

struct fab {
	char provider[32];
	struct fab_rail rail[FAB_RAILS];
	int rails;
	int wait_fd;        /* of the first rail's queue; -1: none */
	uint64_t queue_ops; /* the shallowest transmit queue */
	double line_bps;
	char *memory;
	size_t bytes;
	char *messages; /* FAB_RECEIVES + 1 of FAB_MESSAGE bytes, registered with `message_mr` */
	struct fid_mr *message_mr;
	struct fi_context2 receive[FAB_RECEIVES];
};

/* What one side sends to the other. */
struct fab_card {
	uint32_t rails;
	struct {
		uint8_t name[FAB_NAME];
		uint64_t name_bytes, key, base;
	} rail[FAB_RAILS];
};

/* provider: "shm", "tcp" or "simfab". Opens all of its NICs, or 127.0.0.1 for tcp; ends the process on failure.
 * waits: open the queue with a descriptor to sleep on, if the provider has one. */
void fab_open(struct fab *fab, const char *provider, size_t bytes, bool waits);
void fab_card(struct fab *fab, struct fab_card *ret_card);
void fab_meet(struct fab *fab, const struct fab_card *card);
void fab_close(struct fab *fab);

/* What to write: page i of `count` goes from from[i] to to[i]; after the last page comes the first again. */
struct fab_load {
	struct fab *fab;
	size_t page_bytes;
	const uint32_t *from, *to;
	uint64_t count, next;
	uint64_t left;   /* pages not yet posted; UINT64_MAX: no end */
	unsigned depth;  /* operations in flight per rail */
	unsigned batch;  /* posts per doorbell */
	unsigned iovs;   /* pages per operation */
	uint64_t posted; /* in pages */
};

/* One turn of every rail: posts, then reads completions. Returns how many operations completed. */
uint64_t fab_turn(struct fab_load *load);
/* Returns true while anything is in flight. */
bool fab_busy(const struct fab *fab);
/* Writes once on every rail, to open the paths before anything is measured. */
void fab_warm(struct fab_load *load);
/* Reads every completion queue once, as a target must. Returns the number of entries. */
uint64_t fab_attend(struct fab *fab);

/* Called after every turn with whether the turn did nothing: spins for a while, then sleeps in short naps. */
struct fab_idle {
	unsigned turns;
	uint64_t since_ns, spin_ns; /* 0: 50 us */
};
void fab_rest(struct fab *fab, struct fab_idle *idle, bool nothing);

/* Two-sided, first rail only: post a receive; send (injected if it fits); wait for an arrival. */
void fab_receive(struct fab *fab, unsigned slot);
void fab_send(struct fab *fab, size_t bytes);
int fab_arrived(struct fab *fab); /* reads the queue once: returns the slot of a receive, to be posted again, or -1 */

void fab_check(long rc, const char *what);
void fab_shuffle(uint32_t *list, uint64_t count, uint64_t seed);

#endif
