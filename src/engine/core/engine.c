/*
 * Opening and closing an engine: settings, NICs, groups and their workers, pools, handle tables. Called
 * through api.c on application threads.
 */
#include "engine/core/engine.h"
#include "base/hot.h"
#include "base/time.h"
#include "engine/peer/directory.h"
#include "engine/peer/peer.h"
#include "engine/core/region.h"
#include "engine/core/remote.h"
#include "engine/core/rooms.h"
#include "engine/core/settings.h"
#include "engine/ops/expect.h"
#include "engine/ops/submit.h"
#include "engine/ops/transfer.h"
#include "engine/ops/wait.h"
#include "wire/blob.h"

#include <errno.h>
#include <sched.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define INBOUND_POOL  2048
#define INBOUND_BYTES 512 /* header and data of a message that came in */
#define INFRAME_POOL  64  /* of those that fill a frame; larger ones are allocated */
#define STOP_LEAST_NS (200 * WF_MS)
#define OWED_LIMIT_NS (200 * WF_MS)

/* Unlike any other engine ever opened, anywhere: the second it was opened in and 32 random bits. */
static uint64_t make_incarnation(void)
{
	uint32_t noise = 0;
	uint64_t incarnation;

	if (getrandom(&noise, sizeof(noise), 0) != sizeof(noise))
		noise = (uint32_t)(wf_now_ns() * UINT64_C(0x9e3779b97f4a7c15) >> 32);
	incarnation = (uint64_t)time(NULL) << 32 | noise;
	return incarnation ? incarnation : 1;
}

static uint64_t inbox_room(const struct weft_engine *engine)
{
	/* A begin and a stop for every transfer and answer, and what workers tell each other. */
	return (uint64_t)engine->settings.max_transfers * 8 + 2 * (uint64_t)wf_answers_share(engine) +
	       (uint64_t)engine->settings.frames * engine->rails + 1024;
}

static int make_group(struct weft_engine *engine, uint32_t g)
{
	struct wf_group *group = &engine->group[g];
	uint32_t nics = engine->rails - engine->locals, own = wf_layout_rails(&engine->layout, g, nics);
	int error = wf_group_init(group, engine, g, own + (engine->locals ? 1 : 0));

	for (uint32_t place = 0; !error && place < group->seats; place++) {
		struct wf_seat *seat = &group->seat[place];

		seat->index = place < own ? wf_layout_rail(&engine->layout, g, place) : nics + g;
		seat->nic = &engine->nics.nic[seat->index];
		engine->seat[seat->index] = seat;
	}
	return error;
}

static int open_groups(struct weft_engine *engine)
{
	uint32_t count = engine->groups;
	bool threads = !wf_engine_is_manual(engine);
	int error = 0;

	engine->group = aligned_alloc(64, count * sizeof(struct wf_group));
	engine->seat = calloc(engine->rails, sizeof(*engine->seat));
	if (!engine->group || !engine->seat)
		return -ENOMEM;
	memset(engine->group, 0, count * sizeof(struct wf_group));
	for (uint32_t g = 0; g < count; g++)
		engine->group[g].worker.wake_fd = -1;
	for (uint32_t g = 0; g < count && !error; g++)
		error = make_group(engine, g);
	for (uint32_t g = 0; g < count && !error; g++)
		error = wf_worker_open(&engine->group[g].worker, &wf_group_ops, &engine->group[g], inbox_room(engine),
				       wf_layout_core(&engine->layout, g), threads);
	engine->largest_piece = UINT64_C(1) << 30;
	engine->rma_ranges = WF_RMA_RANGES;
	engine->empty_immediates = true;
	for (uint32_t i = 0; i < engine->rails && !error; i++) {
		const struct wf_rail_limits *limits = &engine->seat[i]->limits;

		if (limits->max_bytes < engine->largest_piece)
			engine->largest_piece = limits->max_bytes;
		engine->empty_immediates &= limits->empty_immediate;
		if (limits->rma_ranges < engine->rma_ranges)
			engine->rma_ranges = limits->rma_ranges;
	}
	return error;
}

static int open_pools(struct weft_engine *engine)
{
	int error = wf_transfers_open(engine);

	if (!error)
		error = wf_pool_init(&engine->inbounds, INBOUND_POOL, INBOUND_BYTES);
	if (!error)
		error = wf_pool_init(&engine->inframes, INFRAME_POOL, sizeof(struct wf_inbound) + WF_FRAME_PAYLOAD);
	return error;
}

