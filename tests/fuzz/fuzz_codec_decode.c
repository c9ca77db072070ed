/* Any bytes into the chunk decoder: as they are, and with the checksum (and the payload length)
 * made right, so that what lies behind these checks is reached. A chunk that decodes must encode
 * and decode back to the same bytes, taken as either byte order. */
#include "chunk_input.h"
#include "codec/codec.h"

#define RAW_NBYTES_MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static void check_again(const gpufi_chunk_shape *shape, const uint8_t *raw, size_t raw_nbytes,
                        bool big_endian) {
  const size_t bound = gpufi_codec_bound(raw_nbytes);
  uint8_t *encoded = malloc(bound), *back = malloc(raw_nbytes);
  void *scratch = aligned_alloc(64, (gpufi_codec_scratch_nbytes(shape) + 63) & ~(size_t)63);
  size_t encoded_nbytes;
  if ((big_endian ? gpufi_codec_encode_big_endian : gpufi_codec_encode)(
          shape, raw, encoded, bound, &encoded_nbytes, scratch, NULL) != GPUF_OK ||
      encoded_nbytes > bound ||
      gpufi_codec_decode(encoded, encoded_nbytes, back, raw_nbytes, NULL) != GPUF_OK ||
      memcmp(raw, back, raw_nbytes) != 0) {
    abort();
  }
  free(encoded);
  free(back);
  free(scratch);
}

static void decode(const uint8_t *chunk, size_t nbytes) {
  gpufi_chunk_shape shape;
  gpuf_error err;
  size_t raw_nbytes;
  if (gpufi_codec_inspect(chunk, nbytes, &shape, &raw_nbytes, &err) != GPUF_OK ||
      raw_nbytes > RAW_NBYTES_MAX) {
    return;
  }
  uint8_t *raw = malloc(raw_nbytes);
  if (gpufi_codec_decode(chunk, nbytes, raw, raw_nbytes, &err) == GPUF_OK) {
    check_again(&shape, raw, raw_nbytes, false);
    check_again(&shape, raw, raw_nbytes, true);
  }
  free(raw);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes) {
  for_each_chunk(data, nbytes, decode);
  return 0;
}
