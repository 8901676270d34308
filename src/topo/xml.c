/*
 * Reads a saved topology and checks its shape before hwloc sees it.
 *
 * hwloc's readers follow elements by recursion and trust numbers they are given: a file of nested elements
 * overruns the stack, an absurd index takes gigabytes. So whatever is not a small, balanced hwloc 2 document
 * stops here, with a line number. Called by wf_topo_open(), any thread.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topo/impl.h"

#define FILE_MAX  (32u << 20)
#define DEPTH_MAX 64 /* hwloc's own files nest about 20 deep */
#define INDEX_MAX (1u << 16)
#define NAME_MAX_ 32

struct scan {
	const char *path, *text, *at, *end;
	char *error;
	size_t error_bytes;
	unsigned depth;
	bool rooted, closed; /* the root was opened, was closed */
	struct {
		const char *name;
		size_t bytes;
	} stack[DEPTH_MAX];
};

static int wrong(const struct scan *scan, const char *what)
{
	unsigned line = 1;

	for (const char *p = scan->text; p < scan->at && p < scan->end; p++)
		line += *p == '\n';
	return wf_topo_fail(-EINVAL, scan->error, scan->error_bytes, "%s:%u: %s", scan->path, line, what);
}

static bool starts(const struct scan *scan, const char *with)
{
	size_t bytes = strlen(with);

	return (size_t)(scan->end - scan->at) >= bytes && memcmp(scan->at, with, bytes) == 0;
}

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_blanks(struct scan *scan)
{
	while (scan->at < scan->end && blank(*scan->at))
		scan->at++;
}

static size_t take_name(struct scan *scan, const char **ret_name)
{
	const char *from = scan->at;

	while (scan->at < scan->end &&
	       ((*scan->at >= 'a' && *scan->at <= 'z') || (*scan->at >= 'A' && *scan->at <= 'Z') ||
		(*scan->at >= '0' && *scan->at <= '9') || *scan->at == '_'))
		scan->at++;
	*ret_name = from;
	return (size_t)(scan->at - from);
}

static bool is(const char *name, size_t bytes, const char *wanted)
{
	return bytes == strlen(wanted) && memcmp(name, wanted, bytes) == 0;
}

static bool has_suffix(const char *name, size_t bytes, const char *suffix)
{
	size_t n = strlen(suffix);

	return bytes >= n && memcmp(name + bytes - n, suffix, n) == 0;
}

static int check_version(struct scan *scan, const char *value)
{
	char *end;
	unsigned long major = strtoul(value, &end, 10);

	if (end == value || *end != '.')
		return wrong(scan, "the topology's version is not a number");
	if (major < 2 || major > HWLOC_API_VERSION >> 16)
		return wrong(scan,
			     "written by another hwloc than 2.x; save it again with this host's lstopo");
	return 0;
}

/* Only what hwloc would turn into memory or loops: indices and sets. */
static int check_attribute(struct scan *scan, const char *name, size_t name_bytes, const char *value,
			   size_t bytes)
{
	if (is(name, name_bytes, "os_index")) {
		char *end;
		unsigned long index = strtoul(value, &end, 10);

		if (end == value || end != value + bytes || index >= INDEX_MAX)
			return wrong(scan, "an os_index is no number or is too large");
	}
	if (has_suffix(name, name_bytes, "cpuset") || has_suffix(name, name_bytes, "nodeset")) {
		if (bytes > INDEX_MAX / 4 + INDEX_MAX / 32)
			return wrong(scan, "a set of CPUs or nodes is too long");
		for (size_t i = 0; i < bytes; i++)
			if (!strchr("0123456789abcdefABCDEFx,", value[i]))
				return wrong(scan, "a set of CPUs or nodes is not one, or has no end");
	}
	return 0;
}

static int take_attribute(struct scan *scan, bool root, bool *has_version)
{
	const char *name, *value;
	size_t name_bytes = take_name(scan, &name);
	char quote;

	if (!name_bytes || scan->at == scan->end || *scan->at++ != '=' || scan->at == scan->end)
		return wrong(scan, "an attribute is not name=\"value\"");
	quote = *scan->at++;
	if (quote != '"' && quote != '\'')
		return wrong(scan, "an attribute's value is not quoted");
	value = scan->at;
	while (scan->at < scan->end && *scan->at != quote && *scan->at != '<') {
		/* Names are printed to terminals. */
		if (iscntrl((unsigned char)*scan->at) && !blank(*scan->at))
			return wrong(scan, "a control character");
		scan->at++;
	}
	if (scan->at == scan->end || *scan->at != quote)
		return wrong(scan, "an attribute's value has no end");
	if (root && is(name, name_bytes, "version")) {
		*has_version = true;
		if (check_version(scan, value))
			return -EINVAL;
	}
	if (check_attribute(scan, name, name_bytes, value, (size_t)(scan->at - value)))
		return -EINVAL;
	scan->at++;
	return 0;
}