/* Every group has one, so that every worker can copy. An engine does without them where the host has none. */
static int join_local(struct weft_engine *engine)
{
	uint32_t groups = wf_layout_groups(&engine->layout), before = engine->nics.count;
	int error = 0;

	if (!wf_nics_want_local(&engine->config) || engine->nics.nic[0].local)
		return 0;
	if (before + groups <= WF_MAX_RAILS)
		error = wf_nics_add_local(&engine->nics, groups, &engine->log);
	else
		wf_log(&engine->log, WEFT_LOG_WARN,
		       "peers of this host are reached over NICs: with %u of those there is no place for a local rail "
		       "per group",
		       before);
	engine->locals = engine->nics.count - before;
	return error == -ENOSYS ? 0 : error;
}

static int find_nics(const struct weft_config *config, struct weft_engine *engine)
{
	char text[256];
	int error = wf_nics_find(config, true, &engine->nics, text, sizeof(text));

	if (error) {
		wf_log(&engine->log, WEFT_LOG_ERROR, "%s", text);
		return error;
	}
	if (engine->nics.count > WF_MAX_RAILS) {
		wf_log(&engine->log, WEFT_LOG_ERROR, "%u NICs are more than an engine takes (%d): set max_rails",
		       engine->nics.count, WF_MAX_RAILS);
		return -EMLINK;
	}
	if (config->ports && (error = wf_nics_set_ports(&engine->nics, config->ports, &engine->log)))
		return error;
	snprintf(engine->provider, sizeof(engine->provider), "%s", engine->nics.nic[0].provider);
	error = wf_layout_make(config, &engine->nics, &engine->log, &engine->layout);
	if (!error)
		error = join_local(engine);
	for (uint32_t i = 0; !error && i < engine->nics.count; i++) {
		engine->nics.nic[i].allocations = &engine->allocations;
		engine->nics.nic[i].devices = engine->devices;
	}
	engine->rails = engine->nics.count;
	return error;
}

static int keep_config(const struct weft_config *config, struct weft_engine *engine)
{
	const char **texts[] = { &engine->config.provider, &engine->config.rails,  &engine->config.avoid,
				 &engine->config.topology, &engine->config.groups, &engine->config.ports };
	const int count = sizeof(texts) / sizeof(texts[0]);

	engine->config = *config;
	for (int i = 0; i < count; i++)
		if (*texts[i] && !(*texts[i] = strdup(*texts[i]))) {
			for (int j = i; j < count; j++)
				*texts[j] = NULL;
			return -ENOMEM;
		}
	return 0;
}

static void free_config(struct weft_config *config)
{
	free((void *)(uintptr_t)config->provider);
	free((void *)(uintptr_t)config->rails);
	free((void *)(uintptr_t)config->avoid);
	free((void *)(uintptr_t)config->topology);
	free((void *)(uintptr_t)config->groups);
	free((void *)(uintptr_t)config->ports);
}

int wf_engine_open(const struct weft_config *config, struct weft_engine **ret_engine, struct weft_error *ret_error)
{
	struct weft_engine *engine = calloc(1, sizeof(*engine));
	weft_queue *queue;
	int error;

	if (!engine)
		return -ENOMEM;
	atomic_store(&engine->holders, 1);
	engine->log = (struct wf_log){ config->log, config->log_context, &engine->first_error };
	engine->incarnation = make_incarnation();
	engine->pid = getpid();
	atomic_store(&engine->epochs, (uint32_t)engine->incarnation & 0xffff);
	pthread_mutex_init(&engine->lock, NULL);
	pthread_mutex_init(&engine->directory_lock, NULL);
	pthread_mutex_init(&engine->name_lock, NULL);
	wf_allocations_open(&engine->allocations);
	wf_list_init(&engine->queues);
	wf_list_init(&engine->withdrawals);
	wf_handles_init(&engine->peers, wf_peer_release);
	wf_handles_init(&engine->regions, wf_region_release);
	wf_handles_init(&engine->remotes, wf_remote_release);
	engine->address = calloc(1, sizeof(*engine->address));
	engine->devices = wf_devices_make(&engine->log);
	error = engine->address && engine->devices ? keep_config(config, engine) : -ENOMEM;
	if (!error)
		error = wf_settings_read(config, &engine->log, &engine->settings);
	if (!error)
		error = find_nics(config, engine);
	if (!error) {
		engine->address->incarnation = engine->incarnation;
		engine->address->count = engine->rails;
		engine->groups = wf_layout_groups(&engine->layout);
		error = open_pools(engine);
	}
	if (!error)
		error = wf_counters_open(engine);
	if (!error && !(error = wf_queue_init(engine, &queue))) {
		wf_list_append(&engine->queues, &queue->link);
		atomic_store(&engine->listener, queue);
		error = open_groups(engine);
	}
	if (error) {
		/* Acquire: pairs with the thread that logged it. */
		if (atomic_load_explicit(&engine->first_error.state, memory_order_acquire) == 2)
			snprintf(ret_error->text, sizeof(ret_error->text), "%s", engine->first_error.text);
		wf_engine_close(engine);
		return error;
	}
	*ret_engine = engine;
	return 0;
}

