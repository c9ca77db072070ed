/* Elements to bit planes and back. Plane 8 b + k has bit k of each element's byte b, eight elements
 * a byte, the first one in its lowest bit.
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_BITPLANES_H
#define GPUFI_CODEC_BITPLANES_H

#include <stddef.h>
#include <stdint.h>

#define GPUFI_BITPLANES_GROUP 8 /* elements that share a byte of each plane */
#define GPUFI_BITPLANES_ELEMENT_NBYTES_MAX 64

/* `count`, a multiple of 8, elements of 1 to GPUFI_BITPLANES_ELEMENT_NBYTES_MAX bytes to the first
 * count / 8 bytes of each plane. The planes lie `plane_nbytes` apart. */
void gpufi_bitplanes_split(size_t element_nbytes, const uint8_t *elements, size_t count,
                           uint8_t *planes, size_t plane_nbytes);

/* The inverse. */
void gpufi_bitplanes_join(size_t element_nbytes, const uint8_t *planes, size_t plane_nbytes,
                          size_t count, uint8_t *elements);

#endif
