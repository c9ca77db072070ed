/* The header of a chunk: 96 bytes, of which the offsets are in format.h.
 *
 *   0   | G P F C | version, dtype, mode, transform | axes, ndim, flags, levels |
 *   12  | entries, shift, symbol, 0 |
 *   16  | raw length, 8 bytes | payload length, 8 bytes |
 *   32  | dimensions, 8 of 4 bytes |
 *   64  | seed, 16 bytes, of which the last 8 may be the offset; ranked: leaves of each level |
 *   80  | checksum, 16 bytes |
 *
 * Reading it checks each field against the others before any is used to find something in the
 * chunk: first that the payload length is that of the bytes present, then that the dimensions give
 * the raw length without overflow, then what the mode and the dtype allow. */
#include "codec/header.h"
#include "base/arithmetic.h"
#include "base/error.h"
#include "codec/bytes.h"
#include "codec/levels.h"
#include "codec/matches.h"
#include "codec/planes.h"

void gpufi_header_write(uint8_t *encoded, const gpufi_chunk_header *header) {
  const uint32_t magic = GPUFI_CHUNK_MAGIC;
  memset(encoded, 0, GPUFI_HEADER_NBYTES);
  memcpy(encoded + GPUFI_AT_MAGIC, &magic, sizeof(magic));
  encoded[GPUFI_AT_VERSION] = GPUFI_CHUNK_VERSION;
  encoded[GPUFI_AT_DTYPE] = (uint8_t)header->shape.dtype;
  encoded[GPUFI_AT_MODE] = header->mode;
  encoded[GPUFI_AT_TRANSFORM] = header->transform;
  encoded[GPUFI_AT_AXES] = header->axes;
  encoded[GPUFI_AT_NDIM] = (uint8_t)header->shape.ndim;
  encoded[GPUFI_AT_FLAGS] = header->flags;
  encoded[GPUFI_AT_LEVELS] = header->levels;
  encoded[GPUFI_AT_ENTRIES] = header->entries_less1;
  encoded[GPUFI_AT_SHIFT] = header->shift;
  encoded[GPUFI_AT_SYMBOL] = header->symbol;
  memcpy(encoded + GPUFI_AT_RAW_NBYTES, &header->raw_nbytes, 8);
  memcpy(encoded + GPUFI_AT_PAYLOAD_NBYTES, &header->payload_nbytes, 8);
  memcpy(encoded + GPUFI_AT_DIMS, header->shape.dims, 4 * (size_t)header->shape.ndim);
  memcpy(encoded + GPUFI_AT_SEED, header->seed, 16);
  if (header->offset != 0) {
    memcpy(encoded + GPUFI_AT_OFFSET, &header->offset, 8);
  }
}

static gpuf_status corrupt(gpuf_error *err, size_t at, const char *what, uint64_t value) {
  return gpufi_fail(err, GPUF_ERR_CORRUPT, 0, "corrupt chunk at byte %zu: %s (%llu)", at, what,
                    (unsigned long long)value);
}

/* Magic, version, and that `encoded_nbytes` can be a chunk at all. */
static gpuf_status check_frame(const uint8_t *encoded, size_t encoded_nbytes, gpuf_error *err) {
  if (encoded_nbytes < GPUFI_HEADER_NBYTES) {
    return corrupt(err, encoded_nbytes, "the header is cut off, bytes present", encoded_nbytes);
  }
  if (gpufi_load_u32(encoded + GPUFI_AT_MAGIC) != GPUFI_CHUNK_MAGIC) {
    return corrupt(err, GPUFI_AT_MAGIC, "not a gpufetch chunk: wrong magic number",
                   gpufi_load_u32(encoded + GPUFI_AT_MAGIC));
  }
  if (encoded[GPUFI_AT_VERSION] < 1 || encoded[GPUFI_AT_VERSION] > GPUFI_CHUNK_VERSION) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "byte %d: chunk format version %d; this gpufetch reads versions 1 to %d, %s",
                      GPUFI_AT_VERSION, encoded[GPUFI_AT_VERSION], GPUFI_CHUNK_VERSION,
                      encoded[GPUFI_AT_VERSION] < 1
                          ? "and no release wrote an older one; write the file again"
                          : "use a newer one");
  }
  const uint64_t payload_nbytes = gpufi_load_u64(encoded + GPUFI_AT_PAYLOAD_NBYTES);
  if (payload_nbytes != encoded_nbytes - GPUFI_HEADER_NBYTES) {
    return corrupt(err, GPUFI_AT_PAYLOAD_NBYTES,
                   "the payload length does not match the bytes present", payload_nbytes);
  }
  if (payload_nbytes % GPUFI_CHUNK_ALIGN != 0) {
    return corrupt(err, GPUFI_AT_PAYLOAD_NBYTES, "the payload length is not a multiple of 16",
                   payload_nbytes);
  }
  return GPUF_OK;
}

