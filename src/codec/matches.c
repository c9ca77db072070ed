/* A block of `total` residuals of N bytes is arranged as total * N bytes: in bit planes, of which
 * each has total / 8 bytes, for as many residuals as that is, and the fewer than 8 after them
 * follow as they are.
 *
 *   | first block, arranged | current block, arranged |     the window: 2 * 16 KiB
 *     ^ ... matches ... ^     ^ ... matches ...
 *
 * An encoder remembers where in the first block it looked, once, and starts each other block with a
 * copy of that. */
#include "codec/matches.h"
#include "codec/bitplanes.h"
#include "codec/corrupt.h"
#include "codec/kernels.h"

#include <string.h>

bool gpufi_matches_init(gpufi_matches *m, uint8_t levels, size_t value_nbytes) {
  const unsigned log2 = levels >> 4;
  *m = (gpufi_matches){levels & 15, value_nbytes, ((size_t)1 << log2) / value_nbytes};
  return m->arrangement <= GPUFI_ARRANGED_MAX && log2 >= GPUFI_MATCHES_LOG2_MIN &&
         log2 <= GPUFI_MATCHES_LOG2_MAX;
}

/* Zigzag: 0, -1, 1, -2, ... to 0, 1, 2, 3, ... */
static void zigzag(size_t value_nbytes, const uint8_t *restrict residuals, size_t count,
                   uint8_t *restrict out) {
  GPUFI_BY_NBYTES(
      value_nbytes, for (size_t i = 0; i < count; i++) {
        T r;
        memcpy(&r, residuals + i * sizeof(T), sizeof(T));
        r = (T)((T)(r << 1) ^ (T)(0 - (T)(r >> (8 * sizeof(T) - 1))));
        memcpy(out + i * sizeof(T), &r, sizeof(T));
      });
}

static void undo_zigzag(size_t value_nbytes, uint8_t *residuals, size_t count) {
  GPUFI_BY_NBYTES(
      value_nbytes, for (size_t i = 0; i < count; i++) {
        T z;
        memcpy(&z, residuals + i * sizeof(T), sizeof(T));
        z = (T)((T)(z >> 1) ^ (T)(0 - (T)(z & 1)));
        memcpy(residuals + i * sizeof(T), &z, sizeof(T));
      });
}

void gpufi_matches_encoder_init(gpufi_matches_encoder *e, const gpufi_matches *m) {
  e->matches = *m;
  e->before_nbytes = 0;
  memset(&e->first, 0, sizeof(e->first));
}

void gpufi_matches_put(gpufi_matches_encoder *e, const uint8_t *residuals, size_t first,
                       size_t count, size_t total) {
  const size_t nbytes = e->matches.value_nbytes, plane_nbytes = total / GPUFI_BITPLANES_GROUP;
  const size_t whole = count / GPUFI_BITPLANES_GROUP * GPUFI_BITPLANES_GROUP;
  uint8_t *const block = e->window + e->before_nbytes;
  uint8_t zigzagged[8 * GPUFI_BLOCK_VALUES];
  if (e->matches.arrangement == GPUFI_ARRANGED_BYTES) {
    memcpy(block + first * nbytes, residuals, count * nbytes);
    return;
  }
  if (e->matches.arrangement == GPUFI_ARRANGED_ZIGZAG) {
    zigzag(nbytes, residuals, count, zigzagged);
    residuals = zigzagged;
  }
  gpufi_bitplanes_split(nbytes, residuals, whole, block + first / GPUFI_BITPLANES_GROUP,
                        plane_nbytes);
  memcpy(block + (first + whole) * nbytes, residuals + whole * nbytes, (count - whole) * nbytes);
}

size_t gpufi_matches_encode(gpufi_matches_encoder *e, size_t total, const uint8_t **encoded) {
  const size_t nbytes = total * e->matches.value_nbytes, begin = e->before_nbytes;
  gpufi_lz4_table *const table = begin ? &e->table : &e->first;
  if (begin) {
    e->table = e->first;
  } else {
    e->before_nbytes = nbytes;
  }
  const size_t used = gpufi_lz4_encode_after(table, e->window, begin, begin + nbytes, e->encoded);
  *encoded = used < nbytes ? e->encoded : e->window + begin;
  return used < nbytes ? used : nbytes;
}

void gpufi_matches_decoder_init(gpufi_matches_decoder *d, const gpufi_matches *m) {
  d->matches = *m;
  d->before_nbytes = 0;
  d->block = d->window;
}

gpuf_status gpufi_matches_decode(gpufi_matches_decoder *d, const uint8_t *encoded,
                                 size_t encoded_nbytes, size_t at, size_t total, gpuf_error *err) {
  const size_t nbytes = total * d->matches.value_nbytes, begin = d->before_nbytes;
  uint8_t *const block = d->window + begin;
  d->block = block;
  if (begin == 0) {
    d->before_nbytes = nbytes;
  }
  if (encoded_nbytes > nbytes) {
    return gpufi_corrupt(err, at, "a block is longer than its residuals");
  }
  if (encoded_nbytes == nbytes) {
    memcpy(block, encoded, nbytes);
    return GPUF_OK;
  }
  return gpufi_lz4_decode(encoded, encoded_nbytes, at, begin, block, nbytes, err);
}

void gpufi_matches_get(const gpufi_matches_decoder *d, size_t first, size_t count, size_t total,
                       uint8_t *residuals) {
  const size_t nbytes = d->matches.value_nbytes, plane_nbytes = total / GPUFI_BITPLANES_GROUP;
  const size_t whole = count / GPUFI_BITPLANES_GROUP * GPUFI_BITPLANES_GROUP;
  if (d->matches.arrangement == GPUFI_ARRANGED_BYTES) {
    memcpy(residuals, d->block + first * nbytes, count * nbytes);
    return;
  }
  gpufi_bitplanes_join(nbytes, d->block + first / GPUFI_BITPLANES_GROUP, plane_nbytes, whole,
                       residuals);
  memcpy(residuals + whole * nbytes, d->block + (first + whole) * nbytes, (count - whole) * nbytes);
  if (d->matches.arrangement == GPUFI_ARRANGED_ZIGZAG) {
    undo_zigzag(nbytes, residuals, count);
  }
}
