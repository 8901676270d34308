/*
 * Completion queues: where everything that ends, arrives or changes is handed to the application. Workers push (never
 * fails, never waits); any application thread takes.
 */
#ifndef WF_ENGINE_QUEUE_H
#define WF_ENGINE_QUEUE_H

#include "base/list.h"
#include "base/mpsc.h"
#include "base/spin.h"
#include "weft.h"

#include <pthread.h>

struct wf_engine;

/* First member of everything that can be queued. take() fills the event; after that the item is the event's owner,
 * or gone. */
struct wf_item_event {
	struct wf_node node;
	void (*take)(struct wf_item_event *item, struct weft_event *event);
};

/* First member of everything that weft_event_release() frees. */
struct wf_payload {
	void (*release)(struct wf_payload *payload);
};

struct weft_queue {
	struct weft_engine *engine;
	struct wf_link link;      /* in the engine's list, under its lock */
	pthread_mutex_t consumer; /* between the application's own threads; workers never take it */
	struct wf_mpsc items;
	int fd;
	struct wf_spin spin; /* whether waits poll before they sleep */
	_Atomic int fd_used; /* the application polls the fd: keep it in step with the queue */
	_Atomic int waiters;
	_Atomic int closed;
	/* Written for every operation, on a cache line that a waiter does not read. */
	alignas(64) _Atomic uint64_t in_flight; /* operations that will end here */
	_Atomic uint32_t pushers;               /* threads other than workers that may be pushing an end */
	_Atomic int armed;                      /* someone sleeps, or will: wake by writing the fd */
};

int wf_queue_init(struct weft_engine *engine, weft_queue **ret_queue);
void wf_queue_free(weft_queue *queue); /* releases what was never taken */
void wf_queue_push(weft_queue *queue, struct wf_item_event *item);
/* Pushes the end of an operation counted in in_flight. On a worker, or counted among the pushers. */
void wf_queue_push_end(weft_queue *queue, struct wf_item_event *item);
/* event_bytes: the distance between two events of the program. */
int wf_queue_poll(weft_queue *queue, struct weft_event *events, size_t event_bytes, int max);
int wf_queue_wait(weft_queue *queue, struct weft_event *events, size_t event_bytes, int max, uint64_t timeout_ns);
/* Lets the item fill a program's event, whose size may differ from ours. */
void wf_item_take(struct wf_item_event *item, struct weft_event *event, size_t event_bytes);
int wf_queue_fd(weft_queue *queue);
/* Wakes every waiter with -ESHUTDOWN and waits until they have left. Returns false if one did not leave in time. */
bool wf_queue_shut(weft_queue *queue, uint64_t limit_ns);

/* A change of a peer or rail: an event of its own, allocated (they are rare). */
struct wf_announcement {
	enum weft_event_type type;
	int status;
	weft_peer peer;
	void *peer_user;
	const struct weft_error *error; /* copied; may be NULL */
};
void wf_queue_announce(weft_queue *queue, const struct wf_announcement *what);
/* Returns a copy of an error that weft_event_release() frees; NULL without memory: the status still says it. */
struct wf_payload *wf_error_payload(const struct weft_error *error, const struct weft_error **ret_error);
#endif
