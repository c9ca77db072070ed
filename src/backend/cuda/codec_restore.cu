/* The end of decoding: undoing the predictions that codec_decode.cu leaves, a thread block a chunk,
 * and the verdict on each chunk. codec/predict.c is the reference. */
#include "backend/cuda/codec_decode.cuh"

namespace {

using namespace gpufi;

constexpr int kThreads = 1024;
constexpr int kAhead = 8; /* loads of a line in flight */

/* Running sums over `count` values, `stride` apart. One thread. */
template <typename T> __device__ void sum_line(T *v, uint32_t count, uint32_t stride) {
  T sum = 0;
  for (uint32_t first = 0; first < count; first += kAhead) {
    T part[kAhead];
#pragma unroll
    for (uint32_t k = 0; k < kAhead; k++) {
      part[k] = first + k < count ? v[static_cast<size_t>(first + k) * stride] : static_cast<T>(0);
    }
#pragma unroll
    for (uint32_t k = 0; k < kAhead; k++) {
      sum = static_cast<T>(sum + part[k]);
      if (first + k < count) {
        v[static_cast<size_t>(first + k) * stride] = sum;
      }
    }
  }
}

/* The same by a warp. */
template <typename T> __device__ void sum_line_by_warp(T *v, uint32_t count, uint32_t stride) {
  const int lane = threadIdx.x % kWarp;
  T sum = 0;
  for (uint32_t first = 0; first < count; first += kWarp) {
    const uint32_t k = first + static_cast<uint32_t>(lane);
    T *const at = v + static_cast<size_t>(k) * stride;
    const T ends = warp_scan(k < count ? *at : static_cast<T>(0), lane);
    if (k < count) {
      *at = static_cast<T>(sum + ends);
    }
    sum = static_cast<T>(sum + __shfl_sync(kFull, ends, kWarp - 1));
  }
}

/* Along axis a, outside the subset, over the face where the axes of the subset and the inner axes
 * outside it have index 0. Lines differ by their indices along the other axes, `free`. */
template <typename T>
__device__ void sum_face(const chunk_grid &grid, T *v, uint32_t subset, int a) {
  uint32_t line_count = grid.component_count;
  for (int k = a + 1; k < grid.axis_count; k++) {
    line_count *= (subset >> k & 1) ? 1 : grid.dims[k].d;
  }
  for (uint32_t line = threadIdx.x / kWarp; line < line_count; line += kThreads / kWarp) {
    uint32_t rest = line / grid.component_count, at = line % grid.component_count;
    for (int k = a + 1; k < grid.axis_count; k++) {
      if (!(subset >> k & 1)) {
        const uint32_t outer = divide(rest, grid.dims[k]);
        at += (rest - outer * grid.dims[k].d) * grid.strides[k];
        rest = outer;
      }
    }
    sum_line_by_warp(v + at, grid.dims[a].d, grid.strides[a]);
  }
  __syncthreads();
}

/* Along axis a, over the whole chunk. */
template <typename T> __device__ void sum_axis(const chunk_grid &grid, T *v, int a) {
  const uint32_t stride = grid.strides[a], line_count = grid.value_count / grid.dims[a].d;
  for (uint32_t line = threadIdx.x; line < line_count; line += kThreads) {
    const uint32_t outer = line / stride;
    T *const first =
        v + static_cast<size_t>(outer) * stride * grid.dims[a].d + (line - outer * stride);
    sum_line(first, grid.dims[a].d, stride);
  }
  __syncthreads();
}

template <typename T>
__device__ void restore(const chunk_grid &grid, const decode_state &state, T *v) {
  if (threadIdx.x < grid.component_count) {
    const uint32_t bit = threadIdx.x * kBits<T>;
    v[threadIdx.x] = static_cast<T>(state.seed[bit / 64] >> bit % 64);
  }
  __syncthreads();
  for (int a = grid.axis_count - 1; a >= 0; a--) {
    if (!(state.subset >> a & 1)) {
      sum_face(grid, v, state.subset, a);
    }
  }
  for (int a = 0; a < grid.usable_count; a++) {
    if (state.subset >> a & 1) {
      sum_axis(grid, v, a);
    }
  }
  const loading how = {state.transform, state.swap != 0};
  for (uint32_t i = threadIdx.x; i < grid.value_count; i += kThreads) {
    restore_values<T, 1>(&v[i], how);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) restore_kernel(const __grid_constant__ decode_job job) {
  const uint32_t chunk = blockIdx.x;
  const decode_state &state = job.states[chunk];
  const bool good = state.is_open && state.is_bad == 0 && state.plain == state.wanted[0] &&
                    state.mixed == state.wanted[1];
  if (threadIdx.x == 0) {
    job.verdicts[chunk] = state.is_left ? GPUFI_CHUNK_LEFT
                          : good        ? GPUFI_CHUNK_DONE
                                        : GPUFI_CHUNK_REFUSED;
  }
  if (good && state.is_separate) {
    restore(job.grid, state, reinterpret_cast<T *>(job.raw + chunk * job.grid.raw_pitch_nbytes));
  }
}

} // namespace

namespace gpufi {

cudaError_t restore_chunks(const decode_job &job, cudaStream_t stream) {
  const auto restore = [&](void (*kernel)(decode_job)) {
    return launch_kernel(kernel, job.chunk_count, kThreads, 0, stream, job);
  };
  switch (job.grid.value_nbytes) {
  case 1:
    return restore(restore_kernel<uint8_t>);
  case 2:
    return restore(restore_kernel<uint16_t>);
  case 4:
    return restore(restore_kernel<uint32_t>);
  default:
    return restore(restore_kernel<uint64_t>);
  }
}

} // namespace gpufi
