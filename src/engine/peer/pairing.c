/*
 * Which rail of a peer a rail of ours is paired with. A rail over sockets reports what its device carries, so it is paired only
 * with addresses that the kernel sends to by that device; addresses of this host, which no device carries, are as good. When
 * routes change, pairs are judged again. Runs on the group's worker.
 */
#include "engine/peer/pairing.h"
#include "base/time.h"
#include "engine/core/control.h"
#include "engine/core/engine.h"
#include "engine/peer/label.h"
#include "engine/peer/peer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK_NS  (WF_S)      /* at most once per: on some hosts routes change all the time */
#define QUESTIONS 64          /* in one go, and those of one more path: a fifth of a millisecond … */
#define PATHS     1024        /* … or paths whose routes are all known */
#define REST_NS   (5 * WF_MS) /* until the next */

/* Asked once for each state of the kernel's tables. Without an answer the last one holds: at first there is no reason to go
 * without. */
static enum wf_route known_route(struct wf_lane *lane, const struct wf_seat *seat, uint32_t remote)
{
	struct wf_target *target = wf_target_of(lane, seat->place, remote);
	struct wf_group *group = lane->group;
	struct wf_way way;

	if (!seat->limits.sockets)
		return WF_ROUTE_OWN;
	if (target->routes != group->routes) {
		group->questions++;
		if (wf_rail_route(group->kernel, seat->rail, lane->book->rail[remote].address,
				  lane->book->rail[remote].bytes, &way)) {
			target->routes = group->routes;
			target->route = (uint8_t)way.route;
			target->device = way.device;
		}
	}
	return target->route;
}

bool wf_pair_usable(struct wf_lane *lane, const struct wf_seat *seat, uint32_t remote)
{
	return lane->book->rail[remote].reachable && lane->book->rail[remote].local == seat->limits.local &&
	       known_route(lane, seat, remote) <= WF_ROUTE_LOCAL;
}

int wf_pair_pick(struct wf_lane *lane, const struct wf_seat *seat, uint32_t from)
{
	for (uint32_t i = 0; i < lane->book->count; i++) {
		uint32_t remote = (from + i) % lane->book->count;

		if (wf_pair_usable(lane, seat, remote)) {
			lane->path[seat->place].refused = false;
			return (int)remote;
		}
	}
	return -1;
}

/* Once, until a rail is found: the addresses are the peer's to choose, and to change. */
static void say_why_not(struct wf_lane *lane, const struct wf_seat *seat)
{
	char address[64], by[32], more[32] = "", label[WF_LABEL_BYTES];
	uint32_t first = 0;

	while (first < lane->book->count && !lane->book->rail[first].reachable)
		first++;
	if (lane->path[seat->place].refused || first == lane->book->count)
		return;
	lane->path[seat->place].refused = true;
	wf_address_text(lane->book->rail[first].address, lane->book->rail[first].bytes, address, sizeof(address));
	wf_routes_name(lane->group->kernel, wf_target_of(lane, seat->place, first)->device, by, sizeof(by));
	if (lane->book->count > 1)
		snprintf(more, sizeof(more), ", nor to the other %u", lane->book->count - 1);
	wf_log(&lane->group->engine->log, WEFT_LOG_WARN, "rail %s carries nothing to %s of peer %s: %s%s%s",
	       seat->nic->name, address, wf_peer_label(lane->peer, label),
	       by[0] ? "the kernel sends there by " : "no route", by, more);
}

/* By index, so that neighbours meet neighbours. */
static void pair(struct wf_lane *lane, const struct wf_seat *seat, bool say)
{
	struct wf_path *path = &lane->path[seat->place];
	int remote = wf_pair_pick(lane, seat, seat->index);

	path->state = remote < 0 ? WF_PATH_CLOSED : WF_PATH_OPENING;
	path->remote = (uint8_t)(remote < 0 ? 0 : remote);
	if (remote >= 0)
		wf_path_ask_anew(path, wf_group_now(lane->group));
	else if (say && !seat->limits.local) /* most peers are on other hosts */
		say_why_not(lane, seat);
}

