/* The benchmark's driver finds its peer: a listener on a host, or a process that it starts. */
#include "drive.h"
#include "../common/net.h"
#include "../common/pack.h"
#include "../common/spawn.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CONNECT_NS (5 * WEFT_SECOND)
#define BUSY_NS    (15 * WEFT_SECOND) /* for a listener that serves somebody else */
#define KNOCK_NS   (250 * WEFT_MILLISECOND)

int bench_driver_fail(struct bench_driver *drive, int error, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	vsnprintf(drive->summary->error, sizeof drive->summary->error, format, list);
	va_end(list);
	return error;
}

int bench_driver_fail_control(struct bench_driver *drive, int error)
{
	return bench_driver_fail(drive, error, "%s", drive->control->error);
}

/* Our own child serves nobody else, and a listener that does says so at once. */
static void say_it_waits(struct bench_driver *drive)
{
	bench_progress_clear(&drive->load.progress);
	if (drive->child)
		fprintf(stderr, "weft bench: waiting: the peer process has not answered yet; this host may be busy\n");
	else
		fprintf(stderr,
			"weft bench: waiting: %s has not answered yet; it may be busy, or no 'weft bench "
			"--listen'\n",
			drive->summary->peer);
}

/* Both sides say at once who they are, so that neither waits long for a stranger. */
static int say_hello(struct bench_driver *drive)
{
	struct cmd_control *control = drive->control;
	uint8_t payload[64];
	struct cmd_pack pack;
	uint64_t party;

	cmd_pack_start(&pack, payload, sizeof payload);
	cmd_pack_text(&pack, weft_version());
	cmd_pack_u64(&pack, drive->options->party);
	int rc = cmd_control_send(control, CMD_FRAME_HELLO, payload, pack.used, BENCH_ANSWER_NS);
	if (rc == 0 && !drive->options->quiet && !cmd_control_wait(control, BENCH_SILENCE_NS))
		say_it_waits(drive);
	if (rc == 0)
		rc = cmd_control_expect(control, CMD_FRAME_HELLO, BENCH_ANSWER_NS);
	if (rc < 0)
		return bench_driver_fail_control(drive, rc);
	return bench_hello_unpack(control, &party) == 0
		   ? 0
		   : bench_driver_fail(drive, -EPROTO, "the peer's greeting is malformed");
}

static int connect_peer(struct bench_driver *drive, const struct cmd_net_address *address)
{
	char why[400];
	int fd = cmd_net_connect(address, CONNECT_NS, why, sizeof why);

	if (fd < 0)
		return bench_driver_fail(drive, fd, "%s", why);
	drive->same_host = cmd_net_same_host(fd);
	cmd_net_other_end(fd, &drive->host);
	cmd_net_name(fd, true, drive->summary->peer, sizeof drive->summary->peer);
	int rc = cmd_control_open(drive->control, fd);
	return rc < 0 ? bench_driver_fail_control(drive, rc) : say_hello(drive);
}

/* A listener serves one at a time and turns others away at once: stand in line for a while. */
int bench_meet_find(struct bench_driver *drive)
{
	const struct bench_options *options = drive->options;
	struct cmd_net_address address;
	uint64_t start_ns = cmd_now_ns();
	bool said = false;

	if (!options->host) {
		drive->same_host = true;
		snprintf(drive->summary->peer, sizeof drive->summary->peer, "a process of this host");
		return 0; /* started once the engine is open: nothing to undo when it does not */
	}
	int rc = cmd_net_parse(options->host, false, &address); /* checked with the options */
	if (rc < 0)
		return bench_driver_fail(drive, rc, "'%s' is no host", options->host);
	while ((rc = connect_peer(drive, &address)) == -EBUSY) {
		uint64_t waited_ns = cmd_now_ns() - start_ns;
		cmd_control_close(drive->control);
		drive->summary->error[0] = '\0';
		if (waited_ns > BUSY_NS)
			return bench_driver_fail(
			    drive, rc,
			    "%s is serving another benchmark: try again when that has ended, or start "
			    "another 'weft bench --listen PORT' there",
			    options->host);
		if (!said && !options->quiet && waited_ns > BENCH_SILENCE_NS)
			bench_progress_clear(&drive->load.progress);
		if (!said && !options->quiet && waited_ns > BENCH_SILENCE_NS)
			fprintf(stderr, "weft bench: waiting: %s is serving another benchmark\n", options->host);
		said |= waited_ns > BENCH_SILENCE_NS;
		nanosleep(&(struct timespec){ .tv_nsec = KNOCK_NS }, NULL);
	}
	return rc;
}

int bench_meet_start(struct bench_driver *drive)
{
	const char *words[] = { "weft", "bench", drive->options->quiet ? "--quiet" : "--peer-fd",
				drive->options->quiet ? "--peer-fd" : NULL, NULL };
	int fd, rc = cmd_spawn(words, &drive->child, &fd);
	if (rc < 0)
		return bench_driver_fail(drive, rc, "the peer process could not be started: %s", strerror(-rc));
	rc = cmd_control_open(drive->control, fd);
	return rc < 0 ? bench_driver_fail_control(drive, rc) : say_hello(drive);
}
