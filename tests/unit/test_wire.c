/* Blobs and manifests: what is packed comes back, and no bytes from outside are taken for more than they are. */
#include "wire/blob.h"
#include "wire/cursor.h"
#include "wire/manifest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <xxhash.h>

#define ROOM 16384

static uint64_t seed = 1, tile_keys[WF_MAX_RAILS * 4];

static uint64_t random_word(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	return seed ^= seed << 17;
}

/* The copy has exactly that size, so that a sanitizer sees a read past the end. */
static int unpack_address(const void *blob, size_t bytes)
{
	struct wf_wire_address *address = malloc(sizeof(*address));
	void *copy = malloc(bytes ? bytes : 1);
	int error;

	memcpy(copy, blob, bytes);
	error = wf_blob_unpack_address(copy, bytes, address);
	free(copy);
	free(address);
	return error;
}

static int unpack_region(const void *blob, size_t bytes)
{
	struct wf_wire_region region;
	void *copy = malloc(bytes ? bytes : 1);
	int error;

	memcpy(copy, blob, bytes);
	error = wf_blob_unpack_region(copy, bytes, &region);
	free(copy);
	return error;
}

static void make_address(struct wf_wire_address *address, uint32_t count)
{
	memset(address, 0, sizeof(*address));
	address->incarnation = random_word() | 1;
	address->revision = 7;
	address->count = count;
	for (uint32_t i = 0; i < count; i++) {
		struct wf_wire_rail *rail = &address->rail[i];

		strcpy(rail->provider, i % 2 ? "tcp" : "efa");
		memset(rail->name, 'a' + (int)(i % 26), i % 63);
		rail->address_format = i;
		rail->link_bps = random_word();
		rail->address_bytes = (uint8_t)(1 + i);
		for (uint32_t j = 0; j <= i; j++)
			rail->address[j] = (uint8_t)random_word();
	}
}

static void make_region(struct wf_wire_region *region, uint32_t count)
{
	memset(region, 0, sizeof(*region));
	region->incarnation = random_word() | 1;
	region->region = random_word();
	region->bytes = 1u << 30;
	region->access = 3;
	region->count = count;
	for (uint32_t i = 0; i < count; i++) {
		region->key[i].rail = (uint8_t)(63 - i);
		region->key[i].key = random_word();
		region->key[i].base = random_word() >> 2;
	}
}

/* Every other rail in one piece, the others in tiles; wide: keys of more than 32 bits. */
static void make_tiled(struct wf_wire_region *region, uint32_t count, bool wide)
{
	make_region(region, count);
	for (uint32_t i = 0; i < count; i += 2) {
		region->key[i].key = 0;
		region->key[i].reach = WF_REACH_LEAST + i;
		region->key[i].step = region->bytes / 3;
		region->key[i].tiles = 3;
		for (int t = 0; t < 3; t++)
			tile_keys[region->tiles++] = wide ? random_word() | UINT64_C(1) << 32 : (uint32_t)random_word();
	}
}

static size_t pack_address(const struct wf_wire_address *address, uint8_t *blob)
{
	size_t bytes = ROOM;

	assert_int_equal(wf_blob_pack_address(address, blob, &bytes), 0);
	return bytes;
}

static size_t pack_region(const struct wf_wire_region *region, uint8_t *blob)
{
	size_t bytes = ROOM;

	assert_int_equal(wf_blob_pack_region(region, tile_keys, blob, &bytes), 0);
	return bytes;
}

static void address_round_trip(void **state)
{
	static struct wf_wire_address address, back;
	static uint8_t blob[ROOM];

	for (uint32_t count = 1; count <= WF_MAX_RAILS; count++) {
		size_t bytes, small;

		make_address(&address, count);
		bytes = pack_address(&address, blob);
		assert_int_equal(wf_blob_unpack_address(blob, bytes, &back), 0);
		assert_memory_equal(&address, &back, sizeof(back));
		/* With too little room it returns the size needed, and touches nothing past the room. */
		small = bytes - 1;
		memset(blob, 0xaa, sizeof(blob));
		assert_int_equal(wf_blob_pack_address(&address, blob, &small), -ENOBUFS);
		assert_int_equal(small, bytes);
		assert_int_equal(blob[bytes - 1], 0xaa);
	}
	size_t none = 0;

	assert_int_equal(wf_blob_pack_address(&address, NULL, &none), -ENOBUFS);
	assert_true(none > 0);
}

