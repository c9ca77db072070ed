/* Ranks that are threads of one process, so that a record of its calls has the order of all of
 * them. They write a checkpoint of three arrays: two by rows, and one that the last rank holds, and
 * of which the others add parts without elements. */
#ifndef GPUFI_TEST_CHECKPOINT_RANK_THREADS_H
#define GPUFI_TEST_CHECKPOINT_RANK_THREADS_H

#include <pthread.h>

#include "checkpoint_files.h"

#define RANKS_MAX 3

typedef struct rank_thread {
  gpuf_checkpoint_options options;
  gpuf_checkpoint *c;
  gpuf_tensor d_rows, all; /* rows of "group/u" and "v"; "w" is all the last rank's */
  gpuf_tensor none;        /* the rows that others hold of "w" */
  uint64_t version;
  int64_t step; /* to write; -1: open the writer, or close the one that there is */
  gpuf_status status;
  gpuf_error error;
} rank_thread;

static rank_thread ranks[RANKS_MAX];
static int rank_count;

static pthread_mutex_t agree_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t agreed = PTHREAD_COND_INITIALIZER;
static int arrived_count, agreement_count;
static int64_t least, last_least;

static inline int64_t agree(void *arg, int64_t value) {
  CHECK(arg == ranks);
  pthread_mutex_lock(&agree_mutex);
  const int before = agreement_count;
  least = arrived_count == 0 || value < least ? value : least;
  if (++arrived_count == rank_count) {
    arrived_count = 0;
    last_least = least;
    agreement_count++;
    pthread_cond_broadcast(&agreed);
  }
  while (before == agreement_count) {
    pthread_cond_wait(&agreed, &agree_mutex);
  }
  value = last_least;
  pthread_mutex_unlock(&agree_mutex);
  return value;
}

static inline gpuf_status add_rows(rank_thread *t, const char *name, const gpuf_tensor *rows,
                                   int64_t first) {
  gpuf_part part = GPUF_PART_INIT;
  memcpy(part.shape, t->all.shape, sizeof(part.shape));
  part.start[0] = first;
  return gpuf_checkpoint_add(t->c, name, rows, &part, &t->error);
}

static inline gpuf_status write_as_rank(rank_thread *t) {
  const int rank = t->options.rank;
  const bool is_last = rank == rank_count - 1;
  const int64_t first = rank * t->all.shape[0] / rank_count;
  gpuf_status status = gpuf_checkpoint_begin(t->c, t->step, NULL, &t->error);
  if (status == GPUF_OK) {
    status = add_rows(t, "group/u", &t->d_rows, first);
  }
  if (status == GPUF_OK) {
    status = add_rows(t, "v", &t->d_rows, first);
  }
  if (status == GPUF_OK) {
    status = add_rows(t, "w", is_last ? &t->all : &t->none, 0);
  }
  if (status == GPUF_OK && rank == 0) {
    status = gpuf_checkpoint_add_int64(t->c, "version", (int64_t)t->version, &t->error);
  }
  if (status == GPUF_OK) {
    status = gpuf_checkpoint_commit(t->c, GPUF_STREAM_NONE, &t->error);
  }
  return status == GPUF_OK ? gpuf_checkpoint_wait(t->c, -1, NULL, &t->error) : status;
}

static inline void *do_rank(void *arg) {
  rank_thread *const t = arg;
  if (t->step >= 0) {
    t->status = write_as_rank(t);
  } else if (t->c) {
    t->status = gpuf_checkpoint_close(t->c, NULL, &t->error);
    t->c = NULL;
  } else {
    t->status = gpuf_checkpoint_open(&t->options, &t->c, NULL, &t->error);
  }
  return NULL;
}

/* All ranks at once: what each is to do is in its step. */
static inline void do_ranks(int64_t step) {
  pthread_t threads[RANKS_MAX];
  for (int rank = 0; rank < rank_count; rank++) {
    ranks[rank].step = step;
    CHECK(pthread_create(&threads[rank], NULL, do_rank, &ranks[rank]) == 0);
  }
  for (int rank = 0; rank < rank_count; rank++) {
    CHECK(pthread_join(threads[rank], NULL) == 0);
  }
}

static inline void check_ranks(void) {
  for (int rank = 0; rank < rank_count; rank++) {
    err = ranks[rank].error;
    CHECK_OK(ranks[rank].status);
  }
}

/* Write a checkpoint of three arrays that are `whole` each; whether no rank failed. */
static inline bool write_with_ranks(int64_t step, uint64_t version, const gpuf_tensor *whole) {
  bool are_well = true;
  for (int rank = 0; rank < rank_count; rank++) {
    rank_thread *const t = &ranks[rank];
    const int64_t first = rank * whole->shape[0] / rank_count;
    const int64_t rows[] = {(rank + 1) * whole->shape[0] / rank_count - first, whole->shape[1]};
    const int64_t no_rows[] = {0, whole->shape[1]};
    gpuf_tensor view = *whole, packed = create_cpu(whole->dtype, 2, rows, 1);
    CHECK_OK(gpuf_tensor_slice(&view, 0, first, 1, rows[0], &err));
    CHECK_OK(gpuf_copy(&packed, &view, NULL, &err));
    t->d_rows = copy_to_device(&packed);
    t->all = copy_to_device(whole);
    t->none = create_cpu(whole->dtype, 2, no_rows, 1);
    t->version = version;
    destroy(&packed);
  }
  do_ranks(step);
  for (int rank = 0; rank < rank_count; rank++) {
    are_well = are_well && ranks[rank].status == GPUF_OK;
    DESTROY(&ranks[rank].d_rows, &ranks[rank].all, &ranks[rank].none);
  }
  return are_well;
}

static inline void open_ranks(int count, const gpuf_checkpoint_options *options) {
  rank_count = count;
  for (int rank = 0; rank < count; rank++) {
    ranks[rank] = (rank_thread){.options = *options};
    ranks[rank].options.rank = rank;
    ranks[rank].options.rank_count = count;
    ranks[rank].options.agree = agree;
    ranks[rank].options.agree_arg = ranks;
  }
  do_ranks(-1);
  check_ranks();
}

static inline void close_ranks(void) {
  do_ranks(-1);
  check_ranks();
}

#endif
