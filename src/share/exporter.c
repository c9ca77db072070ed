/* gpuf_share and gpuf_unshare. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/struct.h"
#include "base/system.h"
#include "core/runtime.h"
#include "share/attach.h"
#include "share/service.h"
#include "share/table.h"

/* Fill what a handle says of where the tensor's elements lie. */
static gpuf_status describe(const gpufi_backend *backend, const gpuf_tensor *tensor,
                            gpufi_share_fields *fields, const void **d_base, gpuf_error *err) {
  gpufi_ipc_allocation allocation;
  fields->tensor = *tensor;
  fields->tensor.data = NULL;
  gpuf_status status = backend->ipc_identity(tensor->device.index, fields->identity, err);
  *d_base = NULL;
  if (status != GPUF_OK || gpuf_tensor_count(tensor) == 0) {
    return status; /* there is nothing to open, and the pointer may mean nothing */
  }
  if (gpufi_share_is_attached(tensor->device.kind, tensor->data)) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "%p is attached memory of another process; share it from that process, or "
                      "share a copy (gpuf_share_options.copy; Python: share(x, copy=True))",
                      tensor->data);
  }
  memset(&allocation, 0, sizeof(allocation));
  status = backend->ipc_export(tensor->device.index, tensor->data, &allocation, err);
  if (status == GPUF_OK) {
    /* A driver may leave bytes of a name undefined. Importers tell allocations apart by name, so
     * an allocation keeps its name as long as any share needs it. */
    if (!gpufi_share_find_name(tensor->device, &allocation, fields->name)) {
      memcpy(fields->name, allocation.name, sizeof(fields->name));
    }
    fields->allocation_nbytes = allocation.nbytes;
    fields->offset_nbytes = (uint64_t)((uintptr_t)tensor->data - (uintptr_t)allocation.d_base);
    *d_base = allocation.d_base;
  }
  return status;
}

static gpuf_status random_token(gpufi_share_fields *fields, gpuf_error *err) {
  if (!gpufi_random_bytes(fields->token, sizeof(fields->token))) {
    return gpufi_fail(err, GPUF_ERR_IO, errno, "getrandom for a share: %s", strerror(errno));
  }
  return GPUF_OK;
}

/* Pack the elements, whose stream's work is done, and wait for it. */
static gpuf_status pack(const gpufi_backend *backend, const gpuf_tensor *tensor, void *d_copy,
                        gpuf_error *err) {
  const gpufi_packing packing = gpufi_packing_whole(tensor, d_copy);
  gpuf_stream stream;
  gpuf_status status = backend->stream_create(tensor->device.index, false, &stream, err);
  if (status != GPUF_OK) {
    return status;
  }
  status = backend->pack(tensor->device.index, &packing, stream, err);
  if (status == GPUF_OK) {
    status = backend->stream_synchronize(tensor->device.index, stream, err);
  }
  backend->stream_destroy(tensor->device.index, stream, NULL);
  return status;
}

/* Copy the tensor to memory of its own, *d_copy, in C order, and let `tensor` describe that. */
static gpuf_status copy_packed(const gpufi_backend *backend, gpuf_tensor *tensor, void **d_copy,
                               gpuf_error *err) {
  gpuf_tensor packed;
  gpuf_status status = gpuf_alloc(tensor->device, gpuf_tensor_nbytes(tensor), d_copy, err);
  if (status == GPUF_OK) {
    status = gpuf_tensor_init(&packed, *d_copy, tensor->device, tensor->dtype, tensor->ndim,
                              tensor->shape, err);
  }
  if (status == GPUF_OK && gpuf_tensor_count(tensor) > 0) {
    status = pack(backend, tensor, *d_copy, err);
  }
  if (status == GPUF_OK) {
    *tensor = packed;
  }
  return status;
}

static gpuf_status check_tensor(const gpuf_tensor *tensor, const gpufi_backend **backend,
                                gpuf_error *err) {
  const gpuf_status status = gpuf_tensor_check(tensor, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (tensor->device.kind == GPUF_DEVICE_CPU) {
    gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
               "memory of the CPU is not shared; copy it to a device first (Python: to_device)");
    return GPUF_ERR_UNSUPPORTED;
  }
  return gpufi_backend_for(tensor->device, backend, err);
}

