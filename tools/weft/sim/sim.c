/*
 * weft sim: the simulated machines, and the faults of running ones through their control file. Touches no
 * NIC.
 */
#include "../commands.h"
#include "../common/json.h"
#include "../common/options.h"
#include "../common/suggest.h"

#include "sim/control.h"
#include "sim/spec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_WITH_FILE = 2 };
static const char *const words[] = { "machines", "knobs", "faults", "set", "clear", "link", NULL };

static const struct cmd_usage usage = {
	.command = "weft sim",
	.synopsis = "[machines | knobs | faults FILE | set FILE RULE | clear FILE [NUMBER] | link FILE NIC up|down]",
	.about = "Lists the simulated machines and their knobs, and sets faults on running ones through the file "
		 "named by control= in their specification.",
	.examples = "  weft sim                                 the machines\n"
		    "  weft bench --sim p5,control=/tmp/faults  run on one\n"
		    "  weft sim set /tmp/faults nic=3,op=write,after=100,fault=error:15\n"
		    "  weft sim set /tmp/faults peer=b,p=0.01,fault=drop\n"
		    "  weft sim link /tmp/faults 3 down\n"
		    "  weft sim faults /tmp/faults --json       the rules, and how often each hit\n"
		    "  weft sim clear /tmp/faults               clear all rules\n",
	.more = "All rates are simulated. See weft-sim(1).",
	.words = words,
};

static int list_machines(bool as_json)
{
	const struct sim_machine *m;
	struct cmd_json json;

	cmd_json_start(&json, stdout);
	if (as_json) {
		cmd_json_open(&json, NULL, '{');
		cmd_json_bool(&json, "simulated", true);
		cmd_json_open(&json, "machines", '[');
	}
	for (size_t i = 0; (m = sim_machine_at(i)); i++) {
		if (!as_json) {
			printf("%-8s  %s%s\n", m->name, m->about, m->captured ? " (attributes captured)" : "");
			continue;
		}
		cmd_json_open(&json, NULL, '{');
		cmd_json_text(&json, "name", m->name);
		cmd_json_text(&json, "about", m->about);
		cmd_json_text(&json, "personality", sim_personality_name(m->personality));
		cmd_json_bool(&json, "captured", m->captured);
		cmd_json_number(&json, "nics", (uint64_t)sim_machine_nics(m));
		cmd_json_number(&json, "gpus", (uint64_t)m->gpus);
		cmd_json_number(&json, "bits_per_second", m->timeless ? 0 : m->rate_bps);
		cmd_json_number(&json, "latency_ns", m->timeless ? 0 : m->latency_ns);
		cmd_json_number(&json, "tx_size", m->tx_size);
		cmd_json_number(&json, "rx_size", m->rx_size);
		cmd_json_close(&json, '}');
	}
	if (as_json) {
		cmd_json_close(&json, ']');
		cmd_json_close(&json, '}');
		cmd_json_end(&json);
	}
	return CMD_OK;
}

static int list_knobs(bool as_json)
{
	const struct sim_knob *knob;
	struct cmd_json json;

	cmd_json_start(&json, stdout);
	if (as_json)
		cmd_json_open(&json, NULL, '[');
	for (size_t i = 0; (knob = sim_knob_at(i)); i++) {
		if (!as_json) {
			printf("%-16s %-24s %s\n", knob->name, knob->values, knob->about);
			continue;
		}
		cmd_json_open(&json, NULL, '{');
		cmd_json_text(&json, "name", knob->name);
		cmd_json_text(&json, "values", knob->values);
		cmd_json_text(&json, "about", knob->about);
		cmd_json_close(&json, '}');
	}
	if (as_json) {
		cmd_json_close(&json, ']');
		cmd_json_end(&json);
	}
	return CMD_OK;
}

