/* The addresses in one address vector, each with a count of its users. Only src/rail/ includes it. */
#ifndef WF_RAIL_ADDRESSES_H
#define WF_RAIL_ADDRESSES_H

#include <rdma/fi_domain.h>
#include <stdbool.h>
#include <stdint.h>

struct wf_address {
	uint64_t target;
	uint64_t idle_since; /* of those without a user: the smallest number is idle for the longest */
	uint32_t references;
	uint32_t next; /* next entry of its bucket: index + 1 */
	bool lost;     /* a message to it failed */
	uint8_t bytes, address[64];
};

struct wf_addresses {
	uint32_t most; /* limit, see quirks.c: addresses then stay until the vector is closed. 0: they come and go */
	uint32_t idle_most; /* unused addresses that stay, in case their user comes back: see quirks.c */
	uint32_t idle, count, room;
	uint64_t idled; /* how often an address lost its last user */
	struct wf_address *entry;
	uint32_t *bucket; /* room buckets: index + 1 of the first entry */
};

/* Returns 0; -EMLINK if full for good; -ENOMEM or the provider's error. */
int wf_addresses_insert(struct wf_addresses *addresses, struct fid_av *av, const uint8_t *address, uint8_t bytes,
			uint64_t *ret_target);
bool wf_addresses_have(const struct wf_addresses *addresses, const uint8_t *address, uint8_t bytes);
/* Remembers that a message to the target failed, for as long as its address is in the vector. */
void wf_addresses_note_lost(struct wf_addresses *addresses, uint64_t target);
bool wf_addresses_have_lost(const struct wf_addresses *addresses, const uint8_t *address, uint8_t bytes);
/* Returns true if an address left the vector: this one, whose last user went, or the one unused for the longest. When its
 * last user goes, nothing posted to an address may be in flight: EFA would lose the completions. */
bool wf_addresses_remove(struct wf_addresses *addresses, struct fid_av *av, const uint8_t *address, uint8_t bytes);
void wf_addresses_forget(struct wf_addresses *addresses); /* the vector is closed */
void wf_addresses_free(struct wf_addresses *addresses);
#endif
