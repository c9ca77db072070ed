/* Blocks of the LZ4 block format, as any LZ4 decoder reads them.
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_LZ4_H
#define GPUFI_CODEC_LZ4_H

#include <gpufetch/gpufetch.h>

/* The encoder takes blocks of at most this size: positions fit 16 bits. */
#define GPUFI_LZ4_RAW_NBYTES_MAX 65535

/* What every decoder may rely on: the last 5 bytes are literals, no match starts in the last 12,
 * and none is shorter than 4. */
#define GPUFI_LZ4_LAST_LITERALS 5
#define GPUFI_LZ4_MATCH_START_MARGIN 12
#define GPUFI_LZ4_MATCH_NBYTES_MIN 4

/* The hash by which encoders find an earlier place with the same four bytes. */
#define GPUFI_LZ4_HASH_BITS 12
#define GPUFI_LZ4_HASH(four_bytes) ((four_bytes) * 2654435761u >> (32 - GPUFI_LZ4_HASH_BITS))

/* After so many places without a match the encoder takes steps of two bytes, after as many more
 * steps of three, and so on up to the next match. */
#define GPUFI_LZ4_PATIENCE 64

/* For each hash the last place that the encoder looked at; 0, a place like any other, where there
 * was none. */
typedef struct gpufi_lz4_table {
  uint16_t last[1 << GPUFI_LZ4_HASH_BITS];
} gpufi_lz4_table;

/* Largest encoded size of `raw_nbytes`. */
static inline size_t gpufi_lz4_bound(size_t raw_nbytes) {
  return raw_nbytes + raw_nbytes / 255 + 16;
}

/* Encode 1 to GPUFI_LZ4_RAW_NBYTES_MAX bytes into `encoded`, which holds gpufi_lz4_bound() bytes;
 * returns the bytes used. The same input always gives the same bytes: at each place the last one
 * with the same hash of four bytes is tried, the first match is taken as long as it goes, and
 * places inside a match or a step are not remembered. */
size_t gpufi_lz4_encode(const uint8_t *raw, size_t raw_nbytes, uint8_t *encoded);

/* The same for raw[begin .. end - 1], whose matches may begin before it: `table` is what encoding
 * raw[0 .. begin - 1] left, or zeros where `begin` is 0, and is updated. `end` is at most
 * GPUFI_LZ4_RAW_NBYTES_MAX. */
size_t gpufi_lz4_encode_after(gpufi_lz4_table *table, const uint8_t *raw, size_t begin, size_t end,
                              uint8_t *encoded);

/* Decode one block into exactly `raw_nbytes` bytes. `encoded` is untrusted. Matches may begin in
 * the `before_nbytes` bytes before `raw`. GPUF_ERR_CORRUPT, naming the offset counted from `at`,
 * for a block that is not whole or gives another size; nothing is written outside `raw`, whose
 * contents are then indeterminate. */
gpuf_status gpufi_lz4_decode(const uint8_t *encoded, size_t encoded_nbytes, size_t at,
                             size_t before_nbytes, uint8_t *raw, size_t raw_nbytes,
                             gpuf_error *err);

#endif
