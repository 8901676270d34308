/*
 * Opening and closing an engine: settings, NICs, groups and their workers, pools, handle tables. Called
 * through api.c on application threads; the control requests at the end run on the workers.
 */
#include "engine/engine.h"
#include "base/hot.h"
#include "base/time.h"
#include "engine/peer.h"
#include "engine/region.h"
#include "engine/transfer.h"
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

#define INBOUND_POOL	2048
#define INBOUND_BYTES	512 /* header and data of a message that came in; larger ones are allocated */
#define CLOSE_LIMIT_NS	(5 * WF_S)
#define OWED_LIMIT_NS	(200 * WF_MS)
#define CONTROL_LIMIT_S 60

static uint64_t or_default(uint64_t value, uint64_t fallback)
{
	return value ? value : fallback;
}

static int read_settings(const struct weft_config *config, struct wf_settings *settings)
{
	settings->flags = config->flags;
	settings->max_transfers = (uint32_t)or_default(config->max_transfers, 1024);
	settings->frames = (uint32_t)or_default(config->message_frames, 64);
	settings->max_message = or_default(config->max_message, 4 << 20);
	settings->window_frames = or_default(config->peer_window, 8 << 20) / WF_FRAME_BYTES;
	settings->piece_bytes = config->piece_bytes;
	settings->timeout_ns = or_default(config->timeout_ns, 30 * WF_S);
	settings->heartbeat_ns = or_default(config->heartbeat_ns, 500 * WF_MS);
	settings->peer_limit_ns = or_default(config->peer_limit_ns, 3 * WF_S);
	settings->rail_limit_ns = or_default(config->rail_limit_ns, 1 * WF_S);
	if (settings->window_frames > WF_WINDOW_FRAMES)
		settings->window_frames = WF_WINDOW_FRAMES;
	if (settings->max_transfers >= 1 << 20 || settings->frames > 1 << 16 || settings->frames < 8 ||
	    (settings->flags & ~(WEFT_MANUAL_PROGRESS | WEFT_REFUSE_UNKNOWN)) ||
	    settings->window_frames < 4 || settings->peer_limit_ns < settings->heartbeat_ns)
		return -EINVAL;
	settings->credit_step = UINT64_C(1) << (63 - __builtin_clzll(settings->window_frames / 4));
	/* A message must fit the window whole, or it could never be sent. */
	if (wf_frames_of(settings->max_message) > settings->window_frames)
		return -EINVAL;
	return 0;
}

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
	/* A begin and a stop for every transfer, and what workers tell each other. */
	return (uint64_t)engine->settings.max_transfers * 4 +
	       (uint64_t)engine->settings.frames * engine->rails + 1024;
}

static int make_group(struct weft_engine *engine, uint32_t g)
{
	struct wf_group *group = &engine->group[g];
	int error = wf_group_init(group, engine, g, wf_layout_rails(&engine->layout, g, &engine->nics));

	for (uint32_t place = 0; !error && place < group->seats; place++) {
		struct wf_seat *seat = &group->seat[place];

		seat->index = wf_layout_rail(&engine->layout, g, place);
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
		error = wf_worker_open(&engine->group[g].worker, &wf_group_ops, &engine->group[g],
				       inbox_room(engine), wf_layout_core(&engine->layout, g), threads);
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
	size_t transfer = sizeof(struct wf_transfer) + engine->groups * sizeof(struct wf_part);
	int error = wf_pool_init(&engine->transfers, engine->settings.max_transfers, transfer);

	for (uint32_t i = 0; !error && i < engine->transfers.count; i++) {
		struct wf_transfer *slot = wf_pool_at(&engine->transfers, i);

		slot->engine = engine;
		slot->id = i + 1;
		/* Generations start elsewhere in every engine, so that one's numbers mean nothing to another. */
		atomic_store(&slot->state, (engine->incarnation & 0x3fffffff) << 32 | WF_STOP_DONE);
	}
	if (!error)
		error = wf_pool_init(&engine->inbounds, INBOUND_POOL, INBOUND_BYTES);
	return error;
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
		wf_log(&engine->log, WEFT_LOG_ERROR,
		       "%u NICs are more than an engine takes (%d): set max_rails", engine->nics.count,
		       WF_MAX_RAILS);
		return -EMLINK;
	}
	engine->rails = engine->nics.count;
	snprintf(engine->provider, sizeof(engine->provider), "%s", engine->nics.nic[0].provider);
	return wf_layout_make(config, &engine->nics, &engine->log, &engine->layout);
}

static int keep_config(const struct weft_config *config, struct weft_engine *engine)
{
	const char **texts[] = { &engine->config.provider, &engine->config.rails, &engine->config.avoid,
				 &engine->config.topology, &engine->config.groups };
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
}

