/* Elements of every real type as float64, and back. Thread-safety: pure functions. */
#ifndef GPUFI_BACKEND_ELEMENTS_H
#define GPUFI_BACKEND_ELEMENTS_H

#include <gpufetch/gpufetch.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The values of a one-byte type (bool, int8, uint8, any float8) by their bits. */
void gpufi_elements_byte_table(gpuf_dtype dtype, float table[256]);

/* `count` elements at `stride_nbytes`, at any alignment, as float64: exactly, but for 64-bit
 * integers, which are rounded. */
void gpufi_elements_widen(gpuf_dtype dtype, const void *src, int64_t stride_nbytes, int64_t count,
                          double *numbers);

/* Write `count` values of a type other than a 64-bit integer, as widening gave them, one after the
 * other. NaN becomes the type's quiet NaN, and 0 where it has none. */
void gpufi_elements_narrow(gpuf_dtype dtype, const double *numbers, int64_t count, void *elements);

#ifdef __cplusplus
}
#endif

#endif
