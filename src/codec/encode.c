#include "codec/format.h"
#include "core/error.h"

size_t gpufi_codec_bound(size_t raw_nbytes) {
  return GPUFI_HEADER_NBYTES + gpufi_round_up_16(raw_nbytes);
}

size_t gpufi_codec_scratch_nbytes(const gpufi_chunk_shape *shape) {
  size_t raw_nbytes;
  return gpufi_chunk_raw_nbytes(shape, &raw_nbytes, NULL) == GPUF_OK ? raw_nbytes : 0;
}

static bool is_constant(const uint8_t *raw, size_t raw_nbytes, size_t element_nbytes) {
  return memcmp(raw, raw + element_nbytes, raw_nbytes - element_nbytes) == 0;
}

/* Descriptors, then the blocks, from the residuals. Returns the payload's bytes, or 0 if it takes
 * more than `capacity` (a multiple of 16). */
static size_t write_blocks(const gpufi_geometry *g, const uint8_t *residuals, uint8_t *payload,
                           size_t capacity) {
  const size_t block_count = gpufi_block_count(g);
  size_t at = gpufi_round_up_16(4 * block_count);
  if (at > capacity) {
    return 0;
  }
  memset(payload + 4 * block_count, 0, at - 4 * block_count);
  for (size_t b = 0; b < block_count; b++) {
    const size_t first = b * GPUFI_BLOCK_VALUES, left = g->value_count - first;
    const size_t count = left < GPUFI_BLOCK_VALUES ? left : GPUFI_BLOCK_VALUES;
    gpufi_block block;
    if (!gpufi_block_pack(g->value_nbytes, residuals + first * g->value_nbytes, count, payload + at,
                          capacity - at, &block)) {
      return 0;
    }
    const uint32_t word = gpufi_block_to_word(block);
    memcpy(payload + 4 * b, &word, sizeof(word));
    at += block.nbytes;
    if (b + 1 == block_count || (b + 1) % GPUFI_RUN_BLOCKS == 0) {
      const size_t padded = gpufi_round_up_16(at); /* capacity is a multiple of 16, so it fits */
      memset(payload + at, 0, padded - at);
      at = padded;
    }
  }
  return at;
}

/* Fill in mode, coding fields and payload of `header`, and write the payload. */
static void encode_payload(gpufi_chunk_header *header, const uint8_t *raw, bool swap,
                           uint8_t *payload, void *scratch) {
  gpufi_geometry g;
  gpufi_geometry_init(&g, &header->shape);
  const size_t raw_nbytes = (size_t)header->raw_nbytes;
  const size_t element_nbytes = g.value_nbytes * g.component_count;
  const size_t capacity = gpufi_round_up_16(raw_nbytes);
  if (is_constant(raw, raw_nbytes, element_nbytes)) {
    header->mode = GPUFI_MODE_CONSTANT;
    memcpy(header->seed, raw, element_nbytes);
    return;
  }
  swap = swap && g.value_nbytes > 1;
  header->mode = GPUFI_MODE_W8;
  header->flags = swap ? GPUFI_FLAG_BIG_ENDIAN : 0;
  gpufi_predict_choose(&g, raw, gpufi_chunk_dtype_is_float(header->shape.dtype), swap,
                       &header->transform, &header->axes);
  gpufi_predict_forward(&g, raw, swap, header->transform, header->axes, scratch, header->seed);
  header->payload_nbytes = write_blocks(&g, scratch, payload, capacity);
  if (header->payload_nbytes == 0 || header->payload_nbytes >= capacity) {
    header->mode = GPUFI_MODE_RAW;
    header->flags = header->transform = header->axes = 0;
    memset(header->seed, 0, sizeof(header->seed));
    header->payload_nbytes = capacity;
    memcpy(payload, raw, raw_nbytes);
    memset(payload + raw_nbytes, 0, capacity - raw_nbytes);
  }
}

static gpuf_status encode(const gpufi_chunk_shape *shape, bool swap, const void *raw,
                          uint8_t *encoded, size_t encoded_capacity, size_t *encoded_nbytes,
                          void *scratch, gpuf_error *err) {
  gpufi_chunk_header header = {.shape = *shape};
  size_t raw_nbytes;
  const gpuf_status status = gpufi_chunk_raw_nbytes(shape, &raw_nbytes, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (encoded_capacity < gpufi_codec_bound(raw_nbytes)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the buffer for the encoded chunk holds %zu bytes; give it %zu",
                      encoded_capacity, gpufi_codec_bound(raw_nbytes));
  }
  header.raw_nbytes = raw_nbytes;
  encode_payload(&header, raw, swap, encoded + GPUFI_HEADER_NBYTES, scratch);
  gpufi_header_write(encoded, &header);
  *encoded_nbytes = GPUFI_HEADER_NBYTES + (size_t)header.payload_nbytes;
  gpufi_codec_seal(encoded, *encoded_nbytes);
  return GPUF_OK;
}

gpuf_status gpufi_codec_encode(const gpufi_chunk_shape *shape, const void *raw, void *encoded,
                               size_t encoded_capacity, size_t *encoded_nbytes, void *scratch,
                               gpuf_error *err) {
  return encode(shape, false, raw, encoded, encoded_capacity, encoded_nbytes, scratch, err);
}

gpuf_status gpufi_codec_encode_big_endian(const gpufi_chunk_shape *shape, const void *raw,
                                          void *encoded, size_t encoded_capacity,
                                          size_t *encoded_nbytes, void *scratch, gpuf_error *err) {
  return encode(shape, true, raw, encoded, encoded_capacity, encoded_nbytes, scratch, err);
}
