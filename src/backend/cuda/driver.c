#include "backend/cuda/driver.h"

#include <cuda_runtime_api.h>
#include <pthread.h>

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

static void find_driver(void) {
  gpufi_cuda_driver.address_range =
      (gpufi_get_address_range)(uintptr_t)driver_call("cuMemGetAddressRange");
  gpufi_cuda_driver.attributes =
      (gpufi_get_attributes)(uintptr_t)driver_call("cuPointerGetAttributes");
  gpufi_cuda_driver.error_name = (gpufi_get_error_name)(uintptr_t)driver_call("cuGetErrorName");
}

gpuf_status gpufi_cuda_require_driver(gpuf_error *err) {
  pthread_once(&driver_once, find_driver);
  if (!gpufi_cuda_driver.address_range || !gpufi_cuda_driver.attributes ||
      !gpufi_cuda_driver.error_name) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "the CUDA driver offers no cuMemGetAddressRange or cuPointerGetAttributes; "
                      "update the driver, or fetch the array and pass it through host memory");
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
