/* weft doctor: runs every check and says what stops this host, or holds it back, and how to mend it. */
#include "../commands.h"
#include "doctor.h"
#include "../common/json.h"
#include "../common/options.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct cmd_usage usage = {
	.command = "weft doctor",
	.synopsis = "[OPTION]...",
	.about = "Finds what stops this host from running at line rate, or at all, and says how to mend it. "
		 "The exit status is 1 if something blocks.",
	.examples = "  weft doctor\n"
		    "  weft doctor --require efa    the lack of an EFA device is then an error\n"
		    "  weft doctor --json | jq '.checks[] | select(.result != \"ok\")'\n",
	.more = "See weft-doctor(1).",
};

static const char *const result_names[DOCTOR_RESULTS] = { "ok", "note", "warn", "blocks", "not applicable" };
static const struct doctor_check *const tables[] = { doctor_rdma_checks, doctor_gpu_checks, doctor_card_checks,
						     doctor_host_checks };
#define TABLES (sizeof(tables) / sizeof(*tables))

struct options {
	bool json;
	int require;
	const char *root, *libfabric, *xml;
};

static int read_options(int argc, char **argv, struct options *ret)
{
	static const char *const requirements[] = { "nothing", "efa", "verbs", NULL };
	const struct cmd_option options[] = {
		{ .name = "json", .type = CMD_FLAG, .value = &ret->json, .help = "print JSON" },
		{ .name = "require",
		  .type = CMD_CHOICE,
		  .value = &ret->require,
		  .argument = "KIND",
		  .help = "nothing (default), efa or verbs: the lack of such a device blocks",
		  .choices = requirements },
		{ .name = "root",
		  .type = CMD_STRING,
		  .value = &ret->root,
		  .argument = "DIR",
		  .help = "check the host whose files are under DIR" },
		{ .name = "libfabric",
		  .type = CMD_STRING,
		  .value = &ret->libfabric,
		  .argument = "VERSION",
		  .help = "judge this version of libfabric; default: the one in use" },
		{ .name = "xml",
		  .type = CMD_STRING,
		  .value = &ret->xml,
		  .argument = "FILE",
		  .help = "check this topology file; default: the one that WEFT_TOPOLOGY_XML names" },
		{ 0 },
	};

	return cmd_options_parse(&usage, options, argc, argv, NULL, 0);
}

/* The copy this process runs with, whichever that is. Its header is not needed for one number. */
static void find_libfabric(char version[32])
{
	uint32_t (*fi_version)(void);
	void *symbol = dlsym(RTLD_DEFAULT, "fi_version");
	uint32_t number;

	version[0] = '\0';
	if (!symbol)
		return;
	memcpy(&fi_version, &symbol, sizeof(symbol));
	number = fi_version();
	snprintf(version, 32, "%u.%u", number >> 16, number & 0xffff);
}

static void print_json(struct cmd_json *json, const struct doctor_check *check, const struct doctor_finding *finding)
{
	cmd_json_open(json, NULL, '{');
	cmd_json_text(json, "id", check->id);
	cmd_json_text(json, "title", check->title);
	cmd_json_text(json, "result", result_names[finding->result]);
	cmd_json_text(json, "seen", finding->seen);
	if (*finding->mend)
		cmd_json_text(json, "mend", finding->mend);
	else
		cmd_json_null(json, "mend");
	cmd_json_close(json, '}');
}

static void print_text(const struct doctor_check *check, const struct doctor_finding *finding)
{
	static const char *const marks[DOCTOR_RESULTS] = { "ok", "note", "WARN", "BLOCKS", "-" };

	printf("%-7s %-17s %s\n", marks[finding->result], check->id, finding->seen);
	if (*finding->mend)
		printf("%-7s %-17s → %s\n", "", "", finding->mend);
}

