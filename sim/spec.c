/*
 * Parses SIMFAB specifications and machine files. Called at fi_getinfo and by the command line; never on the
 * hot path, from any thread.
 */
#include "spec.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { COUNT, TIME, RATE, COPY, PERSONALITY, PROVIDER, CARD, VERSION, TEXT };

struct key {
	struct sim_knob knob;
	enum kind kind;
	size_t offset;
	uint64_t least, most;
};

#define AT(field) offsetof(struct sim_spec, field)

static const struct key keys[] = {
	{ { "nics", "1..64", "how many of the machine's NICs to show" }, COUNT, AT(nics), 1, SIM_MAX_NICS },
	{ { "rate", "100G, 2G, inf", "bits per second of each NIC, each direction" }, RATE, AT(rate_bps), 0, 0 },
	{ { "latency", "15us", "from the last byte sent to the completion" }, TIME, AT(latency_ns), 0, 0 },
	{ { "jitter", "5us", "extra latency, uniform between 0 and this" }, TIME, AT(jitter_ns), 0, 0 },
	{ { "op_ns", "1250", "least time a NIC spends on one request" }, TIME, AT(op_ns), 0, 0 },
	{ { "post_ns", "450", "CPU time one post takes (busy wait); 0: none" }, TIME, AT(post_ns), 0, 0 },
	{ { "poll_ns", "100", "CPU time one CQ read takes (busy wait)" }, TIME, AT(poll_ns), 0, 0 },
	{ { "copy", "full, edges, none", "how much of each payload moves" }, COPY, AT(copy), 0, 0 },
	{ { "reorder", "0..64", "how far a request may be overtaken" }, COUNT, AT(reorder), 0, 64 },
	{ { "tx", "1..65536", "transmit queue depth" }, COUNT, AT(tx), 1, 65536 },
	{ { "rx", "1..65536", "receive queue depth" }, COUNT, AT(rx), 1, 65536 },
	{ { "cq", "1..1048576", "most entries a completion queue holds" }, COUNT, AT(cq), 1, 1 << 20 },
	{ { "handshake", "2ms", "how long the first contact with a peer takes" }, TIME, AT(handshake_ns), 0, 0 },
	{ { "handshake_depth", "16", "requests that may wait for it; 0: posts say EAGAIN" },
	  COUNT,
	  AT(handshake_depth),
	  0,
	  65536 },
	{ { "unresponsive", "500ms, never", "silence after which a request fails with 13" },
	  TIME,
	  AT(unresponsive_ns),
	  0,
	  0 },
	{ { "rnr", "50us", "first back-off when the receiver has no buffer posted" }, TIME, AT(rnr_ns), 1, 0 },
	{ { "rnr_retries", "7", "back-offs until a send fails with 10" }, COUNT, AT(rnr_retries), 0, 1000000 },
	{ { "pages", "67108864", "4 KiB pages a NIC can register" }, COUNT, AT(pages), 1, UINT64_MAX },
	{ { "mr_pages", "1048576", "efa: of them in one region that peers may write to" },
	  COUNT,
	  AT(mr_pages),
	  1,
	  UINT64_MAX },
	{ { "seed", "1", "of reordering, jitter and fault probability" }, COUNT, AT(seed), 0, UINT64_MAX },
	{ { "strict", "0, 1", "stop the process on misuse" }, COUNT, AT(strict), 0, 1 },
	{ { "target_progress", "0, 1", "RMA lands only while the target reads its CQ" },
	  COUNT,
	  AT(target_progress),
	  0,
	  1 },
	{ { "personality", "efa, efa-direct, verbs", "whose rules apply" }, PERSONALITY, AT(personality), 0, 0 },
	{ { "as", "simfab, efa", "the provider's name; efa: with both its fabrics" }, PROVIDER, AT(as_efa), 0, 0 },
	{ { "card", "none, efa", "efa: cards below libfabric's own EFA provider" }, CARD, AT(card_efa), 0, 0 },
	{ { "emulated", "0, 1", "efa: writes go by messages, and the target must look" }, COUNT, AT(emulated), 0, 1 },
	{ { "rdma_api", "1.18", "efa: emulated for programs that ask for an older API" }, VERSION, AT(rdma_api), 0, 0 },
	{ { "control", "FILE", "mapped file through which faults are set" }, TEXT, AT(control), 256, 0 },
	{ { "name", "TEXT", "this host's name in fault rules" }, TEXT, AT(host), 64, 0 },
};

