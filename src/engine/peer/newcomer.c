/*
 * Newcomers: newcomer.h says who they are. A hello from an engine that nobody added gets a slot in a small table and nothing
 * else. A challenge with a secret goes to the address that the hello claims; a hello that brings the secret back comes from an
 * engine that is really there, and makes a peer. Runs on the group's worker.
 */
#include "engine/peer/newcomer.h"
#include "base/random.h"
#include "base/time.h"
#include "engine/core/engine.h"
#include "engine/move/reset.h"
#include "engine/move/retire.h"
#include "engine/peer/directory.h"
#include "engine/peer/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ANNOUNCED_EACH   4
#define SLOTS            64
#define SLOTS_OUT        8            /* whose challenge may be on a NIC at the same time */
#define SLOTS_STUCK      32           /* … besides those that were sent where nobody is and are stuck there */
#define KEEP_NS          (50 * WF_MS) /* time to answer before another may take the slot */
#define KEEP_LAST_NS     (250 * WF_MS)
#define CONNECT_NS       (2 * WF_S)  /* where connecting takes a card's driver long, and no descriptor of the process */
#define UNPROVED_NS      (WF_S / 64) /* over sockets: mean time between two new addresses that are tried … */
#define UNPROVED_AT_ONCE 64          /* … and how many at once; an engine that proves itself does not count */
#define UNCLOSED         256         /* connections of a rail still to be closed: none is tried beyond that */
#define RETRY_NS         (1 * WF_MS) /* doubles: the provider is connecting, or nobody is there … */
#define RETRY_DOUBLED    6           /* … this many times */
#define REOPEN_EVERY_NS  (5 * WF_S)

struct newcomer {
	bool used;
	bool counted;    /* in unproved_ns */
	bool challenged; /* the provider took the first challenge, at since_ns */
	uint8_t rail, bytes, tries;
	uint8_t address[WF_MAX_RAIL_ADDRESS];
	uint64_t incarnation;
	uint64_t secret;         /* ours for it */
	uint64_t theirs, handle; /* its for us, as its hello says */
	uint64_t since_ns, send_ns;
	struct wf_seat *seat;
	enum wf_end end;     /* of ours that it is challenged over */
	uint32_t generation; /* of that endpoint, when target was inserted in it */
	uint64_t target;
	struct wf_lane *lane; /* of no peer: counts what is on the NIC */
};

struct wf_newcomers {
	struct wf_group *group;
	struct wf_timer timer;
	/* when all that were sent to and did not prove themselves will have had their share of time */
	uint64_t unproved_ns;
	struct newcomer slot[SLOTS];
};

static void on_timer(struct wf_timer *timer, uint64_t now_ns);

int wf_newcomers_open(struct wf_group *group)
{
	group->newcomers = calloc(1, sizeof(*group->newcomers));
	if (!group->newcomers)
		return -ENOMEM;
	group->newcomers->group = group;
	wf_timer_init(&group->newcomers->timer, on_timer);
	return 0;
}

void wf_newcomers_close(struct wf_group *group)
{
	for (int i = 0; group->newcomers && i < SLOTS; i++)
		free(group->newcomers->slot[i].lane);
	free(group->newcomers);
}

static uint32_t on_nic(const struct newcomer *newcomer)
{
	return newcomer->lane ? newcomer->lane->in_flight : 0;
}

static void forget(struct newcomer *newcomer)
{
	struct wf_seat *seat = newcomer->seat;

	if (newcomer->generation == seat->generation[newcomer->end])
		wf_seat_retire(seat, newcomer->end, newcomer->address, newcomer->bytes);
	newcomer->used = false;
}

/* ---- challenges ---- */

