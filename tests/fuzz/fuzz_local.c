/* What another process may put into a pipe and into a letter. The first 16 bytes are the counters, the rest the ring; every record
 * that is handed out fits its buffer, the reader never passes the writer, and reading ends. */
#include "local/letter.h"
#include "local/pipe.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_all(struct wf_pipe_shared *shared, uint64_t read)
{
	struct wf_pipe_reader reader = { .shared = shared, .written = read, .read = read };
	struct wf_record record;
	uint8_t *buffer;

	for (uint32_t i = 0; wf_pipe_look(&reader, &record) > 0; i++) {
		if (record.bytes > WF_PIPE_RECORD || i > WF_PIPE_BYTES / sizeof(record))
			abort();
		buffer = malloc(record.bytes ? record.bytes : 1); /* its own block, so that a write past it shows */
		if (!buffer)
			return;
		wf_pipe_take(&reader, &record, buffer);
		free(buffer);
		if (reader.read - read > WF_PIPE_BYTES || atomic_load(&shared->written) - reader.read > WF_PIPE_BYTES)
			abort();
	}
}

/* The reader's counter is another process's: the writer believes it only if it makes sense, and never writes past the ring. */
static void write_some(struct wf_pipe_shared *shared, uint64_t written, uint64_t read)
{
	struct wf_pipe_writer writer = { .shared = shared,
					 .written = written & ~UINT64_C(7),
					 .read = written & ~UINT64_C(7) };
	static const uint8_t data[WF_PIPE_RECORD];
	struct wf_record record = { .kind = WF_RECORD_FRAME, .bytes = (uint16_t)(read % (WF_PIPE_RECORD + 1)) };

	atomic_store(&shared->read, read);
	for (uint32_t i = 0; !wf_pipe_put(&writer, &record, data); i++)
		if (i > WF_PIPE_BYTES / sizeof(record) || writer.written - writer.read > WF_PIPE_BYTES)
			abort();
}

static void check_letter(const uint8_t *data, size_t bytes)
{
	struct wf_letter letter = { 0 };

	memcpy(&letter, data, bytes < sizeof(letter) ? bytes : sizeof(letter));
	for (int fds = 0; fds < 3; fds++)
		if (wf_letter_check(&letter, bytes, fds) && letter.kind == WF_LETTER_OPENED && !letter.status &&
		    (letter.base + letter.bytes < letter.base ||
		     (letter.file_bytes && letter.offset + letter.bytes > letter.file_bytes) ||
		     fds != (letter.file_bytes || letter.way == WF_WAY_FILE) ||
		     (letter.parts && (letter.part >= letter.parts || letter.parts > WF_DEVICE_PARTS ||
				       letter.file_bytes || !letter.part_bytes))))
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct wf_pipe_shared *shared = aligned_alloc(64, sizeof(*shared));
	uint64_t written, read;

	check_letter(data, bytes);
	if (!shared || bytes < 2 * sizeof(uint64_t)) {
		free(shared);
		return 0;
	}
	memset(shared, 0, sizeof(*shared));
	memcpy(&written, data, sizeof(written));
	memcpy(&read, data + sizeof(written), sizeof(read));
	data += 2 * sizeof(uint64_t);
	bytes -= 2 * sizeof(uint64_t);
	read &= ~UINT64_C(7); /* the reader's own, which it keeps right */
	for (size_t i = 0; bytes && i < WF_PIPE_BYTES; i++)
		shared->ring[i] = data[i % bytes];
	atomic_store(&shared->written, written);
	read_all(shared, read);
	write_some(shared, written, read ^ written);
	free(shared);
	return 0;
}
