/* Launching reductions; the host's reference is backend/host/reduce.c. */
#ifndef GPUFI_BACKEND_CUDA_REDUCE_REDUCE_H
#define GPUFI_BACKEND_CUDA_REDUCE_REDUCE_H

#include <cuda_runtime_api.h>

#include "backend/reduce.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As the backend's entries, on the current device; returns the launches' error. How the work is
 * split depends on the job alone, so results are the same on every GPU. */
size_t gpufi_cuda_reduce_scratch_nbytes(const gpufi_reduce *job, const void *d_base);
cudaError_t gpufi_cuda_reduce(const gpufi_reduce *job, const void *d_base, void *d_result,
                              void *d_scratch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
