/* Unpacking a block of residuals from shared memory into a warp's registers; codec/block.c is the
 * reference. The bytes are untrusted input. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_UNPACK_CUH
#define GPUFI_BACKEND_CUDA_CODEC_UNPACK_CUH

#include "backend/cuda/codec/mask.cuh"

namespace gpufi {

/* The most bytes of a mask, and of a block: with a mask, codes and the byte before them it may take
 * more than the residuals as they are. */
constexpr uint32_t kMaskNbytesMax = 2 + GPUFI_MASK_MIDDLE_NBYTES + GPUFI_BLOCK_GROUPS;
template <typename T>
constexpr uint32_t kBlockNbytesMax =
    GPUFI_BLOCK_VALUES * sizeof(T) + 1 + GPUFI_BLOCK_GROUPS / 2 + kMaskNbytesMax;

/* Takes bits from shared memory, at most two words ahead of what it is asked for. */
struct bit_reader {
  const uint32_t *next;
  uint32_t low, high, past; /* `past` < 32 bits of `low` are taken */

  __device__ bit_reader(const uint32_t *words, uint32_t byte)
      : next(words + byte / 4 + 2), low(words[byte / 4]), high(words[byte / 4 + 1]),
        past(byte % 4 * 8) {}

  /* 1 .. 32 bits. */
  __device__ uint32_t take(uint32_t bits) {
    const uint32_t x = __funnelshift_r(low, high, past) & (UINT32_MAX >> (32 - bits));
    past += bits;
    if (past >= 32) {
      past -= 32;
      low = high;
      high = *next++;
    }
    return x;
  }
};

/* Eight values of `width` > 0 bits. */
template <typename T>
__device__ __forceinline__ void take_group(const uint32_t *words, uint32_t byte, uint32_t width,
                                           T *v) {
  bit_reader reader(words, byte);
  if constexpr (sizeof(T) == 8) {
#pragma unroll
    for (int t = 0; t < kGroup; t++) {
      v[t] = reader.take(width < 32 ? width : 32);
      if (width > 32) {
        v[t] |= static_cast<uint64_t>(reader.take(width - 32)) << 32;
      }
    }
  } else { /* as many at once as fit a word */
    constexpr int kAtOnce = 4 / static_cast<int>(sizeof(T));
    const uint32_t mask = UINT32_MAX >> (32 - width);
#pragma unroll
    for (int t = 0; t < kGroup; t += kAtOnce) {
      uint32_t several = reader.take(width * kAtOnce);
#pragma unroll
      for (int k = 0; k < kAtOnce; k++) {
        v[t + k] = static_cast<T>(several & mask);
        several = kAtOnce > 1 ? several >> width : 0; /* width < 32 where there are more */
      }
    }
  }
}

/* `bits` bits, 3 or 4, from bit `bit` of the bytes on. */
__device__ inline uint32_t take_code(const uint8_t *bytes, uint32_t bit, uint32_t bits) {
  const uint32_t two = bytes[bit / 8] | static_cast<uint32_t>(bytes[bit / 8 + 1]) << 8;
  return two >> bit % 8 & ((1u << bits) - 1);
}

/* Packed values to residuals, but for those that fill the last group up. */
template <typename T>
__device__ __forceinline__ void restore_group(T *v, uint32_t first, uint32_t count, uint32_t shift,
                                              uint32_t form) {
  if (form & GPUFI_FORM_SPARSE) {
#pragma unroll
    for (uint32_t t = 0; t < kGroup; t++) {
      v[t] = static_cast<T>(v[t] + (first + t < count ? 1 : 0));
    }
  }
  if (!(form & GPUFI_FORM_PLAIN)) {
#pragma unroll
    for (int t = 0; t < kGroup; t++) {
      v[t] = static_cast<T>((v[t] >> 1) ^ static_cast<T>(0 - (v[t] & 1)));
    }
  }
#pragma unroll
  for (int t = 0; t < kGroup; t++) {
    v[t] = static_cast<T>(v[t] << shift);
  }
}

/* What a descriptor says, less the mask. */
struct block_fields {
  uint32_t nbytes, width, shift, form, kind;

  __device__ explicit block_fields(uint32_t word)
      : nbytes(word & 0x3fff), width(word >> 14 & 0x7f), shift(word >> 21 & 0x3f),
        form(word >> 27 & 7), kind(word >> 30) {}

  /* Of a coded block. */
  __device__ uint32_t code_bits() const {
    return kind == GPUFI_BLOCK_CODE3 ? 3 : 4;
  }
  __device__ bool is_even() const {
    return kind == GPUFI_BLOCK_CODE3 && (form & GPUFI_FORM_EVEN);
  }
  __device__ bool has_ranges() const {
    return kind == GPUFI_BLOCK_CODE4 && (form & GPUFI_FORM_RANGES);
  }
  /* Bytes before the groups: of the codes, and of where the second range begins. */
  __device__ uint32_t codes_nbytes(uint32_t groups) const {
    return is_even() ? 0 : (groups * code_bits() + 7) / 8 + (has_ranges() ? 1 : 0);
  }
};

