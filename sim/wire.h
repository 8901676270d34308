/*
 * The wire: what simulated NICs of different processes share. A NIC (an open domain) is one segment with its registered
 * memory and its receive rate; an endpoint is another segment with its posted receives and its arrivals. Segments are
 * files in /dev/shm; a sender maps the file that the address names.
 *
 * Everything that another thread or process touches is atomic. Nothing here waits for another process, except closing
 * (bounded: see wire_retire).
 */
#ifndef SIM_WIRE_H
#define SIM_WIRE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define WIRE_MR_SLOTS 262144u /* mr_cnt of the captured p5 */
#define WIRE_IOV      4

enum wire_kind { WIRE_NIC = 1, WIRE_ENDPOINT = 2 };
enum wire_state { WIRE_LIVE = 1, WIRE_CLOSED = 2 };

struct wire_head {
	uint64_t magic;
	uint32_t version, kind;
	int32_t pid;
	uint32_t id;
	uint64_t bytes;
	_Atomic uint32_t state;
};

/* 32 bytes like EFA's: 16 of GID, queue pair number, key; the rest names the segment. */
struct wire_address {
	uint8_t gid[16];
	uint16_t qpn, reserved;
	uint32_t qkey;
	int32_t pid;
	uint32_t id;
};
_Static_assert(sizeof(struct wire_address) == 32, "addresses are 32 bytes");

/* A registered region. `users` counts copies under way: closing removes the key and then waits for them. */
struct wire_mr {
	_Atomic uint32_t key; /* 0: free. Released last on registration, cleared first on close */
	_Atomic uint32_t users;
	_Atomic uint64_t base, bytes, access;
};

struct wire_nic {
	struct wire_head head;
	char host[64];
	uint32_t nic, emulated;                     /* emulated: writes to it travel as messages */
	_Atomic uint64_t ticks_per_byte;            /* 44.20 fixed point: this NIC's rate, for senders */
	_Alignas(64) _Atomic uint64_t receive_time; /* virtual time of its ingress */
	_Alignas(64) _Atomic uint64_t respond_time; /* and of its read responses */
	_Alignas(64) struct wire_mr mr[WIRE_MR_SLOTS];
};

struct wire_buffer { /* one posted receive */
	_Atomic uint64_t context, count;
	struct {
		_Atomic uint64_t base, bytes;
	} iov[WIRE_IOV];
};

enum wire_event { WIRE_MESSAGE = 1, WIRE_IMMEDIATE = 2, WIRE_TRUNCATED = 3 };

struct wire_arrival {
	_Atomic uint64_t sequence; /* position + 1 once readable: released by the sender, acquired by the reader */
	uint64_t context, bytes, extra, data;
	uint64_t visible_at; /* ticks; 0: at once */
	uint32_t event, has_data;
	struct wire_address from;
};

struct wire_endpoint {
	struct wire_head head;
	struct wire_address address;
	uint32_t nic_id;
	uint32_t buffers, arrivals;     /* ring sizes, powers of two */
	_Atomic uint32_t arrival_limit; /* the CQ's size: beyond it completions are lost */
	uint64_t buffers_at, arrivals_at;
	_Atomic uint32_t users; /* deliveries under way */
	_Atomic uint64_t polls; /* CQ reads, for target_progress */
	_Atomic uint64_t lost;
	_Alignas(64) _Atomic uint64_t buffer_head;  /* senders take */
	_Alignas(64) _Atomic uint64_t buffer_tail;  /* the owner posts */
	_Alignas(64) _Atomic uint64_t arrival_tail; /* senders claim */
	_Alignas(64) _Atomic uint64_t arrival_head; /* the owner reads */
};

/* A mapping of someone's segment, shared by everything in this process that talks to it. */
struct wire_map;
struct wire_map *wire_create(enum wire_kind kind, size_t bytes);
struct wire_map *wire_attach(int32_t pid, uint32_t id, enum wire_kind kind); /* NULL: not there */
void wire_detach(struct wire_map *map);                                      /* NULL is fine */
void wire_destroy(struct wire_map *map); /* the creator's detach: marks it closed and removes the file */
void *wire_memory(struct wire_map *map);
bool wire_owner_alive(struct wire_map *map); /* a system call: use it rarely */
bool wire_is_local(struct wire_map *map);

/* Removes the files that killed processes of this user left behind. */
void wire_reap(void);

/* Waits until nobody copies into it any more; gives up if a copier died on the way. */
void wire_retire(_Atomic uint32_t *users);

static inline struct wire_buffer *wire_buffers(struct wire_endpoint *ep)
{
	return (struct wire_buffer *)((char *)ep + ep->buffers_at);
}

static inline struct wire_arrival *wire_arrivals(struct wire_endpoint *ep)
{
	return (struct wire_arrival *)((char *)ep + ep->arrivals_at);
}

size_t wire_endpoint_bytes(uint32_t buffers, uint32_t arrivals);
void wire_endpoint_layout(struct wire_endpoint *ep, uint32_t buffers, uint32_t arrivals);

/* Owner: posts a receive. Returns false if the ring is full. */
bool wire_post_buffer(struct wire_endpoint *ep, const struct iovec *iov, size_t count, void *context, uint32_t depth);
/* Sender: takes the oldest posted receive. Returns false if there is none. */
struct wire_taken {
	uint64_t context;
	size_t count;
	struct iovec iov[WIRE_IOV];
};
bool wire_take_buffer(struct wire_endpoint *ep, struct wire_taken *ret_taken);
/* Sender: reports an arrival. Returns false if the completion queue overran; the arrival is then lost. */
bool wire_push_arrival(struct wire_endpoint *ep, const struct wire_arrival *arrival);
/* Owner: the slot at `place` may be written again. */
void wire_release_arrival(struct wire_endpoint *ep, uint64_t place);
/* Owner, if there is no next arrival: returns whether a sender has claimed it but not filled it yet. */
bool wire_arrival_claimed(struct wire_endpoint *ep);

#endif
