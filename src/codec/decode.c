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

/* What the tables and the header say about a W8 or ranked chunk. */
typedef struct coding {
  gpufi_geometry geometry; /* of what is packed */
  bool ranked;
  gpufi_dictionary dictionary;
  gpufi_ranks ranks;
  size_t descriptors_at, blocks_at;
} coding;

static gpuf_status read_coding(const gpufi_chunk_header *header, const uint8_t *encoded, coding *c,
                               gpuf_error *err) {
  size_t dictionary_nbytes, symbols_nbytes;
  gpufi_geometry values;
  const size_t tables = gpufi_header_tables(header, &dictionary_nbytes, &symbols_nbytes);
  const size_t symbols_at = GPUFI_HEADER_NBYTES + gpufi_round_up_16(dictionary_nbytes);
  gpufi_geometry_init(&values, &header->shape);
  gpufi_header_geometry(header, &c->geometry);
  c->ranked = header->mode == GPUFI_MODE_RANKED;
  c->descriptors_at = GPUFI_HEADER_NBYTES + tables;
  const size_t descriptors_end = c->descriptors_at + 4 * gpufi_block_count(&c->geometry);
  c->blocks_at = gpufi_round_up_16(descriptors_end);
  c->dictionary.dtype = header->shape.dtype;
  c->dictionary.value_nbytes = values.value_nbytes;
  c->dictionary.count = dictionary_nbytes / values.value_nbytes;
  const size_t sorted = gpufi_dictionary_read(&c->dictionary, encoded + GPUFI_HEADER_NBYTES);
  if (sorted != c->dictionary.count) {
    return corrupt(err, GPUFI_HEADER_NBYTES + sorted * values.value_nbytes,
                   "an entry of the dictionary is not above the one before");
  }
  if (c->ranked) {
    gpufi_header_ranks(header, &c->ranks);
    const size_t good = gpufi_ranks_read(&c->ranks, encoded + symbols_at);
    if (good != gpufi_ranks_count(&c->ranks)) {
      return corrupt(err, symbols_at, "an entry of the symbol table is out of range");
    }
  }
  gpuf_status status =
      check_padding(encoded, GPUFI_HEADER_NBYTES + dictionary_nbytes, symbols_at, err);
  if (status == GPUF_OK) {
    status = check_padding(encoded, symbols_at + symbols_nbytes, c->descriptors_at, err);
  }
  return status == GPUF_OK ? check_padding(encoded, descriptors_end, c->blocks_at, err) : status;
}

/* One block at *at, which moves past it and past the padding where a run ends there. */
static gpuf_status decode_block(const coding *c, const uint8_t *encoded, size_t encoded_nbytes,
                                size_t b, size_t *at, uint8_t *residuals, gpuf_error *err) {
  const gpufi_geometry *const g = &c->geometry;
  const size_t descriptor_at = c->descriptors_at + 4 * b;
  const gpufi_block block = gpufi_block_from_word(gpufi_load_u32(encoded + descriptor_at));
  const size_t first = b * GPUFI_BLOCK_VALUES, left = g->value_count - first;
  const size_t count = left < GPUFI_BLOCK_VALUES ? left : GPUFI_BLOCK_VALUES;
  if (block.nbytes > encoded_nbytes - *at) {
    return corrupt(err, descriptor_at, "the block runs past the end of the chunk");
  }
  residuals += first * g->value_nbytes;
  gpuf_status status = c->ranked ? gpufi_ranked_unpack(&c->ranks, g->value_nbytes, encoded + *at,
                                                       *at, block, residuals, count, err)
                                 : gpufi_block_unpack(g->value_nbytes, encoded + *at, *at, block,
                                                      residuals, count, err);
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

static gpuf_status decode_blocks(const coding *c, const uint8_t *encoded, size_t encoded_nbytes,
                                 uint8_t *raw, gpuf_error *err) {
  const size_t block_count = gpufi_block_count(&c->geometry);
  size_t at = c->blocks_at;
  gpuf_status status = GPUF_OK;
  for (size_t b = 0; b < block_count && status == GPUF_OK; b++) {
    status = decode_block(c, encoded, encoded_nbytes, b, &at, raw, err);
  }
  if (status == GPUF_OK && at != encoded_nbytes) {
    return corrupt(err, at, "bytes are left over after the last block");
  }
  return status;
}

static gpuf_status decode_coded(const gpufi_chunk_header *header, const uint8_t *encoded,
                                size_t encoded_nbytes, uint8_t *raw, gpuf_error *err) {
  coding c;
  gpuf_status status = read_coding(header, encoded, &c, err);
  if (status == GPUF_OK) {
    status = decode_blocks(&c, encoded, encoded_nbytes, raw, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  const gpufi_geometry *const g = &c.geometry;
  if (header->axes != 0) { /* the seed stands in for the first element's residual, which is 0 */
    for (size_t i = 0; i < g->value_nbytes * g->component_count; i++) {
      if (raw[i] != 0) {
        return corrupt(err, c.blocks_at, "the first element has both a seed and a residual");
      }
    }
  }
  const bool swap = (header->flags & GPUFI_FLAG_BIG_ENDIAN) != 0;
  if (header->transform != GPUFI_TRANSFORM_DICTIONARY) {
    gpufi_predict_inverse(g, raw, swap, header->transform, header->axes, header->offset,
                          header->seed);
    return GPUF_OK;
  }
  gpufi_predict_inverse(g, raw, false, GPUFI_TRANSFORM_NONE, header->axes, header->offset,
                        header->seed);
  return gpufi_dictionary_expand(&c.dictionary, g->value_count, swap, raw)
             ? GPUF_OK
             : corrupt(err, c.blocks_at, "a value is outside the dictionary");
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
  return decode_coded(&header, bytes, encoded_nbytes, raw, err);
}
