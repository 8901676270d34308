/* What the application calls a peer: its name and user pointer. They are the peer's; any thread sets and reads them. */
#ifndef WF_ENGINE_LABEL_H
#define WF_ENGINE_LABEL_H

#include "weft.h"

struct wf_peer;

#define WF_LABEL_BYTES 96

void wf_peer_name(struct wf_peer *peer, char name[WEFT_PEER_NAME_MAX + 1]);  /* "": it has none */
const char *wf_peer_label(struct wf_peer *peer, char label[WF_LABEL_BYTES]); /* for the log: its name and handle */
void wf_peer_set_label(struct wf_peer *peer, const struct weft_peer_config *config); /* NULL: as before */
int wf_peer_set(struct weft_engine *engine, weft_peer handle, const struct weft_peer_config *config);
#endif
