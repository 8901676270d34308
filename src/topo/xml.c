/*
 * Reads a saved topology and writes it anew for hwloc.
 *
 * hwloc trusts the XML it is given: an object without a cpuset, or thousands of them nested, ends the
 * process. So the file is read here, strictly and within limits; xml_object.c checks what is kept (objects
 * and their facts) and writes a clean document; everything else in the file (distances, memory attributes,
 * user data) is left behind. Called by wf_topo_open(), any thread.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topo/xml.h"

#define FILE_MAX (32u << 20)

int wf_topo_xml_wrong(const struct wf_topo_xml *xml, const char *what)
{
	unsigned line = 1;

	for (const char *p = xml->text; p < xml->at && p < xml->end; p++)
		line += *p == '\n';
	return wf_topo_fail(-EINVAL, xml->error, xml->error_bytes, "%s:%u: %s", xml->path, line, what);
}

bool wf_topo_xml_is(struct wf_topo_xml_word word, const char *wanted)
{
	return word.bytes == strlen(wanted) && memcmp(word.text, wanted, word.bytes) == 0;
}

static bool starts(const struct wf_topo_xml *xml, const char *with)
{
	size_t bytes = strlen(with);

	return (size_t)(xml->end - xml->at) >= bytes && memcmp(xml->at, with, bytes) == 0;
}

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_blanks(struct wf_topo_xml *xml)
{
	while (xml->at < xml->end && blank(*xml->at))
		xml->at++;
}

static struct wf_topo_xml_word take_name(struct wf_topo_xml *xml)
{
	const char *from = xml->at;

	while (xml->at < xml->end && (isalnum((unsigned char)*xml->at) || *xml->at == '_'))
		xml->at++;
	return (struct wf_topo_xml_word){ from, (size_t)(xml->at - from) };
}

static int take_attribute(struct wf_topo_xml *xml)
{
	struct wf_topo_xml_attribute *attribute = &xml->attributes[xml->attribute_count];
	char quote;

	if (xml->attribute_count == WF_TOPO_XML_ATTRIBUTES)
		return wf_topo_xml_wrong(xml, "an element has too many attributes");
	attribute->name = take_name(xml);
	if (!attribute->name.bytes || xml->at == xml->end || *xml->at++ != '=' || xml->at == xml->end)
		return wf_topo_xml_wrong(xml, "an attribute is not name=\"value\"");
	quote = *xml->at++;
	if (quote != '"' && quote != '\'')
		return wf_topo_xml_wrong(xml, "an attribute's value is not quoted");
	attribute->value.text = xml->at;
	while (xml->at < xml->end && *xml->at != quote && *xml->at != '<') {
		/* Names are printed to terminals. */
		if (iscntrl((unsigned char)*xml->at) && !blank(*xml->at))
			return wf_topo_xml_wrong(xml, "a control character");
		xml->at++;
	}
	if (xml->at == xml->end || *xml->at != quote)
		return wf_topo_xml_wrong(xml, "an attribute's value has no end");
	attribute->value.bytes = (size_t)(xml->at - attribute->value.text);
	xml->attribute_count++;
	xml->at++;
	return 0;
}

static int pop(struct wf_topo_xml *xml)
{
	xml->depth--;
	xml->closed = !xml->depth;
	return wf_topo_xml_element_end(xml, &xml->frames[xml->depth]);
}

static int close_element(struct wf_topo_xml *xml)
{
	struct wf_topo_xml_word name, open;

	xml->at += 2;
	name = take_name(xml);
	skip_blanks(xml);
	open = xml->depth ? xml->frames[xml->depth - 1].name : (struct wf_topo_xml_word){ "", 0 };
	if (!xml->depth || open.bytes != name.bytes || memcmp(open.text, name.text, name.bytes) != 0)
		return wf_topo_xml_wrong(xml, "an element is closed that was not open");
	if (xml->at == xml->end || *xml->at++ != '>')
		return wf_topo_xml_wrong(xml, "an element's end is cut off");
	return pop(xml);
}

static int open_element(struct wf_topo_xml *xml)
{
	struct wf_topo_xml_word name;
	bool empty;
	int rc;

	xml->at++;
	name = take_name(xml);
	if (!name.bytes)
		return wf_topo_xml_wrong(xml, "this is not XML");
	if (!xml->depth && xml->closed)
		return wf_topo_xml_wrong(xml, "something follows the topology");
	if (!xml->depth && !wf_topo_xml_is(name, "topology"))
		return wf_topo_xml_wrong(xml, "this is XML but no hwloc topology");
	if (xml->depth == WF_TOPO_XML_DEPTH)
		return wf_topo_xml_wrong(xml, "elements are nested too deep");
	xml->attribute_count = 0;
	for (;;) {
		skip_blanks(xml);
		if (xml->at == xml->end)
			return wf_topo_xml_wrong(xml, "the file is cut off");
		if (*xml->at == '>' || starts(xml, "/>"))
			break;
		if (take_attribute(xml))
			return -EINVAL;
	}
	empty = *xml->at == '/';
	xml->at += empty ? 2 : 1;
	xml->frames[xml->depth] = (struct wf_topo_xml_frame){ .name = name };
	rc = wf_topo_xml_element(xml, &xml->frames[xml->depth]);
	xml->depth++;
	return rc || !empty ? rc : pop(xml);
}

