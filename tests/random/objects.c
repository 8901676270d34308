/* Random calls that make, show and close peers, remotes and regions. On a caller's thread, in an engine that it has entered. */
#include "random.h"

#include <errno.h>

/* ---- peers ---- */

static bool take_blob(struct caller *caller, struct blob *ret_blob, bool region)
{
	uint32_t e = (uint32_t)pick(caller, world.processes) * ENGINES + (uint32_t)pick(caller, world.engines);
	const struct blob *blob = &world.board->engine[e].address;

	if (region)
		blob = &world.board->engine[e].region[pick(caller, REGIONS)];
	else if (pick(caller, 8) == 0)
		blob = &world.board->engine[e].old_address;
	pthread_mutex_lock(&world.board->lock);
	*ret_blob = *blob;
	pthread_mutex_unlock(&world.board->lock);
	if (ret_blob->bytes && pick(caller, 50) == 0) /* as it may come out of a broken socket */
		ret_blob->data[pick(caller, ret_blob->bytes)] ^= (uint8_t)(1 + pick(caller, 255));
	if (ret_blob->bytes && pick(caller, 100) == 0)
		ret_blob->bytes = (uint32_t)pick(caller, ret_blob->bytes);
	return ret_blob->bytes;
}

static const int blob_errors[] = { EINVAL,   EPROTO, EBADMSG,  EPROTONOSUPPORT, EHOSTUNREACH, ENOENT,
				   EALREADY, ESTALE, EMSGSIZE, ERANGE,          ENOTSUP,      0 };

void add_peer(struct caller *caller, struct station *station)
{
	struct blob blob;
	weft_peer peer;
	int status;

	if (!take_blob(caller, &blob, false))
		return;
	CALL(caller, weft_peer_add, status, blob_errors, station->engine, blob.data, blob.bytes, NULL, &peer);
	if (status == -ENOENT)
		fail("weft_peer_add() returned -ENOENT");
	if (!status)
		atomic_store(&station->peer[pick(caller, PEERS)], peer);
}

void remove_peer(struct caller *caller, struct station *station)
{
	static const int allowed[] = { ENOENT, 0 };
	int status;

	CALL(caller, weft_peer_remove, status, allowed, station->engine, HANDLE(caller, station->peer));
}

void replace_peer(struct caller *caller, struct station *station)
{
	struct blob blob;
	int status;

	if (take_blob(caller, &blob, false))
		CALL(caller, weft_peer_replace, status, blob_errors, station->engine, HANDLE(caller, station->peer),
		     blob.data, blob.bytes);
}

void cancel_peer(struct caller *caller, struct station *station)
{
	static const int allowed[] = { ENOENT, 0 };
	int status;

	CALL(caller, weft_peer_cancel, status, allowed, station->engine, HANDLE(caller, station->peer));
}

void import_remote(struct caller *caller, struct station *station)
{
	struct blob blob;
	weft_remote remote;
	int status;

	if (!take_blob(caller, &blob, true))
		return;
	CALL(caller, weft_remote_import, status, blob_errors, station->engine, HANDLE(caller, station->peer), blob.data,
	     blob.bytes, &remote);
	if (!status)
		atomic_store(&station->remote[pick(caller, REMOTES)], remote);
}

void close_remote(struct caller *caller, struct station *station)
{
	static const int allowed[] = { ENOENT, EBUSY, 0 };
	int status;

	CALL(caller, weft_remote_close, status, allowed, station->engine, HANDLE(caller, station->remote));
}

/* ---- regions ---- */

void export_region(struct caller *caller, struct station *station)
{
	static const int allowed[] = { ENOENT, ESTALE, EACCES, 0 };
	uint64_t slot = pick(caller, REGIONS);
	struct blob blob;
	size_t bytes = sizeof(blob.data);
	int status;

	CALL(caller, weft_region_export, status, allowed, station->engine, atomic_load(&station->region[slot]),
	     blob.data, &bytes);
	if (status)
		return;
	blob.bytes = (uint32_t)bytes;
	pthread_mutex_lock(&world.board->lock);
	world.board->engine[station->number].region[slot] = blob;
	pthread_mutex_unlock(&world.board->lock);
}

void register_region(struct caller *caller, struct station *station)
{
	static const int closing[] = { ENOENT, EBUSY, 0 };
	uint64_t slot = pick(caller, REGIONS), none = 0;
	weft_region region;
	int status;

	if (atomic_load(&station->region[slot]))
		return;
	if (pick(caller, 2))
		CALL(caller, weft_region_register, status, nothing, station->engine, station->memory + slot * CHUNK,
		     CHUNK, (uint32_t)pick(caller, 4), &region);
	else
		CALL(caller, weft_region_register_near, status, nothing, station->engine,
		     station->memory + slot * CHUNK, CHUNK, (uint32_t)pick(caller, 4), "numa:0", &region);
	if (!atomic_compare_exchange_strong(&station->region[slot], &none, region))
		CALL(caller, weft_region_close, status, closing, station->engine, region);
	else
		export_region(caller, station);
}

void close_region(struct caller *caller, struct station *station)
{
	static const int allowed[] = { ENOENT, EBUSY, 0 };
	uint64_t slot = pick(caller, REGIONS), region = atomic_load(&station->region[slot]);
	int status;

	CALL(caller, weft_region_close, status, allowed, station->engine, region);
	if (!status)
		atomic_compare_exchange_strong(&station->region[slot], &region, 0);
}

void revoke_region(struct caller *caller, struct station *station)
{
	static const int allowed[] = { ENOENT, EBUSY, EALREADY, 0 };
	int status;

	CALL(caller, weft_region_revoke, status, allowed, station->engine, HANDLE(caller, station->region));
}
