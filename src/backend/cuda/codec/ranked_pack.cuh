/* Packing the values of a ranked block that a warp holds in registers; codec/ranked.c is the
 * reference. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_RANKED_PACK_CUH
#define GPUFI_BACKEND_CUDA_CODEC_RANKED_PACK_CUH

#include "backend/cuda/codec/checksum.cuh"
#include "backend/cuda/codec/pack.cuh"
#include "backend/cuda/codec/ranks.cuh"

namespace gpufi {

/* What a thread block knows of its chunk, and the second codes of each of its warps. */
struct rank_tables {
  rank_levels ranks;
  uint8_t index[kSymbolsMax]; /* of a symbol in the table, or kNoPlace */
  uint8_t seconds[GPUFI_RUN_BLOCKS][GPUFI_BLOCK_VALUES + kGroup];
};

constexpr uint8_t kNoPlace = 255;

/* All threads of the thread block. */
__device__ inline void fill_tables(const rank_levels &ranks, const uint16_t *symbols,
                                   uint32_t thread_count, rank_tables *tables) {
  for (uint32_t s = threadIdx.x; s < 1u << ranks.place.bits; s += thread_count) {
    tables->index[s] = kNoPlace;
  }
  __syncthreads();
  if (threadIdx.x < ranks.count()) {
    tables->index[symbols[threadIdx.x]] = static_cast<uint8_t>(threadIdx.x);
  }
  if (threadIdx.x == 0) {
    tables->ranks = ranks;
  }
  __syncthreads();
}

/* The symbol table, behind the header of the chunk at `chunk`; adds this thread's share to `sum`.
 */
