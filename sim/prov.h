/*
 * The provider's objects, and what its files call in each other. Private to the DSO.
 *
 * Threads: under FI_THREAD_DOMAIN the application serialises a domain and nothing here locks; under any other model
 * each call takes the domain's mutex (dom_enter). Memory shared with other domains is in wire.h.
 */
#ifndef SIM_PROV_H
#define SIM_PROV_H

#include "clock.h"
#include "control.h"
#include "spec.h"
#include "wire.h"

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stddef.h>

/* libfabric 1.x has it in its headers, 2.x no longer. */
#ifndef container_of
#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))
#endif

#define LIKELY(x)   __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define FIXED_SHIFT 20 /* fixed-point position of ticks per byte */

/* EFA's completion statuses, as the device reports them (prov_errno). */
enum efa_status {
	EFA_OK,
	EFA_FLUSHED = 1,
	EFA_BAD_LKEY = 5,
	EFA_BAD_LENGTH = 6,
	EFA_BAD_ADDRESS = 7,
	EFA_BAD_QPN = 9,
	EFA_RNR = 10,
	EFA_REMOTE_LENGTH = 11,
	EFA_UNRESPONSIVE = 13,
	EFA_UNKNOWN_PEER = 14,
	EFA_UNREACHABLE = 15,
};

/* A specification in use: shared by the infos, domains and NIC attributes made from it. Never freed before exit. */
struct config {
	struct config *next;
	int pid;
	char text[1024];
	struct sim_spec spec;
	struct sim_control *control; /* never NULL: a private one if no file was named */
	struct config *direct;       /* the same NICs as efa-direct; NULL unless as=efa */
};

struct fabric {
	struct fid_fabric fid;
	_Atomic int refs;
};

struct event_queue {
	struct fid_eq fid;
	struct fabric *fabric;
	pthread_mutex_t mutex;
	struct fi_eq_err_entry *errors;
	size_t count, capacity;
	_Atomic int refs;
};

struct domain {
	struct fid_domain fid;
	struct fabric *fabric;
	const struct config *config;
	struct sim_control *control;
	int nic;
	bool guarded; /* every entry needs dom_enter: locking, or strict */
	bool locking, strict, local_keys, ordered_rma, ordered_sends;
	bool forgets;      /* requests to a peer that is removed from the address vector never complete */
	bool shm;          /* peers of the same host are reached through shared memory inside the provider */
	bool emulated;     /* our side has no RDMA writes of its own */
	bool numbers;      /* messages are delivered by number: none after one that failed */
	bool counts_polls; /* writers to us may wait for a poll */
	size_t queues;     /* combined capacity of the transmit and the receive queue */
	enum sim_copy copy;

	struct wire_map *map;
	struct wire_nic *wire;

	/* the NIC's egress */
	uint64_t virtual_time;
	uint64_t ticks_per_byte, op_ticks, latency_ticks, jitter_ticks, post_ticks, poll_ticks;
	uint64_t patience_ticks; /* how much later than the others a request may be and still keep its place */
	uint64_t random;

	pthread_mutex_t mutex;
	_Atomic uint64_t inside; /* strict: the thread that is inside, 0 for none */

	pthread_mutex_t mr_mutex; /* the next four: any thread may register, as EFA's and verbs' providers allow */
	uint32_t mr_generation, mr_next, mr_free_count;
	uint32_t *mr_free;
	uint64_t pages_used;
	struct event_queue *eq;
	struct endpoint *endpoints;
	_Atomic int refs;
};

struct region {
	struct fid_mr fid;
	struct domain *dom;
	uint32_t slot;
	uint64_t pages;
};

enum peer_state { PEER_NEW, PEER_CONTACTING, PEER_READY, PEER_ABSENT };

struct peer {
	struct wire_address address;
	struct wire_map *ep_map, *nic_map;
	struct wire_endpoint *ep;
	struct wire_nic *nic;
	uint64_t contact_at, alive_at;
	uint32_t generation, next_in_bucket;
	uint32_t waiting;           /* requests held back by the handshake */
	uint32_t backing_off;       /* sends for which the receiver was not ready */
	uint32_t issued, delivered; /* ordering: numbers given out, next to deliver */
	uint64_t missing;           /* number of the first message that failed and that the peer waits for; 0: none */
	uint8_t state, used, local, dead, emulated;
	uint8_t landed; /* a write or a read has: the provider holds none back any more */
};

struct vector {
	struct fid_av fid;
	struct domain *dom;
	struct peer *peers;
	uint32_t count, capacity, free_count;
	uint32_t *free_list;
	uint32_t *buckets; /* index + 1 of the first peer in each */
	uint32_t bucket_count;
	_Atomic int refs;
};

