/* Making manifests and sums, checking them in slices between turns, and verdicts; verify.h says who does
 * what. */
#include "engine/ops/verify.h"
#include "base/error.h"
#include "engine/core/engine.h"
#include "engine/core/remote.h"
#include "engine/peer/peer.h"
#include "engine/move/unit.h"
#include "engine/ops/transfer.h"
#include "wire/manifest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FEW_RANGES  16 /* whose list is not worth an allocation */
#define KEPT        64 /* verifications of a group, for the next */
#define UNIT_COST   1024u
#define SLICE_BYTES (256u << 10) /* hashed before the worker sees to its rails again; one unit at least */

_Static_assert(WF_MANIFEST_PAYLOAD == WEFT_NOTIFY_MAX, "a manifest carries any notification's payload");

/* ---- the sender's ---- */

static void list_slices(const struct wf_transfer *transfer, struct wf_manifest_range *ranges)
{
	for (uint32_t i = 0; i < transfer->slices; i++)
		ranges[i] =
		    (struct wf_manifest_range){ transfer->slice[i].remote->region, transfer->slice[i].remote->proof,
						transfer->slice[i].remote_offset, transfer->slice[i].bytes };
}

static int pack(struct wf_transfer *transfer, const struct wf_manifest *manifest)
{
	size_t bytes = wf_manifest_bytes(manifest);

	if (bytes > transfer->engine->settings.max_message)
		return -EMSGSIZE;
	if (!wf_transfer_manifest_room(transfer, bytes))
		return -ENOMEM;
	wf_manifest_pack(manifest, transfer->manifest);
	transfer->judged = true;
	transfer->message.type = WF_MESSAGE_MANIFEST;
	transfer->message.subject = transfer->id;
	transfer->message.data = transfer->manifest;
	transfer->message.bytes = bytes;
	return 0;
}

static int make_of_pages(struct wf_transfer *transfer, struct wf_manifest *manifest)
{
	const struct wf_slice *slice = transfer->slice;

	manifest->paged = true;
	manifest->count = transfer->units / transfer->cuts;
	manifest->page = (struct wf_manifest_range){ slice->remote->region, slice->remote->proof, slice->remote_offset,
						     transfer->page_bytes };
	manifest->stride = transfer->remote_stride;
	manifest->list = transfer->remote_index;
	if (transfer->cuts == 1)
		manifest->unit_bytes = transfer->page_bytes ? transfer->page_bytes : 1;
	/* Pages that overlap have no one right content. */
	if (manifest->count && manifest->stride < transfer->page_bytes)
		return -EINVAL;
	return pack(transfer, manifest);
}

/* Nothing is summed: the word is all there is to it. */
static int pack_word(struct wf_transfer *transfer, struct wf_manifest *manifest)
{
	manifest->unit_bytes = 1;
	return pack(transfer, manifest);
}

int wf_manifest_make(struct wf_transfer *transfer, const struct weft_op *op)
{
	struct wf_manifest manifest = { .unit_bytes = transfer->unit_bytes,
					.payload = op->notify_payload,
					.payload_bytes = op->notify_bytes };
	struct wf_manifest_range few[FEW_RANGES], *ranges = few;
	int error = op->notify_word ? wf_words_name(transfer, op, &manifest) : 0;

	if (error)
		return error;
	if (!transfer->checked)
		return manifest.has_word ? pack_word(transfer, &manifest) : 0;
	if (transfer->paged)
		return make_of_pages(transfer, &manifest);
	if (transfer->slices > FEW_RANGES)
		ranges = malloc(transfer->slices * sizeof(*ranges));
	if (!ranges)
		return -ENOMEM;
	list_slices(transfer, ranges);
	manifest.count = transfer->slices;
	manifest.list = ranges;
	error = pack(transfer, &manifest);
	if (ranges != few)
		free(ranges);
	return error;
}

uint64_t wf_sum_units(const struct wf_transfer *transfer, uint64_t first, uint64_t units)
{
	uint64_t sum = 0;
	uint32_t at = 0;

	for (uint64_t unit = first; unit < first + units; unit++) {
		const struct wf_slice *slice = wf_slice_of(transfer, unit, &at);
		struct wf_extent extent = wf_unit_extent(transfer, slice, unit, 1);

		sum += wf_manifest_hash(slice->region->base + slice->local + extent.local, extent.bytes, unit);
	}
	return sum;
}

void wf_verdict_arrived(struct wf_inbound *inbound)
{
	struct wf_transfer *transfer = wf_transfer_asked(inbound, WF_WRITE);
	int status = inbound->status;

	if (!transfer) /* whose notification writes a word */
		transfer = wf_transfer_asked(inbound, WF_READ);
	if (transfer && transfer->judged && !transfer->moving)
		wf_transfer_end(transfer, status == 0 || status == -EBADMSG ? status : -EREMOTEIO);
	wf_inbound_free(inbound);
}

