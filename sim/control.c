/*
 * The control file's rules. The command and tests set and clear rules, on any thread: a compare-exchange claims a slot.
 * The provider matches them on the posting thread. Decisions depend only on the seed, the rule's number and how many
 * requests it has seen, so a run with the same order of requests replays.
 */
#include "control.h"
#include "spec.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum argument { ARG_NONE, ARG_NUMBER, ARG_OPTIONAL, ARG_TIME };

static const struct {
	const char *name;
	enum argument argument;
} faults[] = {
	[SIM_FAULT_NONE] = { "none", ARG_NONE },
	[SIM_FAULT_ERROR] = { "error", ARG_NUMBER },
	[SIM_FAULT_DROP] = { "drop", ARG_NONE },
	[SIM_FAULT_DELAY] = { "delay", ARG_TIME },
	[SIM_FAULT_DUP] = { "dup", ARG_NONE },
	[SIM_FAULT_EAGAIN] = { "eagain", ARG_OPTIONAL },
	[SIM_FAULT_RNR] = { "rnr", ARG_OPTIONAL },
	[SIM_FAULT_DOWN] = { "down", ARG_NONE },
	[SIM_FAULT_SLOW] = { "slow", ARG_NUMBER },
	[SIM_FAULT_DEAD] = { "dead", ARG_NONE },
	[SIM_FAULT_OVERRUN] = { "overrun", ARG_NONE },
	[SIM_FAULT_REG] = { "reg", ARG_OPTIONAL },
	[SIM_FAULT_INTERNAL] = { "internal", ARG_NONE },
	[SIM_FAULT_ANONYMOUS] = { "anonymous", ARG_NUMBER },
	[SIM_FAULT_NEGATIVE] = { "negative", ARG_NUMBER },
	[SIM_FAULT_REFUSE] = { "refuse", ARG_NUMBER },
	[SIM_FAULT_TWICE] = { "twice", ARG_NUMBER },
	[SIM_FAULT_STALL] = { "stall", ARG_TIME },
};
#define FAULTS (sizeof faults / sizeof faults[0])

static const char *const ops[] = { "any", "send", "write", "read", "reg", "open", "close" };
#define OPS (sizeof ops / sizeof ops[0])

static int fail(char *error, size_t bytes, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	if (error && bytes)
		vsnprintf(error, bytes, format, arguments);
	va_end(arguments);
	return -EINVAL;
}

static int parse_number(const char *text, uint64_t *ret_value)
{
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return -EINVAL;
	errno = 0;
	*ret_value = strtoull(text, &end, 0);
	return errno || *end ? -EINVAL : 0;
}

static int parse_fault(char *value, struct sim_rule *rule)
{
	char *argument = strchr(value, ':');

	if (argument)
		*argument++ = 0;
	for (size_t i = 1; i < FAULTS; i++) {
		if (strcmp(value, faults[i].name))
			continue;
		rule->fault = (uint32_t)i;
		rule->argument = 1;
		if (faults[i].argument == ARG_NONE)
			return argument ? -EINVAL : 0;
		if (!argument) {
			if (i == SIM_FAULT_REG)
				rule->argument = ENOMEM;
			else if (i == SIM_FAULT_RNR)
				rule->argument = UINT32_MAX;
			return faults[i].argument == ARG_OPTIONAL ? 0 : -EINVAL;
		}
		if (faults[i].argument == ARG_TIME) /* a delay that never ends is called drop */
			return sim_parse_time(argument, &rule->argument) || rule->argument == SIM_NEVER ? -EINVAL : 0;
		return parse_number(argument, &rule->argument);
	}
	return -EINVAL;
}

static int parse_op(const char *value, struct sim_rule *rule)
{
	for (size_t i = 0; i < OPS; i++)
		if (!strcmp(value, ops[i])) {
			rule->op = (uint32_t)i;
			return 0;
		}
	return -EINVAL;
}

static int parse_nic(const char *value, struct sim_rule *rule)
{
	const struct sim_machine *machine;
	uint64_t number;
	char name[32];

	if (!parse_number(value, &number)) {
		if (number >= SIM_MAX_NICS)
			return -EINVAL;
		rule->nic = (int32_t)number;
		return 0;
	}
	for (size_t i = 0; (machine = sim_machine_at(i)); i++)
		for (int nic = 0; nic < sim_machine_nics(machine); nic++) {
			sim_machine_nic_name(machine, nic, name, sizeof name);
			if (!strcmp(name, value)) {
				rule->nic = nic;
				return 0;
			}
		}
	return -EINVAL;
}