static int skip_past(struct wf_topo_xml *xml, const char *end)
{
	const char *found = memmem(xml->at, (size_t)(xml->end - xml->at), end, strlen(end));

	if (!found)
		return wf_topo_xml_wrong(xml, "the file is cut off");
	xml->at = found + strlen(end);
	return 0;
}

static int take_markup(struct wf_topo_xml *xml)
{
	if (starts(xml, "<?"))
		return skip_past(xml, "?>");
	if (starts(xml, "<!--"))
		return skip_past(xml, "-->");
	if (starts(xml, "<!DOCTYPE") && !xml->depth && !xml->closed) {
		const char *from = xml->at;
		int rc = skip_past(xml, ">");

		/* An internal subset could define entities that grow without end. */
		return !rc && memchr(from, '[', (size_t)(xml->at - from))
			   ? wf_topo_xml_wrong(xml, "its DOCTYPE defines things")
			   : rc;
	}
	if (starts(xml, "<!"))
		return wf_topo_xml_wrong(xml, "this kind of XML is not what hwloc writes");
	return starts(xml, "</") ? close_element(xml) : open_element(xml);
}

static int scan_all(struct wf_topo_xml *xml)
{
	while (xml->at < xml->end) {
		int rc = 0;

		if (*xml->at == '<')
			rc = take_markup(xml);
		else if (!xml->depth && !blank(*xml->at))
			rc = wf_topo_xml_wrong(xml, "this is not XML");
		else
			xml->at++;
		if (rc)
			return rc;
	}
	if (!xml->closed)
		return wf_topo_xml_wrong(xml, xml->depth ? "the file is cut off" : "this is not XML");
	return wf_topo_xml_finish(xml);
}

static int slurp(const char *path, char **ret_text, size_t *ret_bytes, char *error, size_t error_bytes)
{
	/* Not to hang on a pipe somebody named by mistake. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	char *text = NULL;
	size_t got = 0;
	ssize_t n = 1;
	int rc = 0;

	if (fd < 0)
		return wf_topo_fail(-errno, error, error_bytes, "%s: %s", path, strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		rc = wf_topo_fail(-EINVAL, error, error_bytes, "%s: not a file", path);
	else if (st.st_size > FILE_MAX)
		rc = wf_topo_fail(-E2BIG, error, error_bytes, "%s: too large for a topology (limit %u MiB)", path,
				  FILE_MAX >> 20);
	else if (!(text = malloc((size_t)st.st_size + 1)))
		rc = wf_topo_fail(-ENOMEM, error, error_bytes, "out of memory");
	while (!rc && n > 0 && got < (size_t)st.st_size) {
		n = read(fd, text + got, (size_t)st.st_size - got);
		if (n < 0 && errno != EINTR)
			rc = wf_topo_fail(-errno, error, error_bytes, "%s: %s", path, strerror(errno));
		got += n > 0 ? (size_t)n : 0;
		n = n < 0 ? 1 : n;
	}
	close(fd);
	if (rc) {
		free(text);
		return rc;
	}
	text[got] = '\0';
	*ret_text = text;
	*ret_bytes = got;
	return 0;
}

/* Scans text into a new document. */
static int rewrite(struct wf_topo_xml *xml, char **ret_text, size_t *ret_bytes)
{
	char *clean = NULL;
	size_t bytes = 0;
	int rc;

	xml->nodes = hwloc_bitmap_alloc();
	xml->out = open_memstream(&clean, &bytes);
	if (!xml->nodes || !xml->out)
		rc = wf_topo_fail(-ENOMEM, xml->error, xml->error_bytes, "out of memory");
	else
		rc = scan_all(xml);
	/* The frame being opened when something went wrong stands at depth itself. */
	for (unsigned i = 0; i <= xml->depth && i < WF_TOPO_XML_DEPTH; i++)
		wf_topo_xml_frame_free(&xml->frames[i]);
	hwloc_bitmap_free(xml->nodes);
	if (xml->out && (ferror(xml->out) | fclose(xml->out)) && !rc)
		rc = wf_topo_fail(-ENOMEM, xml->error, xml->error_bytes, "out of memory");
	if (rc) {
		free(clean);
		return rc;
	}
	*ret_text = clean;
	*ret_bytes = bytes;
	return 0;
}

int wf_topo_xml_read(const char *path, char **ret_text, size_t *ret_bytes, char *error, size_t error_bytes)
{
	struct wf_topo_xml *xml = calloc(1, sizeof(*xml));
	size_t bytes = 0;
	char *text = NULL;
	int rc = xml ? slurp(path, &text, &bytes, error, error_bytes)
		     : wf_topo_fail(-ENOMEM, error, error_bytes, "out of memory");

	if (rc) {
		free(xml);
		return rc;
	}
	xml->path = path;
	xml->error = error;
	xml->error_bytes = error_bytes;
	xml->text = xml->at = text;
	xml->end = text + bytes;
	if (!bytes)
		rc = wf_topo_fail(-EINVAL, error, error_bytes, "%s: the file is empty", path);
	else if (memchr(text, '\0', bytes))
		rc = wf_topo_fail(-EINVAL, error, error_bytes, "%s: this is not XML but binary", path);
	else
		rc = rewrite(xml, ret_text, ret_bytes);
	free(text);
	free(xml);
	return rc;
}
