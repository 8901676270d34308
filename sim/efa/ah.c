/*
 * Address handles: a number per GID and card. A receiver's completions carry the number that its own card has for the
 * sender, or none. Any thread; found while polling.
 */
#include "card.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NO_AH 0xffff

static uint32_t first_slot(const uint8_t gid[16])
{
	uint64_t hash;

	memcpy(&hash, gid + 8, sizeof hash);
	return (uint32_t)((hash * 0x9e3779b97f4a7c15ull) >> 40) % CARD_AHS;
}

/* The slot of this GID, or where it would go; CARD_AHS when all are taken. */
static uint32_t slot_of(struct card *card, const uint8_t gid[16])
{
	uint32_t at = first_slot(gid), room = CARD_AHS;

	for (uint32_t i = 0; i < CARD_AHS; i++, at = (at + 1) % CARD_AHS) {
		struct ah_slot *slot = &card->ahs[at];

		if (slot->users && !memcmp(slot->gid.raw, gid, 16))
			return at;
		if (!slot->users && room == CARD_AHS)
			room = at;
		if (!slot->used)
			break;
	}
	return room;
}

uint16_t ah_number(struct card *card, const uint8_t gid[16])
{
	uint32_t at = slot_of(card, gid);

	if (at == CARD_AHS || !card->ahs[at].users || memcmp(card->ahs[at].gid.raw, gid, 16))
		return NO_AH;
	return (uint16_t)at;
}

API struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct card *card = card_of(pd->context);
	struct address_handle *ah = calloc(1, sizeof *ah);
	uint32_t at;

	if (!ah || !attr->is_global) {
		free(ah);
		errno = ah ? EINVAL : ENOMEM;
		return NULL;
	}
	pthread_mutex_lock(&card->lock);
	at = slot_of(card, attr->grh.dgid.raw);
	if (at < CARD_AHS) {
		card->ahs[at].gid = attr->grh.dgid;
		card->ahs[at].used = true;
		card->ahs[at].users++;
	}
	pthread_mutex_unlock(&card->lock);
	if (at == CARD_AHS) {
		free(ah);
		errno = ENOMEM;
		return NULL;
	}
	ah->base.context = pd->context;
	ah->base.pd = pd;
	ah->base.handle = at;
	ah->gid = attr->grh.dgid;
	ah->number = (uint16_t)at;
	atomic_fetch_add(&CONTAINER_OF(pd, struct protection_domain, base)->users, 1);
	return &ah->base;
}

API int ibv_destroy_ah(struct ibv_ah *base)
{
	struct address_handle *ah = CONTAINER_OF(base, struct address_handle, base);
	struct card *card = card_of(base->context);

	pthread_mutex_lock(&card->lock);
	if (!--card->ahs[ah->number].users)
		targets_forget(card, &ah->gid);
	pthread_mutex_unlock(&card->lock);
	atomic_fetch_sub(&CONTAINER_OF(base->pd, struct protection_domain, base)->users, 1);
	free(ah);
	return 0;
}

API int efadv_query_ah(struct ibv_ah *ah, struct efadv_ah_attr *attr, uint32_t bytes)
{
	struct efadv_ah_attr full = { .ahn = CONTAINER_OF(ah, struct address_handle, base)->number };

	memcpy(attr, &full, bytes < sizeof full ? bytes : sizeof full);
	return 0;
}
