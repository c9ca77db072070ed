/* Launchers of the CUDA kernels; each returns the launch's error. */
#ifndef GPUFI_BACKEND_CUDA_KERNELS_H
#define GPUFI_BACKEND_CUDA_KERNELS_H

#include <cuda_runtime_api.h>

#include "backend/pieces.h"
#include "backend/strided.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As gpufi_strided_pack and gpufi_strided_unpack, on the current device. Every address that the
 * layout reaches is a multiple of its element_nbytes, and so is the packed side. */
cudaError_t gpufi_cuda_pack(const gpufi_strided *layout, const void *d_base, int64_t first,
                            int64_t count, void *d_packed, cudaStream_t stream);
cudaError_t gpufi_cuda_unpack(const gpufi_strided *layout, void *d_base, int64_t first,
                              int64_t count, const void *d_packed, cudaStream_t stream);

/* Copy every piece, on the current device. */
cudaError_t gpufi_cuda_gather(const gpufi_piece *pieces, size_t count, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
