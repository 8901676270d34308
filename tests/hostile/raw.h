/*
 * A stranger that speaks libfabric by hand: one endpoint, no engine. It knows what anybody may know, the victim's
 * address, and sends any bytes it likes. Used by one thread.
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
#define RAW_SECRET   UINT64_C(0x5ec4e75ec4e7) /* our secret for everybody */

struct raw_request {
	struct fi_context2 context; /* first, because completions name it */
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
	uint8_t *memory; /* holds the following */
	uint8_t *out;    /* a frame */
	uint8_t *data;   /* source and target of RMA */
	fi_addr_t victim;
	struct wf_wire_address address; /* ours, as we choose to claim it */
	struct wf_wire_address theirs;
	int32_t misquote;  /* added to the number of a question in our answer */
	uint32_t next;     /* the receive to look at first */
	uint8_t from_rail; /* which of its rails says hello */
	uint64_t patience; /* how long to wait for the victim; only refusals ever take this long */
	struct raw_receive receive[RAW_RECEIVES];
};

/* config names the provider and the rail. */
void raw_open(struct raw *raw, const struct weft_config *config);
void raw_close(struct raw *raw);
/* From now on everything goes to that engine's first rail. */
void raw_aim(struct raw *raw, const void *address, size_t bytes);
void raw_forget(struct raw *raw, fi_addr_t victim); /* one that was the target before, and is gone */

/* Sends header and payload as given, after sealing. Returns false if the provider refused it for as long as raw
 * waits. */
bool raw_send(struct raw *raw, const struct wf_frame *header, const void *payload);
bool raw_send_bytes(struct raw *raw, const void *bytes, size_t count);
/* Returns the next frame, opened; false if none comes within limit_ns. Valid until the next call. */
bool raw_receive(struct raw *raw, uint64_t limit_ns, struct wf_frame **ret_frame);
/* Returns 0 if it completed well. */
int raw_write(struct raw *raw, uint64_t key, uint64_t at, uint64_t bytes);
/* A write that carries an immediate. */
int raw_write_immediate(struct raw *raw, uint64_t key, uint64_t at, uint64_t bytes, uint32_t immediate);
int raw_read(struct raw *raw, uint64_t key, uint64_t at, uint64_t bytes);

/* A HELLO as an honest engine with this address would say it, without what only the victim knows. */
struct wf_frame raw_hello(const struct raw *raw, const struct wf_wire_address *as);
bool raw_greet(struct raw *raw, const struct wf_frame *hello, const struct wf_wire_address *as);

/* ---- a proper connection, used for harm ---- */

struct raw_link {
	uint64_t handle; /* the victim's handle for us */
	uint64_t token;  /* its secret */
	uint32_t epoch, their_epoch;
	uint64_t seq;           /* of our next frame */
	uint64_t expected;      /* of theirs */
	uint64_t acked, credit; /* as the victim says */
	uint64_t max_message;
};

/* Returns false if the victim does not want us. */
bool raw_connect(struct raw *raw, struct raw_link *link);
/* The header of a frame within the connection. */
struct wf_frame raw_frame(const struct raw *raw, const struct raw_link *link, uint8_t kind);
/* A whole message in one frame. */
bool raw_message(struct raw *raw, struct raw_link *link, uint8_t type, uint64_t call, const void *payload,
		 uint32_t bytes);
/* Answers greetings and pings and records acknowledgements until a message comes; returns false if none does. */
bool raw_hear(struct raw *raw, struct raw_link *link, uint64_t limit_ns, struct wf_frame **ret_frame);
#endif
