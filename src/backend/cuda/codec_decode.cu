/* Decoding a batch of chunks; codec/decode.c is the reference.
 *
 * A thread block decodes a run: its bytes go to shared memory, a warp unpacks a block of residuals
 * into registers, and where the chunk is predicted along its rows, they are summed up at once:
 *   1. along the rows, by a prefix sum over the run from which each row's start is subtracted;
 *   2. what the values before the run contribute is read from the output, so that a run waits for
 *      those runs of its chunk to be done;
 *   3. along the other axes, within the run, in shared memory. An axis whose neighbours are all
 *      before the run is done by 2.
 * This works because a run is a contiguous range of the chunk: leaving out neighbours before it
 * leaves sums along each axis by itself. Thread blocks start in the order of their numbers, so
 * that whoever waits, waits for thread blocks that run already; neighbours in that order belong to
 * different chunks, so that they seldom wait for each other. */
#include "backend/cuda/codec.h"
#include "backend/cuda/codec_decode.cuh"
#include "backend/cuda/codec_unpack.cuh"

namespace {

using namespace gpufi;

constexpr int kWarps = GPUFI_RUN_BLOCKS;
constexpr int kThreads = kWarps * kWarp;
constexpr uint32_t kChunksAtOnce = 256; /* that take turns in the order of thread blocks */
constexpr uint32_t kRowsMax = kRunValues / kRowValuesMin + 1; /* that a run touches */
static_assert(kRowsMax - 1 <= kThreads, "a thread takes a row's start");

template <typename T> constexpr size_t kRunNbytes = GPUFI_RUN_BLOCKS * kBlockNbytesMax<T>;
template <typename T>
constexpr size_t kSharedNbytes = (kRunNbytes<T> + kMaskNbytesMax + 31) / 16 * 16;

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
  uint32_t offsets[GPUFI_RUN_BLOCKS + 1]; /* of the blocks in the run */
  uint32_t descriptors[GPUFI_RUN_BLOCKS];
  chunk_sum partial[kWarps];
  T warp_sums[kWarps][C];
  /* Of each row that the run touches: the sum in front of it; the residual of its first value,
   * which becomes the value itself where the chain rule predicts it; the row that predicts it. */
  T fronts[kRowsMax + 1][C];
  T starts[kRowsMax + 1][C];
  int32_t parents[kRowsMax + 1];
};

/* A run as its thread block sees it. */
template <typename T> struct run_place {
  uint32_t run, first, count; /* values [first, first + count) of the chunk */
  uint32_t row, column;       /* of the first */
  T *raw;
};

/* The run's bytes, checked for their padding and added to the sum. */
__device__ bool load_run(const decode_state &state, uint32_t begin, uint32_t end, uint32_t nbytes,
                         uint4 *to, chunk_sum *sum) {
  const uint4 *const from = reinterpret_cast<const uint4 *>(state.chunk) + begin;
  bool good = true;
  for (uint32_t u = threadIdx.x; u < end - begin; u += kThreads) {
    const uint4 unit = from[u];
    sum->add(2 * static_cast<uint64_t>(begin + u), unit);
    to[u] = unit;
    if (16 * u + 16 > nbytes) {
      const uint8_t *const bytes = reinterpret_cast<const uint8_t *>(to + u);
      for (uint32_t k = nbytes - 16 * u; k < 16; k++) {
        good = good && bytes[k] == 0;
      }
    }
  }
  return good;
}

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
        first[j][c] = static_cast<uint32_t>(t - c) == starts[j] ? r[j][t] : first[j][c];
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
#pragma unroll
        for (int t = c; t < kGroup; t += C) {
          if (static_cast<uint32_t>(t - c) == starts[j]) {
            shared->fronts[k][c] = static_cast<T>(r[j][t] - first[j][c]);
          }
        }
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

/* From sums over the run to sums over each row; and what values before the run add to the others,
 * by docs/format.md's Lorenzo rule. */