static void region_round_trip(void **state)
{
	struct wf_wire_region region, back;
	static uint8_t blob[ROOM];

	for (uint32_t count = 1; count <= WF_MAX_RAILS; count++) {
		size_t bytes;

		make_region(&region, count);
		bytes = pack_region(&region, blob);
		assert_int_equal(wf_blob_unpack_region(blob, bytes, &back), 0);
		assert_memory_equal(&region, &back, sizeof(back));
	}
}

static void tiles_round_trip(void **state)
{
	struct wf_wire_region region, back;
	uint64_t keys[WF_MAX_RAILS * 4];
	static uint8_t blob[ROOM];

	for (uint32_t count = 1; count <= WF_MAX_RAILS; count++) {
		size_t bytes, narrow;

		make_tiled(&region, count, false);
		narrow = pack_region(&region, blob);
		assert_int_equal(blob[5], 3); /* a release without tiles refuses this version */
		make_tiled(&region, count, true);
		bytes = pack_region(&region, blob);
		assert_int_equal(bytes - narrow, 4 * region.tiles);
		assert_int_equal(wf_blob_unpack_region(blob, bytes, &back), 0);
		assert_memory_equal(&region, &back, sizeof(back));
		assert_int_equal(wf_blob_unpack_tiles(blob, bytes, &back, keys), 0);
		assert_memory_equal(keys, tile_keys, region.tiles * sizeof(keys[0]));
		back.tiles--; /* changed since: there is no room for what it says now */
		assert_int_equal(wf_blob_unpack_tiles(blob, bytes, &back, keys), -EPROTO);
	}
	make_region(&region, 2);
	pack_region(&region, blob);
	assert_int_equal(blob[5], 2);
	for (uint32_t rails = 1; rails <= WF_MAX_RAILS; rails++)
		assert_in_range(wf_blob_most_tiles(rails, ROOM), 56, 4074);
	assert_int_equal(wf_blob_most_tiles(1, ROOM), 4074);
	assert_int_equal(wf_blob_most_tiles(64, 1000), 0);
}

/* Tiles that leave an offset without a key, or would make a sender divide by zero or cut empty pieces. */
static void tiles_that_do_not_fit(void **state)
{
	struct wf_wire_region region;
	static uint8_t blob[ROOM];
	static const struct {
		uint64_t step, reach, bytes;
		uint16_t tiles;
	} wrong[] = {
		{ 0, WF_REACH_LEAST, 0, 3 },
		{ 1, WF_REACH_LEAST, 0, 3 },
		{ UINT64_MAX, WF_REACH_LEAST, 0, 3 },
		{ (1u << 30) / 3, WF_REACH_LEAST - 1, 0, 3 },
		{ (1u << 30) / 3, 0, 0, 3 },
		{ (1u << 30) / 3, UINT64_MAX, 0, 3 },
		{ (1u << 30) / 3, 1u << 30, 0, 3 },
		{ (1u << 30) / 3, WF_REACH_LEAST, WF_REACH_LEAST, 3 },
		{ (1u << 30) / 3, WF_REACH_LEAST, UINT64_MAX, 3 },
		{ (1u << 30) / 3, WF_REACH_LEAST, 0, 2 },
		{ (1u << 30) / 3, WF_REACH_LEAST, 0, 4 },
		{ 1u << 30, WF_REACH_LEAST, 0, 1 },
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		make_tiled(&region, 1, false);
		region.key[0].base = 0;
		assert_int_equal(unpack_region(blob, pack_region(&region, blob)), 0);
		region.bytes = wrong[i].bytes ? wrong[i].bytes : region.bytes;
		region.key[0].step = wrong[i].step;
		region.key[0].reach = wrong[i].reach;
		region.key[0].tiles = wrong[i].tiles;
		assert_int_equal(unpack_region(blob, pack_region(&region, blob)), -EPROTO);
	}
}

