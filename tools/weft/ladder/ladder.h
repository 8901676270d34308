/*
 * weft ladder: runs the journey's programs one after another and sets what each idea brought beside the figures of the tutorial
 * that weft comes from. ladder.c the command, run.c starts a program, model.c what this host cannot show, table.c, json.c and svg.c
 * the results. One thread.
 */
#ifndef WEFT_TOOLS_LADDER_H
#define WEFT_TOOLS_LADDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { LADDER_RUNGS = 9, LADDER_ROUNDS = 32 };

struct ladder_rung {
	int number;
	const char *program, *idea;
	const char *gain; /* why it is faster than the one before */
	double published; /* Gbit/s, in the tutorial on two p5 hosts; 0: none */
	bool threads;     /* one worker per group of NICs */
	bool far;         /* half of its NICs hang on the other socket */
	bool shared;      /* its workers share a cache line per page */
	uint64_t millis;  /* how long a round writes */
};
extern const struct ladder_rung ladder_rungs[LADDER_RUNGS];

/* What a program said of one round. */
struct ladder_sample {
	double writes, page_bytes, wall_s, cpu_s, line_bps;
	int workers, nics;
};

/* Hardware that is not here; ladder.c says where its figures come from. */
struct ladder_model {
	double post_ns; /* CPU time of a post on EFA */
	double far_ns;  /* more for memory of the other socket than for one's own */
	double hop_ns;  /* a cache line's way from one core to another, averaged over two sockets */
};

struct ladder_row {
	const struct ladder_rung *rung;
	int rounds;
	double gbit[LADDER_ROUNDS], cpu_ns[LADDER_ROUNDS]; /* per round */
	int workers, nics;
};

struct ladder {
	struct ladder_model model;
	struct ladder_row rows[LADDER_RUNGS];
	int rounds;
	const char *sim; /* NULL: this host's own NICs, and nothing is modelled */
	const char *provider;
	const char *listen, *connect, *from; /* two hosts; NULL: both sides are here */
	uint64_t page_bytes, workers, nics;
	double line_gbit;
};

/*
 * Runs a program of the journey with these arguments, NULL ends them. 0, or a negative errno with a sentence in `why`. The side that
 * serves prints nothing: its ret_sample is NULL.
 */
int ladder_run(const char *program, const char *const *arguments, struct ladder_sample *ret_sample, char *why,
	       size_t room);

/* One round's rate in Gbit/s, and the CPU time of a write. */
double ladder_rate(const struct ladder *ladder, const struct ladder_rung *rung, const struct ladder_sample *sample);
double ladder_cpu_ns(const struct ladder *ladder, const struct ladder_rung *rung, const struct ladder_sample *sample);
/* What of a rung's figure is the model's, "" for nothing: a list with commas. Returns text. */
char *ladder_modelled(const struct ladder *ladder, const struct ladder_rung *rung, char *text, size_t room);

/* Over the rounds so far: Gbit/s, and nanoseconds of CPU per write. */
double ladder_gbit(const struct ladder *ladder, const struct ladder_row *row);
double ladder_cost(const struct ladder *ladder, const struct ladder_row *row);
int ladder_table_lines(void);
void ladder_print_table(const struct ladder *ladder, FILE *to);
void ladder_print_json(const struct ladder *ladder, FILE *to);
void ladder_print_svg(const struct ladder *ladder, FILE *to);

#endif
