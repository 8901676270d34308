/* A small JSON writer: commas and escapes are its business, nesting is the caller's. */
#ifndef WEFT_TOOLS_JSON_H
#define WEFT_TOOLS_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct cmd_json {
	FILE *to;
	bool comma; /* something stands before the next member */
};

void cmd_json_start(struct cmd_json *json, FILE *to);
/* Each takes the member's name; NULL inside an array. */
void cmd_json_open(struct cmd_json *json, const char *name, char bracket); /* '{' or '[' */
void cmd_json_close(struct cmd_json *json, char bracket);                  /* '}' or ']' */
void cmd_json_text(struct cmd_json *json, const char *name, const char *text);
void cmd_json_number(struct cmd_json *json, const char *name, uint64_t number);
void cmd_json_real(struct cmd_json *json, const char *name, double number, int digits);
void cmd_json_bool(struct cmd_json *json, const char *name, bool value);
void cmd_json_null(struct cmd_json *json, const char *name);
void cmd_json_end(struct cmd_json *json); /* the line */

#endif
