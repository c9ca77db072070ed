/* Undoing the prediction of a run of residuals that a thread block holds in its registers: see
 * codec_decode.cu. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_SUMS_CUH
#define GPUFI_BACKEND_CUDA_CODEC_SUMS_CUH

#include "backend/cuda/codec_run.cuh"

namespace gpufi {

constexpr uint32_t kRowsMax = kRunValues / kRowValuesMin + 1; /* that a run touches */
static_assert(kRowsMax - 1 <= kThreads, "a thread takes a row's start");

/* --- values that other thread blocks wrote: not through the first cache --------------------- */

template <typename T> __device__ inline T load_done(const T *p) {
  return __ldcg(p);
}

/* The chunk's output as the source of neighbours. */
template <typename T> struct done_values {
  const chunk_grid &grid;
  const T *raw;
  loading how;
  uint32_t subset, outer;

  __device__ T value(uint32_t i) const {
    T v = load_done(raw + i);
    transform_values<T, 1>(&v, how);
    return v;
  }

  __device__ uint32_t rows_before(uint32_t row) const {
    uint32_t inside = 0;
    for (int k = 1; outer >> k != 0; k++) {
      const uint32_t rest = divide(row, grid.dims[k]);
      inside |= (row != rest * grid.dims[k].d ? 1u : 0u) << k;
      row = rest;
    }
    return inside & outer;
  }

  /* From the start of a row to that of the row before it in the chain rule; 0 for the first. */
  __device__ uint32_t distance_before(uint32_t row) const {
    for (int k = 1; k < grid.axis_count; k++) {
      const uint32_t rest = divide(row, grid.dims[k]);
      if (row != rest * grid.dims[k].d) {
        return grid.strides[k];
      }
      row = rest;
    }
    return 0;
  }

  __device__ T alternating(uint32_t i, uint32_t inside) const {
    T sum = value(i);
    for (uint32_t s = inside; s != 0; s = (s - 1) & inside) {
      const T v = value(i - grid.offsets[s]);
      sum = static_cast<T>(__popc(s) & 1 ? sum - v : sum + v);
    }
    return sum;
  }
};

/* --- one run -----------------------------------------------------------------------------------
 */

