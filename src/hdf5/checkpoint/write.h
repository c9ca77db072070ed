/* Writing a checkpoint's file with HDF5, from a snapshot. */
#ifndef GPUFI_HDF5_CHECKPOINT_WRITE_H
#define GPUFI_HDF5_CHECKPOINT_WRITE_H

#include "hdf5/checkpoint/snapshot.h"

typedef struct gpufi_checkpoint_writing {
  gpufi_h5_api *api; /* gpufi_checkpoint_library() */
  gpuf_h5_codec codec;
  int32_t thread_count;    /* as in gpuf_h5_options */
  const atomic_bool *stop; /* once it is true, writing fails with GPUF_ERR_STATE */
} gpufi_checkpoint_writing;

/* Write everything into the file at `path`, which exists and is overwritten, and close it: each
 * tensor as soon as the snapshot has it. The digests of the tensors are filled in. */
gpuf_status gpufi_checkpoint_write(const gpufi_checkpoint_writing *writing,
                                   gpufi_checkpoint_snapshot *snapshot,
                                   gpufi_checkpoint_contents *contents, const char *path,
                                   gpuf_error *err);

#endif