/* Whether the path's rail has another device since the last call, or one that came up or went down. */
static bool link_changed(struct wf_lane *lane, const struct wf_seat *seat)
{
	struct wf_path *path = &lane->path[seat->place];
	uint32_t before = path->link;

	if (seat->limits.sockets && seat->rail)
		path->link = wf_rail_link_changes(lane->group->kernel, seat->rail);
	return path->link != before;
}

void wf_lane_pair(struct wf_lane *lane)
{
	for (uint32_t i = 0; i < lane->group->seats; i++) {
		pair(lane, &lane->group->seat[i], true); /* the home says so when nothing answers */
		link_changed(lane, &lane->group->seat[i]);
		lane->path[i].routes = lane->group->routes;
	}
	lane->routes = lane->group->routes;
}

/* ---- changes ---- */

/* What is silent is asked again at once only where something has changed for it: most changes are some container's. A rail
 * that had no pair and has none now was spoken of before, unless the peer has moved. Closes no lane. */
static void judge(struct wf_lane *lane, const struct wf_seat *seat, bool moved)
{
	struct wf_path *path = &lane->path[seat->place];
	bool relinked;

	path->routes = lane->group->routes;
	if (!seat->rail)
		return;
	if (!seat->limits.sockets) { /* no route decides it, but the peer may have other rails now */
		if (moved && path->state != WF_PATH_UP &&
		    (path->state == WF_PATH_CLOSED || !wf_pair_usable(lane, seat, path->remote)))
			pair(lane, seat, false);
		return;
	}
	relinked = link_changed(lane, seat);
	/* No route at all may be a moment's; what was sent is sent again by the kernel when there is one. */
	if (path->talks && known_route(lane, seat, path->talk_remote) == WF_ROUTE_OTHER)
		wf_lane_talk_failed(lane, path, "the kernel sends there by another device now");
	if (path->state == WF_PATH_UP && known_route(lane, seat, path->remote) != WF_ROUTE_OTHER)
		return;
	if (path->state == WF_PATH_OPENING && wf_pair_usable(lane, seat, path->remote)) {
		if (relinked)
			wf_path_ask_anew(path, wf_group_now(lane->group));
		return;
	}
	wf_lane_path_failed(lane, path, "the kernel sends there by another device now");
	pair(lane, seat, moved || path->state != WF_PATH_CLOSED);
}

void wf_lane_pair_again(struct wf_lane *lane)
{
	if (!lane->opened || lane->closing)
		return;
	for (uint32_t i = 0; i < lane->group->seats; i++)
		judge(lane, &lane->group->seat[i], true);
	wf_lane_set_timer(lane);
}

/* False: there is more to ask than fits into this turn. */
static bool judge_lane(struct wf_lane *lane, uint32_t *paths)
{
	struct wf_group *group = lane->group;
	bool all = true;

	if (!lane->opened || lane->closing)
		return true;
	for (uint32_t i = 0; i < group->seats && all; i++) {
		if (lane->path[i].routes == group->routes)
			continue;
		all = group->questions < QUESTIONS && *paths < PATHS;
		if (all) {
			++*paths;
			judge(lane, &group->seat[i], false);
		}
	}
	wf_lane_set_timer(lane);
	return all;
}

/* Those that were judged go to the end of the list, where new ones come too: the first is always the next. */
static void judge_some(struct wf_group *group, uint64_t now_ns)
{
	uint32_t paths = 0;

	group->questions = 0;
	while (group->judging) {
		struct wf_lane *lane = wf_container(group->lanes.next, struct wf_lane, link);

		if (wf_list_empty(&group->lanes) || lane->routes == group->routes) {
			group->judging = false;
			return;
		}
		if (!judge_lane(lane, &paths))
			break;
		lane->routes = group->routes;
		wf_list_remove(&lane->link);
		wf_list_append(&group->lanes, &lane->link);
	}
	wf_timer_set(&group->worker.timers, &group->pairing, now_ns + REST_NS);
}

static void go_on(struct wf_timer *timer, uint64_t now_ns)
{
	judge_some(wf_container(timer, struct wf_group, pairing), now_ns);
}

/* What changes while lanes are still being judged is looked at when they all were: none waits for ever. */
void wf_pairing_check(struct wf_group *group, uint64_t now_ns)
{
	if (group->judging || now_ns < group->routes_ns || !wf_routes_changed(group->kernel))
		return;
	group->routes_ns = now_ns + CHECK_NS;
	group->routes++;
	group->judging = true;
	judge_some(group, now_ns);
}