const struct sim_knob *sim_knob_at(size_t index)
{
	return index < sizeof keys / sizeof keys[0] ? &keys[index].knob : NULL;
}

static int fail(char *error, size_t bytes, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	if (error && bytes)
		vsnprintf(error, bytes, format, arguments);
	va_end(arguments);
	return -EINVAL;
}

static int parse_number(const char *text, double *ret_value, const char **ret_rest)
{
	char *end;

	if (!isdigit((unsigned char)text[0]) && text[0] != '.')
		return -EINVAL;
	errno = 0;
	*ret_value = strtod(text, &end);
	if (errno || end == text)
		return -EINVAL;
	*ret_rest = end;
	return 0;
}

int sim_parse_time(const char *text, uint64_t *ret_ns)
{
	static const struct {
		const char *suffix;
		double scale;
	} units[] = { { "", 1 }, { "ns", 1 }, { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 } };
	const char *rest;
	double value;

	if (!strcmp(text, "never")) {
		*ret_ns = SIM_NEVER;
		return 0;
	}
	if (parse_number(text, &value, &rest))
		return -EINVAL;
	for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
		if (!strcmp(rest, units[i].suffix) && value * units[i].scale < 1e18) {
			*ret_ns = (uint64_t)(value * units[i].scale + 0.5);
			return 0;
		}
	return -EINVAL;
}

static int parse_rate(const char *text, uint64_t *ret_bps)
{
	static const char suffixes[] = "KMGT";
	const char *rest, *found;
	double value, scale = 1;

	if (!strcmp(text, "inf")) {
		*ret_bps = 0;
		return 0;
	}
	if (parse_number(text, &value, &rest))
		return -EINVAL;
	if (*rest && (found = strchr(suffixes, toupper((unsigned char)*rest)))) {
		for (const char *s = suffixes; s <= found; s++)
			scale *= 1000;
		rest++;
	}
	if (*rest || value * scale < 1000 || value * scale > 1e15)
		return -EINVAL;
	*ret_bps = (uint64_t)(value * scale);
	return 0;
}

static int parse_count(const char *text, uint64_t *ret_value)
{
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	*ret_value = strtoull(text, &end, 0);
	return errno || *end ? -EINVAL : 0;
}

static int parse_word(const char *text, const char *(*name_of)(int), int count, int *ret_value)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(text, name_of(i))) {
			*ret_value = i;
			return 0;
		}
	return -EINVAL;
}

static const char *copy_name(int value)
{
	return sim_copy_name(value);
}

static const char *personality_name(int value)
{
	return sim_personality_name(value);
}

static int parse_version(const char *text, uint64_t *ret_version)
{
	unsigned major, minor;
	char rest;

	if (sscanf(text, "%4u.%4u%c", &major, &minor, &rest) != 2)
		return -EINVAL;
	*ret_version = (uint64_t)major << 16 | minor;
	return 0;
}

