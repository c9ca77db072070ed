/* Packing the residuals of a block that a warp holds in registers; codec/block.c is the
 * reference. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_PACK_CUH
#define GPUFI_BACKEND_CUDA_CODEC_PACK_CUH

#include "backend/cuda/codec/mask.cuh"

#include <type_traits>

namespace gpufi {

/* Appends bits to shared memory that is zero. A word is stored by the writer that fills it up; what
 * a writer has left is for `finish`, when all that share its last word have stored. */
struct bit_writer {
  uint32_t *at;
  uint32_t pending; /* what is not stored yet, from where the writer came into the word */
  uint32_t end;     /* modulo 32, where in the word it is */

  __device__ bit_writer(uint32_t *words, uint32_t byte)
      : at(words + byte / 4), pending(0), end(byte % 4 * 8) {}

  /* The lowest `bits` bits of `value`, the others being 0; bits <= 32. If kShares, others do not
   * wait before they put bits into the word `shared`. */
  template <bool kShares = false>
  __device__ __forceinline__ void put(uint32_t value, uint32_t bits,
                                      const uint32_t *shared = nullptr) {
    const uint32_t begin = end;
    const uint32_t word = pending | __funnelshift_l(0, value, begin);
    const uint32_t rest = __funnelshift_l(value, 0, begin);
    end += bits;
    const bool is_full = ((begin ^ end) & 32) != 0;
    if (is_full) {
      if (kShares && at == shared) {
        atomicOr(at, word);
      } else {
        *at = word;
      }
    }
    at += is_full ? 1 : 0;
    pending = is_full ? rest : word;
  }

  __device__ __forceinline__ void finish() const {
    if (pending != 0) {
      atomicOr(at, pending);
    }
  }
};

/* All of a group, `width` bits a value, kAtOnce values at once: as many as fit 32 bits. */
template <int kAtOnce, bool kShares = false, typename T>
__device__ __forceinline__ void put_values(bit_writer *writer, const T *v, uint32_t width,
                                           const uint32_t *shared = nullptr) {
#pragma unroll
  for (int t = 0; t < kGroup; t += kAtOnce) {
    uint32_t several = 0;
#pragma unroll
    for (int k = kAtOnce - 1; k >= 0; k--) {
      several = (kAtOnce > 1 ? several << width : 0u) | static_cast<uint32_t>(v[t + k]);
    }
    if constexpr (sizeof(T) == 8 && kAtOnce == 1) {
      writer->template put<kShares>(several, width < 32 ? width : 32, shared);
      if (width > 32) {
        writer->template put<kShares>(static_cast<uint32_t>(v[t] >> 32), width - 32, shared);
      }
    } else {
      writer->template put<kShares>(several, width * kAtOnce, shared);
    }
  }
}

/* Values of T that fit 32 bits at once, whatever they are. */
template <typename T>
constexpr int kAlwaysAtOnce = sizeof(T) < 4 ? 4 / static_cast<int>(sizeof(T)) : 1;

/* A group whose first and last word others may share. */
template <typename T>
__device__ __forceinline__ void put_group(uint32_t *words, uint32_t byte, const T *v,
                                          uint32_t width) {
  bit_writer writer(words, byte);
  put_values<kAlwaysAtOnce<T>, true>(&writer, v, width, writer.at);
  writer.finish();
}

/* A group as it is, in words that others may share: what fills the last group of a list up is 0,
 * and is not to be stored over what follows. */
template <typename T>
__device__ __forceinline__ void put_raw_group(uint32_t *words, uint32_t byte, const T *v) {
  constexpr int kCount = group_words<T>::kCount;
  uint32_t group[kCount];
  values_to_words<T>(v, group);
  const uint32_t fill = byte % 4 * 8;
  uint32_t below = 0;
#pragma unroll
  for (int k = 0; k <= kCount; k++) {
    const uint32_t above = k < kCount ? group[k < kCount ? k : 0] : 0;
    atomicOr(words + byte / 4 + k, __funnelshift_l(below, above, fill));
    below = above;
  }
}

