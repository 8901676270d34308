/* Taking simulated links down and up on time. */
#include "faults.h"
#include "bench.h"
#include "sim/control.h"
#include "sim/spec.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

__attribute__((format(printf, 4, 5))) static int fail(int error, char *why, size_t room, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	vsnprintf(why, room, format, list);
	va_end(list);
	return error;
}

/* "3@1s", put where its time belongs. */
static int read_one(struct bench_schedule *schedule, const char *text, bool up, char *why, size_t room)
{
	const char *option = up ? "revive-rail" : "kill-rail", *at = strchr(text, '@');
	struct bench_fault fault = { .up = up };
	char number[24];
	uint64_t nic;

	snprintf(number, sizeof number, "%.*s", at ? (int)(at - text) : 0, text);
	if (!at || cmd_parse_number(number, &nic) < 0 || cmd_parse_duration(at + 1, &fault.at_ns) < 0)
		return fail(-EINVAL, why, room, "--%s cannot be '%s': it takes a NIC's number and a time, such as 3@1s",
			    option, text);
	if (nic >= BENCH_NICS_MAX)
		return fail(-EINVAL, why, room, "--%s %s: there is no such NIC", option, text);
	fault.nic = (uint32_t)nic;
	uint32_t place = schedule->count++;
	for (; place > 0 && schedule->fault[place - 1].at_ns > fault.at_ns; place--)
		schedule->fault[place] = schedule->fault[place - 1];
	schedule->fault[place] = fault;
	return 0;
}

int bench_schedule_read(struct bench_schedule *schedule, const struct cmd_strings *kill,
			const struct cmd_strings *revive, char *why, size_t room)
{
	bool dead[BENCH_NICS_MAX] = { false };
	int rc = 0;

	schedule->count = 0;
	for (uint32_t i = 0; rc == 0 && i < kill->count; i++)
		rc = read_one(schedule, kill->text[i], false, why, room);
	for (uint32_t i = 0; rc == 0 && i < revive->count; i++)
		rc = read_one(schedule, revive->text[i], true, why, room);
	for (uint32_t i = 0; rc == 0 && i < schedule->count; i++) {
		const struct bench_fault *fault = &schedule->fault[i];
		if (dead[fault->nic] != fault->up)
			rc = fail(-EINVAL, why, room,
				  fault->up ? "--revive-rail: NIC %u is not down at that time; --kill-rail "
					      "must come before"
					    : "--kill-rail: NIC %u is down already at that time",
				  fault->nic);
		dead[fault->nic] = !fault->up;
	}
	return rc;
}

static int check_nics(struct bench_faults *faults, const struct sim_spec *spec, char *why, size_t room)
{
	uint32_t down = 0;

	for (uint32_t i = 0; i < faults->schedule->count; i++) {
		const struct bench_fault *fault = &faults->schedule->fault[i];
		if (fault->nic >= faults->nics)
			return fail(-EINVAL, why, room, "--%s: there is no NIC %u: --sim has the numbers 0 to %u",
				    fault->up ? "revive-rail" : "kill-rail", fault->nic, faults->nics - 1);
		down += fault->up ? -1U : 1U;
		if (down >= faults->nics)
			return fail(-EINVAL, why, room, "--kill-rail leaves no NIC: one must stay up");
		sim_machine_nic_name(&spec->machine, (int)fault->nic, faults->nic_name[i], sizeof faults->nic_name[i]);
	}
	return 0;
}

/* A control file that needs no removing however this process ends: memory, reached by the peer through /proc.
 */
static int make_control(struct bench_faults *faults, char *path, size_t path_room, char *why, size_t room)
{
	faults->memory_fd = memfd_create("weft-bench-faults", MFD_CLOEXEC);
	int rc = faults->memory_fd < 0 ? -errno : sim_control_fill(faults->memory_fd);
	if (rc < 0)
		return fail(rc, why, room, "the file for --kill-rail cannot be created: %s", strerror(-rc));
	snprintf(path, path_room, "/proc/%d/fd/%d", (int)getpid(), faults->memory_fd);
	return 0;
}

int bench_faults_open(struct bench_faults *faults, const struct bench_schedule *schedule, uint64_t duration_ns,
		      const char *sim, char *ret_spec, size_t spec_room, char *why, size_t room)
{
	char path[sizeof((struct sim_spec *)0)->control];
	struct sim_spec spec;

	*faults = (struct bench_faults){ .schedule = schedule, .duration_ns = duration_ns, .memory_fd = -1 };
	memset(faults->rule, -1, sizeof faults->rule);
	int rc = sim_spec_parse(sim, &spec, why, room);
	if (rc < 0)
		return rc;
	faults->nics = (uint32_t)spec.nics;
	/* Only this end of the link: the peer's NICs stay up. */
	snprintf(faults->host, sizeof faults->host, "%s", spec.host);
	snprintf(path, sizeof path, "%s", spec.control);
	rc = check_nics(faults, &spec, why, room);
	if (rc == 0 && !path[0])
		rc = make_control(faults, path, sizeof path, why, room);
	if (rc < 0)
		return rc;
	rc = sim_control_open(path, &faults->control);
	if (rc < 0)
		return fail(rc, why, room, "the control file %s: %s", path,
			    rc == -EINVAL ? "not a control file" : strerror(-rc));
	int used = snprintf(ret_spec, spec_room, spec.control[0] ? "%s" : "%s,control=%s", sim, path);
	return used < 0 || (size_t)used >= spec_room ? fail(-EINVAL, why, room, "too long") : 0;
}

