/* Wide cells, and a tensor as one cell: each is read by a thread block, by several, or by a warp.
 */
#include "backend/cuda/launch.cuh"
#include "backend/cuda/reduce/results.cuh"
#include "backend/cuda/reduce/walk.cuh"

namespace gpufi {
namespace {

/* A state is the partial result of the elements that one thread has seen. */

struct sum_state {
  using result = gpufi_reduce_sum;
  static constexpr bool kExcludedInHead = true;
  bool squares;
  double sum = 0.0;
  uint64_t count = 0;
  excluded_count excluded;

  __device__ explicit sum_state(const reduce_params &p) : squares(p.job.kind == GPUFI_REDUCE_RMS) {}

  template <typename Reader, int kCount>
  __device__ void add(const Reader &reader, const typename Reader::value (&v)[kCount]) {
    if (all_finite(v)) {
      double some = 0.0;
      if (squares) { /* one branch for all */
#pragma unroll
        for (int i = 0; i < kCount; i++) {
          const double x = reader.number(v[i]);
          some += x * x;
        }
      } else {
#pragma unroll
        for (int i = 0; i < kCount; i++) {
          some += reader.number(v[i]);
        }
      }
      sum += some;
      count += kCount;
      return;
    }
    for (int i = 0; i < kCount; i++) {
      const double x = reader.number(v[i]);
      if (is_finite(v[i])) {
        sum += squares ? x * x : x;
        count++;
      } else {
        excluded.add(x);
      }
    }
  }
  __device__ void settle() {}
  template <typename Reader> __device__ result get(const Reader &) const {
    return {sum, count};
  }
};

template <typename Value> struct extremes_state {
  using result = gpufi_reduce_extremes;
  static constexpr bool kExcludedInHead = true;
  Value low, high;
  excluded_count excluded;

  __device__ explicit extremes_state(const reduce_params &) {
    set_top(low);
    set_bottom(high);
  }

  template <typename Reader, int kCount>
  __device__ void add(const Reader &reader, const Value (&v)[kCount]) {
    if (all_finite(v)) {
#pragma unroll
      for (int i = 0; i < kCount; i++) {
        low = lesser(low, v[i]);
        high = greater(high, v[i]);
      }
      return;
    }
    for (int i = 0; i < kCount; i++) {
      low = v[i] < low ? v[i] : low; /* NaN, also a signalling one, compares false */
      high = v[i] > high ? v[i] : high;
      if (!is_finite(v[i])) {
        excluded.add(reader.number(v[i]));
      }
    }
  }
  __device__ void settle() {}
  template <typename Reader> __device__ result get(const Reader &reader) const {
    return {stored(reader, low), stored(reader, high)};
  }
};

/* Sums of the distances from a pivot, which is the mean so far (at first, an element); settle()
 * folds them into the mean and the squared distances from it before they grow large. */
template <typename Value> struct stats_state {
  using result = gpufi_reduce_stats;
  static constexpr bool kExcludedInHead = false;
  double pivot = 0.0, sum = 0.0, squares = 0.0;
  double mean = 0.0, m2 = 0.0;
  uint64_t count = 0;
  uint32_t unsettled = 0, zeros = 0;
  bool started = false;
  Value low, high;
  excluded_count excluded;

  __device__ explicit stats_state(const reduce_params &) {
    set_top(low);
    set_bottom(high);
  }

  template <typename Reader> __device__ void add_finite(const Reader &reader, Value v) {
    const double x = reader.number(v), distance = x - pivot;
    sum += distance;
    squares += distance * distance;
    zeros += x == 0.0;
    low = lesser(low, v);
    high = greater(high, v);
  }

  template <typename Reader, int kCount>
  __device__ void add(const Reader &reader, const Value (&v)[kCount]) {
    if (all_finite(v)) {
      if (!started) {
        pivot = reader.number(v[0]);
        started = true;
      }
#pragma unroll
      for (int i = 0; i < kCount; i++) {
        add_finite(reader, v[i]);
      }
      unsettled += kCount;
      return;
    }
    for (int i = 0; i < kCount; i++) {
      if (!is_finite(v[i])) {
        excluded.add(reader.number(v[i]));
        continue;
      }
      if (!started) {
        pivot = reader.number(v[i]);
        started = true;
      }
      add_finite(reader, v[i]);
      unsettled++;
    }
  }

  __device__ void settle() {
    if (unsettled > 0) {
      const double shift = sum / static_cast<double>(unsettled);
      const double rest = squares - sum * shift;
      merge_moments(count, mean, m2, unsettled, pivot + shift, rest > 0.0 ? rest : 0.0);
      pivot = mean;
      sum = squares = 0.0;
      unsettled = 0;
    }
  }

  template <typename Reader> __device__ result get(const Reader &reader) const {
    result r;
    set_empty(r, std::is_same_v<Value, uint64_t>);
    r.mean = mean;
    r.m2 = m2;
    r.finite_count = count;
    r.zero_count = zeros;
    r.nan_count = excluded.nan;
    r.low_count = excluded.low;
    r.high_count = excluded.high;
    if (count > 0) {
      r.extremes = {stored(reader, low), stored(reader, high)};
    }
    return r;
  }
};

/* Each split of a cell is read by a team of threads: a thread block or, where there are many
 * cells, a warp. */
template <typename Reader, typename State, bool kVector>
__global__ void __launch_bounds__(kThreads, kVector && sizeof(typename Reader::raw) > 1 ? 4 : 3)
    cells_kernel(const __grid_constant__ reduce_params p) {
  using result = typename State::result;
  constexpr bool kKeyed = std::is_same_v<typename Reader::value, uint64_t>;
  __shared__ box boxes[kWarps];
  __shared__ float table[kThreads];
  __shared__ result of_warps[kWarps];
  const int team = kVector && p.warps ? kWarp : kThreads, teams = kThreads / team;
  const int of_team = static_cast<int>(threadIdx.x) & (team - 1);
  const int number = kVector && p.warps ? static_cast<int>(threadIdx.x) / kWarp : 0;
  box &b = boxes[number];
  const int64_t index = static_cast<int64_t>(blockIdx.x) * teams + number;
  const int64_t cell = p.splits > 1 ? index / p.splits : index;
  const int64_t split = index - cell * p.splits;
  if (of_team == 0 && cell < p.job.cell_count) {
    find_box(p.job, cell, p.job.ndim, &b);
  }
  __syncthreads();
  const Reader reader(p, table);
  if (cell >= p.job.cell_count) { /* a warp of the last thread block */
    return;
  }
  State state(p);
  if (kVector) {
    walk_rows(team, p, b, split, reader, state);
  } else {
    walk_elements(p, b, split, reader, state);
  }
  result r = state.get(reader);
  if (team == kThreads) {
    merge_thread_block(r, of_warps, kKeyed);
  } else {
    warp_merge(r, kWarp, kKeyed);
  }
  if (of_team == 0) {
    static_cast<result *>(p.out)[split * p.job.cell_count + b.out] = r;
  }
  if (State::kExcludedInHead) {
    state.excluded.add_to(p.head);
  }
}

struct launch {
  const reduce_params &p;
  unsigned thread_blocks;
  cudaStream_t stream;

  template <typename Reader, typename State> cudaError_t start() const {
    const auto kernel =
        p.vector ? cells_kernel<Reader, State, true> : cells_kernel<Reader, State, false>;
    return launch_kernel(kernel, thread_blocks, kThreads, 0, stream, p);
  }

  template <typename Reader> cudaError_t run() const {
    using value = typename Reader::value;
    switch (p.job.kind) {
    case GPUFI_REDUCE_STATS:
      return start<Reader, stats_state<value>>();
    case GPUFI_REDUCE_MEAN:
    case GPUFI_REDUCE_RMS:
      return start<Reader, sum_state>();
    default:
      return start<Reader, extremes_state<value>>();
    }
  }
};

} // namespace

cudaError_t launch_cells(const reduce_params &p, unsigned thread_blocks, cudaStream_t stream) {
  return with_reader(p.job.dtype, launch{p, thread_blocks, stream});
}

} // namespace gpufi