static int set_value(struct sim_spec *spec, const struct key *key, const char *value)
{
	void *field = (char *)spec + key->offset;
	uint64_t number = 0;
	int word, rc;

	switch (key->kind) {
	case TIME:
		rc = sim_parse_time(value, &number);
		if (rc || number < key->least)
			return -EINVAL;
		memcpy(field, &number, sizeof number);
		return 0;
	case RATE:
		rc = parse_rate(value, &number);
		if (!rc)
			memcpy(field, &number, sizeof number);
		return rc;
	case COUNT:
		rc = parse_count(value, &number);
		if (rc || number < key->least || number > key->most)
			return -EINVAL;
		memcpy(field, &number, sizeof number);
		return 0;
	case COPY:
	case PERSONALITY:
		rc = parse_word(value, key->kind == COPY ? copy_name : personality_name, 3, &word);
		if (!rc)
			memcpy(field, &word, sizeof word);
		return rc;
	case PROVIDER:
		*(bool *)field = !strcmp(value, "efa");
		return *(bool *)field || !strcmp(value, "simfab") ? 0 : -EINVAL;
	case CARD:
		*(bool *)field = !strcmp(value, "efa");
		return *(bool *)field || !strcmp(value, "none") ? 0 : -EINVAL;
	case VERSION:
		rc = parse_version(value, &number);
		if (!rc)
			memcpy(field, &number, sizeof number);
		return rc;
	case TEXT:
		if (!*value || strlen(value) >= key->least)
			return -EINVAL;
		strcpy(field, value);
		return 0;
	}
	return -EINVAL;
}

static int set_key(struct sim_spec *spec, const char *name, const char *value, char *error, size_t bytes)
{
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
		if (strcmp(keys[i].knob.name, name))
			continue;
		if (set_value(spec, &keys[i], value))
			return fail(error, bytes, "bad value '%s' for '%s' (expected %s)", value, name,
				    keys[i].knob.values);
		/* Asking for time on a machine without any turns its clock on. */
		if (keys[i].kind == TIME || keys[i].kind == RATE)
			spec->timeless = false;
		return 0;
	}
	return fail(error, bytes, "unknown key '%s' ('weft sim knobs' lists the keys)", name);
}

static void take_machine(struct sim_spec *spec, const struct sim_machine *machine)
{
	spec->machine = *machine;
	snprintf(spec->machine_name, sizeof spec->machine_name, "%s", machine->name);
	spec->timeless = machine->timeless;
	spec->personality = machine->personality;
	spec->copy = machine->timeless ? SIM_COPY_NONE : SIM_COPY_FULL;
	spec->nics = (uint64_t)sim_machine_nics(machine);
	spec->tx = machine->tx_size;
	spec->rx = machine->rx_size;
	spec->cq = 0;
	spec->reorder = machine->timeless ? 0 : machine->reorder;
	spec->rate_bps = machine->timeless ? 0 : machine->rate_bps;
	spec->latency_ns = machine->timeless ? 0 : machine->latency_ns;
	spec->op_ns = machine->op_ns;
	spec->post_ns = machine->timeless ? 0 : machine->post_ns;
	spec->handshake_ns = machine->timeless ? 0 : machine->handshake_ns;
	spec->handshake_depth = 16;
	spec->unresponsive_ns = 500000000;
	spec->rnr_ns = 50000;
	spec->rnr_retries = 7;
	spec->pages = 1ull << 26;
	spec->mr_pages = 1ull << 20;
	spec->seed = 1;
}

static int set_shape(struct sim_spec *spec, const char *name, const char *value)
{
	struct sim_machine *m = &spec->machine;
	struct {
		const char *name;
		int *field;
		uint64_t most;
	} shape[] = { { "sockets", &m->sockets, 8 },
		      { "cores_per_socket", &m->cores_per_socket, 128 },
		      { "gpus", &m->gpus, 8 },
		      { "nics_per_gpu", &m->nics_per_gpu, 4 } };
	uint64_t number;

	for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++) {
		if (strcmp(shape[i].name, name))
			continue;
		if (parse_count(value, &number) || number < 1 || number > shape[i].most)
			return -EINVAL;
		*shape[i].field = (int)number;
		spec->nics = (uint64_t)sim_machine_nics(m);
		return 0;
	}
	return -ENOENT;
}

