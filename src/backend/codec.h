/* Batches of chunks, encoded and decoded on the device: see codec/codec.h for one chunk on the
 * CPU, whose bytes are the same. */
#ifndef GPUFI_BACKEND_CODEC_H
#define GPUFI_BACKEND_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "base/arithmetic.h"
#include "codec/codec.h"

/* The bytes that chunks are encoded to. */
typedef enum gpufi_coding {
  GPUFI_CODING_GPUFETCH,   /* docs/format.md */
  GPUFI_CODING_BITSHUFFLE, /* codec/bitshuffle.h; for encoding only */
} gpufi_coding;

/* Chunks of one shape. Chunk i's raw bytes are the raw_nbytes from i * raw_pitch_nbytes on: a
 * multiple of 16, and so is the address of the first. */
typedef struct gpufi_chunks {
  gpufi_chunk_shape shape;
  gpufi_coding coding;
  bool big_endian; /* encoding only: the raw bytes are; a chunk to decode says so itself */
  size_t raw_nbytes;
  size_t raw_pitch_nbytes;
  size_t count; /* > 0 */
} gpufi_chunks;

/* Where a chunk lies in the encoded buffer; the offset is a multiple of 16. Chunks of a batch may
 * lie in any order. */
typedef struct gpufi_chunk_place {
  uint64_t offset;
  uint64_t nbytes;
} gpufi_chunk_place;

/* Check the shape and fill in `chunks`, with the least pitch; to be coded as gpufetch does. */
gpuf_status gpufi_chunks_init(gpufi_chunks *chunks, const gpufi_chunk_shape *shape, size_t count,
                              gpuf_error *err);

/* What became of a chunk. */
enum {
  GPUFI_CHUNK_DONE = 0,
  GPUFI_CHUNK_REFUSED = 1, /* not a chunk of the batch's shape, or a damaged one */
  GPUFI_CHUNK_LEFT = 2,    /* in a form that is for gpufi_codec_decode to read */
};

/* The most bytes that the batch takes encoded. A device encoder lays gpufetch's chunks end to end
 * by what modes W8 and ranked take; one that ends up shorter in another mode leaves a gap behind
 * it. Chunks with corrections come last: they may take twice as much until it is known that they
 * are to be raw, and those for which there is no place then are left. */
size_t gpufi_chunks_encoded_nbytes(const gpufi_chunks *chunks);

/* Entry `count` of the places is {end of the last chunk, 0}. */
#define GPUFI_CHUNKS_PLACE_COUNT(count) ((count) + 1)

#endif
