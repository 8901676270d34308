/*
 * Links that go down and come back while a benchmark runs (--kill-rail, --revive-rail), through the
 * simulator's control file, and what had moved at each such moment. On the driver's only thread.
 */
#ifndef WEFT_TOOLS_BENCH_FAULTS_H
#define WEFT_TOOLS_BENCH_FAULTS_H

#include "../common/options.h"

#include <weft.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The engine's own second would be most of a short run's time without the link. */
#define BENCH_FAULTS_RAIL_LIMIT_NS UINT64_C(100000000)

enum {
	BENCH_FAULTS_MAX = 2 * CMD_STRINGS_MAX,
	BENCH_PHASES_MAX = BENCH_FAULTS_MAX + 1,
	BENCH_RAIL_EVENTS_MAX = 32,
	BENCH_NICS_MAX = 64,
};

struct bench_fault {
	uint64_t at_ns; /* after the measurement starts */
	uint32_t nic;
	bool up;
};
struct bench_schedule {
	struct bench_fault fault[BENCH_FAULTS_MAX]; /* by time */
	uint32_t count;
};

struct bench_mark {
	uint64_t ns, bytes; /* since the measurement started */
	uint64_t cpu_ns;    /* of this process */
};
/* Between two changes. What was not reached is 0: a run may end early. */
struct bench_phase {
	uint64_t from_ns; /* as planned */
	uint32_t dead;    /* NICs whose link is down */
	bool halved;
	struct bench_mark start, half, end;
};

/* A rail whose endpoint is open again has no path yet: its first bytes show that it works. */
enum bench_rail_state { BENCH_RAIL_DOWN, BENCH_RAIL_REOPENED, BENCH_RAIL_CARRIES };
struct bench_rail_event {
	uint64_t ns;
	enum bench_rail_state state;
	char rail[64];
};

struct bench_faults {
	const struct bench_schedule *schedule;
	uint64_t duration_ns;
	struct bench_phase phase[BENCH_PHASES_MAX];
	uint32_t phases, next; /* the next of schedule */
	bool running;
	struct bench_rail_event event[BENCH_RAIL_EVENTS_MAX]; /* the first of them */
	uint32_t events;
	bool reopened[BENCH_NICS_MAX]; /* by rail: it is, and has carried nothing since */
	uint64_t reopened_bytes[BENCH_NICS_MAX];

	uint32_t nics;
	char host[64]; /* this process, for the simulator */
	char nic_name[BENCH_FAULTS_MAX][64];
	int rule[BENCH_NICS_MAX]; /* of the control file; -1: none */
	struct sim_control *control;
	int memory_fd; /* the control file that nobody gave; -1: none */
};

/* 0, or -EINVAL with a sentence in why. */
int bench_schedule_read(struct bench_schedule *schedule, const struct cmd_strings *kill,
			const struct cmd_strings *revive, char *why, size_t room);

/* Before the simulator is set up: sim is the specification as given, ret_spec the one to set up, with a
 * control file in any case. 0, or a negative errno with a sentence in why; close either way. */
int bench_faults_open(struct bench_faults *faults, const struct bench_schedule *schedule, uint64_t duration_ns,
		      const char *sim, char *ret_spec, size_t spec_room, char *why, size_t room);
/* Leaves a control file as it was. */
void bench_faults_close(struct bench_faults *faults);

void bench_faults_start(struct bench_faults *faults);
/* What is due by now happens. 0, or a negative errno with a sentence in why. */
int bench_faults_turn(struct bench_faults *faults, uint64_t since_ns, uint64_t bytes, char *why, size_t room);
/* No operation is submitted from here on. */
void bench_faults_end(struct bench_faults *faults, uint64_t since_ns, uint64_t bytes);
void bench_faults_rail(struct bench_faults *faults, weft_engine *engine, uint64_t since_ns, bool up, const char *rail);
/* Now and then: notes which of the reopened rails carry again. */
void bench_faults_watch(struct bench_faults *faults, weft_engine *engine, uint64_t since_ns);

#endif
