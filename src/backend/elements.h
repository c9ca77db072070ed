/* Elements of every real type as float64. Thread-safety: pure functions. */
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

#ifdef __cplusplus
}
#endif

#endif
