/*
 * Peers that die, stop, come back or never existed, as real processes over a real transport.
 *
 * kill --provider tcp|shm|local|mapped [--kills N] [--stops N] [--seed S (0: a fresh one)]
 *
 * Each round starts a few peers (they execute this program anew), submits operations of every kind to each and kills or stops
 * them one after the other, at random moments, while operations are in flight, as the others go on being served. Every operation
 * must end by the heartbeat's limit and 100 ms after its peer was killed (more if the machine woke threads late), none may end
 * twice, and memory and open files stay as they were. A stopped peer is killed after that, or continues and is reached again.
 * mapped is local with memory that peers map.
 */
#include "weft.h"
#include "torture.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEARTBEAT_NS (30 * WEFT_MILLISECOND)
#define LIMIT_NS     (150 * WEFT_MILLISECOND)
#define MEMORY       (8u << 20)
#define DEPTH        24 /* operations in flight to each peer */
#define PEERS        4  /* at a time */

struct blobs {
	size_t address_bytes, region_bytes;
	uint8_t address[16384], region[8192];
};

struct self {
	weft_engine *engine;
	weft_queue *queue;
	weft_region region;
	struct blobs blobs;
};

struct other {
	pid_t pid;
	int fd;
	weft_peer peer;
	weft_remote remote;
	uint32_t index;
	uint64_t due_ns, gone_ns; /* when it is to go; when it went, 0: it lives */
	uint64_t waited_ns;       /* time waiting for a CPU until it was added */
	uint32_t outstanding;
	bool open[DEPTH];
};

static const char *provider = "tcp", *program;
static uint8_t *memory;
static uint64_t seed = 1, latest_ns, ends, done, ended_down;
static bool mapped;

static void stop(const char *what, int rc)
{
	fprintf(stderr, "kill: FAILED, seed %llu: %s: %s\n", (unsigned long long)seed, what,
		rc ? weft_strerror(rc) : "no");
	exit(1);
}

static void log_line(void *context, enum weft_log_level level, const char *text)
{
	if (getenv("KILL_LOG"))
		fprintf(stderr, "%.3f [%d] %s\n", (double)now_ns() / 1e9, (int)getpid(), text);
}

/* The first engine's, if engines allocate it. */
static int make_memory(weft_engine *engine)
{
	void *made = memory;
	int rc = memory                                  ? 0
		 : mapped                                ? weft_memory_alloc(engine, MEMORY, NULL, &made)
		 : !(made = aligned_alloc(4096, MEMORY)) ? -ENOMEM
							 : 0;

	if (!rc)
		memset(memory = made, 1, MEMORY);
	return rc;
}

static void open_self(struct self *self)
{
	struct weft_config config = WEFT_CONFIG_INIT;
	int rc;

	config.provider = mapped ? "local" : provider;
	if (!strcmp(provider, "tcp"))
		config.rails = "lo";
	config.heartbeat_ns = HEARTBEAT_NS;
	config.peer_limit_ns = LIMIT_NS;
	config.rail_limit_ns = LIMIT_NS;
	config.log = log_line;
	if ((rc = weft_engine_open(&config, &self->engine, NULL, 0)) || (rc = make_memory(self->engine)) ||
	    (rc = weft_queue_open(self->engine, WEFT_QUEUE_LISTEN, &self->queue)) ||
	    (rc = weft_region_register(self->engine, memory, MEMORY, WEFT_REMOTE_WRITE | WEFT_REMOTE_READ,
				       &self->region)))
		stop("opening", rc);
	self->blobs.address_bytes = sizeof(self->blobs.address);
	self->blobs.region_bytes = sizeof(self->blobs.region);
	if ((rc = weft_engine_address(self->engine, self->blobs.address, &self->blobs.address_bytes)) ||
	    (rc = weft_region_export(self->engine, self->region, self->blobs.region, &self->blobs.region_bytes)))
		stop("blobs", rc);
}

/* ---- the peer: answers calls until it is killed or its socket closes ---- */

