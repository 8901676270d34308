/*
 * What a saved topology may say. Each object that hwloc will see has sets that lie within its parent's and
 * apart from its siblings', one PU or node where it says so, and facts that are numbers where numbers belong;
 * then it is written to the clean document. Called by xml.c.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "topo/xml.h"

#define INDEX_MAX   (1u << 16)
#define SET_MAX     (INDEX_MAX / 4 + INDEX_MAX / 16) /* "0x12345678," for each 32 */
#define OBJECTS_MAX 200000
#define TEXT_MAX    512

static const struct wf_topo_xml_word *find(const struct wf_topo_xml *xml, const char *name)
{
	for (size_t i = 0; i < xml->attribute_count; i++)
		if (wf_topo_xml_is(xml->attributes[i].name, name))
			return &xml->attributes[i].value;
	return NULL;
}

/* All of these letters, and not too many. */
static bool made_of(const struct wf_topo_xml_word *word, const char *letters, size_t most)
{
	if (!word->bytes || word->bytes > most)
		return false;
	for (size_t i = 0; i < word->bytes; i++)
		if (!strchr(letters, word->text[i]))
			return false;
	return true;
}

static int take_set(struct wf_topo_xml *xml, const char *name, hwloc_bitmap_t *ret_set)
{
	const struct wf_topo_xml_word *word = find(xml, name);
	char *text;
	int rc;

	if (!word)
		return wf_topo_xml_wrong(xml, "an object lacks a set of CPUs or nodes");
	/* hwloc asserts that a set does not start with a comma. */
	if (!made_of(word, "0123456789abcdefABCDEFx,", SET_MAX) || word->text[0] == ',')
		return wf_topo_xml_wrong(xml, "a set of CPUs or nodes is not one, or has no end");
	text = strndup(word->text, word->bytes);
	if (!*ret_set)
		*ret_set = hwloc_bitmap_alloc();
	rc = text && *ret_set ? hwloc_bitmap_sscanf(*ret_set, text) : -1;
	free(text);
	if (rc || hwloc_bitmap_last(*ret_set) >= (int)INDEX_MAX || hwloc_bitmap_weight(*ret_set) < 0)
		return wf_topo_xml_wrong(xml, "a set of CPUs or nodes is not one");
	return 0;
}

static void put(struct wf_topo_xml *xml, const char *name, const struct wf_topo_xml_word *value)
{
	/* A value in single quotes may hold double ones; bytes that may not be UTF-8 end up in our JSON. */
	fprintf(xml->out, " %s=\"", name);
	for (size_t i = 0; i < value->bytes; i++) {
		if (value->text[i] == '"')
			fputs("&quot;", xml->out);
		else
			fputc((unsigned char)value->text[i] < 0x80 ? value->text[i] : '?', xml->out);
	}
	fputc('"', xml->out);
}

static void put_set(struct wf_topo_xml *xml, const char *name, hwloc_const_bitmap_t set)
{
	char *text = NULL;

	if (hwloc_bitmap_asprintf(&text, set) >= 0 && text)
		fprintf(xml->out, " %s=\"%s\"", name, text);
	free(text);
}

/* Facts that are copied when they are there, and what they are made of. */
static int put_facts(struct wf_topo_xml *xml)
{
	static const struct {
		const char *name, *letters;
		size_t most;
	} facts[] = {
		{ "os_index", "0123456789", 5 },
		{ "name", NULL, TEXT_MAX },
		{ "subtype", NULL, TEXT_MAX },
		{ "local_memory", "0123456789", 19 },
		{ "bridge_pci", "0123456789abcdefABCDEF:[-]", 24 },
		{ "pci_busid", "0123456789abcdefABCDEF:.", 24 },
		{ "pci_type", "0123456789abcdefABCDEF:[] ", 48 },
		{ "pci_link_speed", "0123456789.", 24 },
	};

	for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++) {
		const struct wf_topo_xml_word *value = find(xml, facts[i].name);

		if (!value)
			continue;
		if (facts[i].letters ? !made_of(value, facts[i].letters, facts[i].most) : value->bytes > facts[i].most)
			return wf_topo_xml_wrong(xml, "an object's fact (os_index, name, PCI address, …) is not one");
		put(xml, facts[i].name, value);
	}
	return 0;
}

/* The nearest open element that is written: objects that are seen through do not count. */
static struct wf_topo_xml_frame *parent_of(struct wf_topo_xml *xml)
{
	for (unsigned i = xml->depth; i > 0; i--)
		if (xml->frames[i - 1].kind != WF_TOPO_XML_SEE_THROUGH)
			return &xml->frames[i - 1];
	return NULL;
}

