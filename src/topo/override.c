/*
 * A groups file: what the administrator says instead of what the rules find. docs/TOPOLOGY.md describes it.
 *
 *	# one line a group
 *	group gpu=53:00.0 rails=rdmap79s0,rdmap80s0 cores=0-11 worker=1
 *	group numa=1 rails=*
 *
 * Strict: a slip in a file meant to pin down performance must not pass unseen, so every unknown word, name,
 *address, core or double mention is an error with its line, and every NIC must be in a group. Called by
 *wf_topo_plan().
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "topo/impl.h"

#define LINE_MAX_ 16384
#define LINES_MAX 10000

struct parse {
	struct wf_topo_draft *draft;
	const char *path;
	unsigned line, rank;
	int group;
	int rest; /* the group of rails=*, -1: none */
	char *error;
	size_t error_bytes;
};

/* The file may be anything: its control characters must not reach the terminal. */
static int wrong(const struct parse *parse, const char *what, const char *which)
{
	char shown[81];
	size_t length = strnlen(which, sizeof(shown) - 1);

	for (size_t i = 0; i < length; i++)
		shown[i] = which[i] >= ' ' && which[i] <= '~' ? which[i] : '?';
	shown[length] = '\0';
	return wf_topo_fail(-EINVAL, parse->error, parse->error_bytes, "%s:%u: %s '%s'", parse->path, parse->line, what,
			    shown);
}

static int take_gpus(struct parse *parse, char *value)
{
	struct wf_topo_draft *draft = parse->draft;
	const struct wf_topo *topo = draft->topo;

	for (char *item; (item = strsep(&value, ","));) {
		hwloc_obj_t object = NULL;
		size_t g = 0;

		if (wf_topo_find_pci_text(topo, item, &object) == -EINVAL)
			return wrong(parse, "not a PCI address such as 53:00.0:", item);
		while (g < topo->gpu_count && topo->gpu_objects[g] != object)
			g++;
		if (!object || g == topo->gpu_count)
			return wrong(parse, "there is no GPU", item);
		if (draft->gpu_group[g] >= 0)
			return wrong(parse, "this GPU is already in a group:", item);
		draft->gpu_group[g] = parse->group;
	}
	draft->groups[parse->group].memory = WF_TOPO_MEMORY_GPU;
	return 0;
}

static int take_node(struct parse *parse, char *value)
{
	struct wf_topo_draft *draft = parse->draft;
	char *end;
	unsigned long node = strtoul(value, &end, 10);

	if (value[0] < '0' || value[0] > '9' || *end || node > INT32_MAX ||
	    !hwloc_get_numanode_obj_by_os_index(draft->topo->hwloc, (unsigned)node))
		return wrong(parse, "there is no NUMA node", value);
	return hwloc_bitmap_set(draft->groups[parse->group].nodes, (unsigned)node) ? -ENOMEM : 0;
}

static int take_rails(struct parse *parse, char *value)
{
	struct wf_topo_draft *draft = parse->draft;

	if (strcmp(value, "*") == 0) {
		if (parse->rest >= 0)
			return wrong(parse, "only one group can take the rest with", "rails=*");
		parse->rest = parse->group;
		return 0;
	}
	for (char *item; (item = strsep(&value, ","));) {
		size_t n = 0;

		while (n < draft->nic_count && strcmp(draft->nics[n].name, item) != 0)
			n++;
		if (n == draft->nic_count)
			return wrong(parse, "there is no NIC", item);
		if (draft->nic_group[n] >= 0)
			return wrong(parse, "this NIC is already in a group:", item);
		draft->nic_group[n] = parse->group;
		draft->nic_rank[n] = ++parse->rank;
	}
	return 0;
}

static int take_cores(struct parse *parse, char *value)
{
	struct wf_topo_draft_group *group = &parse->draft->groups[parse->group];
	char why[160];
	int rc;

	group->cores = hwloc_bitmap_alloc();
	if (!group->cores)
		return -ENOMEM;
	rc = wf_topo_cpus_parse(value, group->cores, why, sizeof(why));
	if (rc)
		return wf_topo_fail(rc, parse->error, parse->error_bytes, "%s:%u: cores: %s", parse->path, parse->line,
				    why);
	if (!hwloc_bitmap_isincluded(group->cores, parse->draft->allowed))
		return wrong(parse, "this process may not run on all of cores", value);
	return 0;
}

static int take_worker(struct parse *parse, char *value)
{
	struct wf_topo_draft_group *group = &parse->draft->groups[parse->group];
	hwloc_bitmap_t set = hwloc_bitmap_alloc();
	int rc = set ? wf_topo_cpus_parse(value, set, NULL, 0) : -ENOMEM;

	if (rc == -EINVAL || (!rc && hwloc_bitmap_weight(set) != 1))
		rc = wrong(parse, "the worker is one core, not", value);
	else if (!rc && !hwloc_bitmap_isincluded(set, parse->draft->allowed))
		rc = wrong(parse, "this process may not run on core", value);
	else if (!rc)
		group->worker = hwloc_bitmap_first(set);
	hwloc_bitmap_free(set);
	return rc;
}

