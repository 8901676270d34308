/* The end of a benchmark for programs: JSON that can be kept by itself, CSV, and the latencies as a table. */
#include "bench.h"
#include "report.h"
#include "../common/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void put_real(struct cmd_json *json, const char *name, double value, int digits, bool known)
{
	if (known)
		cmd_json_real(json, name, value, digits);
	else
		cmd_json_null(json, name);
}

static char *time_text(const struct bench_summary *summary, char *text, size_t room)
{
	struct tm utc;

	if (!gmtime_r(&summary->began, &utc) || !strftime(text, room, "%Y-%m-%dT%H:%M:%SZ", &utc))
		text[0] = '\0';
	return text;
}

static char *host_text(char *text, size_t room)
{
	text[room - 1] = '\0';
	if (gethostname(text, room - 1) < 0)
		text[0] = '\0';
	return text;
}

/* Where, when and with what: a result that is found a year later explains itself. */
static void put_origin(const struct bench_summary *summary, struct cmd_json *json)
{
	const struct bench_options *options = summary->options;
	char text[64];

	cmd_json_text(json, "time", time_text(summary, text, sizeof text));
	cmd_json_text(json, "host", host_text(text, sizeof text));
	cmd_json_text(json, "weft", weft_version());
	cmd_json_text(json, "libfabric", summary->libfabric);
	cmd_json_number(json, "workers", summary->workers);
	cmd_json_number(json, "groups", summary->groups);
	cmd_json_text(json, "peer_host", summary->ready.host);
	cmd_json_text(json, "peer_weft", summary->ready.weft);
	cmd_json_text(json, "peer_libfabric", summary->ready.libfabric);
	cmd_json_number(json, "peer_workers", summary->ready.workers);
	cmd_json_number(json, "peer_rails", summary->ready.rails);
	cmd_json_number(json, "seed", options->params.seed);
	cmd_json_open(json, "command", '[');
	cmd_json_text(json, NULL, "weft");
	for (int i = 0; i < options->argc; i++)
		cmd_json_text(json, NULL, options->argv[i]);
	cmd_json_close(json, ']');
}

static void put_latency(const struct bench_summary *summary, struct cmd_json *json)
{
	static const struct {
		const char *name;
		double fraction;
	} quantiles[] = { { "p50_us", 0.50 }, { "p99_us", 0.99 }, { "p99_9_us", 0.999 }, { "max_us", 1 } };

	for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0]; i++)
		cmd_json_real(json, quantiles[i].name,
			      (double)cmd_histogram_quantile(&summary->latency, quantiles[i].fraction) / 1e3, 3);
}

static void put_rails(const struct bench_summary *summary, const struct bench_figures *figures, struct cmd_json *json)
{
	cmd_json_open(json, "rail", '[');
	for (uint32_t i = 0; i < summary->rails; i++) {
		const struct bench_rail *rail = &summary->rail[i];
		cmd_json_open(json, NULL, '{');
		cmd_json_text(json, "name", rail->name);
		cmd_json_number(json, "group", rail->group);
		cmd_json_number(json, "bytes", rail->bytes);
		cmd_json_real(json, "gbps", bench_per((double)rail->bytes * 8, (double)summary->ns), 3);
		cmd_json_real(json, "share", bench_per((double)rail->bytes, (double)figures->rail_bytes), 4);
		cmd_json_number(json, "errors", rail->errors);
		cmd_json_number(json, "retries", rail->retries);
		cmd_json_close(json, '}');
	}
	cmd_json_close(json, ']');
}

static void put_clients(const struct bench_summary *summary, struct cmd_json *json)
{
	cmd_json_text(json, "direction", bench_direction_names[summary->options->direction]);
	cmd_json_number(json, "clients", summary->options->clients);
	if (!summary->client_count)
		return;
	cmd_json_open(json, "client", '[');
	for (uint32_t i = 0; i < summary->client_count; i++) {
		const struct bench_client *client = &summary->clients[i];

		cmd_json_open(json, NULL, '{');
		cmd_json_text(json, "direction", bench_direction_names[client->direction]);
		cmd_json_number(json, "ops", client->ops);
		cmd_json_number(json, "bytes", client->bytes);
		cmd_json_real(json, "seconds", (double)client->ns / 1e9, 6);
		cmd_json_real(json, "gbps", bench_per((double)client->bytes * 8, (double)client->ns), 3);
		cmd_json_real(json, "p50_us", (double)client->p50_ns / 1e3, 3);
		cmd_json_real(json, "p99_us", (double)client->p99_ns / 1e3, 3);
		cmd_json_close(json, '}');
	}
	cmd_json_close(json, ']');
}

static void put_memory(const struct bench_summary *summary, struct cmd_json *json)
{
	static const char *const names[2][2] = { { "mem", "mem_path" }, { "peer_mem", "peer_mem_path" } };
	char text[BENCH_MEM_TEXT];

	for (int side = 0; side < 2; side++) {
		const char *path = bench_mem_path(summary, side);

		cmd_json_text(json, names[side][0], bench_mem_text(summary->options->params.card[side], text));
		if (path)
			cmd_json_text(json, names[side][1], path);
		else
			cmd_json_null(json, names[side][1]);
	}
}

