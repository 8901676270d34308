/*
 * The directory: peers by incarnation; adding, removing and replacing them on application threads, or adding on the worker
 * that a stranger's hello arrived at. What happens to a peer then is its home's (peer.c).
 */
#include "engine/peer/directory.h"
#include "base/random.h"
#include "base/time.h"
#include "engine/core/control.h"
#include "engine/core/engine.h"
#include "engine/peer/doubt.h"
#include "engine/peer/label.h"
#include "engine/ops/legs.h"
#include "engine/peer/peer.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#define MOVE_NS (1 * WF_S) /* a peer's addresses follow its greetings once per … */
#define MOVES   4u         /* … and this many times at once, after it has not moved for a while */

static int by_incarnation(const void *a, const void *b)
{
	uint64_t x = atomic_load(&((struct wf_peer *)(uintptr_t)a)->incarnation);
	uint64_t y = atomic_load(&((struct wf_peer *)(uintptr_t)b)->incarnation);

	return x < y ? -1 : x > y;
}

static struct wf_peer *directory_find(struct weft_engine *engine, uint64_t incarnation)
{
	struct wf_peer key = { .incarnation = incarnation };
	struct wf_peer **found = tfind(&key, &engine->directory, by_incarnation);

	return found ? *found : NULL;
}

/* Both under the lock: the directory holds only live peers. */
bool wf_peer_retire(struct wf_peer *peer, bool stranger_only)
{
	struct weft_engine *engine = peer->engine;
	bool retired;

	pthread_mutex_lock(&engine->directory_lock);
	retired = !(stranger_only && peer->added) && wf_handle_retire(&engine->peers, peer->handle);
	if (retired) {
		engine->strangers -= !peer->added;
		tdelete(peer, &engine->directory, by_incarnation);
	}
	pthread_mutex_unlock(&engine->directory_lock);
	return retired;
}

/* What a peer costs us; what the provider keeps for it comes on top. */
static uint64_t size_of(const struct wf_peer *peer)
{
	const struct weft_engine *engine = peer->engine;
	uint64_t rails = peer->book->count;

	return sizeof(*peer) + sizeof(*peer->book) + rails * sizeof(peer->book->rail[0]) +
	       engine->groups * (sizeof(struct wf_lane) + sizeof(peer->lane[0])) +
	       engine->rails * (sizeof(struct wf_path) + rails * sizeof(struct wf_target));
}

static struct wf_peer *make_peer(struct weft_engine *engine, const struct wf_wire_address *address, uint64_t secret,
				 enum wf_word word)
{
	struct wf_peer *peer = calloc(1, sizeof(*peer) + engine->groups * sizeof(peer->lane[0]));

	if (!peer)
		return NULL;
	peer->engine = engine;
	atomic_store(&peer->secret, secret);
	peer->home = &engine->group[address->incarnation % engine->groups];
	atomic_store(&peer->incarnation, address->incarnation);
	atomic_store(&peer->epoch, atomic_fetch_add(&engine->epochs, 1) + 1);
	wf_list_init(&peer->operations);
	wf_list_init(&peer->pumping);
	wf_list_init(&peer->acking);
	wf_list_init(&peer->ending);
	wf_list_init(&peer->barriers);
	wf_list_init(&peer->verdicts);
	wf_list_init(&peer->landed);
	wf_channel_out_init(&peer->out);
	wf_channel_in_init(&peer->in);
	wf_note_init(&peer->open_note, WF_NOTE_PEER, peer);
	wf_note_init(&peer->gone_note, WF_NOTE_PEER_GONE, peer);
	wf_timer_init(&peer->tick, wf_peer_tick);
	wf_timer_init(&peer->doubt, wf_peer_doubt);
	peer->book = wf_book_make(engine, address, secret, word);
	for (uint32_t g = 0; peer->book && g < engine->groups; g++)
		if (wf_lane_init(peer, &engine->group[g], &peer->lane[g])) {
			wf_peer_release(peer);
			return NULL;
		}
	if (!peer->book) {
		wf_peer_release(peer);
		return NULL;
	}
	peer->bytes = size_of(peer);
	atomic_fetch_add(&engine->peer_bytes, peer->bytes);
	return peer;
}

