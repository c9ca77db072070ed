#include "codec/scalar.h"
#include "codec/bytes.h"
#include "codec/codes_impl.h"
#include "codec/sparse.h"

/* Two sums over the chunk's 64-bit words w[i], the checksum's own two words left out:
 *   sums[0] = sum of w[i]
 *   sums[1] = sum of lo32(x) * hi32(x), where x = w[i] ^ (i + 1) * GPUFI_WORD_KEY
 * both modulo 2^64. Sums commute, so any number of threads or lanes may take words in any order; a
 * term of sums[1] is one widening multiplication. Any change within 64 consecutive bits changes
 * sums[0] for certain; words that trade places or changes that cancel are left to sums[1]. */
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

/* One byte is fetched whenever fewer bits than a code are pending; what is pending after the last
 * code is the unused bits of the last byte. */
bool gpufi_read_codes_scalar(const uint8_t *in, const gpufi_block *block, size_t groups,
                             uint8_t *widths, size_t *total) {
  const uint32_t bits = code_bits(block->kind), zero = (1u << bits) - 1;
  uint32_t pending = 0, fill = 0;
  *total = 0;
  for (size_t k = 0; k < groups; k++) {
    if (fill < bits) {
      pending |= (uint32_t)*in++ << fill;
      fill += 8;
    }
    const uint32_t code = pending & zero;
    pending >>= bits;
    fill -= bits;
    if (code != zero && code > block->second) {
      return false;
    }
    const uint32_t lower = code == zero ? 0 : block->second + 1 - code;
    widths[k] = (uint8_t)(code == 0 ? block->width : lower);
    *total += widths[k];
  }
  return pending == 0;
}

/* gpufi_unpack_8_scalar and so on. */
#define SCALAR(name) JOIN(name, _, JOIN(BITS, _, scalar))
#define VECTOR_NBYTES 16
#define GPUFI_EACH_WIDTH "codec/scalar_impl.h"
#include "codec/each_width.h"

#define GPUFI_EACH_WIDTH "codec/planes_impl.h"
#include "codec/each_width.h"
#define NUMBER_OF_INT64(x) (double)(x)
#define GPUFI_EACH_WIDTH "codec/value_impl.h"
#include "codec/each_width.h"
#define GPUFI_EACH_WIDTH "codec/number_impl.h"
#include "codec/each_width.h"
#define GPUFI_EACH_WIDTH "codec/sample_impl.h"
#include "codec/each_width.h"

const gpufi_cpu gpufi_cpu_scalar = {
    .name = "scalar",
    .add_words = gpufi_add_words_scalar,
    .unpack = GPUFI_SCALAR_KERNELS(unpack),
    GPUFI_PLAIN_KERNELS,
    GPUFI_COMPILED_KERNELS,
};
