/*
 * weft bench, shared by its files. Two processes: the driver (drive.c), which submits operations and
 * counts their ends, and the peer (peer.c), whose memory they reach and which checks it. They talk over
 * a control connection (control.h); what goes over it is packed in wire.c.
 *
 * Memory is in slots: a page, or one contiguous operation. An operation moves `pages` of them.
 */
#ifndef WEFT_TOOLS_BENCH_H
#define WEFT_TOOLS_BENCH_H

#include "../common/control.h"
#include "faults.h"
#include "histogram.h"
#include "../common/json.h"
#include "pattern.h"
#include "slots.h"
#include "../common/transport.h"

#include <signal.h>
#include <sys/types.h>
#include <time.h>

enum bench_op { BENCH_PAGES, BENCH_WRITE, BENCH_READ, BENCH_SCATTER, BENCH_SEND, BENCH_CALL, BENCH_OPS };
extern const char *const bench_op_names[BENCH_OPS + 1];

#define BENCH_MESSAGE_MAX (UINT64_C(64) << 20)
#define BENCH_DEPTH_MAX   65536
#define BENCH_WHY         400 /* room for a sentence that says why */

enum bench_format { BENCH_TABLE, BENCH_JSON, BENCH_CSV };

/* What both sides must agree on. */
struct bench_params {
	int op;
	bool verify, manual, simulated;
	bool own_memory;  /* not of weft_memory_alloc() */
	bool checksum;    /* the engine checks at the receiver */
	bool reverse;     /* the peer drives */
	uint32_t card[2]; /* whose memory this side's is and the peer's: 1 + a card's number; 0: the CPU's */
	uint64_t duration_ns, warmup_ns, ops; /* for the side that drives */
	uint64_t slot_bytes;                  /* a page, or all of a contiguous operation or message */
	uint64_t pages;                       /* slots an operation; 1 but for pages and scatter */
	uint64_t slots;                       /* of the peer's region and of the driver's */
	uint64_t depth, seed, timeout_ns, workers;
	uint64_t rail_limit_ns, peer_limit_ns; /* 0: the engine's default */
	char provider[32];                     /* what the driver opened */
	char rails[CMD_RAILS_TEXT];            /* what the driver was told, for a peer on the same host */
	char avoid[CMD_RAILS_TEXT];
};

enum { BENCH_SIZES_MAX = 64 };
struct bench_sizes {
	uint64_t size[BENCH_SIZES_MAX];
	uint32_t count;
};

enum { BENCH_CLIENTS_MAX = 32 };
enum bench_direction { BENCH_OUT, BENCH_IN, BENCH_BOTH };
extern const char *const bench_direction_names[];

struct bench_options {
	struct bench_params params;
	struct cmd_transport_options transport;
	const char *host;   /* NULL: a peer of our own */
	const char *listen; /* NULL: do not */
	uint64_t peer_fd;   /* what weft itself passes to the peer it starts */
	bool is_peer, is_listener, once, quiet, json, csv, no_verify, each_rail;
	const char *histogram;      /* a file; NULL: none */
	int direction;              /* enum bench_direction */
	uint64_t clients;           /* processes of this side, each with an engine */
	uint64_t party_fd, party;   /* what weft itself passes to them: a connection, and a number that they share */
	bool is_client;             /* prints neither progress nor result */
	struct cmd_control *leader; /* of a client: says when to begin and takes the summary; NULL: none */
	const char *sizes_text;
	struct bench_sizes sizes; /* none: one run */
	int argc;                 /* the command line, for those who keep results */
	char **argv;
	bool size_given, page_size_given, pages_given, region_given, depth_given, duration_given;
	uint64_t size, page_size, pages, region, duration_ns, warmup_ns, ops;
	uint64_t in_flight; /* bytes that fill the NICs; 0: not known */
	const char *sim;
	bool sim_copies; /* the simulated NICs move every byte */
	int memory;      /* which: bench_memory_names */
	const char *mem; /* NULL: the CPU's on both sides */
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
	char host[64], weft[32], libfabric[16];
	uint32_t workers;
};
struct bench_result {
	struct cmd_verdict verdict;
	uint64_t messages, message_bytes, cpu_ns;
	uint64_t disorder; /* messages that came out of turn */
};

enum { BENCH_RAILS_MAX = 256, BENCH_NOTES_MAX = 8 };

