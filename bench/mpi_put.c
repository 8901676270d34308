/*
 * mpi_put: writes pages to random places by MPI_Put and flushes one window at a time: raw's job, done by an MPI
 * library. A page counts once it is flushed, because it is then in the target's memory. Two ranks; rank 0 writes.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 4 };

static void shuffle(uint32_t *list, uint64_t count, uint64_t seed)
{
	for (uint64_t i = 0; i < count; i++)
		list[i] = (uint32_t)i;
	for (uint64_t i = count; i > 1; i--) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		uint64_t other = (seed >> 33) % i;
		uint32_t kept = list[i - 1];

		list[i - 1] = list[other];
		list[other] = kept;
	}
}

static double put(char *memory, MPI_Win window, int bytes, uint64_t slots, double seconds, uint64_t *ret_pages)
{
	uint32_t *from = malloc(slots * sizeof *from), *to = malloc(slots * sizeof *to);
	uint64_t at = 0, turn = 0, depth = (4u << 20) / (uint64_t)bytes;
	double start = MPI_Wtime(), passed = 0;

	depth = depth > 256 ? 256 : depth < 4 ? 4 : depth;
	if (!from || !to)
		MPI_Abort(MPI_COMM_WORLD, 1);
	shuffle(from, slots, 1);
	shuffle(to, slots, 2);
	MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window);
	for (*ret_pages = 0; passed < seconds; turn++) {
		if (turn == WARM) {
			start = MPI_Wtime();
			*ret_pages = 0;
		}
		for (uint64_t i = 0; i < depth; i++, at = at + 1 < slots ? at + 1 : 0)
			MPI_Put(memory + (uint64_t)from[at] * (uint64_t)bytes, bytes, MPI_BYTE, 1,
				(MPI_Aint)to[at] * bytes, bytes, MPI_BYTE, window);
		MPI_Win_flush(1, window);
		*ret_pages += depth;
		passed = turn > WARM ? MPI_Wtime() - start : 0;
	}
	MPI_Win_unlock(1, window);
	free(from);
	free(to);
	return passed;
}

int main(int argc, char **argv)
{
	int rank, ranks, bytes = argc > 1 ? atoi(argv[1]) : 65536;
	double seconds = argc > 2 ? atof(argv[2]) : 0.5, passed;
	uint64_t region = 256u << 20, pages = 0;
	char *memory = malloc(region);
	MPI_Win window;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks != 2 || !memory || bytes < 1 || (uint64_t)bytes > region || !(seconds > 0 && seconds < 3600))
		MPI_Abort(MPI_COMM_WORLD, 2);
	memset(memory, rank + 1, region);
	MPI_Win_create(memory, (MPI_Aint)region, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		passed = put(memory, window, bytes, region / (uint64_t)bytes, seconds, &pages);
		printf("{\"tool\": \"mpi_put\", \"page_size\": %d, \"gbps\": %.3f, \"mops\": %.6f}\n", bytes,
		       (double)pages * bytes * 8 / passed / 1e9, (double)pages / passed / 1e6);
		fflush(stdout);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_free(&window);
	MPI_Finalize();
	free(memory);
	return 0;
}
