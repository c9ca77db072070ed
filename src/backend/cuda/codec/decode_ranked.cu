/* Decoding ranked chunks: a thread block decodes a run, each warp of it a block. */
#include "backend/cuda/codec/ranked_unpack.cuh"
#include "backend/cuda/codec/run.cuh"
#include "backend/cuda/launch.cuh"

namespace {

using namespace gpufi;

struct ranked_shared {
  run_blocks blocks;
  rank_symbols tables;
  chunk_sum partial[kWarps];
};

/* The chunk's table, which is checked. All threads, which are then synchronized. */
__device__ void load_table(const rank_codes &ranks, const uint8_t *table, rank_symbols *to) {
  static_assert(GPUFI_TREE_LEAVES_MAX <= kThreads, "a symbol a thread");
  const uint32_t i = threadIdx.x;
  if (i < ranks.count()) {
    to->symbols[i] =
        ranks.place.nbytes() == 2 ? reinterpret_cast<const uint16_t *>(table)[i] : table[i];
  }
  if (i == 0) {
    to->ranks = ranks;
  }
  __syncthreads();
}

/* All threads. */
template <typename T>
__device__ __forceinline__ void decode_run(const decode_job &job, uint32_t chunk,
                                           const run_place<T> &at, uint4 *run_bytes,
                                           ranked_shared *shared, chunk_sum *sum) {
  const decode_state *const state = &job.states[chunk];
  const int lane = threadIdx.x % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  load_table(state->ranks, state->chunk + GPUFI_HEADER_NBYTES, &shared->tables);
  T r[kLaneGroups][kGroup];
  unpack_run(
      job, chunk, at, 0, run_bytes, &shared->blocks, sum, r,
      [&](uint32_t block_at, uint32_t word, uint32_t count, warp_mask *mask, uint32_t *list_count) {
        return unpack_ranked<T>(shared->tables, reinterpret_cast<const uint32_t *>(run_bytes),
                                block_at, word, count, lane, shared->tables.seconds[warp], mask,
                                list_count, r);
      });
  store_block(at, warp, lane, {GPUFI_TRANSFORM_NONE, state->swap != 0}, r);
}

template <typename T>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 8 ? 1 : 2)
    ranked_kernel(const __grid_constant__ decode_job job) {
  begin_early();
  __shared__ ranked_shared shared;
  const chunk_grid &grid = job.grid;
  const uint32_t run_count = job.counts->ranked != 0 ? job.chunk_count * grid.run_count : 0;
  for (uint32_t index = blockIdx.x; index < run_count; index += gridDim.x) {
    const uint32_t chunk = index / grid.run_count;
    decode_state *const state = &job.states[chunk];
    if (!state->is_of(job.has_planes) || state->mode != GPUFI_MODE_RANKED) {
      continue;
    }
    run_place<T> at = {};
    at.run = index - chunk * grid.run_count;
    at.first = at.run * kRunValues;
    at.count = grid.value_count - at.first < kRunValues ? grid.value_count - at.first : kRunValues;
    at.raw = reinterpret_cast<T *>(job.raw + chunk * grid.raw_pitch_nbytes);
    chunk_sum share = {0, 0};
    decode_run(job, chunk, at, dynamic_shared(), &shared, &share);
    add_to_sum(state, share, shared.partial);
    __syncthreads(); /* what is shared is for the next run */
  }
}

struct launch {
  const decode_job &job;
  cudaStream_t stream;

  template <typename T, int C> cudaError_t run() const {
    constexpr int kShared = static_cast<int>(kSharedNbytes<T>);
    const cudaError_t code = cudaFuncSetAttribute(
        ranked_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
    return code == cudaSuccess
               ? launch_early(ranked_kernel<T>,
                              rare_thread_blocks(job.chunk_count * job.grid.run_count), kThreads,
                              kShared, stream, job)
               : code;
  }
};

struct shared_nbytes {
  template <typename T, int C> size_t run() const {
    return sizeof(ranked_shared) + kSharedNbytes<T>;
  }
};

} // namespace

namespace gpufi {

cudaError_t decode_ranked_chunks(const decode_job &job, cudaStream_t stream) {
  return with_values(job.grid, launch{job, stream});
}

size_t ranked_shared_nbytes(const chunk_grid &grid) {
  return with_values(grid, shared_nbytes{});
}

} // namespace gpufi
