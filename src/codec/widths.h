/* One piece of code for each width of value, so that the compiler sees loads, stores and loops of
 * a fixed size. each_width.h does the same for whole files. */
#ifndef GPUFI_CODEC_WIDTHS_H
#define GPUFI_CODEC_WIDTHS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* For functions of which the callers make variants by constant arguments: each call is a copy. */
#define GPUFI_INLINE static inline __attribute__((always_inline))

/* Widths of value: 8, 16, 32 and 64 bits, as an index. */
#define GPUFI_VALUE_WIDTHS 4

static inline unsigned gpufi_value_index(size_t value_nbytes) {
  return (unsigned)__builtin_ctzll(value_nbytes);
}

/* Run the statement with T as the unsigned type of `nbytes` bytes. */
#define GPUFI_BY_NBYTES(nbytes, ...)                                                               \
  do {                                                                                             \
    switch (nbytes) {                                                                              \
    case 1: {                                                                                      \
      typedef uint8_t T;                                                                           \
      __VA_ARGS__;                                                                                 \
    } break;                                                                                       \
    case 2: {                                                                                      \
      typedef uint16_t T;                                                                          \
      __VA_ARGS__;                                                                                 \
    } break;                                                                                       \
    case 4: {                                                                                      \
      typedef uint32_t T;                                                                          \
      __VA_ARGS__;                                                                                 \
    } break;                                                                                       \
    default: {                                                                                     \
      typedef uint64_t T;                                                                          \
      __VA_ARGS__;                                                                                 \
    }                                                                                              \
    }                                                                                              \
  } while (0)

#endif
