/*
 * The completion hand-off: src/base/mpsc.h (producers push onto a stack, the consumer takes it whole and reverses it) and
 * the arming of the eventfd in src/engine/core/queue.c: wf_queue_push(), poll, arm(), sleep_until(). Two workers push ends, one
 * application thread waits for them without a deadline; with -DLOOKER another thread checks whether there is anything.
 *
 * Checked over every interleaving: each end is delivered exactly once, and the ends of one worker in order; the application
 * never sleeps for good while an end waits. Nor does it sleep at all on an end whose worker is done with it, except for the
 * moment in which another worker is about to write the descriptor (the monitor). A thread that only looks never sees an
 * empty queue while an end that was pushed before stays in it from the look's first step to its last.
 *
 * -DNO_RECHECK: the application sleeps without checking again after arming.
 * -DARM_LATE: a worker checks whether the queue is armed before it has pushed.
 * -DTWO_STEPS: a worker pushes by a load and a store instead of an exchange.
 * -DLOOKER -DNO_MARK: the consumer does not show that it is about to take the stack.
 * -DLOOKER -DLOOK_BACK: the look checks the consumer's part first.
 * Spin must find an error in each of these.
 */
#ifndef PRODUCERS
#define PRODUCERS 2
#endif
#ifndef ENDS
#define ENDS 2 /* each */
#endif
#define TOTAL (PRODUCERS * ENDS)
#define NIL   0 /* nodes 1 … TOTAL are the ends */
#ifdef LOOKER
#define COUNT there++
#else
#define COUNT skip
#endif

byte link[TOTAL + 1]; /* node->next */
byte newest, oldest;
byte taken;
bool armed;
byte fd; /* the eventfd: readable or not */
byte next[PRODUCERS];
byte through[PRODUCERS]; /* ends of each that are pushed, wake-up included */
byte there;              /* ends pushed, for the looker */
byte ringing;            /* workers about to write the descriptor */
bool asleep;
#define STRANDED                                                                                                              \
	(through[0] > next[0] || through[PRODUCERS / 2] > next[PRODUCERS / 2] || through[PRODUCERS - 1] > next[PRODUCERS - 1])

/* wf_mpsc_push() */
inline push(node, before)
{
	do
	:: before = newest;
		link[node] = before;
#ifdef TWO_STEPS
		newest = node;
		COUNT;
		break
#else
		atomic { /* compare and exchange */
			if
			:: newest == before ->
				newest = node;
				COUNT;
				break
			:: else
			fi
		}
#endif
	od
}

proctype producer(byte me)
{
	byte before, i;
	bool was;

	do
	:: i == ENDS -> break
	:: else ->
#ifdef ARM_LATE
		was = armed;
#endif
		push(me * ENDS + i + 1, before);
#ifndef ARM_LATE
		was = armed;
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

#ifdef LOOKER
/* wf_mpsc_any() by a thread that is not the consumer: an end that was pushed before and is not taken until after must show. */
proctype looker()
{
	byte before, one, two;

	before = there;
#ifdef LOOK_BACK
	one = oldest;
	two = newest;
#else
	one = newest;
	if
	:: one == NIL -> two = oldest
	:: else
	fi;
#endif
	assert(one != NIL || two != NIL || taken >= before)
}
#endif

proctype consumer()
{
	byte node, after, first, who;

	do
	:: taken == TOTAL -> break
	:: else ->
		/* wf_mpsc_pop(); first is NIL when there is nothing */
		first = oldest;
		if
		:: first == NIL ->
			node = newest;
			if
			:: node == NIL -> goto popped
			:: else
			fi;
#ifndef NO_MARK
			oldest = node;
#endif
			atomic { /* exchange */
				node = newest;
				newest = NIL
			};
			do
			:: node == NIL -> break
			:: else ->
				after = link[node];
				link[node] = first;
				first = node;
				node = after
			od
		:: else
		fi;
		atomic { /* the last look at the queue: what comes after is the taker's own */
			taken++;
			oldest = link[first]
		};
popped:
		if
		:: first != NIL ->
			who = (first - 1) / ENDS;
			assert((first - 1) % ENDS == next[who]);
			next[who]++
		:: else ->
			/* sleep_until(): arm, look again, sleep, drain */
			armed = true;
#ifndef NO_RECHECK
			if
			:: newest != NIL -> goto round
			:: else
			fi;
			if
			:: oldest != NIL -> goto round
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
		for (i : 0 .. PRODUCERS - 1) {
			run producer(i)
		}
		run consumer();
#ifdef LOOKER
		run looker();
#endif
		run monitor()
	}
}
