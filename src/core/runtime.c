#include "core/runtime.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/kernel_thread.h"
#include "base/system.h"

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

/* Refuse a size that is no number; the code that reads it would take it for unset. The verdict is
 * reached once, for other threads may change the environment later: 0 is not yet, 1 is good, and 2
 * and above is 2 + the index of the first variable that is wrong. */
static gpuf_status check_sizes(gpuf_error *err) {
  static const char *const sizes[] = {"GPUFETCH_POOL_MAX_NBYTES", "GPUFETCH_SCRATCH_MAX_NBYTES",
                                      "GPUFETCH_DEVICE_KEEP_MAX_NBYTES"};
  static atomic_int verdict;
  int known = atomic_load_explicit(&verdict, memory_order_relaxed);
  if (known == 0) {
    known = 1;
    for (int i = (int)(sizeof(sizes) / sizeof(*sizes)) - 1; i >= 0; i--) {
      known = gpufi_env_is_int64(sizes[i]) ? known : 2 + i;
    }
    atomic_store_explicit(&verdict, known, memory_order_relaxed);
  }
  if (known == 1) {
    return GPUF_OK;
  }
  const char *value = getenv(sizes[known - 2]);
  return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                    "%s is \"%.100s\"; it must be a number of bytes, such as 1073741824",
                    sizes[known - 2], value ? value : "");
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
  const gpuf_status status = check_sizes(err);
  if (status != GPUF_OK) {
    return status;
  }
  pthread_once(&fork_once, watch_fork);
  return backend->device_count(count, err);
}

gpuf_status gpufi_backend_for(gpuf_device device, const gpufi_backend **backend, gpuf_error *err) {
  int32_t count = 0;
  if (gpufi_in_kernel()) {
    return gpufi_refuse_in_kernel(err);
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
