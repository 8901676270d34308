/*
 * What every program of the journey needs and no chapter is about: a second process to talk to, a NIC opened through
 * libfabric, a wait that ends. Used by the programs of this folder only, each from one thread unless it says otherwise.
 *
 * Errors end the program with a sentence. A library must not do that; a program of 100 lines may.
 */
#ifndef JOURNEY_COMMON_H
#define JOURNEY_COMMON_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

enum { MAX_NICS = 64, PATIENCE_S = 30 };

/* ---- two processes ------------------------------------------------------------------------------------------- */

/* The other process, and a plain socket to it. Addresses and keys must travel by some other way before RDMA can begin. */
struct pair {
	bool starts; /* this process begins, the other one answers */
	int fd;
	pid_t child;          /* the other process, where it was forked here */
	const char *provider; /* libfabric's name: tcp, shm, efa, simfab, ... */
	char source[64];      /* our own address on the way to the other: the interface tcp shall use */
	bool card;            /* NICs that reach a card's memory are asked for first */
	const char *from;     /* "ADDRESS,ADDRESS,...": our own addresses, one NIC each, instead; or NULL */
};

/*
 * Takes "--provider NAME" (default: tcp), "--sim MACHINE[,KEY=VALUE]" (simulated NICs instead), "--listen PORT",
 * "--connect HOST:PORT" and "--from ADDRESS,..." (tcp over several interfaces) out of the arguments. Without "--listen" and "--connect"
 * the other process is a child of this one, on the same host.
 */
struct pair pair_start(int *argc, char **argv);
/* The first two of them alone. Before any libfabric call: it changes the environment. */
const char *provider_take(int *argc, char **argv);
void pair_send(const struct pair *pair, const void *data, size_t bytes);
void pair_receive(const struct pair *pair, void *data, size_t bytes);
/* Both sides have come this far. */
void pair_meet(const struct pair *pair);
/* True when the other side has sent something, or is gone: look without waiting. */
bool pair_readable(const struct pair *pair, int timeout_ms);
/* Waits for a forked child and returns its exit status. */
int pair_end(struct pair *pair);

/* ---- a NIC ---------------------------------------------------------------------------------------------------- */

/* One NIC as libfabric shows it. */
struct nic {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	struct fid_mr *mr;
	void *desc;        /* what a local buffer of that region is named by */
	fi_addr_t peer;    /* the other process's NIC */
	uint64_t delivery; /* the flag that makes a completion mean "landed", where it must be asked for */
	uint64_t remote_base, remote_key;             /* and its memory */
	uint64_t sent, received, written, immediates; /* completions seen by nic_progress() */
	uint64_t immediate;                           /* the last one's value */
};

/* The NICs of the provider, one entry per device. Returns how many. */
int nics_find(const struct pair *pair, struct fi_info *infos[MAX_NICS]);
void nic_open(struct nic *nic, struct fi_info *info); /* which is the NIC's from now on */
void nic_open_first(struct nic *nic, const struct pair *pair);
void nic_register(struct nic *nic, void *base, size_t bytes);
/* The same for memory on a card; false where this NIC cannot reach it. */
bool nic_register_card(struct nic *nic, void *base, size_t bytes);
/* Memory beside that. The caller closes it before the NIC. */
struct fid_mr *nic_register_more(struct nic *nic, void *base, size_t bytes);
/* Tells the other side our address and our memory's key, and learns its. */
void nic_introduce(struct nic *nic, const struct pair *pair);
void nic_close(struct nic *nic);

/*
 * One RDMA write to the peer's memory, `to` bytes from its start. Flags: FI_REMOTE_CQ_DATA sends the immediate along, FI_MORE says
 * that another write follows at once. Returns what libfabric does: 0, -FI_EAGAIN, or worse.
 */
ssize_t nic_write(struct nic *nic, const void *from, size_t bytes, uint64_t to, void *context, uint64_t flags,
		  uint64_t immediate);

/* Reads what has completed into the counters. Nothing moves unless somebody does this. */
void nic_progress(struct nic *nic);
/* Until a counter reaches a value. */
void nic_await(struct nic *nic, const uint64_t *counter, uint64_t value);
/* Reports the error at the head of the completion queue and ends the program. */
void nic_fail(struct nic *nic) __attribute__((noreturn));
/* Whether the target's own CPU must read its completion queue for a write to land. */
bool nic_needs_target(const struct nic *nic);

/*
 * A post is refused with -FI_EAGAIN while the queue is full or the connection comes up. Only reading completions ever
 * changes that, so a loop that does not read them waits for ever.
 */
#define POST(nic, call)                                                                                                \
	do {                                                                                                           \
		uint64_t give_up_ = now_ns() + PATIENCE_S * UINT64_C(1000000000);                                      \
		ssize_t posted_;                                                                                       \
		while ((posted_ = (call)) == -FI_EAGAIN) {                                                             \
			nic_progress(nic);                                                                             \
			if (now_ns() > give_up_)                                                                       \
				die("the NIC refuses work for %d s: %s", PATIENCE_S, #call);                           \
		}                                                                                                      \
		check((int)posted_, #call);                                                                            \
	} while (0)

/* ---- small things ---------------------------------------------------------------------------------------------- */

uint64_t now_ns(void);
void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* Ends the program when a libfabric call failed. */
void check(int result, const char *what);
/* Bytes that differ from place to place, and between seeds. */
void pattern_fill(void *base, size_t bytes, uint64_t seed);
bool pattern_holds(const void *base, size_t bytes, uint64_t seed);
/* Memory of its own, page aligned, not touched yet. */
void *memory_take(size_t bytes);
/* The number after an option like "--depth" in the arguments, or what to use without it. */
uint64_t option(int argc, char **argv, const char *name, uint64_t otherwise);
bool flag(int argc, char **argv, const char *name);

#endif
