/* Undoing the prediction of a run of residuals in shared memory, axis by axis: see codec_decode.cu.
 */
#ifndef GPUFI_BACKEND_CUDA_CODEC_AXES_CUH
#define GPUFI_BACKEND_CUDA_CODEC_AXES_CUH

#include "backend/cuda/codec_run.cuh"

namespace gpufi {

/* --- values that other thread blocks wrote ------------------------------------------------------
 */

/* The chunk's output as the source of neighbours, and which of its runs are done. */
template <typename T> struct done_values {
  const chunk_grid &grid;
  const T *raw;
  const uint32_t *run_done;
  loading how;
  uint32_t subset;

  /* Not through the first cache. */
  __device__ T value(uint32_t i) const {
    T v = __ldcg(raw + i);
    transform_values<T, 1>(&v, how);
    return v;
  }

  /* The axes of the subset beyond `axis` along which a line has an index other than 0; lines along
   * `axis` (and all that is inside it) are numbered as they lie. */
  __device__ uint32_t axes_before(uint32_t line, int axis) const {
    uint32_t inside = 0;
    for (int k = axis + 1; subset >> k != 0; k++) {
      const uint32_t rest = divide(line, grid.dims[k]);
      inside |= (line != rest * grid.dims[k].d ? 1u : 0u) << k;
      line = rest;
    }
    return inside & subset;
  }

  /* The residual of a value along the axes `inside` alone. */
  __device__ T alternating(uint32_t i, uint32_t inside) const {
    T sum = value(i);
    for (uint32_t s = inside; s != 0; s = (s - 1) & inside) {
      const T v = value(i - grid.offsets[s]);
      sum = static_cast<T>(__popc(s) & 1 ? sum - v : sum + v);
    }
    return sum;
  }

  /* Wait until the runs that hold the values [begin, end) of the chunk are done. One thread. */
  __device__ void wait_for(uint32_t begin, uint32_t end) const {
    for (uint32_t run = begin / kRunValues; run <= (end - 1) / kRunValues; run++) {
      while (static_cast<const volatile uint32_t *>(run_done)[run] == 0) {
      }
    }
  }

  /* The same for the value at i and those that alternating() takes, and `count` - 1 more of each.
   * Those that would be before the chunk are left out. All threads. */
  __device__ void wait_for_all(uint32_t i, uint32_t count, uint32_t inside) const {
    const uint32_t s = threadIdx.x; /* a lane a subset */
    if (s < kSubsetsMax && (s & ~inside) == 0) {
      const uint32_t last = i + count - 1, offset = s == 0 ? 0 : grid.offsets[s];
      if (last >= offset) {
        wait_for(i > offset ? i - offset : 0, last - offset + 1);
      }
    }
    __threadfence();
    __syncthreads();
  }
};

/* --- lines along an axis --------------------------------------------------------------------- */

/* What sums along an axis start from where threads share a line: those of the threads before. */
template <typename T> struct line_parts {
  T sums[kThreads];
  bool restart[kThreads]; /* a line begins in the part */
};

/* The columns of a run whose values follow each other along an axis: those that begin at values
 * [first, first + column_count) of the run, and go on every `stride` values. A column is lines one
 * after the other. */
struct run_columns {
  uint32_t stride, length; /* of a line */
  uint32_t first, column_count, step_count;
};

/* Of the face where the chain rule predicts along the axis, only the first element of each index
 * along the axis is left. */
template <bool kFace, typename T>
__device__ inline run_columns columns_along(const chunk_grid &grid, const run_place<T> &at,
                                            int axis) {
  run_columns c = {};
  c.stride = grid.strides[axis];
  c.length = grid.dims[axis].d;
  if (kFace) {
    const uint32_t past = at.first % c.stride;
    c.first = past != 0 ? c.stride - past : 0;
    c.column_count = grid.component_count;
  } else {
    c.column_count = c.stride < at.count ? c.stride : at.count;
  }
  c.step_count = c.first < at.count ? (at.count - c.first + c.stride - 1) / c.stride : 0;
  return c;
}

/* Sum up steps [begin, end) of the column that begins at value `i` of the run, each line by itself,
 * the one that goes on from before `begin` from `sum` on. Returns the last line's sum. */
template <bool kFace, bool kStore, typename T>
__device__ __forceinline__ T sum_steps(const done_values<T> &from, const run_place<T> &at, int axis,
                                       const run_columns &columns, uint32_t i, uint32_t begin,
                                       uint32_t end, T sum, T *values, bool *restarts) {
  constexpr uint32_t kAhead = 8; /* loads in flight */
  const uint32_t step = (at.first + i) / columns.stride + begin;
  uint32_t line = divide(step, from.grid.dims[axis]), index = step - line * columns.length;
  bool stores = kStore && (!kFace || from.axes_before(line, axis) == 0), restarted = false;
  for (uint32_t k = begin; k < end; k += kAhead) {
    T v[kAhead];
#pragma unroll
    for (uint32_t j = 0; j < kAhead; j++) {
      const uint32_t value = i + (k + j) * columns.stride;
      v[j] = k + j < end && value < at.count ? values[value] : static_cast<T>(0);
    }
#pragma unroll
    for (uint32_t j = 0; j < kAhead; j++) {
      const uint32_t value = i + (k + j) * columns.stride;
      const bool there = k + j < end, starts = index == 0 && there;
      restarted = restarted || starts;
      sum = static_cast<T>((starts ? static_cast<T>(0) : sum) + v[j]);
      if (stores && there && value < at.count) {
        values[value] = sum;
      }
      if (++index == columns.length) {
        index = 0;
        line++;
        stores = kStore && (!kFace || from.axes_before(line, axis) == 0);
      }
    }
  }
  *restarts = restarted;
  return sum;
}

/* Whether the columns go on from values before the run; if so, those are waited for. `later` are
 * the axes that are not summed up yet. All threads. */
template <bool kFace, typename T>
__device__ bool wait_for_columns(const done_values<T> &from, const run_place<T> &at, int axis,
                                 const run_columns &columns, uint32_t later) {
  const uint32_t first = at.first + columns.first, last = first + columns.column_count - 1;
  const divisor &length = from.grid.dims[axis];
  const uint32_t step = first / columns.stride, last_step = last / columns.stride;
  const uint32_t line = divide(step, length), last_line = divide(last_step, length);
  const bool starts = step == line * length.d && last_step == last_line * length.d;
  if (at.run == 0 || starts || (kFace && from.axes_before(line, axis) != 0)) {
    return false;
  }
  const uint32_t inside =
      kFace ? 0 : later & (from.axes_before(line, axis) | from.axes_before(last_line, axis));
  const uint32_t begin = first > columns.stride ? first - columns.stride : 0;
  from.wait_for_all(begin, last - columns.stride + 1 - begin, inside);
  return true;
}

/* What the column that begins at value `i` of the run goes on from. */
template <bool kFace, typename T>
__device__ T sum_before(const done_values<T> &from, const run_place<T> &at, int axis,
                        const run_columns &columns, uint32_t later, uint32_t i) {
  const uint32_t step = (at.first + i) / columns.stride, line = divide(step, from.grid.dims[axis]);
  if (step == line * columns.length) {
    return 0;
  }
  const uint32_t inside = from.axes_before(line, axis);
  if (kFace) {
    return inside != 0 ? static_cast<T>(0) : from.value(at.first + i - columns.stride);
  }
  return from.alternating(at.first + i - columns.stride, inside & later);
}

/* Sums along `axis` over the run's values in shared memory, or, with kFace, over those of them that
 * the chain rule predicts along it. `later` are the axes of the subset that are not summed up yet.
 * Where there are fewer columns than threads, several threads share one. All threads. */
template <bool kFace, typename T>
__device__ void sum_axis(const done_values<T> &from, const run_place<T> &at, int axis,
                         uint32_t later, T *values, line_parts<T> *shared) {
  const run_columns columns = columns_along<kFace>(from.grid, at, axis);
  if (columns.step_count == 0) {
    return;
  }
  const uint32_t count = columns.column_count, parts = count < kThreads ? kThreads / count : 1;
  const uint32_t part = parts > 1 ? threadIdx.x / count : 0;
  /* An odd number, so that parts do not begin in the same bank. */
  const uint32_t part_steps = (columns.step_count + parts - 1) / parts | 1;
  const uint32_t begin = part * part_steps;
  const uint32_t end =
      begin + part_steps < columns.step_count ? begin + part_steps : columns.step_count;
  uint32_t column = threadIdx.x - part * count;
  bool restarts = false;
  if (parts > 1) {
    if (part < parts) {
      shared->sums[threadIdx.x] =
          sum_steps<kFace, false>(from, at, axis, columns, columns.first + column, begin, end,
                                  static_cast<T>(0), values, &restarts);
      shared->restart[threadIdx.x] = restarts;
    }
    __syncthreads();
  }
  const bool goes_on = wait_for_columns<kFace>(from, at, axis, columns, later);
  for (; part < parts && column < count; column += kThreads) {
    const uint32_t i = columns.first + column;
    T sum = 0;
    uint32_t p = part;
    while (p > 0) {
      sum = static_cast<T>(sum + shared->sums[--p * count + column]);
      if (shared->restart[p * count + column]) {
        break;
      }
    }
    if (goes_on && (part == 0 || (p == 0 && !shared->restart[column]))) {
      sum = static_cast<T>(sum + sum_before<kFace>(from, at, axis, columns, later, i));
    }
    sum_steps<kFace, true>(from, at, axis, columns, i, begin, end, sum, values, &restarts);
  }
  __syncthreads();
}

/* --- the whole prediction ----------------------------------------------------------------------
 */

/* Whether any of the run's values is one that the chain rule predicts along `axis`. All threads. */
template <typename T>
__device__ bool has_face(const done_values<T> &from, const run_place<T> &at, int axis) {
  const chunk_grid &grid = from.grid;
  const uint32_t line_values = grid.strides[axis] * grid.dims[axis].d;
  const uint32_t first = at.first / line_values, last = (at.first + at.count - 1) / line_values;
  bool found = false;
  for (uint32_t line = first + threadIdx.x; line <= last; line += kThreads) {
    found = found || from.axes_before(line, axis) == 0;
  }
  return __syncthreads_or(found) != 0;
}

/* The values that the chain rule predicts, from those at the starts of the outermost lines on. */
template <typename T>
__device__ void sum_faces(const done_values<T> &from, const run_place<T> &at, T *values,
                          line_parts<T> *shared) {
  for (int axis = from.grid.axis_count - 1; axis >= 0; axis--) {
    if (!(from.subset >> axis & 1) && has_face(from, at, axis)) {
      sum_axis<true>(from, at, axis, 0, values, shared);
    }
  }
}

/* Sums along the axes of `left`, the innermost first. Where the run begins with a line along an
 * axis, nothing along it or the axes inside it goes on from before the run. */
template <typename T>
__device__ void sum_axes(const done_values<T> &from, const run_place<T> &at, uint32_t left,
                         T *values, line_parts<T> *shared) {
  const chunk_grid &grid = from.grid;
  for (int axis = 0; left != 0; axis++) {
    const bool goes_on = at.first % (grid.strides[axis] * grid.dims[axis].d) != 0;
    const bool is_of = left >> axis & 1;
    left &= ~(1u << axis);
    if (is_of && (goes_on || grid.strides[axis] < at.count)) {
      sum_axis<false>(from, at, axis, left, values, shared);
    }
  }
}

} // namespace gpufi

#endif
