/* What of matches is worth trying: what codec/matches_choose.c asks the sample before it
 * encodes pieces. A thread block takes a chunk, and each of its threads a group of the sample. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_REPEATS_CUH
#define GPUFI_BACKEND_CUDA_CODEC_REPEATS_CUH

#include "backend/cuda/codec/sample.cuh"

namespace gpufi {

constexpr int kSeenLog2 = 14; /* of the hashes of sequences */
/* The values of a sequence that may repeat. */
template <typename T> constexpr uint32_t kSequenceValues = (sizeof(T) == 1 ? 4 : 16) / sizeof(T);

/* What the sample shows of a stream: the shared memory of a thread block. */
struct stream_signs {
  uint32_t seen[(1 << kSeenLog2) / 32]; /* a bit for each hash of a sequence */
  uint32_t busy;                        /* bits that a group has neither all 0 nor all 1 */
  uint32_t groups, distinct;
};

/* The sampled group of this thread, which is whole. */
template <typename T>
__device__ void look_at_group(const residual_source<T> &from, T offset, uint32_t first,
                              stream_signs *signs) {
  const bool is_predicted = from.subset != 0 || offset != 0;
  T some = 0, all = static_cast<T>(~static_cast<T>(0));
  uint64_t hash = 0;
  for (uint32_t t = 0; t < kGroup; t++) {
    const bool is_seed = from.subset != 0 && first + t < from.grid.component_count;
    const T v = is_seed ? static_cast<T>(0) : static_cast<T>(from.residual(first + t) - offset);
    const T x = is_predicted ? zigzagged(v) : v;
    some |= x;
    all &= x;
    hash = (hash ^ v) * GPUFI_WORD_KEY;
    hash ^= hash >> 29;
    if ((t + 1) % kSequenceValues<T> == 0) {
      const uint32_t place = static_cast<uint32_t>(hash >> (64 - kSeenLog2));
      atomicOr(&signs->seen[place / 32], 1u << place % 32);
      hash = 0;
    }
  }
  const uint64_t busy = static_cast<T>(some & ~all);
  atomicAdd(&signs->busy, static_cast<uint32_t>(__popc(static_cast<uint32_t>(busy)) +
                                                __popc(static_cast<uint32_t>(busy >> 32))));
  atomicAdd(&signs->groups, 1u);
}

/* The arrangements in which the stream is worth trying, where other modes take `bits`: bit 0 if it
 * repeats, for bytes; bit 1 if it does or has idle planes, for bit planes. All threads, the same
 * answer. */
template <typename T>
__device__ uint32_t worth_trying(const residual_source<T> &from, T offset, uint64_t bits,
                                 stream_signs *signs) {
  const chunk_grid &grid = from.grid;
  constexpr uint32_t kWords = (1 << kSeenLog2) / 32;
  __syncthreads(); /* the signs of the stream before are read */
  for (uint32_t i = threadIdx.x; i < kWords; i += kSampleThreads) {
    signs->seen[i] = 0;
  }
  if (threadIdx.x == 0) {
    signs->busy = signs->groups = signs->distinct = 0;
  }
  __syncthreads();
  const sampled_value last = sample_value(grid, threadIdx.x, kGroup - 1);
  if (last.valid) {
    look_at_group(from, offset, last.i - (kGroup - 1), signs);
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < kWords; i += kSampleThreads) {
    atomicAdd(&signs->distinct, static_cast<uint32_t>(__popc(signs->seen[i])));
  }
  __syncthreads();
  const uint64_t n = static_cast<uint64_t>(signs->groups) * (kGroup / kSequenceValues<T>);
  const uint64_t different = n - (n * n >> (kSeenLog2 + 1));
  const uint64_t busy = kGroup * static_cast<uint64_t>(signs->busy);
  const bool repeats = 32 * static_cast<uint64_t>(signs->distinct) < 30 * different;
  const bool idles = 5 * busy * group_count(grid) / sample_take(grid) < 4 * bits;
  return repeats ? 3 : idles ? 2 : 0;
}

/* The trials of matches for the chunk, of which W8's choice is in `state`, as in
 * encode_state::tries. All threads, the same answer. */
template <typename T>
__device__ uint32_t matches_to_try(const encode_job &job, const T *raw, const encode_state &state,
                                   stream_signs *signs) {
  const residual_source<T> values = {{job.grid, raw, {GPUFI_TRANSFORM_NONE, job.swap}, 0}};
  const T offset = static_cast<T>(state.offset);
  uint32_t tries = worth_trying<T>(values, 0, state.bits, signs);
  if (state.subset != 0 || offset != 0) {
    const residual_source<T> residuals = {
        {job.grid, raw, {state.transform, job.swap}, state.subset}};
    tries |= worth_trying<T>(residuals, offset, state.bits, signs) << 2;
  }
  return tries;
}

} // namespace gpufi

#endif