template <typename T, int C>
__device__ __forceinline__ void finish_rows(const done_values<T> &from, const run_place<T> &at,
                                            const run_shared<T, C> &shared,
                                            T r[kLaneGroups][kGroup]) {
  const chunk_grid &grid = from.grid;
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t past = threadIdx.x / kWarp * GPUFI_BLOCK_VALUES +
                          (static_cast<uint32_t>(j * kWarp) + threadIdx.x % kWarp) * kGroup;
    if (past >= at.count) {
      continue;
    }
    const uint32_t in_rows = at.column + past, k = divide(in_rows, grid.row);
    const uint32_t left = (k + 1) * grid.row_values - in_rows; /* in the first of its two rows */
#pragma unroll
    for (int t = 0; t < kGroup; t++) {
      const uint32_t row = k + (static_cast<uint32_t>(t) >= left ? 1 : 0);
      r[j][t] = static_cast<T>(r[j][t] - shared.fronts[row][t % C]);
    }
    if (from.outer == 0) {
      continue;
    }
    const uint32_t i = at.first + past;
    const uint32_t inside = from.rows_before(at.row + k);
    const uint32_t inside_next = left < kGroup ? from.rows_before(at.row + k + 1) : inside;
    for (uint32_t s = from.outer; s != 0; s = (s - 1) & from.outer) {
      const bool first = (s & ~inside) == 0, next = (s & ~inside_next) == 0;
      const uint32_t offset = grid.offsets[s];
      if (past >= offset || !(first || next)) {
        continue;
      }
      const bool plus = __popc(s) & 1;
      if (first && next && past + kGroup <= offset && past + kGroup <= at.count) {
        T v[kGroup];
        load_group<T, true>(from.raw, i - offset, v);
        transform_values<T, kGroup>(v, from.how);
#pragma unroll
        for (int t = 0; t < kGroup; t++) {
          r[j][t] = static_cast<T>(plus ? r[j][t] + v[t] : r[j][t] - v[t]);
        }
        continue;
      }
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        const uint32_t ahead = past + static_cast<uint32_t>(t);
        if (ahead < offset && ahead < at.count &&
            (static_cast<uint32_t>(t) < left ? first : next)) {
          const T v = from.value(i + static_cast<uint32_t>(t) - offset);
          r[j][t] = static_cast<T>(plus ? r[j][t] + v : r[j][t] - v);
        }
      }
    }
  }
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
  finish_rows<T, C>(from, at, *shared, r);
  bool in_shared = false;
  for (int axis = 1; axis < grid.usable_count; axis++) {
    if ((from.outer >> axis & 1) && grid.strides[axis] < at.count) {
      if (!in_shared) {
#pragma unroll
        for (int j = 0; j < kLaneGroups; j++) {
          store_group(values,
                      threadIdx.x / kWarp * GPUFI_BLOCK_VALUES +
                          (static_cast<uint32_t>(j * kWarp) + threadIdx.x % kWarp) * kGroup,
                      r[j]);
        }
        in_shared = true;
        __syncthreads();
      }
      sum_columns(grid, at, axis, values, &shared->fronts[0][0]);
    }
  }
  if (in_shared) {
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      load_group(values,
                 threadIdx.x / kWarp * GPUFI_BLOCK_VALUES +
                     (static_cast<uint32_t>(j * kWarp) + threadIdx.x % kWarp) * kGroup,
                 r[j]);
    }
  }
}

