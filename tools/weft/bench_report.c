/* The end of a benchmark, for people (a table), for programs (JSON, CSV). */
#include "bench.h"
#include "commands.h"
#include "json.h"
#include "options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Below this part of the line rate a simulated run is explained. */
#define LOW_UTILIZATION 0.8

/* The numbers all three forms share. */
struct figures {
	double seconds, gbps, line_gbps, utilization, mops, p50_us, p99_us, cpu_s;
	uint64_t rail_bytes, page_bytes, size;
	bool paged, line_known, checked, verified;
};

static double per(double a, double b)
{
	return b > 0 ? a / b : 0;
}

static struct figures figure(const struct bench_summary *summary)
{
	const struct bench_params *params = &summary->options->params;
	struct figures figures = { .seconds = (double)summary->ns / 1e9 };

	figures.gbps = per((double)summary->bytes * 8, (double)summary->ns);
	figures.line_known = summary->line_bps != 0;
	figures.line_gbps = (double)summary->line_bps / 1e9;
	figures.utilization = per(figures.gbps, figures.line_gbps);
	figures.mops = per((double)summary->ops * 1e3, (double)summary->ns);
	figures.p50_us = (double)cmd_histogram_quantile(&summary->latency, 0.50) / 1e3;
	figures.p99_us = (double)cmd_histogram_quantile(&summary->latency, 0.99) / 1e3;
	figures.cpu_s = (double)(summary->cpu_ns + summary->peer_cpu_ns) / 1e9;
	figures.paged = params->op == BENCH_PAGES || params->op == BENCH_SCATTER;
	figures.size = params->slot_bytes * params->pages;
	figures.checked = params->verify && summary->have_result;
	figures.verified = figures.checked && !summary->error[0];
	for (uint32_t i = 0; i < summary->rails; i++)
		figures.rail_bytes += summary->rail[i].bytes;
	return figures;
}

static void report_json(const struct bench_summary *summary)
{
	const struct bench_params *params = &summary->options->params;
	struct figures figures = figure(summary);
	struct cmd_json json;

	cmd_json_start(&json, stdout);
	cmd_json_open(&json, NULL, '{');
	cmd_json_text(&json, "provider", summary->provider);
	cmd_json_number(&json, "rails", summary->rails);
	cmd_json_text(&json, "op", bench_op_names[params->op]);
	cmd_json_number(&json, "size", figures.size);
	if (figures.paged)
		cmd_json_number(&json, "page_size", params->slot_bytes);
	else
		cmd_json_null(&json, "page_size");
	cmd_json_number(&json, "depth", params->depth);
	cmd_json_number(&json, "ops", summary->ops);
	cmd_json_number(&json, "bytes", summary->bytes);
	cmd_json_real(&json, "seconds", figures.seconds, 6);
	cmd_json_real(&json, "gbps", figures.gbps, 3);
	if (figures.line_known) {
		cmd_json_real(&json, "line_gbps", figures.line_gbps, 3);
		cmd_json_real(&json, "utilization", figures.utilization, 4);
	} else {
		cmd_json_null(&json, "line_gbps");
		cmd_json_null(&json, "utilization");
	}
	cmd_json_real(&json, "mops", figures.mops, 6);
	cmd_json_real(&json, "p50_us", figures.p50_us, 3);
	cmd_json_real(&json, "p99_us", figures.p99_us, 3);
	cmd_json_real(&json, "cpu_s", figures.cpu_s, 3);
	if (figures.checked)
		cmd_json_bool(&json, "verified", figures.verified);
	else
		cmd_json_null(&json, "verified");
	cmd_json_bool(&json, "simulated", params->simulated);
	cmd_json_bool(&json, "interrupted", summary->interrupted);
	cmd_json_open(&json, "rail", '[');
	for (uint32_t i = 0; i < summary->rails; i++) {
		const struct bench_rail *rail = &summary->rail[i];
		cmd_json_open(&json, NULL, '{');
		cmd_json_text(&json, "name", rail->name);
		cmd_json_number(&json, "bytes", rail->bytes);
		cmd_json_real(&json, "gbps", per((double)rail->bytes * 8, (double)summary->ns), 3);
		cmd_json_real(&json, "share", per((double)rail->bytes, (double)figures.rail_bytes), 4);
		cmd_json_number(&json, "errors", rail->errors);
		cmd_json_number(&json, "retries", rail->retries);
		cmd_json_close(&json, '}');
	}
	cmd_json_close(&json, ']');
	if (summary->options->faults)
		bench_phases_json(summary, &json);
	if (summary->error[0])
		cmd_json_text(&json, "error", summary->error);
	cmd_json_close(&json, '}');
	cmd_json_end(&json);
}

