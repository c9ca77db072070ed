/* Boxes read and written by H5Dread and H5Dwrite, which know them as hyperslabs: for layouts, types
 * and filters that only HDF5 itself handles. */
#ifndef GPUFI_HDF5_HYPERSLAB_H
#define GPUFI_HDF5_HYPERSLAB_H

#include "hdf5/dataset.h"

/* Read or write `box`, which has elements, from or to the origin of a C-contiguous host buffer of
 * `buffer_shape`, which is at least as large along each axis. Elements that were never written, and
 * have no fill value, are read as 0. Entered. */
gpuf_status gpufi_h5_hyperslab_transfer(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                        const gpufi_h5_box *box, void *buffer,
                                        const int64_t *buffer_shape, bool writes, gpuf_error *err);

/* Read or write `box`, which has elements, from or to a tensor of its shape, in buffers of at most
 * 32 MiB, or one chunk where that is more. Not entered, before or after. */
gpuf_status gpufi_h5_hyperslabs_transfer(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                         const gpufi_h5_box *box, const gpuf_tensor *tensor,
                                         bool writes, gpuf_error *err);

#endif