void wf_engine_config(const struct weft_engine *engine, struct weft_config *ret_config)
{
	const struct wf_settings *settings = &engine->settings;

	*ret_config = engine->config;
	ret_config->size = sizeof(*ret_config);
	ret_config->provider = engine->provider;
	ret_config->max_rails = engine->rails;
	ret_config->max_workers = wf_engine_is_manual(engine) ? 0 : engine->groups;
	ret_config->max_transfers = settings->max_transfers;
	ret_config->message_frames = settings->frames;
	ret_config->max_message = settings->max_message;
	ret_config->peer_window = settings->window_frames * WF_FRAME_BYTES;
	ret_config->timeout_ns = settings->timeout_ns;
	ret_config->heartbeat_ns = settings->heartbeat_ns;
	ret_config->peer_limit_ns = settings->peer_limit_ns;
	ret_config->rail_limit_ns = settings->rail_limit_ns;
}

int wf_engine_open(const struct weft_config *config, struct weft_engine **ret_engine)
{
	struct weft_engine *engine = calloc(1, sizeof(*engine));
	weft_queue *queue;
	int error;

	if (!engine)
		return -ENOMEM;
	engine->log = (struct wf_log){ config->log, config->log_context };
	engine->incarnation = make_incarnation();
	engine->pid = getpid();
	atomic_store(&engine->epochs, (uint32_t)engine->incarnation & 0xffff);
	pthread_mutex_init(&engine->lock, NULL);
	pthread_mutex_init(&engine->directory_lock, NULL);
	wf_list_init(&engine->queues);
	wf_handles_init(&engine->peers, wf_peer_release);
	wf_handles_init(&engine->regions, wf_region_release);
	wf_handles_init(&engine->remotes, wf_remote_release);
	engine->address = calloc(1, sizeof(*engine->address));
	error = engine->address ? keep_config(config, engine) : -ENOMEM;
	if (!error)
		error = read_settings(config, &engine->settings);
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
	uint64_t limit = wf_deadline(wf_now_ns(), CLOSE_LIMIT_NS);
	bool left = true;

	if (!engine->group || engine->group[engine->groups - 1].worker.wake_fd < 0)
		return; /* never ran */
	pay_debts(engine);
	for (uint32_t i = 0; i < engine->transfers.count; i++) {
		struct wf_transfer *transfer = wf_pool_at(&engine->transfers, i);
		uint64_t state = atomic_load(&transfer->state);

		if (!(uint32_t)state)
			wf_submit_cancel(engine, state >> 32 << 32 | (i + 1));
	}
	while (left && wf_now_ns() < limit) {
		left = false;
		for (uint32_t i = 0; i < engine->transfers.count && !left; i++) {
			struct wf_transfer *transfer = wf_pool_at(&engine->transfers, i);

			left = atomic_load(&transfer->holds) &&
			       (uint32_t)atomic_load(&transfer->state) != WF_STOP_DONE;
		}
		if (left || wf_engine_is_manual(engine))
			go_on(engine);
	}
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

int wf_engine_close(struct weft_engine *engine)
{
	atomic_store(&engine->closing, 1);
	drain(engine);
	for (struct wf_link *link = engine->queues.next; link != &engine->queues; link = link->next)
		wf_queue_shut(wf_container(link, weft_queue, link));
	/* All stop before any is taken apart: until then they may still tell each other things. */
	for (uint32_t g = 0; engine->group && g < engine->groups; g++)
		wf_worker_stop(&engine->group[g].worker);
	/* From here on this is the only thread. */
	for (uint32_t g = 0; engine->group && g < engine->groups; g++)
		wf_group_discard_notes(&engine->group[g]);
	for (uint32_t g = 0; engine->group && g < engine->groups; g++)
		wf_worker_close(&engine->group[g].worker);
	free_queues(engine);
	wf_handles_purge(&engine->remotes, NULL);
	wf_handles_purge(&engine->regions, NULL);
	wf_handles_purge(&engine->peers, drop_inbound);
	tdestroy(engine->directory, leave_alone);
	for (uint32_t g = 0; engine->group && g < engine->groups; g++)
		wf_group_free(&engine->group[g]);
	wf_counters_close(engine);
	for (uint32_t i = 0; engine->transfers.base && i < engine->transfers.count; i++)
		wf_transfer_free_copies(wf_pool_at(&engine->transfers, i));
	wf_pool_destroy(&engine->transfers);
	wf_pool_destroy(&engine->inbounds);
	wf_handles_destroy(&engine->peers);
	wf_handles_destroy(&engine->regions);
	wf_handles_destroy(&engine->remotes);
	wf_layout_free(&engine->layout);
	wf_nics_free(&engine->nics);
	pthread_mutex_destroy(&engine->lock);
	pthread_mutex_destroy(&engine->directory_lock);
	free_config(&engine->config);
	free(engine->group);
	free(engine->seat);
	free(engine->address);
	free(engine);
	return 0;
}

int wf_engine_address(struct weft_engine *engine, void *blob, size_t *bytes)
{
	int error;

	pthread_mutex_lock(&engine->lock);
	error = wf_blob_pack_address(engine->address, blob, bytes);
	pthread_mutex_unlock(&engine->lock);
	return error;
}

int wf_engine_rail_address(struct weft_engine *engine, struct wf_seat *seat)
{
	struct wf_wire_rail rail = { .address_bytes = WF_MAX_RAIL_ADDRESS,
				     .link_bps = seat->nic->link_bps,
				     .serial = seat->generation };
	int error = wf_rail_address(seat->rail, rail.address, &rail.address_bytes);

	if (error)
		return error;
	memcpy(rail.provider, seat->nic->provider, sizeof(rail.provider));
	memcpy(rail.name, seat->nic->name, sizeof(rail.name));
	rail.address_format = seat->limits.address_format;
	pthread_mutex_lock(&engine->lock);
	engine->address->rail[seat->index] = rail;
	engine->address->revision++;
	pthread_mutex_unlock(&engine->lock);
	return 0;
}

void wf_engine_notice(struct weft_engine *engine, enum weft_event_type type, int status, weft_peer peer,
		      const struct weft_error *error)
{
	struct wf_notice notice = { .type = type, .status = status, .peer = peer, .error = error };

	wf_queue_notice(atomic_load(&engine->listener), &notice);
}

void wf_engine_post(struct wf_group *to, enum wf_note what, void *object, uint64_t value)
{
	while (!wf_group_post(to, what, object, value))
		if (!wf_engine_is_manual(to->engine) || wf_engine_progress(to->engine) < 0)
			sched_yield();
}

/* ---- control requests: cold work that must run where the rails live ---- */

struct control {
	int (*fn)(struct wf_group *group, void *context);
	void *context;
	_Atomic int status;
	_Atomic uint32_t left;	     /* groups that have not run it */
	_Atomic uint32_t references; /* groups and the caller */
	sem_t done;
};

static void control_put(struct control *control, uint32_t count)
{
	if (atomic_fetch_sub(&control->references, count) != count)
		return;
	sem_destroy(&control->done);
	free(control);
}

void wf_control_run(struct wf_group *group, void *object)
{
	struct control *control = object;
	int status = control->fn(group, control->context), none = 0;

	if (status)
		atomic_compare_exchange_strong(&control->status, &none, status);
	if (atomic_fetch_sub(&control->left, 1) == 1)
		sem_post(&control->done);
	control_put(control, 1);
}

static int control_here(struct weft_engine *engine, int (*fn)(struct wf_group *group, void *context),
			void *context)
{
	int status = 0;

	for (uint32_t g = 0; g < engine->groups; g++) {
		struct wf_worker *worker = &engine->group[g].worker;
		int error;

		/* Another thread's turn is short. */
		while (wf_worker_claim(worker, WF_AT_WORK))
			sched_yield();
		error = fn(&engine->group[g], context);
		wf_worker_leave(worker);
		status = status ? status : error;
	}
	return status;
}

int wf_engine_control(struct weft_engine *engine, int (*fn)(struct wf_group *group, void *context),
		      void *context)
{
	struct control *control;
	struct timespec limit;
	int status = 0;

	if (wf_engine_is_manual(engine))
		return control_here(engine, fn, context);
	control = calloc(1, sizeof(*control));
	if (!control)
		return -ENOMEM;
	control->fn = fn;
	control->context = context;
	sem_init(&control->done, 0, 0);
	atomic_store(&control->left, engine->groups);
	atomic_store(&control->references, engine->groups + 1);
	for (uint32_t g = 0; g < engine->groups; g++)
		wf_engine_post(&engine->group[g], WF_NOTE_CONTROL, control, 0);
	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += CONTROL_LIMIT_S;
	/* Only a provider that hangs inside a call gets us past the limit; context then stays allocated for
	 * it. */
	while (sem_timedwait(&control->done, &limit))
		if (errno == ETIMEDOUT) {
			status = -ETIMEDOUT;
			break;
		}
	if (!status)
		status = atomic_load(&control->status);
	control_put(control, 1);
	return status;
}

static int do_nothing(struct wf_group *group, void *context)
{
	return 0;
}

int wf_engine_turn_each(struct weft_engine *engine)
{
	return wf_engine_control(engine, do_nothing, NULL);
}
