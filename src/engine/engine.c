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

#define INBOUND_POOL  2048
#define INBOUND_BYTES 512 /* header and data of a message that came in */
#define INFRAME_POOL  64  /* of those that fill a frame; larger ones are allocated */
#define CLOSE_NS      (5 * WF_S)
#define STOP_LEAST_NS (200 * WF_MS)
#define OWED_LIMIT_NS (200 * WF_MS)
#define CONTROL_NS    (60 * WF_S)

static uint64_t or_default(uint64_t value, uint64_t fallback)
{
	return value ? value : fallback;
}

static int read_settings(const struct weft_config *config, struct wf_settings *settings)
{
	settings->flags = config->flags;
	settings->max_transfers = (uint32_t)or_default(config->max_transfers, 1024);
	settings->frames = (uint32_t)or_default(config->message_frames, 64);
	settings->max_strangers = (uint32_t)or_default(config->max_strangers, 1024);
	settings->max_message = or_default(config->max_message, 4 << 20);
	settings->window_frames = or_default(config->peer_window, 8 << 20) / WF_FRAME_BYTES;
	settings->piece_bytes = config->piece_bytes;
	settings->timeout_ns = or_default(config->timeout_ns, 30 * WF_S);
	settings->heartbeat_ns = or_default(config->heartbeat_ns, 500 * WF_MS);
	settings->peer_limit_ns = or_default(config->peer_limit_ns, 3 * WF_S);
	settings->rail_limit_ns = or_default(config->rail_limit_ns, 1 * WF_S);
	settings->control_ns = CONTROL_NS;
	settings->close_ns = CLOSE_NS;
	if (settings->window_frames > WF_WINDOW_FRAMES)
		settings->window_frames = WF_WINDOW_FRAMES;
	if (settings->max_transfers >= 1 << 20 || settings->frames > 1 << 16 || settings->frames < 8 ||
	    (settings->flags & ~(WEFT_MANUAL_PROGRESS | WEFT_REFUSE_UNKNOWN)) || settings->window_frames < 4 ||
	    settings->peer_limit_ns < settings->heartbeat_ns)
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
	/* A begin and a stop for every transfer and answer, and what workers tell each other. */
	return (uint64_t)engine->settings.max_transfers * 8 + 2 * (uint64_t)wf_answers_share(engine) +
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
	engine->rails = engine->nics.count;
	snprintf(engine->provider, sizeof(engine->provider), "%s", engine->nics.nic[0].provider);
	return wf_layout_make(config, &engine->nics, &engine->log, &engine->layout);
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
	ret_config->max_strangers = settings->max_strangers;
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
	atomic_store(&engine->holders, 1);
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
	wf_handles_purge(&engine->remotes, NULL);
	wf_handles_purge(&engine->regions, NULL);
	wf_handles_purge(&engine->peers, drop_inbound);
	tdestroy(engine->directory, leave_alone);
	for (uint32_t g = 0; engine->group && g < engine->groups; g++)
		wf_group_free(&engine->group[g]);
	wf_counters_close(engine);
	wf_transfers_close(engine);
	wf_pool_destroy(&engine->inbounds);
	wf_pool_destroy(&engine->inframes);
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

	/* What is to be undone when we are cancelled half-way nobody could do. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	atomic_store(&engine->closing, 1);
	drain(engine);
	if (!shut_queues(engine)) {
		wf_log(&engine->log, WEFT_LOG_ERROR,
		       "closing: a thread stays in weft_queue_wait(); its queue is left to it");
		atomic_fetch_add(&engine->holders, 1); /* for good */
		error = -ETIMEDOUT;
	}
	if (stop_workers(engine))
		error = -ETIMEDOUT;
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
	wf_control_fn fn;
	wf_control_late late;
	void *context;
	_Atomic int status;
	_Atomic uint32_t references; /* groups and the caller */
	pthread_mutex_t lock;
	pthread_cond_t done; /* by the monotonic clock: the wall's may be set meanwhile */
	uint32_t left;       /* groups that have not run it; under lock */
	bool nobody_waits;   /* under lock */
};

static void control_put(struct control *control, uint32_t count)
{
	if (atomic_fetch_sub(&control->references, count) != count)
		return;
	pthread_cond_destroy(&control->done);
	pthread_mutex_destroy(&control->lock);
	free(control);
}

void wf_control_run(struct wf_group *group, void *object)
{
	struct control *control = object;
	int status = control->fn(group, control->context), none = 0;
	bool late;

	if (status)
		atomic_compare_exchange_strong(&control->status, &none, status);
	pthread_mutex_lock(&control->lock);
	late = !--control->left && control->nobody_waits && control->late;
	if (!control->left)
		pthread_cond_signal(&control->done);
	pthread_mutex_unlock(&control->lock);
	if (late)
		control->late(group, control->context);
	control_put(control, 1);
}

void wf_control_discard(void *object)
{
	control_put(object, 1);
}

static int control_here(struct weft_engine *engine, wf_control_fn fn, void *context)
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

static struct control *make_control(wf_control_fn fn, wf_control_late late, void *context, uint32_t groups)
{
	struct control *control = calloc(1, sizeof(*control));
	pthread_condattr_t monotonic;

	if (!control)
		return NULL;
	control->fn = fn;
	control->late = late;
	control->context = context;
	control->left = groups;
	atomic_store(&control->references, groups + 1);
	pthread_mutex_init(&control->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&control->done, &monotonic);
	pthread_condattr_destroy(&monotonic);
	return control;
}

int wf_engine_control(struct weft_engine *engine, wf_control_fn fn, wf_control_late late, void *context)
{
	struct control *control;
	struct timespec limit;
	uint64_t at;
	int status = 0, state;

	if (wf_engine_is_manual(engine))
		return control_here(engine, fn, context);
	control = make_control(fn, late, context, engine->groups);
	if (!control)
		return -ENOMEM;
	for (uint32_t g = 0; g < engine->groups; g++)
		wf_engine_post(&engine->group[g], WF_NOTE_CONTROL, control, 0);
	at = wf_deadline(wf_now_ns(), engine->settings.control_ns);
	limit = (struct timespec){ .tv_sec = (time_t)(at / WF_S), .tv_nsec = (long)(at % WF_S) };
	/* Only a provider that hangs inside a call gets us past the limit; context is late's then, or stays. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_mutex_lock(&control->lock);
	while (control->left && !status)
		status = -pthread_cond_timedwait(&control->done, &control->lock, &limit);
	if (!control->left)
		status = 0;
	control->nobody_waits = status;
	pthread_mutex_unlock(&control->lock);
	pthread_setcancelstate(state, NULL);
	if (!status)
		status = atomic_load(&control->status);
	control_put(control, 1);
	return status;
}

int wf_engine_control_later(struct wf_group *group, wf_control_fn fn, wf_control_late late, void *context)
{
	struct weft_engine *engine = group->engine;
	struct control *control = make_control(fn, late, context, engine->groups);

	if (!control)
		return -ENOMEM;
	control->nobody_waits = true;
	for (uint32_t g = 0; g < engine->groups; g++)
		wf_group_tell(group, &engine->group[g], WF_NOTE_CONTROL, control, 0);
	control_put(control, 1);
	return 0;
}

static int do_nothing(struct wf_group *group, void *context)
{
	return 0;
}

int wf_engine_turn_each(struct weft_engine *engine)
{
	return wf_engine_control(engine, do_nothing, NULL, NULL);
}