/* What no rail has a key for is a card's that lands, or it is nothing. */
static void regions_without_keys(void **state)
{
	static const uint32_t access[] = { 0, WF_WIRE_CARDS, WF_WIRE_LANDS, WF_WIRE_CARDS | WF_WIRE_LANDS };
	struct wf_wire_region region;
	static uint8_t blob[ROOM];

	for (size_t i = 0; i < sizeof(access) / sizeof(access[0]); i++) {
		make_region(&region, 0);
		region.access |= access[i];
		assert_int_equal(unpack_region(blob, pack_region(&region, blob)), i == 3 ? 0 : -EPROTO);
	}
}

static void every_prefix(void **state)
{
	static struct wf_wire_address address;
	struct wf_wire_region region;
	static uint8_t blob[ROOM];
	size_t bytes;

	make_address(&address, 5);
	bytes = pack_address(&address, blob);
	for (size_t length = 0; length < bytes; length++)
		assert_int_equal(unpack_address(blob, length), -EPROTO);
	make_region(&region, 5);
	bytes = pack_region(&region, blob);
	for (size_t length = 0; length < bytes; length++)
		assert_int_equal(unpack_region(blob, length), -EPROTO);
	make_tiled(&region, 5, true);
	bytes = pack_region(&region, blob);
	for (size_t length = 0; length < bytes; length++)
		assert_int_equal(unpack_region(blob, length), -EPROTO);
}

/* Each bit of the blob flipped: refused, and with the right error where that is certain. */
static void every_bit(void **state)
{
	static struct wf_wire_address address;
	static uint8_t blob[ROOM];
	size_t bytes;

	make_address(&address, 3);
	bytes = pack_address(&address, blob);
	for (size_t bit = 0; bit < 8 * bytes; bit++) {
		size_t at = bit / 8;
		int error;

		if (at == 6 || at == 7)
			continue; /* reserved: a later version may use it */
		blob[at] ^= (uint8_t)(1u << bit % 8);
		error = unpack_address(blob, bytes);
		blob[at] ^= (uint8_t)(1u << bit % 8);
		if (at < 5)
			assert_int_equal(error, -EPROTO);
		else if (at == 5)
			assert_int_equal(error, -EPROTONOSUPPORT);
		else if (at >= 12)
			assert_int_equal(error, -EBADMSG);
		else
			assert_true(error == -EPROTO || error == -EBADMSG);
	}
	assert_int_equal(unpack_address(blob, bytes), 0);
}

/* One kind is not accepted as the other; bytes after the blob are the caller's business. */
static void other_kinds(void **state)
{
	static struct wf_wire_address address;
	struct wf_wire_region region;
	static uint8_t blob[ROOM];
	size_t bytes;

	make_address(&address, 1);
	bytes = pack_address(&address, blob);
	assert_int_equal(unpack_region(blob, bytes), -EPROTO);
	assert_int_equal(unpack_address(blob, bytes + 100), 0);
	make_region(&region, 1);
	bytes = pack_region(&region, blob);
	assert_int_equal(unpack_address(blob, bytes), -EPROTO);
	assert_int_equal(wf_blob_unpack_address(NULL, 100, &address), -EINVAL);
	assert_int_equal(wf_blob_unpack_region(NULL, 0, &region), -EINVAL);
}

static void reseal(uint8_t *blob, size_t bytes)
{
	struct wf_cursor header = { .at = blob + 8, .left = 12 };

	wf_put_uint(&header, bytes, 4);
	wf_put_uint(&header, XXH3_64bits(blob + 20, bytes - 20), 8);
}

