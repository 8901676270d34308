/* Choosing a transport and opening an engine on it. */
#include "transport.h"
#include "options.h"
#include "suggest.h"
#include "sim/setup.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const cmd_provider_names[] = { "efa", "verbs", "tcp", "local", "shm", NULL };

struct found {
	const char *avoid;
	bool efa, verbs, local;
};

/* The next of the comma separated words at *at; false at the end. */
static bool next_word(const char **at, char *word, size_t room)
{
	size_t span;

	do {
		span = strcspn(*at, ",");
		snprintf(word, room, "%.*s", (int)span, *at);
		*at += span + ((*at)[span] == ',');
	} while (!span && **at);
	return span;
}

bool cmd_transport_lists(const char *list, const char *name)
{
	char word[CMD_RAILS_TEXT];

	while (list && next_word(&list, word, sizeof word)) {
		if (strcmp(word, name) == 0)
			return true;
	}
	return false;
}

static bool is_a(const char *provider, const char *kind)
{
	return strncmp(provider, kind, strlen(kind)) == 0;
}

bool cmd_transport_is_simulated(const char *provider)
{
	return is_a(provider, wf_sim_provider());
}

static int look(void *context, const struct weft_nic *nic)
{
	struct found *found = context;

	if (!nic->usable || cmd_transport_lists(found->avoid, nic->name) ||
	    (nic->address && cmd_transport_lists(found->avoid, nic->address)))
		return 0;
	found->efa |= is_a(nic->provider, "efa");
	found->verbs |= is_a(nic->provider, "verbs");
	found->local |= strcmp(nic->provider, "local") == 0;
	return 0;
}

/* N rails of tcp on one host are N addresses of the loopback network: any number of them are there without
 * set-up. */
static void loopback_rails(struct cmd_transport *transport, uint64_t count)
{
	size_t used = 0;
	for (uint64_t i = 1; i <= count; i++)
		used += (size_t)snprintf(transport->rails + used, sizeof transport->rails - used, "%s127.0.0.%u",
					 i > 1 ? "," : "", (unsigned)i);
	transport->max_rails = (uint32_t)count;
}

static void choose_provider(const struct cmd_transport_options *options, struct cmd_transport *transport)
{
	struct found found = { .avoid = options->avoid };
	struct weft_config config = WEFT_CONFIG_INIT;
	const char *provider = "", *why;

	if (options->provider) {
		provider = options->provider;
		why = "requested with --provider";
	} else if (options->simulated) {
		provider = wf_sim_provider(); /* or a host's real NICs would be the better ones */
		why = wf_sim_kind();
	} else if (transport->rails[0]) {
		why = "the best for the rails named";
	} else if (!options->same_host) {
		why = "the best this host has";
	} else {
		/* A failure to list is no reason to stop: opening says better what is wrong. */
		weft_nic_each(&config, look, &found);
		bool local = found.local && !options->no_local;

		provider = local ? "local" : found.efa ? "efa" : found.verbs ? "verbs" : "tcp";
		why = local                      ? "both processes are on this host"
		      : found.efa || found.verbs ? "this host has RDMA NICs"
						 : "neither an RDMA NIC nor the local rail is left to use";
	}
	snprintf(transport->provider, sizeof transport->provider, "%s", provider);
	snprintf(transport->why, sizeof transport->why, "%s", why);
}

static int check_twice(const char *list, char *why, size_t room)
{
	char word[CMD_RAILS_TEXT];

	while (next_word(&list, word, sizeof word)) {
		if (cmd_transport_lists(list, word)) {
			snprintf(why, room, "--rails names %.100s twice: a NIC is one rail", word);
			return -EINVAL;
		}
	}
	return 0;
}

static int check_ports(const char *ports, char *why, size_t room)
{
	const char *dash = strchr(ports, '-');
	char low[24] = "";
	uint64_t first = 0, last = 0;

	memcpy(low, ports, dash && dash - ports < 24 ? (size_t)(dash - ports) : 0);
	if (cmd_parse_number(dash ? dash + 1 : ports, &last) == 0 &&
	    (dash ? cmd_parse_number(low, &first) : (first = last, 0)) == 0 && first >= 1 && first <= last &&
	    last <= 65535)
		return 0;
	snprintf(why, room, "--ports cannot be '%.40s': it takes a range of ports such as 20000-20100", ports);
	return -EINVAL;
}

