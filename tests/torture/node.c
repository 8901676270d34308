/* A node: opens and closes its engine, keeps or breaks its links to the others, and runs its thread's loop. */
#include "torture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define CLOSE_LIMIT_NS                                                                                                 \
	(5 * WEFT_SECOND + 5 * world.slack_ns) /* a provider that takes long to close a rail has several */

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static char specification[512];

static void log_line(void *context, enum weft_log_level level, const char *text)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };

	if (world.verbose)
		fprintf(stderr, "%.3f n%u %s: %s\n", (double)now_ns() / 1e9, ((struct node *)context)->index,
			names[level], text);
}

/* The provider's name, as the keys give it. */
const char *simulated_provider(void)
{
	if (!strstr(world.keys, "as=efa") && !strstr(world.keys, "card=efa"))
		return "simfab";
	return strstr(world.keys, "personality=efa-direct") ? "efa-direct" : "efa";
}

/* The simulator reads the environment when somebody looks for NICs: that makes each engine a host of its own. */
void name_host(const char *name)
{
	char text[600];

	if (!world.simulated)
		return;
	if (!specification[0])
		snprintf(specification, sizeof(specification), "%s", getenv("SIMFAB"));
	snprintf(text, sizeof(text), "%s,name=%s", specification, name);
	setenv("SIMFAB", text, 1);
}

static int open_engine(struct node *node)
{
	struct weft_config config = WEFT_CONFIG_INIT;
	char name[16];
	int rc;

	config.provider = world.simulated ? simulated_provider() : world.mapped ? "local" : world.provider;
	if (!strcmp(world.provider, "tcp"))
		config.rails = "lo";
	config.max_transfers = TRANSFERS;
	config.flags = (world.manual ? WEFT_MANUAL_PROGRESS : 0) | (world.local ? WEFT_WITH_LOCAL : 0);
	config.heartbeat_ns = 100 * WEFT_MILLISECOND;
	config.peer_limit_ns = WEFT_SECOND;
	config.rail_limit_ns = 300 * WEFT_MILLISECOND;
	config.close_limit_ns = CLOSE_LIMIT_NS;
	config.log = log_line;
	config.log_context = node;
	snprintf(name, sizeof(name), "n%u", node->index);
	pthread_mutex_lock(&opening);
	name_host(name);
	rc = weft_engine_open(&config, &node->engine, NULL, 0);
	pthread_mutex_unlock(&opening);
	return rc;
}

/* What an engine allocates goes when it closes, and what lands there is judged later: a second mapping, always at the same place,
 * keeps the pages until the next engine's take over with the same bytes. */
static int make_memory(struct node *node, struct arena *arena)
{
	void *made, *base;
	int rc = weft_memory_alloc(node->engine, ARENA, NULL, &made);

	if (rc)
		return rc;
	pthread_rwlock_wrlock(&world.memory);
	pthread_mutex_lock(&world.lock);
	memcpy(made, arena->base, ARENA);
	base = mremap(made, 0, ARENA, MREMAP_MAYMOVE | MREMAP_FIXED, arena->base);
	pthread_mutex_unlock(&world.lock);
	pthread_rwlock_unlock(&world.memory);
	if (base != arena->base)
		fail(NULL, "mapping what an engine allocated: %s", strerror(errno));
	arena->made = made;
	return 0;
}

static int register_region(struct node *node, bool in)
{
	weft_region *region = in ? &node->in : &node->out;

	return weft_region_register(node->engine, node->arena[in].made, ARENA,
				    in ? WEFT_REMOTE_WRITE : WEFT_REMOTE_READ, region);
}

void node_publish_regions(struct node *node)
{
	struct published *all = &node->published;
	struct {
		size_t bytes;
		uint8_t blob[8192];
	} in = { sizeof(in.blob), { 0 } }, out = { sizeof(out.blob), { 0 } };
	int rc = weft_region_export(node->engine, node->in, in.blob, &in.bytes);

	if (!rc)
		rc = weft_region_export(node->engine, node->out, out.blob, &out.bytes);
	if (rc)
		fail(NULL, "weft_region_export said %s", weft_strerror(rc));
	pthread_mutex_lock(&world.lock);
	memcpy(all->in, in.blob, all->in_bytes = in.bytes);
	memcpy(all->out, out.blob, all->out_bytes = out.bytes);
	all->version++;
	all->generation = node->generation;
	pthread_mutex_unlock(&world.lock);
}

