/* Conversion between real element types. Thread-safety: pure functions. */
#ifndef GPUFI_BACKEND_CAST_H
#define GPUFI_BACKEND_CAST_H

#include <gpufetch/gpufetch.h>

typedef struct gpufi_cast {
  gpuf_dtype from;
  gpuf_dtype to;
} gpufi_cast;

/* True for equal types, and for every pair of real ones but those to float8_e8m0fnu. */
bool gpufi_cast_offered(gpufi_cast cast);

/* Convert `count` packed elements, at any alignment. This is what the kernels of every backend
 * agree with bit for bit. */
void gpufi_cast_elements(gpufi_cast cast, const void *src, int64_t count, void *dst);

#endif
