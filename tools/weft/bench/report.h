/* What the files that print a benchmark's end share. */
#ifndef WEFT_TOOLS_BENCH_REPORT_H
#define WEFT_TOOLS_BENCH_REPORT_H

#include "bench.h"

/* The numbers all forms share. */
struct bench_figures {
	double seconds, gbps, line_gbps, utilization, mops, cpu_s;
	uint64_t rail_bytes, size;
	bool paged, line_known, checked, verified;
};
struct bench_figures bench_figure(const struct bench_summary *summary);
/* "mapped" or "copied": what a local rail did with the memory; NULL: none carried any. */
const char *bench_memory_text(const struct bench_summary *summary);
void bench_print_memory(const struct bench_summary *summary); /* a line of the table, or none */
double bench_per(double a, double b);                         /* 0 where b is */

/* json.c */
void bench_json_put(const struct bench_summary *summary, struct cmd_json *json);
void bench_csv_header(void);
void bench_csv_line(const struct bench_summary *summary);

#endif
