/* Writing the chunks that the commit has encoded. */
#ifndef GPUFI_HDF5_CHECKPOINT_ENCODED_H
#define GPUFI_HDF5_CHECKPOINT_ENCODED_H

#include "hdf5/checkpoint/snapshot.h"

/* What is written as one dataset: a tensor, or a shard's part of one. */
typedef struct gpufi_checkpoint_item {
  const char *name;
  gpuf_tensor tensor;  /* of the item's shape; has data only where it was copied */
  int64_t first_chunk; /* of the grid of the whole tensor */
  size_t writer;       /* of the queue */
  size_t position;     /* of the tensor in the snapshot's order */
} gpufi_checkpoint_item;

/* Make the item's dataset and write `batch`, its first one, and all others of the queue into it.
 * Not entered, before or after. */
gpuf_status gpufi_checkpoint_write_encoded(gpufi_h5_session *session, hid_t file,
                                           const gpufi_checkpoint_item *item,
                                           gpufi_checkpoint_snapshot *snapshot,
                                           gpufi_checkpoint_batch *batch, gpuf_error *err);

#endif
