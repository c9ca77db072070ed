/* One piece of code for each width of value, so that the compiler sees loads, stores and loops of
 * a fixed size. */
#ifndef GPUFI_CODEC_WIDTHS_H
#define GPUFI_CODEC_WIDTHS_H

#include <stdint.h>
#include <string.h>

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
