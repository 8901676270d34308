/* weft bench --sizes: one run after another, each with a size of its own, and a line for each. */
#include "bench.h"
#include "report.h"
#include "../commands.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int add_size(struct bench_sizes *sizes, uint64_t size)
{
	if (!size || sizes->count == BENCH_SIZES_MAX)
		return -EINVAL;
	sizes->size[sizes->count++] = size;
	return 0;
}

/* "4K" or "4K-1M", which doubles. */
static int add_range(struct bench_sizes *sizes, char *word)
{
	char *dash = strchr(word, '-');
	uint64_t low, high;
	int rc;

	if (dash)
		*dash = '\0';
	rc = cmd_parse_size(word, &low);
	if (rc == 0 && !dash)
		return add_size(sizes, low);
	if (rc == 0)
		rc = cmd_parse_size(dash + 1, &high);
	if (rc < 0 || !low || low > high)
		return -EINVAL;
	for (; rc == 0 && low <= high; low *= 2)
		rc = add_size(sizes, low);
	return rc;
}

int bench_sizes_read(const char *text, struct bench_sizes *ret_sizes)
{
	char copy[1024], *next = copy, *word;
	int rc = strlen(text) < sizeof copy ? 0 : -EINVAL;

	ret_sizes->count = 0;
	snprintf(copy, sizeof copy, "%s", text);
	while (rc == 0 && (word = strsep(&next, ",")))
		rc = add_range(ret_sizes, word);
	return rc;
}

static void print_line(const struct bench_summary *summary)
{
	const struct bench_params *params = &summary->options->params;
	struct bench_figures figures = bench_figure(summary);
	char size[32], rate[32], text[3][32];

	for (int i = 0; i < 3; i++)
		cmd_format_latency(cmd_histogram_quantile(&summary->latency, (const double[]){ 0.5, 0.99, 0.999 }[i]),
				   text[i], sizeof text[i]);
	printf("  %8s %9.2f ", cmd_format_size(params->slot_bytes, size, sizeof size), figures.gbps);
	if (figures.line_known)
		printf("%6.1f%%", 100 * figures.utilization);
	else
		printf("%7s", "-");
	printf(" %13s %7s %7s %7s  %s\n",
	       cmd_format_count(figures.mops * 1e6 * (double)params->pages, rate, sizeof rate), text[0], text[1],
	       text[2],
	       !figures.checked   ? "no"
	       : figures.verified ? "every byte"
				  : "WRONG");
	fflush(stdout);
}

static void print_head(const struct bench_summary *summary)
{
	const struct bench_params *params = &summary->options->params;
	bool paged = params->pages > 1 || params->op == BENCH_PAGES || params->op == BENCH_SCATTER;

	printf("%s, a size at a time%s\n  transport     %s, %u rail%s: %s\n  peer          %s, %u rail%s\n",
	       bench_op_names[params->op], params->simulated ? " (simulated NICs)" : "", summary->provider,
	       (unsigned)summary->own_rails, summary->own_rails == 1 ? "" : "s", summary->why, summary->peer,
	       summary->ready.rails, summary->ready.rails == 1 ? "" : "s");
	bench_print_memory(summary);
	printf("\n  %8s %9s %7s %13s %7s %7s %7s  %s\n", paged ? "page" : "size", "Gbit/s", "of line",
	       paged ? "pages/s" : "operations/s", "p50", "p99", "p99.9", "verified");
}

static void print_one(const struct bench_summary *summary, bool first, struct cmd_json *json)
{
	switch (summary->options->format) {
	case BENCH_JSON:
		bench_json_put(summary, json);
		return;
	case BENCH_CSV:
		if (first)
			bench_csv_header();
		bench_csv_line(summary);
		fflush(stdout);
		return;
	default:
		if (first)
			print_head(summary);
		print_line(summary);
	}
}

int bench_sweep(const struct bench_options *given)
{
	static struct bench_summary summary; /* with a histogram */
	struct cmd_json json;
	bool as_json = given->format == BENCH_JSON;
	int status = CMD_OK;

	cmd_json_start(&json, stdout);
	if (as_json) {
		cmd_json_open(&json, NULL, '{');
		cmd_json_open(&json, "sweep", '[');
	}
	for (uint32_t i = 0; i < given->sizes.count && status == CMD_OK; i++) {
		struct bench_options options = *given;

		if (bench_options_resize(&options, given->sizes.size[i]) < 0) {
			status = CMD_USAGE; /* it has said why */
			break;
		}
		bench_drive(&options, &summary);
		if (summary.ops)
			print_one(&summary, i == 0, &json);
		status = summary.error[0] ? CMD_FAILED : summary.interrupted ? 128 + summary.interrupted : CMD_OK;
	}
	if (as_json) {
		cmd_json_close(&json, ']');
		if (summary.error[0])
			cmd_json_text(&json, "error", summary.error);
		cmd_json_close(&json, '}');
		cmd_json_end(&json);
	}
	if (summary.error[0]) {
		fflush(stdout);
		fprintf(stderr, "weft bench: %s\n", summary.error);
	}
	return status;
}
