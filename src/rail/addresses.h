/* The addresses in one address vector, each with a count of its users. Only src/rail/ includes it. */
#ifndef WF_RAIL_ADDRESSES_H
#define WF_RAIL_ADDRESSES_H

#include <rdma/fi_domain.h>
#include <stdbool.h>
#include <stdint.h>

struct wf_address {
	uint64_t target;
	uint32_t references;
	uint32_t next; /* in its bucket: index + 1 */
	uint8_t bytes, address[64];
};

struct wf_addresses {
	uint32_t most; /* so many, which stay until the vector is closed: see quirks.c. 0: they come and go */
	uint32_t count, room;
	struct wf_address *entry;
	uint32_t *bucket; /* room of them: index + 1 of the first entry */
};

/* 0; -EMLINK: full for good; -ENOMEM or what the provider said. */
int wf_addresses_insert(struct wf_addresses *addresses, struct fid_av *av, const uint8_t *address, uint8_t bytes,
			uint64_t *ret_target);
bool wf_addresses_have(const struct wf_addresses *addresses, const uint8_t *address, uint8_t bytes);
/* True: its last user went, and it is in the vector no more. Nothing that was posted to it may be in flight then: EFA loses the completions. */
bool wf_addresses_remove(struct wf_addresses *addresses, struct fid_av *av, const uint8_t *address, uint8_t bytes);
void wf_addresses_forget(struct wf_addresses *addresses); /* the vector is closed */
void wf_addresses_free(struct wf_addresses *addresses);
#endif
