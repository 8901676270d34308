/* What the files of src/local/ share. No other folder includes it. */
#ifndef WF_LOCAL_INTERNAL_H
#define WF_LOCAL_INTERNAL_H

#include "base/list.h"
#include "local/local.h"
#include "local/pipe.h"

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>

#define WF_SLICE_BYTES (256u << 10) /* copied per turn: some ten microseconds */
#define WF_JOBS        4096u        /* a power of two: an operation of several ranges has several */
#define WF_BUCKETS     64u
#define WF_COPIERS     16u /* cards that a rail copies with */
#define WF_FLIGHTS     32u /* copies that cards make at a time */

/* What the owner of a key has told us. */
struct wf_opened {
	struct wf_opened *next; /* of its bucket */
	uint64_t key, base, bytes, life;
	uint32_t slot, access;
	int status;        /* 0; -EINPROGRESS: asked; else refused */
	uint32_t jobs;     /* that use it, cargoes included */
	uint64_t asked_ns; /* when */
	char *at;          /* where base is mapped here; NULL: the kernel copies */
	void *mapped;      /* the file */
	size_t mapped_bytes;
	struct wf_device_offer *offer; /* a card's memory: the parts that have come; NULL: all have, or it is not one */
	struct wf_device_opened *device; /* NULL: the CPU's memory, or not all parts have come */
	struct wf_card *card;            /* whose it is, once it is open; NULL: the CPU's */
	bool orphan;                     /* its line has broken: the last job frees it */
	struct wf_closer *closer;        /* the rail's */
};

enum wf_line_state { WF_LINE_CLOSED, WF_LINE_GREETING, WF_LINE_UP };

/* Our way to another rail. Its number in the table and its generation are the target. */
struct wf_line {
	struct wf_local *local;
	enum wf_line_state state;
	uint32_t index, generation;
	uint32_t users[WF_LOCAL_ENDS]; /* of the address, by endpoint */
	bool died;                     /* its process has; not told yet */
	uint8_t address[WF_LOCAL_ADDRESS];
	int socket, pidfd;     /* -1: none */
	pid_t pid;             /* in our namespace; 0: not known */
	bool other;            /* another user's, or we cannot tell */
	bool told;             /* the log says why nobody is reached, or somebody was */
	int copies;            /* 0: the kernel lets us copy; else why not */
	struct wf_share share; /* the pipe's memory */
	uint32_t held;         /* bit i: pipe.shared->holding[i] is in use */
	struct wf_pipe_writer pipe;
	const struct wf_board *board;
	struct wf_opened *bucket[WF_BUCKETS];
};

/* Somebody's way to us. */
struct wf_guest {
	struct wf_local *local;
	uint32_t index;
	int socket;
	bool other; /* another user's */
	uint64_t since_ns;
	uint32_t wrong;             /* keys that it asked for in vain */
	uint32_t rights;            /* to any memory of ours that it was told of; changes under the lock */
	struct wf_pipe_reader pipe; /* shared NULL: it has not greeted yet */
};

/* A copy to be made, or the rest of one. */
struct wf_job {
	struct wf_line *line;
	struct wf_opened *opened;
	void *context;
	char *near;
	uint64_t far, left;
	const struct wf_page_list *list; /* NULL: one range. Else near and far are those of page 0 … */
	uint64_t page;                   /* … and this is the next */
	uint32_t immediate;
	bool has_immediate, read;
};

/* An operation with a card's memory at one end or at both, made by the card in one flight or more. */
struct wf_cargo {
	struct wf_link
	    link; /* local->waiting while there is something to launch, local->landed while its end finds no room */
	struct wf_line *line; /* NULL: it has broken, or the operation was taken back */
	struct wf_opened *opened;
	void *context;        /* NULL: nobody waits for its end */
	struct wf_card *card; /* of our memory; NULL: it is the CPU's */
	bool used, foreign;
	bool read, has_immediate;
	uint32_t immediate, flights;
	int status; /* the first failure */
	char *near;
	uint64_t far, left;
	const struct wf_page_list *list; /* as in struct wf_job */
	uint64_t page;
};

/* A copy that a card makes, of a part of a cargo. */
struct wf_flight {
	struct wf_cargo *cargo; /* NULL: free */
	struct wf_copier *copier;
	struct wf_card *card; /* the copier's */
	int number;           /* in the copier */
	int hold;             /* in the line's pipe; -1: none */
	char *chunk;          /* pinned memory on the way between a card and the CPU's memory; NULL: none */
	bool to_far, to_near; /* it has landed in the chunk: the CPU brings it on */
	char *near;
	uint64_t far, bytes, page;
};

struct wf_posted_receive {
	void *context, *buffer;
	size_t bytes;
};

struct wf_local {
	const struct wf_log *log;
	uint8_t address[WF_LOCAL_ADDRESS];
	uint64_t proof[2]; /* random: who can read it here can copy here */
	int epoll, listener;
	bool deaf; /* nobody is accepted until the next sweep: we had no descriptor, or the closer is full */
	struct wf_closer *closer;
	uint32_t turns;   /* since the descriptors were looked at … */
	uint64_t tick_ns; /* … and when: the kernel's tick */
	bool slept;       /* we may have: look at them now */
	struct wf_local_memory memory;

