/* Undoing the prediction of chunks of matches, whose residuals are where their values are to be.
 * There are none in most batches: thread blocks take the runs one after the other, in the order in
 * which decode.cu goes through them, and for the same reason. */
#include "backend/cuda/codec/restore_run.cuh"
#include "backend/cuda/launch.cuh"

namespace {

using namespace gpufi;

template <typename T>
__device__ __forceinline__ void load_residuals(const run_place<T> &at, int warp, int lane,
                                               T r[kLaneGroups][kGroup]) {
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t past =
        static_cast<uint32_t>(warp) * GPUFI_BLOCK_VALUES + index_of(j, lane) * kGroup;
    if (past + kGroup <= at.count) {
      load_aligned_group(at.raw, at.first + past, r[j]);
    } else {
#pragma unroll
      for (uint32_t t = 0; t < kGroup; t++) {
        r[j][t] = past + t < at.count ? at.raw[at.first + past + t] : static_cast<T>(0);
      }
    }
  }
}

template <typename T, int C>
__global__ void __launch_bounds__(kThreads, kThreadBlocksPerSm<T>)
    predict_kernel(const __grid_constant__ decode_job job) {
  begin_early();
  __shared__ run_shared<T, C> shared;
  __shared__ uint32_t next;
  const int lane = threadIdx.x % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  while (take_next(job, &job.counts->predicted_taken, job.counts->predicted, &next)) {
    uint32_t run;
    const uint32_t chunk = chunk_in_turn(job, next, kChunksAtOnce, &run);
    const decode_state &state = job.states[chunk];
    if (state.is_of(job.has_planes) && state.mode == GPUFI_MODE_MATCHES && state.subset != 0) {
      const run_place<T> at = place_in_chunk<T>(job, chunk, run);
      T r[kLaneGroups][kGroup];
      load_residuals(at, warp, lane, r);
      restore_run<T, C>(job, chunk, at, dynamic_shared(), &shared, r);
    }
  }
}

struct launch {
  const decode_job &job;
  cudaStream_t stream;

  template <typename T, int C> cudaError_t run() const {
    constexpr int kShared = static_cast<int>(kSharedNbytes<T>);
    const uint32_t run_count = job.chunk_count * job.grid.run_count;
    const cudaError_t code = cudaFuncSetAttribute(
        predict_kernel<T, C>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
    return code == cudaSuccess ? launch_early(predict_kernel<T, C>, taking_thread_blocks(run_count),
                                              kThreads, kShared, stream, job)
                               : code;
  }
};

} // namespace

namespace gpufi {

cudaError_t predict_matches(const decode_job &job, cudaStream_t stream) {
  return with_values(job.grid, launch{job, stream});
}

} // namespace gpufi
