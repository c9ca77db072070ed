/* Mode 4: residuals, arranged as bytes or as bit planes, in LZ4 blocks. A match of any block but
 * the first may begin in the first one, so that what repeats all over a chunk is stored once, and
 * the others can still be decoded in any order.
 *
 * Thread-safety: every function is re-entrant; an encoder or decoder belongs to one thread. */
#ifndef GPUFI_CODEC_MATCHES_H
#define GPUFI_CODEC_MATCHES_H

#include "codec/format.h"
#include "codec/lz4.h"

/* How the residuals of each block are laid out before LZ4. */
enum {
  GPUFI_ARRANGED_BYTES = 0,  /* as they are */
  GPUFI_ARRANGED_BITS = 1,   /* in bit planes */
  GPUFI_ARRANGED_ZIGZAG = 2, /* zigzagged, in bit planes */
  GPUFI_ARRANGED_MAX = GPUFI_ARRANGED_ZIGZAG,
};

/* A block's size before LZ4, as a power of two: what the format allows, and what is written. */
#define GPUFI_MATCHES_LOG2_MIN 12
#define GPUFI_MATCHES_LOG2_MAX 14
#define GPUFI_MATCHES_LOG2 14
#define GPUFI_MATCHES_NBYTES_MAX (1 << GPUFI_MATCHES_LOG2_MAX)
#define GPUFI_MATCHES_NBYTES (1 << GPUFI_MATCHES_LOG2)

typedef struct gpufi_matches {
  unsigned arrangement;
  size_t value_nbytes;
  size_t block_values; /* of each block but the last, which may be shorter */
} gpufi_matches;

/* From the header's byte of levels; false if that is none of mode 4. */
bool gpufi_matches_init(gpufi_matches *m, uint8_t levels, size_t value_nbytes);

static inline uint8_t gpufi_matches_levels(unsigned arrangement) {
  return (uint8_t)(arrangement | GPUFI_MATCHES_LOG2 << 4);
}

static inline size_t gpufi_matches_block_count(const gpufi_matches *m, size_t value_count) {
  return (value_count + m->block_values - 1) / m->block_values;
}

typedef struct gpufi_matches_encoder {
  gpufi_matches matches;
  size_t before_nbytes;         /* of the first block; 0 until it is encoded */
  gpufi_lz4_table first, table; /* as the first block left it; of the current block */
  uint8_t window[2 * GPUFI_MATCHES_NBYTES_MAX]; /* the first block, the current one; arranged */
  uint8_t encoded[GPUFI_MATCHES_NBYTES_MAX + GPUFI_MATCHES_NBYTES_MAX / 255 + 16];
  uint8_t
      tried[3 * GPUFI_MATCHES_NBYTES_MAX]; /* residuals that are encoded to see what they take */
} gpufi_matches_encoder;

void gpufi_matches_encoder_init(gpufi_matches_encoder *e, const gpufi_matches *m);

/* Residuals number `first` to first + count - 1 of the current block of `total`. `first` is a
 * multiple of 8, and so is `count` but at the block's end; `count` is at most GPUFI_BLOCK_VALUES.
 */
void gpufi_matches_put(gpufi_matches_encoder *e, const uint8_t *residuals, size_t first,
                       size_t count, size_t total);

/* Encode the current block, of `total` residuals, and go on to the next. Its bytes, at most as many
 * as the residuals take, are at *encoded up to the next call. */
size_t gpufi_matches_encode(gpufi_matches_encoder *e, size_t total, const uint8_t **encoded);

typedef struct gpufi_matches_decoder {
  gpufi_matches matches;
  size_t before_nbytes; /* of the first block; 0 until it is decoded */
  const uint8_t *block; /* the current one, arranged: in `window` */
  uint8_t window[2 * GPUFI_MATCHES_NBYTES_MAX];
} gpufi_matches_decoder;

void gpufi_matches_decoder_init(gpufi_matches_decoder *d, const gpufi_matches *m);

/* Decode the next block, of `total` residuals. `encoded` is untrusted; an error names the offset
 * counted from `at`. */
gpuf_status gpufi_matches_decode(gpufi_matches_decoder *d, const uint8_t *encoded,
                                 size_t encoded_nbytes, size_t at, size_t total, gpuf_error *err);

/* As gpufi_matches_put, from the block that was decoded last. */
void gpufi_matches_get(const gpufi_matches_decoder *d, size_t first, size_t count, size_t total,
                       uint8_t *residuals);

#endif