static int close_element(struct scan *scan)
{
	const char *name;
	size_t bytes;

	scan->at += 2;
	bytes = take_name(scan, &name);
	skip_blanks(scan);
	if (!scan->depth || scan->stack[scan->depth - 1].bytes != bytes ||
	    memcmp(scan->stack[scan->depth - 1].name, name, bytes) != 0)
		return wrong(scan, "an element is closed that was not open");
	if (scan->at == scan->end || *scan->at++ != '>')
		return wrong(scan, "an element's end is cut off");
	scan->depth--;
	scan->closed = !scan->depth;
	return 0;
}

static int open_element(struct scan *scan)
{
	const char *name;
	bool root = !scan->depth, has_version = false;
	size_t bytes;

	scan->at++;
	bytes = take_name(scan, &name);
	if (!bytes || bytes > NAME_MAX_)
		return wrong(scan, "this is not XML");
	if (root && scan->closed)
		return wrong(scan, "something follows the topology");
	if (root && !is(name, bytes, "topology"))
		return wrong(scan, "this is XML but no hwloc topology");
	if (scan->depth == DEPTH_MAX)
		return wrong(scan, "elements are nested too deep");
	scan->stack[scan->depth].name = name;
	scan->stack[scan->depth++].bytes = bytes;
	scan->rooted = true;
	for (;;) {
		skip_blanks(scan);
		if (scan->at == scan->end)
			return wrong(scan, "the file is cut off");
		if (*scan->at == '>' || starts(scan, "/>"))
			break;
		if (take_attribute(scan, root, &has_version))
			return -EINVAL;
	}
	if (root && !has_version)
		return wrong(scan, "written by hwloc 1.x; save it again with this host's lstopo");
	if (*scan->at == '/') {
		scan->at++;
		scan->depth--;
		scan->closed = !scan->depth;
	}
	scan->at++;
	return 0;
}

static int skip_past(struct scan *scan, const char *end)
{
	const char *found = memmem(scan->at, (size_t)(scan->end - scan->at), end, strlen(end));

	if (!found)
		return wrong(scan, "the file is cut off");
	scan->at = found + strlen(end);
	return 0;
}

static int take_markup(struct scan *scan)
{
	if (starts(scan, "<?"))
		return skip_past(scan, "?>");
	if (starts(scan, "<!--"))
		return skip_past(scan, "-->");
	if (starts(scan, "<!DOCTYPE") && !scan->rooted) {
		const char *from = scan->at;
		int rc = skip_past(scan, ">");

		/* An internal subset could define entities that grow without end. */
		return !rc && memchr(from, '[', (size_t)(scan->at - from))
			   ? wrong(scan, "its DOCTYPE defines things")
			   : rc;
	}
	if (starts(scan, "<!"))
		return wrong(scan, "this kind of XML is not what hwloc writes");
	return starts(scan, "</") ? close_element(scan) : open_element(scan);
}

static int scan_all(struct scan *scan)
{
	while (scan->at < scan->end) {
		int rc = 0;

		if (*scan->at == '<')
			rc = take_markup(scan);
		else if (!scan->depth && !blank(*scan->at))
			rc = wrong(scan, "this is not XML");
		else
			scan->at++;
		if (rc)
			return rc;
	}
	if (!scan->closed)
		return wrong(scan, scan->rooted ? "the file is cut off" : "this is not XML");
	return 0;
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
		rc = wf_topo_fail(-E2BIG, error, error_bytes, "%s: too large for a topology (limit %u MiB)",
				  path, FILE_MAX >> 20);
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

int wf_topo_xml_read(const char *path, char **ret_text, size_t *ret_bytes, char *error, size_t error_bytes)
{
	struct scan scan = { .path = path, .error = error, .error_bytes = error_bytes };
	size_t bytes = 0;
	char *text = NULL;
	int rc = slurp(path, &text, &bytes, error, error_bytes);

	if (rc)
		return rc;
	scan.text = scan.at = text;
	scan.end = text + bytes;
	if (!bytes)
		rc = wf_topo_fail(-EINVAL, error, error_bytes, "%s: the file is empty", path);
	else if (memchr(text, '\0', bytes))
		rc = wf_topo_fail(-EINVAL, error, error_bytes, "%s: this is not XML but binary", path);
	else
		rc = scan_all(&scan);
	if (rc) {
		free(text);
		return rc;
	}
	*ret_text = text;
	*ret_bytes = bytes;
	return 0;
}
