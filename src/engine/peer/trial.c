/*
 * Rails that a stranger claims and that have not answered yet: trial.h. Over sockets each of them costs a connection, and a
 * stranger may name 64 where nobody is. So a stranger has only a few of them in our address vectors at a time, and all strangers
 * together WF_TRIALS that never answered; the next takes the place of one whose time is over. Peers that the application added are
 * exempt. Runs on the group's worker: wf_lane_target() asks here before it inserts an address.
 */
#include "engine/peer/trial.h"
#include "base/time.h"
#include "engine/peer/peer.h"

#define REMOTES 4             /* of a stranger, for each rail of ours */
#define KEEP_NS (250 * WF_MS) /* time to answer before another may take its place */

static bool is_stranger(const struct wf_lane *lane)
{
	return !atomic_load_explicit(&lane->peer->added, memory_order_relaxed);
}

static bool is_inserted(const struct wf_target *target, const struct wf_seat *seat)
{
	for (enum wf_end end = WF_PUBLISHED; end < WF_ENDS; end++)
		if (target->generation[end] && target->generation[end] == seat->generation[end])
			return true;
	return false;
}

static bool is_in_use(const struct wf_path *path, uint32_t remote)
{
	return (path->state == WF_PATH_UP && path->remote == remote) || (path->talks && path->talk_remote == remote);
}

/* One of this stranger's others leaves when there are as many as it may have. False: each had too little time. */
static bool make_room(struct wf_lane *lane, struct wf_seat *seat, uint32_t remote)
{
	uint64_t now = wf_group_now(lane->group);
	uint32_t count = 0, oldest = remote;

	for (uint32_t i = 0; i < lane->book->count; i++) {
		const struct wf_target *target = wf_target_of(lane, seat->place, i);

		if (i == remote || !is_inserted(target, seat))
			continue;
		count++;
		if (!is_in_use(&lane->path[seat->place], i) && now - target->since_ns >= KEEP_NS &&
		    (oldest == remote || target->since_ns < wf_target_of(lane, seat->place, oldest)->since_ns))
			oldest = i;
	}
	if (count < REMOTES)
		return true;
	if (oldest == remote)
		return false;
	wf_lane_forget_target(lane, seat, oldest);
	return true;
}

/* It has answered, or the address left with its endpoint. */
static bool is_over(const struct wf_trial *trial)
{
	const struct wf_lane *lane = trial->lane;
	const struct wf_target *target;

	if (!lane || !is_stranger(lane))
		return true;
	target = wf_target_of(lane, trial->place, trial->remote);
	return target->answered || !is_inserted(target, &lane->group->seat[trial->place]);
}

static struct wf_trial *take(struct wf_group *group)
{
	struct wf_trial *oldest = NULL;

	for (int i = 0; i < WF_TRIALS; i++) {
		struct wf_trial *trial = &group->trial[i];

		if (is_over(trial))
			return trial;
		if (wf_group_now(group) - trial->since_ns >= KEEP_NS && (!oldest || trial->since_ns < oldest->since_ns))
			oldest = trial;
	}
	if (oldest)
		wf_lane_forget_target(oldest->lane, &group->seat[oldest->place], oldest->remote);
	return oldest;
}

bool wf_trial_begin(struct wf_lane *lane, struct wf_seat *seat, uint32_t remote)
{
	struct wf_target *target = wf_target_of(lane, seat->place, remote);
	struct wf_trial *trial;

	if (!seat->limits.sockets || !is_stranger(lane) || is_inserted(target, seat))
		return true;
	if (!make_room(lane, seat, remote))
		return false;
	if (!target->answered) {
		trial = take(lane->group);
		if (!trial)
			return false;
		*trial = (struct wf_trial){ lane, seat->place, remote, wf_group_now(lane->group) };
	}
	target->since_ns = wf_group_now(lane->group);
	return true;
}

void wf_trial_end(const struct wf_lane *lane, uint32_t place, uint32_t remote)
{
	for (int i = 0; i < WF_TRIALS; i++) {
		struct wf_trial *trial = &lane->group->trial[i];

		if (trial->lane == lane && trial->place == place && trial->remote == remote)
			trial->lane = NULL;
	}
}
