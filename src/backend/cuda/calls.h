/* How the CUDA backend calls the runtime: the failed call is named and CUDA's last error cleared;
 * the thread's current device is put back. */
#ifndef GPUFI_BACKEND_CUDA_CALLS_H
#define GPUFI_BACKEND_CUDA_CALLS_H

#include <cuda_runtime_api.h>

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

/* Make `device` current; *previous is what leave() restores. */
static inline gpuf_status enter(int32_t device, int *previous, gpuf_error *err) {
  gpuf_status status = CUDA_CALL(cudaGetDevice(previous));
  if (status == GPUF_OK && *previous != device) {
    status = CUDA_CALL(cudaSetDevice(device));
  }
  return status;
}

static inline void leave(int32_t device, int previous) {
  if (previous != device) {
    cudaSetDevice(previous);
  }
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
