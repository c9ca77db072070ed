/* The inner loops in plain C: the reference for all others, which take from here what they have no
 * faster version of, and the ends of arrays that do not fill a vector. Thread-safety: re-entrant.
 */
#ifndef GPUFI_CODEC_SCALAR_H
#define GPUFI_CODEC_SCALAR_H

#include "codec/kernels.h"

gpufi_add_words_fn gpufi_add_words_scalar;
gpufi_read_codes_fn gpufi_read_codes_scalar;
gpufi_from_places_fn gpufi_from_places_16_scalar;
gpufi_symbols_fn gpufi_symbols_scalar;
gpufi_split_bits_fn gpufi_split_bits_scalar;
gpufi_join_bits_fn gpufi_join_bits_scalar;
gpufi_leaves_fn gpufi_leaves_scalar;
gpufi_write_walks_fn gpufi_write_walks_scalar;
gpufi_read_walks_fn gpufi_read_walks_scalar;

gpufi_split_fn gpufi_split_8_scalar, gpufi_split_16_scalar, gpufi_split_32_scalar,
    gpufi_split_64_scalar;

gpufi_join_fn gpufi_join_8_scalar, gpufi_join_16_scalar, gpufi_join_32_scalar, gpufi_join_64_scalar;

gpufi_unpack_fn gpufi_unpack_8_scalar, gpufi_unpack_16_scalar, gpufi_unpack_32_scalar,
    gpufi_unpack_64_scalar;

gpufi_look_at_fn gpufi_look_at_8_scalar, gpufi_look_at_16_scalar, gpufi_look_at_32_scalar,
    gpufi_look_at_64_scalar;

gpufi_pack_fn gpufi_pack_8_scalar, gpufi_pack_16_scalar, gpufi_pack_32_scalar, gpufi_pack_64_scalar;

gpufi_pack_groups_fn gpufi_pack_groups_8_scalar, gpufi_pack_groups_16_scalar,
    gpufi_pack_groups_32_scalar, gpufi_pack_groups_64_scalar;

gpufi_expand_fn gpufi_expand_8_scalar, gpufi_expand_16_scalar, gpufi_expand_32_scalar,
    gpufi_expand_64_scalar;

gpufi_compact_fn gpufi_compact_8_scalar, gpufi_compact_16_scalar, gpufi_compact_32_scalar,
    gpufi_compact_64_scalar;

/* A kernel's functions for the four widths of value, as a table of kernels.h has them. */
#define GPUFI_SCALAR_KERNELS(kernel)                                                               \
  {gpufi_##kernel##_8_scalar, gpufi_##kernel##_16_scalar, gpufi_##kernel##_32_scalar,              \
   gpufi_##kernel##_64_scalar}

/* The same of functions of the file that has the table. */
#define GPUFI_KERNELS(kernel) {kernel##_8, kernel##_16, kernel##_32, kernel##_64}

/* Members of a table: those that every file with a table compiles for its instruction set, from
 * planes_impl.h, number_impl.h and sample_impl.h, and those of which x86-64 alone has other
 * versions. A build that is GPUFI_DECODE_ONLY, as jupyter/widget/decoder.c, has those of decoding,
 * and what encodes is not linked. */
#define GPUFI_COMPILED_DECODING_KERNELS                                                            \
  .join_planes = GPUFI_KERNELS(join_planes), .from_base = GPUFI_KERNELS(from_base),                \
  .correct = GPUFI_KERNELS(correct)

#define GPUFI_PLAIN_DECODING_KERNELS                                                               \
  .read_codes = gpufi_read_codes_scalar, .expand = GPUFI_SCALAR_KERNELS(expand),                   \
  .from_places_16 = gpufi_from_places_16_scalar, .symbols = gpufi_symbols_scalar,                  \
  .read_walks = gpufi_read_walks_scalar, .join = GPUFI_SCALAR_KERNELS(join),                       \
  .join_bits = gpufi_join_bits_scalar

#ifdef GPUFI_DECODE_ONLY
#define GPUFI_COMPILED_KERNELS GPUFI_COMPILED_DECODING_KERNELS
#define GPUFI_PLAIN_KERNELS GPUFI_PLAIN_DECODING_KERNELS
#else
#define GPUFI_COMPILED_KERNELS                                                                     \
  GPUFI_COMPILED_DECODING_KERNELS, .split_planes = GPUFI_KERNELS(split_planes),                    \
      .to_base = GPUFI_KERNELS(to_base), .corrections = GPUFI_KERNELS(corrections),                \
      .find_origins = {NULL, NULL, find_origins_32, find_origins_64},                              \
      .sample_costs = GPUFI_KERNELS(sample_costs),                                                 \
      .sample_residuals = GPUFI_KERNELS(sample_residuals), .busy_bits = GPUFI_KERNELS(busy_bits)

#define GPUFI_PLAIN_KERNELS                                                                        \
  GPUFI_PLAIN_DECODING_KERNELS, .look_at = GPUFI_SCALAR_KERNELS(look_at),                          \
      .pack = GPUFI_SCALAR_KERNELS(pack), .pack_groups = GPUFI_SCALAR_KERNELS(pack_groups),        \
      .compact = GPUFI_SCALAR_KERNELS(compact), .leaves = gpufi_leaves_scalar,                     \
      .write_walks = gpufi_write_walks_scalar, .split = GPUFI_SCALAR_KERNELS(split),               \
      .split_bits = gpufi_split_bits_scalar
#endif

#endif