static int parse_text(const char *value, char field[64])
{
	if (!*value || strlen(value) >= 64)
		return -EINVAL;
	strcpy(field, value);
	return 0;
}

static int parse_item(const char *name, char *value, struct sim_rule *rule)
{
	char *end;

	if (!strcmp(name, "fault"))
		return parse_fault(value, rule);
	if (!strcmp(name, "op"))
		return parse_op(value, rule);
	if (!strcmp(name, "nic"))
		return parse_nic(value, rule);
	if (!strcmp(name, "host"))
		return parse_text(value, rule->host);
	if (!strcmp(name, "peer"))
		return parse_text(value, rule->peer);
	if (!strcmp(name, "after"))
		return parse_number(value, &rule->after);
	if (!strcmp(name, "every"))
		return parse_number(value, &rule->every);
	if (!strcmp(name, "count"))
		return parse_number(value, &rule->count);
	if (!strcmp(name, "p")) {
		rule->probability = strtod(value, &end);
		return *end || end == value || !(rule->probability > 0 && rule->probability <= 1) ? -EINVAL : 0;
	}
	return -ENOENT;
}

int sim_rule_parse(const char *text, struct sim_rule *ret_rule, char *error, size_t error_bytes)
{
	char copy[512], *next = copy, *item;

	memset(ret_rule, 0, sizeof *ret_rule);
	ret_rule->nic = -1;
	if (strlen(text) >= sizeof copy)
		return fail(error, error_bytes, "rule too long");
	strcpy(copy, text);
	while ((item = strsep(&next, ","))) {
		char *value = strchr(item, '=');
		int rc;

		if (!value)
			return fail(error, error_bytes, "expected key=value, not '%s'", item);
		*value++ = 0;
		rc = parse_item(item, value, ret_rule);
		if (rc == -ENOENT)
			return fail(error, error_bytes, "unknown key '%s' in a fault rule", item);
		if (rc)
			return fail(error, error_bytes, "bad value '%s' for '%s'", value, item);
	}
	if (!ret_rule->fault)
		return fail(error, error_bytes, "a rule needs fault=");
	if (ret_rule->fault == SIM_FAULT_REG)
		ret_rule->op = SIM_OP_REG;
	if (ret_rule->fault == SIM_FAULT_SLOW && !ret_rule->argument)
		return fail(error, error_bytes, "slow needs a factor of at least 1");
	return 0;
}

static size_t append(char *text, size_t bytes, size_t at, const char *format, ...)
{
	va_list arguments;
	int n;

	if (at >= bytes)
		return at;
	va_start(arguments, format);
	n = vsnprintf(text + at, bytes - at, format, arguments);
	va_end(arguments);
	return n < 0 ? at : at + (size_t)n;
}

void sim_rule_format(const struct sim_rule *rule, char *text, size_t bytes)
{
	size_t at = 0;

	if (rule->host[0])
		at = append(text, bytes, at, "host=%s,", rule->host);
	if (rule->nic >= 0)
		at = append(text, bytes, at, "nic=%d,", rule->nic);
	if (rule->peer[0])
		at = append(text, bytes, at, "peer=%s,", rule->peer);
	if (rule->op)
		at = append(text, bytes, at, "op=%s,", ops[rule->op]);
	if (rule->after)
		at = append(text, bytes, at, "after=%llu,", (unsigned long long)rule->after);
	if (rule->every)
		at = append(text, bytes, at, "every=%llu,", (unsigned long long)rule->every);
	if (rule->count)
		at = append(text, bytes, at, "count=%llu,", (unsigned long long)rule->count);
	if (rule->probability > 0)
		at = append(text, bytes, at, "p=%g,", rule->probability);
	at = append(text, bytes, at, "fault=%s", faults[rule->fault].name);
	if (faults[rule->fault].argument == ARG_TIME)
		append(text, bytes, at, ":%lluns", (unsigned long long)rule->argument);
	else if (faults[rule->fault].argument != ARG_NONE)
		append(text, bytes, at, ":%llu", (unsigned long long)rule->argument);
}

int sim_control_set(struct sim_control *control, const char *text, char *error, size_t error_bytes)
{
	struct sim_rule rule;
	int rc = sim_rule_parse(text, &rule, error, error_bytes);

	if (rc)
		return rc;
	for (int i = 0; i < SIM_RULES; i++) {
		struct sim_rule *slot = &control->rules[i];
		uint32_t empty = 0;

		/* 2 claims the slot; readers look only for 1. */
		if (!atomic_compare_exchange_strong(&slot->active, &empty, 2))
			continue;
		slot->fault = rule.fault;
		slot->op = rule.op;
		slot->nic = rule.nic;
		memcpy(slot->host, rule.host, sizeof slot->host);
		memcpy(slot->peer, rule.peer, sizeof slot->peer);
		slot->argument = rule.argument;
		slot->after = rule.after;
		slot->every = rule.every;
		slot->count = rule.count;
		slot->probability = rule.probability;
		atomic_store(&slot->seen, 0);
		atomic_store(&slot->fired, 0);
		atomic_store_explicit(&slot->active, 1, memory_order_release);
		atomic_fetch_add(&control->active_rules, 1);
		return i;
	}
	fail(error, error_bytes, "all %d rules are in use", SIM_RULES);
	return -ENOSPC;
}