static void print_end(struct cmd_json *json, const size_t counts[DOCTOR_RESULTS])
{
	const char *plural = counts[DOCTOR_WARN] == 1 ? "" : "s";

	if (json) {
		cmd_json_close(json, ']');
		cmd_json_number(json, "blocks", counts[DOCTOR_BLOCKS]);
		cmd_json_number(json, "warnings", counts[DOCTOR_WARN]);
		cmd_json_number(json, "notes", counts[DOCTOR_NOTE]);
		cmd_json_close(json, '}');
		cmd_json_end(json);
	} else if (counts[DOCTOR_BLOCKS]) {
		printf("\n%zu thing%s block%s, %zu warning%s\n", counts[DOCTOR_BLOCKS],
		       counts[DOCTOR_BLOCKS] == 1 ? "" : "s", counts[DOCTOR_BLOCKS] == 1 ? "s" : "",
		       counts[DOCTOR_WARN], plural);
	} else {
		printf("\nnothing blocks, %zu warning%s\n", counts[DOCTOR_WARN], plural);
	}
}

static int run(const struct doctor *doctor, bool as_json)
{
	size_t counts[DOCTOR_RESULTS] = { 0 };
	struct cmd_json json;

	cmd_json_start(&json, stdout);
	if (as_json) {
		cmd_json_open(&json, NULL, '{');
		cmd_json_open(&json, "checks", '[');
	}
	for (size_t t = 0; t < TABLES; t++)
		for (const struct doctor_check *check = tables[t]; check->id; check++) {
			struct doctor_finding finding = { 0 };

			check->run(doctor, &finding);
			counts[finding.result]++;
			if (as_json)
				print_json(&json, check, &finding);
			else
				print_text(check, &finding);
		}
	print_end(as_json ? &json : NULL, counts);
	return counts[DOCTOR_BLOCKS] ? CMD_FAILED : CMD_OK;
}

int weft_cmd_doctor(int argc, char **argv)
{
	struct options options = { 0 };
	static struct doctor_cards cards;
	struct doctor_items hmem = { 0 };
	struct doctor doctor = { .root = "" };
	unsigned major, minor;
	char version[32];
	struct stat st;
	int rc = read_options(argc, argv, &options);

	if (rc)
		return rc == CMD_OPTIONS_HELP ? CMD_OK : CMD_USAGE;
	if (options.root && (stat(options.root, &st) || !S_ISDIR(st.st_mode))) {
		fprintf(stderr, "weft doctor: --root %s is not a folder\n", options.root);
		return CMD_USAGE;
	}
	if (options.libfabric && sscanf(options.libfabric, "%4u.%4u", &major, &minor) != 2) {
		fprintf(stderr, "weft doctor: --libfabric cannot be '%s': it takes a version such as 1.17\n",
			options.libfabric);
		return CMD_USAGE;
	}
	doctor.require = (enum doctor_require)options.require;
	if (options.root && strcmp(options.root, "/") != 0) {
		doctor.root = options.root; /* another host: this one's environment and library say nothing of it */
	} else {
		doctor.library_path = getenv("LD_LIBRARY_PATH");
		doctor.fork_safe = getenv("RDMAV_FORK_SAFE") || getenv("IBV_FORK_SAFE") || getenv("FI_EFA_FORK_SAFE");
		doctor.huge_pages_safe = getenv("RDMAV_HUGEPAGES_SAFE");
		doctor.topology = getenv("WEFT_TOPOLOGY_XML");
		doctor.shared_receives = getenv("FI_OFI_RXM_USE_SRX");
		find_libfabric(version);
		doctor.libfabric = *version ? version : NULL;
		doctor_ask_cards(&cards);
		doctor.cards = &cards;
		if (cards.count)
			doctor_ask_hmem(&hmem);
		doctor.hmem = cards.count ? doctor_items(&hmem) : NULL;
	}
	if (options.libfabric)
		doctor.libfabric = options.libfabric;
	if (options.xml)
		doctor.topology = options.xml;
	if (doctor.topology && !*doctor.topology)
		doctor.topology = NULL;
	return run(&doctor, options.json);
}
