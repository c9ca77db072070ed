/* Undoing the prediction of a run of residuals in shared memory, axis by axis: see decode.cu.
 */
#ifndef GPUFI_BACKEND_CUDA_CODEC_AXES_CUH
#define GPUFI_BACKEND_CUDA_CODEC_AXES_CUH

#include "backend/cuda/codec/neighbours.cuh"
#include "backend/cuda/codec/run.cuh"
#include "backend/cuda/relaxed.cuh"

namespace gpufi {

/* --- values that other thread blocks wrote --- */

/* The chunk's output as the source of neighbours, and the runs of it that are done. */
template <typename T> struct done_values : chunk_values<T, true> {
  const uint32_t *run_done;

  /* Wait until the runs that hold the values [begin, end) of the chunk are done. One thread. */
  __device__ void wait_for(uint32_t begin, uint32_t end) const {
    for (uint32_t run = begin / kRunValues; run <= (end - 1) / kRunValues; run++) {
      while (load_relaxed(run_done + run) == 0) {
      }
    }
  }

  /* The same for the value at i and those that alternating() takes, and `count` - 1 more of each.
   * Those that would be before the chunk are left out. All threads. */
  __device__ void wait_for_all(uint32_t i, uint32_t count, uint32_t inside) const {
    const uint32_t s = threadIdx.x; /* a lane a subset */
    if (s < kSubsetsMax && (s & ~inside) == 0) {
      const uint32_t last = i + count - 1, offset = s == 0 ? 0 : this->grid.offsets[s];
      if (last >= offset) {
        wait_for(i > offset ? i - offset : 0, last - offset + 1);
      }
    }
    __threadfence();
    __syncthreads();
  }
};

/* --- lines along an axis --- */

/* Values side by side, which a thread sums up at once, because they begin and end their lines along
 * an axis together. The functions for packs and for single values have the same names. */
template <typename T> struct value_pack {
  uint4 words;
};

template <typename V> struct pack_of {
  using value = V;
  static constexpr uint32_t kCount = 1;
};
template <typename T> struct pack_of<value_pack<T>> {
  using value = T;
  static constexpr uint32_t kCount = 16 / sizeof(T);
};

/* The values of a word, each by itself. */
template <typename T> __device__ inline uint32_t add_in_word(uint32_t a, uint32_t b) {
  constexpr uint32_t kTops = sizeof(T) == 1 ? 0x80808080u : sizeof(T) == 2 ? 0x80008000u : 0;
  return kTops == 0 ? a + b : ((a & ~kTops) + (b & ~kTops)) ^ ((a ^ b) & kTops);
}

template <typename V> __device__ inline V add(V a, V b) {
  return static_cast<V>(a + b);
}
template <typename T> __device__ inline value_pack<T> add(value_pack<T> a, value_pack<T> b) {
  const uint4 x = a.words, y = b.words;
  if constexpr (sizeof(T) == 8) {
    return {unit_of(low_of(x) + low_of(y), high_of(x) + high_of(y))};
  } else {
    return {make_uint4(add_in_word<T>(x.x, y.x), add_in_word<T>(x.y, y.y), add_in_word<T>(x.z, y.z),
                       add_in_word<T>(x.w, y.w))};
  }
}

template <typename V> __device__ inline V negative(V a) {
  return static_cast<V>(0 - a);
}
template <typename T> __device__ inline value_pack<T> negative(value_pack<T> a) {
  T v[pack_of<value_pack<T>>::kCount];
  memcpy(v, &a, sizeof(a));
#pragma unroll
  for (uint32_t k = 0; k < pack_of<value_pack<T>>::kCount; k++) {
    v[k] = static_cast<T>(0 - v[k]);
  }
  memcpy(&a, v, sizeof(a));
  return a;
}

template <typename T>
__device__ inline value_pack<T> load_done(const value_pack<T> *p, loading how) {
  constexpr int kCount = pack_of<value_pack<T>>::kCount;
  value_pack<T> pack = {__ldcg(&p->words)};
  if (how.swap || how.transform != GPUFI_TRANSFORM_NONE) {
    T v[kCount];
    memcpy(v, &pack, sizeof(pack));
    transform_values<T, kCount>(v, how);
    memcpy(&pack, v, sizeof(pack));
  }
  return pack;
}

/* Where several threads share a line, each sums up a segment of it, and starts from the sums of the
 * threads before. */
template <typename T> struct line_segments {
  value_pack<T> sums[kThreads]; /* or single values */
  bool restart[kThreads];       /* a line begins in the segment */
};

/* The columns of a run whose values follow each other along an axis: those that begin at values
 * [first, first + count) of the run, and go on every `stride` values up to `limit`. A column is
 * lines one after the other. All of this is in packs where these are summed up. */
struct run_columns {
  uint32_t stride, first, count, step_count, limit;
  uint32_t step, past; /* along the axis, of the first value in the chunk; rest of that division */

