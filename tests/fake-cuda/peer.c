/* Cards in a peer process, and in the test's own; peer.h says for whom. */
#include "fake-cuda/peer.h"
#include "fake-cuda/fake.h"

void *card_memory(uint64_t bytes, uint64_t kind)
{
	return fake_cuda_alloc(0, bytes, (enum fake_kind)kind);
}

void card_free(void *memory)
{
	fake_cuda_free(memory);
}

void card_copy(void *to, const void *from, uint64_t bytes)
{
	fake_cuda_write(to, from, bytes);
}

uint64_t card_control(uint64_t what, uint64_t value)
{
	struct fake_counts counts = fake_cuda_counts();

	switch (what) {
	case HOLD:
		fake_cuda_hold(value);
		return 0;
	case SLOW:
		fake_cuda_slow((uint32_t)value);
		return 0;
	case LOSE:
		fake_cuda_lose(value);
		return 0;
	case LEFT:
		return (uint64_t)(counts.contexts + counts.streams + counts.events + counts.modules + counts.pinned +
				  counts.opened + counts.handles);
	case WRONG:
		return counts.contextless + counts.illegal + counts.pageable;
	default:
		return counts.waiting;
	}
}
