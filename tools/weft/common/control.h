/*
 * The connection two benchmark processes talk over: a stream socket with frames. Every frame has a fixed
 * header (magic, version, type, length), lengths are checked before anything is read, and every call has a
 * time limit.
 *
 * A failed call leaves a sentence for people in control->error.
 */
#ifndef WEFT_TOOLS_CONTROL_H
#define WEFT_TOOLS_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	CMD_CONTROL_VERSION = 5,
	CMD_CONTROL_HEADER = 16,
	CMD_CONTROL_MAX = 128 * 1024, /* bytes in a frame */
};

enum cmd_frame {
	CMD_FRAME_HELLO = 1, /* both: who I am */
	CMD_FRAME_PARAMS,    /* to the peer: what to set up */
	CMD_FRAME_ADDRESS,   /* from the peer: its engine's address */
	CMD_FRAME_REGION,    /* from the peer: its region's descriptor */
	CMD_FRAME_READY,     /* from the peer: what it set up */
	CMD_FRAME_ALIVE,     /* to the peer, now and then during the run */
	CMD_FRAME_START,     /* to the peer, and back: measuring begins */
	CMD_FRAME_STOP,      /* to the peer: measuring is over; how many messages it must have */
	CMD_FRAME_MAP,       /* to the peer: what the next slots should hold */
	CMD_FRAME_VERIFY,    /* to the peer: that was all of it */
	CMD_FRAME_RESULT,    /* from the peer: what it has */
	CMD_FRAME_BYE,       /* to the peer: done */
	CMD_FRAME_SUMMARY,   /* from the side that drove to the side that prints */
	CMD_FRAME_ERROR,     /* both: a number and a sentence; nothing follows */
	CMD_FRAME_LAST = CMD_FRAME_ERROR,
};

struct cmd_control {
	int fd;
	char error[400];
	uint8_t buffer[CMD_CONTROL_MAX]; /* what the last receive brought */
	uint32_t bytes;
	enum cmd_frame type;
};

/* Takes the descriptor and makes it non-blocking. */
int cmd_control_open(struct cmd_control *control, int fd);
void cmd_control_close(struct cmd_control *control);

int cmd_control_send(struct cmd_control *control, enum cmd_frame type, const void *payload, size_t bytes,
		     uint64_t timeout_ns);
/* Sends an error frame and does not mind when it cannot. */
void cmd_control_send_error(struct cmd_control *control, int error, const char *text);
/* One frame of any type but ERROR, which comes back as its own negative errno, its text in control->error. */
int cmd_control_receive(struct cmd_control *control, uint64_t timeout_ns);
/* One frame of this type. */
int cmd_control_expect(struct cmd_control *control, enum cmd_frame type, uint64_t timeout_ns);
/* Bytes, or the end of the connection, are there to be read. */
bool cmd_control_pending(struct cmd_control *control);
/* The same, with a time limit. */
bool cmd_control_wait(struct cmd_control *control, uint64_t timeout_ns);

uint64_t cmd_now_ns(void);

#endif
