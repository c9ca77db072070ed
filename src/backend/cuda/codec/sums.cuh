/* Undoing the prediction of a run of residuals that a thread block holds in its registers, where it
 * goes along rows that are not short: see decode.cu. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_SUMS_CUH
#define GPUFI_BACKEND_CUDA_CODEC_SUMS_CUH

#include "backend/cuda/codec/axes.cuh"

namespace gpufi {

constexpr uint32_t kRowValuesMin = 32;
constexpr uint32_t kRowsMax = kRunValues / kRowValuesMin + 1; /* that a run touches */
static_assert(kRowsMax - 1 <= kThreads, "a thread takes a row's start");

/* --- one run --- */

template <typename T, int C> struct run_shared {
  run_blocks blocks;
  chunk_sum partial[kWarps];
  T warp_sums[kWarps][C];
  /* Of each row that the run touches: the sum in front of it; the residual of its first value,
   * which becomes the value itself where the chain rule predicts it; the row that predicts it. */
  T fronts[kRowsMax + 1][C];
  T starts[kRowsMax + 1][C];
  int32_t parents[kRowsMax + 1];
  line_segments<T> segments;
};

/* Prefix sums over the run, components apart, from residuals: r becomes the sum of all residuals
 * of the run up to and with its own. Fills in fronts and starts on the way. All threads. */
template <typename T, int C>
__device__ __forceinline__ void sum_run(const chunk_grid &grid, const run_place<T> &at,
                                        run_shared<T, C> *shared, T r[kLaneGroups][kGroup]) {
  const int lane = threadIdx.x % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  T base[C] = {};
  T first[kLaneGroups][C]; /* residuals that a row may start with */
  uint32_t starts[kLaneGroups];
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t past =
        static_cast<uint32_t>(warp * GPUFI_BLOCK_VALUES + (j * kWarp + lane) * kGroup);
    const uint32_t in_rows = at.column + past, row = divide(in_rows, grid.row);
    const uint32_t column = in_rows - row * grid.row_values;
    starts[j] = column == 0 ? 0 : grid.row_values - column; /* >= 8: none in the group */
#pragma unroll
    for (int c = 0; c < C; c++) {
      first[j][c] = 0;
#pragma unroll
      for (int t = c; t < kGroup; t += C) {
        first[j][c] |= r[j][t] & mask_if<T>(static_cast<uint32_t>(t - c) == starts[j]);
      }
    }
#pragma unroll
    for (int t = C; t < kGroup; t++) {
      r[j][t] = static_cast<T>(r[j][t] + r[j][t - C]);
    }
#pragma unroll
    for (int c = 0; c < C; c++) {
      const T all = r[j][kGroup - C + c];
      const T ends = warp_scan(all, lane);
      const T front = static_cast<T>(base[c] + ends - all);
#pragma unroll
      for (int t = c; t < kGroup; t += C) {
        r[j][t] = static_cast<T>(r[j][t] + front);
      }
      base[c] = static_cast<T>(base[c] + __shfl_sync(kAllLanes, ends, kWarp - 1));
    }
  }
  if (lane == 0) {
#pragma unroll
    for (int c = 0; c < C; c++) {
      shared->warp_sums[warp][c] = base[c];
    }
  }
  __syncthreads();
#pragma unroll
  for (int c = 0; c < C; c++) {
    T front = 0;
#pragma unroll
    for (int w = 0; w < kWarps; w++) {
      front = static_cast<T>(front + (w < warp ? shared->warp_sums[w][c] : static_cast<T>(0)));
    }
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
#pragma unroll
      for (int t = c; t < kGroup; t += C) {
        r[j][t] = static_cast<T>(r[j][t] + front);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t past =
        static_cast<uint32_t>(warp * GPUFI_BLOCK_VALUES + (j * kWarp + lane) * kGroup);
    if (starts[j] < kGroup && past + starts[j] < at.count) {
      const uint32_t k = divide(at.column + past + starts[j], grid.row);
#pragma unroll
      for (int c = 0; c < C; c++) {
        T sum = 0;
#pragma unroll
        for (int t = c; t < kGroup; t += C) {
          sum |= r[j][t] & mask_if<T>(static_cast<uint32_t>(t - c) == starts[j]);
        }
        shared->fronts[k][c] = static_cast<T>(sum - first[j][c]);
        shared->starts[k][c] = first[j][c];
      }
    }
  }
}

/* The values at the starts of the rows that the chain rule predicts. Each knows the row that
 * predicts it; following these pointers twice as far each time takes log2(rows) steps. */
