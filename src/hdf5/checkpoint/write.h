/* Writing a checkpoint's file with HDF5, from a snapshot. */
#ifndef GPUFI_HDF5_CHECKPOINT_WRITE_H
#define GPUFI_HDF5_CHECKPOINT_WRITE_H

#include "hdf5/checkpoint/folder.h"
#include "hdf5/checkpoint/leftovers.h"
#include "hdf5/checkpoint/snapshot.h"

typedef struct gpufi_checkpoint_writing {
  gpufi_h5_api *api; /* gpufi_checkpoint_library() */
  gpuf_h5_codec codec;
  int32_t thread_count;                  /* as in gpuf_h5_options */
  const atomic_bool *stop;               /* once it is true, writing fails with GPUF_ERR_STATE */
  gpufi_checkpoint_leftovers *leftovers; /* get the files' mappings */
} gpufi_checkpoint_writing;

/* Write everything that shards do not hold into the temporary, which is overwritten: each tensor as
 * soon as the snapshot has it, and of those that shards hold, which are finished, where they are.
 * Close it, and seal it. The digests of the tensors are filled in. */
gpuf_status gpufi_checkpoint_write(const gpufi_checkpoint_writing *writing,
                                   gpufi_checkpoint_snapshot *snapshot,
                                   gpufi_checkpoint_contents *contents,
                                   const gpufi_checkpoint_temporary *temporary, gpuf_error *err);

/* The same of the parts that shard `index` holds, and of nothing else. What the contents say of the
 * shard is completed. Several threads may write a shard each. */
gpuf_status gpufi_checkpoint_write_shard(const gpufi_checkpoint_writing *writing,
                                         gpufi_checkpoint_snapshot *snapshot,
                                         gpufi_checkpoint_contents *contents, size_t index,
                                         const gpufi_checkpoint_temporary *temporary,
                                         gpuf_error *err);

#endif
