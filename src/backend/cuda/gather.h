/* Launching the kernel that does many small copies, on the current device. */
#ifndef GPUFI_BACKEND_CUDA_GATHER_H
#define GPUFI_BACKEND_CUDA_GATHER_H

#include <cuda_runtime_api.h>

#include "backend/gather.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Do every copy; returns the launch's error. */
cudaError_t gpufi_cuda_gather(const gpufi_flat_copy *copies, size_t count, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
