/*
 * What an engine and each of its peers take over a transport, in resident memory: verbs' provider has large buffers for each
 * endpoint and each connection. A measurement, no test: it fails only where a peer does not come up. usage: memory TRANSPORT
 */
#include "support/peer.h"

#include <stdio.h>

enum { PEERS = 5 };

static double mib(uint64_t bytes)
{
	return (double)bytes / (1 << 20);
}

static void measure(void **state)
{
	struct weft_config config = side_config();
	uint64_t before = rss_bytes(), opened, first = 0;
	struct peer peer[PEERS];
	struct side side;
	weft_peer handle;

	assert_status(side_open(&side, &config), 0);
	opened = rss_bytes();
	for (int i = 0; i < PEERS; i++) {
		struct weft_event event;

		peer_start(&peer[i], &config);
		assert_status(weft_peer_add(side.engine, peer[i].address.data, peer[i].address.bytes, NULL, &handle),
			      0);
		assert_status(side_wait_peer(&side, WEFT_EVENT_PEER_UP, handle, LIMIT, &event), 0);
		weft_event_release(&event);
		if (!i)
			first = rss_bytes();
	}
	printf("MEMORY %u rail(s): %.1f MiB to open, %.1f for the first peer, %.1f for each further one\n",
	       transport->count, mib(opened - before), mib(first - opened), mib(rss_bytes() - first) / (PEERS - 1));
	for (int i = 0; i < PEERS; i++)
		peer_stop(&peer[i]);
	assert_status(side_close(&side), 0);
}

static int run(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(measure) };

	return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
