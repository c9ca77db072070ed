/* Unpacking a block so that each lane of a warp gets a strip of it: 32 values that follow each
 * other, which are four groups. unpack.cuh is for blocks of any form, and spreads them otherwise.
 * The bytes are untrusted input. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_STRIP_UNPACK_CUH
#define GPUFI_BACKEND_CUDA_CODEC_STRIP_UNPACK_CUH

#include "backend/cuda/codec/unpack.cuh"

namespace gpufi {

constexpr uint32_t kStrip = 32; /* values */
constexpr int kStripGroups = static_cast<int>(kStrip) / kGroup;
static_assert(kStrip * kWarp == GPUFI_BLOCK_VALUES, "a lane has a strip of its warp's block");

/* Widths of the lane's groups of a coded block of whole strips, of which `bytes` has the codes;
 * false, on some lane at least, if a code is not right. */
__device__ __forceinline__ bool read_strip_widths(const uint8_t *bytes, const block_fields &block,
                                                  uint32_t groups, int lane,
                                                  uint32_t widths[kStripGroups]) {
  const bool there = static_cast<uint32_t>(lane * kStripGroups) < groups;
  const uint32_t bits = block.code_bits(), zero = (1u << bits) - 1;
  bool good = true;
  if (block.is_even()) {
#pragma unroll
    for (int k = 0; k < kStripGroups; k++) {
      widths[k] = there ? block.width : 0;
    }
    return true;
  }
  uint32_t second = block.width - 1; /* what code 1 means */
  if (block.has_ranges()) {
    second = *bytes++;
    good = second != 0 && second < block.width;
  }
  const uint32_t over = groups * bits % 8;
  good = good && (over == 0 || bytes[groups * bits / 8] >> over == 0);
  const uint32_t bit = kStripGroups * bits * static_cast<uint32_t>(lane);
  const uint32_t two = bytes[bit / 8] | static_cast<uint32_t>(bytes[bit / 8 + 1]) << 8;
  const uint32_t codes = there ? two >> bit % 8 : UINT32_MAX;
#pragma unroll
  for (int k = 0; k < kStripGroups; k++) {
    const uint32_t code = codes >> bits * static_cast<uint32_t>(k) & zero;
    good = good && (code == zero || code <= second);
    widths[k] = code == zero ? 0 : code == 0 ? block.width : second + 1 - code;
  }
  return good;
}

/* (a & b) ^ c in one instruction, which nvcc makes three of with the shift before it. */
__device__ __forceinline__ uint32_t and_xor(uint32_t a, uint32_t b, uint32_t c) {
#ifdef GPUFI_CUDA_EMULATION
  return (a & b) ^ c;
#else
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
#endif
}

/* A group of `width` bits a value, from bit `bit` of the words on: kAtOnce values at once, as many
 * as fit 32 bits. `zigzag` is 1 if the values are packed with it, else 0. A width of 0 is zeros. */
template <int kAtOnce>
__device__ __forceinline__ void unpack_strip_group(const uint32_t *words, uint32_t bit,
                                                   uint32_t width, uint32_t zigzag, uint32_t *v) {
  const uint32_t mask = static_cast<uint32_t>((UINT64_C(1) << width) - 1) >> zigzag;
  const uint32_t sign = width != 0 ? zigzag : 0;
#pragma unroll
  for (int t = 0; t < kGroup; t += kAtOnce) {
    const uint32_t *const at = words + bit / 32;
    uint32_t several = __funnelshift_r(at[0], at[1], bit);
#pragma unroll
    for (int k = 0; k < kAtOnce; k++) {
      v[t + k] = and_xor(several >> zigzag, mask, 0 - (several & sign));
      several = kAtOnce > 1 ? several >> width : 0; /* width < 32 where there are more */
    }
    bit += kAtOnce * width;
  }
}

