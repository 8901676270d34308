/*
 * Letters: what two rails of this host tell each other over a Unix socket. One of fixed length per packet, with a descriptor where
 * it brings one. Rare: a greeting per line, a question per region. Everything in one comes from another process and is checked
 * here. The rail's worker.
 */
#ifndef WF_LOCAL_LETTER_H
#define WF_LOCAL_LETTER_H

#include "device/device.h"
#include "local/closer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum wf_letter_kind {
	WF_LETTER_HELLO = 1, /* brings the memory of the sender's pipe */
	WF_LETTER_WELCOME,   /* brings the board; base and proof: where and what the caller may read */
	WF_LETTER_OPEN,      /* key: asks for a region, or for the part-th allocation of a card's */
	WF_LETTER_OPENED, /* key and status; on success the region, and its memfd if it has one, or a part of a card's memory */
	WF_LETTER_RING, /* wakes a reader that sleeps, and says no more */
};

#define WF_LETTER_MAGIC   0x77656674u
#define WF_LETTER_VERSION 2

/* Both sides run on one machine, so it travels in the machine's own byte order. */
struct wf_letter {
	uint32_t magic;
	uint16_t version, kind;
	uint64_t key;
	uint64_t base, bytes; /* of the region in its owner's memory */
	uint64_t offset;      /* of base in the memfd … */
	uint64_t file_bytes;  /* … which is that long; 0: there is none */
	uint64_t life;        /* of the region's slot */
	uint32_t slot, access;
	int32_t status; /* 0 or a negative errno */
	uint32_t part;
	uint64_t proof[2];
	/* of a region in a card's memory; offset is of base in its first part */
	uint32_t parts; /* 0: the CPU's memory */
	uint32_t way;   /* enum wf_device_way; FILE brings a descriptor */
	uint64_t part_bytes;
	uint8_t uuid[WF_DEVICE_UUID], handle[WF_DEVICE_HANDLE];
};

/* Fills in magic and version; fd goes with it unless it is -1. Returns 0, -EAGAIN if the socket has no room, or another negative errno. */
int wf_letter_send(int socket, struct wf_letter *letter, int fd);
/* Returns 1 and a letter that wf_letter_check() accepts, with its descriptor, which is the caller's to close (-1: none); 0 if
 * there is none; or a negative errno: the other side has ended, or breaks the rules. A letter that breaks them may stay in the
 * socket, with what it brings. Descriptors are to be closed by the closer, and the socket to be shut by it. */
int wf_letter_receive(int socket, struct wf_closer *closer, struct wf_letter *ret_letter, int *ret_fd);
/* Whether this many bytes with this many descriptors are a letter. */
bool wf_letter_check(const struct wf_letter *letter, size_t bytes, int fd_count);
#endif
