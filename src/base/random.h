/* Numbers that nobody can guess: keys, proofs. Any thread; enters the kernel. */
#ifndef WF_BASE_RANDOM_H
#define WF_BASE_RANDOM_H

#include <errno.h>
#include <stdint.h>
#include <sys/random.h>

/* Never 0. -EIO: the kernel has none, and nothing less will do. */
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