/* The same of values of 64 bits, of up to 32 bits each if not kWide. */
template <bool kWide>
__device__ __forceinline__ void unpack_strip_group(const uint32_t *words, uint32_t bit,
                                                   uint32_t width, uint32_t zigzag, uint64_t *v) {
  const uint32_t low = static_cast<uint32_t>((UINT64_C(1) << (width < 32 ? width : 32)) - 1);
  const uint32_t high = static_cast<uint32_t>((UINT64_C(1) << (width < 32 ? 0 : width - 32)) - 1);
  const uint32_t sign = width != 0 ? zigzag : 0;
  const uint32_t low_mask = __funnelshift_r(low, high, zigzag), high_mask = high >> zigzag;
#pragma unroll
  for (int t = 0; t < kGroup; t++) {
    const uint32_t *const at = words + bit / 32;
    const uint32_t x = __funnelshift_r(at[0], at[1], bit);
    const uint32_t y = kWide ? __funnelshift_r(at[1], at[2], bit) : 0;
    const uint32_t signs = 0 - (x & sign);
    const uint32_t v_low = and_xor(__funnelshift_r(x, y, zigzag), low_mask, signs);
    const uint32_t v_high = kWide ? and_xor(y >> zigzag, high_mask, signs) : signs;
    v[t] = static_cast<uint64_t>(v_high) << 32 | v_low;
    bit += width;
  }
}

template <typename T>
__device__ __forceinline__ void unpack_strip_groups(const uint32_t *words,
                                                    const uint32_t bits[kStripGroups],
                                                    const uint32_t widths[kStripGroups],
                                                    uint32_t widest, uint32_t zigzag,
                                                    T r[kStripGroups][kGroup]) {
  if constexpr (sizeof(T) == 8) {
    if (widest <= 32) {
#pragma unroll
      for (int k = 0; k < kStripGroups; k++) {
        unpack_strip_group<false>(words, bits[k], widths[k], zigzag, r[k]);
      }
    } else {
#pragma unroll
      for (int k = 0; k < kStripGroups; k++) {
        unpack_strip_group<true>(words, bits[k], widths[k], zigzag, r[k]);
      }
    }
  } else if (widest <= 16) {
#pragma unroll
    for (int k = 0; k < kStripGroups; k++) {
      unpack_strip_group<2>(words, bits[k], widths[k], zigzag, r[k]);
    }
  } else {
#pragma unroll
    for (int k = 0; k < kStripGroups; k++) {
      unpack_strip_group<1>(words, bits[k], widths[k], zigzag, r[k]);
    }
  }
}

/* Whether unpack_strips() is for blocks of this form. */
__device__ inline bool has_strips(const block_fields &block) {
  return (block.kind == GPUFI_BLOCK_CODE3 || block.kind == GPUFI_BLOCK_CODE4) &&
         !(block.form & GPUFI_FORM_SPARSE);
}

/* The strip of each lane of a coded block of `count` values, whole strips, at byte `at` of `words`.
 * False, on some lane at least, if anything is not right. All lanes. */
template <typename T>
__device__ __forceinline__ bool unpack_strips(const uint32_t *words, uint32_t at,
                                              const block_fields &block, uint32_t count, int lane,
                                              T r[kStripGroups][kGroup]) {
  const uint32_t groups = count / kGroup, codes_nbytes = block.codes_nbytes(groups);
  uint32_t widths[kStripGroups], bits[kStripGroups];
  const bool good = read_strip_widths(reinterpret_cast<const uint8_t *>(words) + at, block, groups,
                                      lane, widths);
  const uint32_t own = widths[0] + widths[1] + widths[2] + widths[3];
  const uint32_t ends = warp_scan(own, lane);
  const uint32_t all = codes_nbytes + __shfl_sync(kAllLanes, ends, kWarp - 1);
  if (!__all_sync(kAllLanes, good && block.shift < kBits<T> && block.width >= 1 &&
                                 block.width <= kBits<T> && all == block.nbytes)) {
    return false;
  }
  bits[0] = 8 * (at + codes_nbytes + ends - own);
#pragma unroll
  for (int k = 1; k < kStripGroups; k++) {
    bits[k] = bits[k - 1] + 8 * widths[k - 1];
  }
  unpack_strip_groups(words, bits, widths, block.width, block.form & GPUFI_FORM_PLAIN ? 0 : 1, r);
  if (block.shift != 0) {
    /* A product, for which there are units that do nothing else here. */
    const T factor = static_cast<T>(static_cast<T>(1) << block.shift);
#pragma unroll
    for (int k = 0; k < kStripGroups; k++) {
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        r[k][t] = sizeof(T) == 4 ? static_cast<T>(r[k][t] * factor)
                                 : static_cast<T>(r[k][t] << block.shift);
      }
    }
  }
  return true;
}

} // namespace gpufi

#endif