void bench_json_put(const struct bench_summary *summary, struct cmd_json *json)
{
	const struct bench_params *params = &summary->options->params;
	struct bench_figures figures = bench_figure(summary);

	cmd_json_open(json, NULL, '{');
	cmd_json_text(json, "provider", summary->provider);
	cmd_json_number(json, "rails", summary->own_rails);
	cmd_json_text(json, "op", bench_op_names[params->op]);
	cmd_json_number(json, "size", figures.size);
	if (figures.paged)
		cmd_json_number(json, "page_size", params->slot_bytes);
	else
		cmd_json_null(json, "page_size");
	cmd_json_number(json, "depth", params->depth);
	cmd_json_number(json, "ops", summary->ops);
	cmd_json_number(json, "bytes", summary->bytes);
	cmd_json_real(json, "seconds", figures.seconds, 6);
	cmd_json_real(json, "gbps", figures.gbps, 3);
	put_real(json, "line_gbps", figures.line_gbps, 3, figures.line_known);
	put_real(json, "utilization", figures.utilization, 4, figures.line_known);
	cmd_json_real(json, "mops", figures.mops, 6);
	put_latency(summary, json);
	cmd_json_real(json, "cpu_s", figures.cpu_s, 3);
	if (figures.checked)
		cmd_json_bool(json, "verified", figures.verified);
	else
		cmd_json_null(json, "verified");
	cmd_json_bool(json, "simulated", params->simulated);
	cmd_json_bool(json, "interrupted", summary->interrupted);
	if (bench_memory_text(summary))
		cmd_json_text(json, "memory", bench_memory_text(summary));
	else
		cmd_json_null(json, "memory");
	put_memory(summary, json);
	put_rails(summary, &figures, json);
	cmd_json_open(json, "notes", '[');
	for (uint32_t i = 0; i < summary->notes; i++)
		cmd_json_text(json, NULL, summary->note[i]);
	cmd_json_close(json, ']');
	put_origin(summary, json);
	put_clients(summary, json);
	if (summary->options->faults)
		bench_phases_json(summary, json);
	if (summary->error[0])
		cmd_json_text(json, "error", summary->error);
	cmd_json_close(json, '}');
}

void bench_csv_header(void)
{
	puts("provider,rails,op,size,page_size,depth,ops,bytes,seconds,gbps,line_gbps,utilization,mops,p50_"
	     "us,p99_us,"
	     "p99_9_us,max_us,cpu_s,verified,simulated,interrupted,time,host,direction,clients,mem,peer_mem,mem_path,"
	     "peer_mem_path");
}

void bench_csv_line(const struct bench_summary *summary)
{
	const struct bench_params *params = &summary->options->params;
	struct bench_figures figures = bench_figure(summary);
	const char *paths[] = { bench_mem_path(summary, 0), bench_mem_path(summary, 1) };
	char time[64], host[64], mem[BENCH_MEM_TEXT];

	printf("%s,%" PRIu64 ",%s,%" PRIu64 ",", summary->provider, summary->own_rails, bench_op_names[params->op],
	       figures.size);
	if (figures.paged)
		printf("%" PRIu64, params->slot_bytes);
	printf(",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.6f,%.3f,", params->depth, summary->ops, summary->bytes,
	       figures.seconds, figures.gbps);
	if (figures.line_known)
		printf("%.3f,%.4f,", figures.line_gbps, figures.utilization);
	else
		fputs(",,", stdout);
	printf("%.6f,", figures.mops);
	for (int i = 0; i < 4; i++)
		printf("%.3f,",
		       (double)cmd_histogram_quantile(&summary->latency, (const double[]){ 0.5, 0.99, 0.999, 1 }[i]) /
			   1e3);
	printf("%.3f,%s,%s,%s,", figures.cpu_s, figures.checked ? (figures.verified ? "true" : "false") : "",
	       params->simulated ? "true" : "false", summary->interrupted ? "true" : "false");
	printf("%s,%s,%s,%" PRIu64 ",%s,", time_text(summary, time, sizeof time), host_text(host, sizeof host),
	       bench_direction_names[summary->options->direction], summary->options->clients,
	       bench_mem_text(params->card[0], mem));
	printf("%s,%s,%s\n", bench_mem_text(params->card[1], mem), paths[0] ? paths[0] : "", paths[1] ? paths[1] : "");
}

int bench_histogram_write(const struct bench_summary *summary, const char *path)
{
	FILE *to = fopen(path, "we");
	int rc = 0;

	if (!to)
		return -errno;
	fputs("from_ns,to_ns,count\n", to);
	for (unsigned i = 0; i < CMD_HISTOGRAM_BUCKETS; i++) {
		uint64_t from, last;

		if (!summary->latency.count[i])
			continue;
		cmd_histogram_bounds(i, &from, &last);
		fprintf(to, "%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", from, last, summary->latency.count[i]);
	}
	if (ferror(to) || fflush(to))
		rc = errno ? -errno : -EIO;
	if (fclose(to) && rc == 0)
		rc = -errno;
	return rc;
}
