/* The pair that all tests of a program share, for cmocka. Only programs that define pair_bytes link this. */
#include "support/fixture.h"

struct pair pair;

int pair_setup(void **state)
{
	pair_open(&pair, NULL, NULL, pair_bytes);
	return 0;
}

int pair_teardown(void **state)
{
	pair_close(&pair);
	return 0;
}
