/* Launching the codec's kernels, on the current device; each returns the launches' error. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_CODEC_H
#define GPUFI_BACKEND_CUDA_CODEC_CODEC_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "backend/codec.h"

/* Shared memory that a thread block takes: more than the smallest GPUs have. */
size_t gpufi_cuda_encode_shared_nbytes(const gpufi_chunks *chunks);
size_t gpufi_cuda_encode_scratch_nbytes(const gpufi_chunks *chunks);
cudaError_t gpufi_cuda_encode(const gpufi_chunks *chunks, const void *d_raw, void *d_encoded,
                              gpufi_chunk_place *d_places, void *d_scratch, cudaStream_t stream);

size_t gpufi_cuda_decode_shared_nbytes(const gpufi_chunks *chunks);
size_t gpufi_cuda_decode_scratch_nbytes(const gpufi_chunks *chunks);
cudaError_t gpufi_cuda_decode(const gpufi_chunks *chunks, const void *d_encoded,
                              size_t encoded_nbytes, const gpufi_chunk_place *d_places, void *d_raw,
                              uint32_t *d_verdicts, void *d_scratch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
