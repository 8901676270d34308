/* The end of a benchmark, for people (a table), for programs (JSON, CSV). */
#include "bench.h"
#include "report.h"
#include "../commands.h"
#include "../common/json.h"
#include "../common/options.h"
#include "sim/setup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Below this part of the line rate a simulated run is explained. */
#define LOW_UTILIZATION 0.8
enum { FOLDED_RAILS = 8 }; /* more are shown by group */

double bench_per(double a, double b)
{
	return b > 0 ? a / b : 0;
}

struct bench_figures bench_figure(const struct bench_summary *summary)
{
	const struct bench_params *params = &summary->options->params;
	struct bench_figures figures = { .seconds = (double)summary->ns / 1e9 };

	figures.gbps = bench_per((double)summary->bytes * 8, (double)summary->ns);
	figures.line_known = summary->line_bps != 0;
	figures.line_gbps = (double)summary->line_bps / 1e9;
	figures.utilization = bench_per(figures.gbps, figures.line_gbps);
	figures.mops = bench_per((double)summary->ops * 1e3, (double)summary->ns);
	figures.cpu_s = (double)(summary->cpu_ns + summary->peer_cpu_ns) / 1e9;
	figures.paged = params->op == BENCH_PAGES || params->op == BENCH_SCATTER;
	figures.size = params->slot_bytes * params->pages;
	figures.checked = params->verify && summary->have_result;
	figures.verified = figures.checked && !summary->error[0];
	for (uint32_t i = 0; i < summary->rails; i++)
		figures.rail_bytes += summary->rail[i].bytes;
	return figures;
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

static void print_rail(const char *name, int width, const struct bench_rail *rail, const struct bench_summary *summary,
		       const struct bench_figures *figures)
{
	char size[32];

	printf("  %-*s %12s %10.2f %7.1f%% %8" PRIu64 " %8" PRIu64, width, name,
	       cmd_format_size(rail->bytes, size, sizeof size), bench_per((double)rail->bytes * 8, (double)summary->ns),
	       100 * bench_per((double)rail->bytes, (double)figures->rail_bytes), rail->errors, rail->retries);
}

/* A group's rails in one line, with the least and the most that one of them carried; those that had errors
 * besides. */
static void print_group(uint32_t group, int width, const struct bench_summary *summary,
			const struct bench_figures *figures)
{
	struct bench_rail all = { .group = group };
	uint64_t least = UINT64_MAX, most = 0;
	uint32_t count = 0;
	char name[64];

	for (uint32_t i = 0; i < summary->rails; i++) {
		const struct bench_rail *rail = &summary->rail[i];

		if (rail->group != group)
			continue;
		all.bytes += rail->bytes;
		all.errors += rail->errors;
		all.retries += rail->retries;
		least = rail->bytes < least ? rail->bytes : least;
		most = rail->bytes > most ? rail->bytes : most;
		count++;
	}
	if (!count)
		return;
	snprintf(name, sizeof name, "group %u, %u rail%s", group, count, count == 1 ? "" : "s");
	print_rail(name, width, &all, summary, figures);
	printf("   each %.2f to %.2f Gbit/s\n", bench_per((double)least * 8, (double)summary->ns),
	       bench_per((double)most * 8, (double)summary->ns));
	for (uint32_t i = 0; i < summary->rails; i++) {
		const struct bench_rail *rail = &summary->rail[i];

		if (rail->group != group || !(rail->errors || rail->retries))
			continue;
		snprintf(name, sizeof name, "  %.60s", rail->name);
		print_rail(name, width, rail, summary, figures);
		putchar('\n');
	}
}

static void print_rails(const struct bench_summary *summary, const struct bench_figures *figures)
{
	bool folded = summary->rails > FOLDED_RAILS && !summary->options->each_rail;
	uint32_t groups = 0;
	int width = folded ? 20 : 16;

	for (uint32_t i = 0; i < summary->rails; i++) {
		int length = (int)strlen(summary->rail[i].name);
		width = length > width ? length : width;
		groups = summary->rail[i].group >= groups ? summary->rail[i].group + 1 : groups;
	}
	printf("\n  %-*s %12s %10s %8s %8s %8s\n", width, "rail", "bytes", "Gbit/s", "share", "errors", "retries");
	for (uint32_t group = 0; folded && group < groups; group++)
		print_group(group, width, summary, figures);
	for (uint32_t i = 0; !folded && i < summary->rails; i++) {
		print_rail(summary->rail[i].name, width, &summary->rail[i], summary, figures);
		putchar('\n');
	}
	if (folded)
		printf("  (--each-rail shows all %u)\n", summary->rails);
	putchar('\n');
}

const char *bench_memory_text(const struct bench_summary *summary)
{
	uint64_t bytes = 0, mapped = 0;

	for (uint32_t i = 0; i < summary->rails; i++) {
		bytes += summary->rail[i].local ? summary->rail[i].bytes : 0;
		mapped += summary->rail[i].mapped;
	}
	if (!bytes || bench_op_is_message(summary->options->params.op) || summary->options->params.card[0] ||
	    summary->options->params.card[1])
		return NULL;
	/* The rails' bytes include those of frames, which never are. */
	return mapped > bytes / 2 ? "mapped" : "copied";
}

/* "cuda:0 here (local)". */
static void print_place(const struct bench_summary *summary, int side)
{
	const char *path = bench_mem_path(summary, side);
	char text[BENCH_MEM_TEXT];

	printf("%s %s%s%s%s", bench_mem_text(summary->options->params.card[side], text), side ? "at the peer" : "here",
	       path ? " (" : "", path ? path : "", path ? ")" : "");
}

void bench_print_memory(const struct bench_summary *summary)
{
	const struct bench_params *params = &summary->options->params;
	const char *memory = bench_memory_text(summary);

	if (params->card[0] || params->card[1]) {
		printf("  memory        ");
		print_place(summary, 0);
		printf(", ");
		print_place(summary, 1);
		putchar('\n');
	} else if (memory)
		printf("  memory        %s\n", *memory == 'm'
						   ? "mapped: both processes have it, and the kernel copies nothing"
						   : "copied by the kernel: it is not of weft_memory_alloc()");
}

static char *rate_text(double rate, const char *counted, char *text, size_t room)
{
	if (counted)
		return cmd_format_count(rate, text, room);
	snprintf(text, room, "%.2f", rate);
	return text;
}

static void print_clients(const struct bench_summary *summary)
{
	const char *counted = bench_op_counted(summary->options->params.op);
	double way[2] = { 0 };
	char p50[32], p99[32], unit[32], rate[32], back[32];

	if (!summary->client_count)
		return;
	snprintf(unit, sizeof unit, "%s/s", counted ? counted : "Gbit");
	printf("  %-16s %13s %12s %10s %10s\n", "client", unit, "operations", "p50", "p99");
	for (uint32_t i = 0; i < summary->client_count; i++) {
		const struct bench_client *client = &summary->clients[i];
		double per_second = counted ? bench_per((double)client->ops * 1e9, (double)client->ns)
					    : bench_per((double)client->bytes * 8, (double)client->ns);
		char name[32];

		way[client->direction == BENCH_IN] += per_second;
		snprintf(name, sizeof name, "%u %s", i + 1, bench_direction_names[client->direction]);
		if (!client->ops) {
			printf("  %-16s %13s\n", name, client->failed ? "failed" : "nothing");
			continue;
		}
		printf("  %-16s %13s %12" PRIu64 " %10s %10s%s\n", name,
		       rate_text(per_second, counted, rate, sizeof rate), client->ops,
		       cmd_format_latency(client->p50_ns, p50, sizeof p50),
		       cmd_format_latency(client->p99_ns, p99, sizeof p99), client->failed ? "  failed" : "");
	}
	if (summary->options->direction == BENCH_BOTH)
		printf("  %-16s %13s out, %s in\n", "", rate_text(way[0], counted, rate, sizeof rate),
		       rate_text(way[1], counted, back, sizeof back));
	putchar('\n');
}

static void print_verdict(const struct bench_summary *summary, const struct bench_figures *figures)
{
	const struct cmd_verdict *verdict = &summary->result.verdict;
	const struct bench_params *params = &summary->options->params;
	static const char *const read_at[] = { ", here", ", at the peer", ", at the side that read them" };
	static const char *const call_at[] = { ", at the peer, and of as many replies here",
					       ", here, and of as many replies at the peer",
					       ", at the side called, and of as many replies" };
	const char *what = bench_op_is_message(params->op) ? "messages" : figures->paged ? "pages" : "places";

	if (!params->verify)
		printf("  verified      no: %s\n", summary->options->not_verified);
	else if (!summary->have_result)
		puts("  verified      no: the run did not get that far");
	else if (verdict->wrong)
		printf("  verified      NO: %" PRIu64 " of %" PRIu64 " %s are wrong\n", verdict->wrong,
		       verdict->checked, what);
	else
		printf("  verified      every byte of %" PRIu64 " %s%s\n", verdict->checked, what,
		       params->op == BENCH_READ   ? read_at[summary->options->direction]
		       : params->op == BENCH_CALL ? call_at[summary->options->direction]
						  : ", at the receiver");
}

static void print_latency(const struct cmd_histogram *latency)
{
	char text[4][32];

	for (int i = 0; i < 4; i++)
		cmd_format_latency(cmd_histogram_quantile(latency, (const double[]){ 0.50, 0.99, 0.999, 1 }[i]),
				   text[i], sizeof text[i]);
	printf("  latency       p50 %s, p99 %s, p99.9 %s, most %s\n", text[0], text[1], text[2], text[3]);
}

/* What one came for: of messages how many, of data how fast. */
static void print_headline(const struct bench_summary *summary, const struct bench_figures *figures)
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
	struct bench_figures figures = bench_figure(summary);
	char text[160], size[32], rate[32];

