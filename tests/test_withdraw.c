/* Regions that are revoked or closed while a peer uses them: every operation ends, both engines live on, and nothing lands
 * afterwards. */
#include "support/peer.h"

#include <string.h>

#define BYTES  (1u << 20)
#define WRITES 24
#define SEED   31

static struct pair pair;

static int open_pair(void **state)
{
	pair_open(&pair, NULL, NULL, BYTES);
	return 0;
}

static int close_pair(void **state)
{
	pair_close(&pair);
	return 0;
}

static void use(weft_remote remote, uint64_t tag, bool reads)
{
	struct weft_write write = { sizeof(write), pair.region, 0, remote, 0, BYTES };
	struct weft_read read = { sizeof(read), remote, 0, pair.region, 0, BYTES };
	struct weft_op op = { .size = sizeof(op), .queue = pair.here.queue, .tag = tag };

	assert_status(
	    reads ? weft_read(pair.here.engine, &read, &op, NULL) : weft_write(pair.here.engine, &write, &op, NULL), 0);
}

/* It was in time, it heard of the change, or the rail refused it. */
static void assert_ended_well(int status)
{
	if (status && status != -ESTALE && status != -EREMOTEIO && status != -EIO)
		assert_status(status, -ESTALE);
}

static void take_away(uint32_t code, bool reads)
{
	bool keys_are_checked = strcmp(transport->provider, "shm");
	/* A refused key costs libfabric's tcp its connections, and us the time to make new ones. */
	int rounds = strcmp(transport->provider, "tcp") ? 12 : 2;
	struct blob descriptor;

	for (int round = 0; round < rounds; round++) {
		uint64_t number = peer_region(&pair.there, BYTES, WEFT_REMOTE_WRITE | WEFT_REMOTE_READ, &descriptor);
		weft_remote remote = import(&pair.here, pair.peer, &descriptor);
		struct answer answer;

		for (int i = 0; i < WRITES; i++)
			use(remote, (uint64_t)i, reads);
		if (round % 2) /* the change comes in the middle */
			assert_status(end_of(&pair.here, WRITES / 2), 0);
		else
			use(remote, WRITES / 2, reads);
		peer_begin(&pair.there, &(struct command){ .code = code, .arg = { number } }, NULL);
		assert_status(peer_end(&pair.there, &answer), 0);
		if (code == COMMAND_REVOKE && keys_are_checked)
			peer_fill(&pair.there, number, 0, BYTES, SEED);
		for (int i = 0; i < WRITES; i++)
			if (i != WRITES / 2)
				assert_ended_well(end_of(&pair.here, (uint64_t)i));
		for (int i = 0; i < (round % 2 ? 0 : 2); i++)
			assert_ended_well(end_of(&pair.here, WRITES / 2));
		if (code == COMMAND_REVOKE && keys_are_checked)
			peer_check(&pair.there, number, 0, BYTES, SEED);
		if (code == COMMAND_REVOKE)
			peer_tell(&pair.there, COMMAND_REGION_CLOSE, number);
		assert_status(weft_remote_close(pair.here.engine, remote), 0);
		assert_status(pair_write(&pair, 0, 0, BYTES), 0);
	}
}

static void revoked_under_writes(void **state)
{
	take_away(COMMAND_REVOKE, false);
}

static void revoked_under_reads(void **state)
{
	take_away(COMMAND_REVOKE, true);
}

static void closed_under_writes(void **state)
{
	take_away(COMMAND_REGION_CLOSE, false);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(revoked_under_writes),
		cmocka_unit_test(revoked_under_reads),
		cmocka_unit_test(closed_under_writes),
	};

	return cmocka_run_group_tests_name("withdraw", tests, open_pair, close_pair);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, run);
}
