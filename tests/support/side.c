/* An engine, its queue and the events that nobody has asked for yet. */
#include "support/side.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct transport transports[] = {
	{ "shm", "shm", NULL, 1 },
	{ "tcp", "tcp", "127.0.0.1", 1 },
	{ "tcp4", "tcp", "127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4", 4 },
	{ "local", "local", NULL, 1 },
	{ "mapped", "local", NULL, 1 }, /* the same, with memory that the engine allocates */
	{ "efa2", "efa", NULL, 2 },     /* libfabric's own provider on two modelled cards: the environment says so */
	{ "direct2", "efa-direct", NULL, 2 }, /* its other fabric, from 2.1 on */
	{ "verbs", "verbs", "rxe0", 1 },      /* Soft-RoCE devices in a VM: scripts/verbs */
	{ "verbs4", "verbs", "rxe0,rxe1,rxe2,rxe3", 4 },
};
const struct transport *transport = &transports[0];

/* From 2.x on EFA's provider has the card write; before, it emulates. */
static bool efa_card_writes(void)
{
	uint32_t (*version)(void) = (uint32_t(*)(void))dlsym(RTLD_DEFAULT, "fi_version");

	return !strncmp(transport->provider, "efa", 3) && version && version() >> 16 >= 2;
}

bool transport_is_one_sided(void)
{
	return !strcmp(transport->provider, "shm") || !strcmp(transport->provider, "local") ||
	       !strcmp(transport->provider, "verbs") || efa_card_writes();
}

#define ENGINES_MEMORY "TEST_ENGINES_MEMORY"

void *side_memory(weft_engine *engine, uint64_t bytes)
{
	void *memory;

	if (!getenv(ENGINES_MEMORY))
		return calloc(1, bytes);
	return weft_memory_alloc(engine, bytes, NULL, &memory) ? NULL : memory;
}

void side_memory_free(void *memory)
{
	if (!getenv(ENGINES_MEMORY))
		free(memory);
}

bool transport_choose(const char *name)
{
	for (size_t i = 0; i < sizeof(transports) / sizeof(transports[0]); i++)
		if (!strcmp(transports[i].name, name)) {
			transport = &transports[i];
			if (!strcmp(name, "mapped"))
				setenv(ENGINES_MEMORY, "1", 1); /* for its peers too */
			return true;
		}
	return false;
}

/* TEST_LOG=1: prints what the engines of a test and of its peers log. */
static void log_line(void *context, enum weft_log_level level, const char *text)
{
	fprintf(stderr, "%.3f [%d] %s\n", (double)now_ns() / 1e9, (int)getpid(), text);
}

struct weft_config side_config(void)
{
	struct weft_config config = WEFT_CONFIG_INIT;

	if (getenv("TEST_LOG"))
		config.log = log_line;
	config.provider = transport->provider;
	config.rails = transport->rails;
	config.heartbeat_ns = S;
	config.peer_limit_ns = 15 * S * slower();
	config.rail_limit_ns = 10 * S * slower();
	return config;
}

int side_open(struct side *side, const struct weft_config *config)
{
	int error;

	memset(side, 0, sizeof(*side));
	side->manual = config->flags & WEFT_MANUAL_PROGRESS;
	error = weft_engine_open(config, &side->engine, NULL, 0);
	if (error)
		return error;
	error = weft_queue_open(side->engine, WEFT_QUEUE_LISTEN, &side->queue);
	if (error)
		weft_engine_close(side->engine);
	return error;
}

int side_close(struct side *side)
{
	int error;

	for (uint32_t i = 0; i < side->count; i++)
		weft_event_release(&side->kept[i]);
	free(side->kept);
	error = weft_engine_close(side->engine);
	memset(side, 0, sizeof(*side));
	return error;
}

static void keep(struct side *side, const struct weft_event *event)
{
	if (side->count == side->room) {
		side->room = side->room ? 2 * side->room : 64;
		side->kept = realloc(side->kept, side->room * sizeof(*side->kept));
		if (!side->kept)
			abort();
	}
	side->kept[side->count++] = *event;
}

struct wanted {
	enum weft_event_type type;
	uint64_t tag;
	weft_peer peer; /* 0: any */
};

static bool matches(const struct weft_event *event, const struct wanted *wanted)
{
	return event->type == wanted->type && (wanted->tag == ANY_TAG || event->tag == wanted->tag) &&
	       (!wanted->peer || event->peer == wanted->peer);
}

static bool take_kept(struct side *side, const struct wanted *wanted, struct weft_event *ret)
{
	for (uint32_t i = 0; i < side->count; i++)
		if (matches(&side->kept[i], wanted)) {
			*ret = side->kept[i];
			memmove(&side->kept[i], &side->kept[i + 1], (side->count - i - 1) * sizeof(*side->kept));
			side->count--;
			return true;
		}
	return false;
}

static int wait_for(struct side *side, const struct wanted *wanted, uint64_t limit_ns, struct weft_event *ret)
{
	uint64_t deadline = now_ns() + limit_ns;

	for (;;) {
		struct weft_event event;
		uint64_t now;
		int got;

		if (take_kept(side, wanted, ret))
			return 0;
		now = now_ns();
		/* Without time it still looks: at what is there, however late we come. */
		got = weft_queue_wait(side->queue, &event, sizeof(event), 1, now < deadline ? deadline - now : 0);
		if (got < 0)
			return got;
		if (got)
			keep(side, &event);
		else if (now >= deadline)
			return -ETIME;
	}
}

int side_wait(struct side *side, enum weft_event_type type, uint64_t tag, uint64_t limit_ns, struct weft_event *ret)
{
	return wait_for(side, &(struct wanted){ .type = type, .tag = tag }, limit_ns, ret);
}

int side_wait_peer(struct side *side, enum weft_event_type type, weft_peer peer, uint64_t limit_ns,
		   struct weft_event *ret)
{
	return wait_for(side, &(struct wanted){ .type = type, .tag = ANY_TAG, .peer = peer }, limit_ns, ret);
}

void side_gather(struct side *side)
{
	struct weft_event event;

	while (weft_queue_poll(side->queue, &event, sizeof(event), 1) == 1)
		keep(side, &event);
}