/* A run of a chunk in mode W8. All threads. */
template <typename T, int C>
__device__ __forceinline__ void decode_run(const decode_job &job, uint32_t chunk,
                                           const run_place<T> &at, uint4 *run_bytes,
                                           run_shared<T, C> *shared, chunk_sum *sum) {
  const chunk_grid &grid = job.grid;
  decode_state *const state = &job.states[chunk];
  const int lane = threadIdx.x % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const uint32_t *const runs =
      job.run_offsets + static_cast<size_t>(chunk) * (grid.run_count + 1) + at.run;
  if (threadIdx.x == 0) {
    uint32_t offset = 0;
    for (uint32_t b = 0; b < GPUFI_RUN_BLOCKS; b++) {
      const uint32_t block = at.run * GPUFI_RUN_BLOCKS + b;
      const uint32_t word =
          block < grid.block_count
              ? reinterpret_cast<const uint32_t *>(state->chunk + GPUFI_HEADER_NBYTES)[block]
              : 0;
      shared->descriptors[b] = word;
      shared->offsets[b] = offset;
      offset += word & 0x3fff;
    }
    shared->offsets[GPUFI_RUN_BLOCKS] = offset;
  }
  __syncthreads();
  const uint32_t nbytes = shared->offsets[GPUFI_RUN_BLOCKS];
  T r[kLaneGroups][kGroup] = {};
  bool good = nbytes <= kRunNbytes<T>;
  bool sparse = false;
  warp_mask mask = {};
  uint32_t list_count = 0;
  if (good) {
    good = load_run(*state, runs[0], runs[1], nbytes, run_bytes, sum);
    __syncthreads();
    const uint32_t past = static_cast<uint32_t>(warp) * GPUFI_BLOCK_VALUES;
    if (past < at.count) {
      const uint32_t left = at.count - past, word = shared->descriptors[warp];
      const bool unpacked = unpack_block<T>(
          reinterpret_cast<const uint32_t *>(run_bytes), shared->offsets[warp], word,
          left < GPUFI_BLOCK_VALUES ? left : GPUFI_BLOCK_VALUES, lane, &mask, &list_count, r);
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
  if (state->subset != 0 && !state->is_separate) {
    const done_values<T> from = {grid, at.raw, how, state->subset, state->subset & ~1u};
    undo_prediction<T, C>(job, chunk, from, at, shared, reinterpret_cast<T *>(run_bytes), r);
  }
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t past =
        static_cast<uint32_t>(warp * GPUFI_BLOCK_VALUES + (j * kWarp + lane) * kGroup);
    if (!state->is_separate) {
      restore_values<T, kGroup>(r[j], how);
    }
    if (past + kGroup <= at.count) {
      store_group(at.raw, at.first + past, r[j]);
    } else {
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        if (past + static_cast<uint32_t>(t) < at.count) {
          at.raw[at.first + past + static_cast<uint32_t>(t)] = r[j][t];
        }
      }
    }
  }
}

/* The part of a raw or constant chunk that a run would cover. */
template <typename T, int C>
__device__ bool fill_run(const chunk_grid &grid, const decode_state &state, const run_place<T> &at,
                         chunk_sum *sum) {
  uint8_t *const to = reinterpret_cast<uint8_t *>(at.raw);
  const uint64_t begin = static_cast<uint64_t>(at.first) * sizeof(T);
  const uint64_t end = begin + static_cast<uint64_t>(at.count) * sizeof(T);
  bool good = true;
  for (uint64_t b = begin + threadIdx.x * 16; b < end; b += kThreads * 16) {
    uint4 unit;
    if (state.mode == GPUFI_MODE_RAW) {
      unit = *reinterpret_cast<const uint4 *>(state.chunk + GPUFI_HEADER_NBYTES + b);
      sum->add((GPUFI_HEADER_NBYTES + b) / 8, unit);
    } else {
      uint8_t bytes[16];
#pragma unroll
      for (uint32_t k = 0; k < 16; k++) {
        constexpr uint32_t kElement = C * sizeof(T);
        const uint32_t bit = k % kElement * 8;
        bytes[k] = static_cast<uint8_t>(state.seed[bit / 64] >> bit % 64);
      }
      memcpy(&unit, bytes, 16);
    }
    if (b + 16 <= end) {
      *reinterpret_cast<uint4 *>(to + b) = unit;
    } else {
      const uint8_t *const bytes = reinterpret_cast<const uint8_t *>(&unit);
      for (uint32_t k = 0; k < 16; k++) {
        if (b + k < end) {
          to[b + k] = bytes[k];
        } else {
          good = good && (state.mode != GPUFI_MODE_RAW || bytes[k] == 0);
        }
      }
    }
  }
  return good;
}

template <typename T, int C>
__global__ void __launch_bounds__(kThreads) decode_kernel(const __grid_constant__ decode_job job) {
  extern __shared__ uint4 run_bytes[];
  __shared__ run_shared<T, C> shared;
  const chunk_grid &grid = job.grid;
  /* Thread blocks of kChunksAtOnce chunks in turns: the first run of each, the second, ... */
  const uint32_t turn_nblocks = kChunksAtOnce * grid.run_count, turn = blockIdx.x / turn_nblocks;
  const uint32_t first_chunk = turn * kChunksAtOnce, in_turn = blockIdx.x - turn * turn_nblocks;
  const uint32_t left = job.chunk_count - first_chunk;
  const uint32_t width = left < kChunksAtOnce ? left : kChunksAtOnce;
  const uint32_t chunk = first_chunk + in_turn % width;
  decode_state *const state = &job.states[chunk];
  if (!state->is_open) {
    return;
  }
  run_place<T> at;
  at.run = in_turn / width;
  at.first = at.run * kRunValues;
  at.count = grid.value_count - at.first < kRunValues ? grid.value_count - at.first : kRunValues;
  at.row = divide(at.first, grid.row);
  at.column = at.first - at.row * grid.row_values;
  at.raw = reinterpret_cast<T *>(job.raw + chunk * grid.raw_pitch_nbytes);
  chunk_sum share = {0, 0};
  if (state->mode == GPUFI_MODE_W8) {
    decode_run<T, C>(job, chunk, at, run_bytes, &shared, &share);
  } else if (!fill_run<T, C>(grid, *state, at, &share)) {
    state->is_bad = 1;
  }
  const chunk_sum sum = block_sum<kWarps>(share, shared.partial);
  if (threadIdx.x == 0) {
    __threadfence();
    *static_cast<volatile uint32_t *>(job.run_done + static_cast<size_t>(chunk) * grid.run_count +
                                      at.run) = 1;
    if (sum.plain != 0 || sum.mixed != 0) {
      atomicAdd(&state->plain, static_cast<unsigned long long>(sum.plain));
      atomicAdd(&state->mixed, static_cast<unsigned long long>(sum.mixed));
    }
  }
}

