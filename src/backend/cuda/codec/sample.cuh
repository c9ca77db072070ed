/* The sample of a chunk by which the encoder makes all of its choices, and costs by the sample: see
 * docs/format.md, What the encoder chooses. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_SAMPLE_CUH
#define GPUFI_BACKEND_CUDA_CODEC_SAMPLE_CUH

#include "backend/cuda/codec/encode.cuh"
#include "backend/cuda/codec/ranks.cuh"
#include "backend/cuda/codec/residuals.cuh"

namespace gpufi {

constexpr uint32_t kSampleThreads = GPUFI_SAMPLE_GROUPS;
constexpr uint32_t kBuckets = 1024; /* a power of two, above 512 */

/* The shared memory of a thread block. */
struct sample_shared {
  residual_cost costs[kWarp];
  residual_cost cost;
  unsigned long long offset;
  uint32_t bits, subset;
  /* For ranked chunks: how often each symbol occurs and, from bit 16 on, with a value that is not
   * 0. */
  uint32_t counts[kSymbolsMax];
  uint32_t keys[kSymbolsMax]; /* count and symbol of those that occur */
  uint32_t key_count;
  uint32_t sorted[GPUFI_SYMBOLS_MAX + 2]; /* the highest keys, falling */
  uint32_t covered[GPUFI_SYMBOLS_MAX + 1];
  uint32_t value_count, used_count, used_groups;
  unsigned long long value_or;
  /* For dictionaries: the distinct values, by hash. */
  unsigned long long buckets[kBuckets];
  uint32_t distinct_count;
  bool has_free_value; /* the value that marks a free bucket */
};

__device__ inline uint32_t group_count(const chunk_grid &grid) {
  return (grid.value_count - 1) / kGroup + 1;
}

__device__ inline uint32_t sample_take(const chunk_grid &grid) {
  const uint32_t groups = group_count(grid);
  return groups < GPUFI_SAMPLE_GROUPS ? groups : GPUFI_SAMPLE_GROUPS;
}

/* First value of sampled group k. */
__device__ inline uint32_t sampled_group(const chunk_grid &grid, uint32_t k) {
  const uint64_t groups = group_count(grid);
  if (groups <= GPUFI_SAMPLE_GROUPS) {
    return k * kGroup;
  }
  const uint32_t begin = static_cast<uint32_t>(k * groups / GPUFI_SAMPLE_GROUPS);
  const uint32_t end = static_cast<uint32_t>((k + 1) * groups / GPUFI_SAMPLE_GROUPS);
  return (begin + k * 2654435761u % (end - begin)) * kGroup;
}

struct sampled_value {
  uint32_t i;
  bool valid;
};

/* Value t of sampled group k. */
__device__ inline sampled_value sample_value(const chunk_grid &grid, uint32_t k, uint32_t t) {
  const bool there = k < sample_take(grid);
  const uint32_t i = (there ? sampled_group(grid, k) : 0) + t;
  return {i, there && i >= t && i < grid.value_count};
}

/* The value that this lane takes where eight lanes share a group. */
__device__ inline sampled_value sample_value(const chunk_grid &grid, uint32_t k) {
  return sample_value(grid, k, threadIdx.x % kGroup);
}

__device__ inline uint8_t transform_of(const chunk_grid &grid, int t) {
  return !grid.is_float ? GPUFI_TRANSFORM_NONE
         : t == 0       ? GPUFI_TRANSFORM_ROTATE
                        : GPUFI_TRANSFORM_ORDER;
}

/* What the residuals of a group have in common. */
template <typename T> struct group_tally {
  T any, zigzagged;
  uint32_t used_count; /* that are not 0 */

  __device__ __forceinline__ void add(T r) {
    any |= r;
    zigzagged |= static_cast<T>(static_cast<T>(r << 1) ^ static_cast<T>(0 - (r >> (kBits<T> - 1))));
    used_count += r != 0 ? 1 : 0;
  }
};

