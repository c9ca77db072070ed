/* The public calls on devices and streams: check, then ask the backend. */
#include "core/device.h"

#include <inttypes.h>
#include <stdatomic.h>

#include "backend/host/kernel.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/kernel_thread.h"
#include "base/struct.h"
#include "core/channel.h"
#include "core/runtime.h"

static _Atomic(gpufi_free_guard *) free_guards; /* a list; guards are only added */

const char *gpuf_device_kind_name(gpuf_device_kind kind) {
  switch (kind) {
  case GPUF_DEVICE_CPU:
    return "cpu";
  case GPUF_DEVICE_CUDA:
    return "cuda";
  case GPUF_DEVICE_HOST:
    return "host";
  }
  return "unknown";
}

gpuf_status gpuf_device_get_info(gpuf_device device, gpuf_device_info *info, gpuf_error *err) {
  const gpufi_backend *backend;
  gpuf_device_info own = {0};
  gpuf_status status = gpufi_struct_check(info, sizeof(own), "GPUF_DEVICE_INFO_INIT", err);
  if (status == GPUF_OK) {
    status = gpufi_backend_for(device, &backend, err);
  }
  if (status == GPUF_OK) {
    status = backend->device_info(device.index, &own, err);
  }
  if (status == GPUF_OK) {
    gpufi_struct_write(info, &own, sizeof(own));
  }
  return status;
}

gpuf_status gpuf_device_of(const void *d_ptr, gpuf_device *device, gpuf_error *err) {
  GPUFI_REQUIRE(device, err);
  static const gpuf_device_kind kinds[] = {GPUF_DEVICE_HOST, GPUF_DEVICE_CUDA};
  for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
    const gpufi_backend *backend;
    gpuf_device found = {kinds[i], 0};
    if (gpufi_backend_for(found, &backend, NULL) == GPUF_OK &&
        backend->device_of(d_ptr, &found.index, NULL) == GPUF_OK) {
      *device = found;
      return GPUF_OK;
    }
  }
  if (gpufi_in_kernel()) {
    return gpufi_refuse_in_kernel(err);
  }
  return gpufi_forked() ? gpufi_refuse_after_fork(err)
                        : gpufi_fail(err, GPUF_ERR_INVALID, 0,
                                     "%p is in the memory of no device that answers here", d_ptr);
}

gpuf_status gpuf_alloc(gpuf_device device, size_t nbytes, void **d_ptr, gpuf_error *err) {
  GPUFI_REQUIRE(d_ptr, err);
  const gpufi_backend *backend;
  const gpuf_status status = gpufi_backend_for(device, &backend, err);
  if (status == GPUF_OK && nbytes == 0) {
    *d_ptr = NULL;
    return GPUF_OK;
  }
  return status == GPUF_OK ? backend->alloc(device.index, nbytes, d_ptr, err) : status;
}

void gpufi_free_guard_add(gpufi_free_guard *guard) {
  guard->next = atomic_load(&free_guards);
  while (!atomic_compare_exchange_weak(&free_guards, &guard->next, guard)) {
  }
}

/* Memory that is no device's is left to the backend, which says so. */
static gpuf_status check_owner(const gpufi_backend *backend, gpuf_device device, const void *d_ptr,
                               gpuf_error *err) {
  int32_t owner;
  return backend->device_of(d_ptr, &owner, NULL) != GPUF_OK || owner == device.index
             ? GPUF_OK
             : gpufi_fail(err, GPUF_ERR_INVALID, 0,
                          "%p is memory of %s:%" PRId32 ", not of %s:%" PRId32
                          "; free it with the device that it was allocated for",
                          d_ptr, gpuf_device_kind_name(device.kind), owner,
                          gpuf_device_kind_name(device.kind), device.index);
}

void gpufi_free_idle(gpuf_device device, void *d_ptr) {
  const gpufi_backend *backend;
  if (d_ptr && gpufi_backend_for(device, &backend, NULL) == GPUF_OK) {
    backend->free(device.index, d_ptr, NULL); /* fails only if the device has failed */
  }
}

gpuf_status gpuf_free(gpuf_device device, void *d_ptr, gpuf_error *err) {
  const gpufi_backend *backend;
  if (!d_ptr) {
    return GPUF_OK;
  }
  gpuf_status status = gpufi_backend_for(device, &backend, err);
  if (status == GPUF_OK) {
    status = check_owner(backend, device, d_ptr, err);
  }
  for (const gpufi_free_guard *guard = atomic_load(&free_guards); guard && status == GPUF_OK;
       guard = guard->next) {
    status = guard->check(device, d_ptr, err);
  }
  if (status == GPUF_OK && backend->synchronize) {
    backend->synchronize(device.index);
  }
  return status == GPUF_OK ? backend->free(device.index, d_ptr, err) : status;
}

void gpuf_device_trim(void) {
  if (gpufi_forked() || gpufi_in_kernel()) {
    return;
  }
  gpufi_channels_trim();
  if (gpufi_backend_cuda.trim) {
    gpufi_backend_cuda.trim();
  }
}

gpuf_status gpuf_stream_create(gpuf_device device, gpuf_stream *stream, gpuf_error *err) {
  GPUFI_REQUIRE(stream, err);
  const gpufi_backend *backend;
  const gpuf_status status = gpufi_backend_for(device, &backend, err);
  return status == GPUF_OK ? backend->stream_create(device.index, false, stream, err) : status;
}

gpuf_status gpuf_stream_destroy(gpuf_device device, gpuf_stream stream, gpuf_error *err) {
  const gpufi_backend *backend;
  if (stream == GPUF_STREAM_NONE) {
    return GPUF_OK;
  }
  if (stream == GPUF_STREAM_LEGACY || stream == GPUF_STREAM_PER_THREAD) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "%s is a default stream, which the device owns; destroy streams of "
                      "gpuf_stream_create only",
                      stream == GPUF_STREAM_LEGACY ? "GPUF_STREAM_LEGACY"
                                                   : "GPUF_STREAM_PER_THREAD");
  }
  const gpuf_status status = gpufi_backend_for(device, &backend, err);
  return status == GPUF_OK ? backend->stream_destroy(device.index, stream, err) : status;
}

gpuf_status gpuf_stream_synchronize(gpuf_device device, gpuf_stream stream, gpuf_error *err) {
  const gpufi_backend *backend;
  const gpuf_status status = gpufi_backend_for(device, &backend, err);
  return status == GPUF_OK ? backend->stream_synchronize(device.index, stream, err) : status;
}

gpuf_status gpuf_host_launch(gpuf_device device, gpuf_stream stream,
                             void (*kernel)(const void *args), const void *args, size_t args_nbytes,
                             gpuf_error *err) {
  GPUFI_REQUIRE(kernel, err);
  const gpufi_backend *backend;
  const gpuf_status status = gpufi_backend_for(device, &backend, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (device.kind != GPUF_DEVICE_HOST) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "gpuf_host_launch on %s:%d: only the host backend runs host kernels",
                      gpuf_device_kind_name(device.kind), (int)device.index);
  }
  return gpufi_host_launch(device.index, stream, kernel, args, args_nbytes, err);
}

void *gpuf_host_pointer(const void *d_ptr) {
  return gpufi_host_kernel_pointer(d_ptr);
}
