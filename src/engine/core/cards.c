/*
 * Probing and checking; cards.h says for whom. Peers of this host reach a card's memory over the local rail, others over NICs that
 * reach it themselves and gave keys, or where none did through rooms; our own operations take ours over other NICs too, through chunks
 * (docs/decisions/18-device-memory.md).
 */
#include "engine/core/cards.h"
#include "base/error.h"
#include "device/device.h"
#include "engine/core/engine.h"
#include "engine/core/remote.h"
#include "engine/core/rooms.h"
#include "engine/ops/explain.h"
#include "engine/ops/transfer.h"
#include "engine/peer/label.h"
#include "engine/peer/peer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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

/* ---- what the rails do for it ---- */

/* Why the NIC does not move it itself. */
static void explain_rail(const struct wf_seat *seat, const struct wf_rail_memory *memory, char *text, size_t room)
{
	const char *why = wf_rail_no_hmem(seat->rail);

	if (why)
		snprintf(text, room, "rail %s does not reach it: %s", seat->nic->name, why);
	else
		snprintf(text, room, "rail %s does not reach it: registering it there: %s", seat->nic->name,
			 strerror(-memory->refused));
}

/* Our first NIC that does not move it itself; NULL: all do. */
static const struct wf_seat *not_direct(const struct weft_engine *engine, const struct wf_region *region)
{
	for (uint32_t i = 0; i < engine->rails; i++)
		if (!engine->seat[i]->limits.local && !region->memory[i].mr)
			return engine->seat[i];
	return NULL;
}

/* Whether any NIC takes our end, by itself or through chunks. */
static bool is_carried(const struct weft_engine *engine, const struct wf_region *region)
{
	for (uint32_t i = 0; i < engine->rails; i++)
		if (!engine->seat[i]->limits.local && (region->memory[i].mr || region->memory[i].desc))
			return true;
	return false;
}

static bool is_staged(const struct weft_engine *engine, const struct wf_region *region)
{
	for (uint32_t i = 0; i < engine->rails; i++)
		if (!engine->seat[i]->limits.local && !region->memory[i].mr && region->memory[i].desc)
			return true;
	return false;
}

/* Our first NIC says why it does not. */
static int refuse_offer(struct wf_region *region)
{
	struct weft_engine *engine = region->engine;
	char why[320], rail[192] = "there is no NIC";

	for (uint32_t i = engine->rails; i-- > 0;)
		if (!engine->seat[i]->limits.local)
			explain_rail(engine->seat[i], &region->memory[i], rail, sizeof(rail));
	snprintf(why, sizeof(why),
		 "cannot be offered to peers: %s; there is no pinned memory for what comes by NICs, and this engine "
		 "has no local rail (WEFT_WITH_LOCAL, or provider \"local\")",
		 rail);
	return refuse(engine, why);
}

int wf_cards_offer(struct wf_region *region)
{
	struct weft_engine *engine = region->engine;

	if (!region->device || !region->access)
		return 0;
	for (uint32_t i = 0; i < engine->rails; i++)
		if (!engine->seat[i]->limits.local && region->memory[i].mr)
			return 0; /* its key is enough */
	region->lands = !wf_rooms_open(engine, region->device->card);
	return region->lands || wf_engine_has_local(engine) ? 0 : refuse_offer(region);
}

/* What the peer's rails are: whether any is a local one of this host, and whether any NIC has a key of the memory. */
static void look_at_peer(struct wf_peer *peer, const struct wf_remote *remote, bool *ret_here, bool *ret_keys)
{
	*ret_here = *ret_keys = false;
	pthread_mutex_lock(&peer->engine->directory_lock);
	for (uint32_t i = 0; i < peer->book->count; i++) {
		if (!peer->book->rail[i].reachable)
			continue;
		*ret_here |= peer->book->rail[i].local;
		*ret_keys |= !peer->book->rail[i].local && remote->rails >> i & 1;
	}
	pthread_mutex_unlock(&peer->engine->directory_lock);
}

/* ---- operations ---- */

