/*
 * Peers' memory that we may copy to and from: asked for by key when it is first used, kept until its life on the owner's board is
 * over. A file that comes with it is mapped. Runs on the worker that owns the rail.
 */
#include "base/time.h"
#include "local/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ASK_AGAIN_NS (50 * WF_MS) /* the owner's answer may have found no room */

static struct wf_opened **bucket_of(struct wf_line *line, uint64_t key)
{
	return &line->bucket[key % WF_BUCKETS];
}

static void release(struct wf_opened *opened)
{
	if (opened->mapped)
		munmap(opened->mapped, opened->mapped_bytes);
	free(opened);
}

static void drop(struct wf_line *line, struct wf_opened *opened)
{
	struct wf_opened **at = bucket_of(line, opened->key);

	while (*at != opened)
		at = &(*at)->next;
	*at = opened->next;
	if (line->local->begun_at == opened)
		line->local->begun_at = NULL;
	release(opened);
}

static int ask(struct wf_line *line, struct wf_opened *opened)
{
	struct wf_letter letter = { .kind = WF_LETTER_OPEN, .key = opened->key };
	int error = wf_letter_send(line->socket, &letter, -1);

	line->local->slept = true; /* look for the answer soon */
	if (!error)
		opened->asked_ns = wf_now_ns();
	else if (error != -EAGAIN)
		wf_line_break(line, "it takes no letters");
	return error && error != -EAGAIN ? -EHOSTUNREACH : -EAGAIN;
}

static int open_new(struct wf_line *line, uint64_t key)
{
	struct wf_opened *opened = calloc(1, sizeof(*opened)), **bucket = bucket_of(line, key);

	if (!opened)
		return -ENOMEM;
	wf_opened_sweep(line);
	opened->key = key;
	opened->status = -EINPROGRESS;
	opened->next = *bucket;
	*bucket = opened;
	return ask(line, opened);
}

static struct wf_opened *look_up(struct wf_line *line, uint64_t key)
{
	struct wf_opened *opened = *bucket_of(line, key);

	while (opened && opened->key != key)
		opened = opened->next;
	return opened;
}

int wf_opened_find(struct wf_line *line, uint64_t key, struct wf_opened **ret_opened)
{
	struct wf_opened *opened = look_up(line, key);
	int status;

	if (!opened)
		return open_new(line, key);
	if (!opened->status) {
		*ret_opened = opened;
		return 0;
	}
	line->local->slept = true;
	if (opened->status == -EINPROGRESS)
		return wf_now_ns() - opened->asked_ns > ASK_AGAIN_NS ? ask(line, opened) : -EAGAIN;
	status = opened->status;
	drop(line, opened); /* asked again when it is tried again */
	return status;
}

static int map_file(struct wf_opened *opened, const struct wf_letter *letter, int fd)
{
	int error = wf_share_map(fd, letter->file_bytes, letter->access & WEFT_REMOTE_WRITE, &opened->mapped);

	if (error)
		return error;
	opened->mapped_bytes = letter->file_bytes;
	opened->at = (char *)opened->mapped + letter->offset;
	return 0;
}

void wf_opened_answered(struct wf_line *line, const struct wf_letter *letter, int fd)
{
	struct wf_opened *opened = look_up(line, letter->key);

	if (!opened || opened->status != -EINPROGRESS)
		return; /* an answer to a question that was asked twice */
	opened->status = letter->status;
	if (!letter->status && letter->slot >= WF_LOCAL_SLOTS)
		opened->status = -EPROTO;
	if (opened->status)
		return;
	opened->base = letter->base;
	opened->bytes = letter->bytes;
	opened->life = letter->life;
	opened->slot = letter->slot;
	opened->access = letter->access;
	if (fd >= 0 && map_file(opened, letter, fd))
		opened->at = NULL; /* no room in our address space: the kernel copies */
	if (!opened->at && line->copies)
		opened->status = -EACCES;
}

static bool is_over(const struct wf_line *line, const struct wf_opened *opened)
{
	return !opened->jobs && !opened->status &&
	       atomic_load_explicit(&line->board->life[opened->slot], memory_order_relaxed) != opened->life;
}

void wf_opened_sweep(struct wf_line *line)
{
	for (uint32_t i = 0; line->board && i < WF_BUCKETS; i++)
		for (struct wf_opened *opened = line->bucket[i], *next; opened; opened = next) {
			next = opened->next;
			if (is_over(line, opened))
				drop(line, opened);
		}
}

void wf_opened_forget(struct wf_line *line)
{
	for (uint32_t i = 0; i < WF_BUCKETS; i++)
		while (line->bucket[i])
			drop(line, line->bucket[i]);
}