/* Costs of one group of each lane. All lanes, the same answer. */
template <typename T> __device__ inline residual_cost warp_cost(const group_tally<T> &group) {
  residual_cost cost;
  const uint32_t width = bit_length(group.zigzagged); /* at most 64: sums of 32 fit the words */
  const uint32_t widths = warp_add(width | (width != 0 ? 1u << 16 : 0u));
  const uint32_t used = warp_add(width * group.used_count | group.used_count << 16);
  cost.residual_or = warp_or(group.any);
  cost.width_sum = widths & 0xffff;
  cost.group_count = widths >> 16;
  cost.used_width_sum = used & 0xffff;
  cost.used_count = used >> 16;
  return cost;
}

/* Bits of the sampled groups: three of a code and the values, or, sparse, the mask's and only the
 * values that are not 0. */
__device__ inline uint32_t sampled_bits(const residual_cost &cost, uint32_t take, int value_bits) {
  const uint64_t bits = cost.residual_or;
  const uint32_t less = trailing_zeros(bits) + (bits >> (value_bits - 1) & 1 ? 0 : 1);
  const uint32_t dense = 3 * take + kGroup * (cost.width_sum - less * cost.group_count);
  const uint32_t sparse =
      take + kGroup * cost.group_count + cost.used_width_sum - less * cost.used_count;
  return dense < sparse ? dense : sparse;
}

/* Histogram of the sample's symbols. All threads. */
template <typename T>
__device__ void count_symbols(const encode_job &job, const T *raw, symbol_place place,
                              sample_shared *shared) {
  for (uint32_t s = threadIdx.x; s < 1u << place.bits; s += kSampleThreads) {
    shared->counts[s] = 0;
  }
  if (threadIdx.x == 0) {
    shared->value_count = shared->used_count = shared->used_groups = shared->key_count = 0;
  }
  __syncthreads();
  for (uint32_t k = threadIdx.x / kGroup; k < GPUFI_SAMPLE_GROUPS; k += kSampleThreads / kGroup) {
    const sampled_value here = sample_value(job.grid, k);
    const T v = here.valid ? load_value(raw, here.i, {GPUFI_TRANSFORM_NONE, job.swap}) : 0;
    if (here.valid) {
      const uint32_t symbol = static_cast<uint32_t>(v >> place.at) & ((1u << place.bits) - 1);
      atomicAdd(&shared->counts[symbol], v != 0 ? 0x10001u : 1u);
    }
    const uint32_t used = __ballot_sync(kAllLanes, v != 0),
                   valid = __ballot_sync(kAllLanes, here.valid);
    if (threadIdx.x % kWarp == 0) {
      uint32_t groups = 0;
      for (int g = 0; g < kWarp / kGroup; g++) {
        groups += used >> g * kGroup & 0xff ? 1 : 0;
      }
      atomicAdd(&shared->value_count, static_cast<uint32_t>(__popc(valid)));
      atomicAdd(&shared->used_count, static_cast<uint32_t>(__popc(used)));
      atomicAdd(&shared->used_groups, groups);
    }
  }
  __syncthreads();
}

/* The most frequent symbols, equal ones by rising symbol, and how many values the first so many of
 * them cover. All threads. */
__device__ inline void sort_symbols(symbol_place place, bool sparse, sample_shared *shared) {
  for (uint32_t i = threadIdx.x; i < GPUFI_SYMBOLS_MAX + 2; i += kSampleThreads) {
    shared->sorted[i] = 0;
  }
  for (uint32_t s = threadIdx.x; s < 1u << place.bits; s += kSampleThreads) {
    const uint32_t count = sparse ? shared->counts[s] >> 16 : shared->counts[s] & 0xffff;
    if (count != 0) {
      shared->keys[atomicAdd(&shared->key_count, 1u)] = count * kSymbolsMax + (kSymbolsMax - 1 - s);
    }
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < shared->key_count; i += kSampleThreads) {
    const uint32_t key = shared->keys[i];
    uint32_t rank = 0;
    for (uint32_t k = 0; k < shared->key_count; k++) {
      rank += shared->keys[k] > key ? 1 : 0;
    }
    if (rank < GPUFI_SYMBOLS_MAX) {
      shared->sorted[rank] = key;
    }
  }
  __syncthreads();
  if (threadIdx.x < kWarp) {
    uint32_t base = 0;
    for (uint32_t first = 0; first < GPUFI_SYMBOLS_MAX; first += kWarp) {
      const uint32_t i = first + threadIdx.x;
      const uint32_t count = i < GPUFI_SYMBOLS_MAX ? shared->sorted[i] / kSymbolsMax : 0;
      const uint32_t ends = base + warp_scan(count, static_cast<int>(threadIdx.x));
      if (i < GPUFI_SYMBOLS_MAX) {
        shared->covered[i + 1] = ends;
      }
      base = __shfl_sync(kAllLanes, ends, kWarp - 1);
    }
    if (threadIdx.x == 0) {
      shared->covered[0] = 0;
    }
  }
  __syncthreads();
}

