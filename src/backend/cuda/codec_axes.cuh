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
 * [first, first + count) of the run, and go on every `stride` values. A column is lines one after
 * the other. */
struct run_columns {
  uint32_t stride, first, count, step_count;
  uint32_t step, past; /* along the axis, of the first value in the chunk; rest of that division */

  __device__ uint32_t step_of(uint32_t column) const {
    return step + (past + column >= stride ? 1 : 0);
  }
};

/* Of the face where the chain rule predicts along the axis, only the first element of each index
 * along the axis is left. */
template <bool kFace, typename T>
__device__ inline run_columns columns_along(const chunk_grid &grid, const run_place<T> &at,
                                            int axis) {
  run_columns c = {};
  c.stride = grid.strides[axis];
  c.step = at.first / c.stride;
  c.past = at.first - c.step * c.stride;
  c.count = c.stride < at.count ? c.stride : at.count;
  if (kFace) {
    c.first = c.past != 0 ? c.stride - c.past : 0;
    c.step += c.past != 0 ? 1 : 0;
    c.past = 0;
    c.count = grid.component_count;
  }
  c.step_count = c.first < at.count ? (at.count - c.first + c.stride - 1) / c.stride : 0;
  return c;
}

/* Sum up steps [begin, end) of columns, each line by itself, those that go on from before `begin`
 * from `sum` on, which becomes the last line's. A thread has kAcross columns, kThreads apart, and
 * kAhead steps of each in flight. Returns whether a line begins in the first. */
template <bool kFace, bool kStore, int kAcross, int kAhead, typename T>
__device__ __forceinline__ bool sum_steps(const done_values<T> &from, const run_place<T> &at,
                                          int axis, const run_columns &columns, uint32_t column,
                                          uint32_t begin, uint32_t end, T *values, T *sum) {
  const divisor &length = from.grid.dims[axis];
  uint32_t line[kAcross], index[kAcross];
  uint32_t value = columns.first + column + begin * columns.stride;
  bool stores[kAcross], restarts = false;
#pragma unroll
  for (uint32_t j = 0; j < kAcross; j++) {
    const uint32_t c = column + j * kThreads, step = columns.step_of(c) + begin;
    line[j] = divide(step, length);
    index[j] = step - line[j] * length.d;
    stores[j] = kStore && c < columns.count && (!kFace || from.axes_before(line[j], axis) == 0);
  }
  for (uint32_t k = begin; k < end; k += kAhead) {
    T v[kAcross][kAhead];
    bool there[kAcross][kAhead];
#pragma unroll
    for (uint32_t j = 0; j < kAcross; j++) {
#pragma unroll
      for (uint32_t t = 0; t < kAhead; t++) {
        const uint32_t i = value + j * kThreads + t * columns.stride;
        there[j][t] = k + t < end && i < at.count;
        v[j][t] = there[j][t] ? values[i] : static_cast<T>(0);
      }
    }
#pragma unroll
    for (uint32_t j = 0; j < kAcross; j++) {
#pragma unroll
      for (uint32_t t = 0; t < kAhead; t++) {
        const bool starts = index[j] == 0 && there[j][t];
        restarts = restarts || (starts && j == 0);
        sum[j] = static_cast<T>((starts ? static_cast<T>(0) : sum[j]) + v[j][t]);
        if (stores[j] && there[j][t]) {
          values[value + j * kThreads + t * columns.stride] = sum[j];
        }
        if (++index[j] == length.d) {
          index[j] = 0;
          line[j]++;
          stores[j] = kFace ? kStore && from.axes_before(line[j], axis) == 0 : stores[j];
        }
      }
    }
    value += kAhead * columns.stride;
  }
  return restarts;
}

/* Whether the columns go on from values before the run; if so, those are waited for. `later` are
 * the axes that are not summed up yet. All threads. */
template <bool kFace, typename T>
__device__ bool wait_for_columns(const done_values<T> &from, const run_place<T> &at, int axis,
                                 const run_columns &columns, uint32_t later) {
  const uint32_t first = at.first + columns.first, last = first + columns.count - 1;
  const divisor &length = from.grid.dims[axis];
  const uint32_t step = columns.step_of(0), last_step = columns.step_of(columns.count - 1);
  const uint32_t line = divide(step, length), last_line = divide(last_step, length);
  const bool starts = step == line * length.d && last_step == last_line * length.d;
  if (at.run == 0 || starts || (kFace && from.axes_before(line, axis) != 0)) {
    return false;
  }
  const uint32_t inside = from.axes_before(line, axis) | from.axes_before(last_line, axis);
  const uint32_t begin = first > columns.stride ? first - columns.stride : 0;
  from.wait_for_all(begin, last - columns.stride + 1 - begin, inside & later);
  return true;
}