constexpr uint32_t kCode3Reach = (1 << 3) - 2, kCode4Reach = (1 << 4) - 2;

/* Widths that a group of the two kinds of code is packed at. */
__device__ inline uint32_t narrowest_width(uint32_t widest, uint32_t reach) {
  return widest > reach ? widest - reach : 1;
}

__device__ inline uint32_t packed_width(uint32_t width, uint32_t narrowest) {
  return width == 0 || width > narrowest ? width : narrowest;
}

/* The width that a group is packed at in two ranges of widths. */
__device__ inline uint32_t width_in_ranges(uint32_t width, uint32_t widest, uint32_t second,
                                           uint32_t narrowest) {
  return width > second ? widest : packed_width(width, narrowest);
}

/* The second range that makes the groups smallest, the least among equals: sets *second, and
 * returns their size. Only widths that occur are tried, as codes_impl.h says why. If none but
 * `widest` does, the size is UINT32_MAX. All lanes, the same answer. */
template <typename T>
__device__ __forceinline__ uint32_t choose_second(const uint32_t widths[kLaneGroups],
                                                  uint32_t widest, uint32_t *second) {
  using M = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  M occur = 0; /* bit w - 1: groups of width w */
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    occur |= widths[j] != 0 ? static_cast<M>(1) << (widths[j] - 1) : 0;
  }
  occur = warp_or(occur) & ((static_cast<M>(1) << (widest - 1)) - 1);
  uint32_t best = UINT32_MAX;
#pragma unroll 1
  for (; occur != 0; occur &= occur - 1) {
    const uint32_t v = trailing_zeros(occur) + 1;
    const uint32_t narrowest = narrowest_width(v + 1, kCode4Reach);
    uint32_t sum = 0;
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      sum += width_in_ranges(widths[j], widest, v, narrowest);
    }
    sum = warp_add(sum);
    *second = sum < best ? v : *second;
    best = sum < best ? sum : best;
  }
  return best;
}

/* How a list of values is packed. The same on all lanes but for `widths`. */
struct packing {
  uint32_t kind, form, width, shift, nbytes;
  uint32_t second; /* the width that code 1 means */
  uint32_t widths; /* of the lane's groups, a byte each */

  __device__ bool is_even() const {
    return kind == GPUFI_BLOCK_CODE3 && (form & GPUFI_FORM_EVEN);
  }
  __device__ bool has_ranges() const {
    return kind == GPUFI_BLOCK_CODE4 && (form & GPUFI_FORM_RANGES);
  }

  __device__ uint32_t group_width(int j) const {
    return widths >> 8 * j & 0xff;
  }
};

