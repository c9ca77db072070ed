/* Packing the values of a ranked block that a warp holds in registers; codec/ranked_block.c is the
 * reference. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_RANKED_PACK_CUH
#define GPUFI_BACKEND_CUDA_CODEC_RANKED_PACK_CUH

#include "backend/cuda/codec/checksum.cuh"
#include "backend/cuda/codec/pack.cuh"
#include "backend/cuda/codec/ranks.cuh"

namespace gpufi {

/* What a thread block knows of its chunk. */
struct rank_tables {
  rank_codes ranks;
  uint8_t leaf_of[kSymbolsMax];          /* of a symbol; the last leaf if it is not in the table */
  uint16_t walks[GPUFI_TREE_LEAVES_MAX]; /* to each leaf, as walk_to() has them */
};

/* All threads of the thread block. */
__device__ inline void fill_tables(const rank_codes &ranks, const uint16_t *symbols,
                                   uint32_t thread_count, rank_tables *tables) {
  for (uint32_t s = threadIdx.x; s < 1u << ranks.place.bits; s += thread_count) {
    tables->leaf_of[s] = static_cast<uint8_t>(ranks.last());
  }
  for (uint32_t leaf = threadIdx.x; leaf <= ranks.last(); leaf += thread_count) {
    tables->walks[leaf] = static_cast<uint16_t>(ranks.walk_to(leaf));
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < ranks.count(); i += thread_count) {
    tables->leaf_of[symbols[i]] = static_cast<uint8_t>(i);
  }
  if (threadIdx.x == 0) {
    tables->ranks = ranks;
  }
  __syncthreads();
}

/* The symbol table, behind the header of the chunk at `chunk`; adds this thread's share to `sum`.
 */
__device__ inline void write_table(const rank_codes &ranks, const uint16_t *symbols, uint8_t *chunk,
                                   chunk_sum *sum) {
  const uint32_t at = threadIdx.x * 16, each = ranks.place.nbytes();
  if (at < ranks.padded_nbytes()) {
    uint32_t words[4] = {};
    for (uint32_t k = 0; k < 16; k++) {
      const uint32_t i = (at + k) / each;
      const uint32_t byte = i < ranks.count() ? symbols[i] >> ((at + k) % each * 8) & 0xff : 0;
      words[k / 4] |= byte << (k % 4 * 8);
    }
    const uint4 unit = make_uint4(words[0], words[1], words[2], words[3]);
    *reinterpret_cast<uint4 *>(chunk + GPUFI_HEADER_NBYTES + at) = unit;
    sum->add((GPUFI_HEADER_NBYTES + at) / 8, unit);
  }
}

/* Up to 8 bits, to bit `at` of words that are zero there and that others may share. */
__device__ inline void put_bits(uint32_t *words, uint32_t at, uint32_t value) {
  atomicOr(words + at / 32, value << at % 32);
  if (at % 32 > 24) {
    atomicOr(words + at / 32 + 1, value >> (32 - at % 32));
  }
}