void node_publish_address(struct node *node)
{
	uint8_t blob[16384];
	size_t bytes = sizeof(blob);
	int rc = weft_engine_address(node->engine, blob, &bytes);

	if (rc)
		fail(NULL, "weft_engine_address said %s", weft_strerror(rc));
	/* Peers are told again only when it is another one: taking pieces back must not cost a rail its address. */
	pthread_mutex_lock(&world.lock);
	if (node->published.address_bytes != bytes || memcmp(node->published.address, blob, bytes))
		node->published.revision++;
	memcpy(node->published.address, blob, bytes);
	node->published.address_bytes = bytes;
	pthread_mutex_unlock(&world.lock);
}

/* Opens and closes engines before all others: their addresses stay. */
void ghosts_make(void)
{
	for (uint32_t i = 0; i < GHOSTS && world.faults & 1u << FAULT_GHOSTS; i++) {
		struct node *node = &world.node[0];
		struct ghost *ghost = &world.ghost[i];
		int rc = open_engine(node);

		ghost->bytes = sizeof(ghost->address);
		if (!rc)
			rc = weft_engine_address(node->engine, ghost->address, &ghost->bytes);
		if (rc)
			fail(NULL, "a ghost's engine said %s", weft_strerror(rc));
		weft_engine_close(node->engine);
		node->engine = NULL;
		world.ghosts++;
	}
}

/* Peers that are gone, and stay added for as long as the engine lives. */
static int add_ghosts(struct node *node)
{
	weft_peer ghost;
	int rc = 0;

	for (uint32_t i = 0; i < world.ghosts && !rc; i++)
		rc = weft_peer_add(node->engine, world.ghost[i].address, world.ghost[i].bytes, NULL, &ghost);
	return rc;
}

int node_open(struct node *node)
{
	int rc = open_engine(node);

	if (rc)
		return rc;
	for (int i = 0; i < 3 && !rc; i++)
		rc = weft_queue_open(node->engine, i ? 0 : WEFT_QUEUE_LISTEN, &node->queue[i]);
	for (int in = 0; world.mapped && in < 2 && !rc; in++)
		rc = make_memory(node, &node->arena[in]);
	if (!rc)
		rc = register_region(node, true);
	if (!rc)
		rc = register_region(node, false);
	if (!rc)
		rc = add_ghosts(node);
	if (rc) {
		weft_engine_close(node->engine);
		node->engine = NULL;
		return rc;
	}
	memset(node->link, 0, sizeof(node->link));
	node->next_immediate = node->dirty_immediates = node->oweds = node->old_regions = 0;
	pthread_mutex_lock(&world.lock);
	node->stales = 0;
	node->generation++;
	pthread_mutex_unlock(&world.lock);
	node_publish_address(node);
	node_publish_regions(node);
	return 0;
}

/* Everything in flight ends with the engine: nothing of it can land afterwards. */
void node_close(struct node *node, bool restart)
{
	uint64_t before = now_ns(), took;
	int rc;

	pthread_mutex_lock(&world.lock);
	node->published.generation = 0;
	node->pendings = 0;
	for (uint32_t i = 0; i < OPS; i++)
		if (node->op[i].id && node->op[i].active) {
			op_note(&node->op[i], "its engine closes", 0);
			node->op[i].handle = 0;
		}
	pthread_mutex_unlock(&world.lock);
	pthread_rwlock_wrlock(&node->alive);
	rc = weft_engine_close(node->engine);
	took = now_ns() - before;
	if (rc)
		fail(NULL, "weft_engine_close said %s", weft_strerror(rc));
	if (took > CLOSE_LIMIT_NS + WEFT_SECOND + 8 * watch_lateness(before))
		fail(NULL, "weft_engine_close took %.1f s", (double)took / 1e9);
	node->engine = NULL;
	node->replies = 0;
	for (uint32_t i = 0; i < OPS; i++)
		if (node->op[i].id)
			op_dropped(node, &node->op[i]);
	pthread_mutex_lock(&world.lock);
	node->pendings = 0; /* arrivals that were not taken went with the queue */
	pthread_mutex_unlock(&world.lock);
	before = now_ns();
	while (restart && (rc = node_open(node))) {
		struct timespec nap = { .tv_nsec = 5000000 };

		/* Registering may be made to fail. It must fail cleanly, and work once the fault is gone. */
		if (!(world.faults & ((2u << FAULT_SIMULATED) - 1)) || now_ns() - before > 30 * WEFT_SECOND)
			fail(NULL, "opening node %u again said %s", node->index, weft_strerror(rc));
		nanosleep(&nap, NULL);
	}
	pthread_rwlock_unlock(&node->alive);
}

