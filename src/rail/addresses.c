/*
 * Peers' addresses in a rail's address vector, each inserted once however many lanes use it. Some providers recognise
 * an address without counting its insertions, so the first removal would remove it for all users. Runs on the worker
 * that owns the rail.
 */
#include "rail/addresses.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define FIRST_ROOM 16u /* a power of two; doubling keeps it one */

static uint32_t *bucket_of(const struct wf_addresses *addresses, const uint8_t *address, uint8_t bytes)
{
	return &addresses->bucket[XXH3_64bits(address, bytes) & (addresses->room - 1)];
}

static struct wf_address *find(const struct wf_addresses *addresses, const uint8_t *address, uint8_t bytes)
{
	uint32_t at = addresses->count ? *bucket_of(addresses, address, bytes) : 0;

	for (; at; at = addresses->entry[at - 1].next) {
		struct wf_address *entry = &addresses->entry[at - 1];

		if (entry->bytes == bytes && !memcmp(entry->address, address, bytes))
			return entry;
	}
	return NULL;
}

static void link_in(struct wf_addresses *addresses, uint32_t index)
{
	struct wf_address *entry = &addresses->entry[index];
	uint32_t *bucket = bucket_of(addresses, entry->address, entry->bytes);

	entry->next = *bucket;
	*bucket = index + 1;
}

static int grow(struct wf_addresses *addresses)
{
	uint32_t room = addresses->room ? addresses->room * 2 : FIRST_ROOM;
	struct wf_address *entry = realloc(addresses->entry, room * sizeof(*entry));
	uint32_t *bucket;

	if (!entry)
		return -ENOMEM;
	addresses->entry = entry;
	bucket = calloc(room, sizeof(*bucket));
	if (!bucket)
		return -ENOMEM;
	free(addresses->bucket);
	addresses->bucket = bucket;
	addresses->room = room;
	for (uint32_t i = 0; i < addresses->count; i++)
		link_in(addresses, i);
	return 0;
}

static void unlink_from(struct wf_addresses *addresses, uint32_t index)
{
	const struct wf_address *entry = &addresses->entry[index];
	uint32_t *at = bucket_of(addresses, entry->address, entry->bytes);

	while (*at != index + 1)
		at = &addresses->entry[*at - 1].next;
	*at = entry->next;
}

static void drop(struct wf_addresses *addresses, struct wf_address *entry)
{
	uint32_t index = (uint32_t)(entry - addresses->entry), last = addresses->count - 1;

	unlink_from(addresses, index);
	if (index != last) { /* the last entry takes its place */
		unlink_from(addresses, last);
		*entry = addresses->entry[last];
		link_in(addresses, index);
	}
	addresses->count = last;
}

int wf_addresses_insert(struct wf_addresses *addresses, struct fid_av *av, const uint8_t *address, uint8_t bytes,
			uint64_t *ret_target)
{
	struct wf_address *entry = find(addresses, address, bytes);
	fi_addr_t target = FI_ADDR_NOTAVAIL;
	int inserted;

	if (entry) {
		if (!entry->references++ && addresses->idle_most)
			addresses->idle--;
		*ret_target = entry->target;
		return 0;
	}
	if (bytes > sizeof(entry->address))
		return -EINVAL;
	if (addresses->most && addresses->count == addresses->most)
		return -EMLINK;
	if (addresses->count == addresses->room && grow(addresses))
		return -ENOMEM;
	inserted = fi_av_insert(av, address, 1, &target, 0, NULL);
	if (inserted != 1 || target == FI_ADDR_NOTAVAIL)
		return inserted < 0 ? inserted : -EINVAL;
	entry = &addresses->entry[addresses->count];
	*entry = (struct wf_address){ .target = target, .references = 1, .bytes = bytes };
	memcpy(entry->address, address, bytes);
	link_in(addresses, addresses->count++);
	*ret_target = target;
	return 0;
}

bool wf_addresses_have(const struct wf_addresses *addresses, const uint8_t *address, uint8_t bytes)
{
	return find(addresses, address, bytes);
}

void wf_addresses_note_lost(struct wf_addresses *addresses, uint64_t target)
{
	for (uint32_t i = 0; i < addresses->count; i++)
		if (addresses->entry[i].target == target)
			addresses->entry[i].lost = true;
}

bool wf_addresses_have_lost(const struct wf_addresses *addresses, const uint8_t *address, uint8_t bytes)
{
	const struct wf_address *entry = find(addresses, address, bytes);

	return entry && entry->lost;
}

/* The idle address to give up, or NULL while there are not too many. */
static struct wf_address *longest_idle(const struct wf_addresses *addresses)
{
	struct wf_address *found = NULL;

	for (uint32_t i = 0; addresses->idle > addresses->idle_most && i < addresses->count; i++) {
		struct wf_address *entry = &addresses->entry[i];

		if (!entry->references && (!found || entry->idle_since < found->idle_since))
			found = entry;
	}
	return found;
}

bool wf_addresses_remove(struct wf_addresses *addresses, struct fid_av *av, const uint8_t *address, uint8_t bytes)
{
	struct wf_address *entry = find(addresses, address, bytes);
	fi_addr_t target;

	if (!entry || !entry->references || --entry->references || addresses->most)
		return false;
	if (addresses->idle_most) {
		entry->idle_since = addresses->idled++;
		addresses->idle++;
		entry = longest_idle(addresses);
		if (!entry)
			return false;
		addresses->idle--;
	}
	target = entry->target;
	drop(addresses, entry);
	fi_av_remove(av, &target, 1, 0);
	return true;
}

void wf_addresses_forget(struct wf_addresses *addresses)
{
	addresses->count = addresses->idle = 0;
	if (addresses->bucket)
		memset(addresses->bucket, 0, addresses->room * sizeof(*addresses->bucket));
}

void wf_addresses_free(struct wf_addresses *addresses)
{
	free(addresses->entry);
	free(addresses->bucket);
	*addresses = (struct wf_addresses){ .most = addresses->most, .idle_most = addresses->idle_most };
}
