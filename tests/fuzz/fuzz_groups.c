/* An override file of groups, against a machine with many NICs (FUZZ_TOPOLOGY, set by the script). */
#include "fuzz/file.h"
#include "topo/topo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct wf_topo *topo;
	static const struct wf_topo_nic *nics;
	static size_t count;
	char path[64], error[256];
	struct wf_topo_options options = { 0 };
	struct wf_topo_plan *plan = NULL;
	int fd;

	if (!topo) {
		if (wf_topo_open(FUZZ_TOPOLOGY, &topo, error, sizeof(error))) {
			fprintf(stderr, "%s: %s\n", FUZZ_TOPOLOGY, error);
			abort();
		}
		count = wf_topo_nics(topo, &nics);
	}
	fd = fuzz_file(data, bytes, path, sizeof(path));
	options.groups_path = path;
	if (!wf_topo_plan(topo, nics, count, &options, &plan, error, sizeof(error))) {
		for (size_t g = 0; g < plan->count; g++)
			for (size_t r = 0; r < plan->groups[g].rail_count; r++)
				if (plan->groups[g].rails[r] >= count)
					abort();
		wf_topo_plan_free(plan);
	}
	close(fd);
	return 0;
}
