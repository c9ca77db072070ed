/* Packing the residuals of a block that a warp holds in registers; codec/pack.c is the reference.
 */
#ifndef GPUFI_BACKEND_CUDA_CODEC_PACK_CUH
#define GPUFI_BACKEND_CUDA_CODEC_PACK_CUH

#include "backend/cuda/codec_mask.cuh"

namespace gpufi {

/* Appends bits to shared memory that is zero. Other writers may share the first and the last word,
 * which are put there by `finish`; the words between are this one's alone. No branches: the lanes
 * of a warp come to the ends of words at different times. */
struct bit_writer {
  uint32_t *first, *at;
  uint32_t head;          /* the first word, once it is full */
  uint32_t pending, fill; /* the lowest `fill` bits of `pending` are not stored yet; fill < 32 */

  __device__ bit_writer(uint32_t *words, uint32_t byte)
      : first(words + byte / 4), at(words + byte / 4), head(0), pending(0), fill(byte % 4 * 8) {}

  /* The lowest `bits` bits of `value`, the others being 0; bits <= 32. */
  __device__ __forceinline__ void put(uint32_t value, uint32_t bits) {
    pending |= value << fill;
    const uint32_t rest = __funnelshift_l(value, 0, fill);
    fill += bits;
    const bool is_full = fill >= 32, is_first = at == first;
    if (is_full && !is_first) {
      *at = pending;
    }
    head = is_full && is_first ? pending : head;
    pending = is_full ? rest : pending;
    at += is_full ? 1 : 0;
    fill %= 32;
  }

