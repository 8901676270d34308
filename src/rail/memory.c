/* Registers memory with a rail's domain, as its mr_mode bits ask. Runs on the worker that owns the rail, or beside
 * it where the provider allows that. */
#include "rail/host.h"
#include "base/random.h"
#include "device/device.h"
#include "wire/blob.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEY_TRIES 16 /* two live keys collide only by chance, and rarely even with 32 bits */

/* Overlap of tiles: the longest counted write. The card pins and counts this much twice per tile. */
#define REACH_MOST (64u << 20)
#define TILE_LEAST (2 * WF_REACH_LEAST)

bool wf_rail_needs_local(const struct wf_rail *rail)
{
	return rail->needs_local;
}

bool wf_rail_registers_beside(const struct wf_rail *rail)
{
	return rail->quirks->registers_beside;
}

/* Asks the provider for no more rights than needed: EFA makes memory remotely readable if FI_SEND is asked for. */
static uint64_t rights_for(uint32_t access)
{
	uint64_t rights = 0;

	if (access & WF_FRAMES_OUT)
		rights |= FI_SEND;
	if (access & WF_FRAMES_IN)
		rights |= FI_RECV;
	if (!rights)
		rights = FI_READ | FI_WRITE;
	if (access & WEFT_REMOTE_WRITE)
		rights |= FI_REMOTE_WRITE;
	if (access & WEFT_REMOTE_READ)
		rights |= FI_REMOTE_READ;
	return rights;
}

/* Anyone who knows the key and our address may use the memory, so the key is as random as the provider's key length
 * allows. A provider that chooses keys itself gets 0. */
static int make_key(const struct fi_domain_attr *domain, uint64_t *ret_key)
{
	*ret_key = 0;
	if (domain->mr_mode & FI_MR_PROV_KEY)
		return 0;
	if (wf_random(ret_key))
		return -EIO;
	if (domain->mr_key_size && domain->mr_key_size < sizeof(*ret_key))
		*ret_key >>= 8 * (sizeof(*ret_key) - domain->mr_key_size);
	return 0;
}

static int try_register(struct wf_rail *rail, void *base, uint64_t bytes, uint64_t rights, struct fid_mr **ret_mr)
{
	const struct fi_domain_attr *domain = rail->info->domain_attr;
	int error = -FI_ENOKEY;

	for (int i = 0; i < KEY_TRIES && (error == -FI_ENOKEY || error == -FI_EKEYREJECTED); i++) {
		uint64_t key;

		if ((error = make_key(domain, &key)))
			return error;
		error = fi_mr_reg(rail->domain, base, bytes, rights, 0, key, 0, ret_mr, NULL);
		if (domain->mr_mode & FI_MR_PROV_KEY)
			break;
	}
	return error;
}

