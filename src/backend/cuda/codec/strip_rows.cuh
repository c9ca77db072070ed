/* A run of strips that is predicted along rows alone, or not at all: see decode_strips.cu. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_STRIP_ROWS_CUH
#define GPUFI_BACKEND_CUDA_CODEC_STRIP_ROWS_CUH

#include "backend/cuda/codec/strips.cuh"

namespace gpufi {

/* Rows begin where the chain rule says: from the row before in the plane, and planes from the plane
 * before. So each row lacks the start of what predicts it, and each strip besides the sum of those
 * before it in its row. */
template <typename T> struct row_fronts {
  T tails[kWarps];        /* of each warp: the sum of its last row as far as it is in the warp */
  T starts[kThreads + 1]; /* of each row the run touches: the residual of its first value, or 0 */
  T chains[kWarps];       /* of each warp: the sum of its last starts */
  T rows[kThreads + 1];   /* what each row lacks */
  T strips[kThreads];     /* what each strip lacks */
};

/* The sum of the starts of rows from the first of this plane in the run, or the run's first row, up
 * to and with row `k`, which is the thread's. All threads. */
template <typename T>
__device__ __forceinline__ T sum_starts(const strip_run<T> &run, row_fronts<T> *fronts, uint32_t k,
                                        T start) {
  const int lane = threadIdx.x % kWarp;
  const uint32_t index = run.index_in_plane(run.at.row + k), back = index < k ? index : k;
  const int first = lane - static_cast<int>(back);
  const T sum = scan_from(start, lane, first < 0 ? 0 : first);
  if (lane == kWarp - 1) {
    fronts->chains[threadIdx.x / kWarp] = sum;
  }
  __syncthreads();
  const uint32_t beyond = back > static_cast<uint32_t>(lane) ? back - lane : 0;
  return static_cast<T>(sum + sum_of_tails(fronts->chains, threadIdx.x / kWarp, beyond));
}

/* The start that row `k` of the run goes on from, without those in its plane in the run. */
template <typename T>
__device__ __forceinline__ T start_before(const strip_run<T> &run, const row_fronts<T> &fronts,
                                          uint32_t k) {
  const chunk_grid &grid = run.grid;
  const run_place<T> &at = run.at;
  const uint32_t row = at.row + k, first_plane = run.first_plane(), plane = run.plane_of(row);
  if (k == 0 && at.column != 0) {
    return run.value(at.first - 1);
  }
  if (plane < first_plane) { /* it goes on from a row before the run */
    return run.value(at.first - (at.column != 0 ? at.column : grid.row_values));
  }
  T start = 0;
  for (uint32_t p = first_plane; p < plane; p++) {
    const uint32_t begin = p * grid.dims[1].d; /* its first row */
    start = static_cast<T>(start + fronts.starts[begin - at.row]);
  }
  const uint32_t begin = first_plane * (run.has_planes() ? run.plane_values() : 0);
  return first_plane == 0 ? start
                          : static_cast<T>(start + run.value(begin - run.plane_values()));
}

/* From sums over the part of each row that is in the strip and its warp, which are in `packs`.
 * fronts->tails and ->starts are filled in. All threads, which have to be synchronized. */
template <typename T>
__device__ __forceinline__ void finish_rows(const strip_run<T> &run, uint32_t row_strips_before,
                                            uint32_t row, row_fronts<T> *fronts) {
  const run_place<T> &at = run.at;
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t row_count = divide(at.column + at.count - 1, run.grid.row) + 1;
  __syncthreads();
  for (uint32_t k = threadIdx.x; k < kThreads; k += kThreads) {
    const T start = k < row_count ? fronts->starts[k] : static_cast<T>(0);
    const T sum = sum_starts(run, fronts, k, start);
    run.wait();
    __syncthreads();
    if (k < row_count) {
      const T before = start_before(run, *fronts, k);
      const bool begins = k != 0 || at.column == 0;
      fronts->rows[k] = begins ? static_cast<T>(before + sum - start) : before;
    }
  }
  __syncthreads();
  const uint32_t beyond = row_strips_before > lane ? row_strips_before - lane : 0;
  const T in_row = sum_of_tails(fronts->tails, threadIdx.x / kWarp, beyond);
  fronts->strips[threadIdx.x] =
      static_cast<T>(threadIdx.x * kStrip < at.count ? in_row + fronts->rows[row - at.row] : 0);
  __syncthreads();
}

/* Add `fronts`, or nothing if it is null, to all packs and store them. All threads. */
template <typename T>
__device__ __forceinline__ void store_rows(const strip_run<T> &run, const value_pack<T> *packs,
                                           const T *fronts) {
  using pack = value_pack<T>;
  constexpr uint32_t kCount = pack_of<pack>::kCount;
  constexpr int kAhead = 4;
  const uint32_t count = run.at.count / kCount;
#pragma unroll
  for (uint32_t first = 0; first < kThreads * kStripPacks<T>; first += kAhead * kThreads) {
    const uint32_t index = first + threadIdx.x;
    pack v[kAhead];
#pragma unroll
    for (uint32_t k = 0; k < kAhead; k++) {
      const uint32_t i = index + k * kThreads;
      v[k] = packs[pack_at<T>(i)];
      if (fronts != nullptr) {
        T front[kCount];
#pragma unroll
        for (uint32_t t = 0; t < kCount; t++) {
          front[t] = fronts[i / kStripPacks<T>];
        }
        pack all;
        memcpy(&all, front, sizeof(all));
        v[k] = add(v[k], all);
      }
    }
    const uint32_t left = index < count ? (count - index + kThreads - 1) / kThreads : 0;
    store_packs<kAhead>(run, v, index, kThreads, left);
  }
}

} // namespace gpufi

#endif
