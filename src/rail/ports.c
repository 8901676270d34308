/*
 * The range of ports that peers connect to, for firewalls: config.ports. The endpoint's own address names the port, so
 * several engines of one process can have ranges of their own; libfabric's environment variables cannot do that. Runs
 * on the thread that opens an engine, then on the worker that owns the rail.
 */
#include "rail/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

static bool has_port(const struct fi_info *info)
{
	return info && info->src_addr && (info->addr_format == FI_SOCKADDR_IN || info->addr_format == FI_SOCKADDR_IN6);
}

static void set_port(struct fi_info *info, uint16_t port)
{
	if (info->addr_format == FI_SOCKADDR_IN)
		((struct sockaddr_in *)info->src_addr)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)info->src_addr)->sin6_port = htons(port);
}

static bool read_port(const char **text, uint16_t *ret_port)
{
	char *end;
	unsigned long port;

	if (**text < '0' || **text > '9')
		return false;
	port = strtoul(*text, &end, 10);
	*text = end;
	*ret_port = (uint16_t)port;
	return port >= 1 && port <= 65535;
}

int wf_nics_set_ports(struct wf_nics *nics, const char *ports, const struct wf_log *log)
{
	struct wf_ports range = { 0 };
	const char *at = ports;
	bool good = read_port(&at, &range.low);

	range.high = range.low;
	if (good && *at == '-') {
		at++;
		good = read_port(&at, &range.high);
	}
	if (!good || *at || range.high < range.low) {
		wf_log(log, WEFT_LOG_ERROR, "ports '%.40s' is not a range; write one such as 20000-20100", ports);
		return -EINVAL;
	}
	range.next = range.low;
	for (uint32_t i = 0; i < nics->count; i++) {
		if (has_port(nics->nic[i].info))
			nics->nic[i].ports = range;
		else
			wf_log(log, WEFT_LOG_INFO, "rail %s: %s has no ports, so the range %s does not apply",
			       nics->nic[i].name, nics->nic[i].provider, ports);
	}
	return 0;
}

/* Returns whether the error concerns this one port: it is taken, or reserved for the system. */
static bool is_of_port(int error)
{
	return error == -FI_EADDRINUSE || error == -FI_EACCES;
}

int wf_rail_endpoint(struct wf_rail *rail, bool published, struct fid_ep **ret_ep)
{
	struct wf_ports *ports = &rail->ports;
	int error = -FI_EADDRINUSE;

	if (!ports->high)
		return fi_endpoint(rail->domain, rail->info, ret_ep, NULL);
	set_port(rail->info, 0);
	if (!published) /* nobody connects to it */
		return fi_endpoint(rail->domain, rail->info, ret_ep, NULL);
	/* Starts with another port than last time: the last one may have been lost to somebody who opened it at the
	 * same moment. */
	for (uint32_t i = ports->low; i <= ports->high && is_of_port(error); i++) {
		set_port(rail->info, ports->next);
		ports->next = ports->next == ports->high ? ports->low : (uint16_t)(ports->next + 1);
		error = fi_endpoint(rail->domain, rail->info, ret_ep, NULL);
	}
	set_port(rail->info, 0);
	if (is_of_port(error))
		wf_log(rail->log, WEFT_LOG_ERROR, "rail %s: every port from %u to %u is in use%s", rail->name,
		       ports->low, ports->high,
		       error == -FI_EACCES ? " or reserved, and needs CAP_NET_BIND_SERVICE" : "");
	return error;
}