/* A hostile peer computes the checksum too: the body alone must hold. */
static void sealed_nonsense(void **state)
{
	static struct wf_wire_address address;
	static uint8_t good[ROOM], blob[ROOM];
	struct wf_wire_region region;
	size_t bytes, taken = 0;

	make_address(&address, 3);
	bytes = pack_address(&address, good);
	for (int round = 0; round < 200000; round++) {
		size_t length = random_word() % 4 ? bytes : 20 + random_word() % (bytes - 20);

		memcpy(blob, good, bytes);
		for (uint64_t i = 1 + random_word() % 4; i; i--)
			blob[20 + random_word() % (bytes - 20)] = (uint8_t)random_word();
		reseal(blob, length);
		taken += !unpack_address(blob, length);
	}
	assert_true(taken > 0); /* some are another valid address */
	for (int round = 0; round < 400000; round++) {
		struct wf_wire_region back;

		if (round == 0)
			make_region(&region, 3);
		if (round == 200000)
			make_tiled(&region, 3, false);
		if (round % 200000 == 0)
			bytes = pack_region(&region, good);
		memcpy(blob, good, bytes);
		for (uint64_t i = 1 + random_word() % 4; i; i--)
			blob[20 + random_word() % (bytes - 20)] = (uint8_t)random_word();
		reseal(blob, bytes);
		if (wf_blob_unpack_region(blob, bytes, &back))
			continue;
		assert_in_range(back.count, 1, WF_MAX_RAILS);
		for (uint32_t i = 0; i < back.count; i++) {
			assert_true(back.key[i].rail < WF_MAX_RAILS);
			assert_true(back.key[i].base + back.bytes >= back.bytes);
			if (back.key[i].tiles)
				assert_true(back.key[i].step && back.key[i].reach >= WF_REACH_LEAST &&
					    wf_tiles_of(back.bytes, back.key[i].step, back.key[i].reach) ==
						back.key[i].tiles);
		}
	}
}

static void pure_noise(void **state)
{
	static uint8_t noise[1024];

	for (int round = 0; round < 50000; round++) {
		size_t bytes = random_word() % sizeof(noise);

		for (size_t i = 0; i < bytes; i++)
			noise[i] = (uint8_t)random_word();
		assert_true(unpack_address(noise, bytes) < 0);
		assert_true(unpack_region(noise, bytes) < 0);
	}
}

/* ---- manifests ---- */

static const struct wf_manifest_range some_ranges[] = { { 7, 70, 100, 2500 }, { 9, 90, 0, 0 }, { 7, 70, 5000, 1000 } };
static const uint32_t some_pages[] = { 4, 0, 9 };

static struct wf_manifest a_manifest(int form)
{
	struct wf_manifest manifest = {
		.sum = 99, .unit_bytes = 1000, .payload = "abc", .payload_bytes = 3, .count = 3
	};

	if (!form) {
		manifest.list = some_ranges;
		return manifest;
	}
	manifest.paged = true;
	manifest.page = (struct wf_manifest_range){ 7, 70, 64, 1500 };
	manifest.stride = 2048;
	manifest.list = form == 1 ? some_pages : NULL;
	return manifest;
}

static struct wf_manifest with_word(struct wf_manifest manifest)
{
	manifest.has_word = true;
	manifest.word = (struct wf_manifest_range){ 11, 110, 4096, 8 };
	manifest.word_value = UINT64_MAX - 5;
	return manifest;
}

/* Checks the units that a receiver walks, as "number:region:offset:bytes …". */
static void walk_is(struct wf_manifest manifest, const char *expected)
{
	struct wf_manifest back;
	struct wf_manifest_walk walk = { 0 };
	struct wf_manifest_unit unit;
	uint8_t buffer[256];
	char text[512] = "";
	size_t bytes = wf_manifest_bytes(&manifest), at = 0;

	assert_true(bytes <= sizeof(buffer));
	wf_manifest_pack(&manifest, buffer);
	wf_manifest_set_sum(buffer, 1234);
	assert_int_equal(wf_manifest_unpack(buffer, bytes, &back), 0);
	assert_int_equal(back.sum, 1234);
	assert_int_equal(back.payload_bytes, 3);
	assert_memory_equal(back.payload, "abc", 3);
	assert_int_equal(back.has_word, manifest.has_word);
	if (manifest.has_word) {
		assert_memory_equal(&back.word, &manifest.word, sizeof(back.word));
		assert_true(back.word_value == manifest.word_value);
	}
	while (wf_manifest_next(&back, &walk, &unit))
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%d:%d:%d:%d ", (int)unit.number,
				       (int)unit.at.region, (int)unit.at.offset, (int)unit.at.bytes);
	assert_string_equal(text, expected);
	for (size_t less = 0; less < bytes; less++)
		assert_int_equal(wf_manifest_unpack(buffer, less, &back), -EPROTO);
	assert_int_equal(wf_manifest_unpack(buffer, bytes + 1, &back), -EPROTO);
}

