/* Manifests as they come from a peer: accepted or refused; a walk stays within the received bytes, and is no longer
 * than they allow; a word is of 8 bytes, and what is accepted takes as many bytes as were received. */
#include "wire/manifest.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void walk(const struct wf_manifest *manifest)
{
	struct wf_manifest_walk at = { 0 };
	struct wf_manifest_unit unit;
	uint64_t total = 0;

	for (int i = 0; i < 1000; i++) {
		if (!wf_manifest_next(manifest, &at, &unit)) {
			if (total != manifest->bytes)
				abort();
			return;
		}
		total += unit.at.bytes;
		if (!unit.at.bytes || unit.at.bytes > manifest->unit_bytes || total > manifest->bytes)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct wf_manifest manifest;
	uint8_t *copy = malloc(bytes ? bytes : 1); /* its own block, so that a read past it shows */

	if (!copy)
		return 0;
	memcpy(copy, data, bytes);
	if (!wf_manifest_unpack(copy, bytes, &manifest)) {
		if (wf_manifest_bytes(&manifest) != bytes || (manifest.has_word && manifest.word.bytes != 8))
			abort();
		walk(&manifest);
	}
	free(copy);
	return 0;
}
