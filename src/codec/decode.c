#include "codec/format.h"
#include "core/error.h"

static gpuf_status corrupt(gpuf_error *err, size_t at, const char *what) {
  return gpufi_fail(err, GPUF_ERR_CORRUPT, 0, "corrupt chunk at byte %zu: %s", at, what);
}

/* Bytes begin .. end of the chunk are padding. */
static gpuf_status check_padding(const uint8_t *encoded, size_t begin, size_t end,
                                 gpuf_error *err) {
  for (size_t i = begin; i < end; i++) {
    if (encoded[i] != 0) {
      return corrupt(err, i, "a padding byte is not 0");
    }
  }
  return GPUF_OK;
}

/* One block at *at, which moves past it and past the padding where a run ends there. */
static gpuf_status decode_block(const gpufi_geometry *g, const uint8_t *encoded,
                                size_t encoded_nbytes, size_t b, size_t *at, uint8_t *residuals,
                                gpuf_error *err) {
  const size_t descriptor_at = GPUFI_HEADER_NBYTES + 4 * b;
  const uint32_t word = gpufi_load_u32(encoded + descriptor_at);
  const gpufi_block block = gpufi_block_from_word(word);
  const size_t first = b * GPUFI_BLOCK_VALUES, left = g->value_count - first;
  const size_t count = left < GPUFI_BLOCK_VALUES ? left : GPUFI_BLOCK_VALUES;
  if (word & GPUFI_BLOCK_UNUSED_BITS) {
    return corrupt(err, descriptor_at, "an unused bit of a block descriptor is not 0");
  }
  if (block.nbytes > encoded_nbytes - *at) {
    return corrupt(err, descriptor_at, "the block runs past the end of the chunk");
  }
  gpuf_status status = gpufi_block_unpack(g->value_nbytes, encoded + *at, *at, block,
                                          residuals + first * g->value_nbytes, count, err);
  if (status != GPUF_OK) {
    return status;
  }
  *at += block.nbytes;
  if (left <= GPUFI_BLOCK_VALUES || (b + 1) % GPUFI_RUN_BLOCKS == 0) {
    const size_t padded = gpufi_round_up_16(*at); /* encoded_nbytes is a multiple of 16 too */
    status = check_padding(encoded, *at, padded, err);
    *at = padded;
  }
  return status;
}

static gpuf_status decode_w8(const gpufi_chunk_header *header, const uint8_t *encoded,
                             size_t encoded_nbytes, uint8_t *raw, gpuf_error *err) {
  gpufi_geometry g;
  gpufi_geometry_init(&g, &header->shape);
  const size_t block_count = gpufi_block_count(&g);
  const size_t table_end = GPUFI_HEADER_NBYTES + 4 * block_count;
  size_t at = gpufi_round_up_16(table_end);
  gpuf_status status = check_padding(encoded, table_end, at, err);
  for (size_t b = 0; b < block_count && status == GPUF_OK; b++) {
    status = decode_block(&g, encoded, encoded_nbytes, b, &at, raw, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  if (at != encoded_nbytes) {
    return corrupt(err, at, "bytes are left over after the last block");
  }
  if (header->axes != 0) { /* the seed stands in for the first element's residual, which is 0 */
    const size_t element_nbytes = g.value_nbytes * g.component_count;
    for (size_t i = 0; i < element_nbytes; i++) {
      if (raw[i] != 0) {
        return corrupt(err, gpufi_round_up_16(table_end),
                       "the first element has both a seed and a residual");
      }
    }
  }
  gpufi_predict_inverse(&g, raw, (header->flags & GPUFI_FLAG_BIG_ENDIAN) != 0, header->transform,
                        header->axes, header->seed);
  return GPUF_OK;
}

static void fill_constant(uint8_t *raw, size_t raw_nbytes, const uint8_t *element,
                          size_t element_nbytes) {
  size_t done = element_nbytes;
  memcpy(raw, element, element_nbytes);
  while (done < raw_nbytes) { /* double what is there; both sizes are multiples of the element */
    const size_t left = raw_nbytes - done, step = done < left ? done : left;
    memcpy(raw + done, raw, step);
    done += step;
  }
}

gpuf_status gpufi_codec_inspect(const void *encoded, size_t encoded_nbytes,
                                gpufi_chunk_shape *shape, size_t *raw_nbytes, gpuf_error *err) {
  gpufi_chunk_header header;
  const gpuf_status status = gpufi_header_read(encoded, encoded_nbytes, &header, err);
  if (status == GPUF_OK) {
    *shape = header.shape;
    *raw_nbytes = (size_t)header.raw_nbytes;
  }
  return status;
}

gpuf_status gpufi_codec_decode(const void *encoded, size_t encoded_nbytes, void *raw,
                               size_t raw_nbytes, gpuf_error *err) {
  const uint8_t *const bytes = encoded;
  gpufi_chunk_header header;
  uint64_t sums[2];
  const gpuf_status status = gpufi_header_read(bytes, encoded_nbytes, &header, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (header.raw_nbytes != raw_nbytes) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "byte %d: the chunk decodes to %llu bytes, but %zu are expected",
                      GPUFI_AT_RAW_NBYTES, (unsigned long long)header.raw_nbytes, raw_nbytes);
  }
  gpufi_checksum(bytes, encoded_nbytes, sums);
  if (memcmp(sums, bytes + GPUFI_AT_CHECKSUM, sizeof(sums)) != 0) {
    return corrupt(err, GPUFI_AT_CHECKSUM, "the checksum does not match; the bytes were altered");
  }
  if (header.mode == GPUFI_MODE_CONSTANT) {
    fill_constant(raw, raw_nbytes, header.seed, gpufi_chunk_element_nbytes(header.shape.dtype));
    return GPUF_OK;
  }
  if (header.mode == GPUFI_MODE_RAW) {
    memcpy(raw, bytes + GPUFI_HEADER_NBYTES, raw_nbytes);
    return check_padding(bytes, GPUFI_HEADER_NBYTES + raw_nbytes, encoded_nbytes, err);
  }
  return decode_w8(&header, bytes, encoded_nbytes, raw, err);
}
