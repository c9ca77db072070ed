/* Launchers of the kernels that pack and unpack strided layouts; each returns the launch's error.
 */
#ifndef GPUFI_BACKEND_CUDA_PACK_H
#define GPUFI_BACKEND_CUDA_PACK_H

#include <cuda_runtime_api.h>

#include "backend/cast.h"
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

/* gpufi_cuda_pack or gpufi_cuda_unpack by tiles, for the part of the range that `tiles` covers. */
cudaError_t gpufi_cuda_transpose(const gpufi_strided *layout, const gpufi_tiles *tiles,
                                 void *d_base, void *d_packed, bool unpack, cudaStream_t stream);

/* As gpufi_strided_pack and then gpufi_cast_elements, or with `unpack` as gpufi_cast_elements and
 * then gpufi_strided_unpack. `d_base` may be unaligned. */
cudaError_t gpufi_cuda_move_cast(const gpufi_strided *layout, gpufi_cast cast, void *d_base,
                                 int64_t first, int64_t count, void *d_packed, bool unpack,
                                 cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