enum request_kind { REQ_SEND = SIM_OP_SEND, REQ_WRITE = SIM_OP_WRITE, REQ_READ = SIM_OP_READ };
enum request_stage { STAGE_DELIVER, STAGE_LAUNCH };

/* Fields by cache line: what every step of a request reads, what some steps read, the buffers, what hardly any step
 * needs. */
struct request {
	_Alignas(64) uint64_t due;
	void *context;
	uint64_t flags; /* of the completion */
	uint64_t bytes, remote;
	uint32_t peer, peer_generation, key, order;
	uint8_t kind, count, completes, has_data, ordered, stage, fault, held;

	uint64_t data, number; /* number: of the post, breaks ties of due */
	uint64_t since, polls; /* since: when the path went silent; 0 while it answers */
	int32_t bounce;        /* inject buffer, -1 for none */
	uint32_t tries;
	uint32_t local_key[WIRE_IOV];
	uint8_t backing_off; /* counted in peer->backing_off, as held is in peer->waiting */

	_Alignas(64) struct iovec iov[WIRE_IOV];
	uint64_t fault_argument;
};

struct completion {
	void *context;
	uint64_t flags, bytes, data;
	fi_addr_t from;
};

struct completion_queue {
	struct fid_cq fid;
	struct domain *dom;
	enum fi_cq_format format;
	size_t entry_bytes, size;
	struct endpoint **endpoints;
	uint32_t endpoint_count;
	/* completions found while another queue of the endpoint was read */
	struct completion *ready;
	size_t ready_head, ready_count, ready_capacity;
	struct fi_cq_err_entry *errors;
	size_t error_head, error_count, error_capacity;
	uint64_t lost;
	_Atomic int refs;
};

struct endpoint {
	struct fid_ep fid;
	struct endpoint *next;
	struct domain *dom;
	struct vector *av;
	struct completion_queue *tx_cq, *rx_cq;
	struct event_queue *eq;
	struct wire_map *map;
	struct wire_endpoint *wire;
	/* our side of the arrival ring, so that an empty read touches only one shared line */
	struct wire_arrival *arrivals;
	uint64_t arrival_next;
	uint32_t arrival_mask, idle_reads;
	uint64_t claimed_since; /* ticks; since when the next arrival is claimed but not filled. 0: it is not */
	bool enabled, tx_selective, rx_selective;
	uint64_t tx_flags, rx_flags; /* default op_flags */
	uint64_t inject_bytes, max_bytes, max_send_bytes;
	size_t iov_limit;

	uint32_t depth, rx_depth;
	/* launched requests in completion order: [head, rung); posted with FI_MORE: [rung, tail) */
	uint32_t mask, head, rung, tail;
	bool refused;      /* the last post was refused: its caller cannot ring for those before it */
	uint64_t last_due; /* due time of the newest launched */
	uint64_t posted;
	uint32_t *order;
	struct request *requests;
	uint32_t *free_requests;
	uint32_t free_count;
	uint32_t *slow; /* held back: a heap by due time, see slow.c */
	uint32_t slow_count;
	uint8_t *bounce;
	int32_t *free_bounce;
	uint32_t free_bounce_count;
	uint16_t *context_counts; /* strict: number in flight with this hash */
};

/* config.c */
const struct config *config_current(void);
struct config *config_of_nic(const struct fid_nic *nic, int *ret_nic);

/* info.c */
int info_get(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
	     struct fi_info **ret_info);
void info_gid(const struct config *config, int nic, uint8_t gid[16]);

/* fabric.c */
int fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **ret_fabric, void *context);
void eq_report(struct event_queue *eq, struct fid *fid, int err, int prov_errno);

/* domain.c */
int domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **ret_domain, void *context);
void dom_enter_slow(struct domain *dom, const char *call);
void dom_leave_slow(struct domain *dom);
void dom_visit(struct domain *dom); /* strict: any thread may call it to look at its requests; left by dom_leave() */

static inline void dom_enter(struct domain *dom, const char *call)
{
	if (UNLIKELY(dom->guarded))
		dom_enter_slow(dom, call);
}

static inline void dom_leave(struct domain *dom)
{
	if (UNLIKELY(dom->guarded))
		dom_leave_slow(dom);
}

static inline uint64_t dom_random(struct domain *dom)
{
	uint64_t x = dom->random; /* xorshift64 */

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return dom->random = x;
}