static int list_faults(struct sim_control *control, bool as_json)
{
	struct cmd_json json;
	char text[512];

	cmd_json_start(&json, stdout);
	if (as_json)
		cmd_json_open(&json, NULL, '[');
	for (int i = 0; i < SIM_RULES; i++) {
		struct sim_rule *rule = &control->rules[i];

		if (atomic_load_explicit(&rule->active, memory_order_acquire) != 1)
			continue;
		sim_rule_format(rule, text, sizeof text);
		if (!as_json) {
			printf("%2d  %s  (seen %llu, hit %llu)\n", i, text,
			       (unsigned long long)atomic_load(&rule->seen),
			       (unsigned long long)atomic_load(&rule->fired));
			continue;
		}
		cmd_json_open(&json, NULL, '{');
		cmd_json_number(&json, "number", (uint64_t)i);
		cmd_json_text(&json, "rule", text);
		cmd_json_number(&json, "seen", atomic_load(&rule->seen));
		cmd_json_number(&json, "hit", atomic_load(&rule->fired));
		cmd_json_close(&json, '}');
	}
	if (as_json) {
		cmd_json_close(&json, ']');
		cmd_json_end(&json);
	}
	return CMD_OK;
}

static int set_rule(struct sim_control *control, const char *rule, bool as_json)
{
	struct cmd_json json;
	char why[256];
	int number = sim_control_set(control, rule, why, sizeof why);

	if (number < 0) {
		fprintf(stderr, "weft sim: %s\n", why);
		return number == -EINVAL ? CMD_USAGE : CMD_FAILED;
	}
	if (!as_json) {
		printf("rule %d set\n", number);
		return CMD_OK;
	}
	cmd_json_start(&json, stdout);
	cmd_json_open(&json, NULL, '{');
	cmd_json_number(&json, "number", (uint64_t)number);
	cmd_json_close(&json, '}');
	cmd_json_end(&json);
	return CMD_OK;
}

static int clear_rules(struct sim_control *control, const char *which)
{
	uint64_t number = SIM_RULES;

	if (which && (cmd_parse_number(which, &number) || number >= SIM_RULES)) {
		fprintf(stderr, "weft sim: '%s' is not the number of a rule\n", which);
		return CMD_USAGE;
	}
	if (sim_control_clear(control, which ? (int)number : -1) < 0) {
		fprintf(stderr, "weft sim: no rule %s is set\n", which);
		return CMD_FAILED;
	}
	return CMD_OK;
}

#define LINK_RULE 128
static const char *link_rule(const char *nic, char rule[LINK_RULE])
{
	snprintf(rule, LINK_RULE, "nic=%.100s,fault=down", nic);
	return rule;
}

/* Down is a rule; up clears the rules that say exactly that. */
static int set_link(struct sim_control *control, const char *nic, const char *state, bool as_json)
{
	struct sim_rule wanted;
	char rule[LINK_RULE], text[512], mine[512];

	link_rule(nic, rule);
	if (!strcmp(state, "down"))
		return set_rule(control, rule, as_json);
	sim_rule_parse(rule, &wanted, NULL, 0); /* checked before */
	sim_rule_format(&wanted, mine, sizeof mine);
	for (int i = 0; i < SIM_RULES; i++) {
		if (atomic_load_explicit(&control->rules[i].active, memory_order_acquire) != 1)
			continue;
		sim_rule_format(&control->rules[i], text, sizeof text);
		if (!strcmp(text, mine))
			sim_control_clear(control, i);
	}
	return CMD_OK;
}