/* Dtype, dimensions and raw length. */
static gpuf_status read_shape(const uint8_t *encoded, gpufi_chunk_header *header, gpuf_error *err) {
  gpufi_chunk_shape *shape = &header->shape;
  size_t raw_nbytes = 0;
  shape->dtype = (gpuf_dtype)encoded[GPUFI_AT_DTYPE];
  shape->ndim = encoded[GPUFI_AT_NDIM];
  memcpy(shape->dims, encoded + GPUFI_AT_DIMS, sizeof(shape->dims));
  if (gpufi_chunk_element_nbytes(shape->dtype) == 0) {
    return corrupt(err, GPUFI_AT_DTYPE, "no such dtype code", (uint64_t)shape->dtype);
  }
  if (shape->ndim < 1 || shape->ndim > GPUFI_CODEC_NDIM_MAX) {
    return corrupt(err, GPUFI_AT_NDIM, "the number of dimensions is not in 1 .. 8",
                   (uint64_t)shape->ndim);
  }
  for (int32_t a = shape->ndim; a < GPUFI_CODEC_NDIM_MAX; a++) {
    if (shape->dims[a] != 0) {
      return corrupt(err, GPUFI_AT_DIMS + 4 * (size_t)a, "an unused dimension is not 0",
                     shape->dims[a]);
    }
  }
  if (gpufi_chunk_raw_nbytes(shape, &raw_nbytes, NULL) != GPUF_OK) {
    return corrupt(err, GPUFI_AT_DIMS, "a dimension is 0 or the chunk has 4 GiB or more, last one",
                   shape->dims[shape->ndim - 1]);
  }
  header->raw_nbytes = gpufi_load_u64(encoded + GPUFI_AT_RAW_NBYTES);
  if (header->raw_nbytes != raw_nbytes) {
    return corrupt(err, GPUFI_AT_RAW_NBYTES, "the raw length is not that of the dimensions",
                   header->raw_nbytes);
  }
  return GPUF_OK;
}

void gpufi_header_values(const gpufi_chunk_header *header, gpufi_geometry *g) {
  if ((header->flags & GPUFI_FLAG_PLANES) && gpufi_planes_fit(&header->shape)) {
    const gpufi_chunk_shape coded = gpufi_planes_shape(&header->shape);
    gpufi_geometry_init(g, &coded);
  } else {
    gpufi_geometry_init(g, &header->shape);
  }
}

void gpufi_header_geometry(const gpufi_chunk_header *header, gpufi_geometry *g) {
  gpufi_header_values(header, g);
  if (header->transform == GPUFI_TRANSFORM_DICTIONARY) {
    g->value_nbytes = 1;
  }
}

/* Version 1: the symbol is where the dtype says. */
static bool read_levels(const gpufi_chunk_header *header, gpuf_dtype dtype, size_t value_nbytes,
                        gpufi_ranks *ranks) {
  ranks->first_bits = header->levels & 15;
  ranks->second_bits = header->levels >> 4;
  return gpufi_levels_cut(&ranks->cut, dtype, value_nbytes) && ranks->first_bits >= 1 &&
         ranks->first_bits <= GPUFI_FIRST_BITS_MAX && ranks->second_bits <= GPUFI_SECOND_BITS_MAX &&
         gpufi_ranks_count(ranks) <= (size_t)1 << ranks->cut.bits;
}

bool gpufi_header_ranks(const gpufi_chunk_header *header, gpufi_ranks *ranks) {
  gpufi_geometry g;
  const bool dictionary = header->transform == GPUFI_TRANSFORM_DICTIONARY;
  const gpuf_dtype dtype = dictionary ? GPUF_DTYPE_UINT8 : header->shape.dtype;
  gpufi_header_geometry(header, &g);
  memset(ranks, 0, sizeof(*ranks));
  if (header->version == 1) {
    return read_levels(header, dtype, g.value_nbytes, ranks);
  }
  const unsigned bits = header->levels >> 4;
  ranks->cut = (gpufi_cut){header->symbol, (uint8_t)bits, header->shift};
  return bits >= 1 && bits <= GPUFI_SYMBOL_BITS_MAX &&
         header->symbol + bits <= 8 * g.value_nbytes && header->shift <= header->symbol &&
         gpufi_tree_init(&ranks->tree, header->levels & 15, header->seed) &&
         gpufi_ranks_count(ranks) <= (size_t)1 << bits;
}

