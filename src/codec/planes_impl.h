/* Two to four planes to interleaved values and back, for one width of value and one instruction
 * set; included by each_width.h. The number of planes is a constant in each loop, so that compilers
 * make shuffles of it. */

GPUFI_INLINE void F(join_some)(const uint8_t *restrict planes, size_t pitch_nbytes, size_t count,
                               const unsigned plane_count, uint8_t *restrict out) {
  for (size_t i = 0; i < count; i++) {
    for (unsigned k = 0; k < plane_count; k++) {
      memcpy(out + (i * plane_count + k) * sizeof(T), planes + k * pitch_nbytes + i * sizeof(T),
             sizeof(T));
    }
  }
}

GPUFI_INLINE void F(split_some)(const uint8_t *restrict values, size_t count,
                                const unsigned plane_count, uint8_t *restrict planes,
                                size_t pitch_nbytes) {
  for (size_t i = 0; i < count; i++) {
    for (unsigned k = 0; k < plane_count; k++) {
      memcpy(planes + k * pitch_nbytes + i * sizeof(T), values + (i * plane_count + k) * sizeof(T),
             sizeof(T));
    }
  }
}

static void F(join_planes)(const uint8_t *planes, size_t pitch_nbytes, size_t count,
                           unsigned plane_count, uint8_t *out) {
  switch (plane_count) {
  case 2:
    F(join_some)(planes, pitch_nbytes, count, 2, out);
    break;
  case 3:
    F(join_some)(planes, pitch_nbytes, count, 3, out);
    break;
  default:
    F(join_some)(planes, pitch_nbytes, count, 4, out);
  }
}

static void F(split_planes)(const uint8_t *values, size_t count, unsigned plane_count,
                            uint8_t *planes, size_t pitch_nbytes) {
  switch (plane_count) {
  case 2:
    F(split_some)(values, count, 2, planes, pitch_nbytes);
    break;
  case 3:
    F(split_some)(values, count, 3, planes, pitch_nbytes);
    break;
  default:
    F(split_some)(values, count, 4, planes, pitch_nbytes);
  }
}
