/*
 * Notes: what the engine's threads ask of a group's worker. A worker that takes a note never runs it inside the call that
 * sent it: a note to one's own group waits in a list until the worker hears it, later in the same turn.
 *
 * Applications post: a copy goes to the worker's inbox, which may be full. Workers tell: the note is part of the object it
 * is about, so telling allocates nothing and cannot fail. A note that was told and not heard yet is not told a second time;
 * its reader finds what the latest teller left in the object.
 */
#ifndef WF_ENGINE_NOTE_H
#define WF_ENGINE_NOTE_H

#include "base/mpsc.h"
#include "base/ring.h"

#include <stdint.h>

struct wf_group;

enum wf_note_kind {
	WF_NOTE_CONTROL,     /* a control request: run it */
	WF_NOTE_BEGIN,       /* transfer → its home */
	WF_NOTE_STOP,        /* transfer → its home: cancelled; value: its id */
	WF_NOTE_FAILED,      /* transfer → its home: a part of it has failed; counts among parts_left until heard */
	WF_NOTE_PART,        /* transfer → a group: take your part */
	WF_NOTE_PART_STOP,   /* transfer → a group; value: its id */
	WF_NOTE_PARTS_DONE,  /* transfer → its home */
	WF_NOTE_LANE_OPEN,   /* lane → its group */
	WF_NOTE_LANE_CLOSE,  /* lane → its group */
	WF_NOTE_LANE_CLOSED, /* peer → its home */
	WF_NOTE_LANE_BOOK,   /* lane → its group: the peer has a new address book */
	WF_NOTE_LANE_DOWN,   /* lane → its group: the peer is down; value: say hello at once */
	WF_NOTE_HEARD,       /* peer → its home; the note is part of a struct wf_heard_note, which is freed */
	WF_NOTE_SUSPECT,     /* peer → its home: the last path of a group to it has failed */
	WF_NOTE_ENDED,     /* peer → its home: its process has ended; value: our secret for the engine that it was */
	WF_NOTE_PATHS,     /* peer → its home: a path came or went */
	WF_NOTE_FRAME,     /* received frame → its sender's home; returned with RX_BACK */
	WF_NOTE_RX_BACK,   /* received frame → the group whose buffer it is in */
	WF_NOTE_SEND,      /* lane → its group; the note is part of a struct wf_frame_copy, which is freed */
	WF_NOTE_PEER,      /* peer → its home; value: enum wf_peer_change */
	WF_NOTE_CREDIT,    /* peer → its home: messages were read */
	WF_NOTE_COUNTED,   /* struct wf_counts → group 0 */
	WF_NOTE_SEAT_BACK, /* seat → its group: its rail was closed or opened beside the worker */
	WF_NOTE_LEGS,      /* peer → its home, with a reference: legs of its operations have something to do */
	WF_NOTE_PEER_GONE, /* peer → group 0: nothing is expected of it any more; value: why, as a positive errno */
};

struct wf_note {
	struct wf_node node; /* the receiver's list */
	void *object;
	_Atomic uint64_t value; /* the latest teller's */
	_Atomic bool told;      /* and not heard: the exchange by a teller pairs with the one by the reader */
	uint8_t kind;           /* enum wf_note_kind */
};

/* Own notes of a group, in order. Its worker's alone. */
struct wf_own_notes {
	struct wf_note *first, *last;
};

/* Once, before anybody can tell it. */
void wf_note_init(struct wf_note *note, enum wf_note_kind kind, void *object);

/* On the worker of from, or with NULL on a thread that is no worker. False: it was told before and has not been heard yet. */
bool wf_note_tell(struct wf_group *from, struct wf_group *to, struct wf_note *note);
bool wf_note_tell_value(struct wf_group *from, struct wf_group *to, struct wf_note *note, uint64_t value);

/* From an application's thread. False: the inbox is full. */
bool wf_group_post(struct wf_group *to, enum wf_note_kind kind, void *object, uint64_t value);

/* On the group's worker: runs what it was told, up to a bound. Returns how many; what is left is heard next time. */
int wf_group_hear(struct wf_group *group);
void wf_group_take_posted(void *group, const struct wf_item *posted); /* the worker's ops->note */

void wf_group_discard_notes(struct wf_group *group); /* after its worker has stopped */
#endif