void wf_peer_release(void *object)
{
	struct wf_peer *peer = object;

	atomic_fetch_sub(&peer->engine->peer_bytes, peer->bytes);

	for (uint32_t g = 0; g < peer->engine->groups; g++)
		wf_lane_free(peer->lane[g]);
	wf_legs_free(peer);
	wf_book_put(peer->book);
	wf_knock_close(peer->knock);
	free(peer);
}

/* ---- books ---- */

static bool is_newer(const struct wf_peer *peer, const struct wf_wire_address *address)
{
	return address->incarnation == atomic_load(&peer->incarnation) &&
	       (int32_t)(address->revision - peer->book->revision) > 0;
}

/* The peer's latest book from now on, and the secret that holds; under the directory's lock. False: there is no memory for
 * it. True: tell_lanes() is next. */
static bool swap_book(struct wf_peer *peer, const struct wf_wire_address *address, uint64_t secret, enum wf_word word)
{
	struct wf_book *book = wf_book_make(peer->engine, address, secret, word);

	if (!book)
		return false;
	book->number = peer->book->number + 1;
	wf_book_put(peer->book);
	atomic_store(&peer->secret, secret);
	peer->book = book;
	return true;
}

/* On the worker of from, or on an application's thread (NULL). Each lane takes the latest book when it hears of it. */
static void tell_lanes(struct wf_peer *peer, struct wf_group *from)
{
	struct weft_engine *engine = peer->engine;

	for (uint32_t g = 0; g < engine->groups; g++) {
		wf_handle_ref(&engine->peers, peer->handle); /* until the note has been heard */
		if (!wf_note_tell(from, &engine->group[g], &peer->lane[g]->book_note))
			wf_handle_put(&engine->peers, peer->handle);
	}
}

struct wf_book *wf_peer_book(struct wf_peer *peer)
{
	struct wf_book *book;

	pthread_mutex_lock(&peer->engine->directory_lock);
	book = peer->book;
	atomic_fetch_add(&book->references, 1);
	pthread_mutex_unlock(&peer->engine->directory_lock);
	return book;
}

/* Each move costs every lane some work, and a peer can claim as many as it likes. Several rails may be reopened at once. */
static bool may_move(struct wf_peer *peer, uint64_t now_ns)
{
	uint64_t earliest = now_ns > MOVES * MOVE_NS ? now_ns - MOVES * MOVE_NS : 0;

	if (peer->moved_ns < earliest)
		peer->moved_ns = earliest;
	if (peer->moved_ns + MOVE_NS > now_ns)
		return false; /* it says so again with its next hello */
	peer->moved_ns += MOVE_NS;
	return true;
}

void wf_peer_moved(struct wf_lane *lane, const struct wf_wire_address *address)
{
	struct wf_peer *peer = lane->peer;
	bool moved = false;

	pthread_mutex_lock(&peer->engine->directory_lock);
	/* The application may have said who the peer is, and the lane not have heard of it yet. */
	if (lane->book->secret == peer->book->secret && is_newer(peer, address) &&
	    may_move(peer, wf_group_now(lane->group)))
		moved = swap_book(peer, address, peer->book->secret,
				  peer->book->word == WF_WORD_APPLICATION ? WF_WORD_APPLICATION : WF_WORD_MOVED);
	pthread_mutex_unlock(&peer->engine->directory_lock);
	if (moved)
		tell_lanes(peer, lane->group);
}

uint32_t wf_peer_rails(struct wf_peer *peer)
{
	uint32_t rails;

	pthread_mutex_lock(&peer->engine->directory_lock);
	rails = peer->book->count;
	pthread_mutex_unlock(&peer->engine->directory_lock);
	return rails;
}

/* ---- adding, removing, replacing ---- */

/* The home is asked to try again. Operations are accepted from now on: their notes come after this one. Counted before the
 * lanes are told of a new book, so that the home takes nothing of what they hear there for the old connection. Without the
 * directory's lock, for the inbox may be full. */
