/* What tests of checkpoints of several ranks share: forked processes that agree over sockets. */
#ifndef GPUFI_TEST_CHECKPOINT_RANKS_H
#define GPUFI_TEST_CHECKPOINT_RANKS_H

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "checkpoint_shards.h"

#define RANKS_MAX 4
#define SECONDS_MAX 60

/* --- Agreeing ------------------------------------------------------------------ */

static int rank_count, this_rank;
static int links[RANKS_MAX][2]; /* between rank 0, the first of each, and the others */

static inline bool give(int fd, int64_t value) {
  return TEMP_FAILURE_RETRY(send(fd, &value, sizeof(value), MSG_NOSIGNAL)) == sizeof(value);
}

static inline bool take(int fd, int64_t *value) {
  return TEMP_FAILURE_RETRY(recv(fd, value, sizeof(*value), MSG_WAITALL)) == sizeof(*value);
}

/* What rank 0 does: the minimum of all values, or -1 where a rank is gone. */
static inline int64_t agree_as_first(int64_t value) {
  int64_t other;
  bool are_here = true;
  for (int rank = 1; rank < rank_count; rank++) {
    are_here = take(links[rank][0], &other) && are_here;
    value = are_here && other < value ? other : value;
  }
  value = are_here ? value : -1;
  for (int rank = 1; rank < rank_count; rank++) {
    give(links[rank][0], value);
  }
  return value;
}

static int64_t agree(void *arg, int64_t value) {
  CHECK(arg == links);
  if (this_rank == 0) {
    return agree_as_first(value);
  }
  return give(links[this_rank][1], value) && take(links[this_rank][1], &value) ? value : -1;
}

/* Wait until all ranks are here: each removes its own files once they have agreed. */
static inline void meet(void) {
  CHECK(agree(links, 0) == 0);
}

static inline gpuf_checkpoint_options options_of_rank(void) {
  gpuf_checkpoint_options options = options_in_folder("run");
  options.rank = this_rank;
  options.rank_count = rank_count;
  options.agree = agree;
  options.agree_arg = links;
  return options;
}

/* --- Processes ----------------------------------------------------------------- */

static pid_t children[RANKS_MAX];

/* A rank has its own end of its own link, and rank 0 the first of each. */
static inline void keep_own_links(void) {
  for (int rank = 1; rank < rank_count; rank++) {
    for (int end = 0; end < 2; end++) {
      if (end == 0 ? this_rank != 0 : this_rank != rank) {
        close(links[rank][end]);
      }
    }
  }
}

static inline pid_t start(int rank, void (*body)(void)) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    this_rank = rank;
    alarm(SECONDS_MAX);
    keep_own_links();
    if (setjmp(test_exit) == 0) {
      body();
      _exit(0);
    }
    printf("# in rank %d of %d\n", this_rank, rank_count);
    fflush(stdout);
    _exit(1);
  }
  CHECK(child > 0);
  return child;
}

/* How a process ended: its exit status, or the negative of its signal. */
static inline int await(pid_t child) {
  int outcome;
  CHECK(TEMP_FAILURE_RETRY(waitpid(child, &outcome, 0)) == child);
  return WIFSIGNALED(outcome) ? -WTERMSIG(outcome) : WEXITSTATUS(outcome);
}

/* Run `body` in a process for each rank; outcomes[rank] (NULL: all must be 0) is how it ended. */
static inline void run_ranks(int count, void (*body)(void), int *outcomes) {
  rank_count = count;
  for (int rank = 1; rank < count; rank++) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, links[rank]) == 0);
  }
  for (int rank = 0; rank < count; rank++) {
    children[rank] = start(rank, body);
  }
  for (int rank = 1; rank < count; rank++) {
    CHECK(close(links[rank][0]) == 0 && close(links[rank][1]) == 0);
  }
  int failed_count = 0;
  for (int rank = 0; rank < count; rank++) {
    const int outcome = await(children[rank]);
    failed_count += outcome != 0;
    if (outcomes) {
      outcomes[rank] = outcome;
    }
  }
  CHECK(outcomes || failed_count == 0);
}

/* In one process, so that the parent, which forks, has no threads of the library. */
static inline void run_alone(void (*body)(void)) {
  run_ranks(1, body, NULL);
}

/* --- Boxes --------------------------------------------------------------------- */

/* Add the box of `whole` that begins at `start`, as a view with the whole's strides, or with
 * `d_copy`, to which it is copied, from the device. */
static inline void add_box(gpuf_checkpoint *c, const char *name, const gpuf_tensor *whole,
                           const int64_t *start, const int64_t *shape, gpuf_tensor *d_copy) {
  gpuf_part part = GPUF_PART_INIT;
  gpuf_tensor view = *whole;
  for (int32_t axis = 0; axis < whole->ndim; axis++) {
    part.shape[axis] = whole->shape[axis];
    part.start[axis] = start[axis];
    CHECK_OK(gpuf_tensor_slice(&view, axis, shape[axis] ? start[axis] : 0, 1, shape[axis], &err));
  }
  if (d_copy && gpuf_tensor_count(&view) > 0) {
    gpuf_tensor packed = create_cpu(whole->dtype, whole->ndim, shape, 1);
    CHECK_OK(gpuf_copy(&packed, &view, NULL, &err));
    *d_copy = copy_to_device(&packed);
    destroy(&packed);
    view = *d_copy;
  }
  CHECK_OK(gpuf_checkpoint_add(c, name, &view, &part, &err));
}

/* The rows of a rank where they are divided evenly. */
static inline void add_rows(gpuf_checkpoint *c, const char *name, const gpuf_tensor *whole) {
  int64_t start[GPUF_NDIM_MAX] = {0}, shape[GPUF_NDIM_MAX];
  memcpy(shape, whole->shape, sizeof(shape));
  start[0] = this_rank * whole->shape[0] / rank_count;
  shape[0] = (this_rank + 1) * whole->shape[0] / rank_count - start[0];
  add_box(c, name, whole, start, shape, NULL);
}

#endif
