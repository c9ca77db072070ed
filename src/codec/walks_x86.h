/* The kernels of ranked chunks for x86-64, in walks_avx2.c and walks_avx512.c, for the tables in
 * avx2.c and avx512.c. Thread-safety: re-entrant. */
#ifndef GPUFI_CODEC_WALKS_X86_H
#define GPUFI_CODEC_WALKS_X86_H

#include "codec/kernels.h"

gpufi_from_places_fn gpufi_from_places_16_avx2, gpufi_from_places_16_avx512;
gpufi_symbols_fn gpufi_symbols_avx2, gpufi_symbols_avx512;
gpufi_leaves_fn gpufi_leaves_avx2, gpufi_leaves_avx512;
gpufi_write_walks_fn gpufi_write_walks_avx2, gpufi_write_walks_avx512;
gpufi_read_walks_fn gpufi_read_walks_avx2, gpufi_read_walks_avx512;

gpufi_split_fn gpufi_split_8_avx2, gpufi_split_16_avx2, gpufi_split_32_avx2, gpufi_split_64_avx2;
gpufi_join_fn gpufi_join_8_avx2, gpufi_join_16_avx2, gpufi_join_32_avx2, gpufi_join_64_avx2;

gpufi_split_fn gpufi_split_8_avx512, gpufi_split_16_avx512, gpufi_split_32_avx512,
    gpufi_split_64_avx512;
gpufi_join_fn gpufi_join_8_avx512, gpufi_join_16_avx512, gpufi_join_32_avx512, gpufi_join_64_avx512;

gpufi_rebuild_fn gpufi_rebuild_8_avx512, gpufi_rebuild_16_avx512, gpufi_rebuild_32_avx512,
    gpufi_rebuild_64_avx512;

gpufi_take_apart_fn gpufi_take_apart_8_avx512, gpufi_take_apart_16_avx512;

#endif
