/* The processes of `checkpoint` that write one checkpoint together: forked before any of them has
 * used a device or HDF5, and connected with rank 0 by a socket each. */
#ifndef GPUFI_BENCHMARK_CHECKPOINT_RANKS_H
#define GPUFI_BENCHMARK_CHECKPOINT_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RANKS_MAX 64

typedef struct ranks {
  int rank, count;
  int links[RANKS_MAX]; /* of rank 0: to each other one; of the others: links[0] to rank 0 */
} ranks;

/* Fork count - 1 processes, each of which returns with a rank of its own, as the caller does with
 * rank 0. The stdout of the others leads nowhere. False, and errno: there are fewer. */
bool ranks_fork(ranks *r, int count);

/* The minimum of `value` over all ranks, and the sum; -1 where one is gone. `arg` is the ranks. */
int64_t ranks_min(void *arg, int64_t value);
int64_t ranks_sum(ranks *r, int64_t value);

/* The next line of rank 0's stdin, on all ranks; false at its end, or where rank 0 is gone. */
bool ranks_read_line(const ranks *r, char *line, size_t nbytes);

/* Go, so that the others learn of it at once. */
void ranks_leave(ranks *r);

/* Go, and as rank 0 wait for the others; false where one of them failed. */
bool ranks_end(ranks *r);

#endif