struct bench_rail {
	char name[64];
	uint32_t group;
	uint64_t bytes, errors, retries;
	bool local;
	uint64_t mapped; /* of a local rail's bytes */
};

/* One of several, for the report. */
struct bench_client {
	enum bench_direction direction;
	uint64_t ops, bytes, ns, p50_ns, p99_ns;
	bool failed;
};

/* Everything the report is made of. */
struct bench_summary {
	const struct bench_options *options;
	char provider[32], why[160], peer[128];
	time_t began;
	char host[64], weft[32]; /* of the driving side, if that was the peer */
	char libfabric[16];
	uint32_t workers, groups;
	uint32_t rails;           /* listed below: of the side that drove, with both directions of both */
	uint64_t own_rails;       /* how many this side has */
	struct bench_ready ready; /* what the peer said of itself */
	struct bench_rail rail[BENCH_RAILS_MAX];
	char note[BENCH_NOTES_MAX][200]; /* what rails could not reach, and the like */
	uint32_t notes;
	uint64_t line_bps; /* of the slower side; 0: not known */
	uint64_t ops, bytes, ns, cpu_ns, peer_cpu_ns;
	uint64_t direct_bytes;                     /* of cards' memory, which the NICs read and wrote themselves */
	uint64_t failed_ops, rails_down, rails_up; /* the latter two: events */
	bool have_result;
	int interrupted; /* by which signal; 0: not */
	struct bench_result result;
	struct cmd_histogram latency;
	struct bench_client *clients; /* NULL: one */
	uint32_t client_count;
	char error[1024]; /* "": no error */
};

/* paths.c: what the rails could not reach of the peer goes to the summary's notes. */
void bench_paths_note(struct bench_summary *summary, weft_engine *engine, weft_peer peer);

/* options.c: 0, CMD_OPTIONS_HELP, or -1 with everything said. */
int bench_options_read(int argc, char **argv, struct bench_options *ret_options);
/* The same options for pages or operations of another size. 0, or -1 with everything said. */
int bench_options_resize(struct bench_options *options, uint64_t size);
/* Operations in flight, and the region, for that many bytes at least. As above. */
int bench_options_in_flight(struct bench_options *options, uint64_t bytes);
/* fit.c: the same for what the NICs here carry, where nobody said how many operations are in flight. */
int bench_fit(struct bench_options *options);
void bench_params_describe(const struct bench_params *params, char *text, size_t room);
/* Time limits that were asked for. */
void bench_limits_config(const struct bench_params *params, struct weft_config *config);
/* Room for the messages of this benchmark, when the engine's defaults are too small for them. */
void bench_message_config(const struct bench_params *params, struct weft_config *config);

bool bench_op_is_message(int op);
const char *bench_op_counted(int op); /* "messages", "calls"; NULL: of other operations the bytes count */
bool bench_op_uses_region(int op);
/* mem.c: --mem. 0, or -EINVAL with everything said. */
int bench_mem_read(const char *text, uint32_t ret_card[2]);
#define BENCH_MEM_TEXT  16
#define BENCH_CARDS_MAX 64
char *bench_mem_text(uint32_t card, char text[BENCH_MEM_TEXT]); /* "cuda:0", "host". Returns text */
/* What the NICs read and wrote of cards' memory themselves. */
uint64_t bench_mem_direct(weft_engine *engine);
/* How a side's card's memory travelled: "local", "staged", "direct"; NULL: it has none, or nothing moved. */
const char *bench_mem_path(const struct bench_summary *summary, int side);
/* wire.c: bytes used, or a negative errno; unpacking refuses what is out of bounds. */
int bench_params_pack(const struct bench_params *params, void *to, size_t room);
int bench_params_unpack(const void *from, size_t bytes, struct bench_params *ret_params);
int bench_ready_pack(const struct bench_ready *ready, void *to, size_t room);
int bench_ready_unpack(const void *from, size_t bytes, struct bench_ready *ret_ready);
int bench_result_pack(const struct bench_result *result, void *to, size_t room);
int bench_result_unpack(const void *from, size_t bytes, struct bench_result *ret_result);

