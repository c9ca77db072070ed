/* Encoding a chunk: what to do is chosen (coding.h), the values are predicted, and blocks are
 * packed one after the other into the capacity that the raw bytes take. Where that does not suffice
 * the chunk is stored raw, so encoding never fails for its size. */
#include "base/arithmetic.h"
#include "base/error.h"
#include "base/floating_point.h"
#include "codec/block.h"
#include "codec/bytes.h"
#include "codec/codec.h"
#include "codec/coding.h"
#include "codec/cpu.h"
#include "codec/planes.h"
#include "codec/predict.h"
#include "codec/ranked_block.h"

size_t gpufi_codec_bound(size_t raw_nbytes) {
  return GPUFI_HEADER_NBYTES + gpufi_round_up_16(raw_nbytes);
}

/* In the scratch, one after the other: as many bytes as the raw chunk has, for places and
 * residuals; the encoder of matches; and as many bytes as the raw chunk has for its planes, if
 * there are some.
 */
static gpufi_matches_encoder *matches_encoder(uint8_t *scratch, size_t raw_nbytes) {
  return (gpufi_matches_encoder *)(scratch + gpufi_round_up_16(raw_nbytes));
}

size_t gpufi_codec_scratch_nbytes(const gpufi_chunk_shape *shape) {
  size_t raw_nbytes;
  if (gpufi_chunk_raw_nbytes(shape, &raw_nbytes, NULL) != GPUF_OK) {
    return 0;
  }
  return gpufi_round_up_16(raw_nbytes) + sizeof(gpufi_matches_encoder) +
         (gpufi_planes_pay(shape) ? raw_nbytes : 0);
}

/* Every element is the one before it. */
static bool is_constant(const uint8_t *raw, size_t raw_nbytes, size_t element_nbytes) {
  return memcmp(raw, raw + element_nbytes, raw_nbytes - element_nbytes) == 0;
}

/* Reserve a table of `nbytes` at *at, with zeros after it up to a multiple of 16. False if it does
 * not fit. */
static bool begin_table(uint8_t *payload, size_t capacity, size_t nbytes, size_t *at,
                        uint8_t **table) {
  const size_t padded = gpufi_round_up_16(nbytes);
  if (padded > capacity - *at) {
    return false;
  }
  *table = payload + *at;
  memset(*table + nbytes, 0, padded - nbytes);
  *at += padded;
  return true;
}

static bool write_tables(const gpufi_coding *c, const gpufi_chunk_header *header, uint8_t *payload,
                         size_t capacity, size_t *at) {
  uint8_t *table;
  gpufi_tables tables;
  gpufi_header_tables(header, &tables);
  if (tables.parameters != 0) {
    if (!begin_table(payload, capacity, tables.parameters, at, &table)) {
      return false;
    }
    gpufi_numbers_write(&c->numbers, table);
  }
  if (header->transform == GPUFI_TRANSFORM_DICTIONARY) {
    const gpufi_dictionary *const d = &c->dictionary;
    if (!begin_table(payload, capacity, d->count * d->value_nbytes, at, &table)) {
      return false;
    }
    gpufi_dictionary_write(d, table);
  }
  if (header->mode == GPUFI_MODE_RANKED) {
    if (!begin_table(payload, capacity, gpufi_ranks_table_nbytes(&c->ranks), at, &table)) {
      return false;
    }
    gpufi_ranks_write(&c->ranks, table);
  }
  return true;
}

/* The raw values from number `first` on, in this machine's byte order: in `buffer`, which has
 * capacity for a block of them, or where they are. */
static const uint8_t *native_values(const gpufi_coding *c, size_t first, size_t count,
                                    uint8_t *buffer) {
  const size_t nbytes = c->geometry.value_nbytes;
  const uint8_t *const values = c->raw + first * nbytes;
  if (!c->raw_swap) {
    return values;
  }
  for (size_t i = 0; i < count; i++) {
    const uint64_t value = gpufi_load_swapped(values + i * nbytes, nbytes);
    memcpy(buffer + i * nbytes, &value, nbytes);
  }
  return buffer;
}

/* A block of values to what is predicted and packed; true if there are corrections. */
static bool to_base(const gpufi_coding *c, const uint8_t *values, size_t count, uint8_t *out) {
  const gpufi_geometry *const g = &c->geometry;
  return gpufi_cpu_get()->to_base[gpufi_value_index(g->value_nbytes)](
      &c->numbers, (unsigned)g->component_count, values, count, out);
}

