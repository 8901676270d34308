/* The timer wheel; timer.h says what for. Runs on the worker that owns it. */
#include "worker/timer.h"
#include "base/hot.h"
#include "base/time.h"

#define TICK          WF_MS
#define FIRED_AT_ONCE 256 /* then notes and completions get their turn, however many are due */

void wf_timers_init(struct wf_timers *timers, uint64_t now_ns)
{
	for (int i = 0; i < WF_WHEEL_SLOTS; i++)
		wf_list_init(&timers->slot[i]);
	for (int i = 0; i < WF_WHEEL_LAPS; i++)
		wf_list_init(&timers->lap[i]);
	timers->tick = now_ns / TICK;
	timers->count = 0;
}

void wf_timer_init(struct wf_timer *timer, void (*fire)(struct wf_timer *timer, uint64_t now_ns))
{
	wf_list_init(&timer->link);
	timer->fire = fire;
	timer->deadline_ns = WF_NEVER;
}

WF_HOT void wf_timer_clear(struct wf_timers *timers, struct wf_timer *timer)
{
	if (!wf_link_linked(&timer->link))
		return;
	wf_list_remove(&timer->link);
	timers->count--;
}

static void place(struct wf_timers *timers, struct wf_timer *timer)
{
	uint64_t tick = timer->deadline_ns / TICK + 1; /* never early */

	if (tick < timers->tick)
		tick = timers->tick;
	if (tick - timers->tick < WF_WHEEL_SLOTS)
		wf_list_append(&timers->slot[tick % WF_WHEEL_SLOTS], &timer->link);
	else
		wf_list_append(&timers->lap[tick / WF_WHEEL_SLOTS % WF_WHEEL_LAPS], &timer->link);
}

WF_HOT void wf_timer_set(struct wf_timers *timers, struct wf_timer *timer, uint64_t deadline_ns)
{
	wf_timer_clear(timers, timer);
	timer->deadline_ns = deadline_ns;
	if (deadline_ns == WF_NEVER)
		return;
	place(timers, timer);
	timers->count++;
}

/* The lap begins: what is due in it goes to its slot, what is of a later round stays. */
static void begin_lap(struct wf_timers *timers, uint64_t lap)
{
	struct wf_link *from = &timers->lap[lap % WF_WHEEL_LAPS], all;

	wf_list_init(&all);
	while (!wf_list_empty(from)) {
		struct wf_link *link = from->next;

		wf_list_remove(link);
		wf_list_append(&all, link);
	}
	while (!wf_list_empty(&all)) {
		struct wf_timer *timer = wf_container(all.next, struct wf_timer, link);

		wf_list_remove(&timer->link);
		place(timers, timer);
	}
}

int wf_timers_run(struct wf_timers *timers, uint64_t now_ns)
{
	uint64_t now = now_ns / TICK;
	int fired = 0;

	/* After a long pause one lap visits every slot, of any lap that began meanwhile; more would find nothing new. */
	if (now - timers->tick > WF_WHEEL_SLOTS && now > timers->tick) {
		timers->tick = now - WF_WHEEL_SLOTS;
		for (uint64_t lap = 0; lap < WF_WHEEL_LAPS; lap++)
			begin_lap(timers, lap);
	}
	for (; timers->tick <= now; timers->tick++) {
		struct wf_link *slot = &timers->slot[timers->tick % WF_WHEEL_SLOTS];

		if (timers->tick % WF_WHEEL_SLOTS == 0)
			begin_lap(timers, timers->tick / WF_WHEEL_SLOTS);
		/* All are due: none is in a slot that is more than a lap away, and none of it for later than the slot. */
		while (!wf_list_empty(slot)) {
			struct wf_timer *timer = wf_container(slot->next, struct wf_timer, link);

			if (fired == FIRED_AT_ONCE)
				return fired; /* the next turn goes on with this slot */
			wf_list_remove(&timer->link);
			timers->count--;
			fired++;
			timer->fire(timer, now_ns);
		}
	}
	return fired;
}

uint64_t wf_timers_next(const struct wf_timers *timers)
{
	uint64_t lap = (timers->tick + WF_WHEEL_SLOTS - 1) / WF_WHEEL_SLOTS; /* the next to begin */
	uint64_t next = UINT64_MAX;

	if (!timers->count)
		return WF_NEVER;
	for (uint64_t i = 0; i < WF_WHEEL_LAPS && next == UINT64_MAX; i++)
		if (!wf_list_empty(&timers->lap[(lap + i) % WF_WHEEL_LAPS]))
			next = (lap + i) * WF_WHEEL_SLOTS; /* when it begins: at most one look for nothing a second */
	for (uint64_t i = 0; i < WF_WHEEL_SLOTS && timers->tick + i < next; i++)
		if (!wf_list_empty(&timers->slot[(timers->tick + i) % WF_WHEEL_SLOTS]))
			next = timers->tick + i;
	return next * TICK;
}
