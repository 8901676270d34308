/* Between xml.c, which reads elements, and xml_object.c, which says what they may be. Nobody else includes
 * this. */
#ifndef WF_TOPO_XML_H
#define WF_TOPO_XML_H

#include <stdio.h>

#include "topo/impl.h"

#define WF_TOPO_XML_DEPTH      64 /* hwloc's own files nest about 20 deep */
#define WF_TOPO_XML_ATTRIBUTES 32

struct wf_topo_xml_word {
	const char *text;
	size_t bytes;
};

struct wf_topo_xml_attribute {
	struct wf_topo_xml_word name, value;
};

/* An open element. Only kept objects have sets. */
struct wf_topo_xml_frame {
	struct wf_topo_xml_word name;
	enum {
		WF_TOPO_XML_LEFT_OUT,
		WF_TOPO_XML_ROOT,
		WF_TOPO_XML_OBJECT,
		WF_TOPO_XML_DEVICE,
		WF_TOPO_XML_SEE_THROUGH
	} kind;
	bool leaf; /* may hold no objects that have cores */
	hwloc_bitmap_t cpus, nodes;
	hwloc_bitmap_t taken; /* CPUs of the children so far */
	int last;             /* the first CPU of the last of them */
};

struct wf_topo_xml {
	const char *path, *text, *at, *end;
	char *error;
	size_t error_bytes;
	FILE *out;
	unsigned depth;
	bool closed; /* the topology ended */
	size_t objects, pus;
	hwloc_bitmap_t nodes; /* NUMA nodes seen */
	size_t attribute_count;
	struct wf_topo_xml_attribute attributes[WF_TOPO_XML_ATTRIBUTES];
	struct wf_topo_xml_frame frames[WF_TOPO_XML_DEPTH];
};

int wf_topo_xml_wrong(const struct wf_topo_xml *xml, const char *what);
bool wf_topo_xml_is(struct wf_topo_xml_word word, const char *wanted);

/* xml_object.c: an element begins (its attributes are in xml), ends; the document ends. */
int wf_topo_xml_element(struct wf_topo_xml *xml, struct wf_topo_xml_frame *frame);
int wf_topo_xml_element_end(struct wf_topo_xml *xml, struct wf_topo_xml_frame *frame);
int wf_topo_xml_finish(struct wf_topo_xml *xml);
void wf_topo_xml_frame_free(struct wf_topo_xml_frame *frame);

#endif
