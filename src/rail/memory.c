/* Registering memory with a rail's domain, as its mr_mode bits ask. Runs on the worker that owns the rail, or beside it where
 * the provider allows that. */
#include "rail/internal.h"
#include "base/random.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define KEY_TRIES 16 /* two live keys being the same is chance, and rarer than any of them with 32 bits */

bool wf_rail_needs_local(const struct wf_rail *rail)
{
	return rail->needs_local;
}

bool wf_rail_registers_beside(const struct wf_rail *rail)
{
	return rail->quirks->registers_beside;
}

/* What the provider is asked for is what is needed and no more: EFA makes remotely readable whatever FI_SEND is asked for. */
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

/* Whoever knows the key and our address may use the memory: it is as random as the provider's keys are long. A provider that
 * chooses keys itself gets 0. */
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

/* After a failure: whether it has more pages than the provider takes in one region that peers write to. Huge pages count as one
 * each, which is why it was tried. */
static bool too_many_pages(const struct wf_rail *rail, uint64_t bytes, uint32_t access)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return rail->quirks->most_pages && (access & WEFT_REMOTE_WRITE) && bytes / page >= rail->quirks->most_pages;
}

int wf_rail_register(struct wf_rail *rail, void *base, uint64_t bytes, uint32_t access,
		     struct wf_rail_memory *ret_memory)
{
	struct fid_mr *mr;
	int error;

	memset(ret_memory, 0, sizeof(*ret_memory));
	error = try_register(rail, base, bytes, rights_for(access), &mr);
	if (error) {
		if (!rail->quirks->registers_beside) /* the last error is the worker's */
			wf_rail_note_error(rail, -error, "registering memory");
		wf_log(rail->log, WEFT_LOG_WARN, "rail %s: registering %llu bytes: %s", rail->name,
		       (unsigned long long)bytes, fi_strerror(-error));
		if (too_many_pages(rail, bytes, access))
			return -EFBIG;
		/* -ETIMEDOUT is the engine's word for a call that has not returned. */
		return error == -FI_ENOMEM || error == -FI_ENOKEY ? -ENOMEM : error == -FI_ETIMEDOUT ? -EIO : error;
	}
	ret_memory->mr = mr;
	ret_memory->desc = fi_mr_desc(mr);
	ret_memory->key = fi_mr_key(mr);
	ret_memory->base = rail->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)base : 0;
	return 0;
}

void wf_rail_unregister(struct wf_rail_memory *memory)
{
	struct fid_mr *mr = memory->mr;

	if (mr)
		fi_close(&mr->fid);
	memory->mr = NULL;
}
