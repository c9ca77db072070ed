/* Values and their bases for one width of value; included by each_width.h. */

#include "codec/value_impl.h"

/* Undo the transform of the top BITS - shift bits of a value, of which the other bits are 0. */
static inline T F(undo_shifted)(T x, unsigned transform, unsigned shift) {
  if (transform == GPUFI_TRANSFORM_ROTATE) { /* the sign is bit `shift` */
    return (T)((T)((T)(x >> 1) >> shift << shift) | (T)((T)(x >> shift) << (BITS - 1)));
  }
  const T sign = (T)(x >> (BITS - 1)), magnitude = (T)((T)((T)(0 - sign) >> 1) >> shift << shift);
  return transform == GPUFI_TRANSFORM_ORDER ? (T)(x ^ magnitude) : x;
}

static inline T F(base)(const gpufi_numbers *numbers, T x) {
#if BITS == 32
  if (gpufi_transform_has_parameters(numbers->transform)) {
    return gpufi_number_32(numbers->transform, numbers->a, numbers->b, (S)x);
  }
#elif BITS == 64
  if (gpufi_transform_has_parameters(numbers->transform)) {
    return gpufi_number_64(numbers->transform, numbers->a, numbers->b, (S)x);
  }
#endif
  return F(undo_shifted)(x, numbers->transform, numbers->shift);
}

/* A correction counts floats: it is a difference of two values after the order transform. */
static void F(undo_all)(const gpufi_numbers *numbers, const uint8_t *corrections, size_t count,
                        uint8_t *values) {
  for (size_t i = 0; i < count; i++) {
    T x = F(base)(numbers, F(get)(values, i));
    if (corrections != NULL) {
      x = F(apply)((T)(F(apply)(x, GPUFI_TRANSFORM_ORDER) + F(get)(corrections, i)),
                   GPUFI_TRANSFORM_ORDER);
    }
    F(put)(values, i, x);
  }
}