static int serve(int fd)
{
	struct self self;
	struct weft_event event;

	open_self(&self);
	if (write(fd, &self.blobs, sizeof(self.blobs)) != (ssize_t)sizeof(self.blobs))
		return 1;
	fcntl(fd, F_SETFL, O_NONBLOCK);
	for (;;) {
		char byte;

		if (read(fd, &byte, 1) == 0)
			break; /* the parent is gone, or wants us to leave politely */
		if (weft_queue_wait(self.queue, &event, sizeof(event), 1, 20 * WEFT_MILLISECOND) != 1)
			continue;
		if (event.type == WEFT_EVENT_CALL)
			weft_reply(self.engine, event.peer, event.call, 0, event.data, event.bytes, NULL, NULL);
		weft_event_release(&event);
	}
	return weft_engine_close(self.engine) ? 1 : 0;
}

static void spawn_peer(struct other *other)
{
	int pair[2];
	char number[16];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		stop("socketpair", -errno);
	fcntl(pair[0], F_SETFD, FD_CLOEXEC);
	snprintf(number, sizeof(number), "%d", pair[1]);
	other->pid = fork();
	if (!other->pid) {
		execl(program, program, "--provider", provider, "--serve", number, (char *)NULL);
		_exit(127);
	}
	close(pair[1]);
	other->fd = pair[0];
}

static void add_peer(struct self *self, struct other *other)
{
	static struct blobs blobs;
	size_t got = 0;
	int rc;

	while (got < sizeof(blobs)) {
		ssize_t n = read(other->fd, (uint8_t *)&blobs + got, sizeof(blobs) - got);

		if (n <= 0)
			stop("the peer did not start", 0);
		got += (size_t)n;
	}
	if ((rc = weft_peer_add(self->engine, blobs.address, blobs.address_bytes, NULL, &other->peer)) ||
	    (rc = weft_remote_import(self->engine, other->peer, blobs.region, blobs.region_bytes, &other->remote)))
		stop("adding the peer", rc);
	other->waited_ns = watch_process(other->pid);
}

static void start_peers(struct self *self, struct other *others, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		others[i] = (struct other){ .index = i };
		spawn_peer(&others[i]); /* all at once: starting takes longer than dying */
	}
	for (uint32_t i = 0; i < count; i++)
		add_peer(self, &others[i]);
}

static void end_peer(struct self *self, struct other *other)
{
	int status;

	close(other->fd);
	if (waitpid(other->pid, &status, 0) != other->pid)
		stop("waitpid", -errno);
	weft_remote_close(self->engine, other->remote);
	weft_peer_remove(self->engine, other->peer);
}

/* ---- operations ---- */

static int submit_one(struct self *self, struct other *other, uint32_t slot, struct random *random)
{
	uint32_t tag = other->index * DEPTH + slot + 1;
	struct weft_op op = { .size = sizeof(op), .queue = self->queue, .tag = tag, .timeout_ns = 20 * WEFT_SECOND };
	struct weft_write write = {
		sizeof(write), self->region, 0, other->remote, 0, 1 + random_below(random, 2u << 20)
	};
	struct weft_read read = { sizeof(read), other->remote, 0,
				  self->region, 4u << 20,      1 + random_below(random, 2u << 20) };

	switch (random_below(random, 5)) {
	case 0:
		op.notify = WEFT_NOTIFY_FENCED;
		op.notify_tag = tag;
		/* fall through */
	case 1:
		return weft_write(self->engine, &write, &op, NULL);
	case 2:
		return weft_read(self->engine, &read, &op, NULL);
	case 3:
		return weft_send(self->engine, other->peer, tag, memory, 1 + random_below(random, 20000), &op, NULL);
	default:
		return weft_call(self->engine, other->peer, tag, memory, 1 + random_below(random, 5000), &op, NULL);
	}
}

static void fill(struct self *self, struct other *other, struct random *random)
{
	for (uint32_t slot = 0; slot < DEPTH; slot++) {
		int rc = other->open[slot] ? 0 : submit_one(self, other, slot, random);

		if (other->open[slot] || rc == -EHOSTDOWN)
			continue;
		if (rc)
			stop("submitting", rc);
		other->open[slot] = true;
		other->outstanding++;
	}
}

