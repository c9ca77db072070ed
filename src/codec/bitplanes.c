#include "codec/bitplanes.h"
#include "codec/cpu.h"
#include "codec/scalar.h"

#define LANES 2
#include "codec/bitplanes_impl.h"

#define GROUP GPUFI_BITPLANES_GROUP

/* Bit k of byte j becomes bit j of byte k. */
static uint64_t transpose_8x8(uint64_t x) {
  uint64_t t = (x ^ x >> 7) & 0x00aa00aa00aa00aau;
  x ^= t ^ t << 7;
  t = (x ^ x >> 14) & 0x0000cccc0000ccccu;
  x ^= t ^ t << 14;
  t = (x ^ x >> 28) & 0x00000000f0f0f0f0u;
  return x ^ t ^ t << 28;
}

/* Eight bytes `stride` apart as one word, and back. */
static uint64_t gather(const uint8_t *from, size_t stride) {
  uint64_t x = 0;
  for (size_t j = 0; j < GROUP; j++) {
    x |= (uint64_t)from[j * stride] << (8 * j);
  }
  return x;
}

static void scatter(uint64_t x, uint8_t *to, size_t stride) {
  for (size_t j = 0; j < GROUP; j++) {
    to[j * stride] = (uint8_t)(x >> (8 * j));
  }
}

size_t gpufi_split_bits_scalar(size_t element_nbytes, const uint8_t *elements, size_t groups,
                               uint8_t *planes, size_t plane_nbytes) {
  return split_bits(element_nbytes, elements, groups, planes, plane_nbytes);
}

size_t gpufi_join_bits_scalar(size_t element_nbytes, const uint8_t *planes, size_t plane_nbytes,
                              size_t groups, uint8_t *elements) {
  return join_bits(element_nbytes, planes, plane_nbytes, groups, elements);
}

/* There are kernels for the sizes of values. */
static bool has_kernel(size_t element_nbytes) {
  return element_nbytes <= 8 && (element_nbytes & (element_nbytes - 1)) == 0;
}

void gpufi_bitplanes_split(size_t element_nbytes, const uint8_t *elements, size_t count,
                           uint8_t *planes, size_t plane_nbytes) {
  const size_t groups = count / GROUP;
  words w[GROUP * GPUFI_BITPLANES_ELEMENT_NBYTES_MAX];
  size_t g =
      has_kernel(element_nbytes)
          ? gpufi_cpu_get()->split_bits(element_nbytes, elements, groups, planes, plane_nbytes)
          : split_steps(element_nbytes, elements, groups, planes, plane_nbytes, w);
  for (; g < groups; g++) {
    for (size_t b = 0; b < element_nbytes; b++) {
      const uint64_t x = gather(elements + g * GROUP * element_nbytes + b, element_nbytes);
      scatter(transpose_8x8(x), planes + b * 8 * plane_nbytes + g, plane_nbytes);
    }
  }
}

void gpufi_bitplanes_join(size_t element_nbytes, const uint8_t *planes, size_t plane_nbytes,
                          size_t count, uint8_t *elements) {
  const size_t groups = count / GROUP;
  words w[GROUP * GPUFI_BITPLANES_ELEMENT_NBYTES_MAX];
  size_t g =
      has_kernel(element_nbytes)
          ? gpufi_cpu_get()->join_bits(element_nbytes, planes, plane_nbytes, groups, elements)
          : join_steps(element_nbytes, planes, plane_nbytes, groups, elements, w);
  for (; g < groups; g++) {
    for (size_t b = 0; b < element_nbytes; b++) {
      const uint64_t x = gather(planes + b * 8 * plane_nbytes + g, plane_nbytes);
      scatter(transpose_8x8(x), elements + g * GROUP * element_nbytes + b, element_nbytes);
    }
  }
}