/* mr.c */
extern struct fi_ops_mr mr_ops;
#define MR_NIC_OF(key)  ((key) >> 26)
#define MR_SLOT_OF(key) ((key) & (WIRE_MR_SLOTS - 1))
#define MR_DEVICE       (1ull << 63) /* in wire_mr.access: registered as device memory */
/* Returns the region that `key` names on `nic` if it covers [base, base + bytes) with `access`; NULL otherwise. */
static inline struct wire_mr *mr_find(struct wire_nic *nic, uint32_t key, uint64_t base, uint64_t bytes,
				      uint64_t access)
{
	struct wire_mr *mr = &nic->mr[MR_SLOT_OF(key)];
	uint64_t start, length;

	if (UNLIKELY(!key || atomic_load_explicit(&mr->key, memory_order_acquire) != key))
		return NULL;
	start = atomic_load_explicit(&mr->base, memory_order_relaxed);
	length = atomic_load_explicit(&mr->bytes, memory_order_relaxed);
	if (UNLIKELY(base < start || bytes > length || base - start > length - bytes))
		return NULL;
	if (UNLIKELY((atomic_load_explicit(&mr->access, memory_order_relaxed) & access) != access))
		return NULL;
	return mr;
}

/* av.c */
int av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **ret_av, void *context);
bool peer_resolve(struct peer *peer);
fi_addr_t av_reverse(struct vector *av, const struct wire_address *address);

/* cq.c */
int cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **ret_cq, void *context);
int cq_add_endpoint(struct completion_queue *cq, struct endpoint *ep);
void cq_remove_endpoint(struct completion_queue *cq, struct endpoint *ep);
void cq_push(struct completion_queue *cq, const struct completion *completion);
void cq_push_error(struct completion_queue *cq, const struct fi_cq_err_entry *error);
const char *efa_text(int status);

/* ep.c */
int ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ret_ep, void *context);

/* post.c */
extern struct fi_ops_msg msg_ops;
extern struct fi_ops_rma rma_ops;

/* launch.c: the doorbell. Gives every request of [rung, tail) its time. */
void ep_ring(struct endpoint *ep);
void ep_launch_one(struct endpoint *ep, struct request *request, struct peer *peer, uint64_t now);

/* deliver.c */
struct guard { /* holds the last region used, so that a run of requests into it pays once */
	struct wire_mr *mr;
};
enum outcome { OUT_DONE, OUT_WAIT, OUT_ERROR, OUT_SILENT };
/* Moves the bytes. OUT_WAIT: try again at request->due; OUT_ERROR: *ret_status has the reason; OUT_SILENT: no
 * completion. */
enum outcome deliver(struct endpoint *ep, struct request *request, uint64_t now, struct guard *guard, int *ret_status);
void guard_release(struct guard *guard);

/* slow.c: requests that cannot complete in posting order */
void slow_add(struct endpoint *ep, uint32_t index);
void slow_progress(struct endpoint *ep, uint64_t now);
void ep_finish(struct endpoint *ep, uint32_t index);
void ep_finish_error(struct endpoint *ep, uint32_t index, int status);

/* fault.c */
void fault_mark(struct endpoint *ep, struct request *request, struct peer *peer);
int fault_refuses_post(struct endpoint *ep, enum request_kind kind, struct peer *peer);
bool fault_silent(struct domain *dom, struct peer *peer);
uint64_t fault_slowness(struct domain *dom, struct peer *peer);
int fault_registration(struct domain *dom);
void fault_stall_registration(struct domain *dom); /* called before entering the domain, as pinning is */
void fault_stall_endpoint(struct domain *dom,
			  enum sim_op_kind op); /* inside: nobody else may use the domain meanwhile */
void fault_internal(struct endpoint *ep);

static inline bool fault_active(const struct domain *dom)
{
	return atomic_load_explicit(&dom->control->active_rules, memory_order_relaxed) != 0;
}

/* strict.c: each function stops the process if its rule is broken */
void strict_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void stop_process(void) __attribute__((noreturn));
void strict_post(struct endpoint *ep, void *context, const struct peer *peer);
void strict_doorbell(struct endpoint *ep, const struct fi_msg_rma *msg, uint64_t flags);
void strict_done(struct endpoint *ep, void *context);
void strict_mr_close(struct domain *dom, uint32_t key);

static inline void ep_free_request(struct endpoint *ep, uint32_t index)
{
	struct request *request = &ep->requests[index];

	if (UNLIKELY(request->bounce >= 0))
		ep->free_bounce[ep->free_bounce_count++] = request->bounce;
	if (UNLIKELY(ep->context_counts != NULL))
		strict_done(ep, request->context);
	ep->free_requests[ep->free_count++] = index;
}

/* stubs.c: operations that nobody may call */
extern struct fi_ops_cm stub_cm;
extern struct fi_ops_tagged stub_tagged;
extern struct fi_ops_atomic stub_atomic;
int stub_close(struct fid *fid);
int stub_bind(struct fid *fid, struct fid *other, uint64_t flags);
int stub_control(struct fid *fid, int command, void *argument);
int stub_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);

void sim_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
