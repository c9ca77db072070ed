/* What the ranks say of their shards, put together to what the master says. Thread-safety:
 * re-entrant. */
#ifndef GPUFI_HDF5_CHECKPOINT_MERGE_H
#define GPUFI_HDF5_CHECKPOINT_MERGE_H

#include "hdf5/checkpoint/contents.h"

/* Of `contents`, whose shards have been written: which boxes of which arrays they hold, and the
 * values. `share` is empty before, and to be cleared after a failure, too. */
gpuf_status gpufi_checkpoint_describe_share(const gpufi_checkpoint_contents *contents,
                                            gpufi_checkpoint_contents *share, gpuf_error *err);

/* Add the share of `rank` to `all`, which has those of all lower ranks. GPUF_ERR_INVALID where they
 * say different things of a tensor or a value. */
gpuf_status gpufi_checkpoint_merge(gpufi_checkpoint_contents *all,
                                   const gpufi_checkpoint_contents *share, int32_t rank,
                                   gpuf_error *err);
/* GPUF_ERR_INVALID where the boxes of all ranks, each of which has `shard_count` shards, overlap or
 * leave gaps. */
gpuf_status gpufi_checkpoint_check_merged(const gpufi_checkpoint_contents *all, size_t shard_count,
                                          gpuf_error *err);

#endif
