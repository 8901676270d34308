/* The ladder for people and for programs. */
#include "../common/json.h"
#include "ladder.h"

#include <string.h>

int ladder_table_lines(void)
{
	return LADDER_RUNGS + 5;
}

static void print_row(const struct ladder *ladder, const struct ladder_row *row, FILE *to)
{
	char modelled[64], published[16] = "-";
	const struct ladder_rung *rung = row->rung;

	if (rung->published > 0)
		snprintf(published, sizeof(published), "%.0f", rung->published);
	if (!row->rounds) {
		fprintf(to, "%02d  %-24s %10s\n", rung->number, rung->idea, "...");
		return;
	}
	ladder_modelled(ladder, rung, modelled, sizeof(modelled));
	fprintf(to, "%02d  %-24s %10.1f %9.0f %6d %10s   %s%s\n", rung->number, rung->idea, ladder_gbit(ladder, row),
		ladder_cost(ladder, row), row->workers, published, *modelled ? "modelled: " : "measured", modelled);
}

void ladder_print_table(const struct ladder *ladder, FILE *to)
{
	int done = ladder->rows[LADDER_RUNGS - 1].rounds;

	fprintf(to, "%s%s, pages of %llu bytes, %s of %d round%s\n",
		ladder->sim ? "simulated NICs: " : "real NICs: ", ladder->sim ? ladder->sim : ladder->provider,
		(unsigned long long)ladder->page_bytes, ladder->sim ? "best" : "median", done ? done : 1,
		done > 1 ? "s" : "");
	fprintf(to, "%-28s %10s %9s %6s %10s\n", "", ladder->sim ? "simulated" : "measured", "CPU ns", "", "tutorial");
	fprintf(to, "%-28s %10s %9s %6s %10s   %s\n", "rung", "Gbit/s", "per write", "cores", "Gbit/s", "basis");
	for (int i = 0; i < LADDER_RUNGS; i++)
		print_row(ladder, &ladder->rows[i], to);
	if (ladder->sim)
		fprintf(
		    to,
		    "model: %.0f ns per post, far memory +%.0f ns, a shared line %.0f ns per hop, a core per worker\n",
		    ladder->model.post_ns, ladder->model.far_ns, ladder->model.hop_ns);
	else
		fprintf(to, "nothing is modelled; %s\n",
			ladder->connect ? "the other side is another host, or a namespace of this one"
					: "this host's cores run both sides");
	fprintf(to, "the tutorial's figures: two p5 hosts, GPU memory, 64 KiB pages\n");
}

static void json_row(struct cmd_json *json, const struct ladder *ladder, const struct ladder_row *row)
{
	double gbit = ladder_gbit(ladder, row);
	char modelled[64];

	cmd_json_open(json, NULL, '{');
	cmd_json_number(json, "rung", (uint64_t)row->rung->number);
	cmd_json_text(json, "program", row->rung->program);
	cmd_json_text(json, "idea", row->rung->idea);
	cmd_json_text(json, "gain", row->rung->gain);
	cmd_json_real(json, "gbit_per_s", gbit, 2);
	cmd_json_real(json, "cpu_ns_per_write", ladder_cost(ladder, row), 1);
	if (ladder->line_gbit > 0 && row->rung->number > 7)
		cmd_json_real(json, "of_line", gbit / ladder->line_gbit, 4);
	else
		cmd_json_null(json, "of_line");
	cmd_json_number(json, "workers", (uint64_t)row->workers);
	cmd_json_number(json, "nics", (uint64_t)row->nics);
	ladder_modelled(ladder, row->rung, modelled, sizeof(modelled));
	cmd_json_text(json, "modelled", modelled);
	if (row->rung->published > 0)
		cmd_json_real(json, "tutorial_gbit_per_s", row->rung->published, 1);
	else
		cmd_json_null(json, "tutorial_gbit_per_s");
	cmd_json_open(json, "rounds", '[');
	for (int i = 0; i < row->rounds; i++)
		cmd_json_real(json, NULL, row->gbit[i], 2);
	cmd_json_close(json, ']');
	cmd_json_close(json, '}');
}

void ladder_print_json(const struct ladder *ladder, FILE *to)
{
	struct cmd_json json;

	cmd_json_start(&json, to);
	cmd_json_open(&json, NULL, '{');
	cmd_json_bool(&json, "simulated", ladder->sim != NULL);
	cmd_json_text(&json, "nics", ladder->sim ? ladder->sim : ladder->provider);
	cmd_json_number(&json, "page_bytes", ladder->page_bytes);
	if (ladder->line_gbit > 0)
		cmd_json_real(&json, "line_gbit_per_s", ladder->line_gbit, 1);
	else
		cmd_json_null(&json, "line_gbit_per_s");
	if (ladder->sim) {
		cmd_json_open(&json, "model", '{');
		cmd_json_real(&json, "post_ns", ladder->model.post_ns, 0);
		cmd_json_real(&json, "far_ns", ladder->model.far_ns, 0);
		cmd_json_real(&json, "hop_ns", ladder->model.hop_ns, 0);
		cmd_json_close(&json, '}');
	} else {
		cmd_json_null(&json, "model");
	}
	cmd_json_open(&json, "rungs", '[');
	for (int i = 0; i < LADDER_RUNGS; i++)
		json_row(&json, ladder, &ladder->rows[i]);
	cmd_json_close(&json, ']');
	cmd_json_close(&json, '}');
	cmd_json_end(&json);
}