/* Widths of the groups of a coded block, of which `bytes` has the codes; false, on some lane at
 * least, if a code is not right. */
__device__ inline bool read_widths(const uint8_t *bytes, const block_fields &block, uint32_t groups,
                                   int lane, uint32_t widths[kLaneGroups]) {
  const bool even = block.is_even(), ranges = block.has_ranges();
  const uint32_t bits = block.code_bits(), zero = (1u << bits) - 1;
  const uint32_t second = ranges ? *bytes++ : block.width - 1; /* what code 1 means */
  const uint32_t over = groups * bits % 8;
  bool good = (even || over == 0 || bytes[groups * bits / 8] >> over == 0) &&
              !(ranges && (second == 0 || second >= block.width));
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t k = index_of(j, lane);
    uint32_t code = k < groups ? 0 : zero;
    if (!even && k < groups) {
      code = take_code(bytes, k * bits, bits);
      good = good && (code == zero || code <= second);
    }
    widths[j] = code == zero ? 0 : code == 0 ? block.width : second + 1 - code;
  }
  return good;
}

/* The `count` residuals of a block, or of its list if it is sparse, from byte `at` of `words`; 0
 * behind the count. False, on some lane at least, if anything is not right. All lanes. */
template <typename T>
__device__ __forceinline__ bool unpack_list(const uint32_t *words, uint32_t at, block_fields block,
                                            uint32_t count, int lane, T r[kLaneGroups][kGroup]) {
  const uint32_t groups = (count + kGroup - 1) / kGroup;
  const bool sparse = block.form & GPUFI_FORM_SPARSE;
  uint32_t widths[kLaneGroups] = {};
  uint32_t codes_nbytes = 0;
  bool good = block.shift < kBits<T>;
  const bool coded = block.kind == GPUFI_BLOCK_CODE3 || block.kind == GPUFI_BLOCK_CODE4;
  if (coded) {
    codes_nbytes = block.codes_nbytes(groups);
    good = good && block.width >= 1 && block.width <= kBits<T> && block.nbytes >= codes_nbytes;
    good =
        read_widths(reinterpret_cast<const uint8_t *>(words) + at, block, groups, lane, widths) &&
        good;
  } else {
    const bool zero = block.kind == GPUFI_BLOCK_ZERO;
    const uint32_t extra = block.form & ~static_cast<uint32_t>(GPUFI_FORM_SPARSE);
    good = good && block.width == 0 &&
           block.nbytes == (zero ? 0 : count * static_cast<uint32_t>(sizeof(T))) &&
           (zero && sparse ? !(extra & GPUFI_FORM_EVEN) : (block.shift | extra) == 0);
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      widths[j] = !zero && index_of(j, lane) < groups ? kBits<T> : 0;
    }
  }
  uint32_t starts[kLaneGroups];
  if (!__all_sync(kAllLanes, good)) {
    return false;
  }
  const uint32_t all = scan_groups(widths, lane, starts);
  if (coded && codes_nbytes + all != block.nbytes) {
    return false;
  }
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t first = index_of(j, lane) * kGroup;
#pragma unroll
    for (int t = 0; t < kGroup; t++) {
      r[j][t] = 0;
    }
    if (widths[j] != 0) {
      take_group(words, at + codes_nbytes + starts[j], widths[j], r[j]);
      if (first + kGroup > count) {
#pragma unroll
        for (uint32_t t = 0; t < kGroup; t++) {
          if (first + t >= count) {
            good = good && (!coded || r[j][t] == 0);
            r[j][t] = 0;
          }
        }
      }
    }
    if (block.kind != GPUFI_BLOCK_RAW) {
      restore_group(r[j], first, count, block.shift, block.form);
    }
  }
  return good;
}

/* One block of `count` values, described by `word`, at byte `at` of `words`. Sets all lanes'
 * residuals, or those in the list and the mask that belongs to it if the block is sparse. False, on
 * some lane at least, if anything is not right. The block's bytes are inside `words`, as are
 * kMaskNbytesMax more. All lanes. */
template <typename T>
__device__ __forceinline__ bool unpack_block(const uint32_t *words, uint32_t at, uint32_t word,
                                             uint32_t count, int lane, warp_mask *mask,
                                             uint32_t *list_count, T r[kLaneGroups][kGroup]) {
  block_fields block(word);
  *list_count = count;
  if (block.form & GPUFI_FORM_SPARSE) {
    if (!read_mask(reinterpret_cast<const uint8_t *>(words) + at, block.nbytes, count, lane,
                   mask)) {
      return false;
    }
    const uint32_t mask_nbytes = mask->nbytes(mask_shape(count));
    at += mask_nbytes;
    block.nbytes -= mask_nbytes;
    *list_count = mask->used_count();
  }
  return unpack_list(words, at, block, *list_count, lane, r);
}

} // namespace gpufi

#endif