  __device__ __forceinline__ void finish() {
    if (at != first) {
      atomicOr(first, head);
    }
    if (fill != 0) {
      atomicOr(at, pending);
    }
  }
};

/* All of a group, `width` bits a value. */
template <typename T>
__device__ __forceinline__ void put_group(bit_writer *writer, const T *v, uint32_t width) {
  if constexpr (sizeof(T) == 8) {
#pragma unroll
    for (int t = 0; t < kGroup; t++) {
      writer->put(static_cast<uint32_t>(v[t]), width < 32 ? width : 32);
      if (width > 32) {
        writer->put(static_cast<uint32_t>(v[t] >> 32), width - 32);
      }
    }
  } else { /* as many at once as fit a word */
    constexpr int kAtOnce = 4 / static_cast<int>(sizeof(T));
#pragma unroll
    for (int t = 0; t < kGroup; t += kAtOnce) {
      uint32_t several = 0;
#pragma unroll
      for (int k = kAtOnce - 1; k >= 0; k--) {
        several = (kAtOnce > 1 ? several << width : 0u) | v[t + k];
      }
      writer->put(several, width * kAtOnce);
    }
  }
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

/* Widths that a group of the two kinds of code is packed at. */
__device__ inline uint32_t narrowest_width(uint32_t widest, uint32_t reach) {
  return widest > reach ? widest - reach : 1;
}

__device__ inline uint32_t packed_width(uint32_t width, uint32_t narrowest) {
  return width == 0 || width > narrowest ? width : narrowest;
}

constexpr uint32_t kCode3Reach = (1 << 3) - 2, kCode4Reach = (1 << 4) - 2;

/* One block. Every method is for a whole warp. */
template <typename T> struct packed_block {
  T values[kLaneGroups][kGroup]; /* residuals; packed values once planned, unless the kind is raw */
  uint32_t widths[kLaneGroups];
  warp_mask mask; /* of a sparse block */
  uint32_t total; /* values of the block */
  uint32_t count; /* of those that are packed: all, or those that are not 0 */
  uint32_t kind, width, shift, form;
  uint32_t mask_nbytes, nbytes; /* of the mask; of all of it */

  /* Of no values at all. */
  __device__ __forceinline__ void clear() {
    clear_groups(values);
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      widths[j] = 0;
    }
    total = count = kind = width = shift = form = mask_nbytes = nbytes = 0;
  }

  __device__ uint32_t descriptor() const {
    return nbytes | width << 14 | shift << 21 | form << 27 | kind << 30;
  }

  __device__ uint32_t group_count() const {
    return (count + kGroup - 1) / kGroup;
  }

  __device__ uint32_t index_of(int j, int lane) const {
    return static_cast<uint32_t>(j * kWarp + lane);
  }

  /* Residuals to packed values, and the widths of the groups. */
  __device__ __forceinline__ void to_packed(int lane) {
    using S = typename signed_of<T>::type;
    T any = 0;
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        any |= values[j][t];
      }
    }
    const auto all = warp_or(any);
    shift = trailing_zeros(all);
    const bool plain = (all >> (kBits<T> - 1) & 1) == 0;
    form |= plain ? GPUFI_FORM_PLAIN : 0;
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      if (plain) {
#pragma unroll
        for (int t = 0; t < kGroup; t++) {
          values[j][t] = static_cast<T>(values[j][t] >> shift);
        }
      } else {
#pragma unroll
        for (int t = 0; t < kGroup; t++) {
          const S r = static_cast<S>(static_cast<S>(values[j][t]) >> shift);
          values[j][t] = static_cast<T>(static_cast<T>(static_cast<T>(r) << 1) ^
                                        static_cast<T>(r >> (kBits<T> - 1)));
        }
      }
      if (form & GPUFI_FORM_SPARSE) {
#pragma unroll
        for (int t = 0; t < kGroup; t++) {
          const bool there = index_of(j, lane) * kGroup + static_cast<uint32_t>(t) < count;
          values[j][t] = static_cast<T>(values[j][t] - (there ? 1 : 0));
        }
      }
      T group = 0;
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        group |= values[j][t];
      }
      widths[j] = bit_length(group);
    }
  }

  /* The inverse, given `shift` and `form`. */
  __device__ __forceinline__ void to_residuals(int lane) {
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
#pragma unroll
      for (int t = 0; t < kGroup; t++) {
        const bool there = index_of(j, lane) * kGroup + static_cast<uint32_t>(t) < count;
        const T z = static_cast<T>(values[j][t] + ((form & GPUFI_FORM_SPARSE) && there ? 1 : 0));
        const T r =
            form & GPUFI_FORM_PLAIN ? z : static_cast<T>((z >> 1) ^ static_cast<T>(0 - (z & 1)));
        values[j][t] = static_cast<T>(r << shift);
      }
    }
  }

  /* Set everything from `values`, `count` residuals, and `form`, either 0 or sparse. A raw block is
   * left as packed values, its form, width and shift theirs. */
  __device__ __forceinline__ void plan(int lane) {
    to_packed(lane);
    uint32_t widest = 0;
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      widest = widths[j] > widest ? widths[j] : widest;
    }
    width = warp_max(widest);
    if (width == 0) {
      kind = GPUFI_BLOCK_ZERO;
      nbytes = 0;
      shift = form & GPUFI_FORM_SPARSE ? shift : 0;
      form = form & GPUFI_FORM_SPARSE ? form : 0;
      return;
    }
    const uint32_t narrowest3 = narrowest_width(width, kCode3Reach);
    const uint32_t narrowest4 = narrowest_width(width, kCode4Reach);
    uint32_t both = 0; /* the sums with 3-bit and, from bit 16 on, with 4-bit codes */
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      both += packed_width(widths[j], narrowest3) | packed_width(widths[j], narrowest4) << 16;
    }
    both = warp_add(both);
    const uint32_t with3 = (both & 0xffff) + (group_count() * 3 + 7) / 8;
    const uint32_t with4 = (both >> 16) + (group_count() * 4 + 7) / 8;
    uint32_t narrowest = with4 < with3 ? narrowest4 : narrowest3;
    kind = with4 < with3 ? GPUFI_BLOCK_CODE4 : GPUFI_BLOCK_CODE3;
    nbytes = with4 < with3 ? with4 : with3;
    bool fixed = false; /* all groups are of one width */
    if (group_count() * width < nbytes) {
      kind = GPUFI_BLOCK_CODE3;
      form |= GPUFI_FORM_EVEN;
      nbytes = group_count() * width;
      narrowest = width;
      fixed = true;
    }
    if (nbytes >= count * sizeof(T)) {
      kind = GPUFI_BLOCK_RAW;
      nbytes = count * static_cast<uint32_t>(sizeof(T));
      narrowest = kBits<T>;
      fixed = true;
    }
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      widths[j] = !fixed                              ? packed_width(widths[j], narrowest)
                  : index_of(j, lane) < group_count() ? narrowest
                                                      : 0;
    }
  }

  /* The same for all residuals of a block of `value_count`: the smaller of dense and sparse.
   * `list` has room for as many values. Up to three turns: dense, sparse, and dense again. */
  __device__ __forceinline__ void measure(uint32_t value_count, int lane, T *list) {
    total = count = value_count;
    form = mask_nbytes = 0;
    mask = mask_of(values);
    const uint32_t used_count = mask.used_count();
    bool tries_sparse = used_count != 0 && 4 * used_count <= 3 * value_count;
    uint32_t dense_nbytes = 0;
    for (;;) {
      plan(lane);
      const bool sparse = form & GPUFI_FORM_SPARSE;
      if (kind == GPUFI_BLOCK_RAW || (tries_sparse && !sparse)) {
        to_residuals(lane);
      }
      if (kind == GPUFI_BLOCK_RAW) {
        form &= GPUFI_FORM_SPARSE;
        width = shift = 0;
      }
      if (!tries_sparse) {
        return;
      }
      if (!sparse) {
        dense_nbytes = nbytes;
        compact_values(mask, values, lane, list);
        load_list(list, used_count, lane, values);
        count = used_count;
        form = GPUFI_FORM_SPARSE;
        continue;
      }
      mask.summarize();
      mask_nbytes = mask.nbytes(mask_shape(value_count));
      nbytes += mask_nbytes;
      if (nbytes < dense_nbytes) {
        return;
      }
      expand_values(mask, list, lane, values);
      count = value_count;
      form = mask_nbytes = 0;
      tries_sparse = false;
    }
  }

  /* The code table, to byte `at`: eight lanes put their codes together. */
  __device__ __forceinline__ void write_codes(uint32_t *words, uint32_t at, uint32_t bits,
                                              int lane) const {
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      const uint32_t k = index_of(j, lane);
      const uint32_t code = widths[j] != 0 ? width - widths[j] : (1u << bits) - 1;
      uint32_t codes = k < group_count() ? code << (lane % 8 * bits) : 0;
      codes |= __shfl_xor_sync(kFull, codes, 1);
      codes |= __shfl_xor_sync(kFull, codes, 2);
      codes |= __shfl_xor_sync(kFull, codes, 4);
      if (lane % 8 == 0 && k < group_count()) {
        bit_writer writer(words, at + k / 8 * bits);
        writer.put(codes, 8 * bits);
        writer.finish();
      }
    }
  }

  /* All of the block, to byte `at` of words that are zero. */
  __device__ __forceinline__ void write(uint32_t *words, uint32_t at, int lane) const {
    if (form & GPUFI_FORM_SPARSE) {
      write_mask(mask, total, words, at, lane);
      at += mask_nbytes;
    }
    if (kind == GPUFI_BLOCK_ZERO) {
      return;
    }
    if (kind != GPUFI_BLOCK_RAW && !(form & GPUFI_FORM_EVEN)) {
      const uint32_t bits = kind == GPUFI_BLOCK_CODE3 ? 3 : 4;
      write_codes(words, at, bits, lane);
      at += (group_count() * bits + 7) / 8;
    }
    uint32_t starts[kLaneGroups];
    scan_groups(widths, lane, starts);
    if (kind == GPUFI_BLOCK_RAW) {
#pragma unroll
      for (int j = 0; j < kLaneGroups; j++) {
        if (widths[j] != 0) {
          put_raw_group(words, at + starts[j], values[j]);
        }
      }
      return;
    }
#pragma unroll
    for (int j = 0; j < kLaneGroups; j++) {
      if (widths[j] != 0) {
        bit_writer writer(words, at + starts[j]);
        put_group(&writer, values[j], widths[j]);
        writer.finish();
      }
    }
  }
};

} // namespace gpufi

#endif