static void renew(struct wf_peer *peer, enum wf_peer_change change, bool moved)
{
	wf_handle_ref(&peer->engine->peers, peer->handle); /* until the note has been read */
	atomic_fetch_add(&peer->renewals, 1);
	atomic_fetch_add(&peer->lives_asked, 1);
	atomic_fetch_add(&peer->replacements, change == WF_PEER_REPLACE);
	if (moved)
		tell_lanes(peer, NULL);
	wf_engine_post(peer->home, WF_NOTE_PEER, peer, change);
}

/* Under the directory's lock. */
static void set_added(struct wf_peer *peer)
{
	peer->engine->strangers -= !peer->added;
	peer->added = true;
}

/* A known peer added again: its rails may have been reopened, and it may have been given up. One that so far was a stranger and
 * has not shown that it lives where the application says may have somebody else's name. With the directory's lock held, which
 * it lets go of. */
static int add_again(struct wf_peer *peer, const struct wf_wire_address *address, uint64_t secret, weft_peer *ret_peer)
{
	struct weft_engine *engine = peer->engine;
	weft_peer handle = peer->handle;
	bool other = !peer->added && (peer->book->word != WF_WORD_PROVED || !wf_book_is(peer->book, address));
	bool news = !peer->added || is_newer(peer, address);

	if (news && !swap_book(peer, address, other ? secret : peer->book->secret, WF_WORD_APPLICATION)) {
		pthread_mutex_unlock(&engine->directory_lock);
		return -ENOMEM;
	}
	wf_handle_ref(&engine->peers, handle);
	set_added(peer);
	pthread_mutex_unlock(&engine->directory_lock);
	if (other)
		renew(peer, WF_PEER_REPLACE, news);
	else if (atomic_load(&peer->state) == WF_PEER_DOWN)
		renew(peer, WF_PEER_RETRY, news);
	else if (news)
		tell_lanes(peer, NULL);
	wf_handle_put(&engine->peers, handle);
	*ret_peer = handle;
	return 0;
}

struct wf_peer *wf_peer_find(struct weft_engine *engine, uint64_t incarnation)
{
	struct wf_peer *peer;

	pthread_mutex_lock(&engine->directory_lock);
	peer = directory_find(engine, incarnation);
	if (peer)
		peer = wf_handle_get(&engine->peers, peer->handle);
	pthread_mutex_unlock(&engine->directory_lock);
	return peer;
}

/* How a peer comes to be one. */
struct arrival {
	struct wf_group *from;                 /* a stranger's hello reached it; NULL: the application adds the peer */
	const struct weft_peer_config *config; /* the application's, or NULL */
	uint64_t secret, theirs;
};

/* With the directory's lock held, which it lets go of. */
static int add_new(struct weft_engine *engine, const struct wf_wire_address *address, const struct arrival *arrival,
		   weft_peer *ret_peer)
{
	struct wf_group *from = arrival->from;
	struct wf_peer *peer = make_peer(engine, address, arrival->secret, from ? WF_WORD_PROVED : WF_WORD_APPLICATION);
	int error = peer ? 0 : -ENOMEM;

	if (!error) {
		peer->added = !from;
		wf_peer_set_label(peer, arrival->config);
		atomic_store(&peer->their_secret, arrival->theirs);
		error = tsearch(peer, &engine->directory, by_incarnation) ? 0 : -ENOMEM;
	}
	/* Last: from here on frames may name it, and it goes only by closing its lanes. */
	if (!error && (error = wf_handle_add(&engine->peers, peer, &peer->handle)))
		tdelete(peer, &engine->directory, by_incarnation);
	/* A reference per note: a thread that adds it at the same time may have removed it before they are read. */
	for (uint32_t i = 0; !error && i < engine->groups + 1; i++)
		wf_handle_ref(&engine->peers, peer->handle);
	engine->strangers += !error && from;
	pthread_mutex_unlock(&engine->directory_lock);
	if (error) {
		if (peer)
			wf_peer_release(peer);
		return error;
	}
	*ret_peer = peer->handle;
	wf_note_tell_value(from, peer->home, &peer->open_note, WF_PEER_OPEN);
	for (uint32_t g = 0; g < engine->groups; g++)
		wf_note_tell(from, &engine->group[g], &peer->lane[g]->open_note);
	return 0;
}

