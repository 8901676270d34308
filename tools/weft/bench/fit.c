/*
 * How many operations in flight fill the NICs of this host, where nobody has said: what they carry in the time that an operation
 * takes. Before an engine is open, on the main thread.
 */
#include "bench.h"

#include <string.h>

/* A rail's window is what its link carries in 200 us. The operation that follows one that ended passes from thread to thread four
 * times, and each time a worker may be in a turn: up to 32 posts on each of its rails, 115 us for eight rails and 450 ns. What is in
 * flight covers both twice. */
#define IN_FLIGHT_NS UINT64_C(1400000)

struct listing {
	const struct cmd_transport *chosen;
	const char *provider;
	uint64_t count, line_bps;
	bool unknown;
};

static bool is_named(const char *list, const struct weft_nic *nic)
{
	return cmd_transport_lists(list, nic->name) || (nic->address && cmd_transport_lists(list, nic->address));
}

static int add(void *context, const struct weft_nic *nic)
{
	struct listing *listing = context;
	const struct cmd_transport *chosen = listing->chosen;

	if (!nic->usable || strcmp(nic->provider, listing->provider) != 0 || is_named(chosen->avoid, nic) ||
	    (chosen->rails[0] && !is_named(chosen->rails, nic)))
		return 0;
	listing->count++;
	listing->unknown |= !nic->link_bps;
	listing->line_bps += nic->link_bps;
	return 0;
}

/* The line rate of all NICs of a provider that may become rails. 0: there are none, or one's rate is not known. */
static uint64_t line_of(const struct cmd_transport *chosen, const char *provider)
{
	struct listing listing = { .chosen = chosen, .provider = provider };
	struct weft_config config = WEFT_CONFIG_INIT;

	config.provider = provider;
	if (weft_nic_each(&config, add, &listing) < 0 || listing.unknown || !listing.count)
		return 0;
	if (chosen->max_rails && chosen->max_rails < listing.count)
		return listing.line_bps / listing.count * chosen->max_rails;
	return listing.line_bps;
}

int bench_fit(struct bench_options *options)
{
	/* Without a word from the user the engine takes these, in this order; slower ones need no more than the default. */
	static const char *const best[] = { "efa", "verbs" };
	struct cmd_transport_options transport = options->transport;
	struct cmd_transport chosen;
	uint64_t line_bps = 0;
	char why[1000];

	/* Where this host's cores copy the bytes, they are the limit. */
	if (options->depth_given || options->region_given || options->sim_copies || options->is_listener)
		return 0;
	transport.same_host = !options->host;
	/* What is wrong here is said when the engine opens. */
	if (cmd_transport_choose(&transport, &chosen, why, sizeof why) < 0)
		return 0;
	if (chosen.provider[0])
		line_bps = line_of(&chosen, chosen.provider);
	for (size_t i = 0; !chosen.provider[0] && !line_bps && i < sizeof best / sizeof best[0]; i++)
		line_bps = line_of(&chosen, best[i]);
	return line_bps
		   ? bench_options_in_flight(options, line_bps / options->clients / 8 * (IN_FLIGHT_NS / 1000) / 1000000)
		   : 0;
}
