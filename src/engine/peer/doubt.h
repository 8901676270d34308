/*
 * Doubt: whether a silent peer whose rails are sockets is dead, asked of its kernel. Owns the peer's knock and its timer. On the
 * peer's home.
 */
#ifndef WF_ENGINE_DOUBT_H
#define WF_ENGINE_DOUBT_H

#include "worker/timer.h"

struct wf_peer;

void wf_peer_suspect(struct wf_peer *peer); /* it may be dead: find out */
void wf_peer_trust(struct wf_peer *peer);   /* no more of that */
void wf_peer_doubt(struct wf_timer *timer, uint64_t now_ns);
#endif
