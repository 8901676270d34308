/* A topology XML file: refused, or a plan can be made of it. hwloc reads what our own check lets through. */
#include "fuzz/file.h"
#include "topo/topo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	char path[64], error[256];
	struct wf_topo_options options = { 0 };
	const struct wf_topo_nic *nics;
	struct wf_topo_plan *plan = NULL;
	struct wf_topo *topo = NULL;
	int fd = fuzz_file(data, bytes, path, sizeof(path));

	if (!wf_topo_open(path, &topo, error, sizeof(error))) {
		size_t count = wf_topo_nics(topo, &nics);

		if (!wf_topo_plan(topo, nics, count, &options, &plan, error, sizeof(error)))
			wf_topo_plan_free(plan);
		wf_topo_close(topo);
	}
	close(fd);
	return 0;
}
