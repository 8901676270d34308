/* Packs, unpacks and walks manifests; manifest.h says what they mean. */
#include "wire/manifest.h"
#include "wire/cursor.h"

#include <endian.h>
#include <errno.h>
#include <xxhash.h>

enum { RANGES, PAGES, PAGES_LISTED, FORMS };

#define HEAD_BYTES  (8u + 8u + 8u + 1u + 1u) /* sum, unit, count, form, payload's length; the sum comes first */
#define RANGE_BYTES 32u
#define PAGES_BYTES 40u
#define INDEX_BYTES 4u
#define WORD_BYTES  32u   /* after the payload, if the form says so */
#define WITH_WORD   0x80u /* in the form */

static int form_of(const struct wf_manifest *manifest)
{
	return !manifest->paged ? RANGES : manifest->list ? PAGES_LISTED : PAGES;
}

size_t wf_manifest_bytes(const struct wf_manifest *manifest)
{
	size_t each = !manifest->paged ? RANGE_BYTES : manifest->list ? INDEX_BYTES : 0;

	return HEAD_BYTES + manifest->payload_bytes + (manifest->has_word ? WORD_BYTES : 0) +
	       (manifest->paged ? PAGES_BYTES : 0) + manifest->count * each;
}

static void put_range(struct wf_cursor *cursor, const struct wf_manifest_range *range)
{
	wf_put_uint(cursor, range->region, 8);
	wf_put_uint(cursor, range->proof, 8);
	wf_put_uint(cursor, range->offset, 8);
	wf_put_uint(cursor, range->bytes, 8);
}

static void get_range(struct wf_cursor *cursor, struct wf_manifest_range *range)
{
	range->region = wf_get_uint(cursor, 8);
	range->proof = wf_get_uint(cursor, 8);
	range->offset = wf_get_uint(cursor, 8);
	range->bytes = wf_get_uint(cursor, 8);
}

static void put_word(struct wf_cursor *cursor, const struct wf_manifest *manifest)
{
	wf_put_uint(cursor, manifest->word.region, 8);
	wf_put_uint(cursor, manifest->word.proof, 8);
	wf_put_uint(cursor, manifest->word.offset, 8);
	wf_put_uint(cursor, manifest->word_value, 8);
}

static void get_word(struct wf_cursor *cursor, struct wf_manifest *manifest)
{
	manifest->word.region = wf_get_uint(cursor, 8);
	manifest->word.proof = wf_get_uint(cursor, 8);
	manifest->word.offset = wf_get_uint(cursor, 8);
	manifest->word.bytes = sizeof(uint64_t);
	manifest->word_value = wf_get_uint(cursor, 8);
}

void wf_manifest_pack(const struct wf_manifest *manifest, void *buffer)
{
	const struct wf_manifest_range *range = manifest->list;
	const uint32_t *index = manifest->list;
	struct wf_cursor cursor = { .at = buffer, .left = wf_manifest_bytes(manifest) };

	wf_put_uint(&cursor, manifest->sum, 8);
	wf_put_uint(&cursor, manifest->unit_bytes, 8);
	wf_put_uint(&cursor, manifest->count, 8);
	wf_put_uint(&cursor, (uint64_t)form_of(manifest) | (manifest->has_word ? WITH_WORD : 0), 1);
	wf_put_uint(&cursor, manifest->payload_bytes, 1);
	wf_put(&cursor, manifest->payload, manifest->payload_bytes);
	if (manifest->has_word)
		put_word(&cursor, manifest);
	if (manifest->paged) {
		put_range(&cursor, &manifest->page);
		wf_put_uint(&cursor, manifest->stride, 8);
	}
	for (uint64_t i = 0; i < manifest->count && manifest->list; i++)
		if (manifest->paged)
			wf_put_uint(&cursor, index[i], INDEX_BYTES);
		else
			put_range(&cursor, &range[i]);
}

void wf_manifest_set_sum(void *buffer, uint64_t sum)
{
	struct wf_cursor cursor = { .at = buffer, .left = 8 };

	wf_put_uint(&cursor, sum, 8);
}

/* Takes the list, which follows the fields read so far and must fill the rest exactly. */
static bool take_list(struct wf_cursor *cursor, uint64_t count, size_t each, const void **ret_list)
{
	*ret_list = cursor->at;
	return !cursor->bad && cursor->left % each == 0 && cursor->left / each == count;
}

