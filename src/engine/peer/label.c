/* What the application calls a peer (label.h). The lock is held for a copy of 64 bytes. */
#include "engine/peer/label.h"
#include "engine/core/engine.h"
#include "engine/peer/peer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void wf_peer_name(struct wf_peer *peer, char name[WEFT_PEER_NAME_MAX + 1])
{
	pthread_mutex_lock(&peer->engine->name_lock);
	memcpy(name, peer->name, sizeof(peer->name));
	pthread_mutex_unlock(&peer->engine->name_lock);
}

const char *wf_peer_label(struct wf_peer *peer, char label[WF_LABEL_BYTES])
{
	char name[WEFT_PEER_NAME_MAX + 1];

	wf_peer_name(peer, name);
	snprintf(label, WF_LABEL_BYTES, name[0] ? "%s (%llx)" : "%s%llx", name, (unsigned long long)peer->handle);
	return label;
}

void wf_peer_set_label(struct wf_peer *peer, const struct weft_peer_config *config)
{
	if (!config)
		return;
	pthread_mutex_lock(&peer->engine->name_lock);
	snprintf(peer->name, sizeof(peer->name), "%s", config->name ? config->name : "");
	pthread_mutex_unlock(&peer->engine->name_lock);
	atomic_store(&peer->user, config->user);
}

int wf_peer_set(struct weft_engine *engine, weft_peer handle, const struct weft_peer_config *config)
{
	struct wf_peer *peer = wf_handle_get(&engine->peers, handle);

	if (!peer)
		return -ENOENT;
	wf_peer_set_label(peer, config);
	wf_handle_put(&engine->peers, handle);
	return 0;
}