WF_HOT int wf_engine_progress(struct weft_engine *engine)
{
	int happened = 0;

	for (uint32_t g = 0; g < engine->groups; g++) {
		int turn = wf_worker_turn(&engine->group[g].worker);

		if (turn < 0)
			return turn;
		happened += turn;
	}
	return happened;
}

static void go_on(struct weft_engine *engine)
{
	if (wf_engine_is_manual(engine))
		wf_engine_progress(engine);
	else
		sched_yield();
}

/* Nobody tells the application when a reply or a verdict has arrived, so it cannot wait for that before it
 * closes. */
static void pay_debts(struct weft_engine *engine)
{
	uint64_t limit = wf_now_ns() + OWED_LIMIT_NS;

	while (atomic_load(&engine->owed) && wf_now_ns() < limit)
		go_on(engine);
}

/* Everything that was accepted ends before anything is taken apart. */
static void drain(struct weft_engine *engine)
{
	uint64_t limit = wf_deadline(wf_now_ns(), engine->settings.close_ns);
	bool left = true;

	if (!engine->group || engine->group[engine->groups - 1].worker.wake_fd < 0)
		return; /* never ran */
	pay_debts(engine);
	for (uint32_t i = 0; i < wf_transfer_slots(engine); i++) {
		struct wf_transfer *transfer = wf_transfer_at(engine, i);
		uint64_t state = atomic_load(&transfer->state);

		if (!(uint32_t)state)
			wf_submit_cancel(engine, state >> 32 << 32 | (i + 1));
	}
	while (left && wf_now_ns() < limit) {
		left = false;
		for (uint32_t i = 0; i < wf_transfer_slots(engine) && !left; i++) {
			struct wf_transfer *transfer = wf_transfer_at(engine, i);

			left = atomic_load(&transfer->holds) && (uint32_t)atomic_load(&transfer->state) != WF_STOP_DONE;
		}
		if (left || wf_engine_is_manual(engine))
			go_on(engine);
	}
	if (left)
		wf_log(&engine->log, WEFT_LOG_WARN,
		       "closing: operations have not ended in time; a worker hangs or gets no CPU");
}

static void drop_inbound(void *peer)
{
	wf_channel_drop_inbound(peer); /* half messages */
}

static void free_queues(struct weft_engine *engine)
{
	while (!wf_list_empty(&engine->queues)) {
		weft_queue *queue = wf_container(engine->queues.next, weft_queue, link);

		wf_list_remove(&queue->link);
		wf_queue_free(queue);
	}
}

/* The directory's nodes go; the peers in it are gone already. */
static void leave_alone(void *peer)
{
}

/* On the last thread that has anything to do with it. */
static void free_engine(struct weft_engine *engine)
{
	for (uint32_t g = 0; engine->group && g < engine->groups; g++)
		wf_group_discard_notes(&engine->group[g]);
	for (uint32_t g = 0; engine->group && g < engine->groups; g++)
		wf_worker_close(&engine->group[g].worker);
	free_queues(engine);
	wf_wait_discard(engine);
	wf_handles_purge(&engine->remotes, NULL);
	wf_handles_purge(&engine->regions, NULL);
	wf_handles_purge(&engine->peers, drop_inbound);
	tdestroy(engine->directory, leave_alone);
	for (uint32_t g = 0; engine->group && g < engine->groups; g++)
		wf_group_free(&engine->group[g]);
	wf_rooms_close(engine);
	wf_counters_close(engine);
	wf_transfers_close(engine);
	wf_pool_destroy(&engine->inbounds);
	wf_pool_destroy(&engine->inframes);
	wf_handles_destroy(&engine->peers);
	wf_handles_destroy(&engine->regions);
	wf_handles_destroy(&engine->remotes);
	wf_layout_free(&engine->layout);
	wf_nics_free(&engine->nics);
	wf_allocations_close(&engine->allocations);
	wf_devices_close(engine->devices);
	pthread_mutex_destroy(&engine->lock);
	pthread_mutex_destroy(&engine->directory_lock);
	pthread_mutex_destroy(&engine->name_lock);
	free_config(&engine->config);
	free(engine->group);
	free(engine->seat);
	free(engine->address);
	free(engine);
}

