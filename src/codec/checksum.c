#include "codec/checksum.h"
#include "codec/codec.h"
#include "codec/cpu.h"
#include "codec/format.h"

void gpufi_checksum(const uint8_t *encoded, size_t encoded_nbytes, uint64_t sums[2]) {
  const gpufi_cpu *const cpu = gpufi_cpu_get();
  sums[0] = sums[1] = 0;
  cpu->add_words(encoded, 0, GPUFI_AT_CHECKSUM / 8, sums);
  cpu->add_words(encoded, GPUFI_HEADER_NBYTES / 8, encoded_nbytes / 8, sums);
}

void gpufi_codec_seal(void *encoded, size_t encoded_nbytes) {
  uint64_t sums[2];
  gpufi_checksum(encoded, encoded_nbytes, sums);
  memcpy((uint8_t *)encoded + GPUFI_AT_CHECKSUM, sums, sizeof(sums));
}
