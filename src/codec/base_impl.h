/* What values have as their base, one at a time, for one width of value; included by each_width.h
 * after value_impl.h. */

/* The transform of the top BITS - shift bits of a value. */
GPUFI_INLINE T F(apply_shifted)(T x, const unsigned transform, unsigned shift) {
  const T sign = (T)(x >> (BITS - 1)), flips = (T)((T)((T)(0 - sign) >> 1) >> shift << shift);
  x = (T)(x >> shift << shift);
  return transform == GPUFI_TRANSFORM_ROTATE  ? (T)((T)(x << 1) | (T)(sign << shift))
         : transform == GPUFI_TRANSFORM_ORDER ? (T)(x ^ flips)
                                              : x;
}

#if BITS == 32 || BITS == 64
#if BITS == 32
#define NUMBER_MAX GPUFI_NUMBER_MAX_32
GPUFI_INLINE double F(to_double)(uint32_t x) {
  return (double)gpufi_float_of_bits(x);
}
#else
#define NUMBER_MAX GPUFI_NUMBER_MAX_64
GPUFI_INLINE double F(to_double)(uint64_t x) {
  return gpufi_double_of_bits(x);
}
#endif

GPUFI_INLINE bool F(has_number)(const gpufi_numbers *numbers, T value) {
  const double near = gpufi_number_near(numbers->transform, numbers->a, numbers->b,
                                        numbers->inverse, F(to_double)(value));
  return near > -NUMBER_MAX && near < NUMBER_MAX;
}

/* The integer of a value that has one. */
GPUFI_INLINE T F(number_of)(const gpufi_numbers *numbers, T value) {
  return (T)gpufi_number_rounded(gpufi_number_near(numbers->transform, numbers->a, numbers->b,
                                                   numbers->inverse, F(to_double)(value)));
}

#undef NUMBER_MAX
#endif

/* Whether a value is by itself what is predicted, or its integer is. */
GPUFI_INLINE bool F(has_own)(const gpufi_numbers *numbers, T value) {
  const bool is_fill = numbers->has_fill && value == (T)numbers->fill;
#if BITS == 32 || BITS == 64
  if (gpufi_transform_has_parameters(numbers->transform)) {
    return !is_fill && F(has_number)(numbers, value);
  }
#endif
  return !is_fill;
}

GPUFI_INLINE T F(own)(const gpufi_numbers *numbers, T value) {
#if BITS == 32 || BITS == 64
  if (gpufi_transform_has_parameters(numbers->transform)) {
    return F(number_of)(numbers, value);
  }
#endif
  return F(apply_shifted)(value, numbers->transform, numbers->shift);
}