int cmd_transport_check(const struct cmd_transport_options *options, char *why, size_t room)
{
	uint64_t count = 1;
	int rc = options->rails ? cmd_parse_number(options->rails, &count) : 0;

	if (rc == -ERANGE || count < 1 || count > CMD_RAILS_MAX || (options->rails && *options->rails == '-')) {
		snprintf(why, room, "--rails cannot be %s: it takes a number from 1 to %d, or names of NICs",
			 options->rails, CMD_RAILS_MAX);
		return -EINVAL;
	}
	if ((options->rails && strlen(options->rails) >= CMD_RAILS_TEXT) ||
	    (options->avoid && strlen(options->avoid) >= CMD_RAILS_TEXT) ||
	    (options->provider && strlen(options->provider) >= CMD_PROVIDER_TEXT)) {
		snprintf(why, room, "the text of --provider, --rails or --avoid is too long");
		return -EINVAL;
	}
	if (options->no_local && options->provider && strcmp(options->provider, "local") == 0) {
		snprintf(why, room, "--no-local and --provider local exclude each other");
		return -EINVAL;
	}
	if (options->ports && check_ports(options->ports, why, room) < 0)
		return -EINVAL;
	return options->rails ? check_twice(options->rails, why, room) : 0;
}

/* Without a word from the user the engine takes RDMA NICs where there are any. */
static bool uses_tcp(const struct cmd_transport_options *options, const struct cmd_transport *transport)
{
	struct found found = { .avoid = options->avoid };
	struct weft_config config = WEFT_CONFIG_INIT;

	if (transport->provider[0])
		return strcmp(transport->provider, "tcp") == 0;
	return weft_nic_each(&config, look, &found) == 0 && !found.efa && !found.verbs;
}

int cmd_transport_choose(const struct cmd_transport_options *options, struct cmd_transport *ret_transport, char *why,
			 size_t room)
{
	struct cmd_transport transport = { 0 };
	uint64_t count = 0;
	bool number = options->rails && cmd_parse_number(options->rails, &count) == 0;
	int rc = cmd_transport_check(options, why, room);

	if (rc < 0)
		return rc;
	if (options->rails && !number)
		snprintf(transport.rails, sizeof transport.rails, "%s", options->rails);
	if (options->avoid)
		snprintf(transport.avoid, sizeof transport.avoid, "%s", options->avoid);
	if (number)
		transport.max_rails = (uint32_t)count;
	choose_provider(options, &transport);
	/* Avoiding another transport's NIC leaves tcp's rails as they are. */
	if (options->same_host && is_a(transport.provider, "tcp") && !transport.rails[0] &&
	    (!transport.avoid[0] || strcmp(transport.avoid, "shm") == 0 || strcmp(transport.avoid, "local") == 0))
		loopback_rails(&transport, number ? count : 1);
	if (number && !options->same_host && options->host.ss_family != AF_UNSPEC && uses_tcp(options, &transport))
		cmd_transport_nearest(options, &transport);
	*ret_transport = transport;
	return 0;
}

/* While an engine opens, its last error is kept: it names the NIC where the code that comes back cannot.
 * Opening logs on the calling thread. */
static char opening[200];
static _Thread_local bool is_opening;

/* Why the engine last refused something, on any thread: the code that comes back says only that it did. */
static pthread_mutex_t refused_lock = PTHREAD_MUTEX_INITIALIZER;
static char refused[256];

static void keep_refusal(const char *text)
{
	static const char mark[] = "refused: ";

	if (strncmp(text, mark, sizeof mark - 1) != 0)
		return;
	pthread_mutex_lock(&refused_lock);
	snprintf(refused, sizeof refused, "%s", text + sizeof mark - 1);
	pthread_mutex_unlock(&refused_lock);
}

static void keep_or_print(void *context, enum weft_log_level level, const char *text)
{
	static const char *const names[] = { "error", "warning", "info", "debug" };
	const bool *print = context;

	if (is_opening && level == WEFT_LOG_ERROR)
		snprintf(opening, sizeof opening, "%s", text);
	if (level == WEFT_LOG_WARN)
		keep_refusal(text);
	if (*print)
		fprintf(stderr, "weft %s: %s\n", names[level <= WEFT_LOG_DEBUG ? level : WEFT_LOG_DEBUG], text);
}

void cmd_transport_config(const struct cmd_transport_options *options, const struct cmd_transport *transport,
			  struct weft_config *ret_config)
{
	static bool always = true, never = false; /* the engine keeps a pointer to one */
	struct weft_config config = WEFT_CONFIG_INIT;

	config.provider = transport->provider[0] ? transport->provider : NULL;
	config.rails = transport->rails[0] ? transport->rails : NULL;
	config.avoid = transport->avoid[0] ? transport->avoid : NULL;
	config.groups = options->groups;
	config.ports = options->ports;
	config.max_rails = transport->max_rails;
	config.max_workers = (uint32_t)options->workers;
	if (options->manual)
		config.flags |= WEFT_MANUAL_PROGRESS;
	if (options->no_local)
		config.flags |= WEFT_NO_LOCAL;
	config.log = keep_or_print;
	config.log_context = options->verbose ? &always : &never;
	*ret_config = config;
}

const char *cmd_error_hint(int error)
{
	switch (error) {
	case -EINVAL: /* the library's names what a caller of it did */
	case -ENOENT:
		return NULL;
	case -ETIMEDOUT:
		return "raise --timeout, or look at the peer and the rails in 'weft info'";
	case -EADDRINUSE:
		return "give --ports a wider range; 'ss -ltnp' shows who has its ports";
	case -EMSGSIZE:
		return "use a smaller --size, or --op write for bulk data";
	default:
		return weft_error_hint(error);
	}
}

