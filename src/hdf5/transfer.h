/* One box of a dataset on its way from or to a tensor, chunk by chunk. */
#ifndef GPUFI_HDF5_TRANSFER_H
#define GPUFI_HDF5_TRANSFER_H

#include "hdf5/direct.h"

/* Constant once it is filled; any thread may read it. */
typedef struct gpufi_h5_transfer {
  const gpufi_h5_dataset *dataset;
  const gpuf_tensor *tensor; /* of the box's shape */
  bool writes;               /* from the tensor to the dataset */
  gpufi_h5_grid grid;        /* the chunks that the box touches */
  gpufi_h5_direct direct;    /* reading: where they lie in the file */
} gpufi_h5_transfer;

/* Enters where the file is to be looked at. */
void gpufi_h5_transfer_init(gpufi_h5_transfer *transfer, gpufi_h5_session *session,
                            const gpufi_h5_dataset *dataset, const gpufi_h5_box *box,
                            const gpuf_tensor *tensor, bool writes);
void gpufi_h5_transfer_fini(gpufi_h5_transfer *transfer);

/* The elements that chunk `index` and the tensor have in common: *in_chunk is a view of the whole
 * chunk, which is at `raw` on `device`, and *in_tensor one of the tensor. */
gpuf_status gpufi_h5_transfer_views(const gpufi_h5_transfer *transfer, int64_t index, void *raw,
                                    gpuf_device device, gpuf_tensor *in_chunk,
                                    gpuf_tensor *in_tensor, gpuf_error *err);

/* "1, 2": where chunk `index` starts in the dataset, for messages. */
gpufi_h5_list gpufi_h5_transfer_position(const gpufi_h5_transfer *transfer, int64_t index);

#endif