	bench_params_describe(params, text, sizeof text);
	fputs(text, stdout);
	if (summary->options->direction != BENCH_OUT)
		fputs(summary->options->direction == BENCH_IN ? ", from the peer to this side" : ", both ways at once",
		      stdout);
	if (summary->options->clients > 1)
		printf(", %" PRIu64 " clients", summary->options->clients);
	if (params->simulated)
		printf(" (%s)", wf_sim_kind());
	putchar('\n');
	printf("  transport     %s, %u rail%s%s: %s\n", summary->provider, (unsigned)summary->own_rails,
	       summary->own_rails == 1 ? "" : "s", params->simulated ? ", simulated" : "", summary->why);
	printf("  peer          %s, %u rail%s\n", summary->peer, summary->ready.rails,
	       summary->ready.rails == 1 ? "" : "s");
	bench_print_memory(summary);
	print_rails(summary, &figures);
	print_clients(summary);
	printf("  moved         %s in %.3f s%s\n", cmd_format_size(summary->bytes, size, sizeof size), figures.seconds,
	       summary->interrupted ? " (interrupted)" : "");
	cmd_format_count(figures.mops * 1e6 * (double)params->pages, rate, sizeof rate);
	if (figures.paged)
		printf("  operations    %" PRIu64 " of %" PRIu64 " pages: %s pages/s\n", summary->ops, params->pages,
		       rate);
	else
		printf("  operations    %" PRIu64 ": %s/s\n", summary->ops, rate);
	print_latency(&summary->latency);
	printf("  CPU           %.2f s here, %.2f s at the peer\n", (double)summary->cpu_ns / 1e9,
	       (double)summary->peer_cpu_ns / 1e9);
	if (summary->rails_down || summary->rails_up || summary->options->faults)
		printf("  rail events   %" PRIu64 " down, %" PRIu64 " reopened, on this side\n", summary->rails_down,
		       summary->rails_up);
	print_verdict(summary, &figures);
	print_headline(summary, &figures);
	for (uint32_t i = 0; i < summary->notes; i++)
		printf("  note          %s\n", summary->note[i]);
	if (summary->options->sim_copies && figures.line_known && figures.utilization < LOW_UTILIZATION &&
	    !bench_op_is_message(params->op) && !summary->options->faults)
		printf("  note          this host's cores copy the data of the simulated NICs, and that is the limit;\n"
		       "                --sim %s,copy=none --no-verify shows what the engine can drive\n",
		       summary->options->sim);
	if (summary->options->faults)
		bench_phases_print(summary);
}

