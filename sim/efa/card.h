/*
 * A modelled EFA card at the verbs boundary: its objects, and what the files of this folder call in each other. Private to
 * libsimefa.so, which a program preloads; libfabric's own EFA provider runs on top of it (docs/SIMULATOR.md).
 *
 * Locks, in this order: a completion queue's (held from start_poll to end_poll), a queue pair's post lock (from wr_start to
 * wr_complete), the card's. The card's guards everything else of a card and is held for the length of one call. What other
 * processes see is in ../wire.h and is atomic.
 */
#ifndef SIM_EFA_CARD_H
#define SIM_EFA_CARD_H

#include "../clock.h"
#include "../control.h"
#include "../spec.h"
#include "../wire.h"

#include <infiniband/efadv.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* The header's macros would rename or wrap what we define. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port
#undef ibv_get_device_list

#define API                                 __attribute__((visibility("default")))
#define CONTAINER_OF(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

#define CARD_AHS       4096u
#define CARD_SQ_SGE    2u
#define CARD_RQ_SGE    3u
#define CARD_INLINE    32u
#define CARD_CQ_DEPTH  65536u
#define CARD_QPS       256u
#define CARD_HEADER    168u /* what the provider's largest header takes of a packet: the machine's mtu is what is left */
#define CARD_GRH       40u  /* in front of a datagram's payload */
#define CARD_RDMA_SIZE (1u << 30)
#define CARD_TARGETS   1024u /* buckets */

/* Bits of efadv_device_attr.device_caps; older headers lack the last two. */
enum {
	CAN_READ = 1 << 0,
	CAN_RETRY = 1 << 1,
	CAN_SGID = 1 << 2,
	CAN_WRITE = 1 << 3,
	CAN_WRITE_UNSOLICITED = 1 << 4,
};

/* The statuses a card reports; the provider passes them on as prov_errno. */
enum card_status {
	CARD_OK,
	CARD_FLUSHED = 1,
	CARD_QP_INTERNAL = 2,
	CARD_UNSUPPORTED = 3,
	CARD_BAD_AH = 4,
	CARD_BAD_LKEY = 5,
	CARD_BAD_LENGTH = 6,
	CARD_BAD_ADDRESS = 7,
	CARD_BAD_QPN = 9,
	CARD_RNR = 10,
	CARD_REMOTE_LENGTH = 11,
	CARD_UNRESPONSIVE = 13,
};

/* The machine this process plays. Set up once, by model_ready(). */
struct model {
	struct sim_spec spec;
	struct sim_control *control; /* never NULL once ready */
	uint32_t caps;
	struct card_device *devices;
	int count;
};
extern struct model model;

struct card_device {
	struct ibv_device base;
	int nic;
	union ibv_gid gid;
};

struct protection_domain {
	struct ibv_pd base;
	uint16_t number;
	_Atomic int users;
};

struct address_handle {
	struct ibv_ah base;
	union ibv_gid gid;
	uint16_t number;
};

struct ah_slot { /* never emptied once used, so that probing may stop at the first unused one */
	union ibv_gid gid;
	uint32_t users;
	bool used;
};

struct region {
	struct ibv_mr base;
	uint32_t slot;
	uint64_t pages;
};

struct request {
	uint64_t due, number; /* number breaks ties */
	struct queue_pair *qp;
	uint64_t wr_id;
	union ibv_gid gid; /* the target's */
	uint32_t qpn, qkey, key, imm, bytes, tries;
	uint64_t remote;
	uint64_t since; /* when the path went silent; 0 while it answers */
	uint64_t fault_argument;
	uint32_t place; /* in the heap */
	uint8_t opcode, count, fault, status, inlined;
	struct ibv_sge sge[CARD_SQ_SGE];
	uint8_t data[CARD_INLINE];
};

struct completion {
	uint64_t wr_id;
	struct queue_pair *qp; /* NULL: its queue pair is gone */
	uint32_t status, bytes, qpn, src_qpn, imm;
	uint32_t slot; /* of the work request, of a send queue's */
	enum ibv_wc_opcode opcode;
	bool of_send, has_imm, unsolicited;
	uint8_t gid[16];
};

struct completion_queue {
	struct ibv_cq_ex base;
	struct efadv_cq dv;
	struct card *card;
	struct completion_queue *next;
	pthread_mutex_t poll_lock; /* from start_poll to end_poll, as rdma-core does */
	struct queue_pair *receivers;
	uint32_t depth, users;
	struct completion *done; /* of send queues; a ring of depth entries */
	uint64_t head, tail;
	struct completion now; /* what the read_*() calls tell about */
	bool armed;
	uint64_t lost;
};

struct queue_pair {
	struct ibv_qp_ex base;
	struct card *card;
	struct queue_pair *next;          /* of the card */
	struct queue_pair *next_receiver; /* of the completion queue */
	struct completion_queue *send_cq, *recv_cq;
	struct wire_map *map;
	struct wire_endpoint *wire;
	pthread_mutex_t post_lock;
	uint32_t sq_depth, rq_depth, rq_used;
	uint32_t rnr_retry;
	bool datagrams;
	struct request *requests;
	uint32_t *free_requests, free_count;
	uint32_t *batch, batched; /* between wr_start and wr_complete */
	int batch_error;
	uint64_t arrival_next, claimed_since; /* claimed_since: the next arrival is claimed and unfilled since then */
};

