/*
 * torture --seed S (0: a fresh one) --ops N [--minutes M] [--engines K] [--nics N] [--faults LIST|none|all] [--provider
 * simfab|tcp|shm|local|mapped]
 *
 * Rounds: run, then drain with all faults gone, check that nothing is left over or has leaked, and that every
 * node reaches every other again. Exits 0, or 1 with the seed and the history of the operation that broke a
 * promise.
 */
#include "torture.h"
#include "sim/setup.h"

#include <errno.h>
#include <getopt.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ROUND_OPS 25000 /* most operations between two checks for leftovers */
#define DRAIN_NS  (8 * WEFT_SECOND)
#define PROBE_NS  (20 * WEFT_SECOND)

struct world world = { .seed = 1,
		       .ops = 20000,
		       .nodes = 3,
		       .nics = 4,
		       .provider = "simfab",
		       .keys = "strict=1",
		       .lock = PTHREAD_MUTEX_INITIALIZER,
		       .memory = PTHREAD_RWLOCK_INITIALIZER };

static uint32_t parse_faults(const char *text)
{
	char copy[512], *list = copy; /* card=efa starts the program over with its arguments: they stay as they are */
	uint32_t faults = 0;

	if (!strcmp(text, "none"))
		return 0;
	snprintf(copy, sizeof(copy), "%s", text);
	for (char *item; (item = strsep(&list, ","));) {
		bool without = *item == '-'; /* all,-drop */
		uint32_t i = 0;

		if (!strcmp(item, "all")) {
			faults = (1u << FAULTS) - 1;
			continue;
		}
		item += without;
		while (i < FAULTS && strcmp(item, fault_name[i]))
			i++;
		if (i == FAULTS) {
			fprintf(stderr, "torture: no fault is called %s. There are:", item);
			for (i = 0; i < FAULTS; i++)
				fprintf(stderr, " %s", fault_name[i]);
			fprintf(stderr, "\n");
			exit(2);
		}
		faults = without ? faults & ~(1u << i) : faults | 1u << i;
	}
	return faults;
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", 1, 0, 's' }, { "ops", 1, 0, 'o' },    { "minutes", 1, 0, 'm' },  { "engines", 1, 0, 'e' },
		{ "nics", 1, 0, 'n' }, { "faults", 1, 0, 'f' }, { "provider", 1, 0, 'p' }, { "verbose", 0, 0, 'v' },
		{ "sim", 1, 0, 'S' },  { "slack", 1, 0, 'l' },  { "manual", 0, 0, 'M' },   { "local", 0, 0, 'L' },
		{ 0, 0, 0, 0 },
	};
	char all[] = "all", *faults = all;
	double minutes = 0;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (option) {
		case 's':
			world.seed = strtoull(optarg, NULL, 0);
			if (!world.seed)
				world.seed = now_ns() / 1000;
			break;
		case 'o':
			world.ops = strtoull(optarg, NULL, 0);
			break;
		case 'm':
			minutes = atof(optarg);
			break;
		case 'e':
			world.nodes = (uint32_t)atoi(optarg);
			break;
		case 'n':
			world.nics = (uint32_t)atoi(optarg);
			break;
		case 'f':
			faults = optarg;
			break;
		case 'p':
			world.provider = optarg;
			break;
		case 'v':
			world.verbose = true;
			break;
		case 'l':
			world.slack_ns = strtoull(optarg, NULL, 0) * WEFT_MILLISECOND;
			break;
		case 'M':
			world.manual = true;
			break;
		case 'L':
			world.local = true;
			break;
		case 'S':
			world.keys = optarg;
			break;
		default:
			exit(2);
		}
	if (world.nodes < 2 || world.nodes > NODES || !world.nics || !world.ops) {
		fprintf(stderr, "torture: 2 to %d engines, at least one NIC and operation\n", NODES);
		exit(2);
	}
	world.faults = parse_faults(faults);
	world.limit_ns = minutes > 0 ? now_ns() + (uint64_t)(minutes * 60e9) : UINT64_MAX;
	if (minutes > 0)
		world.ops = UINT64_MAX;
	world.mapped = !strcmp(world.provider, "mapped");
	world.simulated = !strcmp(world.provider, "simfab");
	world.quiesces = world.simulated && !strstr(world.keys, "emulated=1") && !strstr(world.keys, "card=efa");
	if (!world.simulated)
		world.faults &= ~((2u << FAULT_SIMULATED) - 1);
}

