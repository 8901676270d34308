/*
 * Engines on simulated NICs, several in one process and each a host of its own, and the faults that strike them.
 * Engines without a thread (WEFT_MANUAL_PROGRESS) do nothing until the test gives them a turn, so the test chooses what
 * one does between two turns of another. Every function fails the test when something goes wrong.
 */
#ifndef TEST_SIMS_H
#define TEST_SIMS_H

#include "sim/control.h"
#include "support/util.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <weft.h>

#include <cmocka.h>

struct sim {
	weft_engine *engine;
	weft_queue *queue;
	char *memory; /* registered for all peers */
	uint64_t bytes;
	weft_region region;
};

/* cmocka's group fixtures: they create and remove the control file. */
int sims_set_up(void **state);
int sims_tear_down(void **state);

/* Limits that a busy machine does not reach. */
struct weft_config sim_config(void);
/* spec: as in SIMFAB; name: the host's name in fault rules. */
void sim_open(struct sim *sim, const char *name, const char *spec, const struct weft_config *config, uint64_t bytes);
void sim_close(struct sim *sim);
/* Adds b as a's peer, and imports b's memory. The peer answers when both have had a few turns. */
weft_peer sim_add(struct sim *a, const struct sim *b, weft_remote *ret_remote);
uint32_t sim_paths(const struct sim *sim, weft_peer peer);

int sim_fault(const char *rule, ...) __attribute__((format(printf, 1, 2))); /* returns its number */
uint64_t sim_struck(int fault);                                             /* how often it struck */
void sim_mend(int fault);                                                   /* -1: all */

/* Gives each engine without a thread a turn. */
void sims_turn(struct sim *const *sims, uint32_t count);
void sims_in_time(uint64_t limit_ns);
void sims_cpu_in_time(uint64_t limit_ns); /* the same, by thread_cpu_ns() */
/* Gives turns until the condition holds, up to a limit that only a failure reaches: of this thread's CPU time, which turns use
 * up and a full machine does not. */
#define SIMS_UNTIL(sims, count, holds)                                                                                 \
	do {                                                                                                           \
		uint64_t until_ns = thread_cpu_ns() + LIMIT;                                                           \
                                                                                                                       \
		while (!(holds)) {                                                                                     \
			sims_cpu_in_time(until_ns);                                                                    \
			sims_turn(sims, count);                                                                        \
		}                                                                                                      \
	} while (0)
/* Gives turns until an event of this type has come to the queue; skips others. The caller releases it. */
void sims_event(struct sim *const *sims, uint32_t count, weft_queue *queue, enum weft_event_type type,
		struct weft_event *ret_event);
#endif
