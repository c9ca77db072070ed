/* Where the tensors of a checkpoint are kept from its commit until they are in the file. */
#ifndef GPUFI_HDF5_CHECKPOINT_SNAPSHOT_H
#define GPUFI_HDF5_CHECKPOINT_SNAPSHOT_H

#include <gpufetch/checkpoint.h>

#include "hdf5/checkpoint/contents.h"

/* Used by one thread at a time. Zeroed: empty. */
typedef struct gpufi_checkpoint_snapshot {
  gpuf_checkpoint_mode mode;
  gpuf_device device;
  void *host; /* of gpufi_map, kept for the next snapshot; NULL while there is none */
  size_t host_nbytes;
} gpufi_checkpoint_snapshot;

/* Choose the mode and reserve memory. Close it also after a failure. */
gpuf_status gpufi_checkpoint_snapshot_open(gpufi_checkpoint_snapshot *snapshot,
                                           const gpuf_checkpoint_options *options, gpuf_error *err);
void gpufi_checkpoint_snapshot_close(gpufi_checkpoint_snapshot *snapshot);

/* Replace the tensors of `contents` by copies. They hold what the tensors hold behind the work that
 * is now on `stream` and on their own. */
gpuf_status gpufi_checkpoint_snapshot_take(gpufi_checkpoint_snapshot *snapshot,
                                           gpufi_checkpoint_contents *contents, gpuf_stream stream,
                                           gpuf_error *err);

#endif
