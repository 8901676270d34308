/*
 * The completion hand-off: src/base/mpsc.h (an intrusive list, producers swap themselves in at its end) and the arming of
 * the eventfd in src/engine/queue.c: wf_queue_push(), poll, arm(), sleep_until(). Two workers push ends, one application
 * thread waits for them without a deadline.
 *
 * Checked over every interleaving: each end is delivered exactly once, those of one worker in their order; the application
 * never sleeps for good while an end waits, nor at all on an end whose worker is through with it, but for the moment in
 * which another worker is about to write the descriptor (the monitor).
 *
 * -DNO_RECHECK: the application sleeps without comparing pushed with taken after arming.
 * -DARM_LATE: a worker looks whether the queue is armed before it has counted its push.
 * -DCOUNT_LATE: a worker counts its push only when it is in the list.
 * Each must be found wrong.
 */
#ifndef PRODUCERS
#define PRODUCERS 2
#endif
#ifndef ENDS
#define ENDS 2 /* each */
#endif
#define TOTAL (PRODUCERS * ENDS)
#define STUB  0 /* nodes 1 … TOTAL are the ends */
#define NIL   255

byte link[TOTAL + 1]; /* node->next */
byte last, first;
byte pushed, taken;
bool armed;
byte fd; /* the eventfd: readable or not */
byte next[PRODUCERS];
byte through[PRODUCERS]; /* ends of each that are pushed, wake-up included */
byte ringing;            /* workers about to write the descriptor */
bool asleep;
#define STRANDED                                                                                                              \
	(through[0] > next[0] || through[PRODUCERS / 2] > next[PRODUCERS / 2] || through[PRODUCERS - 1] > next[PRODUCERS - 1])

/* wf_mpsc_push() */
inline push(node, before)
{
	link[node] = NIL;
	atomic { /* exchange */
		before = last;
		last = node
	};
	link[before] = node
}

proctype producer(byte me)
{
	byte before, i;
	bool was;

	do
	:: i == ENDS -> break
	:: else ->
#if !defined(ARM_LATE) && !defined(COUNT_LATE)
		pushed++;
#endif
		push(me * ENDS + i + 1, before);
#ifdef COUNT_LATE
		pushed++;
#endif
		was = armed;
#ifdef ARM_LATE
		pushed++;
#endif
		if
		:: was ->
			atomic { /* exchange */
				was = armed;
				armed = false;
				ringing = ringing + was
			};
			if
			:: was ->
				atomic {
					fd = 1;
					ringing--
				}
			:: else
			fi
		:: else
		fi;
		i++;
		through[me]++
	od
}

proctype monitor()
{
end:	atomic {
		asleep && fd == 0 && ringing == 0 && STRANDED;
		assert(false)
	}
}

proctype consumer()
{
	byte node, after, end, before, who;

	do
	:: taken == TOTAL -> break
	:: else ->
		/* wf_mpsc_pop(); node is NIL when there is nothing */
		node = first;
		after = link[node];
		if
		:: node == STUB && after == NIL -> node = NIL; goto popped
		:: node == STUB && after != NIL ->
			first = after;
			node = after;
			after = link[node]
		:: else
		fi;
		if
		:: after != NIL -> first = after; goto popped
		:: else
		fi;
		end = last;
		if
		:: node != end -> node = NIL; goto popped /* a producer is between its two steps */
		:: else
		fi;
		push(STUB, before);
		after = link[node];
		if
		:: after == NIL -> node = NIL
		:: else -> first = after
		fi;
popped:
		if
		:: node != NIL ->
			taken++;
			who = (node - 1) / ENDS;
			assert((node - 1) % ENDS == next[who]);
			next[who]++
		:: else ->
			/* sleep_until(): arm, look again, sleep, drain */
			armed = true;
#ifndef NO_RECHECK
			if
			:: pushed != taken -> goto round
			:: else
			fi;
#endif
			asleep = true;
			(fd == 1); /* no deadline: a lost wake-up is a deadlock */
			atomic {
				fd = 0;
				asleep = false
			}
		fi;
round:		skip
	od
}

init {
	byte i;

	atomic {
		for (i : 0 .. TOTAL) {
			link[i] = NIL
		}
		last = STUB;
		first = STUB;
		for (i : 0 .. PRODUCERS - 1) {
			run producer(i)
		}
		run consumer();
		run monitor()
	}
}
