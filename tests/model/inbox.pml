/*
 * The submission path: src/base/ring.c (many producers, one consumer) and the worker's sleep and wake in
 * src/worker/worker.c, one step per load and store. Interleavings are sequentially consistent. The code's weaker orderings
 * (acquire and release on a cell's sequence) protect only the cell's contents, and ThreadSanitizer watches those.
 * With -DTELLERS=n other workers tell it things too, by notes that go by a list of their own (wf_note_tell() and
 * wf_group_hear() in src/engine/core/note.c); queue.pml checks the list itself.
 *
 * Checked over every interleaving: each note is taken exactly once and whole, and the notes of one producer in order; a full
 * ring refuses and loses nothing; the worker never sleeps for good while a note waits (no invalid end state). Nor does it
 * sleep at all on a note whose producer is done with it (the monitor): it would wait until some other producer got a CPU.
 * Whatever a teller had to say when it told its note is known to the worker in the end, also if the note was on its way
 * already; and a note is never put into the list twice.
 *
 * -DNO_RECHECK: the worker sleeps without checking the tickets again after it has announced that it sleeps.
 * -DWAKE_FIRST: a producer checks whether the worker sleeps before it has its ticket.
 * -DITEMS_ONLY: the worker sleeps if the next note is missing, even if producers hold tickets.
 * -DNO_SEQUENCE: a producer marks its cell as filled before it has filled it.
 * -DTELLERS=2 -DNO_TOLD_RECHECK: the worker sleeps without checking the list again after it has announced that it sleeps.
 * -DTELLERS=2 -DTOLD_WAKE_FIRST: a teller checks whether the worker sleeps before its note is in the list.
 * -DTELLERS=2 -DTOLD_LATE: the worker runs a note before the note can be told again.
 * -DTELLERS=2 -DTOLD_TWO_STEPS: a teller looks whether the note is on its way, and then marks it, in two steps.
 * Spin must find an error in each of these.
 */
#ifndef PRODUCERS
#define PRODUCERS 2
#endif
#ifndef NOTES
#define NOTES 2 /* each */
#endif
#ifndef SIZE
#define SIZE 2 /* cells: smaller than what is posted, so that it fills and wraps */
#endif
#define TOTAL (PRODUCERS * NOTES)
#ifndef TELLERS
#define TELLERS 0 /* 3 at most */
#endif
#ifndef TELLS
#define TELLS 2 /* each */
#endif

byte sequence[SIZE], item[SIZE]; /* a cell */
byte tail, head;
bool sleeping; /* worker->sleeping */
byte wake;     /* the eventfd: readable or not */
byte next[PRODUCERS]; /* the note expected next of each producer */
byte taken;
byte through[PRODUCERS]; /* notes of each that it has posted, wake-up included */
bool asleep;
#define STRANDED                                                                                                              \
	(through[0] > next[0] || through[PRODUCERS / 2] > next[PRODUCERS / 2] || through[PRODUCERS - 1] > next[PRODUCERS - 1])

#if TELLERS
#define NIL             0
#define NOTE_OF(teller) (1 + (teller) / 2) /* the first two share one */

byte link[3], newest, oldest;        /* worker->told, as in queue.pml */
bool told[3];                        /* by note */
bool listed[3];                      /* the note is in the list */
byte said[TELLERS], heard[TELLERS];  /* what each has to say, and how much the worker knows */
#define DONE                                                                                                                  \
	(taken == TOTAL && heard[0] == TELLS && heard[TELLERS / 2] == TELLS && heard[TELLERS - 1] == TELLS)

proctype teller(byte me)
{
	byte before, i;
	bool was, wakes;

	do
	:: i == TELLS -> break
	:: else ->
		i++;
		said[me] = i;
#ifdef TOLD_TWO_STEPS
		was = told[NOTE_OF(me)];
		told[NOTE_OF(me)] = true;
#else
		atomic { /* exchange */
			was = told[NOTE_OF(me)];
			told[NOTE_OF(me)] = true
		};
#endif
		if
		:: was /* it is on its way, and says this too */
		:: else ->
#ifdef TOLD_WAKE_FIRST
			wakes = sleeping;
#endif
			do
			:: before = newest;
				assert(!listed[NOTE_OF(me)]);
				link[NOTE_OF(me)] = before;
				atomic { /* compare and exchange */
					if
					:: newest == before ->
						newest = NOTE_OF(me);
						listed[NOTE_OF(me)] = true;
						break
					:: else
					fi
				}
			od;
#ifndef TOLD_WAKE_FIRST
			wakes = sleeping;
#endif
			if
			:: wakes -> wake = 1
			:: else
			fi
		fi
	od
}

