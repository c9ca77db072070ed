/* A run from residuals to values: see decode.cu. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_RESTORE_RUN_CUH
#define GPUFI_BACKEND_CUDA_CODEC_RESTORE_RUN_CUH

#include "backend/cuda/codec/run.cuh"
#include "backend/cuda/codec/sums.cuh"
#include "backend/cuda/relaxed.cuh"

namespace gpufi {

constexpr uint32_t kChunksAtOnce = 256; /* that take turns in the order of thread blocks */

/* Thread blocks that share a multiprocessor: bounds the registers. */
template <typename T> constexpr int kThreadBlocksPerSm = sizeof(T) == 8 ? 2 : 3;

/* Runs of `at_once` chunks in turns: the first run of each, the second, ... Run number `index` in
 * this order is run `*run` of the chunk that is returned. */
__device__ inline uint32_t chunk_in_turn(const decode_job &job, uint32_t index, uint32_t at_once,
                                         uint32_t *run) {
  const uint32_t turn_nruns = at_once * job.grid.run_count, turn = index / turn_nruns;
  const uint32_t first_chunk = turn * at_once, in_turn = index - turn * turn_nruns;
  const uint32_t left = job.chunk_count - first_chunk;
  const uint32_t width = left < at_once ? left : at_once;
  *run = in_turn / width;
  return first_chunk + in_turn % width;
}

/* Set *next, which is shared, to the run of the batch that the thread block takes next, of
 * launches for `count` chunks; false if there is none left. All threads, which are then
 * synchronized. */
__device__ inline bool take_next(const decode_job &job, uint32_t *taken, uint32_t count,
                                 uint32_t *next) {
  if (count == 0) {
    return false;
  }
  __syncthreads(); /* the run before is done with what is shared */
  if (threadIdx.x == 0) {
    *next = atomicAdd(taken, 1u);
  }
  __syncthreads();
  return *next < job.chunk_count * job.grid.run_count;
}

/* Run `run` of a chunk. */
template <typename T>
__device__ __forceinline__ run_place<T> place_in_chunk(const decode_job &job, uint32_t chunk,
                                                       uint32_t run) {
  const chunk_grid &grid = job.grid;
  run_place<T> at;
  at.run = run;
  at.first = at.run * kRunValues;
  at.count = grid.value_count - at.first < kRunValues ? grid.value_count - at.first : kRunValues;
  at.row = divide(at.first, grid.row);
  at.column = at.first - at.row * grid.row_values;
  at.raw = reinterpret_cast<T *>(job.raw + chunk * grid.raw_pitch_nbytes);
  return at;
}

/* Residuals to values, which are stored: of a chunk in mode W8 or matches. `run_bytes` is shared
 * memory for as many values. All threads. */
template <typename T, int C>
__device__ __forceinline__ void restore_run(const decode_job &job, uint32_t chunk,
                                            const run_place<T> &at, uint4 *run_bytes,
                                            run_shared<T, C> *shared, T r[kLaneGroups][kGroup]) {
  const chunk_grid &grid = job.grid;
  decode_state *const state = &job.states[chunk];
  const int lane = threadIdx.x % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const T offset = static_cast<T>(state->offset);
  const bool has_first = at.first == 0 && threadIdx.x == 0 && state->subset != 0;
  const T first = r[0][0], second = r[0][C - 1];
  if (offset != 0) {
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        r[j][t] = static_cast<T>(r[j][t] + offset);
      }
    }
  }
  if (has_first) { /* the seed stands in for the first element's residual */
    if (first != 0 || second != 0) {
      state->is_bad = 1;
    }
#pragma unroll
    for (int c = 0; c < C; c++) {
      r[0][c] = static_cast<T>(state->seed[c * kBits<T> / 64] >> (c * kBits<T> % 64));
    }
  }
  const loading how = {state->transform, state->swap != 0};
  uint32_t *const run_done = job.run_done + static_cast<size_t>(chunk) * grid.run_count;
  if (state->subset != 0) {
    const done_values<T> from = {{grid, at.raw, how, state->subset}, run_done};
    undo_prediction<T, C>(from, at, shared, reinterpret_cast<T *>(run_bytes), r);
  }
  store_block(at, warp, lane, how, r);
  if (state->subset != 0) {
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      store_relaxed(run_done + at.run, 1u);
    }
  }
}

} // namespace gpufi

#endif
