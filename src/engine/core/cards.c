/* Probing and checking; cards.h says for whom. Peers of this host reach a card's memory over the local rail, others through rooms; our own
 * operations take ours over NICs through chunks (docs/decisions/18-device-memory.md). */
#include "engine/core/cards.h"
#include "device/device.h"
#include "engine/core/engine.h"
#include "engine/core/remote.h"
#include "engine/core/rooms.h"
#include "engine/ops/transfer.h"
#include "engine/peer/peer.h"

#include <errno.h>

static int refuse(struct weft_engine *engine, const char *why)
{
	wf_log(&engine->log, WEFT_LOG_WARN, "refused: a card's memory %s", why);
	return -EOPNOTSUPP;
}

int wf_cards_probe(struct weft_engine *engine, const void *base, uint64_t bytes, uint64_t *groups,
		   struct wf_device_memory **ret_device)
{
	struct wf_device_memory *device;
	enum wf_device_kind kind;
	int group, error = wf_device_probe(engine->devices, base, bytes, &kind, &device);

	if (error || !device) {
		if (error)
			wf_log(&engine->log, WEFT_LOG_WARN,
			       "registering %llu bytes: they are no allocation of a card's, nor memory of the CPU's",
			       (unsigned long long)bytes);
		*ret_device = NULL;
		return error;
	}
	group = *groups ? -ENOENT : wf_layout_group_near(&engine->layout, wf_card_pci(device->card));
	if (group >= 0)
		*groups = UINT64_C(1) << group;
	*ret_device = device;
	return 0;
}

int wf_cards_offer(struct wf_region *region)
{
	region->lands = !wf_rooms_open(region->engine, region->device->card);
	if (region->lands || wf_engine_has_local(region->engine))
		return 0;
	return refuse(region->engine,
		      "cannot be offered to peers: there is no pinned memory for what comes by NICs, and "
		      "this engine has no local rail (WEFT_WITH_LOCAL, or provider \"local\")");
}

/* Whether any of its rails is a local one of this host. */
static bool is_here(struct wf_peer *peer)
{
	bool here = false;

	pthread_mutex_lock(&peer->engine->directory_lock);
	for (uint32_t i = 0; i < peer->book->count; i++)
		here |= peer->book->rail[i].local && peer->book->rail[i].reachable;
	pthread_mutex_unlock(&peer->engine->directory_lock);
	return here;
}

/* Whether any NIC takes our end through chunks. */
static bool is_staged(const struct weft_engine *engine, const struct wf_region *region)
{
	for (uint32_t i = 0; i < engine->rails; i++)
		if (!engine->seat[i]->limits.local && region->memory[i].desc)
			return true;
	return false;
}

int wf_cards_check(struct wf_transfer *transfer, const struct wf_slice *slice)
{
	const struct wf_device_memory *near = slice->region->device;
	bool both = near && slice->remote->cards, here;

	if (transfer->checked)
		return refuse(transfer->engine, "is not read by the CPU: no WEFT_CHECKSUM");
	if (near && !wf_device_memory_same(near)) {
		wf_log(&transfer->engine->log, WEFT_LOG_WARN,
		       "refused: the card's memory that was registered has been freed since");
		return -ESTALE;
	}
	here = wf_engine_has_local(transfer->engine) && is_here(transfer->peer);
	if (near && !here && !is_staged(transfer->engine, slice->region))
		return refuse(transfer->engine, "takes the local rail alone here, and the peer is not of this host");
	if (slice->remote->cards && !here && !slice->remote->lands)
		return refuse(transfer->engine, "is reached over the local rail alone, and its owner is not of this "
						"host: write to memory of its CPU");
	transfer->lands |= slice->remote->cards && !here;
	transfer->cards_both = both && (!transfer->cards || transfer->cards_both);
	transfer->cards = transfer->tiled = true;
	return 0;
}
