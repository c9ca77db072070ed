/* Chunks in flight between the calling thread, which alone enters HDF5, and workers, which copy,
 * encode and decode. */
#ifndef GPUFI_HDF5_RING_H
#define GPUFI_HDF5_RING_H

#include "hdf5/transfer.h"

/* Transfer the chunks from `first` on. Where no worker can be started, the calling thread does the
 * whole work. Not entered, before or after. After a failure chunks that others were busy with may
 * or may not have been transferred. */
gpuf_status gpufi_h5_ring_transfer(gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
                                   int64_t first, gpuf_error *err);

#endif
