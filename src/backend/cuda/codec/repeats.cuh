/* What of matches is worth trying: what codec/matches_choose.c asks the sample before it
 * encodes pieces. A thread block takes a chunk, and each of its threads a group of the sample. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_REPEATS_CUH
#define GPUFI_BACKEND_CUDA_CODEC_REPEATS_CUH

#include "backend/cuda/codec/sample.cuh"

namespace gpufi {

constexpr int kSeenLog2 = 14; /* of the hashes of sequences */
constexpr uint32_t kSeenWords = (1 << kSeenLog2) / 32;
/* The values of a sequence that may repeat. */
template <typename T> constexpr uint32_t kSequenceValues = (sizeof(T) == 1 ? 4 : 16) / sizeof(T);

/* The shared memory of a thread block, for both streams. */
struct streams_shared {
  uint32_t seen[kStreams][kSeenWords]; /* a bit for each hash of a sequence */
  uint32_t distinct[kStreams], busy[kStreams];
};

/* The residuals of a whole group, from value `first` on. */
template <typename T, int C>
__device__ __forceinline__ void load_group_residuals(const residual_source<T> &from, uint32_t first,
                                                     T r[kGroup]) {
  if (from.grid.row_values < kGroup) {
    group_residuals_slow<T, C>(from, first, r);
    return;
  }
  load_group(from.raw, first, r);
  transform_values<T, kGroup>(r, from.how);
  if (from.subset != 0) {
    const group_place at = place_group(from, first);
    T before[C] = {};
    add_other_rows(from, first, at, r);
    if (at.column >= C && from.goes_along_row(at.inside)) {
      sums_before<T, C>(from, first, at.inside, before);
    }
    subtract_along_row<T, C>(from, first, at, before, r);
  }
}

/* A whole group of a stream, from value `first` on: marks its sequences in `seen`, and returns the
 * number of its busy bits, those that it has neither all 0 nor all 1. */
template <typename T, int C>
__device__ __forceinline__ uint32_t look_at_group(const residual_source<T> &from, T offset,
                                                  uint32_t first, uint32_t *seen) {
  const bool is_predicted = from.subset != 0 || offset != 0;
  T some = 0, all = static_cast<T>(~static_cast<T>(0));
  uint64_t hash = 0;
  T r[kGroup];
  load_group_residuals<T, C>(from, first, r);
#pragma unroll
  for (uint32_t t = 0; t < kGroup; t++) {
    const bool is_seed = from.subset != 0 && first + t < C;
    const T v = is_seed ? static_cast<T>(0) : static_cast<T>(r[t] - offset);
    const T x = is_predicted ? zigzagged(v) : v;
    some |= x;
    all &= x;
    hash = (hash ^ v) * GPUFI_WORD_KEY;
    hash ^= hash >> 29;
    if ((t + 1) % kSequenceValues<T> == 0) {
      const uint32_t place = static_cast<uint32_t>(hash >> (64 - kSeenLog2));
      atomicOr(&seen[place / 32], 1u << place % 32);
      hash = 0;
    }
  }
  const uint64_t busy = static_cast<T>(some & ~all);
  return static_cast<uint32_t>(__popc(static_cast<uint32_t>(busy)) +
                               __popc(static_cast<uint32_t>(busy >> 32)));
}

/* Look at the values, and at the residuals of W8, of which the choice is in `state`, if they are
 * not the same; to state->signs. All threads. */
template <typename T, int C>
__device__ void look_at_streams(const encode_job &job, const T *raw, encode_state *state,
                                streams_shared *shared) {
  const chunk_grid &grid = job.grid;
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t count = state->subset != 0 || state->offset != 0 ? kStreams : 1;
  for (uint32_t i = threadIdx.x; i < kSeenWords; i += kSampleThreads) {
    shared->seen[0][i] = shared->seen[1][i] = 0;
  }
  if (threadIdx.x < kStreams) {
    shared->distinct[threadIdx.x] = shared->busy[threadIdx.x] = 0;
  }
  __syncthreads();
  const sampled_value last = sample_value(grid, threadIdx.x, kGroup - 1);
#pragma unroll 1
  for (uint32_t k = 0; k < count; k++) {
    loading how = {GPUFI_TRANSFORM_NONE, job.swap};
    how.transform = k != 0 ? state->transform : how.transform;
    const T offset = k != 0 ? static_cast<T>(state->offset) : static_cast<T>(0);
    const residual_source<T> from = {{grid, raw, how, k != 0 ? state->subset : 0u}};
    uint32_t busy = 0;
    if (last.valid) {
      busy = look_at_group<T, C>(from, offset, last.i - (kGroup - 1), shared->seen[k]);
    }
    busy = warp_add(busy);
    if (lane == 0) {
      atomicAdd(&shared->busy[k], busy);
    }
  }
  __syncthreads();
  for (uint32_t k = 0; k < count; k++) {
    uint32_t distinct = 0;
    for (uint32_t i = threadIdx.x; i < kSeenWords; i += kSampleThreads) {
      distinct += static_cast<uint32_t>(__popc(shared->seen[k][i]));
    }
    distinct = warp_add(distinct);
    if (lane == 0) {
      atomicAdd(&shared->distinct[k], distinct);
    }
  }
  __syncthreads();
  if (threadIdx.x < count) {
    const uint64_t n =
        static_cast<uint64_t>(sampled_whole_groups(grid)) * (kGroup / kSequenceValues<T>);
    const uint64_t different = n - (n * n >> (kSeenLog2 + 1));
    state->signs[threadIdx.x] = {
        true, 32 * static_cast<uint64_t>(shared->distinct[threadIdx.x]) < 30 * different,
        shared->busy[threadIdx.x]};
  }
}

/* The trials of matches that are worth it for the chunk, where other modes take `state.bits`: bit t
 * for trial t. Of each stream, the values first, there are two: as bytes if it repeats, and in bit
 * planes if it does or has idle planes. */
__device__ inline uint32_t matches_to_try(const chunk_grid &grid, const encode_state &state) {
  uint32_t tries = 0;
  for (uint32_t k = 0; k < kStreams; k++) {
    const stream_signs &signs = state.signs[k];
    const uint64_t busy = kGroup * static_cast<uint64_t>(signs.busy);
    const bool idles = 5 * busy * group_count(grid) / sample_take(grid) < 4 * state.bits;
    const uint32_t worth = signs.repeats ? 3 : idles ? 2 : 0;
    tries |= signs.is_there ? worth << 2 * k : 0;
  }
  return tries;
}

} // namespace gpufi

#endif
