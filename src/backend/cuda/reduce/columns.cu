/* Narrow cells: a thread block takes a tile of whole cells along the last axis and goes down the
 * rows of their outer cell, a thread keeping the same few columns all the way. At the end the
 * columns of each cell are added up through shared memory. */
#include "backend/cuda/launch.cuh"
#include "backend/cuda/reduce/box.cuh"
#include "backend/cuda/reduce/results.cuh"

namespace gpufi {
namespace {

template <typename Reader> constexpr int kColumns = sizeof(typename Reader::raw) == 8 ? 2 : 4;

/* A state has the partial results of a thread's kCount columns; `mask` says which of them belong to
 * the tile. */

template <typename Value, int kCount> struct sum_columns {
  using result = gpufi_reduce_sum;
  bool squares;
  double sum[kCount] = {};
  uint32_t bad[kCount] = {}; /* not finite */
  uint32_t rows = 0;

  __device__ explicit sum_columns(const reduce_params &p)
      : squares(p.job.kind == GPUFI_REDUCE_RMS) {}

  template <typename Reader>
  __device__ void add(const Reader &reader, const Value (&v)[kCount], unsigned mask,
                      excluded_count &excluded) {
    rows++;
    if (!all_finite(v)) {
      add_some(reader, v, mask, excluded);
    } else if (squares) { /* one branch for all */
#pragma unroll
      for (int j = 0; j < kCount; j++) {
        const double x = reader.number(v[j]);
        sum[j] += x * x;
      }
    } else {
#pragma unroll
      for (int j = 0; j < kCount; j++) {
        sum[j] += reader.number(v[j]);
      }
    }
  }

  template <typename Reader>
  __device__ void add_some(const Reader &reader, const Value (&v)[kCount], unsigned mask,
                           excluded_count &excluded) {
#pragma unroll
    for (int j = 0; j < kCount; j++) {
      const double x = reader.number(v[j]);
      if (is_finite(v[j])) {
        sum[j] += squares ? x * x : x;
      } else {
        bad[j]++;
        if (mask >> j & 1) {
          excluded.add(x);
        }
      }
    }
  }

  template <typename Reader> __device__ result get(const Reader &, int j) const {
    return {sum[j], rows - bad[j]};
  }
};

template <typename Value, int kCount> struct extremes_columns {
  using result = gpufi_reduce_extremes;
  Value low[kCount], high[kCount];

  __device__ explicit extremes_columns(const reduce_params &) {
    for (int j = 0; j < kCount; j++) {
      set_top(low[j]);
      set_bottom(high[j]);
    }
  }

  template <typename Reader>
  __device__ void add(const Reader &reader, const Value (&v)[kCount], unsigned mask,
                      excluded_count &excluded) {
    if (all_finite(v)) {
#pragma unroll
      for (int j = 0; j < kCount; j++) {
        low[j] = lesser(low[j], v[j]);
        high[j] = greater(high[j], v[j]);
      }
      return;
    }
#pragma unroll
    for (int j = 0; j < kCount; j++) {
      low[j] = v[j] < low[j] ? v[j] : low[j]; /* NaN, also a signalling one, compares false */
      high[j] = v[j] > high[j] ? v[j] : high[j];
      if (!is_finite(v[j]) && (mask >> j & 1)) {
        excluded.add(reader.number(v[j]));
      }
    }
  }
  template <typename Reader> __device__ result get(const Reader &reader, int j) const {
    return {stored(reader, low[j]), stored(reader, high[j])};
  }
};

/* The cells along the last axis that the thread block takes, and this thread's columns of theirs.
 */
struct tile {
  int64_t first_cell, end_cell;
  int64_t first_column, end_column;
  int64_t origin; /* local column 0 */
  int tx, ty;     /* the thread's place along the last axis, and down the rows */
  int tx_count, ty_count;