static int send_challenge(struct newcomer *newcomer)
{
	struct wf_group *group = newcomer->seat->group;
	struct wf_frame header = { .kind = WF_FRAME_CHALLENGE,
				   .incarnation = group->engine->incarnation,
				   .to_peer = newcomer->handle,
				   .token = newcomer->theirs,
				   .greeting = { .secret = newcomer->secret,
						 .from_rail = (uint8_t)newcomer->seat->index,
						 .to_rail = newcomer->rail } };
	struct wf_tx_frame *tx = wf_group_take_tx(group);
	int error;

	if (!tx)
		return -EAGAIN;
	*wf_tx_header(tx) = header;
	wf_frame_seal(wf_tx_header(tx));
	error = wf_seat_greet(newcomer->seat, newcomer->end, newcomer->lane, newcomer->target, tx);
	if (error)
		wf_group_give_unsent_tx(group, tx);
	return error;
}

static uint32_t count_on_nic(const struct wf_newcomers *newcomers)
{
	uint32_t count = 0;

	for (int i = 0; i < SLOTS; i++)
		count += on_nic(&newcomers->slot[i]);
	return count;
}

static uint32_t count_stuck(const struct wf_group *group)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < group->tx_count; i++)
		count += group->tx[i].stuck && group->tx[i].lane && !group->tx[i].lane->peer;
	return count;
}

/* Addresses where nobody is must not keep everybody else out; nor may they hold most slots, or frames. */
static bool may_send(const struct wf_newcomers *newcomers)
{
	uint32_t out = count_on_nic(newcomers), stuck;

	if (out < SLOTS_OUT)
		return true;
	stuck = count_stuck(newcomers->group);
	return stuck < SLOTS_STUCK && stuck < newcomers->group->tx_count / 4 && out - stuck < SLOTS_OUT;
}

static void try_send(struct wf_newcomers *newcomers, struct newcomer *newcomer, uint64_t now_ns)
{
	int error = -EAGAIN;

	if (newcomer->generation != newcomer->seat->generation[newcomer->end]) {
		newcomer->send_ns = WF_NEVER; /* it says hello again */
		return;
	}
	if (may_send(newcomers))
		error = send_challenge(newcomer);
	if (!error && !newcomer->challenged) {
		newcomer->challenged = true;
		newcomer->since_ns = now_ns; /* its time to answer begins */
	}
	newcomer->send_ns = error == -EAGAIN ? now_ns + (RETRY_NS << newcomer->tries) : WF_NEVER;
	newcomer->tries += newcomer->tries < RETRY_DOUBLED;
}

static uint64_t end_of(const struct newcomer *newcomer)
{
	bool connects = !newcomer->challenged && !newcomer->seat->limits.sockets;

	return newcomer->since_ns + (connects ? CONNECT_NS : KEEP_LAST_NS);
}

static void set_timer(struct wf_newcomers *newcomers)
{
	uint64_t next = WF_NEVER;

	for (int i = 0; i < SLOTS; i++) {
		const struct newcomer *newcomer = &newcomers->slot[i];
		uint64_t end;

		if (!newcomer->used)
			continue;
		end = end_of(newcomer);
		end = newcomer->send_ns < end ? newcomer->send_ns : end;
		next = end < next ? end : next;
	}
	wf_timer_set(&newcomers->group->worker.timers, &newcomers->timer, next);
}

static void on_timer(struct wf_timer *timer, uint64_t now_ns)
{
	struct wf_newcomers *newcomers = wf_container(timer, struct wf_newcomers, timer);

	for (int i = 0; i < SLOTS; i++) {
		struct newcomer *newcomer = &newcomers->slot[i];

		if (!newcomer->used)
			continue;
		if (now_ns >= end_of(newcomer)) {
			if (on_nic(newcomer))
				newcomer->since_ns = now_ns; /* the address is in use until then */
			else
				forget(newcomer);
		} else if (newcomer->send_ns <= now_ns) {
			try_send(newcomers, newcomer, now_ns);
		}
	}
	set_timer(newcomers);
}

/* ---- hellos ---- */