/* The corrections of `count` values from number `first` on, to `buffer`; false if there is one that
 * cannot be written. */
static bool corrections_of(const gpufi_coding *c, size_t first, size_t count, uint8_t *buffer) {
  const size_t nbytes = c->geometry.value_nbytes, index = gpufi_value_index(nbytes);
  const gpufi_cpu *const cpu = gpufi_cpu_get();
  uint8_t space[8 * GPUFI_BLOCK_VALUES];
  const uint8_t *const values = native_values(c, first, count, space);
  if (c->bases != NULL) {
    memcpy(buffer, c->bases + first * nbytes, count * nbytes);
  } else {
    to_base(c, values, count, buffer);
  }
  cpu->from_base[index](&c->numbers, count, buffer);
  return cpu->corrections[index](&c->numbers, values, count, buffer);
}

/* The next `count` residuals, or corrections, from number `first` on: in `buffer`, which has
 * capacity for a block of them, or where they are. Null if there is a correction that cannot be
 * written. */
static const uint8_t *next_residuals(const gpufi_coding *c, bool corrections, size_t first,
                                     size_t count, uint8_t *buffer) {
  if (corrections) {
    return corrections_of(c, first, count, buffer) ? buffer : NULL;
  }
  if (c->lines == NULL) {
    return (c->as_is ? c->values : c->residuals) + first * c->geometry.value_nbytes;
  }
  gpufi_lines_forward(c->lines, c->values, count, buffer);
  return buffer;
}

/* A position in the payload, and where the descriptors are. */
typedef struct output {
  uint8_t *payload, *descriptors;
  size_t at, capacity;
  const gpufi_walk_tables *walks; /* if ranked */
} output;

static bool write_block(const gpufi_coding *c, bool corrections, size_t b, output *out) {
  const gpufi_geometry *const g = &c->geometry;
  uint8_t buffer[8 * GPUFI_BLOCK_VALUES];
  const size_t first = b * GPUFI_BLOCK_VALUES;
  const size_t count = gpufi_min_nbytes(g->value_count - first, GPUFI_BLOCK_VALUES);
  const uint8_t *const residuals = next_residuals(c, corrections, first, count, buffer);
  uint8_t *const to = out->payload + out->at;
  const size_t left = out->capacity - out->at;
  gpufi_block block;
  if (residuals == NULL ||
      !(out->walks != NULL
            ? gpufi_ranked_pack(&c->ranks, out->walks, g->value_nbytes, residuals, count, to, left,
                                &block)
            : gpufi_block_pack(g->value_nbytes, residuals, count, to, left, &block))) {
    return false;
  }
  const uint32_t word = gpufi_block_to_word(block);
  memcpy(out->descriptors + 4 * (b + (corrections ? gpufi_block_count(g) : 0)), &word,
         sizeof(word));
  out->at += block.nbytes;
  return true;
}

/* Tables, descriptors, then the blocks: the descriptors' place is known from the number of blocks,
 * and each is filled in when its block has been packed. Returns the payload's bytes, or 0 if it
 * takes more than `capacity` (a multiple of 16). */
static size_t write_payload(const gpufi_coding *c, const gpufi_chunk_header *header,
                            uint8_t *payload, size_t capacity) {
  const size_t block_count = gpufi_block_count(&c->geometry);
  const size_t streams = gpufi_header_streams(header);
  gpufi_walk_tables walks;
  output out = {.payload = payload, .capacity = capacity};
  if (!write_tables(c, header, payload, capacity, &out.at) ||
      !begin_table(payload, capacity, 4 * streams * block_count, &out.at, &out.descriptors)) {
    return 0;
  }
  if (header->mode == GPUFI_MODE_RANKED) {
    gpufi_walk_tables_init(&walks, &c->ranks.tree, c->ranks.symbols, c->ranks.cut.bits);
    out.walks = &walks;
  }
  for (size_t run = 0; run < block_count; run += GPUFI_RUN_BLOCKS) {
    const size_t end = gpufi_min_nbytes(run + GPUFI_RUN_BLOCKS, block_count);
    for (size_t stream = 0; stream < streams; stream++) {
      for (size_t b = run; b < end; b++) {
        if (!write_block(c, stream == 1, b, &out)) {
          return 0;
        }
      }
    }
    const size_t padded = gpufi_round_up_16(out.at); /* the capacity is one, so it fits */
    memset(payload + out.at, 0, padded - out.at);
    out.at = padded;
  }
  return out.at;
}

