/* What the fuzz targets of the codec and the filter share: a fuzzer's input as a chunk, and
 * encoding what it decodes to. */
#ifndef GPUFI_FUZZ_CHUNK_INPUT_H
#define GPUFI_FUZZ_CHUNK_INPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"
#include "codec/format.h"

/* Chunks that decode to more are valid, only too large to try often. */
#define RAW_NBYTES_MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

/* A copy in an allocation of exactly its size, so that the sanitizer sees a read past it. */
static inline uint8_t *exact_copy(const uint8_t *data, size_t nbytes) {
  uint8_t *const exact = malloc(nbytes ? nbytes : 1);
  memcpy(exact, data, nbytes);
  return exact;
}

/* Make the payload length and the checksum right, so that what lies behind these checks is reached.
 * False if a chunk cannot have this size. */
static inline bool make_right(uint8_t *chunk, size_t nbytes) {
  if (nbytes < GPUFI_HEADER_NBYTES || nbytes % GPUFI_CHUNK_ALIGN != 0) {
    return false;
  }
  const uint64_t payload_nbytes = nbytes - GPUFI_HEADER_NBYTES;
  memcpy(chunk + GPUFI_AT_PAYLOAD_NBYTES, &payload_nbytes, sizeof(payload_nbytes));
  gpufi_codec_seal(chunk, nbytes);
  return true;
}

/* Call `use` with the input as it is, and made right. */
static inline void for_each_chunk(const uint8_t *data, size_t nbytes,
                                  void (*use)(const uint8_t *chunk, size_t nbytes)) {
  uint8_t *const chunk = exact_copy(data, nbytes);
  use(chunk, nbytes);
  if (make_right(chunk, nbytes)) {
    use(chunk, nbytes);
  }
  free(chunk);
}

/* Encode values, which must succeed within the bound. */
static inline uint8_t *encode(const gpufi_chunk_shape *shape, const uint8_t *raw, size_t raw_nbytes,
                              bool big_endian, size_t *nbytes) {
  const size_t bound = gpufi_codec_bound(raw_nbytes);
  uint8_t *const encoded = malloc(bound);
  void *scratch = aligned_alloc(64, (gpufi_codec_scratch_nbytes(shape) + 63) & ~(size_t)63);
  if ((big_endian ? gpufi_codec_encode_big_endian : gpufi_codec_encode)(
          shape, raw, encoded, bound, nbytes, scratch, NULL) != GPUF_OK ||
      *nbytes > bound) {
    abort();
  }
  free(scratch);
  return encoded;
}

#endif