char *cmd_describe_error(int error, char *text, size_t room)
{
	const char *hint = cmd_error_hint(error);

	pthread_mutex_lock(&refused_lock);
	if (error == -EOPNOTSUPP && refused[0])
		snprintf(text, room, "%s", refused);
	else
		snprintf(text, room, "%s%s%s", weft_strerror(error), hint ? ": " : "", hint ? hint : "");
	pthread_mutex_unlock(&refused_lock);
	return text;
}

struct providers {
	char text[200]; /* ", tcp, shm" */
	struct cmd_suggest suggest;
	char best[32];
};

static bool has_word(const char *text, const char *word)
{
	size_t length = strlen(word);
	for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
		if (at[-1] == ' ' && (!at[length] || at[length] == ','))
			return true;
	}
	return false;
}

static int collect_provider(void *context, const struct weft_nic *nic)
{
	struct providers *providers = context;
	size_t used = strlen(providers->text);

	/* Each once: they come NIC by NIC. */
	if (has_word(providers->text, nic->provider) || used + strlen(nic->provider) + 3 > sizeof providers->text)
		return 0;
	snprintf(providers->text + used, sizeof providers->text - used, ", %s", nic->provider);
	/* It is there; something else is wrong. */
	if (strcmp(nic->provider, providers->suggest.typed) == 0)
		return 0;
	cmd_suggest_offer(&providers->suggest, nic->provider);
	if (providers->suggest.best == nic->provider) {
		/* The name lives only as long as this call. */
		snprintf(providers->best, sizeof providers->best, "%s", nic->provider);
		providers->suggest.best = providers->best;
	}
	return 0;
}

/* What there would have been, and the nearest to what was asked for. */
static void name_providers(const char *wanted, char *to, size_t room)
{
	struct weft_config any = WEFT_CONFIG_INIT;
	struct providers providers = { .text = "" };

	cmd_suggest_start(&providers.suggest, wanted);
	weft_nic_each(&any, collect_provider, &providers);
	const char *best = providers.suggest.best;
	if (providers.text[0])
		snprintf(to, room, ". Here are: %s%s%s%s", providers.text + 2, best ? "; did you mean " : "",
			 best ? best : "", best ? "?" : "");
}

int cmd_transport_open(const struct weft_config *config, weft_engine **ret_engine, char *why, size_t room)
{
	opening[0] = '\0';
	is_opening = true;
	int rc = weft_engine_open(config, ret_engine, NULL, 0);
	is_opening = false;
	if (rc == 0)
		return 0;
	const char *hint = cmd_error_hint(rc), *provider = config->provider, *rails = config->rails;
	int used =
	    snprintf(why, room, "no engine could be opened%s%s%s%.200s: %s%s%s", provider ? " with provider " : "",
		     provider ? provider : "", rails ? " on " : "", rails ? rails : "",
		     opening[0] ? opening : weft_strerror(rc), hint ? "; " : "", hint ? hint : "");
	/* Where the provider is what is wrong. */
	if (used > 0 && (size_t)used < room && config->provider && rc == -ENOPROTOOPT)
		name_providers(config->provider, why + used, room - (size_t)used);
	return rc;
}

struct named {
	const char *name;
	bool found;
};

static int look_for(void *context, const struct weft_nic *nic)
{
	struct named *named = context;

	named->found |= (nic->name && strcmp(nic->name, named->name) == 0) ||
			(nic->address && strcmp(nic->address, named->name) == 0);
	return named->found;
}

void cmd_transport_warn(const char *command, const struct cmd_transport_options *options, uint32_t rails)
{
	struct weft_config any = WEFT_CONFIG_INIT;
	const char *list = options->avoid;
	char word[CMD_RAILS_TEXT];
	uint64_t count;

	while (list && next_word(&list, word, sizeof word)) {
		struct named named = { .name = word, .found = cmd_transport_lists(options->rails, word) };
		if (!named.found && weft_nic_each(&any, look_for, &named) == 0 && !named.found)
			fprintf(stderr, "%s: --avoid %s: no NIC here has that name or address\n", command, word);
	}
	if (options->rails && cmd_parse_number(options->rails, &count) == 0 && count > rails)
		fprintf(stderr, "%s: --rails %s: only %u can be used here\n", command, options->rails, rails);
}

uint64_t cmd_transport_line_bps(weft_engine *engine, uint32_t rails)
{
	uint64_t total = 0;
	for (uint32_t i = 0; i < rails; i++) {
		struct weft_rail_info rail;
		if (weft_rail_info(engine, i, &rail, sizeof(rail)) < 0)
			return 0;
		if (rails > 1 && strcmp(rail.provider, "local") == 0)
			continue; /* beside NICs, which are the line */
		if (!rail.link_bps)
			return 0;
		total += rail.link_bps;
	}
	return total;
}