/* ---- links ---- */

static void drop_link(struct node *node, uint32_t other)
{
	struct peer_link *link = &node->link[other];
	weft_peer peer = link->peer;

	op_excuse(node, other);
	if (link->in)
		weft_remote_close(node->engine, link->in);
	if (link->out)
		weft_remote_close(node->engine, link->out);
	/* Each field separately: the main thread may probe at any time. */
	link->peer = 0;
	link->in = link->out = 0;
	link->generation = link->version = link->revision = 0;
	link->retry_ns = 0;
	link->down = false;
	atomic_store(&link->probed, false);
	if (peer)
		weft_peer_remove(node->engine, peer); /* -ENOENT: it came by a hello and went by itself */
	atomic_fetch_add(&world.tally.peer_changes, 1);
}

static int import(struct node *node, struct peer_link *link, const struct published *from)
{
	weft_remote in, out;
	int rc = weft_remote_import(node->engine, link->peer, from->in, from->in_bytes, &in);

	if (rc)
		return rc;
	rc = weft_remote_import(node->engine, link->peer, from->out, from->out_bytes, &out);
	if (rc) {
		weft_remote_close(node->engine, in);
		return rc;
	}
	if (link->in)
		weft_remote_close(node->engine, link->in);
	if (link->out)
		weft_remote_close(node->engine, link->out);
	link->in = in;
	link->out = out;
	link->generation = from->generation;
	link->version = from->version;
	link->down = false;
	return 0;
}

/* The other restarted, or its rails did while we could not hear it: the peer is replaced, or removed and added. */
static int follow(struct node *node, uint32_t other, const struct published *from)
{
	struct peer_link *link = &node->link[other];
	int rc = 0;

	if (link->peer && (link->generation != from->generation || link->down)) {
		bool replace = random_chance(&node->random, 50);

		if (replace)
			op_excuse(node, other);
		if (!replace || weft_peer_replace(node->engine, link->peer, from->address, from->address_bytes))
			drop_link(node, other);
		else
			link->revision = from->revision;
	}
	if (!link->peer) {
		rc = weft_peer_add(node->engine, from->address, from->address_bytes, NULL, &link->peer);
		link->revision = rc ? 0 : from->revision;
	}
	return rc ? rc : import(node, link, from);
}

static void mend(struct node *node, uint32_t other, uint64_t now)
{
	static _Thread_local struct published from;
	struct peer_link *link = &node->link[other];
	int rc;

	if (now < link->retry_ns)
		return;
	pthread_mutex_lock(&world.lock);
	from = world.node[other].published;
	pthread_mutex_unlock(&world.lock);
	if (!from.generation || (link->peer && link->generation == from.generation && link->version == from.version &&
				 !(link->down && link->revision != from.revision)))
		return;
	rc = follow(node, other, &from);
	if (world.verbose)
		fprintf(stderr, "%.3f n%u follows n%u: generation %u, revision %u: %d\n", (double)now / 1e9,
			node->index, other, from.generation, from.revision, rc);
	if (!rc)
		return;
	if (rc != -ESTALE && rc != -ENOENT && rc != -EHOSTDOWN && rc != -ENOMEM)
		fail(NULL, "node %u: making a link to node %u said %s", node->index, other, weft_strerror(rc));
	if (rc == -ENOENT || rc == -ESTALE)
		drop_link(node, other);
	link->retry_ns = now + 5 * WEFT_MILLISECOND;
}

void node_mend(struct node *node, uint64_t now)
{
	if (now - node->mended_ns < WEFT_MILLISECOND)
		return;
	node->mended_ns = now;
	for (uint32_t i = 0; i < world.nodes; i++)
		if (i != node->index)
			mend(node, i, now);
}

/* ---- what an application may do at any time ---- */

/* Closes replaced regions once our own operations have left them. */
static void close_old_regions(struct node *node)
{
	for (uint32_t i = 0; i < node->old_regions;) {
		int rc = weft_region_close(node->engine, node->old_region[i]);

		if (rc && rc != -EBUSY)
			fail(NULL, "weft_region_close said %s", weft_strerror(rc));
		if (rc)
			i++;
		else
			node->old_region[i] = node->old_region[--node->old_regions];
	}
}

