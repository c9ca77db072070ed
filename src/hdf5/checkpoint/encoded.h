/* Writing the chunks that the commit has encoded. */
#ifndef GPUFI_HDF5_CHECKPOINT_ENCODED_H
#define GPUFI_HDF5_CHECKPOINT_ENCODED_H

#include "hdf5/checkpoint/snapshot.h"

/* Make the dataset of tensor `index` and write `batch`, its first one, and all others of the queue
 * into it. Not entered, before or after. */
gpuf_status gpufi_checkpoint_write_encoded(gpufi_h5_session *session, hid_t file,
                                           const gpufi_checkpoint_tensor *t, size_t index,
                                           gpufi_checkpoint_snapshot *snapshot,
                                           gpufi_checkpoint_batch *batch, gpuf_error *err);

#endif
