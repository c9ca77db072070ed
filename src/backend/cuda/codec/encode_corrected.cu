/* Encoding the runs of chunks with corrections, which are packed beside the blocks that they
 * correct: encode_run.cuh says how. */
#include "backend/cuda/codec/encode_run.cuh"

namespace {

using namespace gpufi;

template <typename T, int C>
__global__ void __launch_bounds__(kThreads<kCorrectedRuns>, 1)
    encode_corrected_kernel(const __grid_constant__ encode_job job) {
  begin_early();
  __shared__ run_shared<kCorrectedRuns> shared;
  __shared__ uint32_t next;
  take_runs<T, C, kCorrectedRuns>(job, &shared, &next);
}

/* Only floats of more than one byte have corrections. */
struct launch {
  const encode_job &job;
  cudaStream_t stream;

  template <typename T, int C> cudaError_t run() const {
    if constexpr (sizeof(T) == 1) {
      return cudaSuccess;
    } else {
      return launch_runs<T, kCorrectedRuns>(job, encode_corrected_kernel<T, C>, stream);
    }
  }
};

} // namespace

namespace gpufi {

cudaError_t encode_corrected_runs(const encode_job &job, cudaStream_t stream) {
  return with_values(job.grid, launch{job, stream});
}

size_t corrected_runs_shared_nbytes(const chunk_grid &grid) {
  return sizeof(run_shared<kCorrectedRuns>) + sizeof(uint32_t) +
         run_staging_nbytes<kCorrectedRuns>(grid.value_nbytes);
}

} // namespace gpufi