int wf_peer_add(struct weft_engine *engine, const struct wf_wire_address *address,
		const struct weft_peer_config *config, weft_peer *ret_peer)
{
	struct arrival arrival = { .config = config };
	struct wf_peer *peer;
	int error = wf_random(&arrival.secret);

	if (error)
		return error;
	pthread_mutex_lock(&engine->directory_lock);
	peer = directory_find(engine, address->incarnation);
	if (!peer)
		return add_new(engine, address, &arrival, ret_peer);
	wf_peer_set_label(peer, config);
	return add_again(peer, address, arrival.secret, ret_peer);
}

int wf_peer_add_stranger(struct wf_group *from, const struct wf_wire_address *address, uint64_t secret, uint64_t theirs,
			 weft_peer *ret_peer)
{
	struct arrival arrival = { .from = from, .secret = secret, .theirs = theirs };
	struct weft_engine *engine = from->engine;
	struct wf_peer *peer;
	int error = 0;

	pthread_mutex_lock(&engine->directory_lock);
	peer = directory_find(engine, address->incarnation);
	if (peer)
		*ret_peer = peer->handle;
	else if (engine->settings.flags & WEFT_REFUSE_UNKNOWN)
		error = -EPERM;
	else if (engine->strangers >= engine->settings.max_strangers)
		error = -EDQUOT;
	else
		return add_new(engine, address, &arrival, ret_peer);
	pthread_mutex_unlock(&engine->directory_lock);
	return error;
}

int wf_peer_remove(struct weft_engine *engine, weft_peer handle)
{
	struct wf_peer *peer = wf_handle_get(&engine->peers, handle);
	bool ours = peer && wf_peer_retire(peer, false);

	/* The owner's reference goes with the note. */
	if (ours)
		wf_engine_post(peer->home, WF_NOTE_PEER, peer, WF_PEER_REMOVE);
	if (peer)
		wf_handle_put(&engine->peers, handle);
	return ours ? 0 : -ENOENT;
}

/* Under the directory's lock: it is listed under its new incarnation, and what the old one exported is stale. */
static int become(struct wf_peer *peer, const struct wf_wire_address *address, uint64_t secret, bool *ret_moved)
{
	struct weft_engine *engine = peer->engine;
	struct wf_peer *other = directory_find(engine, address->incarnation);

	if (!wf_handle_peek(&engine->peers, peer->handle))
		return -ENOENT; /* removed meanwhile */
	if (other && other != peer)
		return -EALREADY; /* it said hello before we replaced: it is a peer of its own */
	if (!swap_book(peer, address, secret, WF_WORD_APPLICATION))
		return -ENOMEM;
	tdelete(peer, &engine->directory, by_incarnation);
	atomic_store(&peer->incarnation, address->incarnation);
	set_added(peer);
	*ret_moved = true;
	/* The node just freed is there to be taken again; should another have taken it, hellos from there find no peer. */
	return tsearch(peer, &engine->directory, by_incarnation) ? 0 : -ENOMEM;
}

int wf_peer_replace(struct weft_engine *engine, weft_peer handle, const struct wf_wire_address *address)
{
	struct wf_peer *peer = wf_handle_get(&engine->peers, handle);
	bool moved = false;
	uint64_t secret;
	int error;

	if (!peer)
		return -ENOENT;
	error = wf_random(&secret);
	pthread_mutex_lock(&engine->directory_lock);
	if (!error)
		error = become(peer, address, secret, &moved);
	pthread_mutex_unlock(&engine->directory_lock);
	if (moved)
		renew(peer, WF_PEER_REPLACE, true);
	wf_handle_put(&engine->peers, handle);
	return error;
}
