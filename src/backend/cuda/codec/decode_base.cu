/* Decoding chunks whose values have a base: what was predicted is in the output, and becomes values
 * in place, with the corrections, if there are any. A thread block takes a run, each warp of it a
 * block. */
#include "backend/cuda/codec/base.cuh"
#include "backend/cuda/codec/run.cuh"
#include "backend/cuda/launch.cuh"

namespace {

using namespace gpufi;

struct base_shared {
  run_blocks blocks;
  chunk_sum partial[kWarps];
};

/* The group of values from number `index` on, of which there are `count`. */
template <typename T>
__device__ __forceinline__ void restore_bases(const decode_state &state, T *raw, uint32_t index,
                                              uint32_t count, const T corrections[kGroup]) {
  const gpufi_numbers &numbers = state.numbers;
  T v[kGroup];
  if (count >= kGroup) {
    load_aligned_group(raw, index, v);
  } else {
#pragma unroll
    for (uint32_t t = 0; t < kGroup; t++) {
      v[t] = t < count ? raw[index + t] : static_cast<T>(0);
    }
  }
#pragma unroll
  for (int t = 0; t < kGroup; t++) {
    v[t] = base_bits(numbers, v[t]);
    v[t] = state.stream_count > 1 ? corrected(numbers, v[t], corrections[t]) : v[t];
    v[t] = state.base_swap ? swap_bytes(v[t]) : v[t];
  }
  if (count >= kGroup) {
    store_group(raw, index, v);
  } else {
#pragma unroll
    for (uint32_t t = 0; t < kGroup; t++) {
      if (t < count) {
        raw[index + t] = v[t];
      }
    }
  }
}

/* Run `index` of the batch. All threads. */
template <typename T>
__device__ __forceinline__ void restore_base_run(const decode_job &job, uint32_t index,
                                                 uint4 *run_bytes, base_shared *shared) {
  const chunk_grid &grid = job.grid;
  const uint32_t chunk = index / grid.run_count;
  decode_state *const state = &job.states[chunk];
  if (!state->is_of(job.has_planes) || !state->is_based) {
    return;
  }
  const int lane = threadIdx.x % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  run_place<T> at = {};
  at.run = index - chunk * grid.run_count;
  at.first = at.run * kRunValues;
  at.count = grid.value_count - at.first < kRunValues ? grid.value_count - at.first : kRunValues;
  at.raw = reinterpret_cast<T *>(job.raw + chunk * grid.raw_pitch_nbytes);
  T r[kLaneGroups][kGroup];
  clear_groups(r);
  if (state->stream_count > 1) {
    chunk_sum share = {0, 0};
    unpack_run(job, chunk, at, 1, run_bytes, &shared->blocks, &share, r,
               [&](uint32_t block_at, uint32_t word, uint32_t count, warp_mask *mask,
                   uint32_t *list_count) {
                 return unpack_block<T>(reinterpret_cast<const uint32_t *>(run_bytes), block_at,
                                        word, count, lane, mask, list_count, r);
               });
    add_to_sum(state, share, shared->partial);
  }
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t past =
        static_cast<uint32_t>(warp) * GPUFI_BLOCK_VALUES + index_of(j, lane) * kGroup;
    if (past < at.count) {
      restore_bases(*state, at.raw, at.first + past, at.count - past, r[j]);
    }
  }
  __syncthreads(); /* what is shared is for the next run */
}

template <typename T>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 8 ? 1 : 2)
    base_kernel(const __grid_constant__ decode_job job) {
  begin_early();
  __shared__ base_shared shared;
  const uint32_t run_count = job.counts->based != 0 ? job.chunk_count * job.grid.run_count : 0;
  for (uint32_t index = blockIdx.x; index < run_count; index += gridDim.x) {
    restore_base_run<T>(job, index, dynamic_shared(), &shared);
  }
}

struct launch {
  const decode_job &job;
  cudaStream_t stream;

  template <typename T, int C> cudaError_t run() const {
    constexpr int kShared = static_cast<int>(kSharedNbytes<T>);
    const cudaError_t code =
        cudaFuncSetAttribute(base_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
    return code == cudaSuccess
               ? launch_early(base_kernel<T>,
                              rare_thread_blocks(job.chunk_count * job.grid.run_count), kThreads,
                              kShared, stream, job)
               : code;
  }
};

} // namespace

namespace gpufi {

cudaError_t decode_bases(const decode_job &job, cudaStream_t stream) {
  return with_values(job.grid, launch{job, stream});
}

} // namespace gpufi
