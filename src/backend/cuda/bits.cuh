/* An element's bits to and from memory, by a size known at run time: 1, 2, 4 or 8 bytes. */
#ifndef GPUFI_BACKEND_CUDA_BITS_CUH
#define GPUFI_BACKEND_CUDA_BITS_CUH

#include <stdint.h>

namespace gpufi {

__device__ inline uint64_t load_bits(const char *address, uint32_t nbytes, bool aligned) {
  if (!aligned) {
    uint64_t bits = 0;
    for (uint32_t i = 0; i < nbytes; i++) {
      bits |= static_cast<uint64_t>(static_cast<uint8_t>(address[i])) << (8 * i);
    }
    return bits;
  }
  switch (nbytes) {
  case 1:
    return *reinterpret_cast<const uint8_t *>(address);
  case 2:
    return *reinterpret_cast<const uint16_t *>(address);
  case 4:
    return *reinterpret_cast<const uint32_t *>(address);
  default:
    return *reinterpret_cast<const uint64_t *>(address);
  }
}

__device__ inline void store_bits(char *address, uint32_t nbytes, bool aligned, uint64_t bits) {
  if (!aligned) {
    for (uint32_t i = 0; i < nbytes; i++) {
      address[i] = static_cast<char>(bits >> (8 * i));
    }
    return;
  }
  switch (nbytes) {
  case 1:
    *reinterpret_cast<uint8_t *>(address) = static_cast<uint8_t>(bits);
    break;
  case 2:
    *reinterpret_cast<uint16_t *>(address) = static_cast<uint16_t>(bits);
    break;
  case 4:
    *reinterpret_cast<uint32_t *>(address) = static_cast<uint32_t>(bits);
    break;
  default:
    *reinterpret_cast<uint64_t *>(address) = bits;
  }
}

} // namespace gpufi

#endif
