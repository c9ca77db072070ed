/* What several processes that write one checkpoint agree on. Each of these calls is made by all
 * ranks, in one order, on the thread of the caller of a public call. One that is alone agrees with
 * itself. */
#ifndef GPUFI_HDF5_CHECKPOINT_RANKS_H
#define GPUFI_HDF5_CHECKPOINT_RANKS_H

#include <gpufetch/checkpoint.h>

typedef struct gpufi_checkpoint_ranks {
  int32_t rank;
  int32_t count; /* 1: it is alone */
  int64_t (*agree)(void *arg, int64_t value);
  void *arg;
  bool is_broken; /* the ranks could not agree: this one says so in all that follows */
  bool is_open;   /* all of them have begun a checkpoint, and not agreed yet on how it ended */
  uint64_t set;   /* in the names of its shards */
} gpufi_checkpoint_ranks;

/* The minimum over the ranks of a value that is not negative, or -1. */
int64_t gpufi_checkpoint_agree(gpufi_checkpoint_ranks *ranks, int64_t value);
/* GPUF_ERR_STATE where this thread is in the ranks' agree, which is to make no call on their
 * checkpoint: it would wait for the turn that it holds. */
gpuf_status gpufi_checkpoint_check_outside(const gpufi_checkpoint_ranks *ranks, gpuf_error *err);
/* The lowest rank that has failed; INT64_MAX: none has. -1 as gpufi_checkpoint_agree. */
int64_t gpufi_checkpoint_agree_on_failed(gpufi_checkpoint_ranks *ranks, bool has_failed);
/* GPUF_ERR_STATE where the ranks could not agree. */
gpuf_status gpufi_checkpoint_fail_to_agree(gpuf_error *err);

/* How opening ends, on all ranks alike: with `status`, this one's own failure, whose message is in
 * `err`, with that of another, or since options differ. */
gpuf_status gpufi_checkpoint_agree_to_open(gpufi_checkpoint_ranks *ranks,
                                           const gpuf_checkpoint_options *options,
                                           gpuf_status status, gpuf_error *err);
/* The same of beginning `step`: with GPUF_OK, they have the number of a new set. */
gpuf_status gpufi_checkpoint_agree_to_begin(gpufi_checkpoint_ranks *ranks, int64_t step,
                                            gpuf_status status, gpuf_error *err);

#endif
