/* Which chunks are left to the CPU, because its encoder may choose a form that the kernels do not
 * write: where matches may be tried. A thread block takes a chunk. */
#include "backend/cuda/codec/repeats.cuh"
#include "backend/cuda/launch.cuh"

namespace {

using namespace gpufi;

template <typename T>
__global__ void __launch_bounds__(kSampleThreads)
    leave_kernel(const __grid_constant__ encode_job job) {
  __shared__ stream_signs signs;
  const uint32_t chunk = blockIdx.x;
  const T *const raw = reinterpret_cast<const T *>(job.raw + chunk * job.grid.raw_pitch_nbytes);
  encode_state *const state = &job.states[chunk];
  if (state->is_left) {
    return;
  }
  const bool is_left = may_match(job, raw, *state, &signs);
  __syncthreads(); /* the choice for values as they are is read */
  if (threadIdx.x != 0) {
    return;
  }
  if (is_left) {
    state->is_left = 1;
    state->is_based = false;
    state->parameters_nbytes = 0;
    state->is_ranked = false;
  }
  if (state->is_based) {
    state->transform = GPUFI_TRANSFORM_NONE;
    state->subset = state->base_subset;
    state->offset = state->base_offset;
    state->is_ranked = false;
  }
}

struct launch {
  const encode_job &job;
  cudaStream_t stream;

  template <typename T, int C> cudaError_t run() const {
    return launch_kernel(leave_kernel<T>, job.chunk_count, kSampleThreads, 0, stream, job);
  }
};

} // namespace

namespace gpufi {

cudaError_t leave_chunks(const encode_job &job, cudaStream_t stream) {
  return with_values(job.grid, launch{job, stream});
}

} // namespace gpufi
