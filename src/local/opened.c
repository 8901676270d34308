/*
 * Peers' memory that we may copy to and from: asked for by key when it is first used, kept until its life on the owner's board is
 * over. A file that comes with it is mapped. Of a card's memory its parts are asked for one by one, so that their descriptors do
 * not fill the socket, and opened together by src/device/. Runs on the worker that owns the rail.
 */
#include "base/time.h"
#include "local/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ASK_AGAIN_NS (50 * WF_MS) /* the owner's answer may have found no room */
#define FORGOTTEN_NS (2 * WF_S)   /* who still waits for it asks again and again */

static struct wf_opened **bucket_of(struct wf_line *line, uint64_t key)
{
	return &line->bucket[key % WF_BUCKETS];
}

static void forget_offer(struct wf_opened *opened)
{
	for (uint32_t i = 0; opened->offer && i < opened->offer->count; i++)
		if (opened->offer->part[i].fd >= 0)
			wf_closer_close(opened->closer, opened->offer->part[i].fd);
	free(opened->offer);
	opened->offer = NULL;
}

static void release(struct wf_opened *opened)
{
	if (opened->mapped)
		munmap(opened->mapped, opened->mapped_bytes);
	forget_offer(opened);
	wf_device_shut(opened->device);
	free(opened);
}

void wf_opened_used(struct wf_opened *opened)
{
	if (!--opened->jobs && __builtin_expect(opened->orphan, 0))
		release(opened);
}

static void drop(struct wf_line *line, struct wf_opened *opened)
{
	struct wf_opened **at = bucket_of(line, opened->key);

	while (*at != opened)
		at = &(*at)->next;
	*at = opened->next;
	if (line->local->begun_at == opened)
		line->local->begun_at = NULL;
	opened->orphan = opened->jobs; /* a card copies there: the last one frees it */
	if (!opened->orphan)
		release(opened);
}