/* The values by way of their base, in c->residuals, where they take as many bytes. Sets the flag of
 * corrections. */
static void convert(gpufi_coding *c, gpufi_chunk_header *header) {
  const gpufi_geometry *const g = &c->geometry;
  uint8_t space[8 * GPUFI_BLOCK_VALUES];
  bool corrected = false;
  for (size_t first = 0; first < g->value_count; first += GPUFI_BLOCK_VALUES) {
    const size_t count = gpufi_min_nbytes(g->value_count - first, GPUFI_BLOCK_VALUES);
    const uint8_t *const values = native_values(c, first, count, space);
    corrected |= to_base(c, values, count, c->residuals + first * g->value_nbytes);
  }
  header->flags |= corrected || c->numbers.has_fill ? GPUFI_FLAG_CORRECTIONS : 0;
  c->values = c->residuals;
  c->swap = false;
}

/* The same for mode matches: the blocks' sizes, then the blocks. */
static size_t write_matches(const gpufi_coding *c, const gpufi_chunk_header *header,
                            uint8_t *payload, size_t capacity, gpufi_matches_encoder *encoder) {
  const gpufi_geometry *const g = &c->geometry;
  gpufi_matches m;
  uint8_t buffer[8 * GPUFI_BLOCK_VALUES], *sizes;
  size_t at = 0;
  gpufi_header_matches(header, &m);
  if (!begin_table(payload, capacity, 4 * gpufi_matches_block_count(&m, g->value_count), &at,
                   &sizes)) {
    return 0;
  }
  gpufi_matches_encoder_init(encoder, &m);
  for (size_t first = 0; first < g->value_count; first += m.block_values, sizes += 4) {
    const size_t total = gpufi_min_nbytes(g->value_count - first, m.block_values);
    for (size_t k = 0; k < total; k += GPUFI_BLOCK_VALUES) {
      const size_t count = gpufi_min_nbytes(total - k, GPUFI_BLOCK_VALUES);
      gpufi_matches_put(encoder, next_residuals(c, false, first + k, count, buffer), k, count,
                        total);
    }
    const uint8_t *encoded;
    const uint32_t nbytes = (uint32_t)gpufi_matches_encode(encoder, total, &encoded);
    if (nbytes > capacity - at) {
      return 0;
    }
    memcpy(sizes, &nbytes, sizeof(nbytes));
    memcpy(payload + at, encoded, nbytes);
    at += nbytes;
  }
  const size_t padded = gpufi_round_up_16(at);
  memset(payload + at, 0, padded - at);
  return padded;
}

/* Prepare the residuals: a walk over lines that gives them, or all of them in c->residuals. Set the
 * seed. */
static void predict(gpufi_coding *c, gpufi_lines *lines, gpufi_chunk_header *header) {
  const bool dictionary = header->transform == GPUFI_TRANSFORM_DICTIONARY;
  const bool based = gpufi_header_has_base(header);
  const uint8_t transform = dictionary || based ? GPUFI_TRANSFORM_NONE : header->transform;
  if (based) {
    convert(c, header);
  }
  if (gpufi_mode_is_predicted(header->mode) &&
      gpufi_lines_init(lines, &c->geometry, transform, header->axes, header->offset, NULL)) {
    if (c->swap) {
      gpufi_predict_forward(&c->geometry, c->values, true, GPUFI_TRANSFORM_NONE, 0, 0, c->residuals,
                            header->seed);
      c->values = c->residuals;
    }
    gpufi_lines_seed(lines, c->values, header->seed);
    c->lines = lines;
    c->bases = based ? c->values : NULL;
    return;
  }
  if (header->mode == GPUFI_MODE_RANKED && !c->swap) {
    c->as_is = true;
    return;
  }
  uint8_t seed[16];
  gpufi_predict_forward(&c->geometry, c->values, c->swap, transform, header->axes, header->offset,
                        c->residuals, seed);
  if (header->mode != GPUFI_MODE_RANKED) { /* where the field has the tree */
    memcpy(header->seed, seed, sizeof(seed));
  }
}