/* What never ran has nothing to show but why. */
static void report_nothing(const struct bench_summary *summary)
{
	struct cmd_json json;

	if (summary->options->format != BENCH_JSON)
		return;
	cmd_json_start(&json, stdout);
	cmd_json_open(&json, NULL, '{');
	cmd_json_text(&json, "error", summary->error);
	cmd_json_bool(&json, "simulated", summary->options->params.simulated);
	cmd_json_bool(&json, "interrupted", summary->interrupted);
	cmd_json_close(&json, '}');
	cmd_json_end(&json);
}

static void report_csv(const struct bench_summary *summary)
{
	const struct bench_params *params = &summary->options->params;
	struct figures figures = figure(summary);

	puts("provider,rails,op,size,page_size,depth,ops,bytes,seconds,gbps,line_gbps,utilization,mops,p50_"
	     "us,p99_us,cpu_s,verified,simulated,interrupted");
	printf("%s,%u,%s,%" PRIu64 ",", summary->provider, summary->rails, bench_op_names[params->op],
	       figures.size);
	if (figures.paged)
		printf("%" PRIu64, params->slot_bytes);
	printf(",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.6f,%.3f,", params->depth, summary->ops, summary->bytes,
	       figures.seconds, figures.gbps);
	if (figures.line_known)
		printf("%.3f,%.4f,", figures.line_gbps, figures.utilization);
	else
		fputs(",,", stdout);
	printf("%.6f,%.3f,%.3f,%.3f,%s,%s,%s\n", figures.mops, figures.p50_us, figures.p99_us, figures.cpu_s,
	       figures.checked ? (figures.verified ? "true" : "false") : "",
	       params->simulated ? "true" : "false", summary->interrupted ? "true" : "false");
}

static void print_rails(const struct bench_summary *summary, const struct figures *figures)
{
	char size[32];
	int width = 16;

	for (uint32_t i = 0; i < summary->rails; i++) {
		int length = (int)strlen(summary->rail[i].name);
		width = length > width ? length : width;
	}
	printf("\n  %-*s %12s %10s %8s %8s %8s\n", width, "rail", "bytes", "Gbit/s", "share", "errors",
	       "retries");
	for (uint32_t i = 0; i < summary->rails; i++) {
		const struct bench_rail *rail = &summary->rail[i];
		printf("  %-*s %12s %10.2f %7.1f%% %8" PRIu64 " %8" PRIu64 "\n", width, rail->name,
		       cmd_format_size(rail->bytes, size, sizeof size),
		       per((double)rail->bytes * 8, (double)summary->ns),
		       100 * per((double)rail->bytes, (double)figures->rail_bytes), rail->errors,
		       rail->retries);
	}
	putchar('\n');
}

static void print_verdict(const struct bench_summary *summary, const struct figures *figures)
{
	const struct cmd_verdict *verdict = &summary->result.verdict;
	const struct bench_params *params = &summary->options->params;
	const char *what = bench_op_is_message(params->op) ? "messages" : figures->paged ? "pages" : "places";

	if (!params->verify)
		printf("  verified      no: %s\n", summary->options->not_verified);
	else if (!summary->have_result)
		puts("  verified      no: it did not come to that");
	else if (verdict->wrong)
		printf("  verified      NO: %" PRIu64 " of %" PRIu64 " %s are wrong\n", verdict->wrong,
		       verdict->checked, what);
	else
		printf("  verified      every byte of %" PRIu64 " %s%s\n", verdict->checked, what,
		       params->op == BENCH_READ	  ? ", here"
		       : params->op == BENCH_CALL ? ", at the peer, and of as many replies here"
						  : ", at the receiver");
}

