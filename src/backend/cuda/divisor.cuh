/* Division by a number that is known when the kernel is launched. */
#ifndef GPUFI_BACKEND_CUDA_DIVISOR_CUH
#define GPUFI_BACKEND_CUDA_DIVISOR_CUH

#include <stdint.h>

namespace gpufi {

struct divisor {
  uint32_t d, multiplier;
  uint8_t shift1, shift2;
};

inline divisor make_divisor(uint32_t d) {
  uint32_t log2 = 0;
  while (log2 < 32 && (UINT64_C(1) << log2) < d) {
    log2++;
  }
  divisor result = {};
  result.d = d;
  result.multiplier = static_cast<uint32_t>((((UINT64_C(1) << log2) - d) << 32) / d + 1);
  result.shift1 = static_cast<uint8_t>(log2 < 1 ? log2 : 1);
  result.shift2 = static_cast<uint8_t>(log2 > 1 ? log2 - 1 : 0);
  return result;
}

__device__ inline uint32_t divide(uint32_t n, const divisor &by) {
  const uint32_t t = __umulhi(n, by.multiplier);
  return (t + ((n - t) >> by.shift1)) >> by.shift2;
}

} // namespace gpufi

#endif
