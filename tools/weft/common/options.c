/* Long options from a table, with errors that name the option and say what would be right. */
#include "options.h"
#include "suggest.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { HELP_COLUMN = 26, HELP_WIDTH = 80 };

static const struct cmd_option *find_option(const struct cmd_option *options, const char *name, size_t length)
{
	for (const struct cmd_option *option = options; option->name; option++) {
		if (strlen(option->name) == length && strncmp(option->name, name, length) == 0)
			return option;
	}
	return NULL;
}

static int unknown_option(const struct cmd_usage *usage, const struct cmd_option *options, const char *typed)
{
	char name[64];
	const char *start = typed + strspn(typed, "-");
	struct cmd_suggest suggest;

	snprintf(name, sizeof name, "%.*s", (int)strcspn(start, "="), start);
	cmd_suggest_start(&suggest, name);
	for (const struct cmd_option *option = options; option->name; option++) {
		if (option->help)
			cmd_suggest_offer(&suggest, option->name);
	}
	cmd_suggest_offer(&suggest, "help");
	fprintf(stderr, "%s: there is no option '%s'", usage->command, typed);
	if (suggest.best)
		fprintf(stderr, "; did you mean --%s?", suggest.best);
	fprintf(stderr, "\nTry '%s --help'.\n", usage->command);
	return -1;
}

static int bad_choice(const char *command, const struct cmd_option *option, const char *text)
{
	struct cmd_suggest suggest;
	cmd_suggest_start(&suggest, text);
	fprintf(stderr, "%s: --%s cannot be '%s': it is one of", command, option->name, text);
	for (int i = 0; option->choices[i]; i++) {
		cmd_suggest_offer(&suggest, option->choices[i]);
		fprintf(stderr, "%s %s", i ? "," : "", option->choices[i]);
	}
	if (suggest.best)
		fprintf(stderr, "; did you mean %s?", suggest.best);
	fputc('\n', stderr);
	return -1;
}

static void format_limit(const struct cmd_option *option, uint64_t value, char *text, size_t room)
{
	if (option->type == CMD_SIZE)
		cmd_format_size(value, text, room);
	else if (option->type == CMD_DURATION)
		cmd_format_duration(value, text, room);
	else
		snprintf(text, room, "%" PRIu64, value);
}

static int set_quantity(const char *command, const struct cmd_option *option, const char *text)
{
	static const char *const what[] = {
		[CMD_NUMBER] = "a whole number",
		[CMD_SIZE] = "a size such as 4096, 64K or 1GiB",
		[CMD_DURATION] = "a time such as 500ms, 2s or 1m",
	};
	uint64_t value, max = option->max ? option->max : UINT64_MAX;
	char low[32], high[32];
	int rc = option->type == CMD_SIZE       ? cmd_parse_size(text, &value)
		 : option->type == CMD_DURATION ? cmd_parse_duration(text, &value)
						: cmd_parse_number(text, &value);

	if (rc == -EINVAL) {
		fprintf(stderr, "%s: --%s cannot be '%s': it takes %s\n", command, option->name, text,
			what[option->type]);
		return -1;
	}
	if (rc < 0 || value < option->min || value > max) {
		format_limit(option, option->min, low, sizeof low);
		format_limit(option, max, high, sizeof high);
		if (option->max)
			fprintf(stderr, "%s: --%s cannot be '%s': it lies between %s and %s\n", command, option->name,
				text, low, high);
		else
			fprintf(stderr, "%s: --%s cannot be '%s': it is %s or more\n", command, option->name, text,
				low);
		return -1;
	}
	*(uint64_t *)option->value = value;
	return 0;
}

static int add_string(const char *command, const struct cmd_option *option, const char *text)
{
	struct cmd_strings *strings = option->value;

	if (!*text || strings->count == CMD_STRINGS_MAX) {
		if (*text)
			fprintf(stderr, "%s: --%s can be given %d times at most\n", command, option->name,
				CMD_STRINGS_MAX);
		else
			fprintf(stderr, "%s: --%s cannot be empty\n", command, option->name);
		return -1;
	}
	strings->text[strings->count++] = text;
	return 0;
}

static int set_value(const char *command, const struct cmd_option *option, const char *text)
{
	if (option->given)
		*option->given = true;
	switch (option->type) {
	case CMD_FLAG:
		*(bool *)option->value = true;
		return 0;
	case CMD_STRING:
		if (!*text && !option->optional) {
			fprintf(stderr, "%s: --%s cannot be empty\n", command, option->name);
			return -1;
		}
		*(const char **)option->value = text;
		return 0;
	case CMD_STRINGS:
		return add_string(command, option, text);
	case CMD_CHOICE:
		for (int i = 0; option->choices[i]; i++) {
			if (strcmp(option->choices[i], text) == 0) {
				*(int *)option->value = i;
				return 0;
			}
		}
		return bad_choice(command, option, text);
	default:
		return set_quantity(command, option, text);
	}
}

