/* The corrections of a block whose values have a base; codec/number_impl.h is the reference. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_CORRECTIONS_CUH
#define GPUFI_BACKEND_CUDA_CODEC_CORRECTIONS_CUH

#include "backend/cuda/codec/base.cuh"
#include "backend/cuda/codec/encode.cuh"
#include "backend/cuda/codec/groups.cuh"

namespace gpufi {

/* Those of the block that starts at value `first`, of `count` values; zeros behind them. `list` is
 * shared memory for as many as a block has. All lanes. */
template <typename T>
__device__ __forceinline__ void load_corrections(const encode_job &job, uint32_t chunk,
                                                 uint32_t first, uint32_t count, int lane, T *list,
                                                 T corrections[kLaneGroups][kGroup]) {
  const gpufi_numbers numbers = job.states[chunk].numbers;
  const uint64_t at = chunk * job.grid.raw_pitch_nbytes;
  const T *const raw = reinterpret_cast<const T *>(job.raw + at) + first;
  const T *const based = reinterpret_cast<const T *>(job.work + at) + first;
  /* One after the other, by way of shared memory: the arithmetic is long. */
#pragma unroll 1
  for (uint32_t i = static_cast<uint32_t>(lane); i < GPUFI_BLOCK_VALUES; i += kWarp) {
    T correction = 0;
    if (i < count) {
      const T value = load_value(raw, i, {GPUFI_TRANSFORM_NONE, job.swap});
      correction = correction_of(numbers, value, base_bits(numbers, based[i]));
    }
    list[i] = correction;
  }
  __syncwarp();
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    load_aligned_group(list, index_of(j, lane) * kGroup, corrections[j]);
  }
  __syncwarp();
}

} // namespace gpufi

#endif