/* One block. Every method is for a whole warp. */
template <typename T> struct ranked_block {
  T values[kLaneGroups][kGroup]; /* all, or those that are not 0 in a sparse block; then zeros */
  warp_mask mask;                /* of a sparse block */
  uint32_t total, count;         /* values of the block, and of those in `values` */
  uint32_t kind, form;
  uint32_t mask_nbytes, nbytes; /* of the mask; of all of it */

  /* Make it the block of no values. */
  __device__ __forceinline__ void clear() {
    clear_groups(values);
    total = count = kind = form = mask_nbytes = nbytes = 0;
  }

  __device__ uint32_t descriptor() const {
    return nbytes | form << 27 | kind << 30;
  }

  __device__ bool is_there(int j, int lane, int t) const {
    return index_of(j, lane) * kGroup + static_cast<uint32_t>(t) < count;
  }

  /* Bytes of the sections, or as many as the values take if they have bits below the shift. */
  __device__ __forceinline__ uint32_t sections_nbytes(const rank_tables &tables, int lane) const {
    const rank_codes &ranks = tables.ranks;
    uint32_t code_bits = 0, stored_count = 0;
    T any = 0;
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        any |= values[j][t];
        if (is_there(j, lane, t)) {
          const uint32_t leaf = tables.leaf_of[ranks.symbol_of(values[j][t])];
          code_bits += bit_length(static_cast<uint32_t>(tables.walks[leaf])) - 1;
          stored_count += leaf == ranks.last() ? 1 : 0;
        }
      }
    }
    const uint32_t both = warp_add(code_bits | stored_count << 16);
    if ((warp_or(any) & ((UINT64_C(1) << ranks.place.shift) - 1)) != 0) {
      return count * static_cast<uint32_t>(sizeof(T));
    }
    return fixed_nbytes(count, ranks.template rest_bits<T>()) + ((both & 0xffff) + 7) / 8 +
           (both >> 16) * ranks.place.nbytes();
  }

  /* Set everything from `values`, of which the block has `value_count`. `list` can hold
   * as many. */
  __device__ __forceinline__ void measure(const rank_tables &tables, uint32_t value_count, int lane,
                                          T *list) {
    total = count = value_count;
    mask = mask_of(values);
    const uint32_t used_count = mask.used_count();
    if (used_count == 0) {
      kind = GPUFI_BLOCK_ZERO;
      return;
    }
    if (4 * used_count <= 3 * value_count) {
      form = GPUFI_FORM_SPARSE;
      compact_values(mask, values, lane, list);
      load_list(list, used_count, lane, values);
      mask.summarize();
      mask_nbytes = mask.nbytes(mask_shape(value_count));
      count = used_count;
    }
    const uint32_t coded_nbytes = sections_nbytes(tables, lane);
    const uint32_t raw_nbytes = count * static_cast<uint32_t>(sizeof(T));
    kind = coded_nbytes < raw_nbytes ? GPUFI_BLOCK_CODED : GPUFI_BLOCK_RAW;
    nbytes = mask_nbytes + (coded_nbytes < raw_nbytes ? coded_nbytes : raw_nbytes);
  }

  /* The steps of all values level by level, to byte `at`; of values that are at a leaf, `walks` has
   * no steps any more. Returns where they end. */
  static __device__ __forceinline__ uint32_t write_walks(uint16_t walks[kLaneGroups][kGroup],
                                                         uint32_t *words, uint32_t at, int lane) {
    uint32_t sizes[kLaneGroups], starts[kLaneGroups], steps[kLaneGroups];
    uint32_t bit = 8 * at;
#pragma unroll 1
    for (int level = 1; level <= GPUFI_TREE_DEPTH_MAX; level++) {
#pragma unroll
      for (int j = 0; j < kLaneGroups; j++) {
        sizes[j] = steps[j] = 0;
#pragma unroll
        for (int t = 0; t < kGroup; t++) {
          if (walks[j][t] > 1) {
            steps[j] |= (walks[j][t] & 1u) << sizes[j]++;
            walks[j][t] >>= 1;
          }
        }
      }
      const uint32_t all = scan_groups(sizes, lane, starts);
      if (all == 0) {
        break;
      }
#pragma unroll
      for (int j = 0; j < kLaneGroups; j++) {
        if (steps[j] != 0) {
          put_bits(words, bit + starts[j], steps[j]);
        }
      }
      bit += all;
    }
    return (bit + 7) / 8;
  }

  /* The symbols of the last leaf, to byte `at`. */
  __device__ __forceinline__ void write_stored(const rank_tables &tables, uint32_t *words,
                                               uint32_t at, int lane) const {
    const rank_codes &ranks = tables.ranks;
    const uint32_t each = ranks.place.nbytes();
    uint32_t sizes[kLaneGroups], starts[kLaneGroups], stored[kLaneGroups];
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      stored[j] = 0;
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        const bool is =
            is_there(j, lane, t) && tables.leaf_of[ranks.symbol_of(values[j][t])] == ranks.last();
        stored[j] |= (is ? 1u : 0u) << t;
      }
      sizes[j] = static_cast<uint32_t>(__popc(stored[j]));
    }
    scan_groups(sizes, lane, starts);
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        if (stored[j] >> t & 1) {
          const uint32_t symbol = ranks.symbol_of(values[j][t]), to = at + starts[j]++ * each;
          put_byte(words, to, symbol & 0xff);
          if (each == 2) {
            put_byte(words, to + 1, symbol >> 8);
          }
        }
      }
    }
  }

  /* The sections of a coded block, to byte `at`. */
  __device__ __forceinline__ void write_sections(const rank_tables &tables, uint32_t *words,
                                                 uint32_t at, int lane) const {
    const rank_codes &ranks = tables.ranks;
    const uint32_t rest_bits = ranks.template rest_bits<T>();
    uint16_t walks[kLaneGroups][kGroup];
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      T rests[kGroup];
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        const bool there = is_there(j, lane, t);
        rests[t] = there ? ranks.rest_of(values[j][t]) : static_cast<T>(0);
        const uint32_t leaf = tables.leaf_of[ranks.symbol_of(values[j][t])];
        walks[j][t] = there ? tables.walks[leaf] : 1;
      }
      const uint32_t k = index_of(j, lane);
      if (k * kGroup < count && rest_bits != 0) {
        put_group(words, at + k * rest_bits, rests, rest_bits);
      }
    }
    const uint32_t codes_at = at + fixed_nbytes(count, rest_bits);
    write_stored(tables, words, write_walks(walks, words, codes_at, lane), lane);
  }

  /* Write all of the block, to words that are zero and that no other warp writes. */
  __device__ __forceinline__ void write(const rank_tables &tables, uint32_t *words,
                                        int lane) const {
    const uint32_t at = mask_nbytes;
    if (form & GPUFI_FORM_SPARSE) {
      write_mask(mask, total, words, 0, lane);
    }
    if (kind == GPUFI_BLOCK_CODED) {
      write_sections(tables, words, at, lane);
    } else if (kind == GPUFI_BLOCK_RAW) {
#pragma unroll
      for (int j = 0; j < kLaneGroups; j++) {
        const uint32_t k = index_of(j, lane);
        if (k * kGroup < count) {
          put_raw_group(words, at + k * kGroup * static_cast<uint32_t>(sizeof(T)), values[j]);
        }
      }
    }
  }
};

} // namespace gpufi

#endif
