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

constexpr uint32_t kTableMax = GPUFI_TREE_LEAVES_MAX - 1; /* entries of a symbol table */
/* A Huffman tree's levels are fewer: a leaf at level d takes a sum of at least the (d + 1)-th
 * Fibonacci number, and the sum is that of the sample's values and 1. */
constexpr uint32_t kHuffmanLevels = 24;

/* The codes for one place of the symbol. */
struct tried_codes {
  symbol_place place;
  uint64_t bits;              /* the cost of all; UINT64_MAX if the rests alone cost too much */
  uint64_t rest_bits;         /* of that the mask and the rests */
  uint32_t listed;            /* symbols of the table */
  uint32_t sorted[kTableMax]; /* their keys, falling */
  uint32_t leaves[kHuffmanLevels]; /* of each level */
  uint16_t joined[kTableMax];      /* weights of the nodes that are not leaves, as they are made */
  uint8_t parent_of_leaf[GPUFI_TREE_LEAVES_MAX], parent[kTableMax], level[kTableMax];
  rank_codes codes;

  __device__ uint32_t weight(uint32_t leaf) const {
    return leaf < listed ? sorted[leaf] / kSymbolsMax : 1;
  }
};

/* The shared memory of a thread block. */
struct sample_shared {
  residual_cost costs[kWarp];
  residual_cost cost;
  unsigned long long offset;
  uint32_t bits, subset;
  /* For ranked chunks: how often each symbol occurs. */
  uint32_t counts[kSymbolsMax];
  uint32_t keys[kSymbolsMax]; /* count and symbol of those that occur */
  uint32_t key_count;
  tried_codes tried[GPUFI_CUTS_MAX];
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

/* Values of the sample, and its groups of eight values: all but the chunk's last group are whole.
 */
__device__ inline uint32_t sampled_values(const chunk_grid &grid) {
  const uint32_t take = sample_take(grid), last = sampled_group(grid, take - 1);
  const uint32_t left = grid.value_count - last;
  return (take - 1) * kGroup + (left < kGroup ? left : kGroup);
}

__device__ inline uint32_t sampled_whole_groups(const chunk_grid &grid) {
  return sampled_values(grid) / kGroup;
}

__device__ inline uint8_t transform_of(const chunk_grid &grid, int t) {
  return !grid.is_float ? GPUFI_TRANSFORM_NONE
         : t == 0       ? GPUFI_TRANSFORM_ROTATE
                        : GPUFI_TRANSFORM_ORDER;
}

/* What the values of the sample that are to be ranked have in common: all of them or, where a mask
 * pays, those that are not 0. */
struct ranked_sample {
  bool sparse;
  uint32_t value_count;
  uint64_t mask_bits;
  uint32_t zeros; /* low bits that are 0 in all */
};

/* Call f(value, valid) with the values of the sample, a value for each thread at a time. */
template <typename T, typename Function>
__device__ __forceinline__ void each_sampled_value(const encode_job &job, const T *raw,
                                                   const Function &f) {
  for (uint32_t k = threadIdx.x / kGroup; k < GPUFI_SAMPLE_GROUPS; k += kSampleThreads / kGroup) {
    const sampled_value here = sample_value(job.grid, k);
    const T v = here.valid ? load_value(raw, here.i, {GPUFI_TRANSFORM_NONE, job.swap}) : 0;
    f(v, here.valid);
  }
}

/* From the cost of the values themselves, `any` being the bits that are 1 in any of them. */
template <typename T>
__device__ ranked_sample survey_sample(const encode_job &job, const residual_cost &values, T any) {
  ranked_sample sample;
  const uint32_t used = values.used_count, all = sampled_values(job.grid);
  sample.sparse = used != 0 && 4 * used <= 3 * all;
  sample.value_count = sample.sparse ? used : all;
  sample.mask_bits =
      sample.sparse ? sample_take(job.grid) + static_cast<uint64_t>(kGroup) * values.group_count
                    : 0;
  const uint64_t bits = any;
  sample.zeros = any != 0 ? trailing_zeros(bits) : kBits<T>;
  return sample;
}

/* Histogram of the sample's symbols at a place. All threads, which are then synchronized. */
template <typename T>
__device__ void count_symbols(const encode_job &job, const T *raw, symbol_place place, bool sparse,
                              sample_shared *shared) {
  for (uint32_t s = threadIdx.x; s < 1u << place.bits; s += kSampleThreads) {
    shared->counts[s] = 0;
  }
  if (threadIdx.x == 0) {
    shared->key_count = 0;
  }
  __syncthreads();
  each_sampled_value(job, raw, [&](T v, bool is_valid) {
    if (is_valid && !(sparse && v == 0)) {
      atomicAdd(&shared->counts[static_cast<uint32_t>(v >> place.at) & ((1u << place.bits) - 1)],
                1u);
    }
  });
  __syncthreads();
}

/* The table of symbols: those that occur, by falling count, equal ones by rising symbol. All
 * threads, which are then synchronized. */
__device__ inline void sort_symbols(sample_shared *shared, tried_codes *to) {
  for (uint32_t s = threadIdx.x; s < 1u << to->place.bits; s += kSampleThreads) {
    const uint32_t count = shared->counts[s];
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
    if (rank < kTableMax) {
      to->sorted[rank] = key;
    }
  }
  if (threadIdx.x == 0) {
    to->listed = shared->key_count < kTableMax ? shared->key_count : kTableMax;
  }
  __syncthreads();
}

/* The level of each node of the Huffman tree but the leaves; tree.c is the reference. One thread.
 */
__device__ inline void join_least(tried_codes *t) {
  const uint32_t inner = t->listed; /* nodes that are made, one fewer than leaves */
  uint32_t left = t->listed + 1, next = 0;
  for (uint32_t made = 0; made < inner; made++) {
    uint32_t sum = 0;
    for (int side = 0; side < 2; side++) {
      if (left > 0 && (next == made || t->weight(left - 1) <= t->joined[next])) {
        sum += t->weight(--left);
        t->parent_of_leaf[left] = static_cast<uint8_t>(made);
      } else {
        sum += t->joined[next];
        t->parent[next++] = static_cast<uint8_t>(made);
      }
    }
    t->joined[made] = static_cast<uint16_t>(sum);
  }
  for (uint32_t k = inner; k-- > 0;) { /* the last one made is the root */
    const bool is_root = k + 1 == inner;
    t->level[k] = is_root ? 0 : static_cast<uint8_t>(t->level[t->parent[k]] + 1);
  }
}

/* Leaves below the limit are moved up to it, and others down for them; tree.c is the reference.
 * Then the tree is known. One thread. */
__device__ inline void limit_depth(tried_codes *t) {
  constexpr uint32_t kLimit = GPUFI_TREE_DEPTH_MAX;
  uint8_t of_levels[kLimit];
  uint32_t used = 0, depth = kLimit;
  for (uint32_t j = kLimit + 1; j < kHuffmanLevels; j++) {
    t->leaves[kLimit] += t->leaves[j];
  }
  for (uint32_t j = 1; j <= kLimit; j++) {
    used += t->leaves[j] << (kLimit - j);
  }
  for (; used > 1u << kLimit; used--) {
    uint32_t j = kLimit - 1;
    while (t->leaves[j] == 0) {
      j--;
    }
    t->leaves[j]--;
    t->leaves[j + 1] += 2;
    t->leaves[kLimit]--;
  }
  while (t->leaves[depth] == 0) {
    depth--;
  }
  for (uint32_t j = 0; j < kLimit; j++) {
    of_levels[j] = static_cast<uint8_t>(t->leaves[j + 1]);
  }
  t->codes.place = t->place;
  t->codes.set_tree(depth, of_levels);
}

/* The tree for a table of symbols, and its cost with that of the table: sets `codes` and adds to
 * `bits`. Those symbols that occur once are a sign of others that do not occur in the sample: as
 * many values again are taken to be stored. A whole warp. */
__device__ inline void build_tree(const encode_job &job, uint32_t value_count, tried_codes *t) {
  const uint32_t lane = threadIdx.x % kWarp, each = t->place.nbytes();
  if (lane < kHuffmanLevels) {
    t->leaves[lane] = 0;
  }
  if (lane == 0) {
    join_least(t);
  }
  __syncwarp();
  for (uint32_t leaf = lane; leaf <= t->listed; leaf += kWarp) {
    atomicAdd(&t->leaves[t->level[t->parent_of_leaf[leaf]] + 1], 1u);
  }
  __syncwarp();
  if (lane == 0) {
    limit_depth(t);
  }
  __syncwarp();
  uint32_t code_bits = 0, listed = 0; /* at most 2048 values, of 12 bits each */
  for (uint32_t leaf = lane; leaf < t->listed; leaf += kWarp) {
    const uint32_t weight = t->weight(leaf);
    code_bits += weight * t->codes.level_of(leaf);
    listed += weight - (weight == 1 ? 1 : 0);
  }
  code_bits = warp_add(code_bits);
  const uint64_t escaped = value_count - warp_add(listed);
  if (lane == 0) {
    const uint64_t codes = code_bits + escaped * (t->codes.level_of(t->codes.last()) + 8 * each);
    t->bits = t->rest_bits + codes * group_count(job.grid) / sample_take(job.grid) +
              8 * static_cast<uint64_t>(t->codes.table_nbytes());
  }
}

/* Where the symbol may be, as number `k` of the places that are tried. */
__device__ inline symbol_place place_at(const gpufi_cuts &cuts, uint32_t k, uint32_t zeros) {
  const uint32_t more = k * cuts.step, at = cuts.at - more;
  return {static_cast<uint8_t>(at), static_cast<uint8_t>(cuts.bits + more),
          static_cast<uint8_t>(zeros < at ? zeros : at)};
}

/* What the chunk costs: `bits`, or less if ranked is cheaper by enough; then the codes and the
 * symbols are set. `sample` is what survey_sample() found. All threads, the same answer. */
template <typename T>
__device__ uint64_t choose_ranks(const encode_job &job, const T *raw, const ranked_sample &sample,
                                 uint64_t bits, encode_state *state, sample_shared *shared) {
  const uint64_t groups = group_count(job.grid), take = sample_take(job.grid);
  const uint32_t place_count = job.cuts.more / job.cuts.step + 1u;
  for (uint32_t k = 0; k < place_count; k++) {
    tried_codes *const to = &shared->tried[k];
    const symbol_place place = place_at(job.cuts, k, sample.zeros);
    const uint64_t rests =
        sample.value_count * (static_cast<uint64_t>(kBits<T>) - place.bits - place.shift);
    const uint64_t rest_bits = (sample.mask_bits + rests) * groups / take;
    if (threadIdx.x == 0) {
      to->place = place;
      to->rest_bits = rest_bits;
      to->bits = UINT64_MAX;
    }
    if (rest_bits < bits) {
      count_symbols(job, raw, place, sample.sparse, shared);
      sort_symbols(shared, to);
    }
  }
  __syncthreads();
  const uint32_t warp = threadIdx.x / kWarp;
  if (warp < place_count && shared->tried[warp].rest_bits < bits) {
    build_tree(job, sample.value_count, &shared->tried[warp]);
  }
  __syncthreads();
  uint32_t best = 0;
  for (uint32_t k = 1; k < place_count; k++) {
    best = shared->tried[k].bits < shared->tried[best].bits ? k : best;
  }
  const tried_codes &taken = shared->tried[best];
  if (taken.bits >= bits || taken.bits + taken.bits / 64 >= bits) {
    return bits;
  }
  for (uint32_t i = threadIdx.x; i < taken.listed; i += kSampleThreads) {
    state->symbols[i] = static_cast<uint16_t>(kSymbolsMax - 1 - taken.sorted[i] % kSymbolsMax);
  }
  if (threadIdx.x == 0) {
    state->ranks = taken.codes;
  }
  return taken.bits;
}

/* True if the sample has no more distinct values than a dictionary holds, of which values of a byte
 * have none. The whole chunk may have more. All threads, the same answer. */
template <typename T>
__device__ bool has_few_values(const encode_job &job, const T *raw, sample_shared *shared) {
  constexpr unsigned long long kFree = UINT64_MAX;
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
