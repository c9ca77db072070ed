/* A fuzzer's input as a chunk: as it is, and with the size and checksum that its header should
 * have. */
#ifndef GPUFI_FUZZ_CHUNK_INPUT_H
#define GPUFI_FUZZ_CHUNK_INPUT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"
#include "codec/format.h"

/* Call `use` with each form of the input, in memory of exactly its size, so that a read past its
 * end is caught. */
static inline void for_each_chunk(const uint8_t *data, size_t nbytes,
                                  void (*use)(const uint8_t *chunk, size_t nbytes)) {
  uint8_t *exact = malloc(nbytes ? nbytes : 1);
  memcpy(exact, data, nbytes);
  use(exact, nbytes);
  if (nbytes >= GPUFI_HEADER_NBYTES && nbytes % GPUFI_CHUNK_ALIGN == 0) {
    const uint64_t payload_nbytes = nbytes - GPUFI_HEADER_NBYTES;
    memcpy(exact + GPUFI_AT_PAYLOAD_NBYTES, &payload_nbytes, sizeof(payload_nbytes));
    gpufi_codec_seal(exact, nbytes);
    use(exact, nbytes);
  }
  free(exact);
}

#endif