/* The simulated NICs: small queues and a short silence, so that limits are reached; strict, so that misuse stops the
 * process. */
static void simulate(void)
{
	char spec[512], error[256], control[128];
	int rc = faults_open(control, sizeof(control));

	if (rc)
		fail(NULL, "the control file: %s", strerror(-rc));
	snprintf(spec, sizeof(spec),
		 "p5,nics=%u,rate=inf,copy=full,latency=5us,jitter=20us,handshake=500us,"
		 "unresponsive=200ms,tx=128,rx=128,"
		 "seed=%llu,control=%s,%s",
		 world.nics, (unsigned long long)world.seed, control, world.keys);
	rc = wf_sim_setup(spec, error, sizeof(error));
	if (rc)
		fail(NULL, "%s", error);
}

static void make_nodes(void)
{
	for (uint32_t n = 0; n < world.nodes; n++) {
		struct node *node = &world.node[n];
		int rc;

		node->index = n;
		node->random.state = world.seed * 1000 + n;
		node->image = malloc(ARENA);
		pthread_rwlock_init(&node->alive, NULL);
		for (int in = 0; in < 2; in++) {
			node->arena[in].made = node->arena[in].base =
			    mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (node->arena[in].base == MAP_FAILED || !node->image)
				fail(NULL, "no memory");
		}
		rc = node_open(node);
		if (rc)
			fail(NULL, "opening node %u said %s", n, weft_strerror(rc));
	}
	words_start();
	for (uint32_t n = 0; n < world.nodes; n++)
		pthread_create(&world.node[n].thread, NULL, node_loop, &world.node[n]);
}

/* Returns when all nodes have completed a loop in this phase. */
static void enter(enum phase phase)
{
	atomic_store(&world.phase, phase);
	for (uint32_t n = 0; n < world.nodes; n++)
		while (atomic_load(&world.node[n].in_phase) != phase)
			nap_ms(1);
}

static uint32_t still_active(void)
{
	uint32_t active = 0;

	pthread_mutex_lock(&world.lock);
	for (uint32_t n = 0; n < world.nodes; n++)
		active += world.node[n].active + world.node[n].pendings;
	pthread_mutex_unlock(&world.lock);
	return active;
}

static void drain(void)
{
	uint64_t start = now_ns();

	faults_clear();
	enter(PHASE_DRAIN);
	faults_clear(); /* one may have been set meanwhile */
	while (still_active()) {
		nap_ms(2);
		if (now_ns() - start < DRAIN_NS + 10 * watch_lateness(start))
			continue;
		for (uint32_t n = 0; n < world.nodes; n++)
			for (uint32_t i = 0; i < OPS; i++)
				if (world.node[n].op[i].id)
					fail(&world.node[n].op[i], "still there %.1f s after the last was submitted",
					     (double)(now_ns() - start) / 1e9);
		fail(NULL, "announcements have not arrived");
	}
}

