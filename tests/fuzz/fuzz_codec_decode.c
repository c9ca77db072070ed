/* Any bytes into the chunk decoder: as they are, and with the checksum (and the payload length)
 * made right, so that what lies behind these checks is reached. A chunk that decodes must encode
 * and decode back to the same bytes, taken as either byte order. */
#include "chunk_input.h"

static void check_again(const gpufi_chunk_shape *shape, const uint8_t *raw, size_t raw_nbytes,
                        bool big_endian) {
  size_t encoded_nbytes;
  uint8_t *encoded = encode(shape, raw, raw_nbytes, big_endian, &encoded_nbytes);
  uint8_t *back = malloc(raw_nbytes);
  if (gpufi_codec_decode(encoded, encoded_nbytes, back, raw_nbytes, NULL) != GPUF_OK ||
      memcmp(raw, back, raw_nbytes) != 0) {
    abort();
  }
  free(encoded);
  free(back);
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
