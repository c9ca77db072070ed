/* Decoding a chunk. In modes W8 and ranked it is
 *
 *   | header, 96 bytes | parameters | dictionary | symbols | descriptors, 4 bytes a block | run |
 * ...
 *
 * with zeros up to a multiple of 16 after each table and after each run, which is 8 blocks. The
 * parameters and the dictionary are there only with those transforms, the symbols only if ranked.
 * Where there are corrections, the descriptors of all their blocks come after those of all blocks
 * of the values, and in each run the blocks of the values come first:
 *
 *   | values 0 ... 7 | corrections 0 ... 7 | zeros | values 8 ... 15 | corrections 8 ... 15 | ...
 *
 * The chunk is untrusted. The header is checked before anything is read by it, then the checksum,
 * then the tables; each block is checked as it is decoded, against its descriptor and against the
 * bytes that are left. So an error may come when some values are already written, always inside
 * `raw`. */
#include "base/arithmetic.h"
#include "base/error.h"
#include "base/floating_point.h"
#include "codec/block.h"
#include "codec/bytes.h"
#include "codec/checksum.h"
#include "codec/codec.h"
#include "codec/corrupt.h"
#include "codec/cpu.h"
#include "codec/dictionary.h"
#include "codec/header.h"
#include "codec/lines.h"
#include "codec/matches.h"
#include "codec/numbers.h"
#include "codec/planes.h"
#include "codec/predict.h"
#include "codec/ranked_block.h"

#include <stdlib.h>

/* Bytes begin .. end - 1 of the chunk are padding. */
static gpuf_status check_padding(const uint8_t *encoded, size_t begin, size_t end,
                                 gpuf_error *err) {
  for (size_t i = begin; i < end; i++) {
    if (encoded[i] != 0) {
      return gpufi_corrupt(err, i, "a padding byte is not 0");
    }
  }
  return GPUF_OK;
}

/* What the tables and the header say about a W8 or ranked chunk. */
typedef struct coding {
  gpufi_geometry geometry; /* of what is packed: values, or places of one byte */
  bool ranked, corrected, version_1;
  gpufi_numbers numbers;            /* only if the header says that the values have a base */
  gpufi_dictionary dictionary;      /* without entries if there is none */
  gpufi_ranks ranks;                /* only if ranked */
  gpufi_leaf_tables leaves;         /* the same, but not in version 1 */
  size_t descriptors_at, blocks_at; /* offsets in the chunk */
} coding;

/* The header has been checked, and that the payload is long enough for the tables and the
 * descriptors. */