static int start_root(struct wf_topo_xml *xml, struct wf_topo_xml_frame *frame)
{
	const struct wf_topo_xml_word *version = find(xml, "version");
	char *end;
	unsigned long major;

	if (!version)
		return wf_topo_xml_wrong(xml, "written by hwloc 1.x; save it again with this host's lstopo");
	major = strtoul(version->text, &end, 10);
	if (end == version->text || *end != '.')
		return wf_topo_xml_wrong(xml, "the topology's version is not a number");
	if (major != 2)
		return wf_topo_xml_wrong(xml, "written by another hwloc than 2.x; save it again with lstopo 2");
	frame->kind = WF_TOPO_XML_ROOT;
	fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
	      "<topology version=\"2.0\">\n",
	      xml->out);
	return 0;
}

/* A PU's set is its own index, a node's set of nodes its own: hwloc counts on both. */
static int check_single(struct wf_topo_xml *xml, hwloc_const_bitmap_t set)
{
	const struct wf_topo_xml_word *index = find(xml, "os_index");

	if (!index || !made_of(index, "0123456789", 5) || hwloc_bitmap_weight(set) != 1 ||
	    hwloc_bitmap_first(set) != atoi(index->text))
		return wf_topo_xml_wrong(xml, "the os_index of a PU or node is not that of its set");
	return 0;
}

static int check_sets(struct wf_topo_xml *xml, struct wf_topo_xml_frame *frame, struct wf_topo_xml_frame *parent,
		      bool is_node)
{
	if (take_set(xml, "cpuset", &frame->cpus) || take_set(xml, "nodeset", &frame->nodes))
		return -EINVAL;
	frame->taken = hwloc_bitmap_alloc();
	if (!frame->taken)
		return wf_topo_xml_wrong(xml, "out of memory");
	if (hwloc_bitmap_iszero(is_node ? frame->nodes : frame->cpus))
		return wf_topo_xml_wrong(xml, "an object has no CPU or node");
	if (parent->kind != WF_TOPO_XML_OBJECT)
		return 0;
	if (!hwloc_bitmap_isincluded(frame->cpus, parent->cpus) ||
	    !hwloc_bitmap_isincluded(frame->nodes, parent->nodes))
		return wf_topo_xml_wrong(xml, "an object's set is not within its parent's");
	if (is_node)
		return 0;
	if (hwloc_bitmap_intersects(frame->cpus, parent->taken))
		return wf_topo_xml_wrong(xml, "two objects have a CPU in common");
	if (!hwloc_bitmap_iszero(parent->taken) && hwloc_bitmap_first(frame->cpus) < parent->last)
		return wf_topo_xml_wrong(xml, "objects are not in the order of their CPUs");
	parent->last = hwloc_bitmap_first(frame->cpus);
	return hwloc_bitmap_or(parent->taken, parent->taken, frame->cpus) ? wf_topo_xml_wrong(xml, "out of memory") : 0;
}

static int start_object(struct wf_topo_xml *xml, struct wf_topo_xml_frame *frame, struct wf_topo_xml_frame *parent,
			const char *type)
{
	bool is_node = strcmp(type, "NUMANode") == 0, is_pu = strcmp(type, "PU") == 0;
	bool is_machine = strcmp(type, "Machine") == 0;
	int rc;

	if (is_machine ? parent->kind != WF_TOPO_XML_ROOT || xml->objects
		       : parent->kind != WF_TOPO_XML_OBJECT || parent->leaf)
		return wf_topo_xml_wrong(xml, "an object is where none of its kind can be");
	frame->kind = WF_TOPO_XML_OBJECT;
	frame->leaf = is_node || is_pu;
	rc = check_sets(xml, frame, parent, is_node);
	if (!rc && (is_pu || is_node))
		rc = check_single(xml, is_pu ? frame->cpus : frame->nodes);
	if (rc)
		return rc;
	if (is_node && hwloc_bitmap_isset(xml->nodes, (unsigned)hwloc_bitmap_first(frame->nodes)))
		return wf_topo_xml_wrong(xml, "a NUMA node is there twice");
	if (is_node)
		hwloc_bitmap_set(xml->nodes, (unsigned)hwloc_bitmap_first(frame->nodes));
	xml->pus += is_pu;
	xml->objects++;
	fprintf(xml->out, "<object type=\"%s\"", type);
	/* Whatever was complete or forbidden on that host, we plan for what is there. */
	put_set(xml, "cpuset", frame->cpus);
	put_set(xml, "complete_cpuset", frame->cpus);
	put_set(xml, "nodeset", frame->nodes);
	put_set(xml, "complete_nodeset", frame->nodes);
	if (strcmp(type, "Group") == 0)
		fputs(" kind=\"0\" subkind=\"0\"", xml->out);
	rc = put_facts(xml);
	fputs(">\n", xml->out);
	return rc;
}

