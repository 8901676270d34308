/* Numbers that nobody can guess, for keys and proofs. Any thread; enters the kernel. */
#ifndef WF_BASE_RANDOM_H
#define WF_BASE_RANDOM_H

#include <errno.h>
#include <stdint.h>
#include <sys/random.h>

/* The number is never 0. Returns -EIO if the kernel has none; there is no weaker fallback. */
static inline int wf_random(uint64_t *ret_number)
{
	uint64_t number = 0;

	while (!number)
		if (getrandom(&number, sizeof(number), 0) != sizeof(number))
			return -EIO;
	*ret_number = number;
	return 0;
}
#endif