static gpuf_status read_coding(const gpufi_chunk_header *header, const uint8_t *encoded, coding *c,
                               gpuf_error *err) {
  gpufi_tables tables;
  gpufi_geometry values;
  c->descriptors_at = GPUFI_HEADER_NBYTES + gpufi_header_tables(header, &tables);
  const size_t dictionary_at = GPUFI_HEADER_NBYTES + gpufi_round_up_16(tables.parameters);
  const size_t symbols_at = dictionary_at + gpufi_round_up_16(tables.dictionary);
  gpufi_header_values(header, &values);
  gpufi_header_geometry(header, &c->geometry);
  c->ranked = header->mode == GPUFI_MODE_RANKED;
  c->version_1 = header->version == 1;
  c->corrected = gpufi_header_streams(header) == 2;
  const size_t descriptor_count = gpufi_header_streams(header) * gpufi_block_count(&c->geometry);
  const size_t descriptors_end = c->descriptors_at + 4 * descriptor_count;
  c->blocks_at = gpufi_round_up_16(descriptors_end);
  if (!gpufi_numbers_read(&c->numbers, header, encoded + GPUFI_HEADER_NBYTES)) {
    return gpufi_corrupt(err, GPUFI_HEADER_NBYTES,
                         "the parameters of the transform are not in their range");
  }
  /* Without the transform the dictionary has no entries, and 0 of them are read. */
  c->dictionary.dtype = header->shape.dtype;
  c->dictionary.value_nbytes = values.value_nbytes;
  c->dictionary.count = tables.dictionary / values.value_nbytes;
  const size_t sorted = gpufi_dictionary_read(&c->dictionary, encoded + dictionary_at);
  if (sorted != c->dictionary.count) {
    return gpufi_corrupt(err, dictionary_at + sorted * values.value_nbytes,
                         "an entry of the dictionary is not above the one before");
  }
  if (c->ranked) {
    gpufi_header_ranks(header, &c->ranks);
    const size_t good = gpufi_ranks_read(&c->ranks, encoded + symbols_at);
    if (good != gpufi_ranks_count(&c->ranks)) {
      return gpufi_corrupt(err, symbols_at, "an entry of the symbol table is out of range");
    }
    if (!c->version_1) {
      gpufi_leaf_tables_init(&c->leaves, &c->ranks.tree, c->ranks.symbols, c->ranks.cut.bits);
    }
  }
  gpuf_status status =
      check_padding(encoded, GPUFI_HEADER_NBYTES + tables.parameters, dictionary_at, err);
  if (status == GPUF_OK) {
    status = check_padding(encoded, dictionary_at + tables.dictionary, symbols_at, err);
  }
  if (status == GPUF_OK) {
    status = check_padding(encoded, symbols_at + tables.symbols, c->descriptors_at, err);
  }
  return status == GPUF_OK ? check_padding(encoded, descriptors_end, c->blocks_at, err) : status;
}

/* Where in a stream of blocks decoding is: block number, and byte of the chunk. */
typedef struct position {
  bool corrections; /* the second stream */
  size_t block, at;
} position;

static size_t descriptor_at(const coding *c, bool corrections, size_t block) {
  return c->descriptors_at + 4 * (block + (corrections ? gpufi_block_count(&c->geometry) : 0));
}

/* Past the blocks of the other stream in the run that block `first` is the first one of. */
static gpuf_status skip_other(const coding *c, const uint8_t *encoded, size_t encoded_nbytes,
                              position *p, size_t first, gpuf_error *err) {
  const size_t blocks = gpufi_block_count(&c->geometry);
  for (size_t b = first; b < blocks && b < first + GPUFI_RUN_BLOCKS; b++) {
    const size_t at = descriptor_at(c, !p->corrections, b);
    p->at += gpufi_block_from_word(gpufi_load_u32(encoded + at)).nbytes;
    if (p->at > encoded_nbytes) {
      return gpufi_corrupt(err, at, "the block runs past the end of the chunk");
    }
  }
  return GPUF_OK;
}

/* Values of which the low `shift` bits are 0 have residuals and seeds of which they are 0 too, and
 * so each block is packed without them. In kinds that do not shift, the residuals themselves show
 * it. */
static gpuf_status check_shift(const coding *c, size_t at, gpufi_block block,
                               const uint8_t *residuals, size_t count, gpuf_error *err) {
  const unsigned shift = c->numbers.shift;
  const bool shifts = block.kind != GPUFI_BLOCK_RAW &&
                      (block.kind != GPUFI_BLOCK_ZERO || (block.form & GPUFI_FORM_SPARSE));
  bool good = !shifts || block.shift >= shift;
  for (size_t i = 0; i < count && block.kind == GPUFI_BLOCK_RAW; i++) {
    const size_t nbytes = c->geometry.value_nbytes;
    const uint64_t residual = gpufi_load_value(residuals + i * nbytes, nbytes);
    good = good && residual >> shift << shift == residual;
  }
  return good ? GPUF_OK : gpufi_corrupt(err, at, "a residual has bits below the chunk's shift");
}

/* The next block's residuals, or values if ranked, and past the padding where a run ends. A
 * descriptor's size is all that says where the next block begins. */