void wf_pairing_start(struct wf_group *group)
{
	bool sockets = false;

	for (uint32_t i = 0; i < group->seats; i++)
		sockets |= group->seat[i].limits.sockets;
	group->routes = 1;
	group->kernel = sockets ? wf_routes_open() : NULL;
	wf_timer_init(&group->pairing, go_on);
	group->strangers = sockets ? wf_strangers_open() : NULL;
	for (uint32_t i = 0; i < group->seats; i++)
		if (group->seat[i].limits.sockets)
			wf_strangers_watch(group->strangers, group->seat[i].rail);
}

void wf_pairing_stop(struct wf_group *group)
{
	wf_routes_close(group->kernel);
	group->kernel = NULL;
	wf_strangers_close(group->strangers);
	group->strangers = NULL;
}

/* ---- path information ---- */

struct asked {
	struct wf_peer *peer;
	struct wf_seat *seat;
	uint32_t remote;
	struct weft_path_info info;
};

static enum weft_path_state state_of(struct wf_lane *lane, const struct wf_seat *seat, uint32_t remote,
				     enum wf_route route)
{
	const struct wf_path *path = &lane->path[seat->place];
	const struct wf_target *target = wf_target_of(lane, seat->place, remote);

	if (path->state == WF_PATH_UP && path->remote == remote)
		return wf_lane_passes_over(lane, seat, false) ? WEFT_PATH_ANSWERED : WEFT_PATH_UP;
	if (route == WF_ROUTE_OTHER)
		return WEFT_PATH_ELSEWHERE;
	if (route == WF_ROUTE_NONE || !lane->book->rail[remote].reachable ||
	    lane->book->rail[remote].local != seat->limits.local)
		return WEFT_PATH_NO_ROUTE;
	return target->answered ? WEFT_PATH_ANSWERED : target->asked ? WEFT_PATH_SILENT : WEFT_PATH_UNUSED;
}

static int look_at(struct wf_group *group, void *context)
{
	struct asked *asked = context;
	struct wf_lane *lane = asked->peer->lane[group->index];
	struct wf_way way = { .route = WF_ROUTE_OWN };

	if (asked->seat->group != group)
		return 0;
	if (asked->remote >= lane->book->count)
		return -ENOENT;
	if (asked->seat->rail)
		wf_rail_route(group->kernel, asked->seat->rail, lane->book->rail[asked->remote].address,
			      lane->book->rail[asked->remote].bytes, &way);
	wf_routes_name(group->kernel, way.device, asked->info.by, sizeof(asked->info.by));
	if (way.route == WF_ROUTE_LOCAL)
		snprintf(asked->info.by, sizeof(asked->info.by), "lo");
	wf_address_text(lane->book->rail[asked->remote].address, lane->book->rail[asked->remote].bytes,
			asked->info.address, sizeof(asked->info.address));
	asked->info.state = state_of(lane, asked->seat, asked->remote, way.route);
	wf_carried_by_path(&lane->path[asked->seat->place], asked->remote, &asked->info);
	return 0;
}

/* The thread that asked has left. */
static void forget_late(struct wf_group *group, void *context)
{
	struct asked *asked = context;

	wf_handle_put(&group->engine->peers, asked->peer->handle);
	free(asked);
}

int wf_path_info(struct weft_engine *engine, weft_peer handle, uint32_t rail, uint32_t remote,
		 struct weft_path_info *ret_info)
{
	struct wf_peer *peer = wf_handle_get(&engine->peers, handle);
	struct asked *asked = peer ? calloc(1, sizeof(*asked)) : NULL;
	int error = peer ? -ENOMEM : -ENOENT;

	if (asked) {
		*asked = (struct asked){ .peer = peer, .seat = engine->seat[rail], .remote = remote };
		error = wf_engine_control(engine, look_at, forget_late, asked);
	}
	if (error == -ETIMEDOUT)
		return error; /* a worker hangs in its provider and may still come to it */
	if (!error)
		*ret_info = asked->info;
	free(asked);
	if (peer)
		wf_handle_put(&engine->peers, handle);
	return error;
}
