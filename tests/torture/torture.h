/*
 * The torture test: several engines on simulated NICs (or over tcp, shm) do random operations while faults come and go,
 * engines close and open again, and peers are removed, added and replaced. An oracle knows what each operation may end
 * as and owns every byte of memory that they touch.
 *
 * A node is one engine with its thread, which alone submits to it; a canceller thread cancels anything at any time. One
 * lock guards what nodes know of each other. The seed fixes every random choice, but not the timing of threads.
 */
#ifndef TORTURE_H
#define TORTURE_H

#include "support/util.h"
#include "support/watch.h"
#include "weft.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define NODES        8
#define OPS          512 /* size of an operation table: more than a node ever has in flight */
#define SLOT         UINT64_C(4096)
#define SLOTS        1024
#define ARENA        (SLOT * SLOTS)
#define RUN_SLOTS    64 /* largest range: 256 KiB */
#define WORD_SLOTS   8  /* the first of an arena that receives: words that notifications store */
#define RUNS         12
#define MOVES        64
#define SERIALS      (1u << 20) /* arrivals remembered */
#define PENDING      8192
#define MAIL         256
#define CALLS        256
#define IMMEDIATES   4096
#define BARRIERS     1024
#define STALE        64
#define OLD_REGIONS  8
#define NOTES        16
#define GHOSTS       2
#define STRANGERS    8                /* names under which the stranger may be known to an engine */
#define STRANGER_TAG UINT64_MAX       /* tag of everything it sends properly */
#define REPLY_TAG    (UINT64_MAX - 1) /* tag of replies with an op */
#define TRANSFERS    256              /* max_transfers of the engines */

enum kind { KIND_WRITE, KIND_PAGES, KIND_SCATTER, KIND_READ, KIND_SEND, KIND_CALL, KIND_BARRIER, KIND_EXPECT, KINDS };

/* Disturbances: first those that the simulator makes, then those that the application's own calls make. */
enum fault {
	FAULT_ERROR,
	FAULT_DROP,
	FAULT_DELAY,
	FAULT_DUP,
	FAULT_EAGAIN,
	FAULT_RNR,
	FAULT_DOWN,
	FAULT_SLOW,
	FAULT_DEAD,
	FAULT_INTERNAL,
	FAULT_REG,
	FAULT_OVERRUN,
	FAULT_ANONYMOUS,
	FAULT_NEGATIVE,
	FAULT_REFUSE,
	FAULT_TWICE,
	FAULT_STALL,    /* registrations take long */
	FAULT_BLACKOUT, /* nothing arrives anywhere, so that every side takes its pieces back */
	FAULT_SIMULATED = FAULT_BLACKOUT,
	FAULT_CANCEL,
	FAULT_PEERS,
	FAULT_REGIONS,
	FAULT_REVOKE,
	FAULT_REOPEN,
	FAULT_GHOSTS,  /* peers that are gone stay added */
	FAULT_HOSTILE, /* a hostile stranger speaks raw libfabric */
	FAULTS
};
/* These must cost nobody an operation. */
#define HARMLESS (1u << FAULT_CANCEL | 1u << FAULT_GHOSTS | 1u << FAULT_HOSTILE)
extern const char *const fault_name[FAULTS];

#define LATE_NS (100 * WEFT_MILLISECOND) /* promised: an operation ends by its deadline and this */

enum phase { PHASE_RUN, PHASE_DRAIN, PHASE_PROBE, PHASE_STOP };

struct random {
	uint64_t state;
};

/* Slots of an arena that belong to one operation. */
struct run {
	uint8_t node;
	bool in; /* of the arena that receives; else of the one that is sent from */
	uint16_t first, count;
};

struct move {
	const uint8_t *from;
	uint8_t run; /* destination: a run of the operation */
	uint32_t offset, bytes;
};

struct note {
	uint64_t ns;
	const char *what;
	int64_t value;
};