  __device__ uint32_t step_of(uint32_t column) const {
    return step + (past + column >= stride ? 1 : 0);
  }
};

/* Of the face where the chain rule predicts along the axis, only the first element of each index
 * along the axis is left. */
template <bool kFace, typename V, typename T>
__device__ inline run_columns columns_along(const chunk_grid &grid, const run_place<T> &at,
                                            int axis) {
  constexpr uint32_t kCount = pack_of<V>::kCount;
  run_columns c = {};
  c.stride = grid.strides[axis] / kCount;
  c.step = at.first / kCount / c.stride;
  c.past = at.first / kCount - c.step * c.stride;
  c.limit = at.count / kCount;
  c.count = c.stride < c.limit ? c.stride : c.limit;
  if (kFace) {
    c.first = c.past != 0 ? c.stride - c.past : 0;
    c.step += c.past != 0 ? 1 : 0;
    c.past = 0;
    c.count = grid.component_count;
  }
  c.step_count = c.first < c.limit ? (c.limit - c.first + c.stride - 1) / c.stride : 0;
  return c;
}

/* Sum up steps [begin, end) of columns, each line by itself, those that go on from before `begin`
 * from `sum` on, which becomes the last line's. A thread has kAcross columns, kThreads apart, and
 * kAhead steps of each in flight. Returns whether a line begins in the first. */
template <bool kFace, bool kStore, int kAcross, int kAhead, typename V, typename T>
__device__ __forceinline__ bool sum_steps(const done_values<T> &from, int axis,
                                          const run_columns &columns, uint32_t column,
                                          uint32_t begin, uint32_t end, V *values, V *sum) {
  const divisor &length = from.grid.dims[axis];
  uint32_t line[kAcross], index[kAcross];
  uint32_t value = columns.first + column + begin * columns.stride;
  bool own[kAcross], stores[kAcross], restarts = false; /* the first column is always there */
#pragma unroll
  for (uint32_t j = 0; j < kAcross; j++) {
    const uint32_t c = column + j * kThreads, step = columns.step_of(c) + begin;
    line[j] = divide(step, length);
    index[j] = step - line[j] * length.d;
    own[j] = j == 0 || c < columns.count;
    stores[j] = kStore && own[j] && (!kFace || from.axes_before(line[j], axis) == 0);
  }
  for (uint32_t k = begin; k < end; k += kAhead) {
    V v[kAcross][kAhead];
    bool there[kAcross][kAhead];
#pragma unroll
    for (uint32_t j = 0; j < kAcross; j++) {
#pragma unroll
      for (uint32_t t = 0; t < kAhead; t++) {
        const uint32_t i = value + j * kThreads + t * columns.stride;
        there[j][t] = own[j] && k + t < end && i < columns.limit;
        v[j][t] = there[j][t] ? values[i] : V{};
      }
    }
#pragma unroll
    for (uint32_t j = 0; j < kAcross; j++) {
#pragma unroll
      for (uint32_t t = 0; t < kAhead; t++) {
        const bool starts = index[j] == 0 && there[j][t];
        restarts = restarts || (starts && j == 0);
        sum[j] = add(starts ? V{} : sum[j], v[j][t]);
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
template <bool kFace, typename V, typename T>
__device__ bool wait_for_columns(const done_values<T> &from, const run_place<T> &at, int axis,
                                 const run_columns &columns, uint32_t later) {
  constexpr uint32_t kCount = pack_of<V>::kCount;
  const uint32_t first = at.first + columns.first * kCount;
  const uint32_t end = first + columns.count * kCount, stride = from.grid.strides[axis];
  const divisor &length = from.grid.dims[axis];
  const uint32_t step = columns.step_of(0), last_step = columns.step_of(columns.count - 1);
  const uint32_t line = divide(step, length), last_line = divide(last_step, length);
  const bool starts = step == line * length.d && last_step == last_line * length.d;
  if (at.run == 0 || starts || (kFace && from.axes_before(line, axis) != 0)) {
    return false;
  }
  const uint32_t inside = from.axes_before(line, axis) | from.axes_before(last_line, axis);
  const uint32_t begin = first > stride ? first - stride : 0;
  from.wait_for_all(begin, end - stride - begin, inside & later);
  return true;
}

/* Add what columns go on from. */
template <bool kFace, int kAcross, typename V, typename T>
__device__ __forceinline__ void add_before(const done_values<T> &from, const run_place<T> &at,
                                           int axis, const run_columns &columns, uint32_t later,
                                           uint32_t column, V *sum) {
  constexpr uint32_t kCount = pack_of<V>::kCount;
  const V *const raw = reinterpret_cast<const V *>(from.raw + at.first) + columns.first;
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
    const uint32_t offset = columns.stride + (s == 0 ? 0 : from.grid.offsets[s] / kCount);
    V v[kAcross];
#pragma unroll
    for (uint32_t j = 0; j < kAcross; j++) {
      const bool there = ((s | 1u << axis) & ~inside[j]) == 0;
      v[j] = there ? load_done(raw + column + j * kThreads - offset, from.how) : V{};
    }
#pragma unroll
    for (uint32_t j = 0; j < kAcross; j++) {
      sum[j] = add(sum[j], __popc(s) & 1 ? negative(v[j]) : v[j]);
    }
    if (s == 0) {
      break;
    }
  }
}

/* Columns of which a thread has one or more. */
template <int kAcross, int kAhead, typename V, typename T>
__device__ __forceinline__ void sum_columns(const done_values<T> &from, const run_place<T> &at,
                                            int axis, const run_columns &columns, uint32_t later,
                                            bool goes_on, V *values) {
  for (uint32_t c = threadIdx.x; c < columns.count; c += kAcross * kThreads) {
    V sum[kAcross] = {};
    if (goes_on) {
      add_before<false, kAcross>(from, at, axis, columns, later, c, sum);
    }
    sum_steps<false, true, kAcross, kAhead>(from, axis, columns, c, 0, columns.step_count, values,
                                            sum);
  }
}

/* Columns that several threads share, each of which takes a segment. */
template <bool kFace, typename V, typename T>
__device__ void sum_segments(const done_values<T> &from, const run_place<T> &at, int axis,
                             const run_columns &columns, uint32_t later, V *values,
                             line_segments<T> *shared) {
  constexpr int kAhead = pack_of<V>::kCount == 1 ? 8 : 4;
  const uint32_t count = columns.count, segments = kThreads / count, segment = threadIdx.x / count;
  const uint32_t column = threadIdx.x - segment * count;
  /* An odd number, so that segments do not begin in the same bank. */
  const uint32_t steps = (columns.step_count + segments - 1) / segments | 1,
                 begin = segment * steps;
  const uint32_t end = segment == segments                  ? begin
                       : begin + steps < columns.step_count ? begin + steps
                                                            : columns.step_count;
  V *const sums = reinterpret_cast<V *>(shared->sums);
  V sum = {}, carry = {};
  const bool restarts =
      sum_steps<kFace, false, 1, kAhead>(from, axis, columns, column, begin, end, values, &sum);
  sums[threadIdx.x] = sum;
  shared->restart[threadIdx.x] = restarts;
  __syncthreads();
  sum = {};
  bool restarted = false;
  for (uint32_t i = threadIdx.x; i >= count && !restarted;) {
    i -= count;
    sum = add(sum, sums[i]);
    restarted = shared->restart[i];
  }
  if (wait_for_columns<kFace, V>(from, at, axis, columns, later) && !restarted) {
    add_before<kFace, 1>(from, at, axis, columns, later, column, &carry);
    sum = add(sum, carry);
  }
  sum_steps<kFace, true, 1, kAhead>(from, axis, columns, column, begin, end, values, &sum);
}

template <bool kFace, typename V, typename T>
__device__ void sum_packs(const done_values<T> &from, const run_place<T> &at, int axis,
                          uint32_t later, V *values, line_segments<T> *shared) {
  const run_columns columns = columns_along<kFace, V>(from.grid, at, axis);
  if (columns.step_count == 0) {
    return;
  }
  if (kFace || columns.count <= kThreads / 2) {
    sum_segments<kFace>(from, at, axis, columns, later, values, shared);
  } else {
    constexpr int kFlight = pack_of<V>::kCount == 1 ? 8 : 4;
    const bool goes_on = wait_for_columns<kFace, V>(from, at, axis, columns, later);
    if (columns.count <= kThreads) {
      sum_columns<1, kFlight>(from, at, axis, columns, later, goes_on, values);
    } else if (columns.count <= 2 * kThreads) {
      sum_columns<2, kFlight / 2>(from, at, axis, columns, later, goes_on, values);
    } else {
      sum_columns<4, kFlight / 4>(from, at, axis, columns, later, goes_on, values);
    }
  }
  __syncthreads();
}

/* Sums along `axis` over the run's values in shared memory, or, with kFace, over those of them that
 * the chain rule predicts along it. `later` are the axes of the subset that are not summed up yet.
 * All threads. */
template <bool kFace, typename T>
__device__ void sum_axis(const done_values<T> &from, const run_place<T> &at, int axis,
                         uint32_t later, T *values, line_segments<T> *shared) {
  using pack = value_pack<T>;
  if (!kFace && from.grid.strides[axis] % pack_of<pack>::kCount == 0) {
    sum_packs<false>(from, at, axis, later, reinterpret_cast<pack *>(values), shared);
  } else {
    sum_packs<kFace>(from, at, axis, later, values, shared);
  }
}

/* --- the whole prediction --- */

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
                          line_segments<T> *shared) {
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
                         T *values, line_segments<T> *shared) {
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