/* The words after FILE are right; a rule that is not must not leave a file behind either. */
static int check_words(const char *verb, const char *const *operands, int count)
{
	bool sets = !strcmp(verb, "set"), links = !strcmp(verb, "link");
	char why[256], text[LINK_RULE];
	struct sim_rule rule;
	int least = sets ? 3 : links ? 4 : 2;
	int most = !strcmp(verb, "clear") ? 3 : least;

	if (count < 2) {
		fprintf(stderr, "weft sim %s: name the control file (control= of the specification)\n", verb);
		return -1;
	}
	if (count < least) {
		fprintf(stderr, "weft sim %s: %s\n", verb,
			sets         ? "name the rule, such as nic=3,fault=drop"
			: count == 2 ? "name the NIC, by its number or its name"
				     : "say 'up' or 'down'");
		return -1;
	}
	if (count > most) {
		fprintf(stderr, "weft sim: usage: weft sim %s\n", usage.synopsis);
		return -1;
	}
	if ((sets || links) &&
	    sim_rule_parse(sets ? operands[2] : link_rule(operands[2], text), &rule, why, sizeof why)) {
		fprintf(stderr, "weft sim: %s\n", why);
		return -1;
	}
	if (links && strcmp(operands[3], "up") && strcmp(operands[3], "down")) {
		fprintf(stderr, "weft sim: a link goes 'up' or 'down', not '%s'\n", operands[3]);
		return -1;
	}
	return 0;
}

static int with_file(const char *const *operands, int count, bool as_json)
{
	const char *verb = operands[0], *path = operands[1];
	struct sim_control *control;
	int rc, status;

	if (check_words(verb, operands, count))
		return CMD_USAGE;
	/* Setting a fault may come before the run that meets it; listing and clearing what never was is a
	 * slip. */
	rc = !strcmp(verb, "clear") && access(path, F_OK) ? -errno
	     : !strcmp(verb, "faults")                    ? sim_control_view(path, &control)
							  : sim_control_open(path, &control);
	if (rc) {
		fprintf(stderr, "weft sim: %s: %s\n", path, rc == -EINVAL ? "not a control file" : strerror(-rc));
		return CMD_FAILED;
	}
	if (!strcmp(verb, "faults"))
		status = list_faults(control, as_json);
	else if (!strcmp(verb, "set"))
		status = set_rule(control, operands[2], as_json);
	else if (!strcmp(verb, "clear"))
		status = clear_rules(control, count == 3 ? operands[2] : NULL);
	else
		status = set_link(control, operands[2], operands[3], as_json);
	sim_control_close(control);
	return status;
}

static int unknown_word(const char *const *operands)
{
	struct cmd_suggest suggest;

	cmd_suggest_start(&suggest, operands[0]);
	for (int i = 0; words[i]; i++) {
		if (!strcmp(operands[0], words[i])) { /* one that takes nothing more */
			fprintf(stderr, "weft sim: '%s' is one argument too many\n", operands[1]);
			return CMD_USAGE;
		}
		cmd_suggest_offer(&suggest, words[i]);
	}
	fprintf(stderr, "weft sim: there is no '%s'", operands[0]);
	if (suggest.best)
		fprintf(stderr, "; did you mean '%s'?", suggest.best);
	fprintf(stderr, "\nUsage: weft sim %s\n", usage.synopsis);
	return CMD_USAGE;
}

int weft_cmd_sim(int argc, char **argv)
{
	const char *operands[4] = { NULL };
	bool as_json = false;
	const struct cmd_option options[] = {
		{ .name = "json", .type = CMD_FLAG, .value = &as_json, .help = "print JSON" },
		{ .name = NULL },
	};
	int count, rc = cmd_options_parse(&usage, options, argc, argv, operands, 4);

	if (rc)
		return rc == CMD_OPTIONS_HELP ? CMD_OK : CMD_USAGE;
	for (count = 0; count < 4 && operands[count]; count++)
		;
	if (!count || (count == 1 && !strcmp(operands[0], "machines")))
		return list_machines(as_json);
	if (count == 1 && !strcmp(operands[0], "knobs"))
		return list_knobs(as_json);
	for (int i = 0; words[i]; i++)
		if (!strcmp(operands[0], words[i]) && i >= FIRST_WITH_FILE)
			return with_file(operands, count, as_json);
	return unknown_word(operands);
}