/* memory.c. Number is what a side of params has in card. */
#define BENCH_PIECE (UINT64_C(4) << 20) /* a card's memory is filled and checked in such */
struct bench_memory {
	uint64_t bytes;
	bool own, asked; /* asked: by the other side, which may ask for anything */
	uint32_t number;
	void *base;
	struct cmd_card *card; /* NULL: the CPU's memory */
	uint8_t *piece;
};
/* What slots should hold, as cmd_pattern_verify() takes it. */
struct bench_expected {
	uint64_t slot_bytes, seed;
	const uint32_t *map;
	uint64_t first, count;
};
/* bytes, own, asked and number are filled in. A card's; or of the engine's own, which peers of this host can map and which goes with the
 * engine; or own, as an application has it. 0, or a negative errno with a sentence in why, as of the next two. */
int bench_memory_reach(struct bench_memory *memory, char *why,
		       size_t room); /* the card alone, before the engine opens */
int bench_memory_open(struct bench_memory *memory, weft_engine *engine, char *why, size_t room);
int bench_memory_fill(struct bench_memory *memory, uint64_t slot_bytes, uint64_t slots, uint64_t seed, char *why,
		      size_t room);
int bench_memory_verify(struct bench_memory *memory, const struct bench_expected *expected, struct cmd_verdict *verdict,
			char *why, size_t room);
void bench_memory_close(struct bench_memory *memory); /* after the engine */
uint64_t bench_memory_limit(void);                    /* what one side may sensibly take on this host */
uint64_t bench_cpu_ns(void);

/* A manual loop's turn: counts the idle ones and, after many, yields the core. */
void bench_idle(uint32_t *idle, bool nothing);
#define BENCH_TURNS 16 /* of manual progress between two looks at the clock, which cost as much as a turn */

/* peer.c: serves one driver until it says good-bye. 0, or a negative errno with a sentence in why.
 * greeted: its greeting was read already. */
int bench_peer_serve(struct cmd_control *control, const struct bench_options *own, bool greeted, char *why,
		     size_t room);
/* The same once the parameters are known, with the driver at the other end. */
int bench_peer_answer(struct cmd_control *control, const struct bench_options *own, const struct bench_params *params,
		      char *why, size_t room);
/* A greeting that was received: 0, or -EPROTO. The number is that of several who belong together, 0 for one
 * alone. */
int bench_hello_unpack(const struct cmd_control *control, uint64_t *ret_party);
/* What a peer opens for these parameters. The texts are those of own and params. */
int bench_peer_transport(const struct cmd_control *control, const struct bench_options *own,
			 const struct bench_params *params, struct cmd_transport_options *ret_options, char *why,
			 size_t room);
/* listen.c: exit status. */
int bench_listen(const struct bench_options *options);

/* drive.c: connects, runs, verifies. The summary says how it went. */
void bench_drive(const struct bench_options *options, struct bench_summary *ret_summary);
/* The same in the peer's process (--direction in), over the connection it has: the summary goes back over it.
 */
int bench_drive_back(struct cmd_control *control, const struct bench_options *own, const struct bench_params *params,
		     char *why, size_t room);
/* party.c: several clients, or both directions at once. Exit status. */
int bench_party(const struct bench_options *options);
/* A client: ready; returns when all are. 0, or a negative errno with a sentence in the leader's error. A peer that waits
 * meanwhile is told that we are alive; NULL: none does. */
int bench_party_wait(struct cmd_control *leader, struct cmd_control *peer);

/* summary.c: bytes used, or a negative errno. */
int bench_summary_pack(struct bench_summary *summary, void *to, size_t room);
int bench_summary_unpack(const void *from, size_t bytes, struct bench_summary *ret_summary);
int bench_summary_send(struct bench_summary *summary, struct cmd_control *control, uint64_t timeout_ns);

/* phases.c: what --kill-rail shows; only with options->faults. */
void bench_phases_print(const struct bench_summary *summary);
void bench_phases_json(const struct bench_summary *summary, struct cmd_json *json);

/* report.c: prints the end; the exit status. */
int bench_report(const struct bench_summary *summary);
/* sweep.c: --sizes, read (0 or -EINVAL) and run (exit status). */
int bench_sizes_read(const char *text, struct bench_sizes *ret_sizes);
int bench_sweep(const struct bench_options *options);
/* json.c: the latencies as CSV, a line per bucket. 0 or a negative errno. */
int bench_histogram_write(const struct bench_summary *summary, const char *path);

/* signal.c: Ctrl-C asks for an early end, twice ends at once. */
extern volatile sig_atomic_t bench_interrupted;
void bench_signals_catch(void);
void bench_signals_ignore(void); /* the peer: its driver decides */

#endif
