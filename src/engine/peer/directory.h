/*
 * The directory: peers by incarnation; adding, removing and replacing them, and the one place where a peer's address book is
 * swapped. Any thread; what happens to a peer then is its home's (peer.h).
 */
#ifndef WF_ENGINE_DIRECTORY_H
#define WF_ENGINE_DIRECTORY_H

#include "engine/peer/book.h"

struct wf_group;
struct wf_lane;
struct wf_peer;

/* By the application; config may be NULL. */
int wf_peer_add(struct weft_engine *engine, const struct wf_wire_address *address,
		const struct weft_peer_config *config, weft_peer *ret_peer);
/* By a stranger's hello, on the worker that it arrived at: the secret of ours that proved it, and its own for us. */
int wf_peer_add_stranger(struct wf_group *from, const struct wf_wire_address *address, uint64_t secret, uint64_t theirs,
			 weft_peer *ret_peer);
struct wf_peer *wf_peer_find(struct weft_engine *engine, uint64_t incarnation); /* referenced; NULL: no such peer */
int wf_peer_remove(struct weft_engine *engine, weft_peer handle);
int wf_peer_replace(struct weft_engine *engine, weft_peer handle, const struct wf_wire_address *address);
/* Its rails have new addresses, by a greeting that this lane received. */
void wf_peer_moved(struct wf_lane *lane, const struct wf_wire_address *address);
uint32_t wf_peer_rails(struct wf_peer *peer);       /* how many it has. Any thread */
struct wf_book *wf_peer_book(struct wf_peer *peer); /* the latest, referenced. Any thread */
/* Its handle is refused from now on, and a hello from there is a stranger's. True: we did it. Any thread. */
bool wf_peer_retire(struct wf_peer *peer, bool stranger_only);
void wf_peer_release(void *peer);
#endif