/* ---- the receiver's ---- */

struct verification {
	struct wf_link link;        /* peer->verdicts; group->verifying while it is being checked */
	struct wf_peer *peer;       /* referenced */
	struct wf_inbound *inbound; /* NULL: delivered */
	struct verification *kept;  /* while it is nobody's: the next such */
	struct wf_manifest manifest;
	struct wf_manifest_walk walk;
	_Atomic uint64_t *word; /* where to store; NULL: nowhere */
	uint64_t sum;
	int status;
	bool judged; /* status is the verdict */
	bool sent;   /* the channel has the message */
	/* the verdict: of our own, since all transfers may be waiting for verdicts of the peer's */
	struct wf_message message;
};

/* On the home, all of it: nothing is shared. */
static struct verification *take(struct wf_group *group)
{
	struct verification *kept = group->verifications;

	if (!kept)
		return calloc(1, sizeof(*kept));
	group->verifications = kept->kept;
	group->verifications_kept--;
	memset(kept, 0, sizeof(*kept));
	return kept;
}

static void give(struct wf_group *group, struct verification *verification)
{
	if (group->verifications_kept == KEPT) {
		free(verification);
		return;
	}
	verification->kept = group->verifications;
	group->verifications = verification;
	group->verifications_kept++;
}

void wf_verify_free(struct wf_group *group)
{
	while (group->verifications)
		free(take(group));
}

static void end(struct verification *verification)
{
	struct wf_peer *peer = verification->peer;

	if (peer->verifying == &verification->link)
		peer->verifying = NULL;
	wf_list_remove(&verification->link);
	wf_list_remove(&verification->message.link);
	if (verification->inbound)
		wf_inbound_free(verification->inbound);
	if (verification->sent)
		atomic_fetch_sub(&peer->engine->owed, 1);
	peer->verifications--;
	give(peer->home, verification);
	wf_handle_put(&peer->engine->peers, peer->handle);
}

static void verdict_over(struct wf_message *message, int status)
{
	end(wf_container(message, struct verification, message));
}

/* One at a time per peer: a peer that asks for much waits for itself. */
static void check_next(struct wf_peer *peer)
{
	struct wf_link *link = peer->verdicts.next;

	while (!peer->verifying && link != &peer->verdicts) {
		if (!wf_container(link, struct verification, link)->sent) {
			peer->verifying = link;
			wf_list_remove(link);
			wf_list_append(&peer->home->verifying, link);
			return;
		}
		link = link->next;
	}
}

/* Memory that the CPU may read and a peer may have written and named rightly: it has the descriptor. Whatever is wrong looks the same to it.
 * Safe for this turn without a reference: a region that closes is not found any more, and every worker takes part in the close,
 * in a later turn, before it and its memory are given back. */
static const void *memory_at(struct weft_engine *engine, const struct wf_manifest_range *range)
{
	const struct wf_region *region = wf_handle_peek(&engine->regions, range->region);

	if (!region || region->device || region->proof != range->proof || atomic_load(&region->revoked) ||
	    !(region->access & WEFT_REMOTE_WRITE) || range->bytes > region->bytes ||
	    range->offset > region->bytes - range->bytes)
		return NULL;
	return region->base + range->offset;
}

/* True: all of it is summed, or it cannot be. */
static bool sum_slice(struct verification *verification)
{
	struct wf_manifest_unit unit;
	const void *memory;

	/* A unit counts for what looking at it costs, however small it is. */
	for (uint64_t hashed = 0; hashed<SLICE_BYTES; hashed += unit.at.bytes> UNIT_COST ? unit.at.bytes : UNIT_COST) {
		if (!wf_manifest_next(&verification->manifest, &verification->walk, &unit)) {
			verification->status = verification->sum == verification->manifest.sum ? 0 : -EBADMSG;
			return verification->judged = true;
		}
		memory = memory_at(verification->peer->engine, &unit.at);
		if (!memory) {
			verification->status = -ERANGE;
			return verification->judged = true;
		}
		verification->sum += wf_manifest_hash(memory, unit.at.bytes, unit.number);
	}
	return false;
}

/* A difference each time; of what a peer makes up each time twice as many, so that it does not fill the log. */
static void log_refusal(struct wf_group *group, int status)
{
	uint64_t count = status == -EBADMSG ? 1 : ++group->forged;

	if (status == -EBADMSG)
		wf_log(&group->engine->log, WEFT_LOG_ERROR,
		       "a checked write did not arrive as it was sent: %s; nobody is notified", wf_error_text(status));
	else if (!(count & (count - 1)))
		wf_log(
		    &group->engine->log, WEFT_LOG_ERROR,
		    "a notification names memory that its sender may not write: %s; nobody is notified (%llu so far)",
		    wf_error_text(status), (unsigned long long)count);
}

