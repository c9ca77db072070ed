/* Launching the kernels that encode chunks of filter 32008, on the current device. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_BITSHUFFLE_H
#define GPUFI_BACKEND_CUDA_CODEC_BITSHUFFLE_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "backend/codec.h"

size_t gpufi_cuda_bitshuffle_scratch_nbytes(const gpufi_chunks *chunks);
/* As gpufi_cuda_encode; no chunk is left to the CPU. */
cudaError_t gpufi_cuda_bitshuffle(const gpufi_chunks *chunks, const void *d_raw, void *d_encoded,
                                  gpufi_chunk_place *d_places, void *d_scratch,
                                  cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
