/* Finished checkpoints that the options keep no longer: they are removed, or recycled.
 *
 * Only files that end with a seal are considered: others are somebody else's, or were cut. */
#ifndef GPUFI_HDF5_CHECKPOINT_EXPIRED_H
#define GPUFI_HDF5_CHECKPOINT_EXPIRED_H

#include "hdf5/checkpoint/folder.h"
#include "hdf5/checkpoint/leftovers.h"

/* What is promised: of the finished checkpoints up to `step`, the `count` (0: all) of the highest
 * steps are there. Those of higher steps are not touched. */
typedef struct gpufi_checkpoint_keeping {
  int64_t step; /* -1: not known yet, so that nothing has expired */
  int32_t count;
  bool recycles;                         /* one more stays, for gpufi_checkpoint_recycle */
  bool syncs;                            /* a master is gone from the disk before its shards are */
  gpufi_checkpoint_leftovers *leftovers; /* get what is removed */
} gpufi_checkpoint_keeping;

/* Remove what has expired. What cannot be removed stays, and is tried again the next time; the
 * failure says which one it is. */
gpuf_status gpufi_checkpoint_prune(const gpufi_checkpoint_folder *folder,
                                   const gpufi_checkpoint_keeping *keeping, gpuf_error *err);

/* Make the temporary of `step` from a file that has expired, and open it. With `syncs`, its old
 * name is gone from the disk, so that a power cut does not bring back a checkpoint whose bytes
 * were overwritten. False where there is none that may be overwritten: one that has another name
 * too, or that somebody has open. */
bool gpufi_checkpoint_recycle(const gpufi_checkpoint_folder *folder,
                              const gpufi_checkpoint_keeping *keeping, int64_t step, bool syncs,
                              gpufi_checkpoint_temporary *temporary);
/* Make the file at shard->path from shard `index` of the older checkpoint whose master `master` was
 * made from, and open it. False where there is none that may be overwritten. */
bool gpufi_checkpoint_recycle_shard(const gpufi_checkpoint_folder *folder,
                                    const gpufi_checkpoint_temporary *master, size_t index,
                                    gpufi_checkpoint_temporary *shard);

#endif
