/*
 * The subcommands of the weft command, a folder each. main.c lists them in its table.
 *
 * Each takes its own argv (argv[0] is the subcommand's name) and returns the exit status: 0 done, 1 failed, 2
 * used wrongly.
 */
#ifndef WEFT_TOOLS_COMMANDS_H
#define WEFT_TOOLS_COMMANDS_H

enum { CMD_OK = 0, CMD_FAILED = 1, CMD_USAGE = 2 };

int weft_cmd_bench(int argc, char **argv);
int weft_cmd_info(int argc, char **argv);
int weft_cmd_topo(int argc, char **argv);
int weft_cmd_doctor(int argc, char **argv);
int weft_cmd_ladder(int argc, char **argv);
int weft_cmd_sim(int argc, char **argv);

#endif
