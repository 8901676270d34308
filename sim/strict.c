/*
 * Strict mode (strict=1): misuse that hardware answers with corruption, a hang or silence stops the process here, with
 * a message that names it.
 */
#include "prov.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* libfabric's other providers install SIGABRT handlers that run exit code which is not safe in a signal. */
void stop_process(void)
{
	signal(SIGABRT, SIG_DFL);
	abort();
}

void strict_fail(const char *format, ...)
{
	va_list arguments;
	char line[384];

	va_start(arguments, format);
	vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	sim_log("strict: %s", line);
	stop_process();
}

static uint16_t *count_of_context(struct endpoint *ep, const void *context)
{
	uint64_t x = (uint64_t)(uintptr_t)context * 0x9e3779b97f4a7c15ull;

	return &ep->context_counts[x >> 48];
}

static bool in_flight(struct endpoint *ep, uint32_t index, const void *context)
{
	return ep->requests[index].context == context;
}

/* EFA assumes that shared memory reaches any address of this host: the GIDs are equal except for the NIC's number. */
static bool same_host(const struct endpoint *ep, const struct peer *peer)
{
	return !memcmp(ep->wire->address.gid, peer->address.gid, sizeof peer->address.gid - 1);
}

/* EFA of libfabric 2.x takes up to 16 requests before the peer's handshake has come, or repeats one that found no receive, and posts
 * them from its progress with the flags that they came with. A completion shows that the handshake is over. */
void strict_doorbell(struct endpoint *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
	if (flags & FI_MORE && flags & FI_REMOTE_CQ_DATA)
		strict_fail("a write with an immediate and FI_MORE: EFA 2.1 repeats it without a doorbell");
	if (msg->addr >= ep->av->count || ep->av->peers[msg->addr].landed)
		return;
	if (flags & FI_MORE)
		strict_fail(
		    "FI_MORE to a peer with which nothing has completed: EFA 2.x may post it later without a doorbell");
	if (ep->rung != ep->tail)
		strict_fail("FI_MORE before a request that EFA 2.x may hold back: it rings for nothing");
}

/* NULL contexts carry no state, so any number of them may be in flight. */
void strict_post(struct endpoint *ep, void *context, const struct peer *peer)
{
	uint16_t *count;

	if (ep->dom->shm && same_host(ep, peer))
		strict_fail("a peer of the same host would be reached through shared memory inside EFA");
	if (!context)
		return;
	count = count_of_context(ep, context);
	if (*count) { /* a possible match: compare each */
		for (uint32_t at = ep->head; at != ep->tail; at++)
			if (in_flight(ep, ep->order[at & ep->mask], context))
				strict_fail("context %p posted again while still in flight", context);
		for (uint32_t at = 0; at < ep->slow_count; at++)
			if (in_flight(ep, ep->slow[at], context))
				strict_fail("context %p posted again while still in flight", context);
	}
	(*count)++;
}

void strict_done(struct endpoint *ep, void *context)
{
	const struct fi_context2 *storage = context;

	if (!context)
		return;
	(*count_of_context(ep, context))--;
	if (ep->dom->config->spec.personality == SIM_EFA_DIRECT &&
	    (storage->internal[0] != ep || storage->internal[1] != storage))
		strict_fail("the fi_context2 at %p was written to while its request was in flight", context);
}

/* Any thread may close regions. dom_visit serialises that with the domain's own thread, in a way that
 * ThreadSanitizer does not see. */
#if defined(__SANITIZE_THREAD__)
#define NOT_JUDGED __attribute__((no_sanitize_thread))
#else
#define NOT_JUDGED
#endif

NOT_JUDGED static void check_request(const struct request *request, uint32_t key)
{
	for (size_t i = 0; i < request->count; i++)
		if (request->local_key[i] == key && request->iov[i].iov_len)
			strict_fail("region with key %#x closed while a request that uses it is in flight", key);
}

NOT_JUDGED void strict_mr_close(struct domain *dom, uint32_t key)
{
	for (struct endpoint *ep = dom->endpoints; ep; ep = ep->next) {
		for (uint32_t at = ep->head; ep->enabled && at != ep->tail; at++)
			check_request(&ep->requests[ep->order[at & ep->mask]], key);
		for (uint32_t at = 0; at < ep->slow_count; at++)
			check_request(&ep->requests[ep->slow[at]], key);
	}
}
