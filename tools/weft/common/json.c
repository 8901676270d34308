/* A small JSON writer. */
#include "json.h"

#include <inttypes.h>
#include <math.h>

static void put_string(FILE *to, const char *text)
{
	fputc('"', to);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if (c == '"' || c == '\\')
			fprintf(to, "\\%c", c);
		else if (c < ' ')
			fprintf(to, "\\u%04x", c);
		else
			fputc(c, to);
	}
	fputc('"', to);
}

static void begin(struct cmd_json *json, const char *name)
{
	if (json->comma)
		fputs(", ", json->to);
	json->comma = true;
	if (name) {
		put_string(json->to, name);
		fputs(": ", json->to);
	}
}

void cmd_json_start(struct cmd_json *json, FILE *to)
{
	*json = (struct cmd_json){ .to = to };
}

void cmd_json_open(struct cmd_json *json, const char *name, char bracket)
{
	begin(json, name);
	fputc(bracket, json->to);
	json->comma = false;
}

void cmd_json_close(struct cmd_json *json, char bracket)
{
	fputc(bracket, json->to);
	json->comma = true;
}

void cmd_json_text(struct cmd_json *json, const char *name, const char *text)
{
	begin(json, name);
	put_string(json->to, text);
}

void cmd_json_number(struct cmd_json *json, const char *name, uint64_t number)
{
	begin(json, name);
	fprintf(json->to, "%" PRIu64, number);
}

void cmd_json_real(struct cmd_json *json, const char *name, double number, int digits)
{
	if (!isfinite(number)) {
		cmd_json_null(json, name); /* JSON has no word for it */
		return;
	}
	begin(json, name);
	fprintf(json->to, "%.*f", digits, number);
}

void cmd_json_bool(struct cmd_json *json, const char *name, bool value)
{
	begin(json, name);
	fputs(value ? "true" : "false", json->to);
}

void cmd_json_null(struct cmd_json *json, const char *name)
{
	begin(json, name);
	fputs("null", json->to);
}

void cmd_json_end(struct cmd_json *json)
{
	fputc('\n', json->to);
	json->comma = false;
}
