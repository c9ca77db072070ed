/* The checksum of a chunk; gpufi_codec_seal() of codec.h writes it. Thread-safety: re-entrant. */
#ifndef GPUFI_CODEC_CHECKSUM_H
#define GPUFI_CODEC_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* The two checksum words of a chunk; `encoded_nbytes` is a multiple of 16, at least a header. */
void gpufi_checksum(const uint8_t *encoded, size_t encoded_nbytes, uint64_t sums[2]);

#endif
