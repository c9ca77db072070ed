/* Device memory of the CUDA backend. Thread-safety: any thread. */
#ifndef GPUFI_BACKEND_CUDA_MEMORY_H
#define GPUFI_BACKEND_CUDA_MEMORY_H

#include <gpufetch/gpufetch.h>

/* As the backend's entries. */
gpuf_status gpufi_cuda_alloc(int32_t device, size_t nbytes, void **d_ptr, gpuf_error *err);
gpuf_status gpufi_cuda_free(int32_t device, void *d_ptr, gpuf_error *err);
void gpufi_cuda_memory_trim(void);
bool gpufi_cuda_is_pinned(int32_t device, const void *ptr, size_t nbytes);

#endif
