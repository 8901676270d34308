/*
 * Suppresses what the sanitizers should not report: libfabric's own leaks. libfabric is not built with them, and
 * release 1.17 keeps a few hundred bytes of every tcp endpoint it closes (its copy of the fi_info given to fi_endpoint,
 * and what it learned of connections). The tests that open, close and add thousands of times measure that weft itself
 * stays flat.
 */
#include "support/sanitize.h"

const char *__lsan_default_suppressions(void)
{
	return "leak:libfabric.so\n";
}

const char *__lsan_default_options(void)
{
	return "print_suppressions=0";
}
