/* Reading unaligned little-endian integers. The chunk format is little-endian and so is every
 * machine that this code is built for, so a load is a memcpy. Plain C, and C++ for the CUDA
 * sources.
 */
#ifndef GPUFI_CODEC_BYTES_H
#define GPUFI_CODEC_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the codec reads and writes the format's integers in place"
#endif

static inline uint32_t gpufi_load_u32(const uint8_t *p) {
  uint32_t x;
  memcpy(&x, p, sizeof(x));
  return x;
}

static inline uint64_t gpufi_load_u64(const uint8_t *p) {
  uint64_t x;
  memcpy(&x, p, sizeof(x));
  return x;
}

/* The `nbytes` (at most 8) bytes at `p` as one number; reads no more than these. */
static inline uint64_t gpufi_load_value(const uint8_t *p, size_t nbytes) {
  uint64_t x = 0;
  memcpy(&x, p, nbytes);
  return x;
}

/* The lowest `nbytes` (1 to 8) bytes of `value` in reverse order. */
static inline uint64_t gpufi_reversed(uint64_t value, size_t nbytes) {
  return __builtin_bswap64(value) >> (64 - 8 * nbytes);
}

/* The same bytes (at least 1) as a big-endian number. */
static inline uint64_t gpufi_load_swapped(const uint8_t *p, size_t nbytes) {
  return gpufi_reversed(gpufi_load_value(p, nbytes), nbytes);
}

/* How many of `bytes` are `byte`. In sums of a byte, which 255 bytes cannot overflow, so that the
 * compiler counts many at a time. */
static inline size_t gpufi_count_byte(const uint8_t *bytes, size_t count, uint8_t byte) {
  size_t equal = 0;
  for (size_t i = 0; i < count;) {
    const size_t end = count - i < UINT8_MAX ? count : i + UINT8_MAX;
    uint8_t here = 0;
    for (; i < end; i++) {
      here = (uint8_t)(here + (bytes[i] == byte));
    }
    equal += here;
  }
  return equal;
}

#endif
