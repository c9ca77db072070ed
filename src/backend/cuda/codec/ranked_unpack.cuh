/* Unpacking a ranked block from shared memory into a warp's registers; codec/ranked_block.c and
 * codec/levels.c are the reference. The bytes are untrusted input. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_RANKED_UNPACK_CUH
#define GPUFI_BACKEND_CUDA_CODEC_RANKED_UNPACK_CUH

#include "backend/cuda/codec/ranks.cuh"
#include "backend/cuda/codec/unpack.cuh"

namespace gpufi {

/* What a thread block knows of its chunk, and, in version 1, the symbols of those values of each of
 * its warps that have no first code. */
struct rank_symbols {
  rank_codes ranks;
  uint16_t symbols[GPUFI_TREE_LEAVES_MAX];
  uint16_t seconds[GPUFI_RUN_BLOCKS][GPUFI_BLOCK_VALUES + kGroup];
};

/* Group `first`..first + 7 of a section of `count` values at byte `at`, `width` bits each, which
 * may be 0. False if what fills the last group up is not 0. */
template <typename T>
__device__ __forceinline__ bool take_fixed(const uint32_t *words, uint32_t at, uint32_t first,
                                           uint32_t count, uint32_t width, T *v) {
  bool good = true;
#pragma unroll
  for (int t = 0; t < kGroup; t++) {
    v[t] = 0;
  }
  if (width != 0 && first < count) {
    take_group(words, at + first / kGroup * width, width, v);
#pragma unroll
    for (uint32_t t = 0; t < kGroup; t++) {
      good = good && (first + t < count || v[t] == 0);
    }
  }
  return good;
}

/* The symbols of the `count` values without a first code to `seconds`, from byte `at` on, up to
 * `end`. False, on some lane at least, if anything is not right. All lanes. */
__device__ inline bool take_seconds(const rank_symbols &tables, const uint32_t *words, uint32_t at,
                                    uint32_t end, uint32_t count, int lane, uint16_t *seconds) {
  const rank_codes &ranks = tables.ranks;
  const uint8_t *const bytes = reinterpret_cast<const uint8_t *>(words);
  const uint32_t width = ranks.second_bits(), each = ranks.place.nbytes();
  const uint32_t stored_at = at + fixed_nbytes(count, width);
  if (stored_at > end) {
    return false;
  }
  uint8_t codes[kLaneGroups][kGroup];
  uint32_t sizes[kLaneGroups], next[kLaneGroups];
  bool good = true;
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t first = index_of(j, lane) * kGroup;
    good = take_fixed(words, at, first, count, width, codes[j]) && good;
    sizes[j] = 0;
#pragma unroll
    for (uint32_t t = 0; t < kGroup; t++) {
      sizes[j] += first + t < count && codes[j][t] == ranks.second_count() ? 1 : 0;
    }
  }
  const uint32_t stored_count = scan_groups(sizes, lane, next);
  if (stored_count * each != end - stored_at) {
    return false;
  }
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t first = index_of(j, lane) * kGroup;
#pragma unroll
    for (uint32_t t = 0; t < kGroup; t++) {
      if (first + t < count) {
        uint32_t symbol = 0;
        if (codes[j][t] == ranks.second_count()) {
          const uint32_t from = stored_at + next[j]++ * each;
          symbol = bytes[from] | (each == 2 ? static_cast<uint32_t>(bytes[from + 1]) << 8 : 0);
          good = good && symbol >> ranks.place.bits == 0;
        } else {
          symbol = tables.symbols[ranks.first_count() + codes[j][t]];
        }
        seconds[first + t] = static_cast<uint16_t>(symbol);
      }
    }
  }
  __syncwarp();
  return good;
}

/* The `count` values of a coded block of version 1, from byte `at` to `end`; 0 behind the count.
 * False, on some lane at least, if anything is not right. All lanes. */
