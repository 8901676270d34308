/* What a benchmark with --kill-rail shows: the rate before, without and after a link. Always simulated. */
#include "bench.h"
#include "../common/options.h"

#include <inttypes.h>
#include <stdio.h>

/* Goals: a share of what the NICs that are left can carry while a link is down, and of the rate before once it is back. */
static const double down_goal = 0.95, after_goal = 0.98;

/* For people, and for programs. */
static const char *const state_texts[] = {
	[BENCH_RAIL_DOWN] = "failed", [BENCH_RAIL_REOPENED] = "was reopened", [BENCH_RAIL_CARRIES] = "carries again"
};
static const char *const state_names[] = {
	[BENCH_RAIL_DOWN] = "down", [BENCH_RAIL_REOPENED] = "reopened", [BENCH_RAIL_CARRIES] = "carries"
};

struct rates {
	const char *name;
	double seconds, gbps, half_gbps, line_gbps, cpu_s;
	bool halved, line_known;
};

static double gbps_between(const struct bench_mark *from, const struct bench_mark *to)
{
	return to->ns > from->ns ? (double)(to->bytes - from->bytes) * 8 / (double)(to->ns - from->ns) : 0;
}

static struct rates rates_of(const struct bench_summary *summary, uint32_t number)
{
	const struct bench_faults *faults = summary->options->faults;
	const struct bench_phase *phase = &faults->phase[number];
	struct rates rates = { .name = number == 0 ? "before" : phase->dead ? "down" : "after" };

	if (phase->end.ns <= phase->start.ns)
		return rates;
	rates.seconds = (double)(phase->end.ns - phase->start.ns) / 1e9;
	rates.cpu_s = (double)(phase->end.cpu_ns - phase->start.cpu_ns) / 1e9;
	rates.gbps = gbps_between(&phase->start, &phase->end);
	/* An interrupted phase may have ended before its half. */
	rates.halved = phase->halved && phase->end.ns > phase->half.ns;
	if (rates.halved)
		rates.half_gbps = gbps_between(&phase->half, &phase->end);
	/* The NICs of a simulated machine are all alike. */
	rates.line_known = summary->line_bps && summary->rails > phase->dead;
	if (rates.line_known)
		rates.line_gbps =
		    (double)summary->line_bps / 1e9 * (summary->rails - phase->dead) / (double)summary->rails;
	return rates;
}

/* What can be asked of a phase with NICs down: what the others carry, but no more than was moved before. Where the
 * computer and not the modelled NICs was the limit then (copying and checking 3200 Gbit/s takes many cores), it still is. */
static double reachable_gbps(const struct rates *rates, const struct rates *before)
{
	return before->gbps > 0 && before->gbps < rates->line_gbps ? before->gbps : rates->line_gbps;
}

static void json_rate(struct cmd_json *json, const char *name, double value, int digits, bool known)
{
	if (known)
		cmd_json_real(json, name, value, digits);
	else
		cmd_json_null(json, name);
}

void bench_phases_json(const struct bench_summary *summary, struct cmd_json *json)
{
	const struct bench_faults *faults = summary->options->faults;
	struct rates before = rates_of(summary, 0);

	cmd_json_open(json, "phases", '[');
	for (uint32_t i = 0; i < faults->phases; i++) {
		struct rates rates = rates_of(summary, i);
		cmd_json_open(json, NULL, '{');
		cmd_json_text(json, "name", rates.name);
		cmd_json_number(json, "nics_down", faults->phase[i].dead);
		cmd_json_real(json, "seconds", rates.seconds, 6);
		cmd_json_real(json, "gbps", rates.gbps, 3);
		json_rate(json, "line_gbps", rates.line_gbps, 3, rates.line_known);
		json_rate(json, "utilization", rates.gbps / rates.line_gbps, 4, rates.line_known);
		json_rate(json, "second_half_gbps", rates.half_gbps, 3, rates.halved);
		json_rate(json, "second_half_utilization", rates.half_gbps / rates.line_gbps, 4,
			  rates.halved && rates.line_known);
		json_rate(json, "reachable_gbps", reachable_gbps(&rates, &before), 3, rates.line_known);
		cmd_json_real(json, "cpu_s", rates.cpu_s, 3);
		cmd_json_close(json, '}');
	}
	cmd_json_close(json, ']');
	cmd_json_number(json, "rails_down", summary->rails_down);
	cmd_json_number(json, "rails_up", summary->rails_up);
	cmd_json_open(json, "rail_events", '[');
	for (uint32_t i = 0; i < faults->events; i++) {
		cmd_json_open(json, NULL, '{');
		cmd_json_real(json, "seconds", (double)faults->event[i].ns / 1e9, 6);
		cmd_json_text(json, "rail", faults->event[i].rail);
		cmd_json_text(json, "state", state_names[faults->event[i].state]);
		cmd_json_close(json, '}');
	}
	cmd_json_close(json, ']');
}