/* If our books have nothing in flight, the engines have nothing in flight either, and no slot is lost. */
static void check_empty(void)
{
	uint64_t start = now_ns();

	for (uint32_t n = 0; n < world.nodes; n++) {
		struct weft_engine_info info = { 0 };

		for (;;) {
			int rc = weft_engine_info(world.node[n].engine, &info, sizeof(info));

			if (rc)
				fail(NULL, "weft_engine_info said %s", weft_strerror(rc));
			if (!info.transfers_in_flight)
				break;
			if (now_ns() - start > 5 * WEFT_SECOND + 10 * watch_lateness(start))
				fail(NULL, "node %u: %llu transfers are in flight, and none is known", n,
				     (unsigned long long)info.transfers_in_flight);
			nap_ms(2);
		}
		/* Each other node once; twice while an older incarnation is on its way out. */
		if (info.peers > 2 * world.nodes + world.ghosts + STRANGERS)
			fail(NULL, "node %u has %llu peers", n, (unsigned long long)info.peers);
	}
	check_arenas();
}

/* With every fault gone each node must reach each other one again. */
static void probe(void)
{
	uint64_t start = now_ns();
	bool all;

	do {
		all = true;
		nap_ms(5);
		for (uint32_t n = 0; n < world.nodes; n++)
			for (uint32_t i = 0; i < world.nodes; i++)
				if (n != i && !world.node[n].link[i].probed) {
					all = false;
					if (now_ns() - start > PROBE_NS + 10 * watch_lateness(start))
						fail(NULL,
						     "node %u does not reach node %u any more, %.0f s after "
						     "the last fault",
						     n, i, (double)(now_ns() - start) / 1e9);
				}
	} while (!all);
}

/* Else the run has shown nothing about mapped memory. */
static void check_mapped(void)
{
	struct weft_rail_info info;
	uint64_t bytes = 0;

	for (uint32_t n = 0; n < world.nodes; n++)
		for (uint32_t i = 0; !weft_rail_info(world.node[n].engine, i, &info, sizeof(info)); i++)
			bytes += info.mapped_bytes;
	if (world.mapped && !bytes)
		fail(NULL, "nothing was copied through mapped memory");
}

static void start_probe(void)
{
	for (uint32_t n = 0; n < world.nodes; n++)
		for (uint32_t i = 0; i < world.nodes; i++)
			world.node[n].link[i].probed = false;
	enter(PHASE_PROBE);
}

static void round_of(uint64_t until)
{
	enter(PHASE_RUN);
	while (atomic_load(&world.submitted) < until && now_ns() < world.limit_ns)
		nap_ms(2);
	drain();
	check_empty();
	start_probe();
	probe();
	drain();
	check_empty();
}

static void summary(uint64_t start)
{
	static const char *const names[KINDS] = { "write", "pages", "scatter", "read",
						  "send",  "call",  "barrier", "expect" };
	struct tally *tally = &world.tally;

	printf("%-8s %9s %9s  other ends\n", "kind", "accepted", "done");
	for (int k = 0; k < KINDS; k++) {
		printf("%-8s %9llu %9llu ", names[k], (unsigned long long)tally->submitted[k],
		       (unsigned long long)tally->done[k]);
		for (int s = 1; s < 160; s++)
			if (tally->ended[k][s])
				printf(" %s %llu", s == 159 ? "(application's)" : strerrorname_np(s),
				       (unsigned long long)tally->ended[k][s]);
		printf("\n");
	}
	printf("faults:");
	for (int f = 0; f <= FAULT_SIMULATED; f++)
		printf(" %s %llu", fault_name[f], (unsigned long long)tally->faults[f]);
	printf("; attacks %llu, cancels %llu, peers changed %llu, regions changed %llu, engines reopened %llu\n",
	       (unsigned long long)tally->attacks, (unsigned long long)tally->cancels,
	       (unsigned long long)tally->peer_changes, (unsigned long long)tally->region_changes,
	       (unsigned long long)tally->reopens);
	printf("arrived: %llu notifications, %llu messages, %llu calls; refused %llu (full %llu); peers down "
	       "%llu, rails down %llu; "
	       "not quiescent %llu; %.1f MB\n",
	       (unsigned long long)tally->notifies, (unsigned long long)tally->messages,
	       (unsigned long long)tally->calls, (unsigned long long)tally->refused, (unsigned long long)tally->full,
	       (unsigned long long)tally->peer_down, (unsigned long long)tally->rail_down,
	       (unsigned long long)tally->unquiet, (double)tally->bytes / 1e6);
	printf("words: %llu waited for, %llu at ends, %llu at receivers\n", (unsigned long long)tally->waits,
	       (unsigned long long)tally->end_words, (unsigned long long)tally->cells);
	printf("torture: seed %llu, %llu operations on %u engines (%s) in %.1f s; latest end %.1f ms after "
	       "its deadline; threads "
	       "woken up to %.1f ms late: OK\n",
	       (unsigned long long)world.seed, (unsigned long long)world.submitted, world.nodes,
	       world.simulated ? simulated_provider() : world.provider, (double)(now_ns() - start) / 1e9,
	       (double)tally->late_max_ns / 1e6, (double)watch_lateness(start) / 1e6);
}

