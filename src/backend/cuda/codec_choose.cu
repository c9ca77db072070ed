/* Choosing how a chunk is encoded by the cost of a sample, exactly as codec/predict.c and
 * codec/ranked.c. A few thread blocks share a chunk's sample; the last of them to finish decides.
 */
#include "backend/cuda/codec_sample.cuh"

namespace {

using namespace gpufi;

/* The usable axes along which value i has a neighbour; and the distance to the value that stands
 * before it along the last axis whose index is not 0, or 0. */
__device__ uint32_t neighbours_of(const chunk_grid &grid, uint32_t i, uint32_t *before) {
  uint32_t rest = i / grid.component_count, inside = 0;
  *before = 0;
  for (int k = 0; k < grid.axis_count; k++) {
    const uint32_t outer = divide(rest, grid.dims[k]);
    if (rest != outer * grid.dims[k].d) {
      inside |= 1u << k;
      *before = *before ? *before : grid.strides[k];
    }
    rest = outer;
  }
  return inside & ((1u << grid.usable_count) - 1);
}

/* Costs of all subsets for one value of each lane and one transform; lane 16t + s adds up those of
 * transform t and subset s. f[s] is the value's neighbour along all of s, 0 if there is none. */
template <typename T>
__device__ void add_costs(T *f, T before, uint32_t inside, bool has_before, bool valid,
                          uint32_t subset_count, int t, residual_cost *mine) {
  const T chained = has_before ? static_cast<T>(f[0] - before) : 0;
#pragma unroll
  for (uint32_t bit = 1; bit < kSubsetsMax; bit *= 2) {
    if (bit < subset_count) {
#pragma unroll
      for (uint32_t s = 0; s < kSubsetsMax; s++) {
        f[s] = (s & bit) ? static_cast<T>(f[s ^ bit] - f[s]) : f[s];
      }
    }
  }
#pragma unroll
  for (uint32_t s = 0; s < kSubsetsMax; s++) {
    if (s < subset_count) {
      const T r = s != 0 && (s & inside) == 0 ? chained : f[s];
      const residual_cost cost = warp_cost(valid ? r : static_cast<T>(0));
      if (threadIdx.x % kWarp == static_cast<uint32_t>(t) * kSubsetsMax + s) {
        mine->add(cost);
      }
    }
  }
}

/* This thread block's part of the sample. */
template <typename T>
__device__ residual_cost cost_part(const encode_job &job, const T *raw, uint32_t part) {
  const chunk_grid &grid = job.grid;
  const uint32_t subset_count = 1u << grid.usable_count;
  residual_cost mine = {};
  for (uint32_t at = threadIdx.x / kGroup; at < kPartGroups; at += kSampleThreads / kGroup) {
    const sampled_value here = sample_value(grid, part * kPartGroups + at);
    T values[kSubsetsMax], f[kSubsetsMax];
    uint32_t before = 0, inside = 0;
    if (here.valid) {
      inside = neighbours_of(grid, here.i, &before);
    }
#pragma unroll
    for (uint32_t s = 0; s < kSubsetsMax; s++) {
      const bool there = here.valid && s < subset_count && (s & ~inside) == 0;
      values[s] = there ? raw[here.i - grid.offsets[s]] : static_cast<T>(0);
    }
    const T value_before = before != 0 ? raw[here.i - before] : static_cast<T>(0);
    for (int t = 0; t < (grid.is_float ? kTransforms : 1); t++) {
      const loading how = {transform_of(grid, t), job.swap};
#pragma unroll
      for (uint32_t s = 0; s < kSubsetsMax; s++) {
        f[s] = values[s]; /* every transform maps 0 to 0 */
      }
      T b = value_before;
      transform_values<T, kSubsetsMax>(f, how);
      transform_values<T, 1>(&b, how);
      add_costs(f, b, inside, before != 0, here.valid, subset_count, t, &mine);
    }
  }
  return mine;
}

/* By one warp, from the costs of the whole sample: lane 16t + s takes transform t and subset s.
 * Returns the sample's bits. */
__device__ uint32_t pick(const encode_job &job, const sample_cost *cost, encode_state *state,
                         int value_bits) {
  const chunk_grid &grid = job.grid;
  const uint32_t lane = threadIdx.x, t = lane / kSubsetsMax, s = lane % kSubsetsMax;
  uint32_t key = UINT32_MAX;
  if (s < 1u << grid.usable_count && (t == 0 || grid.is_float)) {
    residual_cost sum;
    sum.residual_or = __ldcg(&cost->of[lane].residual_or);
    sum.width_sum = __ldcg(&cost->of[lane].width_sum);
    sum.group_count = __ldcg(&cost->of[lane].group_count);
    sum.used_width_sum = __ldcg(&cost->of[lane].used_width_sum);
    sum.used_count = __ldcg(&cost->of[lane].used_count);
    key = sampled_bits(sum, sample_take(grid), value_bits) * kWarp + lane;
  }
  key = UINT32_MAX - warp_max(UINT32_MAX - key);
  if (lane == 0) {
    state->subset = static_cast<uint8_t>(key % kSubsetsMax);
    state->transform = transform_of(grid, static_cast<int>(key % kWarp / kSubsetsMax));
  }
  return key / kWarp;
}

/* The median of the first residuals of some sampled groups. By one warp. */
template <typename T> __device__ T median_residual(const residual_source<T> &from) {
  using S = typename signed_of<T>::type;
  const uint32_t lane = threadIdx.x;
  S mine = 0;
  if (lane < GPUFI_OFFSET_GROUPS) {
    const uint32_t k = lane * sample_take(from.grid) / GPUFI_OFFSET_GROUPS;
    mine = static_cast<S>(from.residual(sampled_group(from.grid, k)));
  }
  uint32_t rank = 0;
  for (int k = 0; k < GPUFI_OFFSET_GROUPS; k++) {
    const S other = static_cast<S>(__shfl_sync(kFull, mine, k));
    rank += other < mine || (other == mine && static_cast<uint32_t>(k) < lane) ? 1 : 0;
  }
  const uint32_t found =
      __ballot_sync(kFull, lane < GPUFI_OFFSET_GROUPS && rank == GPUFI_OFFSET_GROUPS / 2);
  return static_cast<T>(__shfl_sync(kFull, mine, __ffs(static_cast<int>(found)) - 1));
}

/* Try an offset for integers; returns the sample's bits with it, or without if that is less. All
 * threads. */
template <typename T>
__device__ uint32_t choose_offset(const residual_source<T> &from, uint32_t bits,
                                  encode_state *state, sample_shared *shared) {
  if (threadIdx.x < kWarp) {
    const T median = median_residual(from);
    if (threadIdx.x == 0) {
      shared->offset = static_cast<uint64_t>(median);
      shared->cost = {};
    }
  }
  __syncthreads();
  const T offset = static_cast<T>(shared->offset);
  if (offset == 0) {
    return bits;
  }
  residual_cost mine = {};
  for (uint32_t k = threadIdx.x / kGroup; k < GPUFI_SAMPLE_GROUPS; k += kSampleThreads / kGroup) {
    const sampled_value here = sample_value(from.grid, k);
    const T r = here.valid ? static_cast<T>(from.residual(here.i) - offset) : static_cast<T>(0);
    mine.add(warp_cost(r));
  }
  if (threadIdx.x % kWarp == 0) {
    mine.add_to(&shared->cost);
  }
  __syncthreads();
  const uint32_t with = sampled_bits(shared->cost, sample_take(from.grid), kBits<T>);
  if (threadIdx.x == 0 && with < bits) {
    state->offset = shared->offset;
  }
  return with < bits ? with : bits;
}

template <typename T>
__global__ void __launch_bounds__(kSampleThreads)
    choose_kernel(const __grid_constant__ encode_job job) {
  __shared__ sample_shared shared;
  const chunk_grid &grid = job.grid;
  const uint32_t chunk = blockIdx.x / kSampleParts, part = blockIdx.x % kSampleParts;
  const T *const raw = reinterpret_cast<const T *>(job.raw + chunk * grid.raw_pitch_nbytes);
  encode_state *const state = &job.states[chunk];
  sample_cost *const total = &job.costs[chunk];
  if (threadIdx.x < kWarp) {
    shared.costs[threadIdx.x] = {};
  }
  __syncthreads();
  cost_part(job, raw, part).add_to(&shared.costs[threadIdx.x % kWarp]);
  __syncthreads();
  if (threadIdx.x < kWarp) {
    shared.costs[threadIdx.x].add_to(&total->of[threadIdx.x]);
    __threadfence();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    shared.is_last = atomicAdd(&total->done_count, 1u) == kSampleParts - 1;
    __threadfence();
  }
  __syncthreads();
  if (!shared.is_last) {
    return;
  }
  if (threadIdx.x < kWarp) {
    const uint32_t bits = pick(job, total, state, kBits<T>);
    if (threadIdx.x == 0) {
      shared.bits = bits;
      shared.subset = state->subset;
    }
  }
  __syncthreads();
  uint64_t bits = shared.bits;
  if (!grid.is_float) {
    const residual_source<T> from = {{grid, raw, {GPUFI_TRANSFORM_NONE, job.swap}, shared.subset}};
    bits = choose_offset(from, shared.bits, state, &shared);
  }
  bits = bits * group_count(grid) / sample_take(grid);
  const bool is_ranked = rank_is_cheaper(job, raw, bits, state, &shared);
  const bool is_left = has_few_values(job, raw, &shared);
  if (threadIdx.x == 0) {
    state->is_left = is_left;
    if (is_ranked && !is_left && grid.axis_count != 0) { /* one element is always constant */
      state->is_ranked = true;
      state->transform = GPUFI_TRANSFORM_NONE;
      state->subset = 0;
      state->offset = 0;
      atomicAdd(job.ranked_count, 1u);
    }
  }
}

} // namespace

namespace gpufi {

cudaError_t choose_predictions(const encode_job &job, cudaStream_t stream) {
  const uint32_t grid = job.chunk_count * kSampleParts;
  const auto choose = [&](void (*kernel)(encode_job)) {
    return launch_kernel(kernel, grid, kSampleThreads, 0, stream, job);
  };
  switch (job.grid.value_nbytes) {
  case 1:
    return choose(choose_kernel<uint8_t>);
  case 2:
    return choose(choose_kernel<uint16_t>);
  case 4:
    return choose(choose_kernel<uint32_t>);
  default:
    return choose(choose_kernel<uint64_t>);
  }
}

} // namespace gpufi