static void print_share(const char *text, double gbps, const struct rates *rates)
{
	printf("%s%10.2f", text, gbps);
	if (rates->line_known)
		printf(" %6.1f %%", 100 * gbps / rates->line_gbps);
	else
		printf(" %8s", "-");
}

static void print_goal(const char *text, double goal, double whole, double half, bool halved)
{
	printf("  goal          %s >= %.0f %%: %.1f %% over the whole phase (%s)", text, 100 * goal, 100 * whole,
	       whole >= goal ? "met" : "missed");
	if (halved)
		printf(", %.1f %% over its second half (%s)", 100 * half, half >= goal ? "met" : "missed");
	putchar('\n');
}

static void print_goals(const struct bench_summary *summary)
{
	const struct bench_faults *faults = summary->options->faults;
	struct rates before = rates_of(summary, 0);

	for (uint32_t i = 1; i < faults->phases; i++) {
		struct rates rates = rates_of(summary, i);
		double reachable = reachable_gbps(&rates, &before);
		if (faults->phase[i].dead && rates.line_known)
			print_goal(reachable < rates.line_gbps
				       ? "while down, of the rate before (this computer's limit, not the NICs'),"
				       : "while down, of what the other NICs can carry,",
				   down_goal, rates.gbps / reachable, rates.half_gbps / reachable, rates.halved);
		else if (!faults->phase[i].dead && before.gbps > 0)
			print_goal("after, of the rate before,", after_goal, rates.gbps / before.gbps,
				   before.halved ? rates.half_gbps / before.half_gbps : 0,
				   rates.halved && before.halved);
	}
}

static void print_timeline(const struct bench_faults *faults)
{
	/* An interrupted run did not come to the rest. */
	for (uint32_t i = 0; i < faults->next; i++) {
		const struct bench_fault *fault = &faults->schedule->fault[i];
		printf("  link          %s (NIC %u) %s at %.3f s, on this side (simulated)\n", faults->nic_name[i],
		       fault->nic, fault->up ? "up" : "down", (double)fault->at_ns / 1e9);
	}
	for (uint32_t i = 0; i < faults->events; i++)
		printf("  rail          %s %s at %.3f s\n", faults->event[i].rail, state_texts[faults->event[i].state],
		       (double)faults->event[i].ns / 1e9);
}

void bench_phases_print(const struct bench_summary *summary)
{
	const struct bench_faults *faults = summary->options->faults;
	char limit[32];

	putchar('\n');
	print_timeline(faults);
	printf("  rail limit    %s without progress reopens a rail\n\n",
	       cmd_format_duration(summary->options->params.rail_limit_ns, limit, sizeof limit));
	printf("  %-10s %9s %9s %7s %10s %8s %24s\n", "simulated", "NICs down", "s", "CPU s", "Gbit/s", "of line",
	       "second half Gbit/s, of line");
	for (uint32_t i = 0; i < faults->phases; i++) {
		struct rates rates = rates_of(summary, i);
		printf("  %-10s %9u %9.3f %7.3f ", rates.name, faults->phase[i].dead, rates.seconds, rates.cpu_s);
		print_share("", rates.gbps, &rates);
		if (rates.halved)
			print_share("        ", rates.half_gbps, &rates);
		putchar('\n');
	}
	puts("  An operation counts with all its bytes when it ends; the line is that of the NICs whose link "
	     "is up.\n  The model runs in real time: a side that gets less CPU than it needs is slower by "
	     "that much.");
	print_goals(summary);
}