struct target { /* a queue pair that we send to */
	struct target *next;
	union ibv_gid gid;
	uint32_t qpn;
	struct wire_map *ep_map, *nic_map;
	struct wire_endpoint *ep;
	struct wire_nic *nic;
	uint64_t alive_at;
};

/* An open device. */
struct card {
	struct verbs_context verbs;
	struct card_device *device;
	struct card *next;
	pthread_mutex_t lock;
	int pid; /* whose segment wire is: a forked child makes its own */
	struct wire_map *map;
	struct wire_nic *wire;
	uint64_t virtual_time, ticks_per_byte, op_ticks, latency_ticks, jitter_ticks, random;
	uint32_t mr_generation, mr_next, mr_free_count, *mr_free, pd_next;
	uint64_t pages_used, posted;
	uint32_t next_qpn;
	struct ah_slot ahs[CARD_AHS];
	struct queue_pair *qps;
	struct completion_queue *cqs;
	struct target *targets[CARD_TARGETS];
	struct request **heap; /* launched, by due time */
	uint32_t heap_count, heap_room;
	struct request *recent[64]; /* launched last: whose due times newer ones may take */
	_Atomic uint32_t busy;      /* requests in the heap and armed queues: what the ticker looks after */
	_Atomic uint64_t polled_at;
};

static inline struct card *card_of(struct ibv_context *context)
{
	return CONTAINER_OF(context, struct card, verbs.context);
}

/* device.c */
bool model_ready(void);
int card_attach(struct card *card); /* makes this process's segment. 0 or errno; takes the card's lock */
void card_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void strict_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* sysfs.c: what the provider reads of /sys about each device */
void sysfs_root(char *path, size_t bytes);
int sysfs_make(const struct card_device *devices, int count);

/* mr.c */
#define REGION_PD(access) ((uint32_t)((access) >> 32))
struct wire_mr *region_find(struct wire_nic *nic, uint32_t key, uint64_t base, uint64_t bytes, uint32_t access,
			    uint16_t pd);

/* ah.c */
uint16_t ah_number(struct card *card, const uint8_t gid[16]); /* 0xffff: none */

/* What senders must know of a queue pair, in wire_address.reserved. */
#define QP_TRAITS(pd, unsolicited, datagrams) ((uint16_t)((pd) << 2 | (unsolicited) << 1 | (datagrams)))
#define QP_PD(traits)                         ((uint16_t)((traits) >> 2))
#define QP_UNSOLICITED(traits)                ((traits) >> 1 & 1)
#define QP_DATAGRAMS(traits)                  ((traits)&1)

/* qpn.c: which queue pair a GID and a number name */
int qpn_publish(struct queue_pair *qp);
void qpn_withdraw(struct queue_pair *qp);
struct target *target_find(struct card *card, const union ibv_gid *gid, uint32_t qpn);
void target_forget(struct card *card, struct target *target);
void targets_forget(struct card *card, const union ibv_gid *gid); /* NULL: all */
void qpn_reap(void);

/* qp.c */
struct ibv_qp *qp_create(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr, bool unsolicited);

/* post.c */
int post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);
int post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad);
void post_fill(struct ibv_qp_ex *qp);

/* launch.c: time. All with the card's lock. */
void launch(struct card *card, struct request *request, uint64_t now);
void card_progress(struct card *card, uint64_t now);
void heap_drop(struct card *card, struct queue_pair *qp);

/* deliver.c: the bytes */
enum outcome { OUT_DONE, OUT_WAIT, OUT_ERROR, OUT_SILENT };
enum outcome deliver(struct card *card, struct request *request, uint64_t now, int *ret_status);

/* cq.c */
struct ibv_cq_ex *cq_create(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
void cq_push(struct completion_queue *cq, const struct completion *completion);
void cq_forget(struct completion_queue *cq, const struct queue_pair *qp);
bool cq_waiting(struct completion_queue *cq); /* has something to read */

/* channel.c */
void cq_notify(struct completion_queue *cq);
int cq_arm(struct ibv_cq *base, int solicited_only);

/* ticker.c: a card works while nobody polls */
int ticker_start(struct card *card);
void ticker_stop(struct card *card);
void ticker_wake(void);

/* fault.c */
void fault_mark(struct card *card, struct request *request, const struct target *target);
int fault_post(struct card *card, enum ibv_wr_opcode opcode);
bool fault_silent(struct card *card, const struct target *target); /* target may be NULL */
uint64_t fault_slowness(struct card *card, const struct target *target);
int fault_registration(struct card *card);
static inline bool fault_active(void)
{
	return atomic_load_explicit(&model.control->active_rules, memory_order_relaxed) != 0;
}

#endif
