/*
 * A peer's address book: where each of its rails is reached, at one revision, and the secret that goes there and nowhere else.
 * A book never changes, except for its targets, which belong to the lanes. Made by the directory, shared by the peer's lanes.
 */
#ifndef WF_ENGINE_BOOK_H
#define WF_ENGINE_BOOK_H

#include "rail/rail.h"
#include "wire/blob.h"

struct weft_engine;

/* Who says that the peer lives there. The application's word is taken, and so is a greeting's that was proved by a secret sent
 * there. A stranger has proved one of its rails and claims the others. */
enum wf_word {
	WF_WORD_APPLICATION,
	WF_WORD_PROVED, /* a stranger's, as it came: one of these rails is its own */
	WF_WORD_MOVED,  /* a stranger's, since then: none may be */
};

struct wf_book {
	_Atomic uint32_t references;
	uint32_t revision, count;
	uint64_t number; /* counts the peer's books: a lane never goes back to an older one */
	uint64_t secret; /* ours for the engine that lives there. A lane uses the secret of its own book */
	enum wf_word word;
	struct wf_target *targets; /* our rails × its rails, by group: each lane has its own part and writes it */
	struct {
		uint32_t format, serial;
		uint8_t bytes;
		bool reachable; /* same provider as ours; or local, and of this host */
		bool local;
		bool looks; /* must be told to look while it is written to */
		uint8_t address[WF_MAX_RAIL_ADDRESS];
	} rail[];
};

/* The peer's rail j in the address vectors of seat i, by endpoint. */
struct wf_target {
	uint64_t target[WF_ENDS];
	uint32_t generation[WF_ENDS]; /* of the seat's endpoint it was inserted in; 0: it was not */
	uint8_t unheard;              /* hellos that have left the outgoing endpoint since a frame to it failed */
	uint32_t routes;              /* group->routes when the route was asked for; 0: it was not */
	uint32_t device;              /* that route leaves by; 0: none */
	uint8_t route;                /* enum wf_route */
	uint64_t since_ns;            /* when a stranger's was inserted (trial.c) */
	bool asked, answered;         /* by a hello */
	uint32_t question;            /* of its hello that waits for an answer */
	uint32_t grant_question;      /* of its latest question about immediates */
};

struct wf_book *wf_book_make(struct weft_engine *engine, const struct wf_wire_address *address, uint64_t secret,
			     enum wf_word word);
bool wf_book_has(const struct wf_book *book, const struct wf_wire_address *address, uint32_t rail); /* there, in both */
bool wf_book_is(const struct wf_book *book,
		const struct wf_wire_address *address); /* every rail, at the same revision */
void wf_book_put(struct wf_book *book);
#endif
