/* What a rank tells rank 0 of the shards that it has written: a small file beside them, under the
 * name .PREFIX-STEP.SET.RANK.part, with the lines of a manifest and their checksum. It is there
 * from the time when the shards are whole until the ranks have agreed on how the checkpoint ended.
 *
 * Each function is used by one thread at a time. */
#ifndef GPUFI_HDF5_CHECKPOINT_RANK_FILES_H
#define GPUFI_HDF5_CHECKPOINT_RANK_FILES_H

#include "hdf5/checkpoint/contents.h"
#include "hdf5/checkpoint/folder.h"

/* Whose file it is. */
typedef struct gpufi_checkpoint_rank_file {
  int64_t step;
  uint64_t set;
  int32_t rank;
} gpufi_checkpoint_rank_file;

/* Write it, whole and closed when the call returns. After a failure there is none. */
gpuf_status gpufi_checkpoint_rank_file_write(const gpufi_checkpoint_folder *folder,
                                             const gpufi_checkpoint_rank_file *which,
                                             const gpufi_checkpoint_contents *share,
                                             gpuf_error *err);
/* Read it into `share`, which is empty before and, after a failure, holds something to clear. Its
 * shards are `shard_count`, under the names that are the rank's. */
gpuf_status gpufi_checkpoint_rank_file_read(const gpufi_checkpoint_folder *folder,
                                            const gpufi_checkpoint_rank_file *which,
                                            size_t shard_count, gpufi_checkpoint_contents *share,
                                            gpuf_error *err);
void gpufi_checkpoint_rank_file_remove(const gpufi_checkpoint_folder *folder,
                                       const gpufi_checkpoint_rank_file *which);
/* Remove all of the prefix, which are dead owners' while it is locked. */
gpuf_status gpufi_checkpoint_rank_files_sweep(const gpufi_checkpoint_folder *folder,
                                              gpuf_error *err);

#endif