/* Returns a range, or the page with number entry. An offset that overflows becomes one that no region has. */
static struct wf_manifest_range entry_at(const struct wf_manifest *manifest, uint64_t entry)
{
	struct wf_manifest_range range = manifest->page;
	struct wf_cursor cursor = { .left = RANGE_BYTES };
	uint64_t page = entry;

	if (!manifest->paged) {
		cursor.at = (uint8_t *)manifest->list + entry * RANGE_BYTES;
		get_range(&cursor, &range);
		return range;
	}
	if (manifest->list) {
		uint32_t index;

		memcpy(&index, (const uint8_t *)manifest->list + entry * INDEX_BYTES, sizeof(index));
		page = le32toh(index);
	}
	if (__builtin_mul_overflow(page, manifest->stride, &page) ||
	    __builtin_add_overflow(page, manifest->page.offset, &range.offset))
		range.offset = UINT64_MAX;
	return range;
}

/* Returns false if the total overflows, so exceeds any memory. */
static bool total_of(struct wf_manifest *manifest)
{
	manifest->bytes = 0;
	if (manifest->paged)
		return !__builtin_mul_overflow(manifest->count, manifest->page.bytes, &manifest->bytes);
	for (uint64_t i = 0; i < manifest->count; i++)
		if (__builtin_add_overflow(manifest->bytes, entry_at(manifest, i).bytes, &manifest->bytes))
			return false;
	return true;
}

int wf_manifest_unpack(const void *buffer, size_t bytes, struct wf_manifest *ret_manifest)
{
	struct wf_cursor cursor = { .at = (uint8_t *)buffer, .left = bytes };
	struct wf_manifest manifest = { .sum = wf_get_uint(&cursor, 8) };
	uint64_t form;
	bool ok;

	manifest.unit_bytes = wf_get_uint(&cursor, 8);
	manifest.count = wf_get_uint(&cursor, 8);
	form = wf_get_uint(&cursor, 1);
	manifest.has_word = form & WITH_WORD;
	form &= ~(uint64_t)WITH_WORD;
	manifest.payload_bytes = (uint32_t)wf_get_uint(&cursor, 1);
	if (cursor.bad || form >= FORMS || manifest.payload_bytes > WF_MANIFEST_PAYLOAD ||
	    manifest.payload_bytes > cursor.left || !manifest.unit_bytes || manifest.unit_bytes > WF_MANIFEST_UNIT)
		return -EPROTO;
	manifest.payload = cursor.at;
	cursor.at += manifest.payload_bytes;
	cursor.left -= manifest.payload_bytes;
	if (manifest.has_word)
		get_word(&cursor, &manifest);
	manifest.paged = form != RANGES;
	if (manifest.paged) {
		get_range(&cursor, &manifest.page);
		manifest.stride = wf_get_uint(&cursor, 8);
	}
	switch (form) {
	case RANGES:
		ok = take_list(&cursor, manifest.count, RANGE_BYTES, &manifest.list);
		break;
	case PAGES_LISTED:
		ok = take_list(&cursor, manifest.count, INDEX_BYTES, &manifest.list);
		break;
	default:
		ok = !cursor.bad && !cursor.left;
		break;
	}
	/* Empty pages, or pages all in one place, would turn a short message into an endless walk. */
	if (!ok ||
	    (manifest.paged && manifest.count && (!manifest.page.bytes || manifest.stride < manifest.page.bytes)))
		return -EPROTO;
	if (!total_of(&manifest))
		return -EPROTO;
	*ret_manifest = manifest;
	return 0;
}

bool wf_manifest_next(const struct wf_manifest *manifest, struct wf_manifest_walk *walk,
		      struct wf_manifest_unit *ret_unit)
{
	struct wf_manifest_range range;
	uint64_t left;

	for (;; walk->entry++, walk->done = 0) {
		if (walk->entry >= manifest->count)
			return false;
		range = entry_at(manifest, walk->entry);
		if (walk->done < range.bytes)
			break;
	}
	left = range.bytes - walk->done;
	ret_unit->number = walk->number++;
	ret_unit->at.region = range.region;
	ret_unit->at.proof = range.proof;
	if (__builtin_add_overflow(range.offset, walk->done, &ret_unit->at.offset))
		ret_unit->at.offset = UINT64_MAX;
	ret_unit->at.bytes = left < manifest->unit_bytes ? left : manifest->unit_bytes;
	walk->done += ret_unit->at.bytes;
	return true;
}

uint64_t wf_manifest_hash(const void *data, uint64_t bytes, uint64_t number)
{
	return XXH3_64bits_withSeed(data, bytes, number);
}