/* Fill in the coding fields of `header`, and write the payload of mode W8, ranked or matches;
 * payload_nbytes is 0 if it does not fit, or is not expected to take less than the raw bytes. */
static void encode_coded(gpufi_chunk_header *header, const gpufi_geometry *g, const uint8_t *raw,
                         bool swap, uint8_t *payload, size_t capacity, uint8_t *scratch) {
  gpufi_coding c = {.geometry = *g,
                    .raw = raw,
                    .values = raw,
                    .residuals = scratch,
                    .swap = swap,
                    .raw_swap = swap};
  gpufi_matches_encoder *const encoder = matches_encoder(scratch, (size_t)header->raw_nbytes);
  gpufi_lines lines;
  gpufi_coding_choose(&c, header, scratch, encoder);
  if (header->mode == GPUFI_MODE_RAW) {
    return;
  }
  header->flags |= swap ? GPUFI_FLAG_BIG_ENDIAN : 0;
  if (header->mode == GPUFI_MODE_RANKED) {
    gpufi_header_set_ranks(header, &c.ranks);
  }
  predict(&c, &lines, header);
  header->payload_nbytes = header->mode == GPUFI_MODE_MATCHES
                               ? write_matches(&c, header, payload, capacity, encoder)
                               : write_payload(&c, header, payload, capacity);
}

static void encode_raw(gpufi_chunk_header *header, const uint8_t *raw, uint8_t *payload,
                       size_t capacity) {
  const size_t raw_nbytes = (size_t)header->raw_nbytes;
  *header = (gpufi_chunk_header){.shape = header->shape,
                                 .mode = GPUFI_MODE_RAW,
                                 .raw_nbytes = header->raw_nbytes,
                                 .payload_nbytes = capacity};
  memcpy(payload, raw, raw_nbytes);
  memset(payload + raw_nbytes, 0, capacity - raw_nbytes);
}

static GPUFI_NOT_INLINED void encode_payload(gpufi_chunk_header *header, const uint8_t *raw,
                                             bool swap, uint8_t *payload, void *scratch) {
  const uint8_t *values = raw;
  gpufi_geometry g;
  const size_t raw_nbytes = (size_t)header->raw_nbytes;
  const size_t element_nbytes = gpufi_chunk_element_nbytes(header->shape.dtype);
  const size_t capacity = gpufi_round_up_16(raw_nbytes);
  if (is_constant(raw, raw_nbytes, element_nbytes)) {
    header->mode = GPUFI_MODE_CONSTANT;
    memcpy(header->seed, raw, element_nbytes);
    return;
  }
  if (gpufi_planes_pay(&header->shape)) {
    uint8_t *const planes = (uint8_t *)(matches_encoder(scratch, raw_nbytes) + 1);
    gpufi_planes_split(&header->shape, raw, planes);
    header->flags = GPUFI_FLAG_PLANES;
    values = planes;
  }
  gpufi_header_values(header, &g);
  encode_coded(header, &g, values, swap && g.value_nbytes > 1, payload, capacity, scratch);
  if (header->payload_nbytes == 0 || header->payload_nbytes >= capacity) {
    encode_raw(header, raw, payload, capacity);
  }
}

static gpuf_status encode(const gpufi_chunk_shape *shape, bool swap, const void *raw,
                          uint8_t *encoded, size_t encoded_capacity, size_t *encoded_nbytes,
                          void *scratch, gpuf_error *err) {
  gpufi_chunk_header header = {.shape = *shape};
  size_t raw_nbytes;
  gpuf_status status = gpufi_cpu_check(err);
  if (status == GPUF_OK) {
    status = gpufi_chunk_raw_nbytes(shape, &raw_nbytes, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  if (encoded_capacity < gpufi_codec_bound(raw_nbytes)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the buffer for the encoded chunk holds %zu bytes; give it %zu",
                      encoded_capacity, gpufi_codec_bound(raw_nbytes));
  }
  header.raw_nbytes = raw_nbytes;
  const gpufi_floating_point callers = gpufi_floating_point_begin();
  encode_payload(&header, raw, swap, encoded + GPUFI_HEADER_NBYTES, scratch);
  gpufi_floating_point_end(callers);
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
