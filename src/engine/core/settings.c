/* The settings of an engine: read from the configuration when it opens, and shown as a configuration. On application threads. */
#include "engine/core/settings.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/peer/channel_in.h"

#include <errno.h>
#include <string.h>

#define CLOSE_NS   (5 * WF_S)
#define CONTROL_NS (60 * WF_S)

static uint64_t or_default(uint64_t value, uint64_t fallback)
{
	return value ? value : fallback;
}

/* What is wrong with the settings; NULL: nothing. */
static const char *settings_fault(const struct wf_settings *settings)
{
	if (settings->max_transfers >= 1 << 20)
		return "max_transfers must be below 1048576";
	if (settings->frames > 1 << 16 || settings->frames < 8)
		return "message_frames must be 8 to 65536";
	if (settings->window_frames < 4)
		return "peer_window must have room for four frames of 8 KiB";
	if (settings->peer_limit_ns < settings->heartbeat_ns)
		return "peer_limit_ns must not be below heartbeat_ns";
	/* A message must fit the window whole, or it could never be sent. */
	if (wf_frames_of(settings->max_message) > settings->window_frames)
		return "max_message must fit peer_window, headers included";
	return NULL;
}

static const char *local_fault(const struct weft_config *config)
{
	if (!(config->flags & WEFT_NO_LOCAL))
		return NULL;
	if (config->flags & WEFT_WITH_LOCAL)
		return "WEFT_WITH_LOCAL and WEFT_NO_LOCAL exclude each other";
	return config->provider && !strcmp(config->provider, "local")
		   ? "the provider 'local' and WEFT_NO_LOCAL exclude each other"
		   : NULL;
}

int wf_settings_read(const struct weft_config *config, const struct wf_log *log, struct wf_settings *settings)
{
	const char *fault;

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
	settings->close_ns = or_default(config->close_limit_ns, CLOSE_NS);
	if (settings->window_frames > WF_WINDOW_FRAMES)
		settings->window_frames = WF_WINDOW_FRAMES;
	if (settings->flags & ~(WEFT_MANUAL_PROGRESS | WEFT_REFUSE_UNKNOWN | WEFT_WITH_LOCAL | WEFT_NO_LOCAL)) {
		wf_log(log, WEFT_LOG_ERROR, "config.flags has bits that this library (%s) does not know", WEFT_VERSION);
		return -EOPNOTSUPP;
	}
	fault = local_fault(config);
	if (!fault)
		fault = settings_fault(settings);
	if (fault) {
		wf_log(log, WEFT_LOG_ERROR, "config: %s", fault);
		return -EINVAL;
	}
	settings->credit_step = UINT64_C(1) << (63 - __builtin_clzll(settings->window_frames / 4));
	return 0;
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
	ret_config->close_limit_ns = settings->close_ns;
}