static uint64_t page_bytes(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Returns whether the region reaches the provider's known page limit if none of its pages is huge. */
static bool has_most_pages(const struct wf_rail *rail, uint64_t bytes)
{
	return bytes / page_bytes() >= rail->quirks->most_pages;
}

/* After a failure: can the number of pages be the reason? Huge pages count as one each, which is why one
 * registration was tried first. If the pages are not known to be too many, an error that names another reason is
 * believed. Tiles need addresses that do not depend on the tile. */
static bool worth_tiling(const struct wf_rail *rail, uint64_t bytes, uint32_t access, int error)
{
	return rail->quirks->most_pages && (access & WEFT_REMOTE_WRITE) &&
	       (rail->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) &&
	       (has_most_pages(rail, bytes) || error == -FI_EINVAL);
}

static void close_mr(void *mr)
{
	if (mr)
		fi_close(&((struct fid_mr *)mr)->fid);
}

static void free_tiles(struct wf_rail_tiles *tiles)
{
	for (uint32_t i = 0; tiles && i < tiles->count; i++)
		close_mr(tiles->tile[i].mr);
	free(tiles);
}

static uint64_t reach_of(uint64_t longest)
{
	return longest / 4 < WF_REACH_LEAST ? WF_REACH_LEAST : longest / 4 > REACH_MOST ? REACH_MOST : longest / 4;
}

/* Registers the region in tiles of at most longest bytes. */
static int try_tiles(struct wf_rail *rail, char *base, uint64_t bytes, uint64_t rights, uint64_t longest,
		     struct wf_rail_tiles **ret_tiles)
{
	uint64_t reach = reach_of(longest), step = longest - reach, count = wf_tiles_of(bytes, step, reach);
	struct wf_rail_tiles *tiles = calloc(1, sizeof(*tiles) + count * sizeof(tiles->tile[0]));

	if (!tiles)
		return -FI_ENOMEM;
	tiles->count = (uint32_t)count;
	tiles->step = step;
	tiles->reach = reach;
	for (uint32_t i = 0; i < count; i++) {
		uint64_t first = i * step, left = bytes - first;
		struct fid_mr *mr;
		int error = try_register(rail, base + first, left < longest ? left : longest, rights, &mr);

		if (error) {
			free_tiles(tiles);
			return error;
		}
		tiles->tile[i].mr = mr;
		tiles->tile[i].desc = fi_mr_desc(mr);
		tiles->tile[i].key = fi_mr_key(mr);
	}
	*ret_tiles = tiles;
	return 0;
}

/* No call tells how many pages a card takes: tries the known number first, then half of it, and so on while the card
 * refuses, at most a dozen times. */
static int register_tiles(struct wf_rail *rail, void *base, uint64_t bytes, uint64_t rights, uint32_t most,
			  struct wf_rail_tiles **ret_tiles)
{
	int error = -FI_EINVAL;

	for (uint64_t pages = rail->quirks->most_pages; pages; pages /= 2) {
		uint64_t longest = (pages - 1) * page_bytes(); /* it may begin and end inside a page */

		if (longest >= bytes)
			continue;
		if (longest < TILE_LEAST)
			break;
		if (wf_tiles_of(bytes, longest - reach_of(longest), reach_of(longest)) > most)
			return has_most_pages(rail, bytes) ? -EFBIG : error;
		error = try_tiles(rail, base, bytes, rights, longest, ret_tiles);
		if (error != -FI_EINVAL)
			break;
	}
	return error;
}

int wf_rail_register(struct wf_rail *rail, void *base, uint64_t bytes, uint32_t access, uint32_t most_tiles,
		     struct wf_rail_memory *ret_memory)
{
	uint64_t rights = rights_for(access);
	struct fid_mr *mr = NULL;
	int error;

	if (rail->local)
		return wf_host_register(rail, base, bytes, access, ret_memory);
	memset(ret_memory, 0, sizeof(*ret_memory));
	error = try_register(rail, base, bytes, rights, &mr);
	if (error && worth_tiling(rail, bytes, access, error)) {
		mr = NULL;
		error = register_tiles(rail, base, bytes, rights, most_tiles, &ret_memory->tiles);
	}
	if (error) {
		if (!rail->quirks->registers_beside) /* otherwise the last error belongs to the worker */
			wf_rail_note_error(rail, -error, "registering memory");
		wf_log(rail->log, WEFT_LOG_WARN, "rail %s: registering %llu bytes: %s", rail->name,
		       (unsigned long long)bytes, fi_strerror(-error));
		/* The engine uses -ETIMEDOUT for a call that has not returned. */
		return error == -FI_ENOMEM || error == -FI_ENOKEY ? -ENOMEM : error == -FI_ETIMEDOUT ? -EIO : error;
	}
	ret_memory->base = rail->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)base : 0;
	if (ret_memory->tiles) {
		wf_log(rail->log, WEFT_LOG_INFO, "rail %s: %llu bytes are registered in %u parts", rail->name,
		       (unsigned long long)bytes, ret_memory->tiles->count);
		return 0;
	}
	ret_memory->resting = rail->quirks->shares_memory ? rail : NULL;
	ret_memory->mr = mr;
	ret_memory->desc = fi_mr_desc(mr);
	ret_memory->key = fi_mr_key(mr);
	return 0;
}

int wf_rail_register_local(struct wf_rail *rail, void *base, uint64_t bytes, struct fid_mr **ret_mr)
{
	return try_register(rail, base, bytes, rights_for(0), ret_mr);
}

/* No NIC of this release reads or writes a card itself: our own operations pass through chunks, and peers get no key. Not over shm,
 * whose endpoints rest and do not close. */
int wf_rail_register_device(struct wf_rail *rail, const struct wf_device_memory *device, uint32_t access,
			    struct wf_rail_memory *ret_memory)
{
	int error;

	memset(ret_memory, 0, sizeof(*ret_memory));
	if (rail->local)
		return wf_host_register_device(rail, device, access, ret_memory);
	if (rail->quirks->shares_memory)
		return 0;
	error = wf_staged_prepare(rail, device->card);
	if (error)
		wf_log(rail->log, WEFT_LOG_WARN, "rail %s: a card's memory cannot pass through chunks here: %s",
		       rail->name, fi_strerror(-error));
	else
		ret_memory->desc = (void *)(uintptr_t)device;
	return 0; /* other rails may take it */
}

void wf_rail_unregister(struct wf_rail_memory *memory)
{
	if (memory->host) {
		wf_host_unregister(memory);
		return;
	}
	if (memory->resting)
		wf_resting_unregister(memory->resting);
	memory->resting = NULL;
	close_mr(memory->mr);
	memory->mr = NULL;
	free_tiles(memory->tiles);
	memory->tiles = NULL;
}
