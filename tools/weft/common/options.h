/*
 * Long options from a table: what a subcommand takes, how it is read, and its help, in one place.
 *
 * Values are written through the table's pointers; what is not given keeps what was there, so the caller
 * fills in the defaults first. Errors are printed here, with the option's name and the nearest right one.
 */
#ifndef WEFT_TOOLS_OPTIONS_H
#define WEFT_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum cmd_option_type {
	CMD_FLAG,     /* bool */
	CMD_NUMBER,   /* uint64_t */
	CMD_SIZE,     /* uint64_t, bytes: 64K, 1M, 1GiB, 4096 */
	CMD_DURATION, /* uint64_t, nanoseconds: 500ms, 2s, 1.5s; a bare number is seconds */
	CMD_STRING,   /* const char * */
	CMD_STRINGS,  /* struct cmd_strings: one more each time it is given */
	CMD_CHOICE,   /* int: the place in choices */
};

enum { CMD_STRINGS_MAX = 8 };
struct cmd_strings {
	const char *text[CMD_STRINGS_MAX];
	uint32_t count;
};

struct cmd_option {
	const char *name; /* without the dashes */
	enum cmd_option_type type;
	void *value;
	const char *argument;       /* what the help calls it; NULL for flags */
	const char *help;           /* NULL: not shown, for what only weft itself passes */
	uint64_t min, max;          /* numbers, sizes, durations; max 0: no limit */
	const char *const *choices; /* of CMD_CHOICE; for others what completion offers */
	bool *given;                /* set when the option was there; may be NULL */
	bool optional;              /* the argument may be left out */
};

struct cmd_usage {
	const char *command;  /* "weft bench" */
	const char *synopsis; /* "[OPTION]... [HOST[:PORT]]" */
	const char *about;
	const char *examples;
	const char *more;         /* "See weft-bench(1)." */
	const char *const *words; /* operands that completion offers; NULL: none */
};

/* 0; CMD_OPTIONS_HELP when help was asked for and printed; -1 when an error was printed. What is not an
 * option goes to operands, at most max_operands of them. */
enum { CMD_OPTIONS_HELP = 1 };
#define CMD_COMPLETE "--complete"
int cmd_options_parse(const struct cmd_usage *usage, const struct cmd_option *options, int argc, char **argv,
		      const char **operands, int max_operands);
/* "--complete", for completions/: a line per option, "--name<TAB>argument<TAB>choices<TAB>help", and per word. */
void cmd_options_list(const struct cmd_usage *usage, const struct cmd_option *options, FILE *to);
void cmd_options_help(const struct cmd_usage *usage, const struct cmd_option *options, FILE *to);

/* 0, or a negative errno: -EINVAL for junk, -ERANGE for what does not fit. */
int cmd_parse_number(const char *text, uint64_t *ret_value);
int cmd_parse_size(const char *text, uint64_t *ret_bytes);
int cmd_parse_duration(const char *text, uint64_t *ret_ns);

/* For people: "64 KiB", "1.50 GiB"; "500 ms", "2 s". Returns text. */
char *cmd_format_size(uint64_t bytes, char *text, size_t room);
char *cmd_format_duration(uint64_t ns, char *text, size_t room);
/* Measured, so to three digits: "850 ns", "1.23 us", "45.6 ms"; "213", "8.01 thousand", "1.23 million". */
char *cmd_format_latency(uint64_t ns, char *text, size_t room);
char *cmd_format_count(double count, char *text, size_t room);

#endif
