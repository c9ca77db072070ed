#include "backend/cuda/driver.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"

/* The version whose signatures are declared here, whatever newer one the driver has. */
#define DRIVER_API_VERSION 12000

static pthread_once_t driver_once = PTHREAD_ONCE_INIT;
gpufi_cuda_driver_calls gpufi_cuda_driver;

static void *driver_call(const char *name) {
  void *call = NULL;
  enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t code =
      cudaGetDriverEntryPointByVersion(name, &call, DRIVER_API_VERSION, cudaEnableDefault, &result);
#else
  const cudaError_t code = cudaGetDriverEntryPoint(name, &call, cudaEnableDefault, &result);
#endif
  if (code != cudaSuccess) {
    cudaGetLastError();
  }
  return code == cudaSuccess && result == cudaDriverEntryPointSuccess ? call : NULL;
}

static bool is_complete;

static void find_driver(void) {
  gpufi_cuda_driver_calls *calls = &gpufi_cuda_driver;
  const struct {
    void **call;
    const char *name;
  } wanted[] = {
      {(void **)&calls->address_range, "cuMemGetAddressRange"},
      {(void **)&calls->attributes, "cuPointerGetAttributes"},
      {(void **)&calls->error_name, "cuGetErrorName"},
      {(void **)&calls->device, "cuDeviceGet"},
      {(void **)&calls->retain_context, "cuDevicePrimaryCtxRetain"},
      {(void **)&calls->context_state, "cuDevicePrimaryCtxGetState"},
      {(void **)&calls->context, "cuCtxGetCurrent"},
      {(void **)&calls->push_context, "cuCtxPushCurrent"},
      {(void **)&calls->pop_context, "cuCtxPopCurrent"},
  };
  is_complete = true;
  for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
    *wanted[i].call = driver_call(wanted[i].name);
    is_complete = is_complete && *wanted[i].call;
  }
}

gpuf_status gpufi_cuda_require_driver(gpuf_error *err) {
  pthread_once(&driver_once, find_driver);
  if (!is_complete) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "the CUDA driver lacks calls that drivers of CUDA 12 have, such as "
                      "cuMemGetAddressRange; update it");
  }
  return GPUF_OK;
}

gpuf_status gpufi_cuda_driver_check(CUresult code, const char *call, gpuf_error *err) {
  const char *name = "unknown error";
  if (code == CUDA_SUCCESS) {
    return GPUF_OK;
  }
  gpufi_cuda_driver.error_name(code, &name);
  return gpufi_fail(err, GPUF_ERR_DEVICE, code, "%s failed: %s", call, name);
}

/* --- Contexts -------------------------------------------------------------------- */

#define DEVICES_MAX 64

/* The contexts that were pushed. Each is retained once, and never given back: what the program has
 * on the device lies in it. */
static _Atomic(CUcontext) contexts[DEVICES_MAX];

static gpuf_status retain(int32_t device, CUcontext *context, gpuf_error *err) {
  CUdevice found;
  gpuf_status status =
      gpufi_cuda_driver_check(gpufi_cuda_driver.device(&found, device), "cuDeviceGet", err);
  if (status == GPUF_OK) {
    status = gpufi_cuda_driver_check(gpufi_cuda_driver.retain_context(context, found),
                                     "cuDevicePrimaryCtxRetain", err);
  }
  if (status == GPUF_OK && device < DEVICES_MAX) {
    atomic_store(&contexts[device], *context);
  }
  return status;
}

gpuf_status gpufi_cuda_push(int32_t device, gpuf_error *err) {
  gpuf_status status = gpufi_cuda_require_driver(err);
  if (status != GPUF_OK) {
    return status;
  }
  CUcontext context = device < DEVICES_MAX ? atomic_load(&contexts[device]) : NULL;
  if (context && gpufi_cuda_driver.push_context(context) == CUDA_SUCCESS) {
    return GPUF_OK;
  }
  status = retain(device, &context, err); /* the first time, or again after cudaDeviceReset */
  return status == GPUF_OK ? gpufi_cuda_driver_check(gpufi_cuda_driver.push_context(context),
                                                     "cuCtxPushCurrent", err)
                           : status;
}

bool gpufi_cuda_push_any(void) {
  CUcontext context = NULL;
  CUdevice device;
  unsigned int flags;
  if (gpufi_cuda_require_driver(NULL) != GPUF_OK ||
      gpufi_cuda_driver.context(&context) != CUDA_SUCCESS || context) {
    return false;
  }
  for (int32_t i = 0; gpufi_cuda_driver.device(&device, i) == CUDA_SUCCESS; i++) {
    int active = 0;
    if (gpufi_cuda_driver.context_state(device, &flags, &active) == CUDA_SUCCESS && active) {
      return gpufi_cuda_push(i, NULL) == GPUF_OK;
    }
  }
  return false;
}

void gpufi_cuda_pop(void) {
  CUcontext popped;
  gpufi_cuda_driver.pop_context(&popped); /* fails only where the driver ends with the process */
}