/* --- launching ----------------------------------------------------------------------------------
 */

template <typename T, int C> cudaError_t launch(const decode_job &job, cudaStream_t stream) {
  constexpr int kShared = static_cast<int>(kSharedNbytes<T>);
  cudaError_t code = cudaFuncSetAttribute(decode_kernel<T, C>,
                                          cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  if (code == cudaSuccess) {
    code = open_chunks(job, stream);
  }
  if (code == cudaSuccess) {
    decode_kernel<T, C><<<job.chunk_count * job.grid.run_count, kThreads, kShared, stream>>>(job);
    code = cudaGetLastError();
  }
  return code == cudaSuccess ? restore_chunks(job, stream) : code;
}

cudaError_t launch_by_width(const decode_job &job, cudaStream_t stream) {
  const bool is_complex = job.grid.component_count == 2;
  switch (job.grid.value_nbytes) {
  case 1:
    return launch<uint8_t, 1>(job, stream);
  case 2:
    return launch<uint16_t, 1>(job, stream);
  case 4:
    return is_complex ? launch<uint32_t, 2>(job, stream) : launch<uint32_t, 1>(job, stream);
  default:
    return is_complex ? launch<uint64_t, 2>(job, stream) : launch<uint64_t, 1>(job, stream);
  }
}

/* The scratch in its order; each part's size is a multiple of 16. */
struct decode_scratch {
  size_t states, done, offsets;

  decode_scratch(const gpufi_chunks *chunks, const chunk_grid &grid)
      : states(gpufi_round_up_16(sizeof(decode_state) * chunks->count)),
        done(gpufi_round_up_16(sizeof(uint32_t) * chunks->count * grid.run_count)),
        offsets(gpufi_round_up_16(sizeof(uint32_t) * chunks->count * (grid.run_count + 1))) {}

  size_t total() const {
    return states + done + offsets;
  }
};

} // namespace

size_t gpufi_cuda_decode_scratch_nbytes(const gpufi_chunks *chunks) {
  return decode_scratch(chunks, make_grid(chunks)).total();
}

cudaError_t gpufi_cuda_decode(const gpufi_chunks *chunks, const void *d_encoded,
                              size_t encoded_nbytes, const gpufi_chunk_place *d_places, void *d_raw,
                              uint32_t *d_verdicts, void *d_scratch, cudaStream_t stream) {
  decode_job job = {};
  job.grid = make_grid(chunks);
  const decode_scratch sizes(chunks, job.grid);
  uint8_t *at = static_cast<uint8_t *>(d_scratch);
  job.chunk_count = static_cast<uint32_t>(chunks->count);
  job.encoded = static_cast<const uint8_t *>(d_encoded);
  job.encoded_nbytes = encoded_nbytes;
  job.places = d_places;
  job.raw = static_cast<uint8_t *>(d_raw);
  job.verdicts = d_verdicts;
  job.states = reinterpret_cast<decode_state *>(at);
  job.run_done = reinterpret_cast<uint32_t *>(at += sizes.states);
  job.run_offsets = reinterpret_cast<uint32_t *>(at + sizes.done);
  const cudaError_t code = cudaMemsetAsync(d_scratch, 0, sizes.states + sizes.done, stream);
  return code == cudaSuccess ? launch_by_width(job, stream) : code;
}