inline run_note(note)
{
	for (t : 0 .. TELLERS - 1) {
		if
		:: NOTE_OF(t) == note -> heard[t] = said[t]
		:: else
		fi
	}
}

/* wf_group_hear(): until the list looks empty */
inline hear()
{
	do
	:: true ->
		first = oldest;
		if
		:: first == NIL ->
			node = newest;
			if
			:: node == NIL -> break
			:: else
			fi;
			oldest = node;
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
		oldest = link[first];
		listed[first] = false;
#ifdef TOLD_LATE
		run_note(first);
		told[first] = false
#else
		told[first] = false;
		run_note(first)
#endif
	od
}
#else
#define DONE (taken == TOTAL)
#endif

proctype producer(byte me)
{
	byte ticket, seen, note, at;
	bool wakes;

	do
	:: note == NOTES -> break
	:: else ->
again:		skip;
#ifdef WAKE_FIRST
		wakes = sleeping;
#endif
		ticket = tail;
retry:		seen = sequence[ticket % SIZE];
		if
		:: seen < ticket -> goto again /* full: -EAGAIN; the caller comes again */
		:: seen > ticket -> ticket = tail; goto retry
		:: else
		fi;
		atomic { /* compare and exchange */
			if
			:: tail == ticket -> tail = ticket + 1; at = 1
			:: else -> ticket = tail; at = 0
			fi
		};
		if
		:: at == 0 -> goto retry
		:: else
		fi;
#ifdef NO_SEQUENCE
		sequence[ticket % SIZE] = ticket + 1;
		item[ticket % SIZE] = me * NOTES + note + 1;
#else
		item[ticket % SIZE] = me * NOTES + note + 1;
		sequence[ticket % SIZE] = ticket + 1;
#endif
#ifndef WAKE_FIRST
		wakes = sleeping;
#endif
		if
		:: wakes -> wake = 1
		:: else
		fi;
		note++;
		through[me]++
	od
}

proctype monitor()
{
end:	atomic {
		asleep && wake == 0 && STRANDED;
		assert(false)
	}
}

proctype worker()
{
	byte seen, ticket, got, who;
#if TELLERS
	byte first, node, after, t;
#endif

	do
	:: DONE -> break
	:: else ->
		/* take_notes(): until the ring looks empty */
		do
		:: true ->
			ticket = head;
			seen = sequence[ticket % SIZE];
			if
			:: seen < ticket + 1 -> break
			:: else
			fi;
			got = item[ticket % SIZE];
			item[ticket % SIZE] = 0;
			head = ticket + 1;
			sequence[ticket % SIZE] = ticket + SIZE;
			taken++;
			assert(got != 0);
			who = (got - 1) / NOTES;
			assert((got - 1) % NOTES == next[who]);
			next[who]++
		od;
#if TELLERS
		hear();
#endif
		if
		:: DONE -> break
		:: else
		fi;
		/* nap() */
		sleeping = true;
#ifdef ITEMS_ONLY
		seen = sequence[head % SIZE];
		if
		:: seen == head + 1 -> sleeping = false; goto round
		:: else
		fi;
#endif
#if !defined(NO_RECHECK) && !defined(ITEMS_ONLY)
		if
		:: tail != head -> sleeping = false; goto round
		:: else
		fi;
#endif
#if TELLERS && !defined(NO_TOLD_RECHECK)
		if
		:: newest != NIL -> sleeping = false; goto round
		:: else
		fi;
		if
		:: oldest != NIL -> sleeping = false; goto round
		:: else
		fi;
#endif
		asleep = true;
		(wake == 1); /* no timer comes to our help here: a lost wake-up is a deadlock */
		atomic {
			wake = 0;
			asleep = false
		};
		sleeping = false;
round:		skip
	od;
	assert(head == TOTAL && tail == TOTAL)
}

init {
	byte i;

	atomic {
		for (i : 0 .. SIZE - 1) {
			sequence[i] = i
		}
		for (i : 0 .. PRODUCERS - 1) {
			run producer(i)
		}
#if TELLERS
		for (i : 0 .. TELLERS - 1) {
			run teller(i)
		}
#endif
		run worker();
		run monitor()
	}
}
