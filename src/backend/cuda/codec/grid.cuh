/* A batch's geometry as the kernels need it. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_GRID_CUH
#define GPUFI_BACKEND_CUDA_CODEC_GRID_CUH

#include <stdint.h>

#define _Static_assert static_assert
extern "C" {
#include "backend/codec.h"
#include "codec/format.h"
#include "codec/geometry.h"
#include "codec/levels.h"
#include "codec/planes.h"
}
#undef _Static_assert

#include "backend/cuda/divisor.cuh"
#include "backend/cuda/warp.cuh"

namespace gpufi {

constexpr int kGroup = GPUFI_GROUP_VALUES;
constexpr int kSubsetsMax = 1 << GPUFI_PREDICT_AXES;
constexpr uint32_t kRunValues = GPUFI_RUN_BLOCKS * GPUFI_BLOCK_VALUES;
/* Groups of a block that one lane holds: lane l has groups l, l + 32, l + 64 and l + 96, so that a
 * warp's loads are contiguous. */
constexpr int kLaneGroups = GPUFI_BLOCK_GROUPS / kWarp;

/* The number in the block of the lane's group j. */
__device__ inline uint32_t index_of(int j, int lane) {
  return static_cast<uint32_t>(j * kWarp + lane);
}

/* A chunk's shape without axes of length 1, innermost axis first. A subset of the first
 * `usable_count` of them, as a number with bit k for axis k, is what prediction goes along. */
struct chunk_grid {
  uint32_t value_count, block_count, run_count;
  uint32_t component_count;
  uint32_t row_values; /* along axis 0; the whole chunk if there is no axis */
  int32_t axis_count, usable_count;
  divisor row;
  divisor dims[GPUFI_CODEC_NDIM_MAX];
  uint32_t strides[GPUFI_CODEC_NDIM_MAX]; /* in values */
  uint32_t offsets[kSubsetsMax];          /* in values, to the neighbour along all of a subset */
  uint8_t axis_of[GPUFI_CODEC_NDIM_MAX];  /* number of the axis in the chunk's header */
  /* Of the header. */
  uint64_t raw_nbytes, raw_pitch_nbytes;
  uint32_t header_dims[GPUFI_CODEC_NDIM_MAX];
  uint8_t dtype, ndim, value_nbytes;
  bool is_float;
};

/* Of the chunks as they are, or, where planes fit their shape, as they are coded with planes. */
chunk_grid make_grid(const gpufi_chunks *chunks, bool has_planes = false);

/* Kernels that most batches have no chunks for are launched with at most as many thread blocks, a
 * few times what a large GPU holds, which go through the batch. */
constexpr uint32_t kRareThreadBlocks = 4096;

inline uint32_t rare_thread_blocks(uint64_t wanted) {
  return static_cast<uint32_t>(wanted < kRareThreadBlocks ? wanted : kRareThreadBlocks);
}

/* Kernels whose thread blocks take runs until there are none left are launched with at most as many
 * of them, about what a large GPU holds: most batches have no runs for them. */
constexpr uint32_t kTakingThreadBlocks = 1024;

inline uint32_t taking_thread_blocks(uint32_t run_count) {
  return run_count < kTakingThreadBlocks ? run_count : kTakingThreadBlocks;
}

/* What the header has as the `axes` of a subset. */
__device__ inline uint32_t header_axes(const chunk_grid &grid, uint32_t subset) {
  uint32_t axes = 0;
  for (int k = 0; k < grid.usable_count; k++) {
    axes |= (subset >> k & 1) << grid.axis_of[k];
  }
  return axes;
}

/* Call f.run<T, C>() with the unsigned type of the chunks' values and their number an element. */
template <typename Function> auto with_values(const chunk_grid &grid, const Function &f) {
  const bool is_complex = grid.component_count == 2;
  switch (grid.value_nbytes) {
  case 1:
    return f.template run<uint8_t, 1>();
  case 2:
    return f.template run<uint16_t, 1>();
  case 4:
    return is_complex ? f.template run<uint32_t, 2>() : f.template run<uint32_t, 1>();
  default:
    return is_complex ? f.template run<uint64_t, 2>() : f.template run<uint64_t, 1>();
  }
}

} // namespace gpufi

#endif
