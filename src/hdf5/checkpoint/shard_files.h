/* The files of a checkpoint's shards, PREFIX-STEP.SET.INDEX.h5. SET is a random number, so that no
 * file ever has the name of an older one: what a shard's file is written under is its name from the
 * beginning, since nothing refers to it before its master has its own. */
#ifndef GPUFI_HDF5_CHECKPOINT_SHARD_FILES_H
#define GPUFI_HDF5_CHECKPOINT_SHARD_FILES_H

#include "hdf5/checkpoint/contents.h"
#include "hdf5/checkpoint/folder.h"
#include "hdf5/checkpoint/leftovers.h"

#define GPUFI_CHECKPOINT_SHARDS_MAX ((size_t)256)      /* of one rank */
#define GPUFI_CHECKPOINT_ALL_SHARDS_MAX ((size_t)4096) /* of all: a restart has them open */

typedef struct gpufi_checkpoint_shard_name {
  char text[GPUFI_CHECKPOINT_FILE_NAME_NBYTES];
} gpufi_checkpoint_shard_name;

gpufi_checkpoint_shard_name gpufi_checkpoint_shard_name_of(const char *prefix, int64_t step,
                                                           uint64_t set, size_t index);

/* Remove the files of the step's shards, but for those of the set `*kept` (NULL: of none). What
 * they hold goes to `leftovers`, or with NULL at once. The first failure says which file is left.
 */
gpuf_status gpufi_checkpoint_shards_remove(const gpufi_checkpoint_folder *folder, int64_t step,
                                           const uint64_t *kept,
                                           gpufi_checkpoint_leftovers *leftovers, gpuf_error *err);
/* Remove all shards that no master refers to. Those whose master cannot be read stay. */
gpuf_status gpufi_checkpoint_shards_sweep(const gpufi_checkpoint_folder *folder, gpuf_error *err);

#endif
