/* Any bytes through the bitshuffle decoder; and any bytes encoded come back. The input: one byte of
 * element size, two of the decoded size, and the chunk or, where the first byte is odd, the raw
 * elements. */
#include "codec/bitshuffle.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static void decode(size_t element_nbytes, const uint8_t *data, size_t nbytes, size_t raw_nbytes) {
  uint8_t *chunk = malloc(nbytes + 1), *raw = malloc(raw_nbytes + 1);
  void *scratch = malloc(gpufi_bitshuffle_scratch_nbytes(raw_nbytes) + 1);
  memcpy(chunk, data, nbytes);
  if (nbytes >= 12) { /* the sizes that are checked first are right, so that more is reached */
    for (int i = 0; i < 8; i++) {
      chunk[i] = (uint8_t)((uint64_t)raw_nbytes >> (56 - 8 * i));
    }
  }
  uint8_t *exact = malloc(nbytes ? nbytes : 1);
  memcpy(exact, chunk, nbytes);
  gpufi_bitshuffle_decode(element_nbytes, exact, nbytes, raw, raw_nbytes, scratch, NULL);
  free(exact);
  free(chunk);
  free(raw);
  free(scratch);
}

static void round_trip(size_t element_nbytes, const uint8_t *data, size_t nbytes) {
  const size_t raw_nbytes = nbytes / element_nbytes * element_nbytes;
  const size_t bound = gpufi_bitshuffle_bound(element_nbytes, raw_nbytes);
  uint8_t *encoded = malloc(bound), *back = malloc(raw_nbytes + 1);
  void *scratch = malloc(gpufi_bitshuffle_scratch_nbytes(raw_nbytes) + 1);
  const size_t used = gpufi_bitshuffle_encode(element_nbytes, data, raw_nbytes, encoded, scratch);
  if (used > bound ||
      gpufi_bitshuffle_decode(element_nbytes, encoded, used, back, raw_nbytes, scratch, NULL) !=
          GPUF_OK ||
      memcmp(back, data, raw_nbytes) != 0) {
    abort();
  }
  free(encoded);
  free(back);
  free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes) {
  if (nbytes < 3) {
    return 0;
  }
  const size_t element_nbytes = data[0] / 2 % 16 + 1;
  const size_t count = ((size_t)data[1] | (size_t)data[2] << 8) % 20000;
  if (data[0] & 1) {
    round_trip(element_nbytes, data + 3, nbytes - 3);
  } else {
    decode(element_nbytes, data + 3, nbytes - 3, count * element_nbytes);
  }
  return 0;
}