static struct newcomer *find(struct wf_newcomers *newcomers, const struct wf_seat *seat, const struct wf_frame *hello,
			     const struct wf_wire_rail *rail)
{
	for (int i = 0; i < SLOTS; i++) {
		struct newcomer *newcomer = &newcomers->slot[i];

		if (newcomer->used && newcomer->incarnation == hello->incarnation && newcomer->seat == seat &&
		    newcomer->rail == hello->greeting.from_rail && newcomer->bytes == rail->address_bytes &&
		    !memcmp(newcomer->address, rail->address, rail->address_bytes))
			return newcomer;
	}
	return NULL;
}

/* A free slot, or that of the one who had the most time to answer; NULL: all are in use. */
static struct newcomer *take_slot(struct wf_newcomers *newcomers, uint64_t now_ns)
{
	struct newcomer *oldest = NULL;

	for (int i = 0; i < SLOTS; i++) {
		struct newcomer *newcomer = &newcomers->slot[i];

		if (on_nic(newcomer))
			continue;
		if (!newcomer->used)
			return newcomer;
		if (now_ns - newcomer->since_ns >= KEEP_NS && (!oldest || newcomer->since_ns < oldest->since_ns))
			oldest = newcomer;
	}
	if (oldest)
		forget(oldest);
	return oldest;
}

static struct wf_lane *make_lane(struct wf_group *group)
{
	struct wf_lane *lane = calloc(1, sizeof(*lane) + group->seats * sizeof(lane->path[0]));

	if (lane)
		lane->group = group;
	return lane;
}

/* Where nobody of ours has been before the provider connects, which takes a descriptor until that is closed again. */
static bool is_new_place(const struct wf_seat *seat, const struct wf_wire_rail *rail)
{
	return seat->limits.sockets && !wf_rail_has(seat->rail, WF_PUBLISHED, rail->address, rail->address_bytes);
}

static bool may_connect(const struct wf_newcomers *newcomers, const struct wf_seat *seat, uint64_t now_ns)
{
	return newcomers->unproved_ns < now_ns + UNPROVED_AT_ONCE * UNPROVED_NS &&
	       wf_rail_abandoned(seat->rail) + seat->retired_count < UNCLOSED;
}

static void count_unproved(struct wf_newcomers *newcomers, struct newcomer *newcomer, uint64_t now_ns)
{
	if (newcomers->unproved_ns < now_ns)
		newcomers->unproved_ns = now_ns;
	newcomers->unproved_ns += UNPROVED_NS;
	newcomer->counted = true;
}

static void uncount_unproved(struct wf_newcomers *newcomers, struct newcomer *newcomer)
{
	if (newcomer->counted)
		newcomers->unproved_ns -= UNPROVED_NS;
	newcomer->counted = false;
}

/* A peer that was forgotten comes as a newcomer, and our endpoints may be deaf to it (greeting.h). Its hello shows that it lives, but
 * anybody can name an address to which messages fail: the outgoing endpoint is reopened for that seldom. */
static enum wf_end end_for(struct wf_seat *seat, const struct wf_wire_rail *rail)
{
	if (!seat->limits.numbers_messages ||
	    !wf_rail_has_lost(seat->rail, WF_PUBLISHED, rail->address, rail->address_bytes))
		return WF_PUBLISHED;
	if (wf_seat_is_open(seat, WF_OUTGOING) &&
	    wf_rail_has_lost(seat->rail, WF_OUTGOING, rail->address, rail->address_bytes) &&
	    wf_group_now(seat->group) - seat->opened_ns > REOPEN_EVERY_NS)
		wf_reset_ask(seat, WF_RESET_OUTGOING, "a message to a newcomer failed, and none after it is delivered");
	return WF_OUTGOING;
}

