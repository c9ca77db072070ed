/* Arithmetic on sizes and strides, in C and, for the CUDA sources, C++. Pure functions. */
#ifndef GPUFI_BASE_ARITHMETIC_H
#define GPUFI_BASE_ARITHMETIC_H

#include <stddef.h>
#include <stdint.h>

/* Marks functions that run on the GPU too, where nvcc compiles them. */
#ifdef __CUDACC__
#define GPUFI_ON_BOTH __host__ __device__
#else
#define GPUFI_ON_BOTH
#endif

/* The magnitude of a stride. That of INT64_MIN, which a checked tensor has only where the stride
 * means nothing, is INT64_MAX. */
static inline int64_t gpufi_magnitude(int64_t value) {
  return value >= 0 ? value : value == INT64_MIN ? INT64_MAX : -value;
}

static inline size_t gpufi_min_nbytes(size_t a, size_t b) {
  return a < b ? a : b;
}

static inline int64_t gpufi_min_int64(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* The least multiple of `multiple`, a power of two, that is not below `nbytes`; the sum must not
 * overflow. */
static GPUFI_ON_BOTH inline size_t gpufi_round_up(size_t nbytes, size_t multiple) {
  return (nbytes + multiple - 1) & ~(multiple - 1);
}

/* Payloads of the chunk format and transfers of batches are aligned to 16 bytes. */
static GPUFI_ON_BOTH inline size_t gpufi_round_up_16(size_t nbytes) {
  return gpufi_round_up(nbytes, 16);
}

#endif
