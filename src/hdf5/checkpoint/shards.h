/* The shards of a checkpoint while it is written. */
#ifndef GPUFI_HDF5_CHECKPOINT_SHARDS_H
#define GPUFI_HDF5_CHECKPOINT_SHARDS_H

#include "hdf5/checkpoint/write.h"

/* Used by the writer's thread. Zeroed: none. */
typedef struct gpufi_checkpoint_shards {
  gpufi_checkpoint_temporary
      *files; /* of the shards, by their index; fd is -1 while there is none */
  size_t count;
} gpufi_checkpoint_shards;

/* Make the files of the contents' shards, from those of the checkpoint that `master` was made from
 * where it was one, and write and seal them, each by a thread of its own. Call
 * gpufi_checkpoint_shards_end also after a failure. */
gpuf_status gpufi_checkpoint_shards_write(gpufi_checkpoint_shards *shards,
                                          const gpufi_checkpoint_writing *writing,
                                          const gpufi_checkpoint_folder *folder,
                                          const gpufi_checkpoint_temporary *master,
                                          gpufi_checkpoint_snapshot *snapshot,
                                          gpufi_checkpoint_contents *contents, gpuf_error *err);
/* Look whether they have their names still, with `syncs` once they and these are on the disk. */
gpuf_status gpufi_checkpoint_shards_finish(const gpufi_checkpoint_shards *shards,
                                           const gpufi_checkpoint_folder *folder, bool syncs,
                                           gpuf_error *err);
/* What the contents' shards take, once they are written. */
uint64_t gpufi_checkpoint_shards_nbytes(const gpufi_checkpoint_contents *contents);
/* Of the older files that they were. */
uint64_t gpufi_checkpoint_shards_recycled(const gpufi_checkpoint_shards *shards);
/* Close the files; with `removes`, they go. */
void gpufi_checkpoint_shards_end(gpufi_checkpoint_shards *shards, bool removes);

#endif
