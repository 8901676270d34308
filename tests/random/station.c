/* A place for an engine: callers enter it, and it is closed and opened anew under them. */
#include "random.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool station_enter(struct station *station)
{
	/* Sequentially consistent with station_close(): we see that it leaves, or it sees us. */
	atomic_fetch_add(&station->users, 1);
	if (!atomic_load(&station->leaving))
		return true;
	atomic_fetch_sub(&station->users, 1);
	return false;
}

void station_leave(struct station *station)
{
	atomic_fetch_sub(&station->users, 1);
}

weft_queue *outlet_enter(struct outlet *outlet)
{
	int users = atomic_load(&outlet->users);
	weft_queue *queue;

	do {
		if (users < 0)
			return NULL;
	} while (!atomic_compare_exchange_weak(&outlet->users, &users, users + 1));
	queue = atomic_load(&outlet->queue);
	if (!queue)
		outlet_leave(outlet);
	return queue;
}

void outlet_leave(struct outlet *outlet)
{
	atomic_fetch_sub(&outlet->users, 1);
}

void release_kept(struct caller *caller, bool all)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < caller->kept_count; i++) {
		struct kept *kept = &caller->kept[i];

		if (all || atomic_load(&kept->station->leaving)) {
			weft_event_release(&kept->event);
			station_leave(kept->station);
		} else {
			caller->kept[left++] = *kept;
		}
	}
	caller->kept_count = left;
}

static void publish(struct station *station)
{
	struct blob *blob = &world.board->engine[station->number].address;
	uint8_t data[BLOB];
	size_t bytes = sizeof(data);

	if (weft_engine_address(station->engine, data, &bytes))
		fail("the address does not fit");
	pthread_mutex_lock(&world.board->lock);
	world.board->engine[station->number].old_address = *blob;
	blob->bytes = (uint32_t)bytes;
	memcpy(blob->data, data, bytes);
	pthread_mutex_unlock(&world.board->lock);
}

void station_open(struct station *station, struct caller *caller)
{
	struct weft_config config = world.config;
	weft_engine *engine;
	weft_queue *queue;
	int error;

	if (pick(caller, 6) == 0)
		config.flags |= WEFT_MANUAL_PROGRESS;
	if (pick(caller, 6) == 0)
		config.flags |= WEFT_REFUSE_UNKNOWN;
	config.max_transfers = 16 + (uint32_t)pick(caller, 100);
	enter_call(caller, "weft_engine_open");
	error = weft_engine_open(&config, &engine, NULL, 0);
	if (error)
		fail("weft_engine_open: %s", weft_strerror(error));
	if (weft_queue_open(engine, WEFT_QUEUE_LISTEN, &queue))
		fail("no queue");
	atomic_store(&station->outlet[0].queue, queue);
	if (weft_queue_open(engine, 0, &queue))
		fail("no second queue");
	leave_call(caller);
	atomic_store(&station->bed, queue);
	atomic_store(&station->engine, engine);
	publish(station);
	atomic_fetch_add(&station->life, 1);
	atomic_store(&station->leaving, 0);
}

/* By the kernel's word, so that weft_engine_close() surely meets a thread in weft_queue_wait(). With manual progress it does not
 * sleep: it has been in there for long enough. */
static bool sleeps(int thread)
{
	char path[64], text[256] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	file = fopen(path, "r");
	if (!file)
		return false;
	if (!fgets(text, sizeof(text), file))
		text[0] = 0;
	fclose(file);
	return strstr(text, ") S ") != NULL;
}

static void await_bedtime(struct station *station)
{
	struct weft_config config = { .size = sizeof(config) };
	uint64_t limit = now_ns() + WEFT_SECOND;

	weft_engine_config(station->engine, &config, sizeof(config));
	while (!atomic_load(&station->abed) && now_ns() < limit)
		sched_yield();
	if (config.flags & WEFT_MANUAL_PROGRESS)
		usleep(1000);
	else
		while (!sleeps(atomic_load(&station->abed)) && now_ns() < limit)
			sched_yield();
}

static void forget_all(struct station *station)
{
	for (int i = 0; i < QUEUES; i++)
		atomic_store(&station->outlet[i].queue, NULL);
	for (int i = 0; i < PEERS; i++)
		if (atomic_load(&station->peer[i]) % 2) /* others stay: stale handles for the next engine to refuse */
			atomic_store(&station->peer[i], 0);
	for (int i = 0; i < REGIONS; i++)
		atomic_store(&station->region[i], 0);
	for (int i = 0; i < REMOTES; i++)
		atomic_store(&station->remote[i], 0);
	for (int i = 0; i < ENDS; i++)
		atomic_store(&station->end[i], 0);
	tickets_void(station, NULL);
}

void station_close(struct station *station, struct caller *caller, bool for_good)
{
	uint64_t start;
	int none = 0, error;

	if (!atomic_compare_exchange_strong(&station->leaving, &none, 1))
		return;
	/* Others hold our events and we hold theirs: everyone releases the events of a leaving engine. */
	start = now_ns();
	while (atomic_load(&station->users)) {
		release_kept(caller, false);
		if (now_ns() - start > 60 * WEFT_SECOND)
			fail("somebody stays in engine %u", station->number);
		sched_yield();
	}
	await_bedtime(station);
	enter_call(caller, "weft_engine_close");
	error = weft_engine_close(station->engine);
	leave_call(caller);
	if (error)
		fail("weft_engine_close: %s", weft_strerror(error));
	caller->closed++;
	atomic_store(&station->engine, NULL);
	forget_all(station);
	while (atomic_load(&station->abed))
		sched_yield();
	if (for_good)
		atomic_store(&station->gone, 1);
	else
		station_open(station, caller);
}

/* weft_engine_close() finds a thread in weft_queue_wait(): it must return -ESHUTDOWN, and nothing else ever. */
void *station_sleeper(void *argument)
{
	struct station *station = argument;
	uint32_t slept = 0;

	while (!atomic_load(&station->gone)) {
		struct weft_event event;
		uint32_t life = atomic_load(&station->life);
		int got;

		if (life == slept) {
			usleep(1000);
			continue;
		}
		slept = life;
		atomic_store(&station->abed, gettid());
		got = weft_queue_wait(atomic_load(&station->bed), &event, sizeof(event), 1, WEFT_FOREVER);
		if (got != -ESHUTDOWN)
			fail("a wait on a queue where nothing arrives returned %d", got);
		atomic_store(&station->abed, 0);
	}
	return NULL;
}