static int start_device(struct wf_topo_xml *xml, struct wf_topo_xml_frame *frame, struct wf_topo_xml_frame *parent,
			const char *type)
{
	const char *needed = strcmp(type, "Bridge") == 0   ? "bridge_type"
			     : strcmp(type, "PCIDev") == 0 ? "pci_busid"
							   : "osdev_type";
	const struct wf_topo_xml_word *word = find(xml, needed);
	bool is_bridge = strcmp(type, "Bridge") == 0, is_os = strcmp(type, "OSDev") == 0;
	int rc;

	if ((parent->kind != WF_TOPO_XML_OBJECT && parent->kind != WF_TOPO_XML_DEVICE) || !xml->objects || parent->leaf)
		return wf_topo_xml_wrong(xml, "a device is where none can be");
	if (!word || (is_bridge && !wf_topo_xml_is(*word, "0-1") && !wf_topo_xml_is(*word, "1-1")) ||
	    (is_os && !made_of(word, "0123456", 1)))
		return wf_topo_xml_wrong(xml, "a device does not say what it is");
	if (is_bridge && (!find(xml, "bridge_pci") || (wf_topo_xml_is(*word, "1-1") && !find(xml, "pci_busid"))))
		return wf_topo_xml_wrong(xml, "a bridge does not say where it is");
	frame->kind = WF_TOPO_XML_DEVICE;
	frame->leaf = is_os;
	xml->objects++;
	fprintf(xml->out, "<object type=\"%s\"", type);
	if (is_bridge)
		put(xml, "bridge_type", word);
	if (is_bridge)
		fprintf(xml->out, " depth=\"%u\"", xml->depth % 16);
	if (is_os)
		put(xml, "osdev_type", word);
	rc = put_facts(xml);
	fputs(">\n", xml->out);
	return rc;
}

static int take_object(struct wf_topo_xml *xml, struct wf_topo_xml_frame *frame, struct wf_topo_xml_frame *parent)
{
	static const char *const kept[] = { "Machine", "Package", "Die", "Group", "NUMANode", "Core", "PU" };
	static const char *const devices[] = { "Bridge", "PCIDev", "OSDev" };
	const struct wf_topo_xml_word *type = find(xml, "type");

	if (!type)
		return wf_topo_xml_wrong(xml, "an object has no type");
	if (xml->objects >= OBJECTS_MAX)
		return wf_topo_xml_wrong(xml, "too many objects");
	for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++)
		if (wf_topo_xml_is(*type, kept[i]))
			return start_object(xml, frame, parent, kept[i]);
	for (size_t i = 0; i < sizeof(devices) / sizeof(*devices); i++)
		if (wf_topo_xml_is(*type, devices[i]))
			return start_device(xml, frame, parent, devices[i]);
	if (!xml->objects)
		return wf_topo_xml_wrong(xml, "the first object is not the machine");
	/* A cache: what is under it matters. Its own devices, which are as near to its cores as to its
	 * parent's, too. */
	frame->kind = WF_TOPO_XML_SEE_THROUGH;
	return 0;
}

int wf_topo_xml_element(struct wf_topo_xml *xml, struct wf_topo_xml_frame *frame)
{
	struct wf_topo_xml_frame *parent = parent_of(xml);
	const struct wf_topo_xml_word *name, *value;

	if (!parent)
		return start_root(xml, frame);
	if (parent->kind == WF_TOPO_XML_LEFT_OUT)
		return 0;
	if (wf_topo_xml_is(frame->name, "object"))
		return take_object(xml, frame, parent);
	name = find(xml, "name");
	value = find(xml, "value");
	if (!wf_topo_xml_is(frame->name, "info") || parent->kind == WF_TOPO_XML_ROOT || !name || !value ||
	    xml->frames[xml->depth - 1].kind == WF_TOPO_XML_SEE_THROUGH || name->bytes > TEXT_MAX ||
	    value->bytes > TEXT_MAX)
		return 0;
	fputs("<info", xml->out);
	put(xml, "name", name);
	put(xml, "value", value);
	fputs("/>\n", xml->out);
	return 0;
}

int wf_topo_xml_element_end(struct wf_topo_xml *xml, struct wf_topo_xml_frame *frame)
{
	int rc = 0;

	if (frame->kind == WF_TOPO_XML_OBJECT || frame->kind == WF_TOPO_XML_DEVICE)
		fputs("</object>\n", xml->out);
	else if (frame->kind == WF_TOPO_XML_ROOT)
		fputs("</topology>\n", xml->out);
	if (frame->kind == WF_TOPO_XML_OBJECT && !frame->leaf && hwloc_bitmap_iszero(frame->taken))
		rc = wf_topo_xml_wrong(xml, "an object has CPUs but none of them is in it");
	wf_topo_xml_frame_free(frame);
	return rc;
}

int wf_topo_xml_finish(struct wf_topo_xml *xml)
{
	if (!xml->pus || hwloc_bitmap_iszero(xml->nodes))
		return wf_topo_xml_wrong(xml, "hwloc could make no sense of it: no CPU, or no NUMA node");
	return 0;
}

void wf_topo_xml_frame_free(struct wf_topo_xml_frame *frame)
{
	hwloc_bitmap_free(frame->cpus);
	hwloc_bitmap_free(frame->nodes);
	hwloc_bitmap_free(frame->taken);
	frame->cpus = frame->nodes = frame->taken = NULL;
}
