/* What providers do differently. A well-behaved new provider needs no row: the last row relies on fi_info alone. */
#include "rail/quirks.h"

#include <stddef.h>
#include <string.h>

/*
 * tcp  A completion without FI_DELIVERY_COMPLETE means "in the socket"; bytes in the peer's socket buffer land even after
 *      our side closed. 1.17 calls its native RDM endpoint "net".
 * shm  Where permitted, it writes straight into the peer's memory (process_vm_writev) before it completes. Asking for
 *      delivery turns that off, is slow on a busy host, and gets no answer when the peer is killed. Where not permitted,
 *      small writes complete before they have landed unless delivery is asked for: direct.c finds out which case holds.
 *      It has no wait object, and each write leaves an entry in the peer's queue of 1024: a sleeping peer stops us.
 *      An address that was removed from its vector and comes back makes it follow a null pointer, and it holds at most
 *      256, with those that have sent to it and were never inserted: addresses stay until the rail is reopened, and each
 *      peer's outgoing endpoint takes a place beside its published one.
 *      Writes of several small ranges land in the wrong place, empty writes with an immediate fail, and other writes with
 *      an immediate complete before they have landed unless delivery is asked for. Messages of up to 192 bytes travel
 *      inside the command, which takes longer than 256 bytes in a buffer beside it: a round trip of bare messages takes
 *      0.63 us with 168 bytes and 0.56 us with 256.
 *      Engines of one process use the memory of each other's endpoints, and go on after they close: resting.c.
 * local  No provider of libfabric: src/local/.
 * udp  Through ofi_rxd 1.17 aborts the process once writes are in flight: not offered, not even by name.
 * efa  A completed RDMA write was acknowledged by the peer's NIC. Where a card or a peer cannot do RDMA, messages emulate
 *      writes, and those complete earlier unless delivery is asked for; real writes complete the same either way. A
 *      destroyed queue pair sends nothing more. From 2.0 on the provider has a second fabric, efa-direct, which it lists
 *      first: the card's queue pair without the protocol above it. It has only real writes and cannot talk to the first
 *      fabric, which weft prefers (docs/decisions/11-efa-fabrics.md). The first fabric numbers the messages to each address
 *      of its vector and expects the next number from each: a side that removes an address and inserts it again begins
 *      at 0, and the other side drops its messages as old ones and reports an internal error. So unused addresses stay for
 *      a while.
 * verbs  Through ofi_rxm, which connects inside the first posts and takes 34 MB per endpoint that does (16 KiB times 1024, twice:
 *      FI_OFI_RXM_BUFFER_SIZE) and 2 MB per peer. From 1.17 to 2.6 it closes a connection, then handles the messages that
 *      came over it, and posts a receive to the connection for each: the process crashes inside fi_close() or fi_cq_read()
 *      (docs/lab/verbs.md has the stack). Reading before closing makes that rarer; FI_OFI_RXM_USE_SRX=1 keeps it away.
 * Registering beside the worker: pinning takes long, and a worker that does it serves nobody meanwhile. In 1.17, 2.1 and
 *      2.6 efa, verbs and rxm guard what registrations share with posts by a mutex of the domain in every threading model,
 *      and pin outside of it; so do the simulated NICs. tcp's domain has no lock, and registers in no time.
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
	  .idle_addresses = 1024,
	  .holds_back = true,
	  .rings_immediates = true,
	  .receives = 2048 },
	{ .provider = "verbs;ofi_rxm",
	  .name = "verbs",
	  .registers_beside = true,
	  .read_before_close = true,
	  .sized_by_universe = true,
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
	  .keep_addresses = 120,
	  .one_range = true,
	  .no_empty_immediate = true,
	  .immediate_needs_delivery = true,
	  .target_looks = true,
	  .shares_memory = true,
	  .no_wait = true,
	  .frame_least = 256 },
	{ .provider = "local", .name = "local", .registers_beside = true, .rank = 90, .close_quiesces = true },
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

/* "tcp;ofi_rxm" and the like: providers stacked on others, used only when asked for. */
static const struct wf_quirks layered = { .provider = NULL, .name = NULL, .rank = 80 };

const struct wf_quirks *wf_quirks_of(const char *provider, const char *fabric)
{
	const struct wf_quirks *row = table;

	for (; row->provider; row++)
		if (!strcmp(row->provider, provider) && (!row->fabric || (fabric && !strcmp(row->fabric, fabric))))
			return row;
	return strchr(provider, ';') ? &layered : row;
}
