/*
 * Faults of the simulated NICs, which a thread of their own sets and clears through the control file; and the
 * canceller, which cancels operations of any node at any time, including ended ones.
 */
#include "torture.h"
#include "sim/control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *const fault_name[FAULTS] = { "error",  "drop",   "delay",    "dup",      "eagain",  "rnr",       "down",
					 "slow",   "dead",   "internal", "reg",      "overrun", "anonymous", "negative",
					 "refuse", "twice",  "stall",    "blackout", "cancel",  "peers",     "regions",
					 "revoke", "reopen", "ghosts",   "hostile" };

static struct sim_control *control;
static char control_path[64];
static pthread_t thread[3];
static _Atomic int running;

bool faults_run(void)
{
	return atomic_load(&running);
}

int faults_open(char *path, size_t bytes)
{
	int fd;

	snprintf(control_path, sizeof(control_path), "/tmp/torture-XXXXXX");
	fd = mkstemp(control_path);
	if (fd < 0)
		return -errno;
	close(fd);
	unlink(control_path); /* the first to open it creates it */
	snprintf(path, bytes, "%s", control_path);
	return sim_control_open(control_path, &control);
}

void faults_clear(void)
{
	if (control)
		sim_control_clear(control, -1);
}

static void write_rule(struct random *random, enum fault fault, char *rule, size_t bytes)
{
	static const char *const ops[] = { "op=write,", "op=read,", "op=send,", "" };
	static const char *const stalls[] = { "reg", "open", "close" };
	static const char *const blackouts[] = { "fault=down", "op=write,fault=drop", "op=read,fault=drop" };
	static const int statuses[] = { 1, 7, 9, 10, 13, 15 };
	uint32_t host = random_below(random, world.nodes), nic = random_below(random, world.nics), stalled;
	const char *op = ops[random_below(random, 4)];
	char who[64];
	int status = statuses[random_below(random, 6)];
	bool one_host = strstr(world.keys, "card=efa"); /* all engines of a process are, on modelled cards */

	/* A card gives back a send because the receiver is not ready, and never a read: libfabric 2.1 repeats that as a write. */
	if (one_host && status == 10)
		op = "op=send,";
	snprintf(who, sizeof(who), "host=n%u,nic=%u,", host, nic);
	if (one_host)
		snprintf(who, sizeof(who), "nic=%u,", nic);
	else if (random_chance(random, 30))
		snprintf(who, sizeof(who), "host=n%u,", host);
	switch (fault) {
	case FAULT_ERROR:
		snprintf(rule, bytes, "%s%sp=0.02,fault=error:%d", who, op, status);
		break;
	case FAULT_DROP:
		snprintf(rule, bytes, "%s%scount=%u,p=0.05,fault=drop", who, op, 1 + random_below(random, 3));
		break;
	case FAULT_DELAY:
		snprintf(rule, bytes, "%s%sp=0.05,fault=delay:%uus", who, op, 10 + random_below(random, 50000));
		break;
	case FAULT_DUP:
		snprintf(rule, bytes, "%sop=write,p=0.1,fault=dup", who);
		break;
	case FAULT_EAGAIN:
		snprintf(rule, bytes, "%s%sp=0.05,fault=eagain:%u", who, op, 1 + random_below(random, 200));
		break;
	case FAULT_RNR:
		snprintf(rule, bytes, "%sop=send,p=0.05,fault=rnr:%u", who, 1 + random_below(random, 10));
		break;
	case FAULT_DOWN:
		snprintf(rule, bytes, "%sfault=down", who);
		break;
	case FAULT_SLOW:
		snprintf(rule, bytes, "%sfault=slow:%u", who, 2 + random_below(random, 50));
		break;
	case FAULT_DEAD:
		snprintf(rule, bytes, "host=n%u,fault=dead", host);
		break;
	case FAULT_INTERNAL:
		snprintf(rule, bytes, "%scount=1,p=0.01,fault=internal", who);
		break;
	case FAULT_REG:
		snprintf(rule, bytes, "%sop=reg,count=%u,fault=reg:12", who, 1 + random_below(random, 3));
		break;
	case FAULT_ANONYMOUS:
		snprintf(rule, bytes, "%s%scount=%u,p=0.02,fault=anonymous:%d", who, op, 1 + random_below(random, 3),
			 status);
		break;
	case FAULT_NEGATIVE:
		snprintf(rule, bytes, "%s%sp=0.02,fault=negative:%d", who, op, status);
		break;
	case FAULT_REFUSE:
		snprintf(rule, bytes, "%s%scount=%u,p=0.05,fault=refuse:107", who, op, 1 + random_below(random, 5));
		break;
	case FAULT_TWICE:
		snprintf(rule, bytes, "%s%sp=0.02,fault=twice:%d", who, op, status);
		break;
	case FAULT_STALL: /* an endpoint that takes long to close keeps its pieces for as long */
		stalled = random_below(random, 3);
		snprintf(rule, bytes, "host=n%u,op=%s,count=%u,fault=stall:%ums", host, stalls[stalled],
			 1 + random_below(random, 4), 1 + random_below(random, stalled ? 50 : 1500));
		break;
	case FAULT_BLACKOUT:
		snprintf(rule, bytes, "%s", blackouts[random_below(random, 3)]);
		break;
	default:
		snprintf(rule, bytes, "%scount=1,p=0.02,fault=overrun", who);
		break;
	}
}