static void print_latency(const struct cmd_histogram *latency)
{
	char p50[32], p99[32], most[32];

	printf("  latency       p50 %s, p99 %s, most %s\n",
	       cmd_format_latency(cmd_histogram_quantile(latency, 0.50), p50, sizeof p50),
	       cmd_format_latency(cmd_histogram_quantile(latency, 0.99), p99, sizeof p99),
	       cmd_format_latency(latency->largest, most, sizeof most));
}

/* What one came for: of messages how many, of data how fast. */
static void print_headline(const struct bench_summary *summary, const struct figures *figures)
{
	const struct bench_params *params = &summary->options->params;
	const char *simulated = params->simulated ? " (simulated)" : "";
	char rate[32];

	if (bench_op_counted(params->op)) {
		printf("  throughput    %s %s/s%s", cmd_format_count(figures->mops * 1e6, rate, sizeof rate),
		       bench_op_counted(params->op), simulated);
		if (figures->gbps >= 0.1)
			printf(", %.2f Gbit/s", figures->gbps);
	} else {
		printf("  throughput    %.2f Gbit/s%s", figures->gbps, simulated);
		if (figures->line_known)
			printf(", %.1f %% of the line rate of %.0f Gbit/s", 100 * figures->utilization,
			       figures->line_gbps);
	}
	putchar('\n');
}

static void report_table(const struct bench_summary *summary)
{
	const struct bench_params *params = &summary->options->params;
	struct figures figures = figure(summary);
	char text[160], size[32], rate[32];

	bench_params_describe(params, text, sizeof text);
	printf("%s%s\n", text, params->simulated ? " (simulated NICs)" : "");
	printf("  transport     %s, %u rail%s%s: %s\n", summary->provider, summary->rails,
	       summary->rails == 1 ? "" : "s", params->simulated ? ", simulated" : "", summary->why);
	printf("  peer          %s, %u rail%s\n", summary->peer, summary->peer_rails,
	       summary->peer_rails == 1 ? "" : "s");
	print_rails(summary, &figures);
	printf("  moved         %s in %.3f s%s\n", cmd_format_size(summary->bytes, size, sizeof size),
	       figures.seconds, summary->interrupted ? " (interrupted)" : "");
	cmd_format_count(figures.mops * 1e6 * (double)params->pages, rate, sizeof rate);
	if (figures.paged)
		printf("  operations    %" PRIu64 " of %" PRIu64 " pages: %s pages/s\n", summary->ops,
		       params->pages, rate);
	else
		printf("  operations    %" PRIu64 ": %s/s\n", summary->ops, rate);
	print_latency(&summary->latency);
	printf("  CPU           %.2f s here, %.2f s at the peer\n", (double)summary->cpu_ns / 1e9,
	       (double)summary->peer_cpu_ns / 1e9);
	if (summary->rails_down || summary->rails_up || summary->options->faults)
		printf("  rail events   %" PRIu64 " down, %" PRIu64 " reopened, on this side\n",
		       summary->rails_down, summary->rails_up);
	print_verdict(summary, &figures);
	print_headline(summary, &figures);
	if (summary->options->sim_copies && figures.line_known && figures.utilization < LOW_UTILIZATION &&
	    !bench_op_is_message(params->op) && !summary->options->faults)
		printf("  note          the simulated NICs' data is really copied, by this host's cores, and "
		       "that is "
		       "the limit;\n"
		       "                --sim %s,copy=none --no-verify shows what the engine can drive\n",
		       summary->options->sim);
	if (summary->options->faults)
		bench_phases_print(summary);
}

int bench_report(const struct bench_summary *summary)
{
	enum bench_format format = summary->options->format;
	bool failed = summary->error[0];

	if (failed && !summary->ops)
		report_nothing(summary);
	else if (format == BENCH_JSON)
		report_json(summary);
	else if (format == BENCH_CSV)
		report_csv(summary);
	else
		report_table(summary);
	if (failed) {
		fflush(stdout); /* in this order on a terminal too */
		fprintf(stderr, "weft bench: %s\n", summary->error);
	}
	if (failed)
		return CMD_FAILED;
	/* As a shell counts what a signal ended: a script sees that this was not the run it asked for. */
	return summary->interrupted ? 128 + summary->interrupted : CMD_OK;
}
