#include "hdf5/checkpoint/snapshot.h"

#include "base/arithmetic.h"
#include "base/error.h"
#include "core/pinned.h"

#define ALIGNMENT ((size_t)64)
#define PAGE_NBYTES ((size_t)4096)

gpuf_status gpufi_checkpoint_snapshot_open(gpufi_checkpoint_snapshot *snapshot,
                                           const gpuf_checkpoint_options *options,
                                           gpuf_error *err) {
  (void)err;
  snapshot->mode = GPUF_CHECKPOINT_PINNED;
  snapshot->device = options->device;
  return GPUF_OK;
}

void gpufi_checkpoint_snapshot_close(gpufi_checkpoint_snapshot *snapshot) {
  if (snapshot->host) {
    gpufi_unmap(snapshot->host, snapshot->host_nbytes);
  }
  snapshot->host = NULL;
  snapshot->host_nbytes = 0;
}

static gpuf_status need_host(gpufi_checkpoint_snapshot *snapshot, size_t nbytes, gpuf_error *err) {
  if (nbytes <= snapshot->host_nbytes) {
    return GPUF_OK;
  }
  gpufi_checkpoint_snapshot_close(snapshot);
  nbytes = gpufi_round_up(nbytes, PAGE_NBYTES);
  snapshot->host = gpufi_map(nbytes);
  if (!snapshot->host) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0,
                      "no memory for the snapshot's %zu bytes of host memory", nbytes);
  }
  snapshot->host_nbytes = nbytes;
  return GPUF_OK;
}

gpuf_status gpufi_checkpoint_snapshot_take(gpufi_checkpoint_snapshot *snapshot,
                                           gpufi_checkpoint_contents *contents, gpuf_stream stream,
                                           gpuf_error *err) {
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  size_t nbytes = 0;
  size_t at = 0;
  for (size_t i = 0; i < contents->tensor_count; i++) {
    nbytes += gpufi_round_up(gpuf_tensor_nbytes(&contents->tensors[i].tensor), ALIGNMENT);
  }
  gpuf_status status = need_host(snapshot, nbytes, err);
  if (status == GPUF_OK && stream != GPUF_STREAM_NONE) {
    status = gpuf_stream_synchronize(snapshot->device, stream, err);
  }
  for (size_t i = 0; i < contents->tensor_count && status == GPUF_OK; i++) {
    gpuf_tensor *const src = &contents->tensors[i].tensor;
    gpuf_tensor copy;
    status = gpuf_tensor_init(&copy, (char *)snapshot->host + at, cpu, src->dtype, src->ndim,
                              src->shape, err);
    if (status == GPUF_OK) {
      status = gpuf_copy(&copy, src, NULL, err);
    }
    at += gpufi_round_up(gpuf_tensor_nbytes(src), ALIGNMENT);
    *src = copy;
  }
  return status;
}