static void report_json(const struct bench_summary *summary)
{
	struct cmd_json json;

	cmd_json_start(&json, stdout);
	bench_json_put(summary, &json);
	cmd_json_end(&json);
}

/* As a shell counts what a signal ended: a script sees that this was not the run it asked for. */
static int status_of(const struct bench_summary *summary)
{
	if (summary->error[0])
		return CMD_FAILED;
	return summary->interrupted ? 128 + summary->interrupted : CMD_OK;
}

static int write_histogram(const struct bench_summary *summary)
{
	const char *path = summary->options->histogram;
	int rc = path ? bench_histogram_write(summary, path) : 0;

	if (rc == 0)
		return CMD_OK;
	fprintf(stderr, "weft bench: --histogram %s: %s\n", path, strerror(-rc));
	return CMD_FAILED;
}

int bench_report(const struct bench_summary *summary)
{
	enum bench_format format = summary->options->format;
	bool failed = summary->error[0];
	int status = status_of(summary);

	if (failed && !summary->ops)
		report_nothing(summary);
	else if (format == BENCH_JSON)
		report_json(summary);
	else if (format == BENCH_CSV)
		bench_csv_header(), bench_csv_line(summary);
	else
		report_table(summary);
	if (failed) {
		fflush(stdout); /* in this order on a terminal too */
		fprintf(stderr, "weft bench: %s\n", summary->error);
	}
	if (summary->ops && write_histogram(summary) != CMD_OK && status == CMD_OK)
		status = CMD_FAILED;
	return status;
}