	struct wf_line **line; /* by index; NULL: free */
	uint32_t line_room, died;
	struct wf_line *begun; /* the run's, and its memory */
	struct wf_opened *begun_at;

	/* The worker's, but for those that unregister and look at what guests announce: they and its changes take the lock. */
	pthread_mutex_t guests_lock;
	struct wf_guest **guest;
	uint32_t guests, guest_room, guest_turn, others;

	struct wf_posted_receive *receive;
	uint32_t receives, receive_room, receive_first;

	struct wf_job job[WF_JOBS];
	uint32_t jobs, job_first;
	uint32_t posted; /* operations whose end was not read */

	/* What cards copy (cargo.c). The copiers' list has a lock: who registers memory makes one ready. */
	struct wf_devices *devices; /* NULL: cards are left alone */
	pthread_mutex_t copiers_lock;
	struct {
		struct wf_card *card;
		struct wf_copier *copier;
	} copier[WF_COPIERS];
	struct wf_cargo *cargo; /* as many as operations; made for the first */
	struct wf_flight *flight;
	uint32_t cargoes, flights;
	struct wf_link waiting, landed;
	_Atomic uint64_t card_bytes; /* that cards have copied; the worker alone writes it, relaxed */
	const char *why;             /* a card could not copy: the driver's word */
	uint64_t mapped_bytes;
	struct wf_local_end end[WF_LOCAL_OPS];
	uint32_t ends, end_first;
};

/* What a descriptor in the rail's epoll is. */
enum wf_watched { WF_WATCH_LISTENER, WF_WATCH_LINE, WF_WATCH_PROCESS, WF_WATCH_GUEST };
int wf_local_watch(struct wf_local *local, int fd, enum wf_watched what, uint32_t index);
/* Closes a socket that is watched, or may be, and sets it to -1. A child of ours may hold it too, so that closing it alone would not
 * end the watch. */
void wf_local_unwatch(struct wf_local *local, int *fd);

/* Returns the length of the name of the socket that listens at the address. */
socklen_t wf_local_socket_name(const uint8_t *address, struct sockaddr_un *ret_name);

/* line.c */
struct wf_line *wf_line_of(const struct wf_local *local, uint64_t target); /* NULL: there is none any more */
uint64_t wf_line_target(const struct wf_line *line);
int wf_line_ready(struct wf_line *line);                   /* 0: up; -EAGAIN: being connected; -EHOSTUNREACH */
void wf_line_break(struct wf_line *line, const char *why); /* what was posted there ends with an error */
void wf_line_free(struct wf_line *line);
void wf_line_readable(struct wf_line *line);      /* letters, or its end */
void wf_line_process_ended(struct wf_line *line); /* perhaps */
void wf_line_ring(struct wf_line *line);          /* wakes the reader of its pipe if that sleeps */

/* opened.c */
/* Returns 0 and the memory; -EAGAIN while its owner is asked; or why it refused. */
int wf_opened_find(struct wf_line *line, uint64_t key, struct wf_opened **ret_opened);
void wf_opened_answered(struct wf_line *line, const struct wf_letter *letter,
			int fd);             /* the descriptor stays the caller's */
void wf_opened_sweep(struct wf_line *line);  /* those that are over */
void wf_opened_forget(struct wf_line *line); /* all; no job uses them */

/* guest.c */
bool wf_local_is_other(int socket, pid_t *ret_pid); /* of another user than us and root; pid: 0 if it is not known */
void wf_guests_accept(struct wf_local *local);
void wf_guest_readable(struct wf_guest *guest);
void wf_guest_leave(struct wf_guest *guest); /* frees it */
int wf_guests_read(struct wf_local *local, struct wf_local_end *ends, int max);
bool wf_guests_any(const struct wf_local *local); /* something is unread; for a reader about to sleep */
void wf_guests_sweep(struct wf_local *local);
bool wf_guests_await(struct wf_local *local, uint32_t slot); /* none copies there any more; false: one is stuck */

/* copy.c */
void wf_copies_fail(struct wf_local *local, const struct wf_line *line, int status); /* NULL: of all lines, untold */
void wf_copies_tell_end(struct wf_local *local, void *context, int status);
/* Now, by the CPU, between memory of ours and the far memory, of the CPU both: as many bytes, or a negative errno. near and far have
 * the same lengths, WF_RANGES at most. */
#define WF_RANGES 64u
struct wf_far_ranges {
	bool read;
	uint32_t count;
	uint64_t bytes;
	struct iovec near[WF_RANGES], far[WF_RANGES];
};
int64_t wf_copies_now(struct wf_line *line, struct wf_opened *opened, const struct wf_far_ranges *ranges);

/* opened.c */
void wf_opened_used(struct wf_opened *opened); /* by one job less */

/* cargo.c */
int wf_cargo_post(struct wf_local *local, const struct wf_local_run *run, const struct wf_local_copy *copy);
void wf_cargo_go(struct wf_local *local);
void wf_cargo_fail(struct wf_local *local, const struct wf_line *line); /* NULL: all are taken back, untold */
/* Waits until what was taken back is over, a bounded time. False: a card is stuck. */
bool wf_cargo_settle(struct wf_local *local, uint64_t limit_ns);
void wf_cargo_close(struct wf_local *local);
#endif
