/* Encoding the runs of ranked chunks: encode_run.cuh says how. */
#include "backend/cuda/codec/encode_run.cuh"

namespace {

using namespace gpufi;

template <typename T>
__global__ void __launch_bounds__(kThreads<kRankedRuns>, sizeof(T) == 8 ? 2 : 3)
    encode_ranked_kernel(const __grid_constant__ encode_job job) {
  begin_early();
  __shared__ run_shared<kRankedRuns> shared;
  __shared__ uint32_t next;
  take_runs<T, 1, kRankedRuns>(job, &shared, &next);
}

struct launch {
  const encode_job &job;
  cudaStream_t stream;

  template <typename T, int C> cudaError_t run() const {
    return launch_runs<T, kRankedRuns>(job, encode_ranked_kernel<T>, stream);
  }
};

} // namespace

namespace gpufi {

cudaError_t encode_ranked_runs(const encode_job &job, cudaStream_t stream) {
  return with_values(job.grid, launch{job, stream});
}

size_t ranked_runs_shared_nbytes(const chunk_grid &grid) {
  return sizeof(run_shared<kRankedRuns>) + sizeof(uint32_t) +
         run_staging_nbytes<kRankedRuns>(grid.value_nbytes);
}

} // namespace gpufi
