/*
 * A stranger that speaks libfabric by hand: one endpoint, no engine. It knows what anybody may know, the victim's
 * address, and sends whatever bytes it likes. Used by one thread.
 */
#ifndef HOSTILE_RAW_H
#define HOSTILE_RAW_H

#include "rail/rail.h"
#include "wire/blob.h"
#include "wire/frame.h"

#include <rdma/fabric.h>
#include <stdbool.h>
#include <stdint.h>

#define RAW_RECEIVES 64
#define RAW_SECRET   UINT64_C(0x5ec4e75ec4e7) /* ours for everybody */

struct raw_request {
	struct fi_context2 context; /* first: what completions name */
	bool done;
	int status;
	uint64_t bytes; /* received */
};

struct raw_receive {
	struct raw_request request;
	uint8_t *buffer;
};

struct raw {
	struct wf_nics nics;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_mr *mr;
	void *desc;
	uint8_t *memory; /* what follows lies in it */
	uint8_t *out;    /* a frame */
	uint8_t *data;   /* what RMA reads into and writes from */
	fi_addr_t victim;
	struct wf_wire_address address; /* ours, as we choose to tell it */
	struct wf_wire_address theirs;
	int32_t misquote;  /* added to the number of a question when we answer it */
	uint32_t next;     /* the receive that is looked at first */
	uint8_t from_rail; /* which of its rails says hello */
	uint64_t patience; /* how long to wait for the victim; only what is refused ever takes so long */
	struct raw_receive receive[RAW_RECEIVES];
};

/* config names the provider and the rail. */
void raw_open(struct raw *raw, const struct weft_config *config);
void raw_close(struct raw *raw);
/* From now on everything goes to that engine's first rail. */
void raw_aim(struct raw *raw, const void *address, size_t bytes);
void raw_forget(struct raw *raw, fi_addr_t victim); /* one that was aimed at, and is gone */

/* Header and payload as given, after sealing. False: the provider refused it for as long as raw waits. */
bool raw_send(struct raw *raw, const struct wf_frame *header, const void *payload);
bool raw_send_bytes(struct raw *raw, const void *bytes, size_t count);
/* A frame that came, opened; false when none comes within limit_ns. Valid until the next call. */
bool raw_receive(struct raw *raw, uint64_t limit_ns, struct wf_frame **ret_frame);
/* 0: it completed well. */
int raw_write(struct raw *raw, uint64_t key, uint64_t at, uint64_t bytes);
/* A write that carries an immediate. */
int raw_write_immediate(struct raw *raw, uint64_t key, uint64_t at, uint64_t bytes, uint32_t immediate);
int raw_read(struct raw *raw, uint64_t key, uint64_t at, uint64_t bytes);

/* A HELLO as an honest engine of this address would say it, less what only the victim knows. */
struct wf_frame raw_hello(const struct raw *raw, const struct wf_wire_address *as);
bool raw_greet(struct raw *raw, const struct wf_frame *hello, const struct wf_wire_address *as);

/* ---- a connection that is properly made, and used for harm ---- */

struct raw_link {
	uint64_t handle; /* the victim's for us */
	uint64_t token;  /* its secret */
	uint32_t epoch, their_epoch;
	uint64_t seq;           /* of our next frame */
	uint64_t expected;      /* of theirs */
	uint64_t acked, credit; /* what the victim says */
	uint64_t max_message;
};

/* False: the victim does not want us. */
bool raw_connect(struct raw *raw, struct raw_link *link);
/* The header of a frame within the connection. */
struct wf_frame raw_frame(const struct raw *raw, const struct raw_link *link, uint8_t kind);
/* A whole message in one frame. */
bool raw_message(struct raw *raw, struct raw_link *link, uint8_t type, uint64_t call, const void *payload,
		 uint32_t bytes);
/* Answers greetings and pings and notes acknowledgements until a message comes; false when none does. */
bool raw_hear(struct raw *raw, struct raw_link *link, uint64_t limit_ns, struct wf_frame **ret_frame);
#endif