static const struct {
	const char *key;
	int (*take)(struct parse *parse, char *value);
} keys[] = {
	{ "gpu", take_gpus },    { "numa", take_node },     { "rails", take_rails },
	{ "cores", take_cores }, { "worker", take_worker },
};
#define KEYS      (sizeof(keys) / sizeof(*keys))
#define RAILS_KEY 2

static int take_word(struct parse *parse, char *word, unsigned *seen)
{
	char *value = strchr(word, '=');

	if (!value)
		return wrong(parse, "expected key=value, not", word);
	*value++ = '\0';
	for (size_t k = 0; k < KEYS; k++) {
		if (strcmp(word, keys[k].key) != 0)
			continue;
		if (*seen & 1u << k)
			return wrong(parse, "given twice:", word);
		*seen |= 1u << k;
		return *value ? keys[k].take(parse, value) : wrong(parse, "nothing follows", word);
	}
	return wrong(parse, "the keys are gpu, numa, rails, cores and worker, not", word);
}

static int take_line(struct parse *parse, char *line)
{
	static const char blanks[] = " \t\r\n";
	struct wf_topo_draft_group *group;
	unsigned seen = 0;
	char *word;
	int rc = 0;

	line[strcspn(line, "#")] = '\0';
	line += strspn(line, blanks);
	if (!*line)
		return 0;
	word = strsep(&line, blanks);
	if (strcmp(word, "group") != 0)
		return wrong(parse, "a line starts with 'group', not", word);
	parse->group = wf_topo_draft_add(parse->draft, WF_TOPO_MEMORY_NUMA);
	if (parse->group < 0)
		return parse->group;
	group = &parse->draft->groups[parse->group];
	group->line = parse->line;
	while (!rc && (word = strsep(&line, blanks)))
		rc = *word ? take_word(parse, word, &seen) : 0;
	if (!rc && !(seen & 1u << RAILS_KEY))
		return wrong(parse, "a group needs", "rails=");
	if (!rc && group->cores && group->worker >= 0 && !hwloc_bitmap_isset(group->cores, (unsigned)group->worker))
		return wrong(parse, "the worker is none of the group's", "cores");
	return rc;
}

static int read_lines(struct parse *parse, FILE *file)
{
	size_t room = 0;
	char *line = NULL;
	ssize_t length;
	int rc = 0;

	while (!rc && (length = getline(&line, &room, file)) >= 0) {
		parse->line++;
		if (parse->line > LINES_MAX || length > LINE_MAX_)
			rc = wrong(parse, "this is no groups file:", "too long");
		else if (memchr(line, '\0', (size_t)length))
			rc = wrong(parse, "this is no groups file:", "binary");
		else
			rc = take_line(parse, line);
	}
	if (!rc && ferror(file))
		rc = wf_topo_fail(-EIO, parse->error, parse->error_bytes, "%s: cannot be read", parse->path);
	free(line);
	return rc;
}

/* Every NIC has one owner: a file that forgets one is wrong, unless a group takes the rest. */
static int settle(struct parse *parse)
{
	struct wf_topo_draft *draft = parse->draft;

	for (size_t n = 0; n < draft->nic_count; n++) {
		if (draft->nic_group[n] >= 0)
			continue;
		if (parse->rest < 0)
			return wf_topo_fail(-EINVAL, parse->error, parse->error_bytes,
					    "%s: NIC '%s' is in no group; name it, or say rails=* in one", parse->path,
					    draft->nics[n].name);
		draft->nic_group[n] = parse->rest;
		draft->nic_rank[n] = parse->rank + 1;
	}
	for (size_t i = 0; i < draft->group_count; i++) {
		size_t rails = 0;

		for (size_t n = 0; n < draft->nic_count; n++)
			rails += draft->nic_group[n] == (int)i;
		if (rails)
			continue;
		parse->line = draft->groups[i].line;
		return wrong(parse, "no NIC is left for", "rails=*");
	}
	return 0;
}

int wf_topo_group_by_file(struct wf_topo_draft *draft, const char *path, char *error, size_t error_bytes)
{
	struct parse parse = { .draft = draft, .path = path, .rest = -1, .error = error, .error_bytes = error_bytes };
	FILE *file = fopen(path, "re");
	struct stat st;
	int rc;

	if (!file)
		return wf_topo_fail(-errno, error, error_bytes, "%s: %s", path, strerror(errno));
	if (fstat(fileno(file), &st) || !S_ISREG(st.st_mode))
		rc = wf_topo_fail(-EINVAL, error, error_bytes, "%s: not a file", path);
	else
		rc = read_lines(&parse, file);
	fclose(file);
	if (!rc && !draft->group_count)
		rc = wf_topo_fail(-EINVAL, error, error_bytes, "%s: it has no group", path);
	if (!rc)
		rc = settle(&parse);
	if (rc == -ENOMEM)
		wf_topo_fail(rc, error, error_bytes, "out of memory");
	if (!rc)
		wf_topo_draft_find_nodes(draft);
	return rc;
}
