/* TCP for the control connection: "host:port" read strictly, listening, connecting, each with a sentence on
 * failure. */
#ifndef WEFT_TOOLS_NET_H
#define WEFT_TOOLS_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CMD_NET_PORT "7471"

struct cmd_net_address {
	char host[256]; /* "" when none was given */
	char port[6];
	bool bare; /* an IPv6 address without brackets */
};
/* "host", "host:port", "[v6]:port", "[v6]"; ":port" and, when bare_port, "port". 0, -EINVAL, or -ERANGE for a
 * port that cannot be. */
int cmd_net_parse(const char *text, bool bare_port, struct cmd_net_address *ret_address);

/* Each returns a descriptor, or a negative errno with a sentence in why. */
int cmd_net_listen(const struct cmd_net_address *address, char *why, size_t room);
int cmd_net_accept(int listener, uint64_t timeout_ns, char *why, size_t room);
int cmd_net_connect(const struct cmd_net_address *address, uint64_t timeout_ns, char *why, size_t room);

/* "10.0.0.1:7471" of this end, or of the other. */
char *cmd_net_name(int fd, bool other_end, char *text, size_t room);
/* Its address; of family AF_UNSPEC when there is none. */
struct sockaddr_storage;
void cmd_net_other_end(int fd, struct sockaddr_storage *ret_address);
/* Both ends are on this host. */
bool cmd_net_same_host(int fd);

#endif
