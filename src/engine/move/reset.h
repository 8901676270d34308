/*
 * Resetting a rail: its endpoints are closed, which makes what was posted there ours again, and opened again. The outgoing
 * endpoint alone is reset to take pieces back, which no peer notices; both are when the rail itself fails. On the group's worker.
 */
#ifndef WF_ENGINE_RESET_H
#define WF_ENGINE_RESET_H

#include "engine/move/seat.h"

/* When the seat opens. */
void wf_reset_init(struct wf_seat *seat);
/* Asks for a reset at the end of the turn. */
void wf_reset_ask(struct wf_seat *seat, enum wf_reset what, const char *why);
/* The same for the outgoing endpoint, when nothing is on it that anybody waits for. */
void wf_reset_ask_quietly(struct wf_seat *seat);
/* The same when a message is missing to a peer (greeting.h): at once, and then with growing pauses, for a peer can have it asked for as
 * often as it likes. What is asked for too soon is not done; the next greeting asks again. */
void wf_reset_ask_deaf(struct wf_seat *seat, const char *why);
/* The same, unless what was told to stop leaves the rail by itself meanwhile. */
void wf_reset_ask_to_stop(struct wf_seat *seat);
/* The last resort when wf_seat_ring() has nothing to ring with. */
void wf_reset_ask_unrung(struct wf_seat *seat);
/* The rail is back from the thread that closed or opened it. */
void wf_reset_back(struct wf_seat *seat);
/* At the end of a turn: resets the seat if that is due. */
void wf_reset_if_due(struct wf_seat *seat);
#endif
