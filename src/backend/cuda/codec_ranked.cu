/* Decoding ranked chunks: a thread block decodes a run, a warp a block of it. */
#include "backend/cuda/codec_ranked_unpack.cuh"
#include "backend/cuda/codec_run.cuh"

namespace {

using namespace gpufi;

struct ranked_shared {
  run_blocks blocks;
  rank_symbols tables;
  chunk_sum partial[kWarps];
};

/* The chunk's table, which is checked. All threads, which are then synchronized. */
__device__ void load_table(const rank_levels &ranks, const uint8_t *table, rank_symbols *to) {
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
  decode_state *const state = &job.states[chunk];
  const int lane = threadIdx.x % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const uint32_t *const runs =
      job.run_offsets + static_cast<size_t>(chunk) * (job.grid.run_count + 1) + at.run;
  load_table({job.place, state->levels}, state->chunk + GPUFI_HEADER_NBYTES, &shared->tables);
  load_descriptors(job.grid, *state, at.run, &shared->blocks);
  const uint32_t nbytes = shared->blocks.offsets[GPUFI_RUN_BLOCKS];
  T r[kLaneGroups][kGroup];
  clear_groups(r);
  bool good = nbytes <= kRunNbytes<T>, sparse = false;
  warp_mask mask;
  uint32_t list_count = 0;
  if (good) {
    good = load_run(*state, runs[0], runs[1], nbytes, run_bytes, sum);
    __syncthreads();
    const uint32_t past = static_cast<uint32_t>(warp) * GPUFI_BLOCK_VALUES;
    if (past < at.count) {
      const uint32_t left = at.count - past, word = shared->blocks.descriptors[warp];
      const bool unpacked = unpack_ranked<T>(
          shared->tables, reinterpret_cast<const uint32_t *>(run_bytes),
          shared->blocks.offsets[warp], word, left < GPUFI_BLOCK_VALUES ? left : GPUFI_BLOCK_VALUES,
          lane, shared->tables.seconds[warp], &mask, &list_count, r);
      good = __all_sync(kFull, good && unpacked);
      sparse = good && block_fields(word).form & GPUFI_FORM_SPARSE;
    }
  }
  if (__syncthreads_or(!good) != 0 && threadIdx.x == 0) {
    state->is_bad = 1;
  }
  if (sparse) { /* the run's bytes are read */
    T *const list = reinterpret_cast<T *>(run_bytes) + warp * GPUFI_BLOCK_VALUES;
    store_list(r, list_count, lane, list);
    expand_values(mask, list, lane, r);
  }
  store_block(at, warp, lane, {GPUFI_TRANSFORM_NONE, state->swap != 0}, r);
}

template <typename T>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 8 ? 1 : 2)
    ranked_kernel(const __grid_constant__ decode_job job) {
  __shared__ ranked_shared shared;
  const chunk_grid &grid = job.grid;
  const uint32_t chunk = blockIdx.x / grid.run_count;
  decode_state *const state = &job.states[chunk];
  if (!state->is_open || state->mode != GPUFI_MODE_RANKED) {
    return;
  }
  run_place<T> at = {};
  at.run = blockIdx.x - chunk * grid.run_count;
  at.first = at.run * kRunValues;
  at.count = grid.value_count - at.first < kRunValues ? grid.value_count - at.first : kRunValues;
  at.raw = reinterpret_cast<T *>(job.raw + chunk * grid.raw_pitch_nbytes);
  chunk_sum share = {0, 0};
  decode_run(job, chunk, at, dynamic_shared(), &shared, &share);
  const chunk_sum sum = block_sum<kWarps>(share, shared.partial);
  if (threadIdx.x == 0) {
    atomicAdd(&state->plain, static_cast<unsigned long long>(sum.plain));
    atomicAdd(&state->mixed, static_cast<unsigned long long>(sum.mixed));
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
               ? launch_kernel(ranked_kernel<T>, job.chunk_count * job.grid.run_count, kThreads,
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
