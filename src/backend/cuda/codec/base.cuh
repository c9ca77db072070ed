/* Values by way of a base, one at a time: codec/base_impl.h and codec/number_impl.h are the
 * references. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_BASE_CUH
#define GPUFI_BACKEND_CUDA_CODEC_BASE_CUH

#include "backend/cuda/codec/values.cuh"

extern "C" {
#include "codec/number.h"
}

namespace gpufi {

/* The transform of the top kBits - shift bits of a value, and its inverse. */
template <typename T>
__device__ __forceinline__ T apply_shifted(T x, uint32_t transform, uint32_t shift) {
  const T sign = static_cast<T>(x >> (kBits<T> - 1));
  const T below = static_cast<T>(static_cast<T>(0 - sign) >> 1);
  const T flips = static_cast<T>(static_cast<T>(below >> shift) << shift);
  x = static_cast<T>(static_cast<T>(x >> shift) << shift);
  return transform == GPUFI_TRANSFORM_ROTATE
             ? static_cast<T>(static_cast<T>(x << 1) | static_cast<T>(sign << shift))
         : transform == GPUFI_TRANSFORM_ORDER ? static_cast<T>(x ^ flips)
                                              : x;
}

template <typename T>
__device__ __forceinline__ T undo_shifted(T x, uint32_t transform, uint32_t shift) {
  if (transform == GPUFI_TRANSFORM_ROTATE) { /* the sign is bit `shift` */
    const T magnitude = static_cast<T>(static_cast<T>(static_cast<T>(x >> 1) >> shift) << shift);
    return static_cast<T>(magnitude | static_cast<T>(static_cast<T>(x >> shift) << (kBits<T> - 1)));
  }
  return apply_shifted(x, transform, shift);
}

template <typename T> __device__ __forceinline__ double to_double(T x) {
  if constexpr (sizeof(T) == 8) {
    return gpufi_double_of_bits(x);
  } else {
    return static_cast<double>(gpufi_float_of_bits(static_cast<uint32_t>(x)));
  }
}

/* Whether a value of 32 or 64 bits has an integer. */
template <typename T>
__device__ __forceinline__ bool has_number(const gpufi_numbers &numbers, T value) {
  const double most = sizeof(T) == 8 ? GPUFI_NUMBER_MAX_64 : GPUFI_NUMBER_MAX_32;
  const double near =
      gpufi_number_near(numbers.transform, numbers.a, numbers.b, numbers.inverse, to_double(value));
  return near > -most && near < most;
}

/* Whether a value is by itself what is predicted, or its integer is. */
template <typename T>
__device__ __forceinline__ bool has_own(const gpufi_numbers &numbers, T value) {
  const bool is_fill = numbers.has_fill && value == static_cast<T>(numbers.fill);
  if constexpr (sizeof(T) >= 4) {
    if (gpufi_transform_has_parameters(numbers.transform)) {
      return !is_fill && has_number(numbers, value);
    }
  }
  return !is_fill;
}

template <typename T> __device__ __forceinline__ T own_of(const gpufi_numbers &numbers, T value) {
  if constexpr (sizeof(T) >= 4) {
    if (gpufi_transform_has_parameters(numbers.transform)) {
      return static_cast<T>(gpufi_number_rounded(gpufi_number_near(
          numbers.transform, numbers.a, numbers.b, numbers.inverse, to_double(value))));
    }
  }
  return apply_shifted(value, numbers.transform, numbers.shift);
}

/* What is predicted for value number i of a chunk's `count`, of which load(i) is the value: one
 * that has nothing of its own has that of the nearest one before it in its group, `step` apart, or
 * else of the first one after it. */
template <typename T, typename Load>
__device__ __noinline__ T based_value(const gpufi_numbers &numbers, uint32_t step, uint32_t i,
                                      uint32_t count, const Load &load) {
  const T x = load(i), filler = static_cast<T>(numbers.filler);
  if (has_own(numbers, x)) {
    return own_of(numbers, x);
  }
  const uint32_t group = i / kGroup * kGroup, left = count - group;
  const uint32_t end = left < kGroup ? count : group + kGroup;
  for (uint32_t k = i; k >= group + step;) {
    k -= step;
    const T before = load(k);
    if (has_own(numbers, before)) {
      return own_of(numbers, before);
    }
  }
  for (uint32_t k = i; end - k > step;) {
    k += step;
    const T after = load(k);
    if (has_own(numbers, after)) {
      return own_of(numbers, after);
    }
  }
  return has_own(numbers, filler) ? own_of(numbers, filler) : static_cast<T>(0);
}

/* The inverse of corrected(). */
template <typename T>
__device__ __forceinline__ T correction_of(const gpufi_numbers &numbers, T value, T base) {
  using S = typename signed_of<T>::type;
  const T c = static_cast<T>(order(value) - order(base));
  const bool is_above = numbers.has_fill && static_cast<S>(c) > 0;
  return numbers.has_fill && value == static_cast<T>(numbers.fill)
             ? static_cast<T>(1)
             : static_cast<T>(c + (is_above ? 1 : 0));
}

/* Whether a correction can make the value of its base: the greatest one cannot be one more. */
template <typename T>
__device__ __forceinline__ bool can_be_corrected(const gpufi_numbers &numbers, T value, T base) {
  constexpr T kMost = static_cast<T>(static_cast<T>(~static_cast<T>(0)) >> 1);
  return !numbers.has_fill || value == static_cast<T>(numbers.fill) ||
         static_cast<T>(order(value) - order(base)) != kMost;
}

/* The base of what was predicted. */
template <typename T> __device__ __forceinline__ T base_bits(const gpufi_numbers &numbers, T p) {
  if (gpufi_transform_has_parameters(numbers.transform)) {
    if constexpr (sizeof(T) == 8) {
      return gpufi_double_bits(gpufi_number_base(numbers.transform, numbers.a, numbers.b,
                                                 static_cast<double>(static_cast<int64_t>(p))));
    } else if constexpr (sizeof(T) == 4) {
      const int32_t n = static_cast<int32_t>(p);
      return gpufi_float_bits(
          numbers.transform == GPUFI_TRANSFORM_SINGLE
              ? gpufi_number_single(numbers.a, numbers.b, static_cast<float>(n))
              : static_cast<float>(gpufi_number_base(numbers.transform, numbers.a, numbers.b,
                                                     static_cast<double>(n))));
    }
  }
  return undo_shifted(p, numbers.transform, numbers.shift);
}

/* The value that a correction makes of its base: it counts floats. Where there is a fill, 1 stands
 * for it, and those above 0 are one more. */
template <typename T>
__device__ __forceinline__ T corrected(const gpufi_numbers &numbers, T base, T correction) {
  using S = typename signed_of<T>::type;
  const bool is_above = numbers.has_fill && static_cast<S>(correction) > 0;
  const T value =
      order(static_cast<T>(order(base) + correction - static_cast<T>(is_above ? 1 : 0)));
  return numbers.has_fill && correction == 1 ? static_cast<T>(numbers.fill) : value;
}

} // namespace gpufi

#endif
