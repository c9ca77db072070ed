#include "core/runtime.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "backend/host/stream.h"
#include "base/error.h"
#include "base/fork.h"

#define STRINGIFY(x) #x
#define STRING(x) STRINGIFY(x)

const char *gpuf_version(void) {
  return STRING(GPUF_VERSION_MAJOR) "." STRING(GPUF_VERSION_MINOR) "." STRING(GPUF_VERSION_PATCH);
}

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static atomic_bool forked;

static void mark_forked(void) {
  atomic_store(&forked, true);
}
static void watch_fork(void) {
  pthread_atfork(NULL, NULL, mark_forked);
}

bool gpufi_forked(void) {
  return atomic_load_explicit(&forked, memory_order_relaxed);
}

static const gpufi_backend *backend_of(gpuf_device_kind kind) {
  switch (kind) {
  case GPUF_DEVICE_CUDA:
    return &gpufi_backend_cuda;
  case GPUF_DEVICE_HOST:
    return &gpufi_backend_host;
  case GPUF_DEVICE_CPU:
    break;
  }
  return NULL;
}

gpuf_status gpuf_device_count(gpuf_device_kind kind, int32_t *count, gpuf_error *err) {
  GPUFI_REQUIRE(count, err);
  const gpufi_backend *backend = backend_of(kind);
  if (!backend) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "device kind %d has no devices; use GPUF_DEVICE_CUDA or GPUF_DEVICE_HOST",
                      (int)kind);
  }
  if (gpufi_forked()) {
    return gpufi_refuse_after_fork(err);
  }
  pthread_once(&fork_once, watch_fork);
  return backend->device_count(count, err);
}

gpuf_status gpufi_backend_for(gpuf_device device, const gpufi_backend **backend, gpuf_error *err) {
  int32_t count = 0;
  if (gpufi_host_in_kernel()) {
    return gpufi_host_refuse_in_kernel(err);
  }
  const gpuf_status status = gpuf_device_count(device.kind, &count, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (device.index < 0 || device.index >= count) {
    return gpufi_fail(err, GPUF_ERR_NO_DEVICE, 0,
                      "there is no device %s:%" PRId32 "; indices go from 0 to %" PRId32,
                      gpuf_device_kind_name(device.kind), device.index, count - 1);
  }
  *backend = backend_of(device.kind);
  return GPUF_OK;
}

gpuf_status gpuf_device_default(gpuf_device *device, gpuf_error *err) {
  GPUFI_REQUIRE(device, err);
  const char *wanted = getenv("GPUFETCH_BACKEND");
  gpuf_device_kind kind = GPUF_DEVICE_HOST;
  int32_t count;
  if (!wanted || !*wanted || strcmp(wanted, "auto") == 0) {
    if (gpuf_device_count(GPUF_DEVICE_CUDA, &count, NULL) == GPUF_OK) {
      kind = GPUF_DEVICE_CUDA;
    }
  } else if (strcmp(wanted, "cuda") == 0) {
    kind = GPUF_DEVICE_CUDA;
  } else if (strcmp(wanted, "host") != 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "GPUFETCH_BACKEND is \"%.100s\"; it must be cuda, host or auto", wanted);
  }
  const gpuf_status status = gpuf_device_count(kind, &count, err);
  if (status == GPUF_OK) {
    *device = (gpuf_device){kind, 0};
  }
  return status;
}
