/*
 * What a struct weft_config asks for, checked and with its defaults; and what is in effect, for weft_engine_config().
 */
#ifndef WF_ENGINE_SETTINGS_H
#define WF_ENGINE_SETTINGS_H

#include "base/log.h"
#include "weft.h"

struct weft_engine;

struct wf_settings {
	uint32_t flags, max_transfers, frames, max_strangers;
	uint64_t max_message, window_frames, piece_bytes;
	/* frames read that are news to their sender: a quarter of the window or less, a power of two */
	uint64_t credit_step;
	uint64_t timeout_ns, heartbeat_ns, peer_limit_ns, rail_limit_ns;
	uint64_t control_ns,
	    close_ns; /* how long a worker may hang in a call before a request, and closing, give it up */
};

int wf_settings_read(const struct weft_config *config, const struct wf_log *log, struct wf_settings *settings);
void wf_engine_config(const struct weft_engine *engine, struct weft_config *ret_config);
#endif
