/* weft bench --listen: serves one driver after another, each over its own control connection. */
#include "bench.h"
#include "commands.h"
#include "net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS (200 * WEFT_MILLISECOND)

static int serve_one(int fd, const struct bench_options *options)
{
	struct cmd_control *control = malloc(sizeof *control);
	char who[80], why[600] = "";
	int rc;

	if (!control) {
		close(fd);
		fprintf(stderr, "weft bench: out of memory\n");
		return -ENOMEM;
	}
	cmd_net_name(fd, true, who, sizeof who);
	if (!options->quiet)
		fprintf(stderr, "weft bench: %s connected\n", who);
	rc = cmd_control_open(control, fd);
	if (rc == 0)
		rc = bench_peer_serve(control, options, why, sizeof why);
	if (rc < 0)
		fprintf(stderr, "weft bench: %s: %s\n", who, why);
	else if (!options->quiet)
		fprintf(stderr, "weft bench: %s is done: %s\n", who, why);
	cmd_control_close(control);
	free(control);
	return rc;
}

int bench_listen(const struct bench_options *options)
{
	struct cmd_net_address address;
	char text[80], why[300];
	int rc = 0;

	if (cmd_net_parse(options->listen, true, &address) < 0) {
		fprintf(stderr,
			"weft bench: --listen cannot be '%s': it takes a port, or an address and a port: "
			"--listen 192.0.2.1:" CMD_NET_PORT "\n",
			options->listen);
		return CMD_USAGE;
	}
	int listener = cmd_net_listen(&address, why, sizeof why);
	if (listener < 0) {
		fprintf(stderr, "weft bench: %s\n", why);
		return CMD_FAILED;
	}
	bench_signals_catch();
	cmd_net_name(listener, false, text, sizeof text);
	printf("listening on %s; on the other host run: weft bench HOST:%s\n", text, strrchr(text, ':') + 1);
	fflush(stdout);
	while (!bench_interrupted) {
		int fd = cmd_net_accept(listener, LOOK_NS, why, sizeof why);
		if (fd == -EAGAIN)
			continue;
		if (fd < 0) {
			fprintf(stderr, "weft bench: %s\n", why);
			rc = fd;
			break;
		}
		rc = serve_one(fd, options);
		if (options->once)
			break;
		rc = 0; /* one driver's failure was reported; the next one is served all the same */
	}
	close(listener);
	return rc < 0 ? CMD_FAILED : CMD_OK;
}