/* On a machine that delays threads for long, ours or the peer's, even a live peer may be silent for the limit. */
static bool held_up(const struct other *other, uint64_t since_ns)
{
	uint64_t theirs = watch_process(other->pid) - other->waited_ns;

	if (watch_lateness(since_ns) + watch_waited(since_ns) + theirs < LIMIT_NS / 3)
		watch_settle();
	return watch_lateness(since_ns) + watch_waited(since_ns) + theirs >= LIMIT_NS / 3;
}

static void take_end(struct other *others, uint32_t count, const struct weft_event *event)
{
	uint64_t now = now_ns(), tag = event->tag - 1;
	struct other *other = &others[tag / DEPTH < count ? tag / DEPTH : 0];

	if (!event->tag || tag / DEPTH >= count || !other->open[tag % DEPTH])
		stop("an operation ended that was not there", event->status);
	other->open[tag % DEPTH] = false;
	other->outstanding--;
	ends++;
	done += !event->status;
	ended_down += event->status == -EHOSTDOWN;
	if (event->status && event->status != -EHOSTDOWN && event->status != -ECANCELED)
		stop("an operation to a peer that went away", event->status);
	if (event->status && !other->gone_ns && !held_up(other, now - 2 * LIMIT_NS))
		stop("an operation to a peer that lives", event->status);
	if (other->gone_ns && now - other->gone_ns > latest_ns)
		latest_ns = now - other->gone_ns;
}

static int take(struct self *self, struct other *others, uint32_t count, uint64_t wait_ns)
{
	struct weft_event events[16];
	int got = weft_queue_wait(self->queue, events, sizeof(*events), 16, wait_ns);

	for (int i = 0; i < got; i++) {
		if (events[i].type == WEFT_EVENT_END || events[i].type == WEFT_EVENT_REPLY)
			take_end(others, count, &events[i]);
		weft_event_release(&events[i]);
	}
	return got;
}

static void check_in_time(const struct other *other, uint64_t limit_ns, uint64_t now)
{
	if (!other->outstanding || !watch_is_late(other->gone_ns, now, limit_ns + LATE_NS))
		return;
	fprintf(stderr, "kill: %u operations have not ended %.0f ms after the peer went\n", other->outstanding,
		(double)(now - other->gone_ns) / 1e6);
	list_threads();
	stop("every operation ends in time", 0);
}

/* Waits until everything has ended; nothing may end later than the limit after its peer went. */
static void drain(struct self *self, struct other *others, uint32_t count, uint64_t limit_ns)
{
	uint32_t outstanding;

	do {
		uint64_t before = now_ns(); /* what is not in the queue after it was not there then */
		int got = take(self, others, count, 10 * WEFT_MILLISECOND);

		outstanding = 0;
		for (uint32_t i = 0; i < count; i++) {
			outstanding += others[i].outstanding;
			if (!got)
				check_in_time(&others[i], limit_ns, before);
		}
	} while (outstanding);
}

static void await_up(struct self *self, struct other *others, uint32_t count, uint32_t which)
{
	struct weft_peer_info info = { 0 };
	uint64_t start = now_ns();

	while (weft_peer_info(self->engine, others[which].peer, &info, sizeof(info)) == 0 && !info.up) {
		take(self, others, count, WEFT_MILLISECOND);
		if (now_ns() - start > 10 * WEFT_SECOND)
			stop("a peer that lives is not reached in 10 s", 0);
	}
}

/* Signals those whose time has come; returns how many are left. */
static uint32_t signal_due(struct other *others, uint32_t count, int signal)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (!others[i].gone_ns && now_ns() >= others[i].due_ns) {
			others[i].gone_ns = now_ns();
			kill(others[i].pid, signal);
		}
		left += !others[i].gone_ns;
	}
	return left;
}

