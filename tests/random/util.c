/* Time, chance, tickets and what a call may return. Any thread. */
#include "random.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LATE_NS (60 * WEFT_SECOND)
#else
#define LATE_NS (30 * WEFT_SECOND)
#endif

struct ticket {
	_Atomic uint64_t tag; /* 0: free */
	_Atomic(const struct station *) station;
	_Atomic(const struct outlet *) outlet;
	_Atomic uint64_t deadline_ns;
};
static struct ticket tickets[TICKETS];
static _Atomic uint64_t ticket_count;

uint64_t pick(struct caller *caller, uint64_t below)
{
	uint64_t x = caller->seed;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	caller->seed = x;
	return (x * UINT64_C(0x2545f4914f6cdd1d) >> 33) % below;
}

void fail(const char *format, ...)
{
	va_list list;

	fprintf(stderr, "random: process %u, seed %llu: ", world.process, (unsigned long long)world.seed);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fprintf(stderr, "\n");
	abort();
}

void check(struct caller *caller, const char *call, int status, const int *allowed)
{
	caller->made++;
	if (status >= 0)
		return;
	for (int i = 0; allowed[i]; i++)
		if (status == -allowed[i])
			return;
	fail("%s() returned %d: %s", call, status, weft_strerror(status));
}

void enter_call(struct caller *caller, const char *call)
{
	atomic_store(&caller->since_ns, now_ns());
	atomic_store(&caller->in, call);
}

void leave_call(struct caller *caller)
{
	atomic_store(&caller->in, NULL);
}

uint64_t ticket_take(const struct station *station, const struct outlet *outlet, uint64_t deadline_ns)
{
	for (uint32_t i = 0; i < 64; i++) {
		uint64_t tag = atomic_fetch_add(&ticket_count, 1) + TICKETS, none = 0;
		struct ticket *ticket = &tickets[tag % TICKETS];

		if (atomic_load(&ticket->tag))
			continue;
		/* The tag comes last: a thread that finds it finds the rest. */
		if (!atomic_compare_exchange_strong(&ticket->tag, &none, UINT64_MAX))
			continue;
		atomic_store(&ticket->station, station);
		atomic_store(&ticket->outlet, outlet);
		atomic_store(&ticket->deadline_ns, deadline_ns);
		atomic_store(&ticket->tag, tag);
		return tag;
	}
	return 0;
}

void ticket_ended(const struct station *station, uint64_t tag, const char *how)
{
	uint64_t expected = tag;

	if (!tag)
		return; /* nobody asked for its number */
	if (!atomic_compare_exchange_strong(&tickets[tag % TICKETS].tag, &expected, 0))
		fail("engine %u: an operation ended with %s that had ended before or never began", station->number,
		     how);
}

void ticket_void(uint64_t tag)
{
	if (tag)
		atomic_store(&tickets[tag % TICKETS].tag, 0);
}

void tickets_void(const struct station *station, const struct outlet *outlet)
{
	for (uint32_t i = 0; i < TICKETS; i++)
		if (atomic_load(&tickets[i].tag) && atomic_load(&tickets[i].tag) != UINT64_MAX &&
		    atomic_load(&tickets[i].station) == station &&
		    (!outlet || atomic_load(&tickets[i].outlet) == outlet))
			atomic_store(&tickets[i].tag, 0);
}

void tickets_check(void)
{
	uint64_t now = now_ns();

	for (uint32_t i = 0; i < TICKETS; i++) {
		uint64_t tag = atomic_load(&tickets[i].tag), deadline = atomic_load(&tickets[i].deadline_ns);

		if (tag && tag != UINT64_MAX && now > deadline + LATE_NS && atomic_load(&tickets[i].tag) == tag)
			fail("an operation did not end: %.1f s after its deadline", (double)(now - deadline) / 1e9);
	}
}
