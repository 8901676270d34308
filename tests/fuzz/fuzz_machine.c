/* A machine file of the simulated NICs. */
#include "fuzz/file.h"
#include "sim/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct sim_spec spec;
	char path[64], error[160];
	int fd = fuzz_file(data, bytes, path, sizeof(path));

	sim_spec_parse(path, &spec, error, sizeof(error));
	close(fd);
	return 0;
}