/* Works with all until each got the signal, within 30 ms. */
static void work_and_signal(struct self *self, struct other *others, uint32_t count, struct random *random, int signal)
{
	for (uint32_t i = 0; i < count; i++)
		others[i].due_ns = now_ns() + random_below(random, 30000) * WEFT_MICROSECOND;
	do {
		for (uint32_t i = 0; i < count; i++)
			if (!others[i].gone_ns)
				fill(self, &others[i], random);
		take(self, others, count, random_below(random, 300) * WEFT_MICROSECOND);
	} while (signal_due(others, count, signal));
}

/* Some peers, each killed within 30 ms of work. Sometimes one dies before it was ever heard. */
static void killed(struct self *self, struct random *random, uint32_t count)
{
	struct other others[PEERS];

	start_peers(self, others, count);
	for (uint32_t i = 0; i < count; i++)
		if (!random_chance(random, 10))
			await_up(self, others, count, i);
	work_and_signal(self, others, count, random, SIGKILL);
	drain(self, others, count, LIMIT_NS + HEARTBEAT_NS);
	for (uint32_t i = 0; i < count; i++)
		end_peer(self, &others[i]);
}

/* Stopped for longer than the limit: given up, and reached again after they continue. Some are killed instead. */
static void stopped(struct self *self, struct random *random, uint32_t count)
{
	struct other others[PEERS];

	start_peers(self, others, count);
	for (uint32_t i = 0; i < count; i++)
		await_up(self, others, count, i);
	work_and_signal(self, others, count, random, SIGSTOP);
	drain(self, others, count, LIMIT_NS + HEARTBEAT_NS);
	for (uint32_t i = 0; i < count; i++)
		if (random_chance(random, 25)) {
			kill(others[i].pid, SIGKILL);
			end_peer(self, &others[i]);
			others[i--] = others[--count];
		}
	for (uint32_t i = 0; i < count; i++) {
		others[i].index = i;
		kill(others[i].pid, SIGCONT);
	}
	for (uint32_t i = 0; i < count; i++) {
		await_up(self, others, count, i);
		fill(self, &others[i], random);
		others[i].gone_ns = now_ns();
	}
	drain(self, others, count, 20 * WEFT_SECOND);
	for (uint32_t i = 0; i < count; i++)
		end_peer(self, &others[i]);
}

/* Stopped for less than the limit: nothing may fail. */
static void pause_shortly(struct self *self, struct random *random)
{
	struct other other;
	uint64_t before, asleep_ns, down = ended_down;

	start_peers(self, &other, 1);
	await_up(self, &other, 1, 0);
	work_and_signal(self, &other, 1, random, SIGSTOP);
	before = other.gone_ns;
	while (now_ns() - before < LIMIT_NS / 3)
		take(self, &other, 1, WEFT_MILLISECOND);
	kill(other.pid, SIGCONT);
	asleep_ns = now_ns() - before; /* longer than meant where we were held up ourselves */
	drain(self, &other, 1, 20 * WEFT_SECOND);
	if (ended_down != down && asleep_ns < LIMIT_NS / 2 && !held_up(&other, before))
		stop("a peer that paused shortly was given up", 0);
	end_peer(self, &other);
}

/* An address where nobody lives: a peer that closed. Operations end by their own deadline or the peer's limit. */
static void never_there(struct self *self, struct random *random)
{
	static struct blobs blobs;
	struct self gone;
	struct other other = { 0 };
	int rc;

	open_self(&gone);
	blobs = gone.blobs;
	weft_engine_close(gone.engine);
	if ((rc = weft_peer_add(self->engine, blobs.address, blobs.address_bytes, NULL, &other.peer)) ||
	    (rc = weft_remote_import(self->engine, other.peer, blobs.region, blobs.region_bytes, &other.remote)))
		stop("adding a peer that is not there", rc);
	other.gone_ns = now_ns();
	fill(self, &other, random);
	drain(self, &other, 1, LIMIT_NS + HEARTBEAT_NS);
	weft_remote_close(self->engine, other.remote);
	weft_peer_remove(self->engine, other.peer);
}

