/* Ranked values: docs/format.md, Mode 3; codec/ranked.c and codec/tree.h are the reference. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_RANKS_CUH
#define GPUFI_BACKEND_CUDA_CODEC_RANKS_CUH

#include "backend/cuda/codec/values.cuh"

namespace gpufi {

constexpr uint32_t kSymbolsMax = 1 << GPUFI_SYMBOL_BITS_MAX;

/* Where the symbol is in a value, and how many low bits are 0 in every value. */
struct symbol_place {
  uint8_t at, bits, shift;

  __device__ uint32_t nbytes() const {
    return bits > 8 ? 2 : 1;
  }
};

/* The codes of a ranked chunk: a tree or, in version 1, codes of two lengths. */
struct rank_codes {
  symbol_place place;
  bool has_tree;
  uint8_t levels; /* the header's */
  /* Of a tree: the leaves of the levels before level j, and of all levels in those behind the
   * deepest. */
  uint8_t before[GPUFI_TREE_DEPTH_MAX + 2];

  __device__ uint32_t depth() const {
    return levels & 15u;
  }
  /* The last leaf, which has no symbol of its own. */
  __device__ uint32_t last() const {
    return before[GPUFI_TREE_DEPTH_MAX + 1] - 1u;
  }

  /* In version 1. */
  __device__ uint32_t first_bits() const {
    return levels & 15u;
  }
  __device__ uint32_t second_bits() const {
    return levels >> 4;
  }
  __device__ uint32_t first_count() const {
    return (1u << first_bits()) - 1;
  }
  __device__ uint32_t second_count() const {
    return (1u << second_bits()) - 1;
  }

  /* Entries of the symbol table, and its bytes without and with what fills it up. */
  __device__ uint32_t count() const {
    return has_tree ? last() : first_count() + second_count();
  }
  __device__ uint32_t table_nbytes() const {
    return count() * place.nbytes();
  }
  __device__ uint32_t padded_nbytes() const {
    return static_cast<uint32_t>(gpufi_round_up_16(table_nbytes()));
  }

  template <typename T> __device__ uint32_t rest_bits() const {
    return kBits<T> - place.bits - place.shift;
  }
  template <typename T> __device__ uint32_t symbol_of(T value) const {
    return static_cast<uint32_t>(value >> place.at) & ((1u << place.bits) - 1);
  }
  /* The value without its symbol and the bits below the shift: what is above either moves down. */
  template <typename T> __device__ T rest_of(T value) const {
    const uint64_t low = (value & ((UINT64_C(1) << place.at) - 1)) >> place.shift;
    const uint64_t high = static_cast<uint64_t>(value) >> place.at >> place.bits;
    return static_cast<T>(low | high << (place.at - place.shift));
  }
  /* The inverse. */
  template <typename T> __device__ T value_of(T rest, uint32_t symbol) const {
    const uint32_t below = place.at - place.shift;
    const uint64_t low = (rest & ((UINT64_C(1) << below) - 1)) << place.shift;
    const uint64_t high = static_cast<uint64_t>(rest) >> below << place.bits;
    return static_cast<T>(low | (high | symbol) << place.at);
  }

  /* The tree of `depth` levels, of which level j has leaves[j - 1] leaves. False if there is none.
   */
  __device__ bool set_tree(uint32_t depth, const uint8_t *leaves) {
    uint32_t inner = 1, all = 0; /* nodes of a level that have children */
    bool good = depth >= 1 && depth <= GPUFI_TREE_DEPTH_MAX;
    before[0] = before[1] = 0;
    for (uint32_t j = 1; j <= GPUFI_TREE_DEPTH_MAX; j++) {
      const uint32_t here = j <= depth ? leaves[j - 1] : 0, nodes = 2 * inner;
      all += here;
      if (j <= depth) {
        good = good && here <= nodes && (nodes == here) == (j == depth) &&
               all + 2 * (nodes - here) <= GPUFI_TREE_LEAVES_MAX;
        inner = good ? nodes - here : 0;
      }
      before[j + 1] = static_cast<uint8_t>(all);
    }
    has_tree = true;
    levels = static_cast<uint8_t>(depth | static_cast<uint32_t>(place.bits) << 4);
    return good;
  }

  __device__ uint32_t leaves_of(uint32_t level) const {
    return static_cast<uint32_t>(before[level + 1]) - before[level];
  }

  /* The level of a leaf: the steps to it. */
  __device__ uint32_t level_of(uint32_t leaf) const {
    uint32_t j = 1;
    while (leaf >= before[j + 1]) {
      j++;
    }
    return j;
  }

  /* The steps to a leaf, the first one in the lowest bit, and behind the last a bit that is 1. */
  __device__ uint32_t walk_to(uint32_t leaf) const {
    uint32_t walk = 1, node = leaf;
    for (uint32_t j = level_of(leaf); j > 0; j--) {
      const uint32_t twice = node + before[j]; /* the node above, and the step */
      walk = walk << 1 | (twice & 1);
      node = twice >> 1;
    }
    return walk;
  }
};

/* Bytes of `count` values in groups of eight, `width` bits each. */
__device__ inline uint32_t fixed_nbytes(uint32_t count, uint32_t width) {
  return (count + kGroup - 1) / kGroup * width;
}

} // namespace gpufi

#endif
