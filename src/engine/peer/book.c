/* Address books: book.h says what they are. Any thread. */
#include "engine/peer/book.h"
#include "engine/core/engine.h"

#include <stdlib.h>
#include <string.h>

static bool is_of_this_host(const struct weft_engine *engine, const struct wf_wire_rail *rail)
{
	const struct wf_seat *local = engine->seat[engine->rails - 1]; /* if it has one */

	return local->rail && wf_rail_is_here(local->rail, rail->address, rail->address_bytes);
}

struct wf_book *wf_book_make(struct weft_engine *engine, const struct wf_wire_address *address, uint64_t secret,
			     enum wf_word word)
{
	struct wf_book *book = calloc(1, sizeof(*book) + address->count * sizeof(book->rail[0]));

	/* Everything that lanes need to change over: none may be left behind with the old book for want of memory. */
	if (book)
		book->targets = calloc((size_t)engine->rails * address->count, sizeof(*book->targets));
	if (!book || !book->targets) {
		free(book);
		return NULL;
	}
	atomic_store(&book->references, 1);
	book->secret = secret;
	book->word = word;
	book->revision = address->revision;
	book->count = address->count;
	for (uint32_t i = 0; i < address->count; i++) {
		const struct wf_wire_rail *rail = &address->rail[i];

		book->rail[i].format = rail->address_format;
		book->rail[i].serial = rail->serial;
		book->rail[i].bytes = rail->address_bytes;
		memcpy(book->rail[i].address, rail->address, sizeof(rail->address));
		book->rail[i].looks = rail->looks;
		book->rail[i].local = !strcmp(rail->provider, "local");
		book->rail[i].reachable =
		    book->rail[i].local ? is_of_this_host(engine, rail) : !strcmp(rail->provider, engine->provider);
	}
	return book;
}

void wf_book_put(struct wf_book *book)
{
	if (book && atomic_fetch_sub(&book->references, 1) == 1) {
		free(book->targets);
		free(book);
	}
}

bool wf_book_has(const struct wf_book *book, const struct wf_wire_address *address, uint32_t rail)
{
	return rail < book->count && rail < address->count &&
	       book->rail[rail].format == address->rail[rail].address_format &&
	       book->rail[rail].bytes == address->rail[rail].address_bytes &&
	       !memcmp(book->rail[rail].address, address->rail[rail].address, book->rail[rail].bytes);
}

bool wf_book_is(const struct wf_book *book, const struct wf_wire_address *address)
{
	bool same = book->revision == address->revision && book->count == address->count;

	for (uint32_t i = 0; same && i < book->count; i++)
		same = wf_book_has(book, address, i);
	return same;
}
