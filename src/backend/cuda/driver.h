/* The few calls of the CUDA driver's own API that the runtime has no equal of: where an allocation
 * begins and ends, and contexts, which are what a device's work lies in. Found at run time, so that
 * the library loads without a driver. Thread-safety: any thread. */
#ifndef GPUFI_BACKEND_CUDA_DRIVER_H
#define GPUFI_BACKEND_CUDA_DRIVER_H

#include <cuda.h>
#include <gpufetch/gpufetch.h>

typedef CUresult (*gpufi_get_address_range)(CUdeviceptr *base, size_t *nbytes, CUdeviceptr ptr);
typedef CUresult (*gpufi_get_attributes)(unsigned int count, CUpointer_attribute *attributes,
                                         void **data, CUdeviceptr ptr);
typedef CUresult (*gpufi_get_error_name)(CUresult code, const char **name);
typedef CUresult (*gpufi_get_device)(CUdevice *device, int index);
typedef CUresult (*gpufi_retain_context)(CUcontext *context, CUdevice device);
typedef CUresult (*gpufi_get_context_state)(CUdevice device, unsigned int *flags, int *active);
typedef CUresult (*gpufi_get_context)(CUcontext *context);
typedef CUresult (*gpufi_push_context)(CUcontext context);
typedef CUresult (*gpufi_pop_context)(CUcontext *context);

/* The first two need a context in the calling thread (enter_with_context). */
typedef struct gpufi_cuda_driver_calls {
  gpufi_get_address_range address_range;
  gpufi_get_attributes attributes;
  gpufi_get_error_name error_name;
  gpufi_get_device device;
  gpufi_retain_context retain_context;
  gpufi_get_context_state context_state;
  gpufi_get_context context;
  gpufi_push_context push_context;
  gpufi_pop_context pop_context;
} gpufi_cuda_driver_calls;

/* Filled by the first gpufi_cuda_require_driver, which fails if a call is missing. */
extern gpufi_cuda_driver_calls gpufi_cuda_driver;
gpuf_status gpufi_cuda_require_driver(gpuf_error *err);
gpuf_status gpufi_cuda_driver_check(CUresult code, const char *call, gpuf_error *err);

/* Make the context of a device that the runtime uses the calling thread's, over the one that it
 * has, if any; gpufi_cuda_pop puts that back. The device that cudaSetDevice has set stays as it is.
 */
gpuf_status gpufi_cuda_push(int32_t device, gpuf_error *err);
/* As gpufi_cuda_push with any device that has a context already, if the thread has none. False if
 * nothing was pushed. */
bool gpufi_cuda_push_any(void);
void gpufi_cuda_pop(void);

#endif