static gpuf_status decode_block(const coding *c, const uint8_t *encoded, size_t encoded_nbytes,
                                position *p, size_t count, uint8_t *residuals, gpuf_error *err) {
  const gpufi_geometry *const g = &c->geometry;
  gpuf_status status = GPUF_OK;
  if (p->corrections && p->block % GPUFI_RUN_BLOCKS == 0) {
    status = skip_other(c, encoded, encoded_nbytes, p, p->block, err);
    if (status != GPUF_OK) {
      return status;
    }
  }
  const size_t word_at = descriptor_at(c, p->corrections, p->block);
  const gpufi_block block = gpufi_block_from_word(gpufi_load_u32(encoded + word_at));
  const uint8_t *const in = encoded + p->at;
  const size_t left = encoded_nbytes - p->at;
  if (block.nbytes > left) {
    return gpufi_corrupt(err, word_at, "the block runs past the end of the chunk");
  }
  if (c->version_1 && block.kind == GPUFI_BLOCK_CODE4 && (block.form & GPUFI_FORM_RANGES)) {
    return gpufi_corrupt(err, word_at, "two ranges of widths in a chunk of version 1");
  }
  /* The readers are told how many bytes follow, so that they need not copy a block that lies far
   * enough before the chunk's end. */
  status = c->ranked
               ? gpufi_ranked_unpack(&c->ranks, &c->leaves, g->value_nbytes, in, left, p->at, block,
                                     residuals, count, err)
               : gpufi_block_unpack(g->value_nbytes, in, left, p->at, block, residuals, count, err);
  if (status == GPUF_OK && c->numbers.shift != 0 && !c->ranked && !p->corrections) {
    status = check_shift(c, p->at, block, residuals, count, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  p->at += block.nbytes;
  p->block++;
  if (p->block % GPUFI_RUN_BLOCKS == 0 || p->block == gpufi_block_count(g)) {
    if (c->corrected && !p->corrections) {
      const size_t first = (p->block - 1) / GPUFI_RUN_BLOCKS * GPUFI_RUN_BLOCKS;
      status = skip_other(c, encoded, encoded_nbytes, p, first, err);
      if (status != GPUF_OK) {
        return status;
      }
    }
    /* p->at <= encoded_nbytes, which is a multiple of 16: neither is this past the end. */
    const size_t padded = gpufi_round_up_16(p->at);
    status = check_padding(encoded, p->at, padded, err);
    p->at = padded;
  }
  return status;
}

static bool all_zero(const uint8_t *bytes, size_t nbytes) {
  static const uint8_t zeros[16];
  return memcmp(bytes, zeros, nbytes) == 0;
}

/* All blocks: to values by way of `lines`, or, if that is null, to residuals (values if ranked) in
 * `raw`. `seed_nbytes` of the first residuals must be 0: the seed stands in for them.
 *
 * With `lines`, a block's residuals are in a buffer that the first-level cache holds, and each
 * value is stored once. Without, what is in `raw` is changed in place afterwards, once for each
 * axis. */
static gpuf_status decode_blocks(const coding *c, const uint8_t *encoded, size_t encoded_nbytes,
                                 size_t seed_nbytes, gpufi_lines *lines, uint8_t *raw,
                                 gpuf_error *err) {
  uint8_t buffer[8 * GPUFI_BLOCK_VALUES + GPUFI_LINE_READ_NBYTES];
  const gpufi_geometry *const g = &c->geometry;
  position p = {false, 0, c->blocks_at};
  bool seeded = true;
  memset(buffer, 0, 16); /* as much as a seed; analysers do not see that every block fills it */
  for (size_t first = 0; first < g->value_count; first += GPUFI_BLOCK_VALUES) {
    const size_t count = gpufi_min_nbytes(g->value_count - first, GPUFI_BLOCK_VALUES);
    uint8_t *const residuals = lines != NULL ? buffer : raw + first * g->value_nbytes;
    const gpuf_status status = decode_block(c, encoded, encoded_nbytes, &p, count, residuals, err);
    if (status != GPUF_OK) {
      return status;
    }
    /* Reported at the end, if no block is wrong in itself. */
    seeded = seeded && (first != 0 || all_zero(residuals, seed_nbytes));
    if (lines != NULL) {
      gpufi_lines_inverse(lines, buffer, count, raw);
    }
  }
  if (p.at != encoded_nbytes) {
    return gpufi_corrupt(err, p.at, "bytes are left over after the last block");
  }
  return seeded
             ? GPUF_OK
             : gpufi_corrupt(err, c->blocks_at, "the first element has both a seed and a residual");
}

/* What is in `raw` to values, with their corrections: after all blocks, for as long as there are
 * values to predict, they are predicted from what is in `raw`. */
static gpuf_status decode_base(const coding *c, const uint8_t *encoded, size_t encoded_nbytes,
                               uint8_t *raw, gpuf_error *err) {
  uint64_t corrections[GPUFI_BLOCK_VALUES];
  const gpufi_geometry *const g = &c->geometry;
  const gpufi_cpu *const cpu = gpufi_cpu_get();
  position p = {true, 0, c->blocks_at};
  for (size_t first = 0; first < g->value_count; first += GPUFI_BLOCK_VALUES) {
    const size_t count = gpufi_min_nbytes(g->value_count - first, GPUFI_BLOCK_VALUES);
    if (c->corrected) {
      const gpuf_status status =
          decode_block(c, encoded, encoded_nbytes, &p, count, (uint8_t *)corrections, err);
      if (status != GPUF_OK) {
        return status;
      }
    }
    uint8_t *const values = raw + first * g->value_nbytes;
    cpu->from_base[gpufi_value_index(g->value_nbytes)](&c->numbers, count, values);
    if (c->corrected) {
      cpu->correct[gpufi_value_index(g->value_nbytes)](&c->numbers, (const uint8_t *)corrections,
                                                       count, values);
    }
  }
  return GPUF_OK;
}

/* The blocks of mode matches: to values by way of `lines`, or, if that is null, to residuals in
 * `raw`. `seed_nbytes` as in decode_blocks. */
static gpuf_status decode_match_blocks(const gpufi_matches *m, size_t value_count,
                                       const uint8_t *encoded, size_t encoded_nbytes,
                                       size_t seed_nbytes, gpufi_lines *lines, uint8_t *raw,
                                       gpuf_error *err) {
  uint8_t buffer[8 * GPUFI_BLOCK_VALUES + GPUFI_LINE_READ_NBYTES];
  gpufi_matches_decoder decoder;
  const size_t sizes_end = GPUFI_HEADER_NBYTES + 4 * gpufi_matches_block_count(m, value_count);
  size_t at = gpufi_round_up_16(sizes_end);
  gpuf_status status = check_padding(encoded, sizes_end, at, err);
  memset(buffer, 0, 16); /* as in decode_blocks */
  gpufi_matches_decoder_init(&decoder, m);
  for (size_t first = 0, word_at = GPUFI_HEADER_NBYTES; first < value_count && status == GPUF_OK;
       first += m->block_values, word_at += 4) {
    const size_t total = gpufi_min_nbytes(value_count - first, m->block_values);
    const size_t nbytes = gpufi_load_u32(encoded + word_at);
    if (nbytes == 0 || nbytes > encoded_nbytes - at) {
      return gpufi_corrupt(err, word_at, "the block is empty or runs past the end of the chunk");
    }
    status = gpufi_matches_decode(&decoder, encoded + at, nbytes, at, total, err);
    at += nbytes;
    for (size_t k = 0; k < total && status == GPUF_OK; k += GPUFI_BLOCK_VALUES) {
      const size_t count = gpufi_min_nbytes(total - k, GPUFI_BLOCK_VALUES);
      uint8_t *const residuals = lines != NULL ? buffer : raw + (first + k) * m->value_nbytes;
      gpufi_matches_get(&decoder, k, count, total, residuals);
      if (first + k == 0 && !all_zero(residuals, seed_nbytes)) {
        return gpufi_corrupt(err, at - nbytes, "the first element has both a seed and a residual");
      }
      if (lines != NULL) {
        gpufi_lines_inverse(lines, buffer, count, raw);
      }
    }
  }
  if (status == GPUF_OK && gpufi_round_up_16(at) != encoded_nbytes) {
    return gpufi_corrupt(err, at, "bytes are left over after the last block");
  }
  return status == GPUF_OK ? check_padding(encoded, at, encoded_nbytes, err) : status;
}

static gpuf_status decode_matches(const gpufi_chunk_header *header, const uint8_t *encoded,
                                  size_t encoded_nbytes, uint8_t *raw, gpuf_error *err) {
  gpufi_geometry g;
  gpufi_matches m;
  gpufi_lines lines;
  gpufi_header_values(header, &g);
  gpufi_header_matches(header, &m);
  const bool swap = (header->flags & GPUFI_FLAG_BIG_ENDIAN) != 0;
  const size_t seed_nbytes = header->axes != 0 ? g.value_nbytes * g.component_count : 0;
  const bool as_they_are =
      header->transform == GPUFI_TRANSFORM_NONE && header->axes == 0 && header->offset == 0;
  const bool by_lines =
      !as_they_are &&
      gpufi_lines_init(&lines, &g, header->transform, header->axes, header->offset, header->seed);
  const gpuf_status status = decode_match_blocks(&m, g.value_count, encoded, encoded_nbytes,
                                                 seed_nbytes, by_lines ? &lines : NULL, raw, err);
  if (status == GPUF_OK && !by_lines) {
    gpufi_predict_inverse(&g, raw, swap, header->transform, header->axes, header->offset,
                          header->seed);
  } else if (status == GPUF_OK && swap) {
    gpufi_predict_inverse(&g, raw, true, GPUFI_TRANSFORM_NONE, 0, 0, header->seed);
  }
  return status;
}

/* Modes W8 and ranked. The order of what is undone: packing, prediction, transform; then, with a
 * dictionary, places become values; and at last the bytes of big-endian values are reversed, by
 * gpufi_predict_inverse in the same pass, or in one of its own where the lines or the base did all
 * else. Of places in a dictionary there is nothing to reverse: its entries are reversed as they are
 * looked up. */
static gpuf_status decode_coded(const gpufi_chunk_header *header, const uint8_t *encoded,
                                size_t encoded_nbytes, uint8_t *raw, gpuf_error *err) {
  coding c;
  gpufi_lines lines;
  gpuf_status status = read_coding(header, encoded, &c, err);
  if (status != GPUF_OK) {
    return status;
  }
  const gpufi_geometry *const g = &c.geometry;
  const bool dictionary = header->transform == GPUFI_TRANSFORM_DICTIONARY;
  const bool based = gpufi_header_has_base(header);
  const bool swap = !dictionary && (header->flags & GPUFI_FLAG_BIG_ENDIAN) != 0;
  const uint8_t transform = dictionary || based ? GPUFI_TRANSFORM_NONE : header->transform;
  const size_t seed_nbytes = header->axes != 0 ? g->value_nbytes * g->component_count : 0;
  /* W8 by lines if this CPU has the kernels; ranked values are not predicted. */
  const bool by_lines = !c.ranked && gpufi_lines_init(&lines, g, transform, header->axes,
                                                      header->offset, header->seed);
  status =
      decode_blocks(&c, encoded, encoded_nbytes, seed_nbytes, by_lines ? &lines : NULL, raw, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (!by_lines) {
    gpufi_predict_inverse(g, raw, swap && !based, transform, header->axes, header->offset,
                          header->seed);
  }
  if (based) {
    status = decode_base(&c, encoded, encoded_nbytes, raw, err);
    if (status != GPUF_OK) {
      return status;
    }
  }
  if (swap && (by_lines || based)) {
    gpufi_predict_inverse(g, raw, true, GPUFI_TRANSFORM_NONE, 0, 0, header->seed);
  }
  return !dictionary || gpufi_dictionary_expand(&c.dictionary, g->value_count,
                                                (header->flags & GPUFI_FLAG_BIG_ENDIAN) != 0, raw)
             ? GPUF_OK
             : gpufi_corrupt(err, c.blocks_at, "a value is outside the dictionary");
}

/* Any mode that has values: of the chunk as it is coded. */
static gpuf_status decode_values(const gpufi_chunk_header *header, const uint8_t *encoded,
                                 size_t encoded_nbytes, uint8_t *values, gpuf_error *err) {
  return header->mode == GPUFI_MODE_MATCHES
             ? decode_matches(header, encoded, encoded_nbytes, values, err)
             : decode_coded(header, encoded, encoded_nbytes, values, err);
}

/* Values are predicted from others as they are coded, so that these are all kept until the last one
 * is decoded. */
static gpuf_status decode_planes(const gpufi_chunk_header *header, const uint8_t *encoded,
                                 size_t encoded_nbytes, uint8_t *raw, gpuf_error *err) {
  uint8_t *const planes = malloc((size_t)header->raw_nbytes);
  if (planes == NULL) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %llu bytes of planes",
                      (unsigned long long)header->raw_nbytes);
  }
  const gpuf_status status = decode_values(header, encoded, encoded_nbytes, planes, err);
  if (status == GPUF_OK) {
    gpufi_planes_join(&header->shape, planes, raw);
  }
  free(planes);
  return status;
}

/* Mode constant: the element, over and over. */
static void fill_constant(uint8_t *raw, size_t raw_nbytes, const uint8_t *element,
                          size_t element_nbytes) {
  size_t done = element_nbytes;
  memcpy(raw, element, element_nbytes);
  while (done < raw_nbytes) { /* double what is there; both sizes are multiples of the element */
    const size_t step = gpufi_min_nbytes(done, raw_nbytes - done);
    memcpy(raw + done, raw, step);
    done += step;
  }
}

static GPUFI_NOT_INLINED gpuf_status decode_payload(const gpufi_chunk_header *header,
                                                    const uint8_t *encoded, size_t encoded_nbytes,
                                                    uint8_t *raw, gpuf_error *err) {
  return header->flags & GPUFI_FLAG_PLANES
             ? decode_planes(header, encoded, encoded_nbytes, raw, err)
             : decode_values(header, encoded, encoded_nbytes, raw, err);
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
  gpuf_status status = gpufi_cpu_check(err);
  if (status == GPUF_OK) {
    status = gpufi_header_read(bytes, encoded_nbytes, &header, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  if (header.raw_nbytes != raw_nbytes) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "byte %d: the chunk decodes to %llu bytes, but %zu are expected",
                      GPUFI_AT_RAW_NBYTES, (unsigned long long)header.raw_nbytes, raw_nbytes);
  }
  /* This finds accidental damage. The checks after it are for forged chunks, too. */
  gpufi_checksum(bytes, encoded_nbytes, sums);
  if (memcmp(sums, bytes + GPUFI_AT_CHECKSUM, sizeof(sums)) != 0) {
    return gpufi_corrupt(err, GPUFI_AT_CHECKSUM,
                         "the checksum does not match; the bytes were altered");
  }
  if (header.mode == GPUFI_MODE_CONSTANT) {
    fill_constant(raw, raw_nbytes, header.seed, gpufi_chunk_element_nbytes(header.shape.dtype));
    return GPUF_OK;
  }
  if (header.mode == GPUFI_MODE_RAW) {
    memcpy(raw, bytes + GPUFI_HEADER_NBYTES, raw_nbytes);
    return check_padding(bytes, GPUFI_HEADER_NBYTES + raw_nbytes, encoded_nbytes, err);
  }
  const gpufi_floating_point callers = gpufi_floating_point_begin();
  status = decode_payload(&header, bytes, encoded_nbytes, raw, err);
  gpufi_floating_point_end(callers);
  return status;
}
