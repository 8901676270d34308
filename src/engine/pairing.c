/*
 * Which rail of a peer a rail of ours is paired with. A rail over sockets reports what its device carries, so it is paired only
 * with addresses that the kernel sends to by that device; addresses of this host, which no device carries, are as good. When
 * routes change, pairs are judged again. Runs on the group's worker.
 */
#include "base/time.h"
#include "engine/engine.h"
#include "engine/peer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define LOOK_NS (WF_S) /* at most so often: on some hosts routes change all the time */

/* Asked once for each state of the kernel's tables. Without an answer the last one holds: at first there is no reason to go
 * without. */
static enum wf_route known_route(struct wf_lane *lane, const struct wf_seat *seat, uint32_t remote)
{
	struct wf_target *target = wf_target_of(lane, seat->place, remote);
	struct wf_group *group = lane->group;
	struct wf_way way;

	if (!seat->limits.sockets)
		return WF_ROUTE_OWN;
	if (target->routes != group->routes &&
	    wf_rail_route(group->kernel, seat->rail, lane->book->rail[remote].address, lane->book->rail[remote].bytes, &way)) {
		target->routes = group->routes;
		target->route = (uint8_t)way.route;
		target->device = way.device;
	}
	return target->route;
}

bool wf_pair_usable(struct wf_lane *lane, const struct wf_seat *seat, uint32_t remote)
{
	return lane->book->rail[remote].reachable && known_route(lane, seat, remote) <= WF_ROUTE_LOCAL;
}

static void say_why_not(const struct wf_lane *lane, const struct wf_seat *seat)
{
	char address[64], by[32];

	for (uint32_t i = 0; i < lane->book->count; i++) {
		if (!lane->book->rail[i].reachable)
			continue;
		wf_address_text(lane->book->rail[i].address, lane->book->rail[i].bytes, address, sizeof(address));
		wf_routes_name(lane->group->kernel, wf_target_of(lane, seat->place, i)->device, by, sizeof(by));
		wf_log(&lane->group->engine->log, WEFT_LOG_WARN, "rail %s carries nothing to %s of peer %llx: %s%s", seat->nic->name,
		       address, (unsigned long long)lane->peer->handle, by[0] ? "the kernel sends there by " : "no route",
		       by);
	}
}

int wf_pair_pick(struct wf_lane *lane, const struct wf_seat *seat, uint32_t from)
{
	for (uint32_t i = 0; i < lane->book->count; i++) {
		uint32_t remote = (from + i) % lane->book->count;

		if (wf_pair_usable(lane, seat, remote))
			return (int)remote;
	}
	say_why_not(lane, seat);
	return -1;
}

/* ---- changes ---- */

void wf_lane_pair_again(struct wf_lane *lane)
{
	if (!lane->opened || lane->closing)
		return;
	for (uint32_t i = 0; i < lane->group->seats; i++) {
		struct wf_seat *seat = &lane->group->seat[i];
		struct wf_path *path = &lane->path[i];
		int remote;

		if (!seat->limits.sockets || !seat->rail)
			continue;
		/* No route at all may be a moment's; what was sent is sent again by the kernel when there is one. */
		if (path->talks && known_route(lane, seat, path->talk_remote) == WF_ROUTE_OTHER)
			wf_lane_talk_failed(lane, path, "the kernel sends there by another device now");
		if (path->state == WF_PATH_UP && known_route(lane, seat, path->remote) != WF_ROUTE_OTHER)
			continue;
		if (path->state == WF_PATH_OPENING && wf_pair_usable(lane, seat, path->remote))
			continue;
		wf_lane_path_failed(lane, path, "the kernel sends there by another device now");
		remote = wf_pair_pick(lane, seat, seat->index);
		path->state = remote < 0 ? WF_PATH_CLOSED : WF_PATH_OPENING;
		path->remote = (uint8_t)(remote < 0 ? 0 : remote);
	}
	wf_lane_hello_now(lane);
}

void wf_pairing_look(struct wf_group *group, uint64_t now_ns)
{
	if (now_ns < group->routes_ns || !wf_routes_changed(group->kernel))
		return;
	group->routes_ns = now_ns + LOOK_NS;
	group->routes++;
	for (struct wf_link *link = group->lanes.next; link != &group->lanes; link = link->next)
		wf_lane_pair_again(wf_container(link, struct wf_lane, link));
}

void wf_pairing_start(struct wf_group *group)
{
	bool sockets = false;

	for (uint32_t i = 0; i < group->seats; i++)
		sockets |= group->seat[i].limits.sockets;
	group->routes = 1;
	group->kernel = sockets ? wf_routes_open() : NULL;
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

/* ---- for whoever asks ---- */

struct asked {
	struct wf_peer *peer;
	struct wf_seat *seat;
	uint32_t remote;
	struct weft_path_info info;
};

static enum weft_path_state state_of(struct wf_lane *lane, const struct wf_seat *seat, uint32_t remote, enum wf_route route)
{
	const struct wf_path *path = &lane->path[seat->place];
	const struct wf_target *target = wf_target_of(lane, seat->place, remote);

	if (path->state == WF_PATH_UP && path->remote == remote)
		return WEFT_PATH_UP;
	if (route == WF_ROUTE_OTHER)
		return WEFT_PATH_ELSEWHERE;
	if (route == WF_ROUTE_NONE || !lane->book->rail[remote].reachable)
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
	wf_address_text(lane->book->rail[asked->remote].address, lane->book->rail[asked->remote].bytes, asked->info.address,
			sizeof(asked->info.address));
	asked->info.state = state_of(lane, asked->seat, asked->remote, way.route);
	return 0;
}

/* Whoever asked has left. */
static void forget_late(struct wf_group *group, void *context)
{
	struct asked *asked = context;

	wf_handle_put(&group->engine->peers, asked->peer->handle);
	free(asked);
}

int wf_path_info(struct weft_engine *engine, weft_peer handle, uint32_t rail, uint32_t remote, struct weft_path_info *ret_info)
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
