/* Which of this host's tcp NICs come first when only some are to be used: those by which the kernel sends to the peer's host. */
#include "transport.h"

#include "rail/rail.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

struct nics {
	const struct sockaddr_storage *host;
	const char *avoid;
	uint32_t count;
	char name[CMD_RAILS_MAX][64];
	bool reaches[CMD_RAILS_MAX];
};

static bool reaches(const char *address, const struct sockaddr_storage *host)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	const void *to = host;

	if (inet_pton(AF_INET, address, &v4.sin_addr) == 1)
		return host->ss_family == AF_INET && wf_route_between(&v4, sizeof v4, to, sizeof *host) == WF_ROUTE_OWN;
	return inet_pton(AF_INET6, address, &v6.sin6_addr) == 1 && host->ss_family == AF_INET6 &&
	       wf_route_between(&v6, sizeof v6, to, sizeof *host) == WF_ROUTE_OWN;
}

static int collect(void *context, const struct weft_nic *nic)
{
	struct nics *nics = context;

	if (!nic->usable || strcmp(nic->provider, "tcp") != 0 || !nic->address ||
	    cmd_transport_lists(nics->avoid, nic->name) || cmd_transport_lists(nics->avoid, nic->address) ||
	    nics->count == CMD_RAILS_MAX)
		return 0;
	snprintf(nics->name[nics->count], sizeof nics->name[0], "%s", nic->name);
	nics->reaches[nics->count++] = reaches(nic->address, nics->host);
	return 0;
}

void cmd_transport_nearest(const struct cmd_transport_options *options, struct cmd_transport *transport)
{
	struct weft_config config = WEFT_CONFIG_INIT;
	static struct nics nics;
	uint32_t taken = 0;
	size_t used = 0;

	memset(&nics, 0, sizeof nics);
	nics.host = &options->host;
	nics.avoid = options->avoid;
	weft_nic_each(&config, collect, &nics);
	/* Those that reach the host first; the others may reach other addresses of the peer. */
	for (int pass = 0; pass < 2; pass++) {
		for (uint32_t i = 0; i < nics.count && taken < transport->max_rails; i++) {
			if (nics.reaches[i] == (pass == 1) || used + strlen(nics.name[i]) + 2 > sizeof transport->rails)
				continue;
			used += (size_t)snprintf(transport->rails + used, sizeof transport->rails - used, "%s%s",
						 taken++ ? "," : "", nics.name[i]);
		}
	}
}