/* The smallest packing of `count` values, of which `widest` is what the lane's groups need. */
template <typename T>
__device__ __forceinline__ packing plan(const uint32_t widest[kLaneGroups], uint32_t count,
                                        uint32_t shift, uint32_t form, int lane) {
  const uint32_t groups = (count + kGroup - 1) / kGroup;
  packing p = {GPUFI_BLOCK_ZERO, form, 0, shift, 0, 0, 0};
  uint32_t own = 0, exact = 0;
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    own = widest[j] > own ? widest[j] : own;
    exact += widest[j];
  }
  p.width = warp_max(own);
  if (p.width == 0) {
    if ((form & GPUFI_FORM_SPARSE) == 0) {
      p.form = p.shift = 0;
    }
    return p;
  }
  const uint32_t narrowest3 = narrowest_width(p.width, kCode3Reach);
  const uint32_t narrowest4 = narrowest_width(p.width, kCode4Reach);
  uint32_t both = 0; /* the sums with 3-bit and, from bit 16 on, with 4-bit codes */
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    both += packed_width(widest[j], narrowest3) | packed_width(widest[j], narrowest4) << 16;
  }
  both = warp_add(both);
  const uint32_t with3 = (both & 0xffff) + (groups * 3 + 7) / 8;
  const uint32_t with4 = (both >> 16) + (groups * 4 + 7) / 8;
  uint32_t narrowest = with4 < with3 ? narrowest4 : narrowest3;
  bool fixed = false; /* all groups are of one width */
  p.kind = with4 < with3 ? GPUFI_BLOCK_CODE4 : GPUFI_BLOCK_CODE3;
  p.nbytes = with4 < with3 ? with4 : with3;
  if (groups * p.width < p.nbytes) {
    p.kind = GPUFI_BLOCK_CODE3;
    p.form |= GPUFI_FORM_EVEN;
    p.nbytes = groups * p.width;
    narrowest = p.width;
    fixed = true;
  }
  const uint32_t range_codes = (groups * 4 + 7) / 8 + 1;
  p.second = p.width - 1;
  if (range_codes + warp_add(exact) < p.nbytes) { /* it may be smaller */
    uint32_t second = 0;
    const uint32_t groups_nbytes = choose_second<T>(widest, p.width, &second);
    if (groups_nbytes != UINT32_MAX && range_codes + groups_nbytes < p.nbytes) {
      p.kind = GPUFI_BLOCK_CODE4;
      p.form = form | GPUFI_FORM_RANGES;
      p.second = second;
      p.nbytes = range_codes + groups_nbytes;
      narrowest = narrowest_width(second + 1, kCode4Reach);
      fixed = false;
    }
  }
  if (p.nbytes >= count * sizeof(T)) {
    p.kind = GPUFI_BLOCK_RAW;
    p.form &= GPUFI_FORM_SPARSE;
    p.width = p.shift = p.second = 0;
    p.nbytes = count * static_cast<uint32_t>(sizeof(T));
    narrowest = kBits<T>;
    fixed = true;
  }
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t of_fixed = index_of(j, lane) < groups ? narrowest : 0;
    const uint32_t packed = width_in_ranges(widest[j], p.width, p.second, narrowest);
    p.widths |= (fixed ? of_fixed : packed) << 8 * j;
  }
  return p;
}