/* The table of symbols: those that occur, by falling count, then those that do not. All threads. */
__device__ inline void write_symbols(symbol_place place, bool sparse, const sample_shared &shared,
                                     encode_state *state) {
  const rank_levels ranks = {place, state->levels};
  const uint32_t count = ranks.count();
  for (uint32_t i = threadIdx.x; i < count && i < shared.key_count; i += kSampleThreads) {
    state->symbols[i] = static_cast<uint16_t>(kSymbolsMax - 1 - shared.sorted[i] % kSymbolsMax);
  }
  if (threadIdx.x == 0) {
    uint32_t i = shared.key_count;
    for (uint32_t s = 0; i < count; s++) {
      const bool occurs = sparse ? shared.counts[s] >> 16 : shared.counts[s] & 0xffff;
      if (!occurs) {
        state->symbols[i++] = static_cast<uint16_t>(s);
      }
    }
  }
}

/* The cheapest pair of code lengths, the first of equals, for `total` values: sets *levels, and
 * returns the cost in bits, the table's included. By one warp; each lane tries a pair. */
__device__ inline uint64_t choose_levels(symbol_place place, uint64_t total, uint64_t groups,
                                         uint64_t take, const sample_shared &shared,
                                         uint8_t *levels) {
  constexpr uint32_t kSeconds = GPUFI_SECOND_BITS_MAX + 1;
  static_assert(GPUFI_FIRST_BITS_MAX * kSeconds <= kWarp, "a lane a pair");
  const uint32_t lane = threadIdx.x, a = lane / kSeconds + 1, b = lane % kSeconds;
  const rank_levels ranks = {place, static_cast<uint8_t>(a | b << 4)};
  uint64_t cost = UINT64_MAX;
  if (a <= GPUFI_FIRST_BITS_MAX && ranks.count() <= 1u << place.bits) {
    const uint64_t second = total - shared.covered[ranks.first_count()];
    const uint64_t escaped = total - shared.covered[ranks.count()];
    const uint64_t coded = total * a + second * b + escaped * 8 * place.nbytes();
    cost = coded * groups / take + 8 * static_cast<uint64_t>(ranks.table_nbytes());
  }
  uint64_t least = cost;
  for (int step = 16; step > 0; step /= 2) {
    const uint64_t other = __shfl_xor_sync(kAllLanes, least, step);
    least = other < least ? other : least;
  }
  const uint32_t winners = __ballot_sync(kAllLanes, cost == least);
  *levels = static_cast<uint8_t>(
      __shfl_sync(kAllLanes, a | b << 4, __ffs(static_cast<int>(winners)) - 1));
  return least;
}

/* True if ranked is cheaper than `bits`, by enough; then the levels and the symbols are set. All
 * threads, the same answer. */
template <typename T>
__device__ bool rank_is_cheaper(const encode_job &job, const T *raw, uint64_t bits,
                                encode_state *state, sample_shared *shared) {
  const chunk_grid &grid = job.grid;
  const symbol_place place = {job.symbol_at, job.symbol_bits};
  if (place.bits == 0) {
    return false;
  }
  count_symbols(job, raw, place, shared);
  const uint64_t groups = group_count(grid), take = sample_take(grid);
  const bool sparse = shared->used_count != 0 && 4 * shared->used_count <= 3 * shared->value_count;
  sort_symbols(place, sparse, shared);
  bool cheaper = false;
  if (threadIdx.x < kWarp) {
    const uint64_t total = sparse ? shared->used_count : shared->value_count;
    const uint64_t mask = sparse ? take + static_cast<uint64_t>(kGroup) * shared->used_groups : 0;
    const uint64_t rest = total * (static_cast<uint64_t>(kBits<T>) - place.bits);
    uint8_t levels;
    const uint64_t ranked =
        (mask + rest) * groups / take + choose_levels(place, total, groups, take, *shared, &levels);
    cheaper = ranked + ranked / 64 < bits;
    if (threadIdx.x == 0) {
      state->levels = levels;
    }
  }
  if (__syncthreads_or(cheaper) == 0) {
    return false;
  }
  write_symbols(place, sparse, *shared, state);
  return true;
}

