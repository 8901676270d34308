/* The one table of errors: weft_strerror() and every message to people use it. */
#include "base/error.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define ERRORS(X)                                                                                                      \
	X(EINVAL, "invalid argument", "check the call against weft.h: a pointer, size or field is out of its bounds")  \
	X(EAGAIN, "all transfers are in flight",                                                                       \
	  "take events from your queues and submit again, or raise max_transfers")                                     \
	X(ENOENT, "no such handle, or no such file",                                                                   \
	  "a handle: it was closed, removed or has ended (the log says which); a file: the configuration names it")    \
	X(ENXIO, "no rail is near that GPU or NUMA node",                                                              \
	  "weft topo shows this host's GPUs and NUMA nodes; without WEFT_NEAR_REQUIRED all rails are used")            \
	X(EALREADY, "already done", NULL)                                                                              \
	X(EBUSY, "still in use", "wait for the operations that use it to end, or cancel them")                         \
	X(ERANGE, "outside the region", "the offset, index or length reaches past the registered range")               \
	X(EACCES, "access not granted",                                                                                \
	  "register the region with WEFT_REMOTE_WRITE or _READ; take config.ports above 1023")                         \
	X(ESTALE, "belongs to an earlier incarnation", "the peer restarted or revoked it: exchange blobs again")       \
	X(EHOSTDOWN, "the peer is down", "it died, restarted or cannot be reached; add or replace it when it is back") \
	X(EHOSTUNREACH, "the peer cannot be reached",                                                                  \
	  "no rail of ours reaches a rail of the peer: same provider, same network?")                                  \
	X(ETIMEDOUT, "deadline passed", "raise timeout_ns, or look at the peer and the rails in weft info")            \
	X(ECANCELED, "cancelled", NULL)                                                                                \
	X(ESHUTDOWN, "the engine is closing", NULL)                                                                    \
	X(EPROTO, "not a weft blob", "it is truncated, or something else altogether: pass it on byte for byte")        \
	X(EBADMSG, "damaged", "its checksum does not match: it was changed on the way")                                \
	X(EPROTONOSUPPORT, "made by another version of weft", "run the same release of weft on both sides")            \
	X(ENODEV, "no usable NIC", "weft info lists what there is; weft doctor says why a NIC is not usable")          \
	X(ENOPROTOOPT, "no such provider here",                                                                        \
	  "fi_info -l lists libfabric's providers; weft info those weft can use")                                      \
	X(ENETDOWN, "no rail is up", "every NIC failed; weft keeps trying to reopen them")                             \
	X(EADDRINUSE, "every port of the range is in use",                                                             \
	  "give config.ports a wider range, or end what holds its ports")                                              \
	X(EIO, "the provider reported an error", "see the event's error text")                                         \
	X(EREMOTEIO, "the peer's memory refused the access", "was the region closed or revoked at the peer?")          \
	X(EMSGSIZE, "too large",                                                                                       \
	  "messages are limited by max_message, counted writes by what a rail takes at once; use weft_write for bulk " \
	  "data")                                                                                                      \
	X(EOPNOTSUPP, "not supported by these rails, or by this release",                                              \
	  "weft info shows what the provider offers; a flag may be of a newer weft.h than the library")                \
	X(E2BIG, "uses a field that this library does not have",                                                       \
	  "the program was built with a newer weft.h: install that release of the library, or leave the field 0")      \
	X(ENAMETOOLONG, "name too long", "a peer's name has at most WEFT_PEER_NAME_MAX characters")                    \
	X(ENOTCONN, "no queue listens yet", "open one with WEFT_QUEUE_LISTEN first")                                   \
	X(EMFILE, "too many open files", "raise the limit (ulimit -n), or close queues")                               \
	X(EFBIG, "too many pages for one region", "use huge pages, or register it as several regions")                 \
	X(ENOMEM, "out of memory", "for registrations: raise the locked-memory limit (ulimit -l)")                     \
	X(ENOBUFS, "the buffer is too small", "call again with the size that was returned")                            \
	X(EPERM, "not permitted", NULL)                                                                                \
	X(EMLINK, "too many NICs, peers, regions or remotes", "close or remove those that are not needed")

#define ENTRY(code, text, hint) { code, text, hint },
static const struct {
	int code;
	const char *text, *hint;
} errors[] = { ERRORS(ENTRY) };

static int find(int error)
{
	int code = error < 0 ? -error : error;

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i].code == code)
			return (int)i;
	return -1;
}

const char *wf_error_text(int error)
{
	int i = find(error);
	const char *text;

	if (!error)
		return "done";
	if (i >= 0)
		return errors[i].text;
	text = strerrordesc_np(error < 0 ? -error : error);
	return text ? text : "unknown error";
}

const char *wf_error_hint(int error)
{
	int i = find(error);

	return i < 0 ? NULL : errors[i].hint;
}

void wf_error_explain(struct weft_error *error, int status)
{
	if (!error->text[0])
		snprintf(error->text, sizeof(error->text), "%s", wf_error_text(status));
	error->hint = wf_error_hint(status);
}