/* One block. Every method is for a whole warp. */
template <typename T> struct packed_block {
  using S = typename signed_of<T>::type;

  T values[kLaneGroups][kGroup]; /* residuals: all, or those that are not 0 in a sparse block */
  packing how;                   /* nbytes without the mask */
  warp_mask mask;                /* of a sparse block */
  uint32_t total;                /* values of the block */
  uint32_t count;                /* of those that are packed: all, or those that are not 0 */
  uint32_t mask_nbytes, nbytes;  /* of the mask; of all of it */

  /* Make it the block of no values. */
  __device__ __forceinline__ void clear() {
    clear_groups(values);
    how = {};
    total = count = mask_nbytes = nbytes = 0;
  }

  __device__ uint32_t descriptor() const {
    return nbytes | how.width << 14 | how.shift << 21 | how.form << 27 | how.kind << 30;
  }

  __device__ uint32_t group_count() const {
    return (count + kGroup - 1) / kGroup;
  }

  /* A group's packed values. What fills the last group of a sparse block's list up is 0, and stays
   * so. */
  static __device__ __forceinline__ void to_packed(const T *v, uint32_t shift, uint32_t form,
                                                   T *packed) {
    const uint32_t zigzag = form & GPUFI_FORM_PLAIN ? 0 : 1;
#pragma unroll
    for (int t = 0; t < kGroup; t++) {
      const S r = static_cast<S>(v[t]); /* no less than 0 if plain */
      packed[t] = static_cast<T>(static_cast<T>(static_cast<T>(r >> shift) << zigzag) ^
                                 static_cast<T>(r >> (kBits<T> - 1)));
    }
    if (form & GPUFI_FORM_SPARSE) {
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        packed[t] = static_cast<T>(packed[t] - (packed[t] != 0 ? 1 : 0));
      }
    }
  }

  /* How the values that are not 0 are packed, from `list`; those behind its end, up to a whole
   * group, are 0. */
  static __device__ __forceinline__ packing plan_list(const T *list, uint32_t count, uint32_t shift,
                                                      uint32_t form, int lane) {
    uint32_t widest[kLaneGroups];
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      const uint32_t first = index_of(j, lane) * kGroup;
      T group = 0;
      if (first < count) {
        T v[kGroup], packed[kGroup];
        load_aligned_group(list, first, v);
        to_packed(v, shift, form, packed);
#pragma unroll
        for (int t = 0; t < kGroup; t++) {
          group |= packed[t];
        }
      }
      widest[j] = bit_length(group);
    }
    return plan<T>(widest, count, shift, form, lane);
  }

  /* Make the block sparse if it is smaller so. `dense_form` is 0 or plain, `shift` that of any
   * packing of these values. `list` can hold all of them. */
  __device__ __forceinline__ void try_sparse(uint32_t shift, uint32_t dense_form, int lane,
                                             T *list) {
    mask = mask_of(values);
    const uint32_t used_count = mask.used_count();
    if (4 * used_count > 3 * total) {
      return;
    }
    compact_values(mask, values, lane, list);
    mask.summarize();
    const uint32_t before = mask.nbytes(mask_shape(total));
    const packing sparse = plan_list(list, used_count, shift, dense_form | GPUFI_FORM_SPARSE, lane);
    __syncwarp(); /* the list is read */
    if (before + sparse.nbytes >= nbytes) {
      return;
    }
    how = sparse;
    mask_nbytes = before;
    nbytes = before + sparse.nbytes;
    count = used_count;
    load_list(list, count, lane, values);
  }

  /* Set everything from all residuals of a block of `value_count`. */
  __device__ __forceinline__ void measure(uint32_t value_count, int lane, T *list) {
    T used[kLaneGroups], magnitude[kLaneGroups]; /* of each group: what its values have together */
    T any = 0, least = static_cast<T>(~static_cast<T>(0));
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      used[j] = magnitude[j] = 0;
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        const T v = values[j][t];
        used[j] |= v;
        magnitude[j] |= static_cast<T>(v ^ static_cast<T>(static_cast<S>(v) >> (kBits<T> - 1)));
        least = v < least ? v : least;
      }
      any |= used[j];
    }
    const auto all = warp_or(any);
    const uint32_t shift = trailing_zeros(all);
    const bool is_plain = (all >> (kBits<T> - 1) & 1) == 0;
    const uint32_t form = is_plain ? GPUFI_FORM_PLAIN : 0;
    uint32_t widest[kLaneGroups];
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      const uint32_t bits = bit_length(static_cast<T>(magnitude[j] >> shift));
      widest[j] = used[j] != 0 ? bits + (is_plain ? 0 : 1) : 0;
    }
    total = count = value_count;
    how = plan<T>(widest, count, shift, form, lane);
    nbytes = how.nbytes;
    const uint32_t lanes = static_cast<uint32_t>(__popc(__ballot_sync(kAllLanes, least == 0)));
    if (all != 0 && 4 * lanes * kLaneGroups * kGroup >= value_count) { /* a quarter may be 0 */
      try_sparse(shift, form, lane, list);
    }
  }

  /* The codes, to byte `at`: eight lanes put their codes together, and four of them write
   * those of one group each. */
  __device__ __forceinline__ void write_codes(uint32_t *words, uint32_t at, uint32_t bits,
                                              int lane) const {
    uint32_t codes = 0; /* a byte for each j */
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      const uint32_t own = how.group_width(j);
      const uint32_t lower = own != 0 ? how.second + 1 - own : (1u << bits) - 1;
      const uint32_t code = own == how.width ? 0 : lower;
      codes |= (index_of(j, lane) < group_count() ? code : 0) << 8 * j;
    }
    codes <<= lane & 1 ? bits : 0;
    codes |= __shfl_xor_sync(kAllLanes, codes, 1);
    uint32_t low = __byte_perm(codes, 0, 0x4140), high = __byte_perm(codes, 0, 0x4342);
    low <<= lane & 2 ? 2 * bits : 0;
    high <<= lane & 2 ? 2 * bits : 0;
    low |= __shfl_xor_sync(kAllLanes, low, 2);
    high |= __shfl_xor_sync(kAllLanes, high, 2);
    const int j = lane % kLaneGroups;
    uint32_t own = (j & 2 ? high : low) >> (j & 1) * 16 & 0xffff;
    own <<= lane & 4 ? 4 * bits : 0;
    own |= __shfl_xor_sync(kAllLanes, own, 4);
    const uint32_t k = index_of(j, lane - lane % kGroup);
    if (lane % kGroup < kLaneGroups && k < group_count()) {
      bit_writer writer(words, at + k / 8 * bits);
      writer.put<true>(own, 8 * bits, writer.at);
      writer.finish();
    }
  }

  /* The groups, to byte `at`. Their words are stored before anybody adds codes or a mask to them.
   */
  template <int kAtOnce>
  __device__ __forceinline__ void write_groups(uint32_t *words, uint32_t at,
                                               const uint32_t starts[kLaneGroups]) const {
    bit_writer writers[kLaneGroups] = {{words, at + starts[0]},
                                       {words, at + starts[1]},
                                       {words, at + starts[2]},
                                       {words, at + starts[3]}};
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      const uint32_t width = how.group_width(j);
      if (width != 0) {
        T packed[kGroup];
        to_packed(values[j], how.shift, how.form, packed);
        put_values<kAtOnce>(&writers[j], packed, width);
      }
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      writers[j].finish();
    }
  }

  __device__ __forceinline__ void write_raw(uint32_t *words, uint32_t at, int lane) const {
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      const uint32_t first = index_of(j, lane) * kGroup;
      if (at % 16 == 0 && first + kGroup <= count) {
        store_group(reinterpret_cast<T *>(words + at / 4), first, values[j]);
      } else if (first < count) {
        put_raw_group(words, at + first * static_cast<uint32_t>(sizeof(T)), values[j]);
      }
    }
  }

  /* Write all of the block, to words that are zero and that no other warp writes. */
  __device__ __forceinline__ void write(uint32_t *words, int lane) const {
    uint32_t at = mask_nbytes;
    if (how.kind == GPUFI_BLOCK_RAW) {
      write_raw(words, at, lane);
    } else if (how.kind != GPUFI_BLOCK_ZERO) {
      const uint32_t bits = how.kind == GPUFI_BLOCK_CODE3 ? 3 : 4;
      const uint32_t codes_at = at;
      const bool has_ranges = how.has_ranges(), has_codes = !how.is_even();
      at += has_codes ? (group_count() * bits + 7) / 8 + (has_ranges ? 1 : 0) : 0;
      uint32_t sizes[kLaneGroups], starts[kLaneGroups];
#pragma unroll
      for (int j = 0; j < kLaneGroups; j++) {
        sizes[j] = how.group_width(j);
      }
      scan_groups(sizes, lane, starts);
      if (how.width <= 8) {
        write_groups<4>(words, at, starts);
      } else if (how.width <= 16) {
        write_groups<2>(words, at, starts);
      } else {
        write_groups<1>(words, at, starts);
      }
      if (has_ranges && lane == 0) {
        put_byte(words, codes_at, how.second);
      }
      if (has_codes) {
        write_codes(words, codes_at + (has_ranges ? 1 : 0), bits, lane);
      }
    }
    if (how.form & GPUFI_FORM_SPARSE) {
      write_mask(mask, total, words, 0, lane);
    }
  }
};

} // namespace gpufi

#endif
