/* Choosing a base for chunks of floats by the cost of a sample, exactly as codec/numbers.c, and
 * what is predicted by way of it. A thread block takes a chunk, and each of its threads a group of
 * the sample. */
#include "backend/cuda/codec/numbers.cuh"
#include "backend/cuda/codec/offset.cuh"
#include "backend/cuda/launch.cuh"

namespace {

using namespace gpufi;

/* A chunk's values by way of a base. */
template <typename T> struct based_values : chunk_values<T, false> {
  const gpufi_numbers *numbers;

  __device__ T value(uint32_t i) const {
    const chunk_grid &grid = this->grid;
    return based_value<T>(*numbers, grid.component_count, i, grid.value_count,
                          [&](uint32_t k) { return load_value(this->raw, k, this->how); });
  }

  __device__ T alternating(uint32_t i, uint32_t inside) const {
    T sum = value(i);
    for (uint32_t s = inside; s != 0; s = (s - 1) & inside) {
      const T v = value(i - this->grid.offsets[s]);
      sum = static_cast<T>(__popc(s) & 1 ? sum - v : sum + v);
    }
    return sum;
  }
};

template <typename T> using based_source = residual_source<T, based_values<T>>;

/* W8 with some numbers. */
struct w8_choice {
  gpufi_numbers numbers;
  uint8_t subset;
  unsigned long long offset, bits;
};

/* The shared memory of a thread block. */
struct base_shared {
  numbers_shared search;
  residual_cost costs[kWarp];
  residual_cost cost;
  unsigned long long offset, offset_chosen;
  uint32_t bits, transform, subset;
};

/* What this thread's group costs along each subset, to costs[subset]. All threads. */
template <typename T>
__device__ void cost_subsets(const based_source<T> &from, residual_cost *costs) {
  group_tallies<T, kSubsetsMax> tallies = {};
  for (uint32_t t = 0; t < kGroup; t++) {
    const sampled_value here = sample_value(from.grid, threadIdx.x, t);
    if (here.valid) {
      uint32_t before;
      const uint32_t inside = neighbours_of(from.grid, here.i, &before);
      T f[kSubsetsMax];
#pragma unroll
      for (uint32_t s = 0; s < kSubsetsMax; s++) {
        f[s] = (s & ~inside) == 0 ? from.value(here.i - from.grid.offsets[s]) : static_cast<T>(0);
      }
      const T chained =
          before != 0 ? static_cast<T>(f[0] - from.value(here.i - before)) : static_cast<T>(0);
      tallies.add(f, chained, inside);
    }
  }
  tallies.add_to(costs);
}

/* The cost of the sample's corrections; 0 if there are none. All threads, the same answer. */
template <typename T>
__device__ uint32_t cost_corrections(const based_source<T> &from, base_shared *shared) {
  __syncthreads(); /* the cost before is read */
  if (threadIdx.x == 0) {
    shared->cost = {};
  }
  __syncthreads();
  group_tally<T> tally = {};
  for (uint32_t t = 0; t < kGroup; t++) {
    const sampled_value here = sample_value(from.grid, threadIdx.x, t);
    if (here.valid) {
      const T x = load_value(from.raw, here.i, from.how);
      tally.add(correction_of(*from.numbers, x, base_bits(*from.numbers, from.value(here.i))));
    }
  }
  const residual_cost mine = warp_cost(tally);
  if (threadIdx.x % kWarp == 0) {
    mine.add_to(&shared->cost);
  }
  __syncthreads();
  return shared->cost.used_count != 0 ? sampled_bits(shared->cost, sample_take(from.grid), kBits<T>)
                                      : 0;
}

/* W8 with these numbers, if that costs fewer than choice->bits. All threads, the same answer. */
template <typename T>
__device__ bool try_numbers(const encode_job &job, const T *raw, gpufi_numbers tried,
                            w8_choice *choice, base_shared *shared) {
  const chunk_grid &grid = job.grid;
  const bool is_number = gpufi_transform_has_parameters(tried.transform) != 0;
  based_source<T> from = {{{grid, raw, {GPUFI_TRANSFORM_NONE, job.swap}, 0}, &tried}};
  __syncthreads(); /* the costs before are read */
  if (threadIdx.x < kWarp) {
    shared->costs[threadIdx.x] = {};
  }
  __syncthreads();
  for (uint32_t t = 0; t < (is_number ? 1u : 2u); t++) {
    tried.transform = is_number ? tried.transform : transform_of(grid, static_cast<int>(t));
    cost_subsets(from, shared->costs + t * kSubsetsMax);
  }
  __syncthreads();
  if (threadIdx.x < kWarp) {
    uint32_t t, subset;
    const uint32_t bits = cheapest<T>(grid, shared->costs, is_number ? 1 : 2, &t, &subset);
    if (threadIdx.x == 0) {
      shared->bits = bits;
      shared->transform = t;
      shared->subset = subset;
      shared->offset_chosen = 0;
    }
  }
  __syncthreads();
  uint64_t cost = shared->bits;
  from.subset = shared->subset;
  if (!is_number) {
    tried.transform = transform_of(grid, static_cast<int>(shared->transform));
  } else if (grid.value_nbytes * grid.component_count <= 8) {
    cost = choose_offset(from, static_cast<uint32_t>(cost), shared, &shared->offset_chosen);
  }
  const uint32_t corrections = cost_corrections(from, shared);
  cost = (cost + corrections) * group_count(grid) / sample_take(grid);
  cost += corrections != 0 || tried.has_fill ? 32 * static_cast<uint64_t>(grid.block_count) : 0;
  cost += is_number ? 8 * GPUFI_PARAMETERS_NBYTES : 0;
  cost += tried.has_fill ? 8 * GPUFI_PARAMETERS_NBYTES : 0;
  if (cost + cost / 64 >= choice->bits) { /* values without a base decode faster */
    return false;
  }
  *choice = {tried, static_cast<uint8_t>(from.subset), shared->offset_chosen, cost};
  return true;
}

/* A thread block chooses for a chunk that may have a base. */
template <typename T>
__device__ void choose_base(const encode_job &job, uint32_t chunk, base_shared *shared) {
  probes_shared *const probes = &shared->search.probes;
  const T *const raw = reinterpret_cast<const T *>(job.raw + chunk * job.grid.raw_pitch_nbytes);
  encode_state *const state = &job.states[chunk];
  if (!take_probes(job, raw, probes)) {
    return;
  }
  gpufi_numbers tried;
  w8_choice choice = {};
  choice.bits = state->bits;
  bool is_based = false;
  if (find_numbers<T>(&shared->search, &tried)) {
    is_based = try_numbers(job, raw, tried, &choice, shared);
    if (find_fill(*probes, &tried)) {
      is_based = try_numbers(job, raw, tried, &choice, shared) || is_based;
    }
  }
  __syncthreads();
  if (find_shift<T>(probes, &tried)) {
    is_based = try_numbers(job, raw, tried, &choice, shared) || is_based;
  }
  if (find_fill(*probes, &tried)) {
    is_based = try_numbers(job, raw, tried, &choice, shared) || is_based;
  }
  if (is_based && threadIdx.x == 0) {
    atomicAdd(job.based_count, 1u);
    state->is_based = true;
    state->numbers = choice.numbers;
    state->base_subset = choice.subset;
    state->base_offset = choice.offset;
    state->bits = choice.bits;
    state->parameters_nbytes = static_cast<uint32_t>(gpufi_round_up_16(
        (gpufi_transform_has_parameters(choice.numbers.transform) ? GPUFI_PARAMETERS_NBYTES : 0) +
        (choice.numbers.has_fill ? GPUFI_FILL_NBYTES : 0)));
  }
}

template <typename T>
__global__ void __launch_bounds__(kSampleThreads)
    choose_base_kernel(const __grid_constant__ encode_job job) {
  begin_early();
  __shared__ base_shared shared;
  for (uint32_t chunk = blockIdx.x; chunk < job.chunk_count; chunk += gridDim.x) {
    if (job.states[chunk].may_have_base && job.states[chunk].is_left == 0) {
      choose_base<T>(job, chunk, &shared);
      __syncthreads(); /* what is shared is for the next chunk */
    }
  }
}

constexpr uint32_t kConvertThreads = 256;

/* Part `part` of a chunk: a thread takes a group. All threads. */
template <typename T>
__device__ __forceinline__ void convert_part(const encode_job &job, uint32_t chunk, uint32_t part) {
  const chunk_grid &grid = job.grid;
  encode_state *const state = &job.states[chunk];
  if (!state->is_based) {
    return;
  }
  const gpufi_numbers &numbers = state->numbers;
  const T *const raw = reinterpret_cast<const T *>(job.raw + chunk * grid.raw_pitch_nbytes);
  T *const based = reinterpret_cast<T *>(job.work + chunk * grid.raw_pitch_nbytes);
  const uint32_t group = part * kConvertThreads + threadIdx.x;
  bool is_off = numbers.has_fill, is_lost = false;
  if (group < group_count(grid)) {
    const uint32_t first = group * kGroup, left = grid.value_count - first;
    for (uint32_t t = 0; t < kGroup && t < left; t++) {
      const loading how = {GPUFI_TRANSFORM_NONE, job.swap};
      const auto load = [&](uint32_t k) { return load_value(raw, k, how); };
      const T p = based_value<T>(numbers, grid.component_count, first + t, grid.value_count, load);
      const T x = load(first + t), base = base_bits(numbers, p);
      is_off = is_off || base != x;
      is_lost = is_lost || !can_be_corrected(numbers, x, base);
      based[first + t] = p;
    }
  }
  is_off = __syncthreads_or(is_off) != 0;
  is_lost = __syncthreads_or(is_lost || (is_off && !job.can_correct)) != 0;
  if (threadIdx.x != 0) {
    return;
  }
  if (is_lost) {
    state->is_left = 1;
  }
  if (is_off && atomicOr(&state->has_corrections, 1u) == 0) {
    atomicAdd(job.counts[kCorrectedRuns], 1u);
  }
}

/* Each chunk has `part_count` parts. */
template <typename T>
__global__ void __launch_bounds__(kConvertThreads)
    convert_kernel(const __grid_constant__ encode_job job, uint32_t part_count) {
  begin_early();
  const uint32_t count = *job.based_count != 0 ? job.chunk_count * part_count : 0;
  for (uint32_t index = blockIdx.x; index < count; index += gridDim.x) {
    const uint32_t chunk = index / part_count;
    convert_part<T>(job, chunk, index - chunk * part_count);
  }
}

struct choose_launch {
  const encode_job &job;
  cudaStream_t stream;

  template <typename T, int C> cudaError_t run() const {
    return launch_early(choose_base_kernel<T>, rare_thread_blocks(job.chunk_count), kSampleThreads,
                        0, stream, job);
  }
};

struct convert_launch {
  const encode_job &job;
  cudaStream_t stream;

  template <typename T, int C> cudaError_t run() const {
    const uint32_t groups = (job.grid.value_count - 1) / kGroup + 1;
    const uint32_t part_count = (groups - 1) / kConvertThreads + 1;
    return launch_early(convert_kernel<T>, rare_thread_blocks(job.chunk_count * part_count),
                        kConvertThreads, 0, stream, job, part_count);
  }
};

} // namespace

namespace gpufi {

cudaError_t choose_bases(const encode_job &job, cudaStream_t stream) {
  return with_values(job.grid, choose_launch{job, stream});
}

cudaError_t convert_bases(const encode_job &job, cudaStream_t stream) {
  return with_values(job.grid, convert_launch{job, stream});
}

} // namespace gpufi