struct op {
	uint64_t id; /* 0: free; serial << 16 | node << 12 | index */
	enum kind kind;
	uint32_t targets;      /* nodes, one bit each */
	uint32_t generation;   /* of the node's engine */
	uint32_t known[NODES]; /* the targets' generations as we knew them */
	weft_transfer handle;
	uint64_t submitted_ns, deadline_ns; /* UINT64_MAX: none */
	bool active;                        /* accepted or being submitted, and not ended */
	uint64_t absent_ns;                 /* its end is kept for us (WEFT_KEEP_END), and had not come then */
	_Atomic bool excused;               /* someone asked for its cancellation */
	enum weft_notify notify;
	uint32_t immediate, immediates;
	uint64_t *start_word, start_value; /* NULL: it starts at once */
	uint64_t end_value;                /* 0: no end word */
	uint64_t *cell, cell_before;       /* the word that its notification stores, at that node; NULL: none */
	uint32_t cell_node;
	uint32_t runs, moves, notes;
	struct run run[RUNS];
	struct move move[MOVES];
	struct note note[NOTES];
	uint64_t bytes; /* bytes that a done operation's event must report */
	uint64_t barrier;
};

struct arena {
	uint8_t *base;
	uint8_t
	    *made; /* where the engine has it: base, or what the engine allocated, of which base is a second mapping */
	uint8_t owned[SLOTS]; /* 0: free, holding guard; 1: an operation's; 2: may still be touched */
	uint8_t guard[SLOTS];
	uint64_t until_ns[SLOTS]; /* of state 2 */
};

/* What a node tells the others about itself. */
struct published {
	uint32_t generation, version; /* of the engine; of the regions */
	uint32_t revision;            /* of the address: it changes when a rail is reopened */
	size_t address_bytes, in_bytes, out_bytes;
	uint8_t address[16384], in[8192], out[8192];
};

struct peer_link {
	weft_peer peer;
	weft_remote in, out;
	uint32_t generation, version, revision;
	uint64_t retry_ns;
	bool down; /* it was reported down */
	_Atomic bool probed;
};

struct mail {
	enum kind kind; /* KIND_BARRIER: enter it; KIND_EXPECT: send counted writes */
	uint32_t from, generation, members, immediate, count, tries;
	uint64_t id;
};

struct pending {
	uint64_t id, since_ns, submitted_ns;
	enum kind kind;
};

struct owed {
	weft_peer peer;
	uint64_t call, id, due_ns;
};

struct node {
	uint32_t index;
	struct random random;
	pthread_t thread;
	pthread_rwlock_t alive; /* guards the canceller against close */
	weft_engine *engine;
	weft_queue *queue[3]; /* the engine's listener first */
	weft_region in, out;
	uint32_t generation;
	uint64_t empty_ns[3];  /* when each queue was last found empty: later events were not there then */
	struct arena arena[2]; /* [in] */
	struct published published;
	struct peer_link link[NODES];
	struct op op[OPS];
	uint32_t active, next_op;
	struct mail mail[MAIL];
	uint32_t mail_head, mail_tail;
	struct pending pending[PENDING];
	uint32_t pendings;
	struct owed owed[CALLS];
	uint32_t oweds;
	uint32_t replies;       /* accepted with an op, and not ended */
	uint64_t replies_by_ns; /* the last deadline of those */
	uint64_t kept[OPS];     /* ids of operations whose ends are kept, some perhaps refused */
	uint32_t kepts;
	uint64_t sequence[NODES];   /* last sent to */
	uint64_t heard[NODES][256]; /* last heard of, by the sender's generation */
	weft_transfer stale[STALE]; /* handles that ended in this generation */
	uint32_t stales;
	uint32_t next_immediate, dirty_immediates;
	uint64_t checked_ns, mended_ns, churn_ns;
	weft_region old_region[OLD_REGIONS];
	uint32_t old_regions;
	uint8_t *image; /* what memory should look like */
	_Atomic uint32_t in_phase;
};

struct counted {
	uint32_t immediate, expected, submitted, done;
	uint64_t done_ns;
	bool failed;
};

struct barrier {
	uint64_t id;
	uint32_t members, entered;
};

struct tally {
	uint64_t submitted[KINDS], refused, full, done[KINDS], ended[KINDS][160];
	uint64_t late_max_ns, unquiet;
	_Atomic uint64_t attacks, notifies, messages, calls, reopens, peer_changes, region_changes, cancels, peer_down,
	    rail_down;
	_Atomic uint64_t faults[FAULTS];
	_Atomic uint64_t waits, end_words, cells;
	uint64_t bytes;
};

/* The address of an engine that is gone. */
struct ghost {
	size_t bytes;
	uint8_t address[16384];
};

