/* Launching the kernels that pack and unpack, on the current device; each returns the launch's
 * error. The reference in C is strided.c, and cast.c where elements are converted. */
#ifndef GPUFI_BACKEND_CUDA_PACK_H
#define GPUFI_BACKEND_CUDA_PACK_H

#include <cuda_runtime_api.h>

#include "backend/packing.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As the backend's entries: chooses the units, and the kernel among those below. */
cudaError_t gpufi_cuda_pack(const gpufi_packing *packing, bool unpack, cudaStream_t stream);

/* Of the layout, `tiles` covers all that is packed. Every address of both sides is a multiple of
 * the element's size. */
cudaError_t gpufi_cuda_transpose(const gpufi_packing *packing, const gpufi_tiles *tiles,
                                 bool unpack, cudaStream_t stream);

/* With conversion. d_base may be unaligned. */
cudaError_t gpufi_cuda_pack_cast(const gpufi_packing *packing, bool unpack, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
