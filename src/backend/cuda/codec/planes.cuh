/* Chunks with a short last axis, component by component: codec/planes.h says how they are coded. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_PLANES_CUH
#define GPUFI_BACKEND_CUDA_CODEC_PLANES_CUH

#include <cuda_runtime_api.h>

#include "backend/cuda/codec/grid.cuh"

namespace gpufi {

/* A chunk is rows of `length` places, each of which has an element of every plane. */
struct planes_layout {
  divisor planes, length, row; /* the last of them: elements of a row */
  uint32_t row_count;
  uint32_t tile; /* places that a thread block takes at once */
  uint32_t element_nbytes;
  uint32_t chunk_count;
  uint64_t pitch_nbytes;
};

/* Of chunks that gpufi_planes_fit() is true of. */
planes_layout make_planes_layout(const gpufi_chunks *chunks);

/* In planes.cu: from raw chunks to coded ones, of all chunks. */
cudaError_t split_planes(const planes_layout &layout, const uint8_t *raw, uint8_t *coded,
                         cudaStream_t stream);

} // namespace gpufi

#endif