/* False if ranked costs more than `bits` whatever the tree, whose codes have a bit for each value
 * at least. All threads, the same answer. */
template <typename T>
__device__ bool may_be_ranked(const encode_job &job, const T *raw, uint64_t bits,
                              sample_shared *shared) {
  const uint32_t symbol_bits = sizeof(T) == 1 ? 8 : sizeof(T) < 8 && job.grid.is_float ? 10 : 11;
  if (threadIdx.x == 0) {
    shared->value_count = shared->used_count = shared->used_groups = 0;
    shared->value_or = 0;
  }
  __syncthreads();
  uint32_t count = 0, used = 0;
  T any = 0;
  for (uint32_t t = 0; t < kGroup; t++) {
    const sampled_value here = sample_value(job.grid, threadIdx.x, t);
    const T v = here.valid ? load_value(raw, here.i, {GPUFI_TRANSFORM_NONE, job.swap}) : 0;
    count += here.valid ? 1 : 0;
    used += v != 0 ? 1 : 0;
    any |= v;
  }
  atomicAdd(&shared->value_count, count);
  atomicAdd(&shared->used_count, used);
  atomicAdd(&shared->used_groups, used != 0 ? 1u : 0u);
  atomicOr(&shared->value_or, static_cast<unsigned long long>(any));
  __syncthreads();
  const uint64_t groups = group_count(job.grid), take = sample_take(job.grid);
  const bool sparse = shared->used_count != 0 && 4 * shared->used_count <= 3 * shared->value_count;
  const uint64_t total = sparse ? shared->used_count : shared->value_count;
  const uint64_t mask = sparse ? take + static_cast<uint64_t>(kGroup) * shared->used_groups : 0;
  const uint32_t zeros = trailing_zeros(static_cast<uint64_t>(shared->value_or));
  const uint64_t rest =
      shared->value_or == 0 || kBits<T> <= symbol_bits + zeros ? 0 : kBits<T> - symbol_bits - zeros;
  return (mask + total * (rest + 1)) * groups / take < bits;
}

/* True if the sample has no more distinct values than a dictionary holds. The whole chunk may have
 * more. All threads, the same answer. */
template <typename T>
__device__ bool has_few_values(const encode_job &job, const T *raw, sample_shared *shared) {
  constexpr unsigned long long kFree = UINT64_MAX;
  if (sizeof(T) == 1) {
    return false;
  }
  for (uint32_t s = threadIdx.x; s < kBuckets; s += kSampleThreads) {
    shared->buckets[s] = kFree;
  }
  if (threadIdx.x == 0) {
    shared->distinct_count = 0;
    shared->has_free_value = false;
  }
  __syncthreads();
  for (uint32_t k = threadIdx.x / kGroup; k < GPUFI_SAMPLE_GROUPS; k += kSampleThreads / kGroup) {
    const sampled_value here = sample_value(job.grid, k);
    const unsigned long long v = here.valid ? raw[here.i] : 0;
    bool is_new = here.valid && v != kFree;
    if (here.valid && v == kFree) {
      shared->has_free_value = true;
    }
    uint32_t bucket = static_cast<uint32_t>(v * UINT64_C(0x9e3779b97f4a7c15) >> 32) % kBuckets;
    while (is_new) { /* ends: a turn adds at most 256 values to at most 256 */
      const unsigned long long there = atomicCAS(&shared->buckets[bucket], kFree, v);
      if (there == kFree) {
        atomicAdd(&shared->distinct_count, 1u);
        break;
      }
      is_new = there != v;
      bucket = (bucket + 1) % kBuckets;
    }
    if (__syncthreads_or(shared->distinct_count > GPUFI_DICTIONARY_ENTRIES_MAX)) {
      return false;
    }
  }
  return shared->distinct_count + (shared->has_free_value ? 1 : 0) <= GPUFI_DICTIONARY_ENTRIES_MAX;
}

} // namespace gpufi

#endif