__device__ inline void write_table(const rank_levels &ranks, const uint16_t *symbols,
                                   uint8_t *chunk, chunk_sum *sum) {
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

/* One block. Every method is for a whole warp. */
template <typename T> struct ranked_block {
  T values[kLaneGroups][kGroup]; /* all, or those that are not 0 in a sparse block; then zeros */
  warp_mask mask;                /* of a sparse block */
  uint32_t total, count;         /* values of the block, and of those in `values` */
  uint32_t kind, form;
  uint32_t mask_nbytes, nbytes; /* of the mask; of all of it */
  uint32_t second_count, stored_count;

  /* Make it the block of no values. */
  __device__ __forceinline__ void clear() {
    clear_groups(values);
    total = count = kind = form = mask_nbytes = nbytes = second_count = stored_count = 0;
  }

  __device__ uint32_t descriptor() const {
    return nbytes | form << 27 | kind << 30;
  }

  __device__ bool is_there(int j, int lane, int t) const {
    return index_of(j, lane) * kGroup + static_cast<uint32_t>(t) < count;
  }

  /* How many values of each of the lane's groups have no first code, and no code at all. */
  __device__ __forceinline__ void count_codes(const rank_tables &tables, int lane,
                                              uint32_t seconds[kLaneGroups],
                                              uint32_t stored[kLaneGroups]) const {
    const rank_levels &ranks = tables.ranks;
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      seconds[j] = stored[j] = 0;
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        const uint32_t place =
            is_there(j, lane, t) ? tables.index[ranks.symbol_of(values[j][t])] : 0;
        seconds[j] += place >= ranks.first_count() ? 1 : 0;
        stored[j] += place >= ranks.count() ? 1 : 0;
      }
    }
  }

  /* Set everything from `values`, of which the block has `value_count`. `list` can hold
   * as many. */
  __device__ __forceinline__ void measure(const rank_tables &tables, uint32_t value_count, int lane,
                                          T *list) {
    const rank_levels &ranks = tables.ranks;
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
    uint32_t seconds[kLaneGroups], stored[kLaneGroups];
    count_codes(tables, lane, seconds, stored);
    const uint32_t both = warp_add(seconds[0] + seconds[1] + seconds[2] + seconds[3] +
                                   ((stored[0] + stored[1] + stored[2] + stored[3]) << 16));
    second_count = both & 0xffff;
    stored_count = both >> 16;
    const uint32_t coded_nbytes = fixed_nbytes(count, ranks.template rest_bits<T>()) +
                                  fixed_nbytes(count, ranks.first_bits()) +
                                  fixed_nbytes(second_count, ranks.second_bits()) +
                                  stored_count * ranks.place.nbytes();
    const uint32_t raw_nbytes = count * static_cast<uint32_t>(sizeof(T));
    kind = coded_nbytes < raw_nbytes ? GPUFI_BLOCK_CODED : GPUFI_BLOCK_RAW;
    nbytes = mask_nbytes + (coded_nbytes < raw_nbytes ? coded_nbytes : raw_nbytes);
  }

  /* The sections of a coded block, to byte `at`. `second_codes` is the warp's own. */
  __device__ __forceinline__ void write_sections(const rank_tables &tables, uint8_t *second_codes,
                                                 uint32_t *words, uint32_t at, int lane) const {
    const rank_levels &ranks = tables.ranks;
    const uint32_t rest_bits = ranks.template rest_bits<T>(), first_bits = ranks.first_bits();
    const uint32_t second_bits = ranks.second_bits(), each = ranks.place.nbytes();
    const uint32_t firsts_at = at + fixed_nbytes(count, rest_bits);
    const uint32_t seconds_at = firsts_at + fixed_nbytes(count, first_bits);
    const uint32_t stored_at = seconds_at + fixed_nbytes(second_count, second_bits);
    uint32_t sizes[kLaneGroups], stored_sizes[kLaneGroups];
    uint32_t second[kLaneGroups], stored[kLaneGroups];
    count_codes(tables, lane, sizes, stored_sizes);
    scan_groups(sizes, lane, second);
    scan_groups(stored_sizes, lane, stored);
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      T rests[kGroup];
      uint8_t firsts[kGroup];
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        const T value = values[j][t];
        const bool there = is_there(j, lane, t);
        const uint32_t symbol = ranks.symbol_of(value);
        const uint32_t place = there ? tables.index[symbol] : 0;
        const bool has_first = place < ranks.first_count(), has_code = place < ranks.count();
        rests[t] = there ? ranks.rest_of(value) : static_cast<T>(0);
        firsts[t] = static_cast<uint8_t>(has_first ? place : ranks.first_count());
        if (!has_first) {
          second_codes[second[j]++] =
              static_cast<uint8_t>((has_code ? place : ranks.count()) - ranks.first_count());
        }
        if (!has_code) {
          const uint32_t to = stored_at + stored[j]++ * each;
          put_byte(words, to, symbol & 0xff);
          if (each == 2) {
            put_byte(words, to + 1, symbol >> 8);
          }
        }
      }
      const uint32_t k = index_of(j, lane);
      if (k * kGroup < count) {
        if (rest_bits != 0) {
          put_group(words, at + k * rest_bits, rests, rest_bits);
        }
        put_group(words, firsts_at + k * first_bits, firsts, first_bits);
      }
    }
    if (lane < kGroup) {
      second_codes[second_count + static_cast<uint32_t>(lane)] = 0; /* fills the last group up */
    }
    __syncwarp();
    for (uint32_t k = static_cast<uint32_t>(lane); k * kGroup < second_count && second_bits != 0;
         k += kWarp) {
      put_group(words, seconds_at + k * second_bits, second_codes + k * kGroup, second_bits);
    }
  }

  /* Write all of the block, to words that are zero and that no other warp writes. */
  __device__ __forceinline__ void write(const rank_tables &tables, uint8_t *second_codes,
                                        uint32_t *words, int lane) const {
    const uint32_t at = mask_nbytes;
    if (form & GPUFI_FORM_SPARSE) {
      write_mask(mask, total, words, 0, lane);
    }
    if (kind == GPUFI_BLOCK_CODED) {
      write_sections(tables, second_codes, words, at, lane);
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
