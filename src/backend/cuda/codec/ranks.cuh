/* Ranked values: docs/format.md, Mode 3; codec/ranked.c is the reference. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_RANKS_CUH
#define GPUFI_BACKEND_CUDA_CODEC_RANKS_CUH

#include "backend/cuda/codec/values.cuh"

namespace gpufi {

constexpr uint32_t kSymbolsMax = 1 << GPUFI_SYMBOL_BITS_MAX;

/* Where the symbol is in a value; bits 0 if values of this kind are not ranked. */
struct symbol_place {
  uint8_t at, bits;

  __device__ uint32_t nbytes() const {
    return bits > 8 ? 2 : 1;
  }
};

/* A ranked chunk's code lengths, as the header's `levels` has them, and what follows from them. */
struct rank_levels {
  symbol_place place;
  uint8_t levels;

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
    return first_count() + second_count();
  }
  __device__ uint32_t table_nbytes() const {
    return count() * place.nbytes();
  }
  __device__ uint32_t padded_nbytes() const {
    return static_cast<uint32_t>(gpufi_round_up_16(table_nbytes()));
  }

  template <typename T> __device__ uint32_t rest_bits() const {
    return kBits<T> - place.bits;
  }
  template <typename T> __device__ uint32_t symbol_of(T value) const {
    return static_cast<uint32_t>(value >> place.at) & ((1u << place.bits) - 1);
  }
  /* The value without its symbol: what is above that moves down. */
  template <typename T> __device__ T rest_of(T value) const {
    const uint64_t low = value & ((UINT64_C(1) << place.at) - 1);
    return static_cast<T>(low | static_cast<uint64_t>(value) >> place.at >> place.bits << place.at);
  }
  /* The inverse. */
  template <typename T> __device__ T value_of(T rest, uint32_t symbol) const {
    const uint64_t low = rest & ((UINT64_C(1) << place.at) - 1);
    const uint64_t high = static_cast<uint64_t>(rest) >> place.at << place.bits;
    return static_cast<T>(low | (high | symbol) << place.at);
  }
};

/* Bytes of `count` values in groups of eight, `width` bits each. */
__device__ inline uint32_t fixed_nbytes(uint32_t count, uint32_t width) {
  return (count + kGroup - 1) / kGroup * width;
}

} // namespace gpufi

#endif
