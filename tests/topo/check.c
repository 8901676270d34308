#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void check_plan(struct planned *planned, const char *xml, const struct wf_topo_nic *nics, size_t count,
		const struct wf_topo_options *options)
{
	char error[400] = "untouched";

	*planned = (struct planned){ .nics = nics, .nic_count = count };
	if (wf_topo_open(xml, &planned->topo, error, sizeof(error)))
		fail_msg("open: %s", error);
	if (!nics)
		planned->nic_count = wf_topo_nics(planned->topo, &planned->nics);
	if (wf_topo_plan(planned->topo, planned->nics, planned->nic_count, options, &planned->plan, error,
			 sizeof(error)))
		fail_msg("plan: %s", error);
	assert_string_equal(error, "untouched");
	check_owners(planned);
}

void check_plan_free(struct planned *planned)
{
	wf_topo_plan_free(planned->plan);
	wf_topo_close(planned->topo);
}

void check_owners(const struct planned *planned)
{
	for (size_t n = 0; n < planned->nic_count; n++) {
		size_t owners = 0;

		for (size_t i = 0; i < planned->plan->count; i++)
			for (size_t r = 0; r < planned->plan->groups[i].rail_count; r++)
				owners += planned->plan->groups[i].rails[r] == n;
		assert_int_equal(owners, 1);
	}
	for (size_t i = 0; i < planned->plan->count; i++) {
		const struct wf_topo_group *group = &planned->plan->groups[i];
		bool inside = !group->core_count && group->worker == -1;

		assert_true(group->rail_count > 0);
		assert_non_null(group->reason);
		for (size_t c = 0; c < group->core_count; c++)
			inside = inside || group->worker == (int)group->cores[c];
		assert_true(inside);
	}
}

void check_group(const struct planned *planned, size_t index, const char *expected)
{
	const struct wf_topo_group *group;
	const struct wf_topo_gpu *gpus;
	char text[2048], pci[WF_TOPO_PCI_BYTES], cores[256];
	size_t at = 0;

	assert_true(index < planned->plan->count);
	group = &planned->plan->groups[index];
	wf_topo_gpus(planned->topo, &gpus);
	for (size_t g = 0; g < group->gpu_count; g++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s ",
				       wf_topo_pci_text(gpus[group->gpus[g]].pci, pci));
	at += (size_t)snprintf(text + at, sizeof(text) - at, "| ");
	for (size_t r = 0; r < group->rail_count; r++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s ", planned->nics[group->rails[r]].name);
	wf_topo_cpus_text(group->cores, group->core_count, cores, sizeof(cores));
	snprintf(text + at, sizeof(text) - at, "| %s | %d", cores, group->worker);
	assert_string_equal(text, expected);
}

const char *check_file(const char *text, size_t bytes)
{
	static char path[32];
	int fd;

	strcpy(path, "/tmp/weft-topo-XXXXXX");
	fd = mkstemp(path);
	if (fd < 0 || write(fd, text, bytes) != (ssize_t)bytes)
		abort();
	close(fd);
	return path;
}
