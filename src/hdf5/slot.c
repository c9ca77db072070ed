#include "hdf5/slot.h"

#include "hdf5/coding.h"

#include <stdlib.h>
#include <string.h>

/* Where the pool is at its cap, pageable memory will do: copies are staged then. */
bool gpufi_h5_slot_init(gpufi_h5_slot *slot, const gpufi_h5_transfer *transfer) {
  const gpufi_h5_dataset *dataset = transfer->dataset;
  const gpuf_device device = transfer->tensor->device;
  const size_t encoded_nbytes = gpufi_h5_encoded_bound(dataset);
  gpufi_h5_chunk *chunk = &slot->chunk;
  memset(slot, 0, sizeof(*slot));
  slot->turn = transfer->writes ? GPUFI_H5_TURN_WORKERS : GPUFI_H5_TURN_CALLER;
  slot->is_pooled = device.kind != GPUF_DEVICE_CPU &&
                    gpuf_pool_acquire(device, dataset->chunk_nbytes, &chunk->raw, NULL) == GPUF_OK;
  if (!slot->is_pooled && posix_memalign(&chunk->raw, 64, dataset->chunk_nbytes) != 0) {
    chunk->raw = NULL;
  }
  if (encoded_nbytes) {
    chunk->encoded = malloc(encoded_nbytes);
  }
  if (!chunk->raw || (encoded_nbytes && !chunk->encoded)) {
    gpufi_h5_slot_fini(slot);
    return false;
  }
  return true;
}

void gpufi_h5_slot_fini(gpufi_h5_slot *slot) {
  gpuf_future_destroy(slot->future);
  if (slot->is_pooled) {
    gpuf_pool_release(slot->chunk.raw, NULL);
  } else {
    free(slot->chunk.raw);
  }
  free(slot->chunk.encoded);
  memset(slot, 0, sizeof(*slot));
}

gpuf_status gpufi_h5_slot_begin(gpufi_h5_slot *slot, const gpufi_h5_transfer *transfer,
                                void *scratch, gpuf_error *err) {
  static const gpuf_copy_options one_thread = {.struct_nbytes = sizeof(one_thread),
                                               .thread_count = 1};
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  const bool writes = transfer->writes;
  gpufi_h5_chunk *chunk = &slot->chunk;
  gpuf_tensor in_chunk;
  gpuf_tensor in_tensor;
  gpuf_status status = writes ? GPUF_OK : gpufi_h5_chunk_load(transfer, chunk, err);
  if (status == GPUF_OK && !writes) {
    status = gpufi_h5_chunk_decode(transfer, chunk, scratch, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_h5_transfer_views(transfer, chunk->index, chunk->raw, cpu, &in_chunk, &in_tensor,
                                     err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  if (writes && gpuf_tensor_nbytes(&in_chunk) != transfer->dataset->chunk_nbytes) {
    gpufi_h5_dataset_fill_chunk(transfer->dataset, chunk->raw); /* what lies beyond the edge */
  }
  return gpuf_copy_async(writes ? &in_chunk : &in_tensor, writes ? &in_tensor : &in_chunk,
                         &one_thread, &slot->future, err);
}

gpuf_status gpufi_h5_slot_end(gpufi_h5_slot *slot, const gpufi_h5_transfer *transfer, void *scratch,
                              gpuf_error *err) {
  const gpuf_status status = gpuf_future_wait(slot->future, -1, err);
  gpuf_future_destroy(slot->future);
  slot->future = NULL;
  return status == GPUF_OK && transfer->writes
             ? gpufi_h5_chunk_encode(transfer, &slot->chunk, scratch, err)
             : status;
}
