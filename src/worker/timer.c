/* The timer wheel; timer.h says what for. Runs on the worker that owns it. */
#include "worker/timer.h"
#include "base/time.h"

#define TICK WF_MS

void wf_timers_init(struct wf_timers *timers, uint64_t now_ns)
{
	for (int i = 0; i < WF_WHEEL_SLOTS; i++)
		wf_list_init(&timers->slot[i]);
	timers->tick = now_ns / TICK;
	timers->count = 0;
}

void wf_timer_init(struct wf_timer *timer, void (*fire)(struct wf_timer *timer, uint64_t now_ns))
{
	wf_list_init(&timer->link);
	timer->fire = fire;
	timer->deadline_ns = WF_NEVER;
}

void wf_timer_clear(struct wf_timers *timers, struct wf_timer *timer)
{
	if (!wf_link_linked(&timer->link))
		return;
	wf_list_remove(&timer->link);
	timers->count--;
}

void wf_timer_set(struct wf_timers *timers, struct wf_timer *timer, uint64_t deadline_ns)
{
	uint64_t tick = deadline_ns / TICK + 1; /* never early */

	wf_timer_clear(timers, timer);
	timer->deadline_ns = deadline_ns;
	if (deadline_ns == WF_NEVER)
		return;
	if (tick < timers->tick)
		tick = timers->tick;
	wf_list_append(&timers->slot[tick % WF_WHEEL_SLOTS], &timer->link);
	timers->count++;
}

int wf_timers_run(struct wf_timers *timers, uint64_t now_ns)
{
	uint64_t now = now_ns / TICK;
	int fired = 0;

	/* After a long pause one lap visits every slot; more laps would find nothing new. */
	if (now - timers->tick > WF_WHEEL_SLOTS && now > timers->tick)
		timers->tick = now - WF_WHEEL_SLOTS;
	for (; timers->tick <= now; timers->tick++) {
		struct wf_link *slot = &timers->slot[timers->tick % WF_WHEEL_SLOTS];
		struct wf_link later;

		/* What is of a later lap, or is set again by those that fire, goes back behind. */
		wf_list_init(&later);
		while (!wf_list_empty(slot)) {
			struct wf_timer *timer = wf_container(slot->next, struct wf_timer, link);

			wf_list_remove(&timer->link);
			if (timer->deadline_ns > now_ns) {
				wf_list_append(&later, &timer->link);
				continue;
			}
			timers->count--;
			fired++;
			timer->fire(timer, now_ns);
		}
		while (!wf_list_empty(&later)) {
			struct wf_link *link = later.next;

			wf_list_remove(link);
			wf_list_append(slot, link);
		}
	}
	return fired;
}

uint64_t wf_timers_next(const struct wf_timers *timers)
{
	if (!timers->count)
		return WF_NEVER;
	for (uint64_t i = 0; i < WF_WHEEL_SLOTS; i++)
		if (!wf_list_empty(&timers->slot[(timers->tick + i) % WF_WHEEL_SLOTS]))
			return (timers->tick + i) * TICK; /* may be a lap early: one look for nothing a second */
	return WF_NEVER;
}
