/* Records into and out of a pipe; pipe.h says what it is. */
#include "local/pipe.h"
#include "base/hot.h"

#include <errno.h>
#include <string.h>

#define HEADER sizeof(struct wf_record)

/* Two engines of one process map a pipe at two addresses, so ThreadSanitizer sees no connection between its sides. This one is
 * between all pipes: what a reader has seen was written before. */
#if defined(__SANITIZE_THREAD__)
void __tsan_acquire(void *address);
void __tsan_release(void *address);
static char any_pipe;
#define TELL_SANITIZER_PUT()  __tsan_release(&any_pipe)
#define TELL_SANITIZER_SEEN() __tsan_acquire(&any_pipe)
#else
#define TELL_SANITIZER_PUT()  ((void)0)
#define TELL_SANITIZER_SEEN() ((void)0)
#endif

static uint64_t room_of(const struct wf_record *record)
{
	return HEADER + (((uint64_t)record->bytes + 7) & ~UINT64_C(7));
}

/* Positions are multiples of 8, so a header never wraps around; the bytes may. */
static void copy_in(uint8_t *ring, uint64_t position, const void *data, size_t bytes)
{
	size_t at = position % WF_PIPE_BYTES, first = WF_PIPE_BYTES - at < bytes ? WF_PIPE_BYTES - at : bytes;

	memcpy(ring + at, data, first);
	if (first < bytes)
		memcpy(ring, (const uint8_t *)data + first, bytes - first);
}

static void copy_out(const uint8_t *ring, uint64_t position, void *data, size_t bytes)
{
	size_t at = position % WF_PIPE_BYTES, first = WF_PIPE_BYTES - at < bytes ? WF_PIPE_BYTES - at : bytes;

	memcpy(data, ring + at, first);
	if (first < bytes)
		memcpy((uint8_t *)data + first, ring, bytes - first);
}

static int make_room(struct wf_pipe_writer *writer, uint64_t room)
{
	if (writer->written + room - writer->read <= WF_PIPE_BYTES)
		return 0;
	writer->read = atomic_load_explicit(&writer->shared->read, memory_order_acquire);
	if (writer->written - writer->read > WF_PIPE_BYTES || writer->read % 8)
		return -EPROTO;
	return writer->written + room - writer->read <= WF_PIPE_BYTES ? 0 : -EAGAIN;
}

WF_HOT int wf_pipe_put(struct wf_pipe_writer *writer, const struct wf_record *record, const void *data)
{
	int error = make_room(writer, room_of(record));

	if (error)
		return error;
	copy_in(writer->shared->ring, writer->written, record, HEADER);
	if (record->bytes)
		copy_in(writer->shared->ring, writer->written + HEADER, data, record->bytes);
	writer->written += room_of(record);
	TELL_SANITIZER_PUT();
	atomic_store_explicit(&writer->shared->written, writer->written, memory_order_release);
	return 0;
}

static bool is_record(const struct wf_record *record, uint64_t unread)
{
	return (record->kind == WF_RECORD_FRAME || (record->kind == WF_RECORD_IMMEDIATE && !record->bytes)) &&
	       record->bytes <= WF_PIPE_RECORD && room_of(record) <= unread;
}

WF_HOT int wf_pipe_look(struct wf_pipe_reader *reader, struct wf_record *ret_record)
{
	uint64_t unread;

	if (reader->written == reader->read)
		reader->written = atomic_load_explicit(&reader->shared->written, memory_order_acquire);
	unread = reader->written - reader->read;
	if (!unread)
		return 0;
	if (unread > WF_PIPE_BYTES || unread % 8)
		return -EPROTO;
	TELL_SANITIZER_SEEN();
	copy_out(reader->shared->ring, reader->read, ret_record, HEADER);
	return is_record(ret_record, unread) ? 1 : -EPROTO;
}

WF_HOT void wf_pipe_take(struct wf_pipe_reader *reader, const struct wf_record *record, void *data)
{
	if (record->bytes)
		copy_out(reader->shared->ring, reader->read + HEADER, data, record->bytes);
	reader->read += room_of(record);
	atomic_store_explicit(&reader->shared->read, reader->read, memory_order_release);
}

bool wf_pipe_any(const struct wf_pipe_reader *reader)
{
	return atomic_load(&reader->shared->written) != reader->read;
}