static void deliver(struct verification *verification)
{
	struct wf_inbound *inbound = verification->inbound;
	struct weft_engine *engine = verification->peer->engine;

	verification->inbound = NULL;
	if (verification->status) {
		log_refusal(verification->peer->home, verification->status);
		wf_inbound_free(inbound);
		return;
	}
	inbound->event_type = WEFT_EVENT_NOTIFY;
	inbound->content = verification->manifest.payload;
	inbound->bytes = verification->manifest.payload_bytes;
	/* Release: who sees the word sees what landed. */
	if (verification->word)
		atomic_store_explicit(verification->word, verification->manifest.word_value, memory_order_release);
	if (verification->word && !atomic_load(&engine->listener_given))
		wf_inbound_free(inbound); /* nobody would ever take the event, and the peer's window would fill */
	else
		wf_queue_push(atomic_load(&engine->listener), &inbound->item);
}

static void send_verdict(struct verification *verification)
{
	struct wf_peer *peer = verification->peer;

	verification->sent = true;
	atomic_fetch_add(&peer->engine->owed, 1);
	verification->message.status = verification->status;
	wf_list_remove(&verification->link);
	wf_list_append(&peer->verdicts, &verification->link);
	if (peer->verifying == &verification->link)
		peer->verifying = NULL;
	check_next(peer);
	wf_channel_queue(peer, &verification->message);
}

/* The word is stored in this very turn, so that its memory is still there. */
static void find_word(struct verification *verification)
{
	const struct wf_manifest *manifest = &verification->manifest;
	const void *word = memory_at(verification->peer->engine, &manifest->word);

	if (word && (uintptr_t)word % sizeof(uint64_t) == 0)
		verification->word = (_Atomic uint64_t *)(uintptr_t)word;
	else
		verification->status = -ERANGE;
}

/* It is judged but for its word. */
static void pass(struct verification *verification)
{
	if (!verification->status && verification->manifest.has_word)
		find_word(verification);
	/* The verdict first: an application that closes its engine upon the notification owes it by then, and close waits for it. */
	send_verdict(verification);
	deliver(verification);
}

int wf_verify_turn(struct wf_group *group)
{
	struct verification *verification;

	/* Peers in turn: nobody waits for what another one wrote. */
	verification = wf_container(group->verifying.next, struct verification, link);
	wf_list_remove(&verification->link);
	wf_list_append(&group->verifying, &verification->link);
	if (!verification->judged && !sum_slice(verification))
		return 1;
	pass(verification);
	return 1;
}

void wf_manifest_arrived(struct wf_inbound *inbound)
{
	struct wf_peer *peer = inbound->peer;
	struct verification *verification = NULL;

	/* Without memory for it, or for a peer that does not take our verdicts, there is none: the sender's deadline ends it. */
	if (peer->verifications < peer->engine->settings.window_frames)
		verification = take(peer->home);
	if (!verification) {
		wf_inbound_free(inbound);
		return;
	}
	wf_handle_ref(&peer->engine->peers, peer->handle);
	peer->verifications++;
	verification->peer = peer;
	verification->inbound = inbound;
	verification->message = (struct wf_message){ .type = WF_MESSAGE_VERDICT,
						     .subject = inbound->subject,
						     .data = (const uint8_t *)"",
						     .over = verdict_over };
	wf_list_init(&verification->message.link);
	verification->status = wf_manifest_unpack(inbound->data, inbound->bytes, &verification->manifest);
	/* More than there is to write to: it names memory twice, and would keep us busy at will. */
	if (!verification->status && verification->manifest.bytes > atomic_load(&peer->engine->region_bytes))
		verification->status = -ERANGE;
	verification->judged = verification->status;
	wf_list_init(&verification->link);
	if (!verification->status &&
	    !verification->manifest.count) { /* only a word: in order with what was sent before */
		verification->status = verification->manifest.sum ? -EBADMSG : 0;
		pass(verification);
		return;
	}
	wf_list_append(&peer->verdicts, &verification->link);
	check_next(peer);
}

static void drop(struct wf_link *list, const struct wf_peer *peer)
{
	struct wf_link *link = list->next;

	while (link != list) {
		struct verification *verification = wf_container(link, struct verification, link);

		link = link->next;
		if (verification->peer == peer)
			end(verification);
	}
}

void wf_verify_drop(struct wf_peer *peer)
{
	drop(&peer->home->verifying, peer);
	drop(&peer->verdicts, peer);
}
