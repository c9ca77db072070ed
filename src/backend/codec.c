#include "backend/codec.h"

#include <string.h>

#include "base/arithmetic.h"
#include "codec/bitshuffle.h"
#include "codec/geometry.h"

gpuf_status gpufi_chunks_init(gpufi_chunks *chunks, const gpufi_chunk_shape *shape, size_t count,
                              gpuf_error *err) {
  memset(chunks, 0, sizeof(*chunks));
  chunks->shape = *shape;
  chunks->count = count;
  const gpuf_status status = gpufi_chunk_raw_nbytes(shape, &chunks->raw_nbytes, err);
  chunks->raw_pitch_nbytes = gpufi_round_up_16(chunks->raw_nbytes);
  return status;
}

/* A symbol table, and what a short block with a mask takes above its values. */
#define RANKED_NBYTES (2 * (GPUFI_TREE_LEAVES_MAX - 1) / 16 * 16 + 16 + 32)

size_t gpufi_chunks_encoded_nbytes(const gpufi_chunks *chunks) {
  gpufi_geometry g;
  if (chunks->coding == GPUFI_CODING_BITSHUFFLE) {
    const size_t element_nbytes = gpufi_chunk_element_nbytes(chunks->shape.dtype);
    return chunks->count *
           gpufi_round_up_16(gpufi_bitshuffle_bound(element_nbytes, chunks->raw_nbytes));
  }
  gpufi_geometry_init(&g, &chunks->shape);
  const size_t descriptors_nbytes = gpufi_round_up_16(4 * gpufi_block_count(&g));
  return chunks->count *
         (gpufi_codec_bound(chunks->raw_nbytes) + descriptors_nbytes + RANKED_NBYTES);
}