int sim_control_clear(struct sim_control *control, int number)
{
	int cleared = 0;

	if (number >= SIM_RULES)
		return -EINVAL;
	for (int i = 0; i < SIM_RULES; i++) {
		uint32_t set = 1;

		if (number >= 0 && i != number)
			continue;
		if (atomic_compare_exchange_strong(&control->rules[i].active, &set, 0)) {
			atomic_fetch_sub(&control->active_rules, 1);
			cleared++;
		}
	}
	return number >= 0 && !cleared ? -ENOENT : cleared;
}

/* splitmix64: a good hash of (seed, rule, count) makes each decision repeatable on its own. */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static int matches(const struct sim_rule *rule, const struct sim_event *event)
{
	if (rule->op == SIM_OP_ANY ? event->op >= SIM_OP_REG : rule->op != event->op)
		return 0;
	if (rule->nic >= 0 && rule->nic != event->nic)
		return 0;
	if (rule->host[0] && strcmp(rule->host, event->host))
		return 0;
	return !rule->peer[0] || (event->peer && !strcmp(rule->peer, event->peer));
}

static int fires(struct sim_control *control, int number, struct sim_rule *rule)
{
	uint64_t n = atomic_fetch_add_explicit(&rule->seen, 1, memory_order_relaxed) + 1;
	uint64_t limit = rule->count, fired;

	if (n <= rule->after)
		return 0;
	n -= rule->after;
	if (rule->every && n % rule->every)
		return 0;
	if (rule->probability > 0) {
		uint64_t seed = atomic_load_explicit(&control->seed, memory_order_relaxed);
		uint64_t hash = mix(mix(seed * SIM_RULES + (uint64_t)number) ^ n);

		if ((double)(hash >> 11) * 0x1p-53 >= rule->probability)
			return 0;
	}
	/* eagain:N means N refusals and then no more, unless the rule repeats. */
	if (!limit && rule->fault == SIM_FAULT_EAGAIN && !rule->every && !(rule->probability > 0))
		limit = rule->argument;
	fired = atomic_fetch_add_explicit(&rule->fired, 1, memory_order_relaxed);
	if (limit && fired >= limit) {
		atomic_fetch_sub_explicit(&rule->fired, 1, memory_order_relaxed);
		return 0;
	}
	return 1;
}

enum sim_fault sim_control_fire(struct sim_control *control, const struct sim_event *event, unsigned mask,
				uint64_t *ret_argument)
{
	/* There is usually one rule, the first: stop after as many as are active. */
	uint32_t left = atomic_load_explicit(&control->active_rules, memory_order_relaxed);

	for (int i = 0; i < SIM_RULES && left; i++) {
		struct sim_rule *rule = &control->rules[i];

		if (atomic_load_explicit(&rule->active, memory_order_acquire) != 1)
			continue;
		left--;
		if (!(mask & (1u << rule->fault)) || !matches(rule, event) || !fires(control, i, rule))
			continue;
		*ret_argument = rule->argument;
		return (enum sim_fault)rule->fault;
	}
	return SIM_FAULT_NONE;
}

enum sim_fault sim_control_stands(struct sim_control *control, const char *host, int nic, enum sim_fault which,
				  uint64_t *ret_argument)
{
	uint32_t left = atomic_load_explicit(&control->active_rules, memory_order_relaxed);

	for (int i = 0; i < SIM_RULES && left; i++) {
		struct sim_rule *rule = &control->rules[i];

		if (atomic_load_explicit(&rule->active, memory_order_acquire) != 1)
			continue;
		left--;
		if (rule->fault != which)
			continue;
		if (rule->nic >= 0 && which != SIM_FAULT_DEAD && rule->nic != nic)
			continue;
		if (rule->host[0] && strcmp(rule->host, host))
			continue;
		atomic_fetch_add_explicit(&rule->fired, 1, memory_order_relaxed);
		if (ret_argument)
			*ret_argument = rule->argument;
		return which;
	}
	return SIM_FAULT_NONE;
}
