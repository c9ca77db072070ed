#include "hdf5/transfer.h"

void gpufi_h5_transfer_init(gpufi_h5_transfer *transfer, gpufi_h5_session *session,
                            const gpufi_h5_dataset *dataset, const gpufi_h5_box *box,
                            const gpuf_tensor *tensor, bool writes) {
  *transfer = (gpufi_h5_transfer){.dataset = dataset, .tensor = tensor, .writes = writes};
  transfer->direct = (gpufi_h5_direct){-1, NULL};
  gpufi_h5_grid_init(&transfer->grid, dataset->ndim, box, dataset->chunk, dataset->chunk);
  if (!writes) {
    gpufi_h5_enter(session);
    gpufi_h5_direct_init(&transfer->direct, session, dataset, &transfer->grid);
    gpufi_h5_leave(session);
  }
}

void gpufi_h5_transfer_fini(gpufi_h5_transfer *transfer) {
  gpufi_h5_direct_fini(&transfer->direct);
}

gpuf_status gpufi_h5_transfer_views(const gpufi_h5_transfer *transfer, int64_t index, void *raw,
                                    gpuf_device device, gpuf_tensor *in_chunk,
                                    gpuf_tensor *in_tensor, gpuf_error *err) {
  const gpufi_h5_dataset *dataset = transfer->dataset;
  const gpufi_h5_box common = gpufi_h5_grid_tile(&transfer->grid, index);
  int64_t origin[GPUF_NDIM_MAX];
  gpuf_status status =
      gpuf_tensor_init(in_chunk, raw, device, dataset->dtype, dataset->ndim, dataset->chunk, err);
  gpufi_h5_grid_origin(&transfer->grid, index, origin);
  *in_tensor = *transfer->tensor;
  if (status == GPUF_OK) {
    status = gpufi_h5_narrow(in_chunk, &common, origin, err);
  }
  return status == GPUF_OK ? gpufi_h5_narrow(in_tensor, &common, transfer->grid.box.start, err)
                           : status;
}

gpufi_h5_list gpufi_h5_transfer_position(const gpufi_h5_transfer *transfer, int64_t index) {
  int64_t origin[GPUF_NDIM_MAX];
  gpufi_h5_grid_origin(&transfer->grid, index, origin);
  return gpufi_h5_list_of(transfer->grid.ndim, origin);
}