  __device__ tile(const reduce_params &p, const gpufi_reduce_axis &inner, int64_t index,
                  int columns) {
    first_cell = index * p.cells_per_tile;
    end_cell = first_cell + p.cells_per_tile;
    end_cell = end_cell < inner.cell_count ? end_cell : inner.cell_count;
    first_column = bound_of(inner, first_cell);
    end_column = bound_of(inner, end_cell);
    origin = p.vector ? first_column / columns * columns : first_column;
    tx_count = 1 << p.columns_log2;
    ty_count = kThreads >> p.columns_log2;
    tx = static_cast<int>(threadIdx.x) & (tx_count - 1);
    ty = static_cast<int>(threadIdx.x) >> p.columns_log2;
  }

  /* The local column that is this thread's column j. */
  __device__ int local(bool vector, int columns, int j) const {
    return vector ? tx * columns + j : j * tx_count + tx;
  }
};

template <typename Reader, bool kVector>
__device__ void load_columns(const char *from, int64_t step_nbytes, unsigned mask, bool aligned,
                             typename Reader::raw (&raw)[kColumns<Reader>]) {
  using raw_type = typename Reader::raw;
  constexpr int kCount = kColumns<Reader>;
  if constexpr (kVector) {
    word_pack<kCount * sizeof(raw_type) / 4> pack;
    pack.load(from);
#pragma unroll
    for (int j = 0; j < kCount; j++) {
      raw[j] = pack.template element<raw_type>(j);
    }
  } else {
#pragma unroll
    for (int j = 0; j < kCount; j++) {
      raw[j] = mask >> j & 1 ? load_one<raw_type>(from + j * step_nbytes, aligned) : raw_type(0);
    }
  }
}

/* Rows first .. end-1, whose offsets are in `row_offsets`, kThreads at a time. */
template <typename Reader, typename State, bool kVector>
__device__ void walk_columns(const reduce_params &p, const box &b, int64_t first, int64_t end,
                             const tile &t, const char *from, int64_t step_nbytes, unsigned mask,
                             int64_t *row_offsets, const Reader &reader, State &state,
                             excluded_count &excluded) {
  constexpr int kCount = kColumns<Reader>, kUnroll = 4;
  for (int64_t start = first; start < end; start += kThreads) {
    const int64_t mine = start + threadIdx.x;
    const int here = static_cast<int>(end - start < kThreads ? end - start : kThreads);
    __syncthreads();
    if (mine < end) {
      row_offsets[threadIdx.x] = box_offset(p.job, b, mine, b.rows, p.job.ndim - 1);
    }
    __syncthreads();
    if (mask == 0) {
      continue;
    }
    int r = t.ty;
    for (; r + (kUnroll - 1) * t.ty_count < here; r += kUnroll * t.ty_count) {
      typename Reader::raw raw[kUnroll][kCount];
#pragma unroll
      for (int k = 0; k < kUnroll; k++) {
        load_columns<Reader, kVector>(from + row_offsets[r + k * t.ty_count], step_nbytes, mask,
                                      p.aligned, raw[k]);
      }
#pragma unroll
      for (int k = 0; k < kUnroll; k++) {
        typename Reader::value v[kCount];
#pragma unroll
        for (int j = 0; j < kCount; j++) {
          v[j] = reader.of(raw[k][j]);
        }
        state.add(reader, v, mask, excluded);
      }
    }
    for (; r < here; r += t.ty_count) {
      typename Reader::raw raw[kCount];
      typename Reader::value v[kCount];
      load_columns<Reader, kVector>(from + row_offsets[r], step_nbytes, mask, p.aligned, raw);
#pragma unroll
      for (int j = 0; j < kCount; j++) {
        v[j] = reader.of(raw[j]);
      }
      state.add(reader, v, mask, excluded);
    }
  }
}

/* Teams of p.lanes threads take a cell each and merge its columns. */
template <typename Result>
__device__ void merge_cells(const reduce_params &p, const gpufi_reduce_axis &inner, const tile &t,
                            const Result *columns, int width, Result *out, bool keyed) {
  const int team = static_cast<int>(threadIdx.x) / p.lanes;
  const int lane = static_cast<int>(threadIdx.x) % p.lanes;
  const int64_t cell_count = t.end_cell - t.first_cell;
  for (int64_t start = 0; start < cell_count; start += kThreads / p.lanes) {
    const int64_t cell = t.first_cell + start + team;
    Result r;
    set_empty(r, keyed);
    if (cell < t.end_cell) {
      const int low = static_cast<int>(bound_of(inner, cell) - t.origin);
      const int high = static_cast<int>(bound_of(inner, cell + 1) - t.origin);
      for (int y = 0; y < t.ty_count; y++) {
        for (int c = low + lane; c < high; c += p.lanes) {
          merge(r, columns[y * width + c], keyed);
        }
      }
    }
    warp_merge(r, p.lanes, keyed);
    if (lane == 0 && cell < t.end_cell) {
      out[cell * inner.cell_stride] = r;
    }
  }
}

template <typename Reader, typename State, bool kVector>
__global__ void __launch_bounds__(kThreads, 4)
    columns_kernel(const __grid_constant__ reduce_params p) {
  using result = typename State::result;
  constexpr int kCount = kColumns<Reader>;
  constexpr bool kKeyed = std::is_same_v<typename Reader::value, uint64_t>;
  __shared__ box b;
  __shared__ float table[kThreads];
  __shared__ int64_t row_offsets[kThreads];
  __shared__ result columns[kThreads * kCount];
  const gpufi_reduce_axis &inner = p.job.axes[p.job.ndim - 1];
  const int64_t index = blockIdx.x / p.tiles; /* of an outer cell, and within it a split */
  const tile t(p, inner, blockIdx.x - index * p.tiles, kCount);
  const int64_t split = index % p.splits;
  if (threadIdx.x == 0) {
    find_box(p.job, index / p.splits, p.job.ndim - 1, &b);
  }
  __syncthreads();
  const Reader reader(p, table);
  State state(p);
  excluded_count excluded;
  unsigned mask = 0;
  for (int j = 0; j < kCount; j++) {
    const int64_t column = t.origin + t.local(kVector, kCount, j);
    mask |= (column >= t.first_column && column < t.end_column ? 1u : 0u) << j;
  }
  const int64_t rows_per_split = (b.rows + p.splits - 1) / p.splits;
  const int64_t first = split * rows_per_split;
  const int64_t end = first + rows_per_split < b.rows ? first + rows_per_split : b.rows;
  const char *from =
      p.base + b.offset + (t.origin + t.local(kVector, kCount, 0)) * inner.stride_nbytes;
  walk_columns<Reader, State, kVector>(p, b, first, end, t, from, t.tx_count * inner.stride_nbytes,
                                       mask, row_offsets, reader, state, excluded);
  const int width = t.tx_count * kCount;
  for (int j = 0; j < kCount; j++) {
    columns[t.ty * width + t.local(kVector, kCount, j)] = state.get(reader, j);
  }
  __syncthreads();
  merge_cells(p, inner, t, columns, width,
              static_cast<result *>(p.out) + split * p.job.cell_count + b.out, kKeyed);
  excluded.add_to(p.head);
}

struct launch {
  const reduce_params &p;
  unsigned thread_blocks;
  cudaStream_t stream;

  template <typename Reader, typename State> cudaError_t start() const {
    const auto kernel =
        p.vector ? columns_kernel<Reader, State, true> : columns_kernel<Reader, State, false>;
    return launch_kernel(kernel, thread_blocks, kThreads, 0, stream, p);
  }

  template <typename Reader> cudaError_t run() const {
    using value = typename Reader::value;
    return gpufi_reduce_is_extreme(p.job.kind)
               ? start<Reader, extremes_columns<value, kColumns<Reader>>>()
               : start<Reader, sum_columns<value, kColumns<Reader>>>();
  }
};

} // namespace

cudaError_t launch_columns(const reduce_params &p, unsigned thread_blocks, cudaStream_t stream) {
  return with_reader(p.job.dtype, launch{p, thread_blocks, stream});
}

} // namespace gpufi