/* A machine file: lines of "key value"; `like NAME` first, then shape keys and any SIMFAB key. */
static int read_machine_file(const char *path, struct sim_spec *spec, char *error, size_t bytes)
{
	char line[512], name[64], value[256];
	FILE *file = fopen(path, "re");
	int rc = 0, number = 0;

	if (!file)
		return fail(error, bytes, "cannot read machine file '%s': %s", path, strerror(errno));
	while (!rc && fgets(line, sizeof line, file)) {
		const struct sim_machine *like;
		char *hash = strchr(line, '#');

		number++;
		if (hash)
			*hash = 0;
		if (sscanf(line, " %63[a-z_] %255s", name, value) != 2) {
			if (strspn(line, " \t\r\n") != strlen(line))
				rc = fail(error, bytes, "%s:%d: expected 'key value'", path, number);
			continue;
		}
		if (!strcmp(name, "like")) {
			like = sim_machine_find(value);
			if (like)
				take_machine(spec, like);
			else
				rc = fail(error, bytes, "%s:%d: no machine '%s'", path, number, value);
			continue;
		}
		rc = set_shape(spec, name, value);
		if (rc == -ENOENT)
			rc = set_key(spec, name, value, error, bytes);
		else if (rc)
			rc = fail(error, bytes, "%s:%d: bad value '%s' for '%s'", path, number, value, name);
	}
	fclose(file);
	snprintf(spec->machine_name, sizeof spec->machine_name, "custom");
	return rc;
}

/* Limits that follow from the personality, unless the machine is that personality's own. */
static void apply_personality(struct sim_spec *spec)
{
	struct sim_machine *m = &spec->machine;

	if (spec->personality == SIM_EFA_DIRECT) {
		m->fabric_name = "efa-direct";
		m->inject_size = 32;
		m->iov_limit = 2;
		m->max_msg_size = 1ull << 30;
	} else if (spec->personality == SIM_VERBS && m->personality != SIM_VERBS) {
		m->fabric_name = "IB-0xfe80000000000000";
		m->inject_size = 192;
		m->max_msg_size = 8u << 20;
		spec->reorder = 0;
	}
	if (spec->personality == SIM_VERBS)
		spec->reorder = 0;
}

void sim_spec_become(struct sim_spec *spec, enum sim_personality personality)
{
	spec->personality = personality;
	apply_personality(spec);
}

static int check(const struct sim_spec *spec, char *error, size_t bytes)
{
	if (spec->nics > (uint64_t)sim_machine_nics(&spec->machine))
		return fail(error, bytes, "nics=%llu, but machine '%s' has %d", (unsigned long long)spec->nics,
			    spec->machine_name, sim_machine_nics(&spec->machine));
	if (spec->card_efa && spec->machine.nic_vendor != 0x1d0f)
		return fail(error, bytes, "card=efa, but machine '%s' has no EFA NICs", spec->machine_name);
	if (spec->card_efa && spec->as_efa)
		return fail(error, bytes, "card=efa is below the real provider, as=efa stands in for it: not both");
	if (spec->as_efa && spec->personality == SIM_VERBS)
		return fail(error, bytes, "as=efa, but these NICs are like verbs'");
	return 0;
}

int sim_spec_parse(const char *text, struct sim_spec *ret_spec, char *error, size_t error_bytes)
{
	struct sim_spec *spec = ret_spec;
	char copy[1024], *next, *item;
	int rc;

	memset(spec, 0, sizeof *spec);
	snprintf(spec->host, sizeof spec->host, "pid%d", (int)getpid());
	if (strlen(text) >= sizeof copy)
		return fail(error, error_bytes, "specification too long");
	strcpy(copy, text);
	next = copy;
	item = strsep(&next, ",");
	if (strchr(item, '/')) {
		take_machine(spec, sim_machine_at(0));
		rc = read_machine_file(item, spec, error, error_bytes);
		if (rc)
			return rc;
	} else {
		const struct sim_machine *machine = sim_machine_find(item);

		if (!machine)
			return fail(error, error_bytes,
				    "no machine '%s' (p5, p5en, p6-b200, p6-b300, verbs, null, or the path of a "
				    "machine file)",
				    item);
		take_machine(spec, machine);
	}
	while ((item = strsep(&next, ","))) {
		char *equals = strchr(item, '=');

		if (!equals)
			return fail(error, error_bytes, "expected key=value, not '%s'", item);
		*equals = 0;
		rc = set_key(spec, item, equals + 1, error, error_bytes);
		if (rc)
			return rc;
	}
	apply_personality(spec);
	return check(spec, error, error_bytes);
}