void gpufi_header_set_ranks(gpufi_chunk_header *header, const gpufi_ranks *ranks) {
  header->levels = (uint8_t)(ranks->tree.depth | ranks->cut.bits << 4);
  header->symbol = ranks->cut.at;
  header->shift = ranks->cut.shift;
  memset(header->seed, 0, sizeof(header->seed));
  memcpy(header->seed, ranks->tree.leaves + 1, ranks->tree.depth);
}

bool gpufi_header_matches(const gpufi_chunk_header *header, gpufi_matches *matches) {
  gpufi_geometry g;
  gpufi_header_values(header, &g);
  return gpufi_matches_init(matches, header->levels, g.value_nbytes);
}

/* Bytes of the seed field that the seed takes. */
static size_t seed_nbytes(const gpufi_chunk_header *header) {
  gpufi_geometry g;
  gpufi_header_geometry(header, &g);
  if (header->mode == GPUFI_MODE_RANKED && header->version > 1) {
    return header->levels & 15;
  }
  const bool used = header->mode == GPUFI_MODE_CONSTANT || header->axes != 0;
  return used ? g.component_count * g.value_nbytes : 0;
}

static gpuf_status check_zeros(const uint8_t *encoded, size_t begin, size_t end, const char *what,
                               gpuf_error *err) {
  for (size_t i = begin; i < end; i++) {
    if (encoded[i] != 0) {
      return corrupt(err, i, what, encoded[i]);
    }
  }
  return GPUF_OK;
}

/* Whether the version, the mode and the dtype allow the transform. */
static bool transform_fits(const gpufi_chunk_header *header, size_t value_nbytes) {
  const bool w8 = header->mode == GPUFI_MODE_W8, ranked = header->mode == GPUFI_MODE_RANKED;
  const bool is_float = gpufi_chunk_dtype_is_float(header->shape.dtype);
  switch (header->transform) {
  case GPUFI_TRANSFORM_NONE:
    return true;
  case GPUFI_TRANSFORM_ROTATE:
  case GPUFI_TRANSFORM_ORDER:
    return gpufi_mode_is_predicted(header->mode) && is_float;
  case GPUFI_TRANSFORM_DICTIONARY:
    return (w8 || ranked) && value_nbytes > 1;
  case GPUFI_TRANSFORM_QUOTIENT:
  case GPUFI_TRANSFORM_LINEAR:
    return header->version > 1 && w8 && is_float && value_nbytes >= 4;
  case GPUFI_TRANSFORM_SINGLE:
    return header->version > 1 && w8 && is_float && value_nbytes == 4;
  default:
    return false;
  }
}

/* Whether the second half of the seed field is the offset: with values that are integers, or that
 * the transform makes integers, where the seed leaves the place. That of complex128 does not,
 * unless it is of places in a dictionary. */
static bool has_offset(const gpufi_chunk_header *header) {
  const bool is_float = gpufi_chunk_dtype_is_float(header->shape.dtype);
  return gpufi_mode_is_predicted(header->mode) &&
         (!is_float || header->transform == GPUFI_TRANSFORM_DICTIONARY ||
          (gpufi_transform_has_parameters(header->transform) &&
           header->shape.dtype != GPUF_DTYPE_COMPLEX128));
}

/* The flags that the version, the mode and the type of the values allow. */
static unsigned flags_allowed(const gpufi_chunk_header *header, size_t value_nbytes) {
  unsigned flags = header->mode >= GPUFI_MODE_W8 && value_nbytes > 1 ? GPUFI_FLAG_BIG_ENDIAN : 0;
  if (header->version > 1 && header->mode == GPUFI_MODE_W8 && value_nbytes > 1 &&
      gpufi_chunk_dtype_is_float(header->shape.dtype) &&
      header->transform != GPUFI_TRANSFORM_DICTIONARY) {
    const bool fill = (header->flags & GPUFI_FLAG_FILL) != 0;
    const bool based = header->shift != 0 || gpufi_transform_has_parameters(header->transform);
    flags |= based || fill ? GPUFI_FLAG_CORRECTIONS : 0;
    flags |= header->flags & GPUFI_FLAG_CORRECTIONS ? GPUFI_FLAG_FILL : 0;
  }
  if (header->version > 1 && header->mode >= GPUFI_MODE_W8 && gpufi_planes_fit(&header->shape)) {
    flags |= GPUFI_FLAG_PLANES;
  }
  return flags;
}