template <typename T>
__device__ __forceinline__ bool unpack_levels(const rank_symbols &tables, const uint32_t *words,
                                              uint32_t at, uint32_t end, uint32_t count, int lane,
                                              uint16_t *seconds, T r[kLaneGroups][kGroup]) {
  const rank_codes &ranks = tables.ranks;
  const uint32_t rest_bits = ranks.template rest_bits<T>();
  const uint32_t firsts_at = at + fixed_nbytes(count, rest_bits);
  const uint32_t seconds_at = firsts_at + fixed_nbytes(count, ranks.first_bits());
  if (seconds_at > end) {
    return false;
  }
  uint8_t codes[kLaneGroups][kGroup];
  uint32_t sizes[kLaneGroups], next[kLaneGroups];
  bool good = true;
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t first = index_of(j, lane) * kGroup;
    good = take_fixed(words, at, first, count, rest_bits, r[j]) && good;
    good = take_fixed(words, firsts_at, first, count, ranks.first_bits(), codes[j]) && good;
    sizes[j] = 0;
#pragma unroll
    for (uint32_t t = 0; t < kGroup; t++) {
      sizes[j] += first + t < count && codes[j][t] == ranks.first_count() ? 1 : 0;
    }
  }
  const uint32_t second_count = scan_groups(sizes, lane, next);
  good = take_seconds(tables, words, seconds_at, end, second_count, lane, seconds) && good;
  if (!__all_sync(kAllLanes, good)) {
    return false;
  }
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t first = index_of(j, lane) * kGroup;
#pragma unroll
    for (uint32_t t = 0; t < kGroup; t++) {
      if (first + t < count) {
        const bool has_code = codes[j][t] != ranks.first_count();
        const uint32_t symbol = has_code ? tables.symbols[codes[j][t]] : seconds[next[j]++];
        r[j][t] = ranks.value_of(r[j][t], symbol);
      }
    }
  }
  return true;
}

/* The bytes from `at` on, of which `nbytes` are the block's, as the steps of `count` values to
 * their leaves. Returns how many bytes the steps take, or UINT32_MAX if they are not right. All
 * lanes, the same answer. */
__device__ __forceinline__ uint32_t take_walks(const rank_codes &ranks, const uint8_t *bytes,
                                               uint32_t nbytes, uint32_t count, int lane,
                                               uint8_t leaves[kLaneGroups][kGroup]) {
  uint32_t sizes[kLaneGroups], starts[kLaneGroups];
  uint32_t walking = 0; /* bit 8 * j + t: that value of the lane is not at a leaf yet */
  uint32_t bit = 0;
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
#pragma unroll
    for (uint32_t t = 0; t < kGroup; t++) {
      leaves[j][t] = 0;
      walking |= (index_of(j, lane) * kGroup + t < count ? 1u : 0u) << (8 * j + t);
    }
  }
#pragma unroll 1
  for (uint32_t level = 1; level <= ranks.depth(); level++) {
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      sizes[j] = static_cast<uint32_t>(__popc(walking >> 8 * j & 0xff));
    }
    const uint32_t all = scan_groups(sizes, lane, starts);
    if (all == 0) {
      break;
    }
    if (bit + all > 8 * nbytes) {
      return UINT32_MAX;
    }
    const uint32_t before = ranks.before[level], above = ranks.before[level + 1];
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      if (sizes[j] != 0) {
        const uint32_t from = bit + starts[j];
        uint32_t steps =
            (bytes[from / 8] | static_cast<uint32_t>(bytes[from / 8 + 1]) << 8) >> from % 8;
#pragma unroll
        for (uint32_t t = 0; t < kGroup; t++) {
          if (walking >> (8 * j + t) & 1) {
            const uint32_t node = 2u * leaves[j][t] - before + (steps & 1);
            steps >>= 1;
            leaves[j][t] = static_cast<uint8_t>(node);
            walking &= ~((node < above ? 1u : 0u) << (8 * j + t));
          }
        }
      }
    }
    bit += all;
  }
  const uint32_t taken = (bit + 7) / 8;
  return bit % 8 == 0 || bytes[taken - 1] >> bit % 8 == 0 ? taken : UINT32_MAX;
}