static void settle(struct self *self)
{
	struct weft_engine_info info = { 0 };
	uint64_t start = now_ns();

	do {
		take(self, NULL, 0, WEFT_MILLISECOND);
		weft_engine_info(self->engine, &info, sizeof(info));
	} while ((info.transfers_in_flight || info.peers) && now_ns() - start < 10 * WEFT_SECOND);
	if (info.transfers_in_flight || info.peers) {
		fprintf(stderr, "kill: %llu transfers, %llu peers left\n", (unsigned long long)info.transfers_in_flight,
			(unsigned long long)info.peers);
		stop("nothing is left over", 0);
	}
}

struct footprint {
	uint64_t rss;
	int files;
};

static struct footprint measure(struct self *self)
{
	settle(self);
	return (struct footprint){ rss_bytes(), open_fds() };
}

static void check_flat(const struct footprint *before, const struct footprint *after)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	if (after->rss > before->rss + (16u << 20))
		stop("memory is flat", 0);
#endif
	if (after->files > before->files + 4)
		stop("open files are flat", 0);
}

static void stop_many(struct self *self, struct random *random, uint32_t stops)
{
	struct footprint before = { 0 }, after;

	for (uint32_t left = stops, count; left; left -= count) {
		stopped(self, random, count = left < PEERS ? left : PEERS);
		pause_shortly(self, random);
		if (!before.files)
			before = measure(self);
	}
	for (int i = 0; i < 3; i++)
		never_there(self, random);
	after = measure(self);
	if (stops > PEERS)
		check_flat(&before, &after);
}

static void kill_many(struct self *self, struct random *random, uint32_t kills)
{
	struct footprint before = { 0 }, after;

	for (uint32_t left = kills, count; left; left -= count) {
		killed(self, random, count = left < PEERS ? left : PEERS);
		if (!before.files && left <= kills - kills / 4) /* pools and the allocator have reached their size */
			before = measure(self);
	}
	after = measure(self);
	printf("killed %u peers: %llu operations ended (%llu done, %llu peer down), the latest %.0f ms after "
	       "the kill; memory "
	       "%.1f -> %.1f MB, files %d -> %d\n",
	       kills, (unsigned long long)ends, (unsigned long long)done, (unsigned long long)ended_down,
	       (double)latest_ns / 1e6, (double)before.rss / 1e6, (double)after.rss / 1e6, before.files, after.files);
	if (kills >= 8)
		check_flat(&before, &after);
}

static int run(uint32_t kills, uint32_t stops)
{
	struct self self;
	struct random random = { seed };
	uint64_t start = now_ns();

	watch_start();
	open_self(&self);
	kill_many(&self, &random, kills);
	stop_many(&self, &random, stops);
	if (weft_engine_close(self.engine))
		stop("closing", 0);
	if (!mapped)
		free(memory);
	watch_stop();
	printf("kill: %s, seed %llu, %u kills, %u stops, %llu operations in %.1f s: OK\n", provider,
	       (unsigned long long)seed, kills, stops, (unsigned long long)ends, (double)(now_ns() - start) / 1e9);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "provider", 1, 0, 'p' }, { "kills", 1, 0, 'k' },
						 { "stops", 1, 0, 's' },    { "serve", 1, 0, 'S' },
						 { "seed", 1, 0, 'r' },     { 0, 0, 0, 0 } };
	uint32_t kills = 200, stops = 5;
	int option, fd = -1;

	program = "/proc/self/exe";
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
		if (option == 'p')
			provider = optarg;
		else if (option == 'k')
			kills = (uint32_t)atoi(optarg);
		else if (option == 's')
			stops = (uint32_t)atoi(optarg);
		else if (option == 'S')
			fd = atoi(optarg);
		else if (option == 'r')
			seed = strtoull(optarg, NULL, 0);
		else
			return 2;
	mapped = !strcmp(provider, "mapped");
	if (!seed)
		seed = now_ns() / 1000;
	return fd >= 0 ? serve(fd) : run(kills, stops);
}