template <typename T, int C>
__device__ __forceinline__ void chain_rows(const done_values<T> &from, const run_place<T> &at,
                                           uint32_t row_count, run_shared<T, C> *shared) {
  const chunk_grid &grid = from.grid;
  const uint32_t begun = at.column != 0 ? 1 : 0; /* row 0 starts before the run */
  const uint32_t k = threadIdx.x + begun;
  const bool is_start = k < row_count && from.axes_before(at.row + k, 0) == 0;
  int32_t parent = -1;
  T before[C] = {};
  if (is_start) {
    const uint32_t distance = distance_before(grid, at.row + k, 1);
    const uint32_t first = at.first - at.column + k * grid.row_values; /* of the row */
    if (distance != 0 && first - distance >= at.first) {
      parent = static_cast<int32_t>(k - distance / grid.row_values);
    } else if (distance != 0) {
      from.wait_for(first - distance, first - distance + 1);
      __threadfence();
#pragma unroll
      for (int c = 0; c < C; c++) {
        before[c] = from.value(first - distance + static_cast<uint32_t>(c));
      }
    }
  }
  T start[C];
#pragma unroll
  for (int c = 0; c < C; c++) {
    start[c] = is_start ? static_cast<T>(shared->starts[k][c] + before[c]) : static_cast<T>(0);
    if (is_start) { /* what the sums along the row lack */
      shared->fronts[k][c] = static_cast<T>(shared->fronts[k][c] + shared->starts[k][c]);
      shared->starts[k][c] = start[c];
    }
  }
  if (is_start) {
    shared->parents[k] = parent;
  }
  while (__syncthreads_or(is_start && parent >= 0)) {
    int32_t further = -1;
    T sum[C] = {};
    if (is_start && parent >= 0) {
#pragma unroll
      for (int c = 0; c < C; c++) {
        sum[c] = shared->starts[parent][c];
      }
      further = shared->parents[parent];
    }
    __syncthreads();
    if (is_start && parent >= 0) {
#pragma unroll
      for (int c = 0; c < C; c++) {
        start[c] = static_cast<T>(start[c] + sum[c]);
        shared->starts[k][c] = start[c];
      }
      shared->parents[k] = further;
      parent = further;
    }
  }
  if (is_start) {
#pragma unroll
    for (int c = 0; c < C; c++) {
      shared->fronts[k][c] = static_cast<T>(shared->fronts[k][c] - start[c]);
    }
  }
  if (begun && threadIdx.x < C) { /* the first row goes on from the run before */
    const uint32_t i = at.first - C + threadIdx.x;
    shared->fronts[0][threadIdx.x] =
        static_cast<T>(0 - from.alternating(i, from.axes_before(at.row, 0)));
  }
  __syncthreads();
}

/* From sums over the run to sums over each row. */
template <typename T, int C>
__device__ __forceinline__ void subtract_fronts(const chunk_grid &grid, const run_place<T> &at,
                                                const run_shared<T, C> &shared,
                                                T r[kLaneGroups][kGroup]) {
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t past = threadIdx.x / kWarp * GPUFI_BLOCK_VALUES +
                          (static_cast<uint32_t>(j * kWarp) + threadIdx.x % kWarp) * kGroup;
    const uint32_t in_rows = at.column + past, k = divide(in_rows, grid.row);
    const uint32_t left = (k + 1) * grid.row_values - in_rows; /* in the first of its two rows */
    const uint32_t next = left < kGroup ? k + 1 : k;
#pragma unroll
    for (int c = 0; c < C; c++) {
      const T front = shared.fronts[k][c], front_next = shared.fronts[next][c];
#pragma unroll
      for (uint32_t t = static_cast<uint32_t>(c); t < kGroup; t += C) {
        r[j][t] = static_cast<T>(r[j][t] - (t < left ? front : front_next));
      }
    }
  }
}

/* Sums along the rows, which start where the chain rule says. All threads. */
template <typename T, int C>
__device__ __forceinline__ void sum_rows(const done_values<T> &from, const run_place<T> &at,
                                         run_shared<T, C> *shared, T r[kLaneGroups][kGroup]) {
  sum_run<T, C>(from.grid, at, shared, r);
  if (at.column != 0) {
    from.wait_for_all(at.first - C, C, from.axes_before(at.row, 0));
  }
  __syncthreads();
  chain_rows<T, C>(from, at, divide(at.column + at.count - 1, from.grid.row) + 1, shared);
  subtract_fronts<T, C>(from.grid, at, *shared, r);
}

/* Undo the prediction of the run's residuals; `values` is shared memory for as many. All threads.
 */
template <typename T, int C>
__device__ __forceinline__ void undo_prediction(const done_values<T> &from, const run_place<T> &at,
                                                run_shared<T, C> *shared, T *values,
                                                T r[kLaneGroups][kGroup]) {
  const chunk_grid &grid = from.grid;
  const bool by_rows = (from.subset & 1) && grid.row_values >= kRowValuesMin;
  if (by_rows) {
    sum_rows<T, C>(from, at, shared, r);
    if (from.subset == 1) {
      return;
    }
  }
  const uint32_t first = threadIdx.x / kWarp * GPUFI_BLOCK_VALUES + threadIdx.x % kWarp * kGroup;
  __syncthreads(); /* a list that was spread out is read */
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    store_group(values, first + static_cast<uint32_t>(j * kWarp) * kGroup, r[j]);
  }
  __syncthreads();
  if (!by_rows) {
    sum_faces(from, at, values, &shared->segments);
  }
  sum_axes(from, at, by_rows ? from.subset & ~1u : from.subset, values, &shared->segments);
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    load_aligned_group(values, first + static_cast<uint32_t>(j * kWarp) * kGroup, r[j]);
  }
}

} // namespace gpufi

#endif
