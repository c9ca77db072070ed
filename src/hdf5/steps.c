#include "hdf5/steps.h"

#include "base/error.h"
#include "hdf5/inflate.h"

#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define CHECKSUM_NBYTES 4
#define FOLD_WORDS ((size_t)1 << 20) /* so many words do not overflow a sum of 64 bits */

size_t gpufi_h5_steps_bound(size_t raw_nbytes) {
  return raw_nbytes + raw_nbytes / 8 + 4096;
}

size_t gpufi_h5_steps_scratch_nbytes(size_t raw_nbytes) {
  return 2 * gpufi_h5_steps_bound(raw_nbytes);
}

/* --- fletcher32 -------------------------------------------------------------- */

/* Into 16 bits, where 0 stays apart from 65,535, as in the format. */
static uint64_t fold(uint64_t sum) {
  return sum == 0 ? 0 : (sum - 1) % 65535 + 1;
}

/* Of words of 16 bits, the first byte the higher one; a last byte alone is one, too. */
static uint32_t fletcher32(const uint8_t *data, size_t nbytes) {
  uint64_t low = 0, high = 0;
  size_t left = nbytes / 2;
  while (left > 0) {
    const size_t count = left < FOLD_WORDS ? left : FOLD_WORDS;
    for (size_t i = 0; i < count; i++, data += 2) {
      low += (uint64_t)(data[0] << 8 | data[1]);
      high += low;
    }
    low = fold(low);
    high = fold(high);
    left -= count;
  }
  if (nbytes % 2) {
    low = fold(low + (uint64_t)(data[0] << 8));
    high = fold(high + low);
  }
  return (uint32_t)(high << 16 | low);
}

/* HDF5 up to 1.6.2 stored the bytes of each half the other way round. */
static bool has_checksum(const uint8_t *data, size_t nbytes) {
  const uint32_t sum = fletcher32(data, nbytes);
  const uint32_t old = (sum & 0x00ff00ff) << 8 | (sum >> 8 & 0x00ff00ff);
  const uint8_t *const end = data + nbytes;
  const uint32_t stored =
      end[0] | (uint32_t)end[1] << 8 | (uint32_t)end[2] << 16 | (uint32_t)end[3] << 24;
  return stored == sum || stored == old;
}

/* --- shuffle ----------------------------------------------------------------- */

/* The bytes of elements from `first` on. Inlined with a constant size, so that it is unrolled. */
static inline void gather_bytes(const uint8_t *planes, size_t count, size_t first,
                                size_t element_nbytes, uint8_t *out) {
  for (size_t i = first; i < count; i++) {
    for (size_t b = 0; b < element_nbytes; b++) {
      out[i * element_nbytes + b] = planes[b * count + i];
    }
  }
}

#if defined(__SSE2__)
/* Sixteen elements of 2, 4 or 8 bytes: the planes of each half of an element are put together, two
 * and two, until they are elements. */
static inline void join(const uint8_t *planes, size_t count, size_t element_nbytes, uint8_t *out) {
  __m128i rows[8], next[8];
  for (size_t b = 0; b < element_nbytes; b++) {
    rows[b] = _mm_loadu_si128((const __m128i *)(planes + b * count));
  }
  for (size_t half = element_nbytes / 2, groups = 1; half > 0; half /= 2, groups *= 2) {
    for (size_t g = 0; g < groups; g++) {
      for (size_t b = 0; b < half; b++) {
        const __m128i even = rows[g * 2 * half + b], odd = rows[g * 2 * half + half + b];
        next[2 * g * half + b] = _mm_unpacklo_epi8(even, odd);
        next[(2 * g + 1) * half + b] = _mm_unpackhi_epi8(even, odd);
      }
    }
    memcpy(rows, next, element_nbytes * sizeof(*rows));
  }
  for (size_t b = 0; b < element_nbytes; b++) {
    _mm_storeu_si128((__m128i *)(out + 16 * b), rows[b]);
  }
}