/* With WEFT_REQUIRE_DIRECT it is accepted, and its end says why it was not begun. */
static int not_so(struct wf_transfer *transfer, const char *why)
{
	struct weft_error error = { .scope = WEFT_SCOPE_OPERATION, .hint = wf_error_hint(-EOPNOTSUPP) };

	if (!transfer->direct_only)
		return refuse(transfer->engine, why);
	wf_peer_name(transfer->peer, error.peer);
	snprintf(error.text, sizeof(error.text), "WEFT_REQUIRE_DIRECT: a card's memory %.200s", why);
	wf_transfer_set_error(transfer, &error);
	transfer->refused = -EOPNOTSUPP;
	return 0;
}

/* The local rail carries it, whatever the NICs can do. */
static int check_here(struct wf_transfer *transfer, const struct wf_slice *slice)
{
	bool both = slice->region->device && slice->remote->cards;

	if (transfer->direct_only)
		return not_so(transfer, "goes over the local rail: the peer is of this host");
	transfer->cards_both = both && (!transfer->cards || transfer->cards_both);
	transfer->cards = transfer->cards_here = transfer->tiled = true;
	return 0;
}

static int check_nics(struct wf_transfer *transfer, const struct wf_slice *slice, bool keys)
{
	struct weft_engine *engine = transfer->engine;
	const struct wf_seat *seat = slice->region->device ? not_direct(engine, slice->region) : NULL;
	char why[192];

	if (slice->remote->lands && transfer->direct_only)
		return not_so(transfer, "of that peer is reached through its pinned memory: none of its NICs gave a "
					"key, and its log says why");
	if (slice->remote->cards && !slice->remote->lands && !keys)
		return not_so(transfer, "of a peer of another host is reached by NICs alone; the peer's gave no key, "
					"and it has no pinned memory for it: its log says why");
	if (seat && transfer->direct_only) {
		explain_rail(seat, &slice->region->memory[seat->index], why, sizeof(why));
		return not_so(transfer, why);
	}
	if (seat && !is_carried(engine, slice->region))
		return not_so(transfer, "takes the local rail alone here, and the peer is not of this host");
	transfer->lands |= slice->remote->lands;
	if (seat) /* else NICs move it as they move the CPU's */
		transfer->cards = transfer->tiled = true;
	return 0;
}

int wf_cards_check(struct wf_transfer *transfer, const struct wf_slice *slice)
{
	const struct wf_device_memory *near = slice->region->device;
	bool here, keys;

	if (transfer->checked)
		return refuse(transfer->engine, "is not read by the CPU: no WEFT_CHECKSUM");
	if (near && !wf_device_memory_same(near)) {
		wf_log(&transfer->engine->log, WEFT_LOG_WARN,
		       "refused: the card's memory that was registered has been freed since");
		return -ESTALE;
	}
	transfer->carded = true;
	look_at_peer(transfer->peer, slice->remote, &here, &keys);
	return here && wf_engine_has_local(transfer->engine) ? check_here(transfer, slice)
							     : check_nics(transfer, slice, keys);
}

bool wf_cards_differ(const struct weft_engine *engine, const struct wf_region *region)
{
	return region->device && not_direct(engine, region);
}

uint64_t wf_cards_reach(const struct wf_transfer *transfer, const struct wf_slice *slice)
{
	/* Between cards of this host no NIC carries it. */
	if (!is_staged(transfer->engine, slice->region) || (transfer->cards_here && slice->remote->cards))
		return UINT64_MAX;
	return WF_DEVICE_CHUNK;
}

static uint32_t ways_of(const struct wf_seat *seat, const struct wf_slice *slice)
{
	if (slice->region->device && !slice->region->memory[seat->index].mr)
		return WEFT_WAY_STAGED;
	return slice->region->device || slice->remote->cards ? WEFT_WAY_DIRECT : WEFT_WAY_HOST;
}

uint32_t wf_cards_ways(const struct wf_seat *seat, const struct wf_transfer *transfer)
{
	uint32_t ways = 0;

	if (seat->limits.local)
		return WEFT_WAY_LOCAL;
	for (uint32_t i = 0; i < transfer->slices; i++)
		ways |= ways_of(seat, &transfer->slice[i]);
	return ways;
}
