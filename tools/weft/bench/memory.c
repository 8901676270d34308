/* The benchmark's memory, the CPU's or a card's: allocated, zeroed and touched before anything is timed, filled and checked; and the
 * benchmark's use of the CPU. */
#include "bench.h"
#include "../common/card.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static int map_own(struct bench_memory *memory, uint64_t bytes)
{
	memory->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory->base == MAP_FAILED) {
		memory->base = NULL;
		return -ENOMEM;
	}
	madvise(memory->base, bytes, MADV_HUGEPAGE);
	return 0;
}

int bench_memory_reach(struct bench_memory *memory, char *why, size_t room)
{
	return !memory->number || memory->card ? 0 : cmd_card_open(memory->number - 1, &memory->card, why, room);
}

/* The CPU does not reach a card's memory: what goes there or comes back is in the piece meanwhile. */
static int open_card(struct bench_memory *memory, char *why, size_t room)
{
	int rc = bench_memory_reach(memory, why, room);

	if (rc == 0)
		rc = cmd_card_alloc(memory->card, memory->bytes, &memory->base, why, room);
	if (rc == -ENOMEM)
		snprintf(why + strlen(why), room - strlen(why), "; use a smaller --region");
	if (rc < 0)
		return rc;
	memory->piece = calloc(1, BENCH_PIECE);
	if (!memory->piece) {
		snprintf(why, room, "out of memory");
		return -ENOMEM;
	}
	for (uint64_t at = 0; rc == 0 && at < memory->bytes; at += BENCH_PIECE) {
		uint64_t left = memory->bytes - at;

		rc = cmd_card_put(memory->card, (char *)memory->base + at, memory->piece,
				  left < BENCH_PIECE ? left : BENCH_PIECE, why, room);
	}
	return rc;
}

int bench_memory_open(struct bench_memory *memory, weft_engine *engine, char *why, size_t room)
{
	int rc;

	if (memory->number)
		return open_card(memory, why, room);
	if (memory->asked && memory->bytes > bench_memory_limit()) {
		snprintf(why, room, "the driver asks for %llu MiB, more than this host has free",
			 (unsigned long long)memory->bytes >> 20);
		return -ENOMEM;
	}
	rc = memory->own ? map_own(memory, memory->bytes)
			 : weft_memory_alloc(engine, memory->bytes, NULL, &memory->base);
	if (rc < 0) {
		snprintf(why, room, "%s", strerror(-rc));
		return rc;
	}
	memset(memory->base, 0, memory->bytes);
	return 0;
}

void bench_memory_close(struct bench_memory *memory)
{
	if (memory->own && memory->base && !memory->number)
		munmap(memory->base, memory->bytes);
	cmd_card_close(memory->card);
	free(memory->piece);
	memory->card = NULL;
	memory->piece = NULL;
	memory->base = NULL;
}

/* What one copy takes to a card or back: whole slots, or a part of a slot that does not fit. */
struct piece {
	uint64_t slot, offset, bytes, slots; /* slots 0: a part */
	bool wrong;                          /* the slot that it is a part of: counted */
};

/* The one after it; before the first it is zero. False when it was the last. */
static bool next_piece(struct piece *piece, uint64_t slot_bytes, uint64_t slots)
{
	uint64_t fit = BENCH_PIECE / slot_bytes, left;

	piece->slot += piece->slots;
	if (piece->bytes && !piece->slots) {
		piece->offset += piece->bytes;
		if (piece->offset == slot_bytes) {
			piece->offset = 0;
			piece->slot++;
		}
	}
	if (piece->slot == slots)
		return false;
	left = fit ? slots - piece->slot : slot_bytes - piece->offset;
	if (fit) {
		piece->slots = left < fit ? left : fit;
		piece->bytes = piece->slots * slot_bytes;
	} else {
		piece->bytes = left < BENCH_PIECE ? left : BENCH_PIECE;
	}
	return true;
}

int bench_memory_fill(struct bench_memory *memory, uint64_t slot_bytes, uint64_t slots, uint64_t seed, char *why,
		      size_t room)
{
	struct piece piece = { 0 };
	int rc = 0;

	for (uint64_t i = 0; !memory->card && i < slots; i++)
		cmd_pattern_fill((uint8_t *)memory->base + i * slot_bytes, slot_bytes, seed, i);
	while (rc == 0 && memory->card && next_piece(&piece, slot_bytes, slots)) {
		for (uint64_t i = 0; i < piece.slots; i++)
			cmd_pattern_fill(memory->piece + i * slot_bytes, slot_bytes, seed, piece.slot + i);
		if (!piece.slots)
			cmd_pattern_fill_part(memory->piece, piece.offset, piece.bytes, seed, piece.slot);
		rc = cmd_card_put(memory->card, (char *)memory->base + piece.slot * slot_bytes + piece.offset,
				  memory->piece, piece.bytes, why, room);
	}
	return rc;
}

static void check_piece(const struct bench_memory *memory, struct piece *piece, const struct bench_expected *expected,
			struct cmd_verdict *verdict)
{
	uint64_t number = expected->first + piece->slot;
	const uint32_t *holds = expected->map + piece->slot;

	if (piece->slots) {
		cmd_pattern_verify(memory->piece, expected->slot_bytes, expected->seed, holds, number, piece->slots,
				   verdict);
		return;
	}
	if (piece->offset == 0) {
		piece->wrong = false;
		verdict->unknown += *holds == CMD_SLOT_UNKNOWN;
		verdict->checked += *holds != CMD_SLOT_UNKNOWN;
	}
	if (*holds != CMD_SLOT_UNKNOWN && !piece->wrong)
		piece->wrong = !cmd_pattern_verify_part(memory->piece, piece->offset, piece->bytes, expected->seed,
							*holds, number, verdict);
}

int bench_memory_verify(struct bench_memory *memory, const struct bench_expected *expected, struct cmd_verdict *verdict,
			char *why, size_t room)
{
	char *base = (char *)memory->base + expected->first * expected->slot_bytes;
	struct piece piece = { 0 };
	int rc = 0;

	if (!memory->card) {
		cmd_pattern_verify(base, expected->slot_bytes, expected->seed, expected->map, expected->first,
				   expected->count, verdict);
		return 0;
	}
	while (rc == 0 && next_piece(&piece, expected->slot_bytes, expected->count)) {
		rc = cmd_card_get(memory->card, memory->piece, base + piece.slot * expected->slot_bytes + piece.offset,
				  piece.bytes, why, room);
		if (rc == 0)
			check_piece(memory, &piece, expected, verdict);
	}
	return rc;
}

uint64_t bench_memory_limit(void)
{
	unsigned long long kilobytes = 0;
	char line[128];
	FILE *file = fopen("/proc/meminfo", "re");

	if (!file)
		return UINT64_MAX;
	while (fgets(line, sizeof line, file) && sscanf(line, "MemAvailable: %llu kB", &kilobytes) != 1)
		;
	fclose(file);
	return kilobytes ? kilobytes * 1024 / 8 * 3 : UINT64_MAX;
}

uint64_t bench_cpu_ns(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	uint64_t seconds = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec);
	uint64_t microseconds = (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
	return seconds * 1000000000 + microseconds * 1000;
}

void bench_idle(uint32_t *idle, bool nothing)
{
	enum { PATIENCE = 512 };
	*idle = nothing ? *idle + 1 : 0;
	if (*idle > PATIENCE)
		sched_yield();
}