struct world {
	uint64_t seed, ops, limit_ns;
	uint64_t slack_ns; /* how much later an end may still come, for machines shared with others */
	uint32_t nodes, nics, rounds;
	const char *provider, *keys;
	bool simulated, verbose;
	bool quiesces;   /* what has ended is always quiescent: simulated NICs whose writes are not emulated */
	bool local;      /* local rails beside the NICs */
	bool mapped;     /* engines allocate the memory, so that peers map it */
	bool manual;     /* the nodes' threads drive the engines */
	uint32_t faults; /* one bit each */
	struct node node[NODES];
	struct ghost ghost[GHOSTS];
	uint32_t ghosts;
	pthread_mutex_t lock;
	pthread_rwlock_t
	    memory; /* who fills an arena reads it; who puts other memory under one writes it. Before lock */
	uint8_t arrived[SERIALS]; /* by serial: one bit per node it arrived at */
	struct counted counted[NODES][IMMEDIATES];
	struct barrier barrier[BARRIERS];
	uint64_t serial, barriers;
	struct tally tally;
	_Atomic uint32_t phase;
	_Atomic uint64_t submitted;
};
extern struct world world;

/* util.c */
void nap_ms(uint32_t ms); /* pacing: how long faults last, how often the world is checked */
uint32_t random_below(struct random *random, uint32_t below);
bool random_chance(struct random *random, uint32_t percent);
void list_threads(void); /* to stderr: what each is doing */

/* oracle.c */
void fail(const struct op *op, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
void op_note(struct op *op, const char *what, int64_t value);
struct op *op_take(struct node *node, enum kind kind, uint32_t targets); /* NULL: none free. Takes the lock */
bool op_run(struct op *op, uint32_t at, bool in, uint64_t bytes);        /* takes slots; false: none */
uint8_t *run_base(const struct run *run);
void op_fill(const struct op *op, uint32_t run, uint64_t bytes, uint64_t seed); /* what it sends */
void op_move(struct op *op, uint32_t run, uint64_t offset, const void *from, uint64_t bytes);
void op_accepted(struct node *node, struct op *op, int rc, weft_transfer handle);
/* `absent_ns`: its end was not yet in the queue then. */
void op_ended(struct node *node, const struct weft_event *event, uint64_t absent_ns);
void op_dropped(struct node *node, struct op *op); /* its engine closed */
void op_excuse(struct node *node, uint32_t target);
void arrived(struct node *node, uint64_t id, const char *what);
bool machine_stood_still(uint64_t now); /* just now, for too long for live peers to be heard */
void check_overdue(struct node *node, uint64_t now);
void check_arenas(void);

/* node.c */
void name_host(
    const char *name); /* what the simulator calls the next one who looks for NICs; under `opening` or alone */
const char *simulated_provider(void);
int node_open(struct node *node);
void ghosts_make(void);
void node_close(struct node *node, bool restart);
void node_publish_regions(struct node *node);
void node_publish_address(struct node *node);
void node_mend(struct node *node, uint64_t now);
void node_churn(struct node *node, uint64_t now);
void *node_loop(void *node);

/* submit.c */
bool submit_random(struct node *node);
void submit_mail(struct node *node);
bool submit_probe(struct node *node, uint32_t target);
void post_mail(uint32_t to, const struct mail *mail);

/* word.c */
void words_start(void);
void words_stop(void);
void word_start(struct node *node, struct op *op, struct weft_op *to);  /* a start word and an end word, perhaps */
void word_notify(struct node *node, struct op *op, struct weft_op *to); /* a word at a receiver, perhaps */
bool word_kept_it(const struct op *op);                                 /* its start word has not come yet */
/* The following under the lock. */
void word_refused(struct node *node, struct op *op);
void word_arrived(const struct node *node, struct op *op); /* its notification, at that node */
void word_ended(struct node *node, struct op *op, int status);
void word_dropped(struct node *node, struct op *op); /* its engine has closed */

/* event.c */
int take_events(struct node *node);
void send_replies(struct node *node, uint64_t now);

/* fault.c */
int faults_open(char *path, size_t bytes);
void faults_start(void);
void faults_stop(void);
void faults_clear(void);
bool faults_run(void);

/* stranger.c */
void stranger_open(void); /* before all others */
void *stranger(void *unused);
void stranger_close(void);
#endif