/* The closer and each worker that it gave up on: the last one frees everything. */
void wf_engine_put(struct weft_engine *engine)
{
	if (atomic_fetch_sub(&engine->holders, 1) == 1)
		free_engine(engine);
}

void wf_engine_worker_gone(void *group)
{
	wf_engine_put(((struct wf_group *)group)->engine);
}

static bool shut_queues(struct weft_engine *engine)
{
	bool left = true;

	for (struct wf_link *link = engine->queues.next; link != &engine->queues; link = link->next)
		left &= wf_queue_shut(wf_container(link, weft_queue, link), engine->settings.close_ns);
	return left;
}

/* All stop before any is taken apart: until then they may still tell each other things. */
static int stop_workers(struct weft_engine *engine)
{
	uint64_t until = wf_deadline(wf_now_ns(), engine->settings.close_ns);
	int error = 0;

	for (uint32_t g = 0; engine->group && g < engine->groups; g++)
		wf_worker_ask_to_stop(&engine->group[g].worker);
	for (uint32_t g = 0; engine->group && g < engine->groups; g++) {
		uint64_t now = wf_now_ns();
		/* A moment for each, even when others have used up the time. */
		struct wf_worker_limits limits = { until > now + STOP_LEAST_NS ? until - now : STOP_LEAST_NS,
						   engine->settings.control_ns };

		atomic_fetch_add(&engine->holders, 1); /* the worker's, should it be given up: it puts it back */
		if (!wf_worker_stop(&engine->group[g].worker, &limits)) {
			atomic_fetch_sub(&engine->holders, 1);
			continue;
		}
		wf_log(&engine->log, WEFT_LOG_ERROR,
		       "closing: the worker of group %u hangs in a call of its provider's; what it uses stays until "
		       "that returns",
		       g);
		error = -ETIMEDOUT;
	}
	return error;
}

int wf_engine_close(struct weft_engine *engine)
{
	int error = 0, state;
	bool left;

	/* If we were cancelled half-way, nobody could finish this. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	atomic_store(&engine->closing, 1);
	drain(engine);
	left = shut_queues(engine);
	left &= wf_wait_shut(engine, engine->settings.close_ns);
	if (!left) {
		wf_log(&engine->log, WEFT_LOG_ERROR,
		       "closing: a thread stays in weft_queue_wait() or weft_transfer_wait(); its queue is left to it");
		atomic_fetch_add(&engine->holders, 1); /* for good */
		error = -ETIMEDOUT;
	}
	if (stop_workers(engine))
		error = -ETIMEDOUT;
	wf_words_end_left(engine); /* what no worker ended: a stream may wait for it, and nobody else will say so */
	wf_engine_put(engine);
	pthread_setcancelstate(state, NULL);
	return error;
}

int wf_engine_address(struct weft_engine *engine, void *blob, size_t *bytes, uint32_t *ret_revision)
{
	int error;

	pthread_mutex_lock(&engine->lock);
	if (ret_revision)
		*ret_revision = engine->address->revision;
	error = wf_blob_pack_address(engine->address, blob, bytes);
	pthread_mutex_unlock(&engine->lock);
	return error;
}

int wf_engine_rail_address(struct weft_engine *engine, struct wf_seat *seat)
{
	struct wf_wire_rail rail = { .address_bytes = WF_MAX_RAIL_ADDRESS,
				     .link_bps = seat->nic->link_bps,
				     .serial = seat->generation[WF_PUBLISHED] };
	int error = wf_rail_address(seat->rail, rail.address, &rail.address_bytes);

	if (error)
		return error;
	memcpy(rail.provider, seat->nic->provider, sizeof(rail.provider));
	memcpy(rail.name, seat->nic->name, sizeof(rail.name));
	rail.address_format = seat->limits.address_format;
	rail.looks = seat->limits.target_looks;
	pthread_mutex_lock(&engine->lock);
	engine->address->rail[seat->index] = rail;
	engine->address->revision++;
	pthread_mutex_unlock(&engine->lock);
	return 0;
}

void wf_engine_announce(struct weft_engine *engine, enum weft_event_type type, int status, weft_peer peer,
			const struct weft_error *error)
{
	struct wf_announcement what = { .type = type, .status = status, .peer = peer, .error = error };
	struct wf_peer *about = peer ? wf_handle_get(&engine->peers, peer) : NULL;

	if (about) {
		what.peer_user = atomic_load_explicit(&about->user, memory_order_relaxed);
		wf_handle_put(&engine->peers, peer);
	}
	wf_queue_announce(atomic_load(&engine->listener), &what);
}