static void manifests(void **state)
{
	static const char *const units[] = {
		"0:7:100:1000 1:7:1100:1000 2:7:2100:500 3:7:5000:1000 ",
		"0:7:8256:1000 1:7:9256:500 2:7:64:1000 3:7:1064:500 4:7:18496:1000 5:7:19496:500 ",
		"0:7:64:1000 1:7:1064:500 2:7:2112:1000 3:7:3112:500 4:7:4160:1000 5:7:5160:500 "
	};
	struct wf_manifest only_a_word = { .unit_bytes = 1, .payload = "abc", .payload_bytes = 3 };

	for (int form = 0; form < 3; form++) {
		walk_is(a_manifest(form), units[form]);
		walk_is(with_word(a_manifest(form)), units[form]);
	}
	walk_is(with_word(only_a_word), "");
}

static int unpack_manifest(struct wf_manifest manifest)
{
	uint8_t buffer[256];

	wf_manifest_pack(&manifest, buffer);
	return wf_manifest_unpack(buffer, wf_manifest_bytes(&manifest), &manifest);
}

/* A short message must not cause a long walk, nor name more bytes than can be counted. */
static void hostile_manifests(void **state)
{
	struct wf_manifest manifest = a_manifest(2);
	struct wf_manifest_range huge[] = { { 1, 0, 0, UINT64_MAX }, { 1, 0, 0, 1 } };

	manifest.stride = 0;
	assert_int_equal(unpack_manifest(manifest), -EPROTO);
	manifest = a_manifest(2);
	manifest.page.bytes = 0;
	assert_int_equal(unpack_manifest(manifest), -EPROTO);
	manifest = a_manifest(2);
	manifest.count = UINT64_MAX / 2;
	assert_int_equal(unpack_manifest(manifest), -EPROTO);
	manifest = a_manifest(1);
	manifest.unit_bytes = 0;
	assert_int_equal(unpack_manifest(manifest), -EPROTO);
	manifest.unit_bytes = WF_MANIFEST_UNIT + 1;
	assert_int_equal(unpack_manifest(manifest), -EPROTO);
	manifest = a_manifest(0);
	manifest.count = 2;
	manifest.list = huge;
	assert_int_equal(unpack_manifest(manifest), -EPROTO);
}

/* Units that changed places, or whose hashes would cancel without their numbers, differ. */
static void hashes(void **state)
{
	assert_true(wf_manifest_hash("same", 4, 0) != wf_manifest_hash("same", 4, 1));
	assert_true(wf_manifest_hash("a", 1, 0) + wf_manifest_hash("b", 1, 1) !=
		    wf_manifest_hash("b", 1, 0) + wf_manifest_hash("a", 1, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(address_round_trip),
		cmocka_unit_test(region_round_trip),
		cmocka_unit_test(regions_without_keys),
		cmocka_unit_test(tiles_round_trip),
		cmocka_unit_test(tiles_that_do_not_fit),
		cmocka_unit_test(every_prefix),
		cmocka_unit_test(every_bit),
		cmocka_unit_test(other_kinds),
		cmocka_unit_test(sealed_nonsense),
		cmocka_unit_test(pure_noise),
		cmocka_unit_test(manifests),
		cmocka_unit_test(hostile_manifests),
		cmocka_unit_test(hashes),
	};

	return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