/* Registers the same memory again; peers that use the old registration find it gone. */
static void change_region(struct node *node)
{
	bool in = random_chance(&node->random, 50);
	weft_region old = in ? node->in : node->out;
	int rc;

	if (node->old_regions == OLD_REGIONS)
		return;
	rc = register_region(node, in);
	if (rc) {
		if (!(world.faults & 1u << FAULT_REG))
			fail(NULL, "registering again said %s", weft_strerror(rc));
		return;
	}
	node->old_region[node->old_regions++] = old;
	if (world.faults & 1u << FAULT_REVOKE && random_chance(&node->random, 30) &&
	    (rc = weft_region_revoke(node->engine, old)) && rc != -EBUSY &&
	    !(rc == -ENOMEM && world.faults & 1u << FAULT_REG)) /* it then keeps its rights */
		fail(NULL, "weft_region_revoke said %s", weft_strerror(rc));
	node_publish_regions(node);
	atomic_fetch_add(&world.tally.region_changes, 1);
}

static void change_peer(struct node *node)
{
	uint32_t other = random_below(&node->random, world.nodes);

	if (other == node->index || !node->link[other].peer)
		return;
	if (random_chance(&node->random, 50)) {
		drop_link(node, other);
		node->link[other].retry_ns = now_ns() + random_below(&node->random, 100) * WEFT_MILLISECOND;
		return;
	}
	op_excuse(node, other);
	weft_peer_cancel(node->engine, node->link[other].peer);
}

void node_churn(struct node *node, uint64_t now)
{
	uint32_t dice = random_below(&node->random, 100);

	if (node->old_regions)
		close_old_regions(node);
	if (now < node->churn_ns)
		return;
	node->churn_ns = now + random_below(&node->random, 60) * WEFT_MILLISECOND;
	if (dice < 8 && world.faults & 1u << FAULT_REOPEN) {
		node_close(node, true);
		atomic_fetch_add(&world.tally.reopens, 1);
	} else if (dice < 40 && world.faults & 1u << FAULT_PEERS) {
		change_peer(node);
	} else if (dice < 70 && world.faults & 1u << FAULT_REGIONS) {
		change_region(node);
	}
}

/* Cancels operations without a deadline. */
static void cancel_old(struct node *node, uint64_t now)
{
	for (uint32_t i = 0; i < OPS; i++) {
		struct op *op = &node->op[i];

		if (!op->id || !op->active || !op->handle || op->deadline_ns != UINT64_MAX ||
		    now - op->submitted_ns < WEFT_SECOND)
			continue;
		pthread_mutex_lock(&world.lock);
		op->excused = true;
		op->deadline_ns = now; /* from here on it must end soon */
		op_note(op, "cancelled after a second", 0);
		pthread_mutex_unlock(&world.lock);
		weft_transfer_cancel(node->engine, op->handle);
	}
}

static void probe(struct node *node)
{
	if (node->active)
		return;
	for (uint32_t i = 0; i < world.nodes; i++)
		if (i != node->index && !node->link[i].probed)
			submit_probe(node, i);
}

/* Most calls must return at once; registering and closing regions wait for a turn of the worker. */
static void slow_step(const struct node *node, const char *what, uint64_t since_ns)
{
	uint64_t took = now_ns() - since_ns;

	if (took > 100 * WEFT_MILLISECOND && (world.verbose || getenv("TORTURE_ROUNDS")))
		fprintf(stderr, "%.3f n%u: %s took %.0f ms (waited %.0f ms for a CPU)\n", (double)now_ns() / 1e9,
			node->index, what, (double)took / 1e6, (double)watch_waited(since_ns) / 1e6);
}

void *node_loop(void *argument)
{
	struct node *node = argument;
	uint32_t phase;

	while ((phase = atomic_load(&world.phase)) != PHASE_STOP) {
		uint64_t now = now_ns();
		int happened;

		node_mend(node, now);
		slow_step(node, "mending links", now);
		happened = take_events(node);
		now = now_ns();
		send_replies(node, now);
		slow_step(node, "replying", now);
		if (phase == PHASE_RUN) {
			now = now_ns();
			submit_mail(node);
			for (uint32_t n = random_below(&node->random, 8); n; n--)
				happened += submit_random(node);
			slow_step(node, "submitting", now);
			node_churn(node, now_ns());
		} else if (phase == PHASE_PROBE) {
			probe(node);
		}
		if (!(node->next_op++ & 63))
			cancel_old(node, now);
		atomic_store(&node->in_phase, phase);
		if (!happened) {
			struct timespec nap = { .tv_nsec = 100000 };

			nanosleep(&nap, NULL);
		}
	}
	return NULL;
}