/* Whether so many low bits of all values may be 0: of floats as they are. Two bits are left, of
 * which the transforms move one. What is ranked is checked with the place of its symbol. */
static bool shift_fits(const gpufi_chunk_header *header, size_t value_nbytes) {
  const bool ranked = header->version > 1 && header->mode == GPUFI_MODE_RANKED;
  return header->shift == 0 || ranked ||
         (header->version > 1 && header->mode == GPUFI_MODE_W8 &&
          header->shift <= 8 * value_nbytes - 2 &&
          gpufi_chunk_dtype_is_float(header->shape.dtype) &&
          header->transform <= GPUFI_TRANSFORM_ORDER);
}

/* Of a seed, as of every value, the low `shift` bits are 0. */
static gpuf_status check_seed_shift(const gpufi_chunk_header *header, gpuf_error *err) {
  gpufi_geometry g;
  gpufi_header_values(header, &g);
  const bool seeded = header->mode == GPUFI_MODE_W8 && header->shift != 0;
  for (size_t c = 0; c < g.component_count && seeded; c++) {
    const uint64_t seed = gpufi_load_value(header->seed + c * g.value_nbytes, g.value_nbytes);
    if (seed >> header->shift << header->shift != seed) {
      return corrupt(err, GPUFI_AT_SEED + c * g.value_nbytes,
                     "the seed has bits below the chunk's shift", header->shift);
    }
  }
  return GPUF_OK;
}

/* Whether the byte of levels says something that the mode allows. */
static bool levels_fit(const gpufi_chunk_header *header) {
  gpufi_ranks ranks;
  gpufi_matches matches;
  switch (header->mode) {
  case GPUFI_MODE_RANKED:
    return gpufi_header_ranks(header, &ranks);
  case GPUFI_MODE_MATCHES:
    return gpufi_header_matches(header, &matches);
  default:
    return header->levels == 0;
  }
}

/* Mode, transform, axes, flags, code lengths, seed and offset: each of those that exist, and 0
 * where the mode has no use for it. */
static gpuf_status read_coding(const uint8_t *encoded, gpufi_chunk_header *header,
                               gpuf_error *err) {
  gpufi_geometry g;
  gpufi_header_values(header, &g);
  const uint8_t last_mode = header->version > 1 ? GPUFI_MODE_MAX : GPUFI_MODE_RANKED;
  if (header->mode > last_mode) {
    return corrupt(err, GPUFI_AT_MODE, "no such mode", header->mode);
  }
  if (!transform_fits(header, g.value_nbytes)) {
    return corrupt(err, GPUFI_AT_TRANSFORM, "no such transform for this mode and dtype",
                   header->transform);
  }
  const uint32_t axes = gpufi_mode_is_predicted(header->mode) ? gpufi_geometry_axes(&g) : 0;
  if (header->axes & ~axes) {
    return corrupt(err, GPUFI_AT_AXES, "an axis that cannot be predicted along", header->axes);
  }
  if (!shift_fits(header, g.value_nbytes)) {
    return corrupt(err, GPUFI_AT_SHIFT, "no such shift for this mode, dtype and transform",
                   header->shift);
  }
  if (header->flags & ~flags_allowed(header, g.value_nbytes)) {
    return corrupt(err, GPUFI_AT_FLAGS, "a flag that does not exist here", header->flags);
  }
  if (!levels_fit(header)) {
    return corrupt(err, GPUFI_AT_LEVELS, "no such codes or blocks for this mode and dtype",
                   header->levels);
  }
  if (header->symbol != 0 && (header->mode != GPUFI_MODE_RANKED || header->version == 1)) {
    return corrupt(err, GPUFI_AT_SYMBOL, "a symbol in a chunk that is not ranked, or of version 1",
                   header->symbol);
  }
  if (header->transform != GPUFI_TRANSFORM_DICTIONARY && header->entries_less1 != 0) {
    return corrupt(err, GPUFI_AT_ENTRIES, "entries of a dictionary that is not there",
                   header->entries_less1);
  }
  size_t seed_end = GPUFI_AT_SEED + seed_nbytes(header);
  gpuf_status status =
      check_zeros(encoded, GPUFI_AT_RESERVED, GPUFI_AT_RAW_NBYTES, "a reserved byte is not 0", err);
  if (status == GPUF_OK && has_offset(header)) {
    gpufi_header_geometry(header, &g);
    header->offset = gpufi_load_value(encoded + GPUFI_AT_OFFSET, g.value_nbytes);
    status = check_zeros(encoded, seed_end, GPUFI_AT_OFFSET, "an unused seed byte is not 0", err);
    seed_end = GPUFI_AT_OFFSET + g.value_nbytes;
  }
  if (status == GPUF_OK) {
    status = check_zeros(encoded, seed_end, GPUFI_AT_CHECKSUM, "an unused seed byte is not 0", err);
  }
  return status == GPUF_OK ? check_seed_shift(header, err) : status;
}

