/*
 * The control file: faults that are set, watched and cleared while the simulated NICs run. The provider, the command
 * `weft sim` and tests map the same file; the first to open it creates it.
 *
 * One rule as text: [host=NAME,][nic=N|NIC,][peer=NAME,][op=OP,][after=N,][every=N,][count=N,][p=0.5,]fault=F
 * with F one of error:STATUS anonymous:STATUS negative:STATUS twice:STATUS drop delay:TIME dup eagain:N refuse:ERRNO
 * rnr:N down slow:FACTOR dead overrun reg:ERRNO internal stall:TIME
 */
#ifndef SIM_CONTROL_H
#define SIM_CONTROL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_RULES 64

enum sim_fault {
	SIM_FAULT_NONE,
	SIM_FAULT_ERROR,     /* complete with this EFA status */
	SIM_FAULT_DROP,      /* never complete, never land */
	SIM_FAULT_DELAY,     /* land and complete later, in ns */
	SIM_FAULT_DUP,       /* the immediate is delivered twice */
	SIM_FAULT_EAGAIN,    /* the next n posts say -FI_EAGAIN */
	SIM_FAULT_RNR,       /* the receiver is not ready for n tries */
	SIM_FAULT_DOWN,      /* link down while the rule is set */
	SIM_FAULT_SLOW,      /* link slower by this factor while the rule is set */
	SIM_FAULT_DEAD,      /* whole host silent while the rule is set */
	SIM_FAULT_OVERRUN,   /* the completion is lost, as if the CQ had overrun */
	SIM_FAULT_REG,       /* registration fails with this errno */
	SIM_FAULT_INTERNAL,  /* internal error: to the EQ, or abort() with none bound */
	SIM_FAULT_ANONYMOUS, /* complete with this EFA status, without naming the request */
	SIM_FAULT_NEGATIVE,  /* complete with this EFA status, and a negative error code */
	SIM_FAULT_REFUSE,    /* the post itself fails, with this errno */
	SIM_FAULT_TWICE,     /* complete with this EFA status, and again with the same */
	SIM_FAULT_STALL,     /* the call takes this long, in ns: the post, or what op=reg, open or close names */
};

/* What a rule applies to; SIM_OP_ANY matches posts only. SIM_OP_OPEN and SIM_OP_CLOSE are an endpoint's. */
enum sim_op_kind { SIM_OP_ANY, SIM_OP_SEND, SIM_OP_WRITE, SIM_OP_READ, SIM_OP_REG, SIM_OP_OPEN, SIM_OP_CLOSE };

struct sim_rule {
	_Atomic uint32_t active; /* pairs: released after the fields are written, acquired before they are read */
	uint32_t fault, op;
	int32_t nic; /* -1: any */
	char host[64], peer[64];
	uint64_t argument;
	uint64_t after, every, count;
	double probability; /* 0: not given */
	_Atomic uint64_t seen, fired;
};

struct sim_control {
	uint64_t magic;
	uint32_t version;
	_Atomic uint32_t active_rules; /* the only word that the hot path reads */
	_Atomic uint64_t seed;
	struct sim_rule rules[SIM_RULES];
};

/* Maps the file, and creates it if missing. Returns 0 or a negative errno; the map stays valid until close. Anything
 * else at that path (any other file, an empty one, a directory, a FIFO) is left unchanged: -EINVAL. */
int sim_control_open(const char *path, struct sim_control **ret_control);
/* Maps an existing file, read-only. */
int sim_control_view(const char *path, struct sim_control **ret_control);
/* Turns an empty file, which the caller has just created and has open for writing, into a control file. */
int sim_control_fill(int fd);
void sim_control_close(struct sim_control *control);

/* Returns the rule's number, or a negative errno with the reason in `error`. */
int sim_control_set(struct sim_control *control, const char *rule, char *error, size_t error_bytes);
int sim_control_clear(struct sim_control *control, int number); /* -1: all */
int sim_rule_parse(const char *text, struct sim_rule *ret_rule, char *error, size_t error_bytes);
void sim_rule_format(const struct sim_rule *rule, char *text, size_t bytes);

/* What asks: a request, a registration or the link itself. NULL or -1 where a field does not apply. */
struct sim_event {
	const char *host, *peer;
	int nic;
	enum sim_op_kind op;
};

/* Counted faults: returns the first matching rule that fires, with its argument in ret_argument. One count per call. */
enum sim_fault sim_control_fire(struct sim_control *control, const struct sim_event *event, unsigned mask,
				uint64_t *ret_argument);

/* Lasting faults (down, slow, dead) for one end of a path: not counted. */
enum sim_fault sim_control_stands(struct sim_control *control, const char *host, int nic, enum sim_fault which,
				  uint64_t *ret_argument);

#endif
