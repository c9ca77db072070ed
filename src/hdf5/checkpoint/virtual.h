/* The virtual datasets of a master, by which any HDF5 reads tensors that lie in shards. */
#ifndef GPUFI_HDF5_CHECKPOINT_VIRTUAL_H
#define GPUFI_HDF5_CHECKPOINT_VIRTUAL_H

#include "hdf5/checkpoint/contents.h"

/* Make the virtual dataset of a tensor that shards hold. The shards are named without a folder:
 * HDF5 looks for them in that of the master. Where it finds none it reads the fill value, which is
 * NaN for floating-point numbers. Not entered, before or after. */
gpuf_status gpufi_checkpoint_create_virtual(gpufi_h5_session *session, hid_t file,
                                            const gpufi_checkpoint_contents *contents,
                                            const gpufi_checkpoint_tensor *t, gpuf_error *err);

#endif
