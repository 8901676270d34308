/* The weft command: finds the subcommand in a table and hands over. */
#include "commands.h"
#include "common/options.h"
#include "common/suggest.h"

#include <weft.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *description;
};

static const struct command commands[] = {
	{ "bench", weft_cmd_bench, "measure and verify: this host with itself, or two hosts" },
	{ "info", weft_cmd_info, "NICs, rails, limits, versions and the engine's memory" },
	{ "topo", weft_cmd_topo, "which NICs, GPUs and cores belong together" },
	{ "doctor", weft_cmd_doctor, "find what keeps this host from running at line rate" },
	{ "ladder", weft_cmd_ladder, "what each idea of the guide brings, program by program" },
	{ "sim", weft_cmd_sim, "list simulated machines, and control their faults" },
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(FILE *to)
{
	fputs("Usage: weft COMMAND [OPTION]...\n"
	      "\n"
	      "Moves memory between machines over every NIC they have.\n"
	      "\n"
	      "Commands:\n",
	      to);
	for (int i = 0; i < COMMANDS; i++)
		fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].description);
	fputs("  help     help on a command\n"
	      "\n"
	      "Options:\n"
	      "  --help     this text\n"
	      "  --version  the version\n"
	      "\n"
	      "Examples:\n"
	      "  weft bench                            the best transport of this host\n"
	      "  weft bench --listen 7471              on one host, and on another:\n"
	      "  weft bench host-a:7471 --op read\n"
	      "  weft info --provider tcp --rails 4    an engine with four rails\n"
	      "  weft help bench\n"
	      "\n"
	      "See weft(1).\n",
	      to);
}

static const struct command *find_command(const char *name)
{
	for (int i = 0; i < COMMANDS; i++) {
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	}
	return NULL;
}

static int unknown_word(const char *kind, const char *word)
{
	struct cmd_suggest suggest;

	cmd_suggest_start(&suggest, word);
	if (word[0] == '-') {
		cmd_suggest_offer(&suggest, "--help");
		cmd_suggest_offer(&suggest, "--version");
	} else {
		for (int i = 0; i < COMMANDS; i++)
			cmd_suggest_offer(&suggest, commands[i].name);
		cmd_suggest_offer(&suggest, "help");
		if (strcmp(word, "version") == 0)
			suggest.best = "--version";
	}
	fprintf(stderr, "weft: there is no %s '%s'", kind, word);
	if (suggest.best)
		fprintf(stderr, "; did you mean '%s'?", suggest.best);
	fputs("\nTry 'weft --help'.\n", stderr);
	return CMD_USAGE;
}

static int too_many(const char *word)
{
	fprintf(stderr, "weft: '%s' is one argument too many\nTry 'weft --help'.\n", word);
	return CMD_USAGE;
}

static int run_help(int argc, char **argv)
{
	char help[] = "--help";
	if (argc > 2)
		return too_many(argv[2]);
	if (argc < 2 || strcmp(argv[1], "help") == 0) {
		print_help(stdout);
		return CMD_OK;
	}
	const struct command *command = find_command(argv[1]);
	if (!command)
		return unknown_word("command", argv[1]);
	return command->run(2, (char *[]){ argv[1], help, NULL });
}

/* Were 0, 1 or 2 closed, the next socket opened would take the number and get what is printed. Open the wrong
 * way round, so that what is printed still fails. */
static void hold_standard_streams(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
			return;
	}
}

/* What could not be printed was not said: a full disk or a closed descriptor is a failure. */
static int close_output(int status)
{
	bool failed = ferror(stdout);

	errno = 0;
	if (fclose(stdout) == 0 && !failed)
		return status;
	fprintf(stderr, "weft: standard output: %s\n", errno ? strerror(errno) : "not all could be written");
	return status == CMD_OK ? CMD_FAILED : status;
}

static int run(int argc, char **argv)
{
	if (argc < 2) {
		print_help(stderr);
		return CMD_USAGE;
	}
	const char *word = argv[1];
	if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
		return run_help(argc - 1, argv + 1);
	if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
		if (argc > 2)
			return too_many(argv[2]);
		printf("weft %s\n", weft_version());
		return CMD_OK;
	}
	if (strcmp(word, CMD_COMPLETE) == 0 && argc == 2) {
		for (int i = 0; i < COMMANDS; i++)
			printf("%s\t%s\n", commands[i].name, commands[i].description);
		puts("help\thelp on a command\n--help\tthe commands and examples\n--version\tthe version");
		return CMD_OK;
	}
	if (strcmp(word, "help") == 0)
		return run_help(argc - 1, argv + 1);
	if (word[0] == '-')
		return unknown_word("option", word);
	const struct command *command = find_command(word);
	if (!command)
		return unknown_word("command", word);
	return command->run(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
	hold_standard_streams();
	return close_output(run(argc, argv));
}
