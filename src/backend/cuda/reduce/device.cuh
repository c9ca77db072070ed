/* What the reduction kernels share: their arguments, reading elements, merging results. */
#ifndef GPUFI_BACKEND_CUDA_REDUCE_DEVICE_CUH
#define GPUFI_BACKEND_CUDA_REDUCE_DEVICE_CUH

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math_constants.h>

#include <cstring>
#include <type_traits>

#include "backend/reduce_impl.h"

namespace gpufi {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr unsigned kAllLanes = 0xffffffffu;

/* A launch. The first block index runs over cells (or tiles of them) and, within each, `splits`
 * parts of its elements; part s of cell c leaves what it keeps at out[s * cell_count + c]. */
struct reduce_params {
  gpufi_reduce job;
  const char *base;
  gpufi_reduce_head *head;
  void *out; /* of kinds that keep nothing: the result's plane */
  int64_t splits;
  bool vector;  /* 16-byte (columns: wide enough) loads along the last axis */
  bool warps;   /* a warp for each cell, not a block; only with `vector` and one split */
  bool aligned; /* every address is a multiple of the element's size */
  /* Columns: */
  int64_t tiles;          /* along the last axis */
  int64_t cells_per_tile; /* along the last axis */
  int32_t columns_log2;   /* threads along the last axis; the others go down the rows */
  int32_t lanes;          /* that share a cell at the end; a power of two up to 32 */
  /* Histogram: */
  const double *edges;
  double bin_scale;
  int32_t copies; /* of the bins in shared memory; 0: counted in device memory */
  bool edges_shared;
  /* Values of a one-byte type. */
  float byte_table[256];
};

/* --- Reading --------------------------------------------------------------- */

/* A reader says what an element's bits mean: `value` is compared, `number` added. */

struct read_byte {
  using raw = uint8_t;
  using value = float;
  const float *table;
  __device__ read_byte(const reduce_params &p, float *shared) : table(shared) {
    shared[threadIdx.x] = p.byte_table[threadIdx.x];
    __syncthreads();
  }
  __device__ value of(raw bits) const {
    return table[bits];
  }
  __device__ double number(value v) const {
    return v;
  }
};

struct read_half {
  using raw = uint16_t;
  using value = float;
  __device__ read_half(const reduce_params &, float *) {}
  __device__ value of(raw bits) const {
    return __half2float(__ushort_as_half(bits));
  }
  __device__ double number(value v) const {
    return v;
  }
};

struct read_bfloat16 {
  using raw = uint16_t;
  using value = float;
  __device__ read_bfloat16(const reduce_params &, float *) {}
  __device__ value of(raw bits) const {
    return __uint_as_float(static_cast<uint32_t>(bits) << 16);
  }
  __device__ double number(value v) const {
    return v;
  }
};

/* Signed and unsigned: flipping the sign bit moves a signed value up by the bias. */
struct read_int16 {
  using raw = uint16_t;
  using value = float;
  uint32_t flip;
  float bias;
  __device__ read_int16(const reduce_params &p, float *)
      : flip(p.job.dtype == GPUF_DTYPE_INT16 ? 0x8000u : 0u), bias(static_cast<float>(flip)) {}
  __device__ value of(raw bits) const {
    return static_cast<float>(bits ^ flip) - bias;
  }
  __device__ double number(value v) const {
    return v;
  }
};

struct read_int32 {
  using raw = uint32_t;
  using value = uint32_t;
  uint32_t flip;
  double bias;
  __device__ read_int32(const reduce_params &p, float *)
      : flip(p.job.dtype == GPUF_DTYPE_INT32 ? 0x80000000u : 0u), bias(flip) {}
  __device__ value of(raw bits) const {
    return bits ^ flip;
  }
  __device__ double number(value v) const {
    return static_cast<double>(v) - bias;
  }
};

struct read_int64 {
  using raw = uint64_t;
  using value = uint64_t;
  uint64_t flip;
  __device__ read_int64(const reduce_params &p, float *)
      : flip(gpufi_reduce_key_flip(p.job.dtype)) {}
  __device__ value of(raw bits) const {
    return bits ^ flip;
  }
  __device__ double number(value v) const {
    return flip ? static_cast<double>(static_cast<int64_t>(v ^ flip)) : static_cast<double>(v);
  }
};

struct read_float {
  using raw = uint32_t;
  using value = float;
  __device__ read_float(const reduce_params &, float *) {}
  __device__ value of(raw bits) const {
    return __uint_as_float(bits);
  }
  __device__ double number(value v) const {
    return v;
  }
};

struct read_double {
  using raw = uint64_t;
  using value = double;
  __device__ read_double(const reduce_params &, float *) {}
  __device__ value of(raw bits) const {
    return __longlong_as_double(static_cast<long long>(bits));
  }
  __device__ double number(value v) const {
    return v;
  }
};

__device__ inline bool is_finite(float v) {
  return fabsf(v) < CUDART_INF_F;
}
__device__ inline bool is_finite(double v) {
  return fabs(v) < CUDART_INF;
}
__device__ inline bool is_finite(uint32_t) {
  return true;
}
__device__ inline bool is_finite(uint64_t) {
  return true;
}

template <typename Value, int kCount> __device__ bool all_finite(const Value (&v)[kCount]) {
  bool all = true;
#pragma unroll
  for (int i = 0; i < kCount; i++) {
    all = all && is_finite(v[i]);
  }
  return all;
}

/* The lesser and the greater of two that are not NaN. */
__device__ inline float lesser(float a, float b) {
  return fminf(a, b);
}
__device__ inline double lesser(double a, double b) {
  return fmin(a, b);
}
__device__ inline uint32_t lesser(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}
__device__ inline uint64_t lesser(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}
__device__ inline float greater(float a, float b) {
  return fmaxf(a, b);
}
__device__ inline double greater(double a, double b) {
  return fmax(a, b);
}
__device__ inline uint32_t greater(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}
__device__ inline uint64_t greater(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

__device__ inline void set_top(float &v) {
  v = CUDART_INF_F;
}
__device__ inline void set_top(double &v) {
  v = CUDART_INF;
}
__device__ inline void set_top(uint32_t &v) {
  v = UINT32_MAX;
}
__device__ inline void set_top(uint64_t &v) {
  v = UINT64_MAX;
}
__device__ inline void set_bottom(float &v) {
  v = -CUDART_INF_F;
}
__device__ inline void set_bottom(double &v) {
  v = -CUDART_INF;
}
__device__ inline void set_bottom(uint32_t &v) {
  v = 0;
}
__device__ inline void set_bottom(uint64_t &v) {
  v = 0;
}

/* A compared value as it is kept. */
template <typename Reader>
__device__ gpufi_reduce_number stored(const Reader &reader, typename Reader::value v) {
  gpufi_reduce_number n;
  if constexpr (std::is_same_v<typename Reader::value, uint64_t>) {
    n.key = v;
  } else {
    n.number = reader.number(v);
  }
  return n;
}

template <typename Raw> __device__ Raw load_one(const char *from, bool aligned) {
  if (aligned) {
    return __ldg(reinterpret_cast<const Raw *>(from));
  }
  uint64_t bits = 0;
  for (unsigned i = 0; i < sizeof(Raw); i++) {
    bits |= static_cast<uint64_t>(static_cast<unsigned char>(from[i])) << (8 * i);
  }
  return static_cast<Raw>(bits);
}
template <> __device__ inline uint64_t load_one<uint64_t>(const char *from, bool aligned) {
  if (aligned) {
    return __ldg(reinterpret_cast<const unsigned long long *>(from));
  }
  uint64_t bits = 0;
  for (unsigned i = 0; i < 8; i++) {
    bits |= static_cast<uint64_t>(static_cast<unsigned char>(from[i])) << (8 * i);
  }
  return bits;
}

/* 4, 8 or 16 bytes by one load, at an address that is a multiple of as many. */
template <int kWords> struct word_pack {
  uint32_t at[kWords];

  __device__ void load(const char *from) {
    if constexpr (kWords == 4) {
      const uint4 v = __ldg(reinterpret_cast<const uint4 *>(from));
      at[0] = v.x, at[1] = v.y, at[2] = v.z, at[3] = v.w;
    } else if constexpr (kWords == 2) {
      const uint2 v = __ldg(reinterpret_cast<const uint2 *>(from));
      at[0] = v.x, at[1] = v.y;
    } else {
      at[0] = __ldg(reinterpret_cast<const uint32_t *>(from));
    }
  }

  /* Element i, for an i known at compile time. */
  template <typename Raw> __device__ Raw element(int i) const {
    if constexpr (sizeof(Raw) == 8) {
      return static_cast<uint64_t>(at[2 * i + 1]) << 32 | at[2 * i];
    } else {
      constexpr int kIn = 4 / sizeof(Raw);
      return static_cast<Raw>(at[i / kIn] >> (8 * sizeof(Raw) * (i % kIn)));
    }
  }
};

/* --- Where a cell's elements are -------------------------------------------- */

struct box {
  int64_t offset; /* bytes from the base to its first element */
  int64_t out;    /* index in the result */
  int64_t rows;   /* combinations of all axes but the last of the job */
  int64_t length; /* along the last of the job */
  int64_t lengths[GPUF_NDIM_MAX];
};

/* Cell number `cell` of the first `ndim` axes (all, or all but the last). By one thread. */
__device__ inline void find_box(const gpufi_reduce &job, int64_t cell, int ndim, box *b) {
  b->offset = 0;
  b->out = 0;
  b->rows = 1;
  b->length = 1;
#pragma unroll 1 /* four 64-bit divisions each */
  for (int axis = ndim - 1; axis >= 0; axis--) {
    const gpufi_reduce_axis &a = job.axes[axis];
    const int64_t outer = cell / a.cell_count;
    const int64_t i = cell - outer * a.cell_count;
    const int64_t begin = gpufi_reduce_bound(&a, i);
    cell = outer;
    b->lengths[axis] = gpufi_reduce_bound(&a, i + 1) - begin;
    b->offset += begin * a.stride_nbytes;
    b->out += i * a.cell_stride;
    if (axis == job.ndim - 1) {
      b->length = b->lengths[axis];
    } else {
      b->rows *= b->lengths[axis];
    }
  }
}

/* Byte offsets, from the box's first element, of kCount elements, `step` apart in C order over the
 * first `ndim` axes. They take each axis together, so that their divisions overlap. Index: as for
 * packing, the narrowest type that holds the last index. */
template <int kCount, typename Index>
__device__ void offsets_in_box(const gpufi_reduce &job, const box &b, Index first, Index step,
                               int ndim, int64_t (&offsets)[kCount]) {
  Index index[kCount];
#pragma unroll
  for (int k = 0; k < kCount; k++) {
    index[k] = first + static_cast<Index>(k) * step;
    offsets[k] = 0;
  }
#pragma unroll 1 /* each copy of the loop's body would hold kCount divisions */
  for (int axis = ndim - 1; axis > 0; axis--) {
    const Index length = static_cast<Index>(b.lengths[axis]);
    const int64_t stride_nbytes = job.axes[axis].stride_nbytes;
#pragma unroll
    for (int k = 0; k < kCount; k++) {
      const Index outer = index[k] / length;
      offsets[k] += static_cast<int64_t>(index[k] - outer * length) * stride_nbytes;
      index[k] = outer;
    }
  }
#pragma unroll
  for (int k = 0; k < kCount; k++) {
    offsets[k] += ndim > 0 ? static_cast<int64_t>(index[k]) * job.axes[0].stride_nbytes : 0;
  }
}

/* The same for a box of `count` elements over these axes. */
template <int kCount>
__device__ void box_offsets(const gpufi_reduce &job, const box &b, int64_t first, int64_t step,
                            int64_t count, int ndim, int64_t (&offsets)[kCount]) {
  if (count <= UINT32_MAX) {
    offsets_in_box(job, b, static_cast<uint32_t>(first), static_cast<uint32_t>(step), ndim,
                   offsets);
  } else {
    offsets_in_box(job, b, static_cast<uint64_t>(first), static_cast<uint64_t>(step), ndim,
                   offsets);
  }
}

__device__ inline int64_t box_offset(const gpufi_reduce &job, const box &b, int64_t index,
                                     int64_t count, int ndim) {
  int64_t offset[1];
  box_offsets(job, b, index, 0, count, ndim, offset);
  return offset[0];
}

/* --- Results ----------------------------------------------------------------- */

/* Elements of a thread that are not finite (of a histogram: not in a bin). */
struct odd_count {
  uint32_t nan = 0, low = 0, high = 0;

  __device__ void add(double number) {
    if (number != number) {
      nan++;
    } else if (number < 0.0) {
      low++;
    } else {
      high++;
    }
  }

  /* By every thread of the block. Integers: the order of the additions does not matter. */
  __device__ void add_to(gpufi_reduce_head *head) {
    if (!__any_sync(kAllLanes, (nan | low | high) != 0)) {
      return;
    }
    for (int d = 16; d > 0; d /= 2) {
      nan += __shfl_down_sync(kAllLanes, nan, d);
      low += __shfl_down_sync(kAllLanes, low, d);
      high += __shfl_down_sync(kAllLanes, high, d);
    }
    if (threadIdx.x % 32 == 0) {
      atomicAdd(reinterpret_cast<unsigned long long *>(&head->nan_count), nan);
      atomicAdd(reinterpret_cast<unsigned long long *>(&head->low_count), low);
      atomicAdd(reinterpret_cast<unsigned long long *>(&head->high_count), high);
    }
  }
};

__device__ inline void set_empty(gpufi_reduce_sum &r, bool) {
  r.sum = 0.0;
  r.count = 0;
}

__device__ inline void set_empty(gpufi_reduce_extremes &r, bool keyed) {
  if (keyed) {
    r.low.key = UINT64_MAX;
    r.high.key = 0;
  } else {
    r.low.number = CUDART_INF;
    r.high.number = -CUDART_INF;
  }
}

__device__ inline void set_empty(gpufi_reduce_stats &r, bool keyed) {
  r.mean = r.m2 = 0.0;
  r.finite_count = r.zero_count = r.nan_count = r.low_count = r.high_count = 0;
  set_empty(r.extremes, keyed);
}

__device__ inline void merge(gpufi_reduce_sum &a, const gpufi_reduce_sum &b, bool) {
  a.sum += b.sum;
  a.count += b.count;
}

__device__ inline void merge(gpufi_reduce_extremes &a, const gpufi_reduce_extremes &b, bool keyed) {
  if (keyed) {
    a.low.key = lesser(a.low.key, b.low.key);
    a.high.key = greater(a.high.key, b.high.key);
  } else {
    a.low.number = lesser(a.low.number, b.low.number);
    a.high.number = greater(a.high.number, b.high.number);
  }
}

/* Mean and squared distances of two sets together. */
__device__ inline void merge_moments(uint64_t &count, double &mean, double &m2, uint64_t count_b,
                                     double mean_b, double m2_b) {
  if (count_b > 0) {
    const double distance = mean_b - mean;
    const double share = static_cast<double>(count_b) / static_cast<double>(count + count_b);
    m2 += m2_b + distance * (distance * (static_cast<double>(count) * share));
    mean = count > 0 ? mean + distance * share : mean_b;
    count += count_b;
  }
}

__device__ inline void merge(gpufi_reduce_stats &a, const gpufi_reduce_stats &b, bool keyed) {
  merge_moments(a.finite_count, a.mean, a.m2, b.finite_count, b.mean, b.m2);
  a.zero_count += b.zero_count;
  a.nan_count += b.nan_count;
  a.low_count += b.low_count;
  a.high_count += b.high_count;
  merge(a.extremes, b.extremes, keyed);
}

template <typename Result>
__device__ Result shuffle_down(const Result &result, int distance, int width = 32) {
  static_assert(sizeof(Result) % 8 == 0, "whole words");
  unsigned long long words[sizeof(Result) / 8];
  Result moved;
  memcpy(words, &result, sizeof(result));
  for (unsigned i = 0; i < sizeof(Result) / 8; i++) {
    words[i] = __shfl_down_sync(kAllLanes, words[i], distance, width);
  }
  memcpy(&moved, words, sizeof(moved));
  return moved;
}

/* Of groups of `width` lanes; complete in the first lane of each. */
template <typename Result> __device__ void merge_lanes(Result &result, int width, bool keyed) {
  for (int distance = width / 2; distance > 0; distance /= 2) {
    merge(result, shuffle_down(result, distance, width), keyed);
  }
}

/* Of all threads; complete in thread 0. `shared` holds kWarps. */
template <typename Result> __device__ void merge_block(Result &result, Result *shared, bool keyed) {
  merge_lanes(result, 32, keyed);
  if (threadIdx.x % 32 == 0) {
    shared[threadIdx.x / 32] = result;
  }
  __syncthreads();
  for (int warp = 1; warp < kWarps && threadIdx.x == 0; warp++) {
    merge(result, shared[warp], keyed);
  }
}

/* Call f.run<Reader>() with the reader of a type. */
template <typename Function> cudaError_t with_reader(gpuf_dtype dtype, const Function &f) {
  switch (dtype) {
  case GPUF_DTYPE_INT16:
  case GPUF_DTYPE_UINT16:
    return f.template run<read_int16>();
  case GPUF_DTYPE_INT32:
  case GPUF_DTYPE_UINT32:
    return f.template run<read_int32>();
  case GPUF_DTYPE_INT64:
  case GPUF_DTYPE_UINT64:
    return f.template run<read_int64>();
  case GPUF_DTYPE_FLOAT16:
    return f.template run<read_half>();
  case GPUF_DTYPE_BFLOAT16:
    return f.template run<read_bfloat16>();
  case GPUF_DTYPE_FLOAT32:
    return f.template run<read_float>();
  case GPUF_DTYPE_FLOAT64:
    return f.template run<read_double>();
  default:
    return f.template run<read_byte>();
  }
}

/* The launchers: cells.cu, columns.cu, histogram.cu. */
cudaError_t launch_cells(const reduce_params &p, unsigned blocks, cudaStream_t stream);
cudaError_t launch_columns(const reduce_params &p, unsigned blocks, cudaStream_t stream);
cudaError_t launch_histogram(const reduce_params &p, unsigned blocks, cudaStream_t stream);

} // namespace gpufi

#endif
