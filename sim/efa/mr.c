/*
 * Registered memory: a table in the card's segment, so that other processes' cards can check keys. A key is 6 bits of NIC, 8
 * of generation and 18 of slot, as simfab's: good on that NIC only, and stale once deregistered. Any thread.
 */
#include "card.h"

#include <errno.h>
#include <stdlib.h>

#define PAGE_BITS      12
#define SLOT_OF(key)   ((key) & (WIRE_MR_SLOTS - 1))
#define KEY_NIC(nic)   ((uint32_t)(nic) << 26)
#define KEY_LIFE(life) ((uint32_t)(life) << 18)

struct wire_mr *region_find(struct wire_nic *nic, uint32_t key, uint64_t base, uint64_t bytes, uint32_t access,
			    uint16_t pd)
{
	struct wire_mr *mr = &nic->mr[SLOT_OF(key)];
	uint64_t start, length, rights;

	if (!key || atomic_load_explicit(&mr->key, memory_order_acquire) != key)
		return NULL;
	start = atomic_load_explicit(&mr->base, memory_order_relaxed);
	length = atomic_load_explicit(&mr->bytes, memory_order_relaxed);
	rights = atomic_load_explicit(&mr->access, memory_order_relaxed);
	if (base < start || bytes > length || base - start > length - bytes)
		return NULL;
	if (((uint32_t)rights & access) != access || REGION_PD(rights) != pd)
		return NULL;
	return mr;
}

static int take_slot(struct card *card, uint32_t *ret_slot)
{
	if (!card->mr_free) {
		card->mr_free = malloc(WIRE_MR_SLOTS * sizeof *card->mr_free);
		if (!card->mr_free)
			return ENOMEM;
	}
	if (card->mr_free_count)
		*ret_slot = card->mr_free[--card->mr_free_count];
	else if (card->mr_next < WIRE_MR_SLOTS)
		*ret_slot = card->mr_next++;
	else
		return ENOMEM;
	return 0;
}

/* With the card's lock. 0 or errno. */
static int enter(struct card *card, struct region *region, uint64_t base, uint64_t bytes, unsigned access, uint16_t pd)
{
	uint64_t pages = ((base + bytes - 1) >> PAGE_BITS) - (base >> PAGE_BITS) + 1;
	struct wire_mr *mr;
	int rc = fault_active() ? fault_registration(card) : 0;

	if (rc)
		return rc;
	if ((access & IBV_ACCESS_REMOTE_WRITE) && pages > model.spec.mr_pages)
		return EINVAL;
	if (card->pages_used + pages > model.spec.pages)
		return ENOMEM;
	rc = take_slot(card, &region->slot);
	if (rc)
		return rc;
	card->pages_used += pages;
	card->mr_generation = card->mr_generation % 255 + 1;
	region->pages = pages;
	region->base.lkey = region->base.rkey = region->base.handle =
	    KEY_NIC(card->device->nic) | KEY_LIFE(card->mr_generation) | region->slot;
	mr = &card->wire->mr[region->slot];
	atomic_store_explicit(&mr->base, base, memory_order_relaxed);
	atomic_store_explicit(&mr->bytes, bytes, memory_order_relaxed);
	atomic_store_explicit(&mr->access, (uint64_t)pd << 32 | access, memory_order_relaxed);
	atomic_store(&mr->key, region->base.rkey); /* released last: pairs with region_find() */
	return 0;
}

API struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *base_pd, void *addr, size_t bytes, uint64_t iova, unsigned access)
{
	unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct protection_domain *pd = CONTAINER_OF(base_pd, struct protection_domain, base);
	struct card *card = card_of(base_pd->context);
	struct region *region;
	int rc;

	if (!addr || !bytes || iova != (uintptr_t)addr) {
		errno = EINVAL;
		return NULL;
	}
	/* As the driver does: rights that the card does not have are refused, those called optional are ignored. */
	access &= ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;
	if (access & ~known || ((access & IBV_ACCESS_REMOTE_WRITE) && !(model.caps & CAN_WRITE))) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	region = calloc(1, sizeof *region);
	rc = region ? card_attach(card) : ENOMEM;
	if (!rc) {
		pthread_mutex_lock(&card->lock);
		rc = enter(card, region, (uintptr_t)addr, bytes, access, pd->number);
		pthread_mutex_unlock(&card->lock);
	}
	if (rc) {
		free(region);
		errno = rc;
		return NULL;
	}
	region->base.context = base_pd->context;
	region->base.pd = base_pd;
	region->base.addr = addr;
	region->base.length = bytes;
	atomic_fetch_add(&pd->users, 1);
	return &region->base;
}

API struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t bytes, int access)
{
	return ibv_reg_mr_iova2(pd, addr, bytes, (uintptr_t)addr, (unsigned)access);
}

/* There is no device whose buffer it could be. */
API struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova, int fd,
				     int access)
{
	errno = EOPNOTSUPP;
	return NULL;
}

static void check_unused(struct card *card, const struct region *region)
{
	for (uint32_t i = 0; i < card->heap_count; i++)
		for (uint32_t s = 0; !card->heap[i]->inlined && s < card->heap[i]->count; s++)
			if (card->heap[i]->sge[s].lkey == region->base.lkey)
				strict_fail("memory %p is deregistered while a work request of queue pair %u uses it",
					    region->base.addr, card->heap[i]->qp->base.qp_base.qp_num);
}

API int ibv_dereg_mr(struct ibv_mr *base)
{
	struct region *region = CONTAINER_OF(base, struct region, base);
	struct card *card = card_of(base->context);
	struct wire_mr *mr = &card->wire->mr[region->slot];

	pthread_mutex_lock(&card->lock);
	if (model.spec.strict)
		check_unused(card, region);
	pthread_mutex_unlock(&card->lock);
	/* Sequentially consistent: pairs with deliver.c, which counts itself in and then looks at the key. */
	atomic_store(&mr->key, 0);
	wire_retire(&mr->users);
	pthread_mutex_lock(&card->lock);
	card->mr_free[card->mr_free_count++] = region->slot;
	card->pages_used -= region->pages;
	pthread_mutex_unlock(&card->lock);
	atomic_fetch_sub(&CONTAINER_OF(base->pd, struct protection_domain, base)->users, 1);
	free(region);
	return 0;
}

#ifdef HAVE_EFADV_QUERY_MR
/* Which interconnect a region is reached by: this card does not say. */
API int efadv_query_mr(struct ibv_mr *mr, struct efadv_mr_attr *attr, uint32_t bytes)
{
	struct efadv_mr_attr full = { .ic_id_validity = 0 };

	__builtin_memcpy(attr, &full, bytes < sizeof full ? bytes : sizeof full);
	return 0;
}
#endif