/* Add what columns go on from. */
template <bool kFace, int kAcross, typename T>
__device__ __forceinline__ void add_before(const done_values<T> &from, const run_place<T> &at,
                                           int axis, const run_columns &columns, uint32_t later,
                                           uint32_t column, T *sum) {
  const T *const raw = from.raw + at.first + columns.first - columns.stride;
  uint32_t inside[kAcross]; /* with bit `axis` set if there is anything */
#pragma unroll
  for (uint32_t j = 0; j < kAcross; j++) {
    const uint32_t c = column + j * kThreads, step = columns.step_of(c);
    const uint32_t line = divide(step, from.grid.dims[axis]);
    const uint32_t axes = from.axes_before(line, axis);
    const bool there = c < columns.count && step != line * from.grid.dims[axis].d;
    inside[j] = there && (!kFace || axes == 0) ? axes | 1u << axis : 0;
  }
  for (uint32_t s = kFace ? 0 : later;; s = (s - 1) & later) {
    const uint32_t offset = s == 0 ? 0 : from.grid.offsets[s];
    T v[kAcross];
#pragma unroll
    for (uint32_t j = 0; j < kAcross; j++) {
      const bool there = ((s | 1u << axis) & ~inside[j]) == 0;
      v[j] = there ? __ldcg(raw + column + j * kThreads - offset) : static_cast<T>(0);
    }
    transform_values<T, kAcross>(v, from.how); /* maps 0 to 0 */
#pragma unroll
    for (uint32_t j = 0; j < kAcross; j++) {
      sum[j] = static_cast<T>(__popc(s) & 1 ? sum[j] - v[j] : sum[j] + v[j]);
    }
    if (s == 0) {
      break;
    }
  }
}

/* Columns of which a thread has one or more. */
template <int kAcross, int kAhead, typename T>
__device__ void sum_columns(const done_values<T> &from, const run_place<T> &at, int axis,
                            const run_columns &columns, uint32_t later, bool goes_on, T *values) {
  for (uint32_t c = threadIdx.x; c < columns.count; c += kAcross * kThreads) {
    T sum[kAcross] = {};
    if (goes_on) {
      add_before<false, kAcross>(from, at, axis, columns, later, c, sum);
    }
    sum_steps<false, true, kAcross, kAhead>(from, at, axis, columns, c, 0, columns.step_count,
                                            values, sum);
  }
}

/* Columns that several threads share, each a part of its own. */
template <bool kFace, typename T>
__device__ void sum_parts(const done_values<T> &from, const run_place<T> &at, int axis,
                          const run_columns &columns, uint32_t later, T *values,
                          line_parts<T> *shared) {
  constexpr int kAhead = 8;
  const uint32_t count = columns.count, parts = kThreads / count, part = threadIdx.x / count;
  const uint32_t column = threadIdx.x - part * count;
  /* An odd number, so that parts do not begin in the same bank. */
  const uint32_t steps = (columns.step_count + parts - 1) / parts | 1, begin = part * steps;
  const uint32_t end = part == parts                        ? begin
                       : begin + steps < columns.step_count ? begin + steps
                                                            : columns.step_count;
  T sum = 0, carry = 0;
  const bool restarts =
      sum_steps<kFace, false, 1, kAhead>(from, at, axis, columns, column, begin, end, values, &sum);
  shared->sums[threadIdx.x] = sum;
  shared->restart[threadIdx.x] = restarts;
  __syncthreads();
  const bool goes_on = wait_for_columns<kFace>(from, at, axis, columns, later);
  if (goes_on) {
    add_before<kFace, 1>(from, at, axis, columns, later, column, &carry);
  }
  sum = 0;
  bool restarted = false;
  for (uint32_t i = threadIdx.x; i >= count && !restarted;) {
    i -= count;
    sum = static_cast<T>(sum + shared->sums[i]);
    restarted = shared->restart[i];
  }
  sum = static_cast<T>(restarted ? sum : sum + carry);
  sum_steps<kFace, true, 1, kAhead>(from, at, axis, columns, column, begin, end, values, &sum);
}

/* Sums along `axis` over the run's values in shared memory, or, with kFace, over those of them that
 * the chain rule predicts along it. `later` are the axes of the subset that are not summed up yet.
 * All threads. */
template <bool kFace, typename T>
__device__ void sum_axis(const done_values<T> &from, const run_place<T> &at, int axis,
                         uint32_t later, T *values, line_parts<T> *shared) {
  const run_columns columns = columns_along<kFace>(from.grid, at, axis);
  if (columns.step_count == 0) {
    return;
  }
  if (columns.count <= kThreads / 2) {
    sum_parts<kFace>(from, at, axis, columns, later, values, shared);
  } else if (!kFace) {
    const bool goes_on = wait_for_columns<kFace>(from, at, axis, columns, later);
    if (columns.count <= kThreads) {
      sum_columns<1, 8>(from, at, axis, columns, later, goes_on, values);
    } else if (columns.count <= 2 * kThreads) {
      sum_columns<2, 4>(from, at, axis, columns, later, goes_on, values);
    } else if (columns.count <= 4 * kThreads) {
      sum_columns<4, 2>(from, at, axis, columns, later, goes_on, values);
    } else {
      sum_columns<8, 1>(from, at, axis, columns, later, goes_on, values);
    }
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
