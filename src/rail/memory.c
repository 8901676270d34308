/* Registering memory with a rail's domain, as its mr_mode bits ask. Runs on the worker that owns the rail. */
#include "rail/internal.h"

#include <errno.h>
#include <string.h>

bool wf_rail_needs_local(const struct wf_rail *rail)
{
	return rail->needs_local;
}

int wf_rail_register(struct wf_rail *rail, void *base, uint64_t bytes, uint32_t access, uint64_t key,
		     struct wf_rail_memory *ret_memory)
{
	uint64_t mode = (uint64_t)rail->info->domain_attr->mr_mode;
	uint64_t rights = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
	struct fid_mr *mr;
	int error;

	memset(ret_memory, 0, sizeof(*ret_memory));
	if (access & WEFT_REMOTE_WRITE)
		rights |= FI_REMOTE_WRITE;
	if (access & WEFT_REMOTE_READ)
		rights |= FI_REMOTE_READ;
	if (mode & FI_MR_PROV_KEY)
		key = 0;
	error = fi_mr_reg(rail->domain, base, bytes, rights, 0, key, 0, &mr, NULL);
	if (error) {
		wf_rail_note_error(rail, -error, "registering memory");
		wf_log(rail->log, WEFT_LOG_WARN, "rail %s: registering %llu bytes: %s", rail->name,
		       (unsigned long long)bytes, fi_strerror(-error));
		return error == -FI_ENOMEM || error == -FI_ENOKEY ? -ENOMEM : error;
	}
	ret_memory->mr = mr;
	ret_memory->desc = fi_mr_desc(mr);
	ret_memory->key = fi_mr_key(mr);
	ret_memory->base = mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)base : 0;
	return 0;
}

void wf_rail_unregister(struct wf_rail_memory *memory)
{
	struct fid_mr *mr = memory->mr;

	if (mr)
		fi_close(&mr->fid);
	memory->mr = NULL;
}
