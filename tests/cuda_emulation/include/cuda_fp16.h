/* What kernels use of CUDA's header of this name. */
#ifndef GPUFI_TEST_CUDA_EMULATION_CUDA_FP16_H
#define GPUFI_TEST_CUDA_EMULATION_CUDA_FP16_H

#include <stdint.h>

#include <cmath>

struct __half {
  uint16_t bits;
};

inline __half __ushort_as_half(uint16_t bits) {
  return {bits};
}

inline float __half2float(__half h) {
  const int exponent = h.bits >> 10 & 31, fraction = h.bits & 1023;
  float magnitude;
  if (exponent == 31) {
    magnitude = fraction ? NAN : INFINITY;
  } else {
    magnitude = exponent ? std::ldexp(static_cast<float>(1024 + fraction), exponent - 25)
                         : std::ldexp(static_cast<float>(fraction), -24);
  }
  return h.bits & 0x8000 ? -magnitude : magnitude;
}

#endif