/* The `count` values of a coded block, from byte `at` to `end`; 0 behind the count. False, on some
 * lane at least, if anything is not right. All lanes. */
template <typename T>
__device__ __forceinline__ bool unpack_sections(const rank_symbols &tables, const uint32_t *words,
                                                uint32_t at, uint32_t end, uint32_t count, int lane,
                                                T r[kLaneGroups][kGroup]) {
  const rank_codes &ranks = tables.ranks;
  const uint8_t *const bytes = reinterpret_cast<const uint8_t *>(words);
  const uint32_t rest_bits = ranks.template rest_bits<T>(), each = ranks.place.nbytes();
  const uint32_t codes_at = at + fixed_nbytes(count, rest_bits);
  uint8_t leaves[kLaneGroups][kGroup];
  uint32_t sizes[kLaneGroups], next[kLaneGroups];
  if (codes_at > end) {
    return false;
  }
  const uint32_t codes_nbytes =
      take_walks(ranks, bytes + codes_at, end - codes_at, count, lane, leaves);
  if (codes_nbytes == UINT32_MAX) {
    return false;
  }
  const uint32_t stored_at = codes_at + codes_nbytes, last = ranks.last();
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    sizes[j] = 0;
#pragma unroll
    for (uint32_t t = 0; t < kGroup; t++) {
      sizes[j] += index_of(j, lane) * kGroup + t < count && leaves[j][t] == last ? 1 : 0;
    }
  }
  if (scan_groups(sizes, lane, next) * each != end - stored_at) {
    return false;
  }
  bool good = true;
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t first = index_of(j, lane) * kGroup;
    good = take_fixed(words, at, first, count, rest_bits, r[j]) && good;
#pragma unroll
    for (uint32_t t = 0; t < kGroup; t++) {
      if (first + t < count) {
        uint32_t symbol = 0;
        if (leaves[j][t] == last) {
          const uint32_t from = stored_at + next[j]++ * each;
          symbol = bytes[from] | (each == 2 ? static_cast<uint32_t>(bytes[from + 1]) << 8 : 0);
          good = good && symbol >> ranks.place.bits == 0;
        } else {
          symbol = tables.symbols[leaves[j][t]];
        }
        r[j][t] = ranks.value_of(r[j][t], symbol);
      }
    }
  }
  return good;
}

/* As unpack_block, for a block of a ranked chunk. */
template <typename T>
__device__ __forceinline__ bool unpack_ranked(const rank_symbols &tables, const uint32_t *words,
                                              uint32_t at, uint32_t word, uint32_t count, int lane,
                                              uint16_t *seconds, warp_mask *mask,
                                              uint32_t *list_count, T r[kLaneGroups][kGroup]) {
  block_fields block(word);
  const bool sparse = block.form == GPUFI_FORM_SPARSE;
  const bool has_list = block.kind == GPUFI_BLOCK_CODED || block.kind == GPUFI_BLOCK_RAW;
  *list_count = count;
  if (block.width != 0 || block.shift != 0 || (block.form != 0 && !(sparse && has_list)) ||
      (!has_list && block.kind != GPUFI_BLOCK_ZERO)) {
    return false;
  }
  if (sparse) {
    if (!read_mask(reinterpret_cast<const uint8_t *>(words) + at, block.nbytes, count, lane,
                   mask)) {
      return false;
    }
    const uint32_t mask_nbytes = mask->nbytes(mask_shape(count));
    at += mask_nbytes;
    block.nbytes -= mask_nbytes;
    *list_count = mask->used_count();
  }
  const uint32_t end = at + block.nbytes;
  if (block.kind != GPUFI_BLOCK_CODED) {
    return unpack_list(words, at, block, *list_count, lane, r);
  }
  return tables.ranks.has_tree
             ? unpack_sections(tables, words, at, end, *list_count, lane, r)
             : unpack_levels(tables, words, at, end, *list_count, lane, seconds, r);
}

} // namespace gpufi

#endif