template <typename T, int C> struct run_shared {
  run_blocks blocks;
  chunk_sum partial[kWarps];
  T warp_sums[kWarps][C];
  /* Of each row that the run touches: the sum in front of it; the residual of its first value,
   * which becomes the value itself where the chain rule predicts it; the row that predicts it. */
  T fronts[kRowsMax + 1][C];
  T starts[kRowsMax + 1][C];
  int32_t parents[kRowsMax + 1];
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
      base[c] = static_cast<T>(base[c] + __shfl_sync(kFull, ends, kWarp - 1));
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

/* Wait until the runs that hold the values [begin, end) of the chunk are done. One thread. */
__device__ inline void wait_for(const uint32_t *done, uint32_t begin, uint32_t end) {
  for (uint32_t run = begin / kRunValues; run <= (end - 1) / kRunValues; run++) {
    while (static_cast<const volatile uint32_t *>(done)[run] == 0) {
    }
  }
}

/* Wait for what the run needs of earlier ones: along each subset of the other axes; the row that it
 * begins in the middle of; what predicts the starts of its rows. */
template <typename T>
__device__ void wait_for_neighbours(const done_values<T> &from, const run_place<T> &at,
                                    const uint32_t *done) {
  const chunk_grid &grid = from.grid;
  const uint32_t end = at.first + at.count;
  if (threadIdx.x >= kWarp || at.run == 0) {
    return;
  }
  const uint32_t s = threadIdx.x; /* a lane a subset */
  if (s < kSubsetsMax && s != 0 && (s & ~from.outer) == 0) {
    const uint32_t offset = grid.offsets[s];
    const uint32_t last = end - 1 < at.first + offset ? end - 1 : at.first + offset - 1;
    /* The rows whose neighbours are before the run: none of them may have any. */
    const uint32_t row_end = divide(last, grid.row);
    bool needed = row_end - at.row > 1;
    needed =
        needed || (s & ~from.rows_before(at.row)) == 0 || (s & ~from.rows_before(row_end)) == 0;
    if (needed && last >= offset) {
      wait_for(done, at.first > offset ? at.first - offset : 0, last - offset + 1);
      if (at.column != 0) { /* of the row's front */
        const uint32_t begin = at.first > offset + 2 ? at.first - offset - 2 : 0;
        wait_for(done, begin, begin + 1);
      }
    }
  }
  if (s == 0 && at.column != 0) {
    wait_for(done, at.first - 1, at.first);
  }
}

/* The values at the starts of the rows that the chain rule predicts. Each knows the row that
 * predicts it; following these pointers twice as far each time takes log2(rows) steps. */
template <typename T, int C>
__device__ __forceinline__ void chain_rows(const done_values<T> &from, const run_place<T> &at,
                                           uint32_t row_count, const uint32_t *done,
                                           run_shared<T, C> *shared) {
  const chunk_grid &grid = from.grid;
  const uint32_t begun = at.column != 0 ? 1 : 0; /* row 0 starts before the run */
  const uint32_t k = threadIdx.x + begun;
  const bool is_start = k < row_count && from.rows_before(at.row + k) == 0;
  int32_t parent = -1;
  T before[C] = {};
  if (is_start) {
    const uint32_t distance = from.distance_before(at.row + k);
    const uint32_t first = at.first - at.column + k * grid.row_values; /* of the row */
    if (distance != 0 && first - distance >= at.first) {
      parent = static_cast<int32_t>(k - distance / grid.row_values);
    } else if (distance != 0) {
      wait_for(done, first - distance, first - distance + 1);
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
        static_cast<T>(0 - from.alternating(i, from.rows_before(at.row)));
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

/* Add what the values before the run contribute along the axes other than 0, by docs/format.md's
 * Lorenzo rule. All threads. */
template <typename T>
__device__ void add_values_before(const done_values<T> &from, const run_place<T> &at, T *values) {
  constexpr uint32_t kAhead = 4; /* loads in flight */
  const chunk_grid &grid = from.grid;
  for (uint32_t s = from.outer; s != 0; s = (s - 1) & from.outer) {
    const uint32_t offset = grid.offsets[s], end = at.count < offset ? at.count : offset;
    const bool plus = __popc(s) & 1;
    for (uint32_t first = threadIdx.x; first < end; first += kAhead * kThreads) {
      T v[kAhead];
#pragma unroll
      for (uint32_t k = 0; k < kAhead; k++) {
        const uint32_t past = first + k * kThreads;
        const bool there =
            past < end && (s & ~from.rows_before(at.row + divide(at.column + past, grid.row))) == 0;
        v[k] = there ? load_done(from.raw + (at.first + past - offset)) : static_cast<T>(0);
      }
      transform_values<T, kAhead>(v, from.how); /* maps 0 to 0 */
#pragma unroll
      for (uint32_t k = 0; k < kAhead; k++) {
        const uint32_t past = first + k * kThreads;
        if (past < end) {
          values[past] = static_cast<T>(plus ? values[past] + v[k] : values[past] - v[k]);
        }
      }
    }
  }
  __syncthreads();
}

/* Sums along axis `axis` within the run's values in shared memory. Where there are fewer columns
 * than threads, several threads share one, the later ones starting from the sums of the earlier. */
template <typename T>
__device__ void sum_columns(const chunk_grid &grid, const run_place<T> &at, int axis, T *values,
                            T *part_sums) {
  const uint32_t stride = grid.strides[axis], length = grid.dims[axis].d;
  const uint32_t step_count = (at.count + stride - 1) / stride;
  const uint32_t parts = stride < kThreads ? kThreads / stride : 1;
  const uint32_t part_steps = (step_count + parts - 1) / parts;
  const uint32_t part = parts > 1 ? threadIdx.x / stride : 0;
  uint32_t column = parts > 1 ? threadIdx.x - part * stride : threadIdx.x;
  const uint32_t begin = part * part_steps;
  const uint32_t end = begin + part_steps < step_count ? begin + part_steps : step_count;
  T carry = 0;
  if (parts > 1) {
    T sum = 0;
    bool resets = false;
    uint32_t index = (at.first + begin * stride + column) / stride % length;
    for (uint32_t k = begin; part < parts && k < end; k++) {
      const uint32_t i = k * stride + column;
      const T v = i < at.count ? values[i] : static_cast<T>(0);
      resets = resets || index == 0;
      sum = index == 0 ? v : static_cast<T>(sum + v);
      index = index + 1 == length ? 0 : index + 1;
    }
    part_sums[threadIdx.x] = sum;
    reinterpret_cast<uint8_t *>(part_sums + kThreads)[threadIdx.x] = resets;
    __syncthreads();
    for (uint32_t p = part; part < parts && p > 0; p--) {
      const uint32_t at_part = (p - 1) * stride + column;
      carry = static_cast<T>(carry + part_sums[at_part]);
      if (reinterpret_cast<const uint8_t *>(part_sums + kThreads)[at_part]) {
        break;
      }
    }
  }
  for (; part < parts && column < stride; column += kThreads) {
    T sum = carry;
    uint32_t index = (at.first + begin * stride + column) / stride % length;
    for (uint32_t k = begin; k < end; k++) {
      const uint32_t i = k * stride + column;
      if (i >= at.count) {
        break;
      }
      sum = index == 0 ? values[i] : static_cast<T>(sum + values[i]);
      values[i] = sum;
      index = index + 1 == length ? 0 : index + 1;
    }
    if (parts > 1) {
      break;
    }
  }
  __syncthreads();
}

/* Sum up along all axes of the subset, axis 0 among them. All threads. */
template <typename T, int C>
__device__ __forceinline__ void undo_prediction(const decode_job &job, uint32_t chunk,
                                                const done_values<T> &from, const run_place<T> &at,
                                                run_shared<T, C> *shared, T *values,
                                                T r[kLaneGroups][kGroup]) {
  const chunk_grid &grid = job.grid;
  const uint32_t *const done = job.run_done + static_cast<size_t>(chunk) * grid.run_count;
  const uint32_t row_count = divide(at.column + at.count - 1, grid.row) + 1;
  sum_run<T, C>(grid, at, shared, r);
  wait_for_neighbours(from, at, done);
  __threadfence();
  __syncthreads();
  chain_rows<T, C>(from, at, row_count, done, shared);
  subtract_fronts<T, C>(grid, at, *shared, r);
  if (from.outer == 0) {
    return;
  }
  const uint32_t first = threadIdx.x / kWarp * GPUFI_BLOCK_VALUES + threadIdx.x % kWarp * kGroup;
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    store_group(values, first + static_cast<uint32_t>(j * kWarp) * kGroup, r[j]);
  }
  __syncthreads();
  add_values_before(from, at, values);
  for (int axis = 1; axis < grid.usable_count; axis++) {
    if ((from.outer >> axis & 1) && grid.strides[axis] < at.count) {
      sum_columns(grid, at, axis, values, &shared->fronts[0][0]);
    }
  }
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    load_group(values, first + static_cast<uint32_t>(j * kWarp) * kGroup, r[j]);
  }
}

} // namespace gpufi

#endif