size_t gpufi_header_tables(const gpufi_chunk_header *header, gpufi_tables *tables) {
  gpufi_geometry g;
  gpufi_ranks ranks;
  gpufi_header_values(header, &g);
  *tables = (gpufi_tables){0};
  if (gpufi_transform_has_parameters(header->transform)) {
    tables->parameters = GPUFI_PARAMETERS_NBYTES;
  }
  if (header->flags & GPUFI_FLAG_FILL) {
    tables->parameters += GPUFI_FILL_NBYTES;
  }
  if (header->transform == GPUFI_TRANSFORM_DICTIONARY) {
    tables->dictionary = (header->entries_less1 + (size_t)1) * g.value_nbytes;
  }
  if (header->mode == GPUFI_MODE_RANKED && gpufi_header_ranks(header, &ranks)) {
    tables->symbols = gpufi_ranks_table_nbytes(&ranks);
  }
  return gpufi_round_up_16(tables->parameters) + gpufi_round_up_16(tables->dictionary) +
         gpufi_round_up_16(tables->symbols);
}

/* The payload length, as far as the header decides it: exactly in modes constant and raw, else what
 * the tables and the descriptors take. */
static gpuf_status check_payload(const gpufi_chunk_header *header, gpuf_error *err) {
  gpufi_geometry g;
  gpufi_header_values(header, &g);
  const uint64_t n = header->payload_nbytes;
  gpufi_tables tables;
  gpufi_matches matches;
  bool good;
  if (header->mode == GPUFI_MODE_CONSTANT) {
    good = n == 0;
  } else if (header->mode == GPUFI_MODE_RAW) {
    good = n == gpufi_round_up_16((size_t)header->raw_nbytes);
  } else if (header->mode == GPUFI_MODE_MATCHES) {
    good = gpufi_header_matches(header, &matches) &&
           n >= gpufi_round_up_16(4 * gpufi_matches_block_count(&matches, g.value_count));
  } else {
    good = n >= gpufi_header_tables(header, &tables) +
                    gpufi_round_up_16(4 * gpufi_header_streams(header) * gpufi_block_count(&g));
  }
  return good
             ? GPUF_OK
             : corrupt(err, GPUFI_AT_PAYLOAD_NBYTES, "the payload length does not fit the mode", n);
}

gpuf_status gpufi_header_read(const uint8_t *encoded, size_t encoded_nbytes,
                              gpufi_chunk_header *header, gpuf_error *err) {
  memset(header, 0, sizeof(*header));
  gpuf_status status = check_frame(encoded, encoded_nbytes, err);
  if (status != GPUF_OK) {
    return status;
  }
  header->version = encoded[GPUFI_AT_VERSION];
  header->mode = encoded[GPUFI_AT_MODE];
  header->transform = encoded[GPUFI_AT_TRANSFORM];
  header->axes = encoded[GPUFI_AT_AXES];
  header->flags = encoded[GPUFI_AT_FLAGS];
  header->levels = encoded[GPUFI_AT_LEVELS];
  header->entries_less1 = encoded[GPUFI_AT_ENTRIES];
  header->shift = encoded[GPUFI_AT_SHIFT];
  header->symbol = encoded[GPUFI_AT_SYMBOL];
  header->payload_nbytes = gpufi_load_u64(encoded + GPUFI_AT_PAYLOAD_NBYTES);
  memcpy(header->seed, encoded + GPUFI_AT_SEED, sizeof(header->seed));
  status = read_shape(encoded, header, err);
  if (status == GPUF_OK) {
    status = read_coding(encoded, header, err);
  }
  return status == GPUF_OK ? check_payload(header, err) : status;
}