static int ask(struct wf_line *line, struct wf_opened *opened)
{
	struct wf_letter letter = { .kind = WF_LETTER_OPEN,
				    .key = opened->key,
				    .part = opened->offer ? opened->offer->count : 0 };
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
	opened->closer = line->local->closer;
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

/* How far the opening of a card's memory is. */
static int look_at_device(struct wf_opened *opened)
{
	void *at;
	int error = wf_device_look(opened->device, &at, &opened->card);

	if (error == -EINPROGRESS)
		return -EAGAIN;
	/* Whatever the reason is, no other way leads there. */
	opened->status = error == -ENOMEM || !error ? error : -EOPNOTSUPP;
	if (!error)
		opened->at = at;
	return 0;
}

int wf_opened_find(struct wf_line *line, uint64_t key, struct wf_opened **ret_opened)
{
	struct wf_opened *opened = look_up(line, key);
	int status;

	if (!opened)
		return open_new(line, key);
	if (__builtin_expect(opened->device != NULL, 0) && opened->status == -EINPROGRESS && look_at_device(opened))
		return -EAGAIN;
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

static int map_file(struct wf_opened *opened, const struct wf_letter *letter, int fd, bool other)
{
	int error = other && wf_share_is_huge(fd)
			? -EPERM
			: wf_share_map(fd, letter->file_bytes, letter->access & WEFT_REMOTE_WRITE, &opened->mapped);

	if (error)
		return error;
	opened->mapped_bytes = letter->file_bytes;
	opened->at = (char *)opened->mapped + letter->offset;
	return 0;
}

/* Whether the letter goes on where the parts before it ended. */
static bool continues(const struct wf_opened *opened, const struct wf_letter *letter)
{
	return letter->base == opened->base && letter->bytes == opened->bytes && letter->life == opened->life &&
	       letter->slot == opened->slot && letter->access == opened->access &&
	       letter->way == (uint32_t)opened->offer->way && letter->offset == opened->offer->offset &&
	       !memcmp(letter->uuid, opened->offer->uuid, sizeof(letter->uuid));
}

static int begin_offer(struct wf_opened *opened, const struct wf_letter *letter)
{
	struct wf_device_offer *offer = calloc(1, sizeof(*offer));

	if (!offer)
		return -ENOMEM;
	offer->way = (enum wf_device_way)letter->way;
	offer->offset = letter->offset;
	offer->bytes = letter->bytes;
	memcpy(offer->uuid, letter->uuid, sizeof(offer->uuid));
	opened->offer = offer;
	return 0;
}

/* All parts are there. In our own process the driver opens nothing, and the owner's addresses are ours. */
static int open_device(struct wf_line *line, struct wf_opened *opened)
{
	struct wf_device_offer *offer = opened->offer;
	int error = line->pid == getpid() ? wf_device_open_here(line->local->devices, offer,
								(void *)(uintptr_t)opened->base, &opened->device)
					  : wf_device_open(line->local->devices, offer, &opened->device);

	opened->offer = NULL; /* and its descriptors are not ours any more */
	free(offer);
	return error ? error : -EINPROGRESS;
}

/* Returns the status: -EINPROGRESS until it is open; 1: ask for the next part. */
static int part_arrived(struct wf_line *line, struct wf_opened *opened, const struct wf_letter *letter, int fd)
{
	struct wf_device_offer *offer = opened->offer;
	int error = 0, copy;

	if (!line->local->devices)
		return -EOPNOTSUPP;
	if (opened->device || letter->part != (offer ? offer->count : 0))
		return -EINPROGRESS; /* of a question that was asked twice */
	if (offer ? !continues(opened, letter) : (error = begin_offer(opened, letter)) != 0)
		return error ? error : -EPROTO;
	copy = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
	if (fd >= 0 && copy < 0)
		return -EOPNOTSUPP; /* the process has no descriptors left */
	offer = opened->offer;
	offer->part[offer->count].bytes = letter->part_bytes;
	offer->part[offer->count].fd = copy;
	memcpy(offer->part[offer->count++].handle, letter->handle, WF_DEVICE_HANDLE);
	return offer->count == letter->parts ? open_device(line, opened) : 1;
}

void wf_opened_answered(struct wf_line *line, const struct wf_letter *letter, int fd)
{
	struct wf_opened *opened = look_up(line, letter->key);

	if (!opened || opened->status != -EINPROGRESS)
		return; /* an answer to a question that was asked twice */
	if (opened->offer && !letter->status && !letter->parts)
		return;
	opened->status = letter->status;
	if (!letter->status && letter->slot >= WF_LOCAL_SLOTS)
		opened->status = -EPROTO;
	if (opened->status)
		return;
	if (!opened->offer && !opened->device) {
		opened->base = letter->base;
		opened->bytes = letter->bytes;
		opened->life = letter->life;
		opened->slot = letter->slot;
		opened->access = letter->access;
	}
	if (letter->parts) {
		opened->status = part_arrived(line, opened, letter, fd);
		if (opened->status != 1)
			return;
		opened->status = -EINPROGRESS;
		ask(line, opened); /* which breaks the line, and frees all of it, if that takes no letters */
		return;
	}
	if (fd >= 0 && map_file(opened, letter, fd, line->other))
		opened->at = NULL; /* no room in our address space, or not to be trusted: the kernel copies */
	if (!opened->at && line->copies)
		opened->status = -EACCES;
}

/* What its operation has given up waiting for must not keep the descriptors of a set that its owner never ends, nor a card's memory
 * mapped. */
static bool is_over(const struct wf_line *line, struct wf_opened *opened, uint64_t now_ns)
{
	if (opened->jobs || (opened->device && opened->status == -EINPROGRESS && look_at_device(opened)))
		return false;
	if (opened->status)
		return now_ns - opened->asked_ns > FORGOTTEN_NS;
	return atomic_load_explicit(&line->board->life[opened->slot], memory_order_relaxed) != opened->life;
}

void wf_opened_sweep(struct wf_line *line)
{
	uint64_t now_ns = wf_now_ns();

	for (uint32_t i = 0; line->board && i < WF_BUCKETS; i++)
		for (struct wf_opened *opened = line->bucket[i], *next; opened; opened = next) {
			next = opened->next;
			if (is_over(line, opened, now_ns))
				drop(line, opened);
		}
}

void wf_opened_forget(struct wf_line *line)
{
	for (uint32_t i = 0; i < WF_BUCKETS; i++)
		while (line->bucket[i])
			drop(line, line->bucket[i]);
}
