/* How the CUDA backend calls the runtime: the failed call is named and CUDA's last error cleared;
 * the thread's current device is put back. */
#ifndef GPUFI_BACKEND_CUDA_CALLS_H
#define GPUFI_BACKEND_CUDA_CALLS_H

#include <cuda_runtime_api.h>

#include "backend/cuda/driver.h"
#include "base/error.h"

static inline gpuf_status cuda_fail(cudaError_t code, const char *call, gpuf_error *err) {
  gpuf_status status = GPUF_ERR_DEVICE;
  if (code == cudaErrorMemoryAllocation) {
    status = GPUF_ERR_NO_DEVICE_MEMORY;
  } else if (code == cudaErrorInsufficientDriver || code == cudaErrorNoDevice) {
    status = GPUF_ERR_NO_DEVICE;
  }
  cudaGetLastError();
  return gpufi_fail(err, status, code, "%s failed: %s (%s)", call, cudaGetErrorString(code),
                    cudaGetErrorName(code));
}

/* Evaluates to GPUF_OK or fills `err` with the call's text and error. */
#define CUDA_CALL(call) cuda_check((call), #call, err)

static inline gpuf_status cuda_check(cudaError_t code, const char *call, gpuf_error *err) {
  return code == cudaSuccess ? GPUF_OK : cuda_fail(code, call, err);
}

/* Make `device` current; *previous is what leave() takes. The thread's own device is cuda:0 until
 * the program sets another, and cudaSetDevice, from CUDA 12 on, makes a context on the device that
 * it sets. Putting the own device back by it would make one on a GPU that the program does not use,
 * and can fail. So the device's context is pushed over the thread's instead, and popped. */
static inline gpuf_status enter(int32_t device, int *previous, gpuf_error *err) {
  const gpuf_status status = CUDA_CALL(cudaGetDevice(previous));
  return status == GPUF_OK && *previous != device ? gpufi_cuda_push(device, err) : status;
}

static inline void leave(int32_t device, int previous) {
  if (previous != device) {
    gpufi_cuda_pop();
  }
}

/* As enter(), for calls of the driver: a thread that is new to CUDA has a device but no context
 * yet, which they need. */
static inline gpuf_status enter_with_context(int32_t device, int *previous, gpuf_error *err) {
  gpuf_status status = gpufi_cuda_require_driver(err);
  if (status == GPUF_OK) {
    status = enter(device, previous, err);
  }
  return status == GPUF_OK && *previous == device ? CUDA_CALL(cudaSetDevice(device)) : status;
}

/* CUDA_CALL while `device` is current. */
#define CUDA_CALL_ON(device, call)                                                                 \
  __extension__({                                                                                  \
    int previous_;                                                                                 \
    gpuf_status status_ = enter(device, &previous_, err);                                          \
    if (status_ == GPUF_OK) {                                                                      \
      status_ = CUDA_CALL(call);                                                                   \
      leave(device, previous_);                                                                    \
    }                                                                                              \
    status_;                                                                                       \
  })

#endif
