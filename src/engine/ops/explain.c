/* What a failed operation says in words. On the worker that saw the cause, and on the one that ends it. */
#include "engine/ops/explain.h"
#include "base/error.h"
#include "engine/core/engine.h"
#include "engine/ops/transfer.h"
#include "engine/peer/label.h"
#include "engine/peer/peer.h"

#include <errno.h>
#include <stdio.h>

void wf_transfer_set_error(struct wf_transfer *transfer, const struct weft_error *error)
{
	if (!transfer->error)
		transfer->error_payload = wf_error_payload(error, &transfer->error);
}

static void name_peer(const struct wf_transfer *transfer, struct weft_error *error)
{
	struct wf_handles *peers = &transfer->engine->peers;
	struct wf_peer *peer = transfer->peer;

	if (peer) {
		wf_peer_name(peer, error->peer);
	} else if (transfer->peer_handle && (peer = wf_handle_get(peers, transfer->peer_handle))) {
		/* An expectation's: it holds no reference, and all else that the peer says of itself is its home's. */
		wf_peer_name(peer, error->peer);
		wf_handle_put(peers, transfer->peer_handle);
	}
}

/* The worker that saw the cause may have said it better already. */
void wf_transfer_describe(const struct wf_transfer *transfer, int status, struct weft_error *ret_error)
{
	struct wf_peer *peer = transfer->peer;

	if (transfer->error) {
		*ret_error = *transfer->error;
		return;
	}
	*ret_error = (struct weft_error){ .scope = WEFT_SCOPE_OPERATION, .hint = wf_error_hint(status) };
	name_peer(transfer, ret_error);
	snprintf(ret_error->text, sizeof(ret_error->text), "%s", wf_error_text(status));
	if (status == -EHOSTDOWN) {
		ret_error->scope = WEFT_SCOPE_PEER;
		if (peer && peer->down_text[0])
			snprintf(ret_error->text, sizeof(ret_error->text), "%s: %s", wf_error_text(status),
				 peer->down_text);
	}
	if (status == -ETIMEDOUT && peer && atomic_load(&peer->state) == WF_PEER_CONNECTING) {
		ret_error->scope = WEFT_SCOPE_PEER;
		snprintf(ret_error->text, sizeof(ret_error->text), "deadline passed: the peer never answered");
	}
}
