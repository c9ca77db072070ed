#include "codec/cpu.h"

/* Two sums over the chunk's 64-bit words w[i], the checksum's own two words left out:
 *   sums[0] = sum of w[i]
 *   sums[1] = sum of lo32(x) * hi32(x), where x = w[i] ^ (i + 1) * GPUFI_WORD_KEY
 * both modulo 2^64. Sums commute, so any number of threads may take words in any order; a term of
 * sums[1] is one widening multiplication. Any change within 64 consecutive bits changes sums[0]
 * for certain; words that trade places or changes that cancel are left to sums[1]. */
void gpufi_add_words_scalar(const uint8_t *encoded, size_t begin, size_t end, uint64_t sums[2]) {
  uint64_t plain = sums[0], mixed = sums[1];
  for (size_t i = begin; i < end; i++) {
    const uint64_t word = gpufi_load_u64(encoded + 8 * i);
    const uint64_t x = word ^ (uint64_t)(i + 1) * GPUFI_WORD_KEY;
    plain += word;
    mixed += (uint64_t)(uint32_t)x * (x >> 32);
  }
  sums[0] = plain;
  sums[1] = mixed;
}

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