static void challenge(struct wf_newcomers *newcomers, struct wf_seat *seat, const struct wf_frame *hello,
		      const struct wf_wire_rail *rail)
{
	uint64_t now = wf_group_now(seat->group), secret, target;
	struct newcomer *newcomer = find(newcomers, seat, hello, rail);

	if (!newcomer) {
		enum wf_end end = end_for(seat, rail);
		struct wf_lane *lane;
		bool new_place = is_new_place(seat, rail);

		if (!wf_seat_is_open(seat, end) || (new_place && !may_connect(newcomers, seat, now)))
			return; /* it says hello again */
		newcomer = take_slot(newcomers, now);
		if (!newcomer || (!newcomer->lane && !(newcomer->lane = make_lane(seat->group))) ||
		    wf_random(&secret) || wf_rail_insert(seat->rail, end, rail->address, rail->address_bytes, &target))
			return;
		lane = newcomer->lane;
		*newcomer = (struct newcomer){ .used = true,
					       .lane = lane,
					       .incarnation = hello->incarnation,
					       .secret = secret,
					       .since_ns = now,
					       .seat = seat,
					       .end = end,
					       .generation = seat->generation[end],
					       .target = target,
					       .rail = hello->greeting.from_rail,
					       .bytes = rail->address_bytes };
		memcpy(newcomer->address, rail->address, rail->address_bytes);
		if (new_place)
			count_unproved(newcomers, newcomer, now);
	} else if (on_nic(newcomer) || newcomer->send_ns != WF_NEVER) {
		return;
	}
	newcomer->theirs = hello->greeting.secret;
	newcomer->handle = hello->greeting.handle;
	newcomer->tries = 0;
	try_send(newcomers, newcomer, now);
	set_timer(newcomers);
}

/* The lane goes on with the entry of the address vector. */
static void hand_over(struct newcomer *newcomer, struct wf_peer *peer)
{
	struct wf_seat *seat = newcomer->seat;
	struct wf_target *target = wf_target_of(peer->lane[seat->group->index], seat->place, newcomer->rail);

	if (newcomer->generation != seat->generation[newcomer->end] ||
	    target->generation[newcomer->end] == newcomer->generation)
		return;
	target->target[newcomer->end] = newcomer->target;
	target->generation[newcomer->end] = newcomer->generation;
	newcomer->used = false;
}

struct wf_peer *wf_newcomer_proves(struct wf_group *group, struct wf_seat *seat, const struct wf_frame *hello,
				   const struct wf_wire_address *address)
{
	const struct wf_wire_rail *rail = &address->rail[hello->greeting.from_rail];
	struct newcomer *newcomer;
	const struct wf_book *book;
	struct wf_peer *peer;
	weft_peer handle;

	/* A stranger that comes and goes leaves two events behind: while nobody reads them, no other is let in. */
	if (atomic_load_explicit(&group->engine->announced, memory_order_relaxed) >
	    ANNOUNCED_EACH * (uint64_t)group->engine->settings.max_strangers)
		return NULL;
	if ((group->engine->settings.flags & WEFT_REFUSE_UNKNOWN) || hello->greeting.from_rail >= address->count ||
	    rail->address_format != seat->limits.address_format || !wf_seat_is_open(seat, WF_PUBLISHED))
		return NULL;
	newcomer = find(group->newcomers, seat, hello, rail);
	if (!newcomer || newcomer->secret != hello->token) {
		challenge(group->newcomers, seat, hello, rail);
		return NULL;
	}
	if (wf_peer_add_stranger(group, address, newcomer->secret, hello->greeting.secret, &handle))
		return NULL;
	uncount_unproved(group->newcomers, newcomer);
	peer = wf_handle_get(&group->engine->peers, handle);
	/* Another worker may have added it, or the application: by other addresses even. */
	book = peer ? peer->lane[group->index]->book : NULL;
	if (book && book->secret == newcomer->secret && wf_book_has(book, address, newcomer->rail))
		hand_over(newcomer, peer);
	return peer;
}