/* Takes argv[*at] and its argument; *at stays on the last word used. */
static int take_option(const struct cmd_usage *usage, const struct cmd_option *options, int argc, char **argv, int *at)
{
	const char *word = argv[*at];
	const char *name = word + 2, *equals = strchr(name, '=');
	const struct cmd_option *option;

	if (word[1] != '-' || !(option = find_option(options, name, equals ? (size_t)(equals - name) : strlen(name))))
		return unknown_option(usage, options, word);
	if (option->type == CMD_FLAG) {
		if (equals) {
			fprintf(stderr, "%s: --%s takes no value\n", usage->command, option->name);
			return -1;
		}
		return set_value(usage->command, option, "");
	}
	if (equals)
		return set_value(usage->command, option, equals + 1);
	if (*at + 1 < argc && strncmp(argv[*at + 1], "--", 2) != 0) {
		(*at)++;
		return set_value(usage->command, option, argv[*at]);
	}
	if (option->optional)
		return set_value(usage->command, option, "");
	fprintf(stderr, "%s: --%s needs a value: --%s %s\n", usage->command, option->name, option->name,
		option->argument);
	return -1;
}

int cmd_options_parse(const struct cmd_usage *usage, const struct cmd_option *options, int argc, char **argv,
		      const char **operands, int max_operands)
{
	int found = 0;
	bool only_operands = false;

	for (int i = 1; i < argc; i++) {
		const char *word = argv[i];
		if (!only_operands && strcmp(word, "--") == 0) {
			only_operands = true;
		} else if (!only_operands && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
			cmd_options_help(usage, options, stdout);
			return CMD_OPTIONS_HELP;
		} else if (!only_operands && argc == 2 && strcmp(word, CMD_COMPLETE) == 0) {
			cmd_options_list(usage, options, stdout);
			return CMD_OPTIONS_HELP;
		} else if (!only_operands && word[0] == '-' && word[1]) {
			if (take_option(usage, options, argc, argv, &i) < 0)
				return -1;
		} else if (found < max_operands) {
			operands[found++] = word;
		} else {
			fprintf(stderr, "%s: '%s' is one argument too many\nTry '%s --help'.\n", usage->command, word,
				usage->command);
			return -1;
		}
	}
	return 0;
}

/* Prints text broken between words, further lines indented. The cursor is at column already; a newline in the
 * text is one in the output. */
static void print_wrapped(FILE *to, const char *text, int column, int indent)
{
	bool fresh = true; /* nothing of the text is on this line */

	for (; *text; text += strspn(text, " ")) {
		int length = (int)strcspn(text, " \n");
		if (*text == '\n' || (!fresh && column + 1 + length > HELP_WIDTH)) {
			fprintf(to, "\n%*s", *text == '\n' ? 0 : indent, "");
			column = *text == '\n' ? 0 : indent;
			text += *text == '\n';
			fresh = true;
			continue;
		}
		column += fprintf(to, "%s%.*s", fresh ? "" : " ", length, text);
		text += length;
		fresh = false;
	}
	fputc('\n', to);
}

static void print_option(FILE *to, const struct cmd_option *option)
{
	int column = fprintf(to, "  --%s", option->name);

	if (option->argument)
		column += fprintf(to, option->optional ? " [%s]" : " %s", option->argument);
	if (column >= HELP_COLUMN)
		fprintf(to, "\n%*s", HELP_COLUMN, "");
	else
		fprintf(to, "%*s", HELP_COLUMN - column, "");
	print_wrapped(to, option->help, HELP_COLUMN, HELP_COLUMN);
}

/* One line is enough where one chooses. */
static int first_part(const char *help)
{
	return (int)strcspn(help, ":;(\n");
}

void cmd_options_list(const struct cmd_usage *usage, const struct cmd_option *options, FILE *to)
{
	for (const struct cmd_option *option = options; option->name; option++) {
		if (!option->help)
			continue;
		fprintf(to, "--%s\t%s\t", option->name, option->argument ? option->argument : "");
		for (int i = 0; option->choices && option->choices[i]; i++)
			fprintf(to, "%s%s", i ? " " : "", option->choices[i]);
		fprintf(to, "\t%.*s\n", first_part(option->help), option->help);
	}
	fputs("--help\t\t\tthe options and examples\n", to);
	for (int i = 0; usage->words && usage->words[i]; i++)
		fprintf(to, "%s\t\t\t\n", usage->words[i]);
}

void cmd_options_help(const struct cmd_usage *usage, const struct cmd_option *options, FILE *to)
{
	int column = fprintf(to, "Usage: %s ", usage->command);

	print_wrapped(to, usage->synopsis, column, column);
	fputc('\n', to);
	print_wrapped(to, usage->about, 0, 0);
	fprintf(to, "\nOptions:\n");
	for (const struct cmd_option *option = options; option->name; option++) {
		if (option->help)
			print_option(to, option);
	}
	fprintf(to, "  --help%*sthis text\n", HELP_COLUMN - 8, "");
	if (usage->examples)
		fprintf(to, "\nExamples:\n%s", usage->examples);
	if (usage->more)
		fprintf(to, "\n%s\n", usage->more);
}