static inline size_t join_all(const uint8_t *planes, size_t count, size_t element_nbytes,
                              uint8_t *out) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    join(planes + i, count, element_nbytes, out + i * element_nbytes);
  }
  return i;
}
#else
static inline size_t join_all(const uint8_t *planes, size_t count, size_t element_nbytes,
                              uint8_t *out) {
  return 0;
}
#endif

/* Bytes behind the last whole element stay where they are. */
static void unshuffle(size_t element_nbytes, const uint8_t *data, size_t nbytes, uint8_t *out) {
  const size_t count = nbytes / element_nbytes;
  switch (element_nbytes) {
  case 2:
    gather_bytes(data, count, join_all(data, count, 2, out), 2, out);
    break;
  case 4:
    gather_bytes(data, count, join_all(data, count, 4, out), 4, out);
    break;
  case 8:
    gather_bytes(data, count, join_all(data, count, 8, out), 8, out);
    break;
  default:
    gather_bytes(data, count, 0, element_nbytes, out);
  }
  memcpy(out + count * element_nbytes, data + count * element_nbytes, nbytes % element_nbytes);
}

/* --- A chunk ----------------------------------------------------------------- */

/* A chunk on its way: bytes that are in `encoded`, in one half of the scratch, or in `raw`. */
typedef struct stage {
  const uint8_t *data;
  size_t nbytes;
} stage;

static gpuf_status undo(const gpufi_h5_step *step, stage *at, uint8_t *out, size_t capacity,
                        gpuf_error *err) {
  size_t nbytes = at->nbytes;
  if (step->kind == GPUFI_H5_STEP_DEFLATE) {
    const gpuf_status status = gpufi_inflate(at->data, at->nbytes, out, capacity, &nbytes, err);
    if (status != GPUF_OK) {
      return status;
    }
  } else if (nbytes > capacity) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "its elements take %zu bytes before shuffle is undone, more than the %zu of "
                      "the chunk",
                      nbytes, capacity);
  } else {
    unshuffle(step->element_nbytes, at->data, nbytes, out);
  }
  *at = (stage){out, nbytes};
  return GPUF_OK;
}

static gpuf_status check_sum(stage *at, gpuf_error *err) {
  if (at->nbytes < CHECKSUM_NBYTES || !has_checksum(at->data, at->nbytes - CHECKSUM_NBYTES)) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "the fletcher32 checksum of its %zu bytes does not match; the bytes were "
                      "altered",
                      at->nbytes);
  }
  at->nbytes -= CHECKSUM_NBYTES;
  return GPUF_OK;
}

/* Whether a step before `index` was applied. */
static bool has_earlier(const gpufi_h5_steps *steps, uint32_t filter_mask, int32_t index) {
  for (int32_t i = 0; i < index; i++) {
    if (!(filter_mask >> i & 1)) {
      return true;
    }
  }
  return false;
}

gpuf_status gpufi_h5_steps_decode(const gpufi_h5_steps *steps, uint32_t filter_mask,
                                  const void *encoded, size_t encoded_nbytes, void *raw,
                                  size_t raw_nbytes, void *scratch, gpuf_error *err) {
  const size_t bound = gpufi_h5_steps_bound(raw_nbytes);
  uint8_t *const halves[] = {scratch, (uint8_t *)scratch + bound};
  stage at = {encoded, encoded_nbytes};
  gpuf_status status = GPUF_OK;
  for (int32_t i = steps->count - 1, turn = 0; status == GPUF_OK && i >= 0; i--) {
    if (filter_mask >> i & 1) {
      continue;
    }
    if (steps->step[i].kind == GPUFI_H5_STEP_FLETCHER32) {
      status = check_sum(&at, err);
    } else if (has_earlier(steps, filter_mask, i)) {
      status = undo(&steps->step[i], &at, halves[turn], bound, err);
      turn = 1 - turn;
    } else {
      status = undo(&steps->step[i], &at, raw, raw_nbytes, err);
    }
  }
  if (status == GPUF_OK && at.nbytes != raw_nbytes) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "it decodes to %zu bytes instead of the chunk's %zu: the file is damaged",
                      at.nbytes, raw_nbytes);
  }
  if (status == GPUF_OK && at.data != raw) {
    memcpy(raw, at.data, raw_nbytes);
  }
  return status;
}
