/*
 * The submission path: src/base/ring.c (many producers, one consumer) and the worker's sleep and wake in
 * src/worker/worker.c, step by step as they load and store. Interleavings are those of sequential consistency; the
 * orderings that are weaker in the code (acquire and release on a cell's sequence) protect the cell's contents only, and
 * ThreadSanitizer watches those.
 *
 * Checked over every interleaving: each note is taken exactly once and whole, those of one producer in their order; a full
 * ring refuses and loses nothing; the worker never sleeps for good while a note waits (no invalid end state), nor at all
 * on a note whose producer is through with it (the monitor): it would wait for some other producer to get a CPU again.
 *
 * -DNO_RECHECK: the worker sleeps without looking at the tickets again after it has said that it sleeps.
 * -DWAKE_FIRST: a producer looks whether the worker sleeps before it has its ticket.
 * -DITEMS_ONLY: the worker sleeps when the next note is not there, whoever has tickets.
 * -DNO_SEQUENCE: a producer marks its cell as filled before it has filled it.
 * Each must be found wrong.
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

	do
	:: taken == TOTAL -> break
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
		if
		:: taken == TOTAL -> break
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
		run worker();
		run monitor()
	}
}