static int change_link(struct bench_faults *faults, const struct bench_fault *fault, char *why, size_t room)
{
	int *rule = &faults->rule[fault->nic];
	char text[128];

	if (fault->up) {
		sim_control_clear(faults->control, *rule);
		*rule = -1;
		return 0;
	}
	snprintf(text, sizeof text, "host=%s,nic=%u,fault=down", faults->host, fault->nic);
	*rule = sim_control_set(faults->control, text, why, room);
	return *rule < 0 ? *rule : 0;
}

void bench_faults_close(struct bench_faults *faults)
{
	for (uint32_t i = 0; faults->control && i < BENCH_NICS_MAX; i++) {
		if (faults->rule[i] >= 0)
			sim_control_clear(faults->control, faults->rule[i]);
		faults->rule[i] = -1;
	}
	if (faults->control)
		sim_control_close(faults->control);
	if (faults->memory_fd >= 0)
		close(faults->memory_fd);
	faults->control = NULL;
	faults->memory_fd = -1;
}

static struct bench_mark mark_at(uint64_t since_ns, uint64_t bytes)
{
	return (struct bench_mark){ since_ns, bytes, bench_cpu_ns() };
}

void bench_faults_start(struct bench_faults *faults)
{
	faults->phases = 1;
	faults->phase[0].start = mark_at(0, 0);
	faults->running = true;
}

/* When the phase that runs is planned to end. */
static uint64_t phase_ends(const struct bench_faults *faults)
{
	const struct bench_schedule *schedule = faults->schedule;
	return faults->next < schedule->count ? schedule->fault[faults->next].at_ns : faults->duration_ns;
}

int bench_faults_turn(struct bench_faults *faults, uint64_t since_ns, uint64_t bytes, char *why, size_t room)
{
	const struct bench_schedule *schedule = faults->schedule;
	struct bench_phase *phase = &faults->phase[faults->phases - 1];
	int rc = 0;

	if (!faults->running)
		return 0;
	uint64_t ends_ns = phase_ends(faults);
	if (!phase->halved && since_ns >= phase->from_ns + (ends_ns - phase->from_ns) / 2) {
		phase->halved = true;
		phase->half = mark_at(since_ns, bytes);
	}
	if (since_ns < ends_ns || faults->next == schedule->count)
		return 0;
	/* Links that change at one time change in one phase. */
	phase->end = mark_at(since_ns, bytes);
	phase[1] = (struct bench_phase){ .from_ns = ends_ns, .dead = phase->dead, .start = phase->end };
	faults->phases++;
	for (phase++; rc == 0 && faults->next < schedule->count; faults->next++) {
		const struct bench_fault *fault = &schedule->fault[faults->next];
		if (fault->at_ns > ends_ns)
			break;
		rc = change_link(faults, fault, why, room);
		phase->dead += fault->up ? -1U : 1U;
	}
	return rc;
}

void bench_faults_end(struct bench_faults *faults, uint64_t since_ns, uint64_t bytes)
{
	if (faults->running)
		faults->phase[faults->phases - 1].end = mark_at(since_ns, bytes);
	faults->running = false;
}

/* More than the attempts to open a path amount to. */
#define CARRIES_BYTES (UINT64_C(64) << 10)

static void add_event(struct bench_faults *faults, uint64_t since_ns, enum bench_rail_state state, const char *rail)
{
	if (faults->events == BENCH_RAIL_EVENTS_MAX)
		return;
	struct bench_rail_event *event = &faults->event[faults->events++];
	*event = (struct bench_rail_event){ .ns = since_ns, .state = state };
	snprintf(event->rail, sizeof event->rail, "%s", rail);
}

void bench_faults_rail(struct bench_faults *faults, weft_engine *engine, uint64_t since_ns, bool up, const char *rail)
{
	struct weft_rail_info info;

	add_event(faults, since_ns, up ? BENCH_RAIL_REOPENED : BENCH_RAIL_DOWN, rail);
	for (uint32_t i = 0; i < BENCH_NICS_MAX && weft_rail_info(engine, i, &info, sizeof(info)) == 0; i++) {
		if (strcmp(info.name, rail) != 0)
			continue;
		faults->reopened[i] = up;
		faults->reopened_bytes[i] = info.bytes;
	}
}

void bench_faults_watch(struct bench_faults *faults, weft_engine *engine, uint64_t since_ns)
{
	struct weft_rail_info info;

	for (uint32_t i = 0; i < BENCH_NICS_MAX; i++) {
		if (!faults->reopened[i] || weft_rail_info(engine, i, &info, sizeof(info)) < 0 ||
		    info.bytes - faults->reopened_bytes[i] < CARRIES_BYTES)
			continue;
		faults->reopened[i] = false;
		add_event(faults, since_ns, BENCH_RAIL_CARRIES, info.name);
	}
}
