/*
 * weft bench, shared by its files. Two processes: the driver (bench_drive.c), which submits operations and
 * counts their ends, and the peer (bench_peer.c), whose memory they reach and which checks it. They talk over
 * a control connection (control.h); what goes over it is packed in bench_wire.c.
 *
 * Memory is in slots: a page, or one contiguous operation. An operation moves `pages` of them.
 */
#ifndef WEFT_TOOLS_BENCH_H
#define WEFT_TOOLS_BENCH_H

#include "control.h"
#include "bench_faults.h"
#include "histogram.h"
#include "json.h"
#include "pattern.h"
#include "slots.h"
#include "transport.h"

#include <signal.h>
#include <sys/types.h>

enum bench_op { BENCH_PAGES, BENCH_WRITE, BENCH_READ, BENCH_SCATTER, BENCH_SEND, BENCH_CALL, BENCH_OPS };
extern const char *const bench_op_names[BENCH_OPS + 1];

#define BENCH_MESSAGE_MAX (UINT64_C(64) << 20)

enum bench_format { BENCH_TABLE, BENCH_JSON, BENCH_CSV };

/* What both sides must agree on. */
struct bench_params {
	int op;
	bool verify, manual, simulated;
	bool checksum;	     /* the driver's alone: the engine checks at the receiver */
	uint64_t slot_bytes; /* a page, or all of a contiguous operation or message */
	uint64_t pages;	     /* slots an operation; 1 but for pages and scatter */
	uint64_t slots;	     /* of the peer's region and of the driver's */
	uint64_t depth, seed, timeout_ns, workers;
	uint64_t rail_limit_ns, peer_limit_ns; /* 0: the engine's default */
	char provider[32];		       /* what the driver opened */
	char rails[CMD_RAILS_TEXT];	       /* what the driver was told, for a peer on the same host */
	char avoid[CMD_RAILS_TEXT];
};

struct bench_options {
	struct bench_params params;
	struct cmd_transport_options transport;
	const char *host;   /* NULL: a peer of our own */
	const char *listen; /* NULL: do not */
	uint64_t peer_fd;   /* what weft itself passes to the peer it starts */
	bool is_peer, is_listener, once, quiet, json, csv, no_verify;
	bool size_given, page_size_given, pages_given, region_given, depth_given, duration_given, rails_given;
	uint64_t size, page_size, pages, region, duration_ns, warmup_ns, ops;
	const char *sim;
	bool sim_copies; /* the simulated NICs move every byte */
	struct cmd_strings kill, revive;
	struct bench_schedule schedule;
	struct bench_faults *faults; /* NULL: no link goes down on purpose */
	const char *not_verified;    /* why nothing is checked */
	enum bench_format format;
};

/* What the peer says once it is set up, and at the end. */
struct bench_ready {
	char provider[32];
	uint32_t rails;
	uint64_t line_bps; /* 0: not known */
};
struct bench_result {
	struct cmd_verdict verdict;
	uint64_t messages, message_bytes, cpu_ns;
	uint64_t disorder; /* messages that came out of turn */
};

enum { BENCH_RAILS_MAX = 256 };

struct bench_rail {
	char name[64];
	uint64_t bytes, errors, retries;
};

/* Everything the report is made of. */
struct bench_summary {
	const struct bench_options *options;
	char provider[32], why[160], peer[128];
	uint32_t rails, peer_rails;
	struct bench_rail rail[BENCH_RAILS_MAX];
	uint64_t line_bps; /* of the slower side; 0: not known */
	uint64_t ops, bytes, ns, cpu_ns, peer_cpu_ns;
	uint64_t failed_ops, rails_down, rails_up; /* the latter two: events */
	bool have_result;
	int interrupted; /* by which signal; 0: not */
	struct bench_result result;
	struct cmd_histogram latency;
	char error[1024]; /* "": it went well */
};

/* bench_options.c: 0, CMD_OPTIONS_HELP, or -1 with everything said. */
int bench_options_read(int argc, char **argv, struct bench_options *ret_options);
void bench_params_describe(const struct bench_params *params, char *text, size_t room);
/* Time limits that were asked for. */
void bench_limits_config(const struct bench_params *params, struct weft_config *config);
/* Room for the messages of this benchmark, when the engine's defaults are too small for them. */
void bench_message_config(const struct bench_params *params, struct weft_config *config);

bool bench_op_is_message(int op);
const char *bench_op_counted(int op); /* "messages", "calls"; NULL: of other operations the bytes count */
bool bench_op_uses_region(int op);
/* bench_wire.c: bytes used, or a negative errno; unpacking refuses what is out of bounds. */
int bench_params_pack(const struct bench_params *params, void *to, size_t room);
int bench_params_unpack(const void *from, size_t bytes, struct bench_params *ret_params);
int bench_ready_pack(const struct bench_ready *ready, void *to, size_t room);
int bench_ready_unpack(const void *from, size_t bytes, struct bench_ready *ret_ready);
int bench_result_pack(const struct bench_result *result, void *to, size_t room);
int bench_result_unpack(const void *from, size_t bytes, struct bench_result *ret_result);

/* bench_memory.c */
struct bench_memory {
	void *base;
	uint64_t bytes;
};
int bench_memory_open(struct bench_memory *memory, uint64_t bytes);
void bench_memory_close(struct bench_memory *memory);
uint64_t bench_memory_limit(void); /* what one side may sensibly take on this host */
uint64_t bench_cpu_ns(void);

/* A manual loop's turn: counts the idle ones and, after many, gives way to whoever shares the core. */
void bench_idle(uint32_t *idle, bool nothing);
#define BENCH_TURNS 16 /* of manual progress between two looks at the clock, which cost as much as a turn */

/* bench_peer.c: serves one driver until it says good-bye. 0, or a negative errno with a sentence in why. */
int bench_peer_serve(struct cmd_control *control, const struct bench_options *own, char *why, size_t room);
/* bench_listen.c: exit status. */
int bench_listen(const struct bench_options *options);

/* bench_drive.c: connects, runs, verifies. The summary says how it went. */
void bench_drive(const struct bench_options *options, struct bench_summary *ret_summary);

/* bench_phases.c: what --kill-rail shows; only with options->faults. */
void bench_phases_print(const struct bench_summary *summary);
void bench_phases_json(const struct bench_summary *summary, struct cmd_json *json);

/* bench_report.c: prints the end; the exit status. */
int bench_report(const struct bench_summary *summary);

/* bench_signal.c: Ctrl-C asks for an early end, twice ends at once. */
extern volatile sig_atomic_t bench_interrupted;
void bench_signals_catch(void);
void bench_signals_ignore(void); /* the peer: its driver decides */

#endif
