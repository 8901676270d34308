/* What providers do differently. A new provider that behaves needs no row: the last one asks fi_info for everything. */
#include "rail/quirks.h"

#include <stddef.h>
#include <string.h>

/*
 * tcp  Completions without FI_DELIVERY_COMPLETE mean "in the socket"; what is in the peer's socket buffer lands after
 *      our side closed. 1.17 calls its native RDM endpoint "net".
 * shm  Writes straight into the peer's memory (process_vm_writev) before it completes, where it may; asking for delivery
 *      turns that off, is slow on a busy host, and gets no answer when the peer is killed. Where it may not, small writes
 *      complete before they have landed unless delivery is asked for: direct.c finds out which. It has no wait object, and
 *      each write leaves a note in the peer's queue of 1024: a peer that sleeps meanwhile stops us. An address that was
 *      removed from its vector and
 *      comes back makes it follow a null pointer, and it holds 256 at most: they are kept until the rail is reopened.
 *      Writes of several small ranges land in the wrong place, empty ones with an immediate fail,
 *      and others with an immediate complete before they have landed unless delivery is asked for. Messages of up to 192
 *      bytes travel inside the command, which takes longer than 256 bytes in a buffer beside it: a round trip of bare
 *      messages of 168 bytes 0.63 us, of 256 bytes 0.56.
 * udp  Through ofi_rxd 1.17 aborts the process once writes are in flight: not offered, not even when named.
 * efa  A completed RDMA write was acknowledged by the peer's NIC, but where a card or a peer cannot, writes are emulated by
 *      messages, and those complete earlier unless delivery is asked for; real ones do not mind being asked. A destroyed
 *      queue pair sends nothing more. From 2.0 on the provider has a second fabric, efa-direct, which it lists first: the
 *      card's queue pair without the protocol above it, so it has only real writes and cannot talk to the first. The
 *      first is preferred (docs/decisions/11-efa-fabrics.md).
 * Registering beside: pinning takes long, and a worker that does it serves nobody meanwhile. In 1.17, 2.1 and 2.6 efa, verbs and
 *      rxm guard what registrations share with posts by a mutex of the domain in every threading model, and pin outside of it;
 *      so do the simulated NICs. tcp's domain has no lock, and registers in no time.
 */
static const struct wf_quirks table[] = {
	{ .provider = "efa",
	  .fabric = "efa-direct",
	  .name = "efa-direct",
	  .registers_beside = true,
	  .rank = 2,
	  .by_default = true,
	  .most_pages = 1 << 20,
	  .delivery_implied = true,
	  .close_quiesces = true },
	{ .provider = "efa",
	  .name = "efa",
	  .registers_beside = true,
	  .rank = 1,
	  .by_default = true,
	  .most_pages = 1 << 20,
	  .close_quiesces = true,
	  .emulates = true,
	  .own_shm = true,
	  .receives = 2048 },
	{ .provider = "verbs;ofi_rxm",
	  .name = "verbs",
	  .registers_beside = true,
	  .rank = 3,
	  .by_default = true,
	  .close_quiesces = true },
	{ .provider = "net",
	  .name = "tcp",
	  .rank = 20,
	  .by_default = true,
	  .window_ops = 32,
	  .window_bytes = 4 << 20,
	  .sockets = true },
	{ .provider = "tcp",
	  .name = "tcp",
	  .rank = 20,
	  .by_default = true,
	  .window_ops = 32,
	  .window_bytes = 4 << 20,
	  .sockets = true },
	{ .provider = "shm",
	  .name = "shm",
	  .rank = 30,
	  .by_default = true,
	  .direct = true,
	  .window_ops = 64,
	  .window_bytes = 8 << 20,
	  .keep_addresses = 200,
	  .one_range = true,
	  .no_empty_immediate = true,
	  .immediate_needs_delivery = true,
	  .target_looks = true,
	  .frame_least = 256 },
	{ .provider = "sockets", .name = "sockets", .rank = 90 },
	{ .provider = "udp;ofi_rxd", .name = "udp;ofi_rxd", .rank = 90, .crashes = true },
	{ .provider = "simfab",
	  .name = "simfab",
	  .registers_beside = true,
	  .rank = 10,
	  .by_default = true,
	  .close_quiesces = true },
	{ .provider = NULL, .name = NULL, .rank = 10, .by_default = true, .close_quiesces = true },
};

/* "tcp;ofi_rxm" and its like: providers stacked on others, for those who ask. */
static const struct wf_quirks layered = { .provider = NULL, .name = NULL, .rank = 80 };

const struct wf_quirks *wf_quirks_of(const char *provider, const char *fabric)
{
	const struct wf_quirks *row = table;

	for (; row->provider; row++)
		if (!strcmp(row->provider, provider) && (!row->fabric || (fabric && !strcmp(row->fabric, fabric))))
			return row;
	return strchr(provider, ';') ? &layered : row;
}
