/* The few calls of the CUDA driver's own API that the runtime has no equal of: where an allocation
 * begins and ends. Found at run time, so that the library loads without a driver. They need a
 * context in the calling thread: cudaSetDevice makes one. */
#ifndef GPUFI_BACKEND_CUDA_DRIVER_H
#define GPUFI_BACKEND_CUDA_DRIVER_H

#include <cuda.h>
#include <gpufetch/gpufetch.h>

typedef CUresult (*gpufi_get_address_range)(CUdeviceptr *base, size_t *nbytes, CUdeviceptr ptr);
typedef CUresult (*gpufi_get_attributes)(unsigned int count, CUpointer_attribute *attributes,
                                         void **data, CUdeviceptr ptr);
typedef CUresult (*gpufi_get_error_name)(CUresult code, const char **name);

typedef struct gpufi_cuda_driver_calls {
  gpufi_get_address_range address_range;
  gpufi_get_attributes attributes;
  gpufi_get_error_name error_name;
} gpufi_cuda_driver_calls;

/* Filled by the first gpufi_cuda_require_driver, which fails if a call is missing. */
extern gpufi_cuda_driver_calls gpufi_cuda_driver;
gpuf_status gpufi_cuda_require_driver(gpuf_error *err);
gpuf_status gpufi_cuda_driver_check(CUresult code, const char *call, gpuf_error *err);

#endif
