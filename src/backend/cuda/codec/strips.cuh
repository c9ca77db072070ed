/* A run as strips: 32 values of a row that follow each other, one for each thread; for chunks whose
 * rows are whole strips. decode_strips.cu says how they are decoded. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_STRIPS_CUH
#define GPUFI_BACKEND_CUDA_CODEC_STRIPS_CUH

#include "backend/cuda/codec/axes.cuh"
#include "backend/cuda/codec/strip_unpack.cuh"

namespace gpufi {

static_assert(kStrip * kThreads == kRunValues, "a thread has a strip of the run");
constexpr uint32_t kPlanesMax = 1 + kRunValues / GPUFI_STRIP_PLANE_MIN; /* that begin in a run */

/* In shared memory a strip is followed by a gap of 16 bytes, so that threads side by side do not
 * meet in a bank, whether each takes its own strip or the next 16 bytes of a row. */
template <typename T> constexpr uint32_t kStripPacks = kStrip * sizeof(T) / 16;
template <typename T> constexpr uint32_t kStripPitch = kStripPacks<T> + 1; /* in packs */
template <typename T>
constexpr size_t kStripsNbytes = kThreads * kStripPitch<T> * sizeof(value_pack<T>);

/* Where pack `index` of the run is. */
template <typename T> __device__ inline uint32_t pack_at(uint32_t index) {
  return index + index / kStripPacks<T>;
}

/* A run of the chunk, and where the calling thread's strip is in it. A plane is what the two
 * innermost axes make up; a chunk of less than three axes is one. */
template <typename T> struct strip_run {
  const chunk_grid &grid;
  const run_place<T> &at;
  loading how;
  uint32_t subset;
  const uint32_t *run_done; /* of the chunk, as the next two: see decode_job */
  uint32_t *run_told;
  value_pack<T> *run_sums;

  __device__ uint32_t plane_of(uint32_t row) const {
    return grid.axis_count > 2 ? divide(row, grid.dims[1]) : 0;
  }
  /* Of a row in its plane. */
  __device__ uint32_t index_in_plane(uint32_t row) const {
    return grid.axis_count > 2 ? row - plane_of(row) * grid.dims[1].d : row;
  }
  __device__ bool has_planes() const {
    return grid.axis_count > 2;
  }
  __device__ uint32_t plane_values() const {
    return grid.strides[2];
  }
  /* The first plane that begins in the run or behind it. */
  __device__ uint32_t first_plane() const {
    const uint32_t plane = plane_of(at.row);
    const bool begins = at.column == 0 && index_in_plane(at.row) == 0;
    return begins ? plane : plane + 1;
  }

  /* What runs before this one have decoded. */
  __device__ T value(uint32_t i) const {
    return load_done(at.raw + i, how);
  }
  __device__ value_pack<T> pack(uint32_t i) const {
    return load_done(reinterpret_cast<const value_pack<T> *>(at.raw + i), how);
  }

  /* Until run `run` is done. Every thread by itself, which is faster than one for all. */
  __device__ void wait_for(uint32_t run) const {
    while (load_acquire(run_done + run) == 0) {
    }
  }
  /* Until all runs before this one are done, if each of them waits for the one before. */
  __device__ void wait() const {
    if (at.run != 0) {
      wait_for(at.run - 1);
    }
  }
};

/* The sum over the lanes from `first` on up to and with this one. */
template <typename T> __device__ __forceinline__ T scan_from(T x, int lane, int first) {
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const T below = __shfl_up_sync(kAllLanes, x, step);
    x = lane - step >= first ? static_cast<T>(x + below) : x;
  }
  return x;
}

/* What the warps before this one add to a sum that goes back by `back` threads from lane 0: the
 * last of each one's sums is in `tails`. */
template <typename T>
__device__ __forceinline__ T sum_of_tails(const T *tails, uint32_t warp, uint32_t back) {
  T sum = 0;
  for (uint32_t w = warp; w > 0 && back > 0;) {
    sum = static_cast<T>(sum + tails[--w]);
    back -= back < kWarp ? back : kWarp;
  }
  return sum;
}

template <typename T> __device__ inline T sum_of(const T *v) {
  T sum = 0;
#pragma unroll
  for (uint32_t t = 0; t < kStrip; t++) {
    sum = static_cast<T>(sum + v[t]);
  }
  return sum;
}

template <typename T>
__device__ __forceinline__ void store_strip(value_pack<T> *packs, uint32_t strip, const T *v) {
  constexpr uint32_t kCount = pack_of<value_pack<T>>::kCount;
#pragma unroll
  for (uint32_t k = 0; k < kStripPacks<T>; k++) {
    value_pack<T> pack;
    memcpy(&pack, v + k * kCount, sizeof(pack));
    packs[strip * kStripPitch<T> + k] = pack;
  }
}

template <typename T>
__device__ __forceinline__ void load_strip(const value_pack<T> *packs, uint32_t strip, T *v) {
  constexpr uint32_t kCount = pack_of<value_pack<T>>::kCount;
#pragma unroll
  for (uint32_t k = 0; k < kStripPacks<T>; k++) {
    const value_pack<T> pack = packs[strip * kStripPitch<T> + k];
    memcpy(v + k * kCount, &pack, sizeof(pack));
  }
}

/* Store packs of values as raw bytes: kPacks of them, `stride` packs apart, as many as `count`. */
template <int kPacks, typename T>
__device__ __forceinline__ void store_packs(const strip_run<T> &run, value_pack<T> *packs,
                                            uint32_t index, uint32_t stride, uint32_t count) {
  constexpr uint32_t kCount = pack_of<value_pack<T>>::kCount;
  T v[kPacks * kCount];
  memcpy(v, packs, sizeof(v));
  restore_values<T, kPacks * kCount>(v, run.how);
  memcpy(packs, v, sizeof(v));
  value_pack<T> *const to = reinterpret_cast<value_pack<T> *>(run.at.raw + run.at.first);
#pragma unroll
  for (int k = 0; k < kPacks; k++) {
    if (static_cast<uint32_t>(k) < count) {
      to[index + static_cast<uint32_t>(k) * stride] = packs[k];
    }
  }
}

} // namespace gpufi

#endif