/* Make memory->tensor ready for importers, and fill what a handle says of it. */
static gpuf_status prepare(gpufi_share_memory *memory, gpufi_share_fields *fields,
                           gpuf_error *err) {
  gpuf_tensor *tensor = &memory->tensor;
  const gpufi_backend *backend = NULL;
  gpuf_status status = check_tensor(tensor, &backend, err);
  if (status == GPUF_OK && tensor->stream != GPUF_STREAM_NONE) {
    status = backend->stream_synchronize(tensor->device.index, tensor->stream, err);
    tensor->stream = GPUF_STREAM_NONE;
  }
  if (status == GPUF_OK && memory->options.copy) {
    status = copy_packed(backend, tensor, &memory->d_copy, err);
  }
  if (status == GPUF_OK) {
    status = describe(backend, tensor, fields, &memory->d_base, err);
  }
  if (status == GPUF_OK) {
    status = random_token(fields, err);
  }
  return status == GPUF_OK ? gpufi_share_service_start(fields, err) : status;
}

gpuf_status gpuf_share(const gpuf_tensor *tensor, const gpuf_share_options *options,
                       gpuf_share_handle *handle, gpuf_error *err) {
  GPUFI_REQUIRE(tensor, err);
  GPUFI_REQUIRE(handle, err);
  gpufi_share_memory memory = {.tensor = *tensor};
  gpufi_share_fields fields = {0};
  gpuf_status status = gpufi_struct_read(&memory.options, sizeof(memory.options), options,
                                         "GPUF_SHARE_OPTIONS_INIT", err);
  if (status == GPUF_OK) {
    fields.readonly = memory.options.readonly;
    status = prepare(&memory, &fields, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_share_add(&memory, &fields, handle, err);
  }
  if (status != GPUF_OK) {
    gpuf_free(memory.tensor.device, memory.d_copy, NULL);
  }
  return status;
}

/* Check that the handle is one of this process, and return its generation. */
static gpuf_status check_own(const gpuf_share_handle *handle, uint64_t *generation,
                             gpuf_error *err) {
  gpufi_share_fields fields;
  if (gpufi_forked()) {
    return gpufi_refuse_after_fork(err);
  }
  const gpuf_status status = gpufi_share_decode(handle, &fields, err);
  if (status != GPUF_OK) {
    return status;
  }
  *generation = fields.generation;
  if (!gpufi_share_is_own(fields.service)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the share was made by process %" PRId64 "; only that process can end it, "
                      "and importers call gpuf_detach",
                      fields.process_id);
  }
  return GPUF_OK;
}

gpuf_status gpuf_unshare(const gpuf_share_handle *handle, int64_t timeout_ns,
                         int32_t *importer_count, gpuf_error *err) {
  uint64_t generation = 0;
  int32_t left_count = 0;
  const gpuf_status status = check_own(handle, &generation, err);
  if (status != GPUF_OK) {
    return status;
  }
  const bool ended = gpufi_share_withdraw(generation, timeout_ns, &left_count);
  if (importer_count) {
    *importer_count = left_count;
  }
  if (ended) {
    return GPUF_OK;
  }
  return gpufi_fail(err, GPUF_ERR_TIMEOUT, 0,
                    "%" PRId32 " attachments still use the memory; keep it allocated and call "
                    "gpuf_unshare again to wait for them",
                    left_count);
}

gpuf_status gpuf_share_importer_count(const gpuf_share_handle *handle, int32_t *importer_count,
                                      gpuf_error *err) {
  GPUFI_REQUIRE(importer_count, err);
  uint64_t generation = 0;
  const gpuf_status status = check_own(handle, &generation, err);
  if (status == GPUF_OK && !gpufi_share_count_importers(generation, importer_count)) {
    return gpufi_fail(err, GPUF_ERR_STATE, 0, "share %" PRIu64 " of this process has ended",
                      generation);
  }
  return status;
}