static void set_one(struct random *random)
{
	enum fault fault;
	char rule[256], error[256];
	int rc;

	do
		fault = (enum fault)random_below(random, FAULT_SIMULATED + 1);
	while (!(world.faults & 1u << fault));
	if (fault == FAULT_DEAD && !random_chance(random, 25))
		return;
	write_rule(random, fault, rule, sizeof(rule));
	rc = sim_control_set(control, rule, error, sizeof(error));
	if (rc < 0 && rc != -ENOSPC)
		fail(NULL, "fault %s: %s", rule, error);
	atomic_fetch_add(&world.tally.faults[fault], 1);
	if (world.verbose)
		fprintf(stderr, "%.3f fault %s\n", (double)now_ns() / 1e9, rule);
}

static void *disturb(void *unused)
{
	struct random random = { world.seed * 77 + 1 };

	while (atomic_load(&running)) {
		if (atomic_load(&world.phase) == PHASE_RUN) {
			for (uint32_t n = 1 + random_below(&random, 3); n; n--)
				set_one(&random);
			nap_ms(1 + random_below(&random, random_chance(&random, 4) ? 1500 : 60));
			sim_control_clear(control, -1);
		}
		nap_ms(random_below(&random, 20));
	}
	return NULL;
}

/* Cancels only handles of ended operations: an operation that now has the same slot must not notice. */
static void cancel_stale(struct node *node, struct random *random)
{
	weft_transfer handle = 0;
	int rc;

	pthread_mutex_lock(&world.lock);
	if (node->stales)
		handle = node->stale[random_below(random, node->stales < STALE ? node->stales : STALE)];
	pthread_mutex_unlock(&world.lock);
	if (!handle)
		return;
	rc = weft_transfer_cancel(node->engine, handle);
	if (rc != -ENOENT)
		fail(NULL, "node %u: cancelling %llx, which had ended, said %s", node->index,
		     (unsigned long long)handle, weft_strerror(rc));
}

static void cancel_one(struct node *node, struct random *random)
{
	weft_transfer handle = 0;
	struct op *op = NULL;
	int rc;

	pthread_mutex_lock(&world.lock);
	for (uint32_t i = random_below(random, OPS), n = 0; n < OPS && !op; i = (i + 1) % OPS, n++)
		if (node->op[i].id && node->op[i].active && node->op[i].handle)
			op = &node->op[i];
	if (op) {
		op->excused = true;
		handle = op->handle;
		op_note(op, "cancelled by the canceller", 0);
	}
	pthread_mutex_unlock(&world.lock);
	if (!op)
		return;
	rc = weft_transfer_cancel(node->engine, handle);
	if (rc && rc != -ENOENT)
		fail(NULL, "weft_transfer_cancel said %s", weft_strerror(rc));
	atomic_fetch_add(&world.tally.cancels, 1);
}

static void *cancel(void *unused)
{
	struct random random = { world.seed * 78 + 1 };

	while (atomic_load(&running)) {
		struct node *node = &world.node[random_below(&random, world.nodes)];
		struct timespec nap = { .tv_nsec = (long)random_below(&random, 3000000) };

		nanosleep(&nap, NULL);
		if (pthread_rwlock_tryrdlock(&node->alive))
			continue;
		/* Leaves probes alone: on slow links none would survive. */
		if (random_chance(&random, 50) || atomic_load(&world.phase) == PHASE_PROBE)
			cancel_stale(node, &random);
		else
			cancel_one(node, &random);
		pthread_rwlock_unlock(&node->alive);
	}
	return NULL;
}

void faults_start(void)
{
	atomic_store(&running, 1);
	if (control && world.faults & ((2u << FAULT_SIMULATED) - 1))
		pthread_create(&thread[0], NULL, disturb, NULL);
	if (world.faults & 1u << FAULT_CANCEL)
		pthread_create(&thread[1], NULL, cancel, NULL);
	if (world.faults & 1u << FAULT_HOSTILE)
		pthread_create(&thread[2], NULL, stranger, NULL);
}

void faults_stop(void)
{
	atomic_store(&running, 0);
	for (int i = 0; i < 3; i++)
		if (thread[i])
			pthread_join(thread[i], NULL);
	if (control) {
		sim_control_close(control);
		unlink(control_path);
	}
}