static void list_files(void)
{
	char path[64], target[128];

	for (int fd = 0; fd < 1024; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, target, sizeof(target) - 1);
		if (n > 0)
			fprintf(stderr, "  %d: %.*s\n", fd, (int)n, target);
	}
}

/* Sanitizers hold back freed memory, so its size says nothing. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_TELLS false
#else
#define MEMORY_TELLS true
#endif

static void check_leaks(uint32_t round, uint64_t rss, uint32_t files)
{
	static uint64_t first_rss;
	static uint32_t first_files, many;

	/* Pools fill and the allocator grows in the first rounds. */
	if (MEMORY_TELLS && round > 3 && rss > first_rss + first_rss / 4 + (32u << 20))
		fail(NULL, "memory grew from %.1f to %.1f MB in %u rounds", (double)first_rss / 1e6, (double)rss / 1e6,
		     round - 3);
	/* Peers on their way out hold some for a while; only a lasting rise is a leak. */
	many = round > 3 && files > first_files + 2 ? many + 1 : 0;
	if (many == 5) {
		list_files();
		fail(NULL, "open files grew from %u to %u", first_files, files);
	}
	if (round <= 3) {
		first_rss = rss;
		first_files = files;
	}
	if (world.verbose || getenv("TORTURE_ROUNDS"))
		printf("round %u: %llu operations, %.1f MB, %u files\n", round, (unsigned long long)world.submitted,
		       (double)rss / 1e6, files);
}

int main(int argc, char **argv)
{
	uint64_t start, chunk;

	/* Else each thread that reopens a rail may use another part of the heap, and the free room of all of them grows for as long
	 * as we run: nobody could tell it from a leak. */
	mallopt(M_ARENA_MAX, 1);
	parse(argc, argv);
	watch_start();
	if (world.simulated)
		simulate();
	start = now_ns();
	stranger_open();
	ghosts_make();
	make_nodes();
	enter(PHASE_DRAIN);
	start_probe();
	probe(); /* everyone reaches everyone before anything is disturbed */
	faults_start();
	chunk = world.ops == UINT64_MAX || world.ops / 8 > ROUND_OPS ? ROUND_OPS
		: world.ops / 8 < 1000                               ? 1000
								     : world.ops / 8;
	for (uint32_t round = 1; world.submitted < world.ops && now_ns() < world.limit_ns; round++) {
		round_of(world.submitted + chunk);
		check_leaks(round, rss_bytes(), (uint32_t)open_fds());
	}
	atomic_store(&world.phase, PHASE_STOP);
	for (uint32_t n = 0; n < world.nodes; n++)
		pthread_join(world.node[n].thread, NULL);
	words_stop();
	faults_stop();
	stranger_close();
	check_mapped();
	for (uint32_t n = 0; n < world.nodes; n++)
		node_close(&world.node[n], false);
	check_arenas();
	watch_stop();
	summary(start);
	return 0;
}
