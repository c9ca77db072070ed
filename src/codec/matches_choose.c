/* LZ4 is slow beside the other modes, and so is trying it. So the sample is asked first whether
 * there is something to gain, and only then some blocks are really encoded.
 *
 * Two streams of values may be encoded: the values as they are, and the residuals of what W8 would
 * do; each in two arrangements, as bytes and as bit planes. The sample shows two things of each:
 *
 *   it repeats     some short sequences of values occur more than once
 *   it has idle    bit planes cost little, because many of their bytes are 0 or 255: fewer bits
 *   planes         are busy than the best of the other modes packs
 *
 * What the blocks that are tried take is compared to what W8 would take for the same ones, which is
 * then what matches would take of all, relative to W8: so it matters little if these blocks are not
 * like the rest of the chunk. */
#include "codec/matches_choose.h"
#include "base/arithmetic.h"
#include "codec/bytes.h"
#include "codec/cpu.h"
#include "codec/predict.h"
#include "codec/widths.h"

/* Sequences of so many bytes may repeat; of values of one byte, of so many. */
#define SEQUENCE_NBYTES 16
#define SEQUENCE_NBYTES_8 4
#define SEEN_BITS_LOG2 14

#define PIECE_NBYTES 8192 /* what is tried of a block */
#define PIECES 3
#define MANY_BLOCKS 24 /* from so many on all PIECES are tried, else one */

/* What the sample shows of a stream. */
typedef struct signs {
  uint64_t busy; /* bits that a group of eight has neither all 0 nor all 1, times eight */
  size_t sequences, distinct;
  uint8_t seen[(1 << SEEN_BITS_LOG2) / 8]; /* a bit for each hash of a sequence */
} signs;

static const gpufi_w8_choice as_they_are = {GPUFI_TRANSFORM_NONE, 0, 0, 0};

static bool is_predicted(const gpufi_w8_choice *how) {
  return how->axes != 0 || how->offset != 0;
}

static void residuals_of(const gpufi_sampled *c, const gpufi_w8_choice *how, size_t first,
                         size_t count, uint8_t *residuals) {
  gpufi_predict_range(c->g, c->raw, c->swap, how->transform, how->axes, how->offset, first, count,
                      residuals);
}

/* The sequences of whole groups. */
static void look_for_repeats(const uint8_t *residuals, size_t groups, size_t value_nbytes,
                             signs *found) {
  GPUFI_BY_NBYTES(value_nbytes, {
    const size_t step = sizeof(T) == 1 ? SEQUENCE_NBYTES_8 : SEQUENCE_NBYTES / sizeof(T);
    for (size_t n = 0; n < groups * GPUFI_GROUP_VALUES; n += step) {
      uint64_t hash = 0;
      for (size_t i = 0; i < step; i++) {
        T x;
        memcpy(&x, residuals + (n + i) * sizeof(T), sizeof(T));
        hash = (hash ^ x) * GPUFI_WORD_KEY;
        hash ^= hash >> 29;
      }
      const size_t place = (size_t)(hash >> (64 - SEEN_BITS_LOG2));
      found->distinct += !(found->seen[place / 8] >> place % 8 & 1);
      found->seen[place / 8] |= (uint8_t)(1 << place % 8);
      found->sequences++;
    }
  });
}

/* The axes as a number of the sample's subsets. */
static unsigned subset_of(const gpufi_sample *sample, uint8_t axes) {
  unsigned subset = 0;
  for (unsigned bit = 0; 1u << bit < sample->subset_count; bit++) {
    subset |= (axes >> sample->axis[bit] & 1u) << bit;
  }
  return subset;
}

/* Look at the sampled groups that have eight values. The first element is not predicted, and its
 * residual is 0, from which no offset is taken. */
static void look_at_sample(const gpufi_sampled *c, const gpufi_w8_choice *how, signs *found) {
  const size_t nbytes = c->g->value_nbytes, step = c->g->component_count;
  const unsigned subset = subset_of(c->sample, how->axes);
  const gpufi_numbers numbers = {.transform = how->transform};
  uint8_t residuals[8 * GPUFI_BLOCK_VALUES];
  gpufi_sample_batch batch;
  for (size_t k = 0; k < c->sample->count; k += batch.count) {
    if (how->axes != 0) {
      gpufi_sample_gather(c, k, SIZE_MAX, &batch);
    } else {
      gpufi_sample_gather_alone(c, k, SIZE_MAX, &batch);
    }
    gpufi_sample_convert(c, &numbers, &batch);
    gpufi_cpu_get()->sample_residuals[gpufi_value_index(nbytes)](
        &batch, subset != 0 ? c->sample->subset_count : 1, (unsigned)step, subset, how->offset,
        residuals);
    if (k == 0 && c->sample->places[0].first == 0 && subset != 0) {
      memset(residuals, 0, step * nbytes);
    }
    const bool is_last_short = batch.groups[batch.count - 1].count < GPUFI_GROUP_VALUES;
    const size_t groups = batch.count - (is_last_short ? 1 : 0);
    look_for_repeats(residuals, groups, nbytes, found);
    found->busy += 8 * gpufi_cpu_get()->busy_bits[gpufi_value_index(nbytes)](residuals, groups,
                                                                             is_predicted(how));
  }
}

/* Whether the stream is worth trying, as bytes and as bit planes. */
static void look(const gpufi_sampled *c, const gpufi_w8_choice *how, uint64_t bits, bool *repeats,
                 bool *idles) {
  signs found = {0};
  look_at_sample(c, how, &found);
  /* Were they all different, so many bits would be set: two of them share one now and then. */
  const uint64_t n = found.sequences, different = n - (n * n >> (SEEN_BITS_LOG2 + 1));
  *repeats = 32 * found.distinct < 30 * different;
  *idles = 5 * found.busy * gpufi_group_count(c->g) / c->sample->count < 4 * bits;
}

static uint64_t zigzag(uint64_t x, size_t value_nbytes) {
  const unsigned unused = 64 - 8 * (unsigned)value_nbytes;
  const int64_t r = (int64_t)(x << unused) >> unused;
  return ((uint64_t)r << 1 ^ (uint64_t)(r >> 63)) << unused >> unused;
}

/* The blocks that are tried, or their beginnings. */
typedef struct pieces {
  size_t count;
  size_t first[PIECES], values[PIECES]; /* their first values, and how many these are */
  bool are_first; /* it is the first block; else that is encoded before them, for their matches */
} pieces;

static void pieces_init(pieces *p, const gpufi_geometry *g, const gpufi_matches *m) {
  const size_t blocks = gpufi_matches_block_count(m, g->value_count);
  *p = (pieces){.count = 1, .values = {gpufi_min_nbytes(g->value_count, m->block_values)}};
  p->are_first = blocks <= 2;
  if (p->are_first) {
    return;
  }
  p->count = blocks >= MANY_BLOCKS ? PIECES : 1;
  for (size_t k = 0; k < p->count; k++) { /* neither the first nor the last block */
    p->first[k] = (1 + (2 * k + 1) * (blocks - 2) / (2 * p->count)) * m->block_values;
    p->values[k] = PIECE_NBYTES / g->value_nbytes;
  }
}

/* Bits that W8 takes for the pieces, as it estimates the cost of a sample (predict.c). */
static uint64_t w8_bits(const gpufi_sampled *c, const gpufi_w8_choice *w8, const pieces *p) {
  const size_t nbytes = c->g->value_nbytes;
  uint64_t some = 0, groups = 0, used_groups = 0, widths = 0, used = 0, used_widths = 0;
  uint8_t residuals[8 * GPUFI_BLOCK_VALUES];
  for (size_t k = 0; k < p->count; k++) {
    for (size_t i = 0; i < p->values[k]; i += GPUFI_BLOCK_VALUES) {
      const size_t count = gpufi_min_nbytes(p->values[k] - i, GPUFI_BLOCK_VALUES);
      residuals_of(c, w8, p->first[k] + i, count, residuals);
      memset(residuals + count * nbytes, 0, (size_t)(-count % GPUFI_GROUP_VALUES) * nbytes);
      for (size_t j = 0; j < count; j += GPUFI_GROUP_VALUES) {
        uint64_t zigzags = 0, here = 0;
        GPUFI_BY_NBYTES(
            nbytes, for (size_t v = j; v < j + GPUFI_GROUP_VALUES; v++) {
              T x;
              memcpy(&x, residuals + v * sizeof(T), sizeof(T));
              some |= x;
              zigzags |= zigzag(x, sizeof(T));
              here += x != 0;
            });
        const uint64_t width = zigzags ? 64 - (uint64_t)__builtin_clzll(zigzags) : 0;
        groups++;
        used_groups += zigzags != 0;
        widths += width;
        used += here;
        used_widths += here * width;
      }
    }
  }
  const uint64_t shift = some ? (uint64_t)__builtin_ctzll(some) : 0;
  const uint64_t less = shift + !(some >> (8 * nbytes - 1));
  const uint64_t dense = 3 * groups + GPUFI_GROUP_VALUES * (widths - less * used_groups);
  const uint64_t sparse = groups + GPUFI_GROUP_VALUES * used_groups + used_widths - less * used;
  return dense < sparse ? dense : sparse;
}

/* The residuals of a stream that are encoded, in the encoder's memory for them: the first block's,
 * if it is not a piece, and those of the pieces. */
static void load_stream(const gpufi_sampled *c, const gpufi_w8_choice *how, const pieces *p,
                        gpufi_matches_encoder *encoder) {
  const size_t nbytes = c->g->value_nbytes;
  uint8_t *out = encoder->tried;
  for (size_t k = p->are_first ? 1 : 0; k <= p->count; k++) {
    const size_t first = k == 0 ? 0 : p->first[k - 1];
    const size_t total = k == 0 ? GPUFI_MATCHES_NBYTES / nbytes : p->values[k - 1];
    for (size_t i = 0; i < total; i += GPUFI_BLOCK_VALUES) {
      const size_t count = gpufi_min_nbytes(total - i, GPUFI_BLOCK_VALUES);
      residuals_of(c, how, first + i, count, out);
      out += count * nbytes;
    }
  }
}

/* Bytes of `total` residuals as the encoder's next block. Advances *residuals past them. */
static uint64_t encode_piece(const uint8_t **residuals, size_t total,
                             gpufi_matches_encoder *encoder) {
  const uint8_t *encoded;
  for (size_t i = 0; i < total; i += GPUFI_BLOCK_VALUES) {
    const size_t count = gpufi_min_nbytes(total - i, GPUFI_BLOCK_VALUES);
    gpufi_matches_put(encoder, *residuals, i, count, total);
    *residuals += count * encoder->matches.value_nbytes;
  }
  return gpufi_matches_encode(encoder, total, &encoded);
}

/* The estimate for the chunk in bits, from what the pieces of the stream that is loaded take here
 * and with W8; UINT64_MAX as soon as it is certain to be `limit` or more. */
static uint64_t try_stream(const gpufi_geometry *g, unsigned arrangement, const pieces *p,
                           const gpufi_w8_choice *w8, uint64_t pieces_w8_bits, uint64_t limit,
                           gpufi_matches_encoder *encoder) {
  const uint8_t *residuals = encoder->tried;
  gpufi_matches m;
  gpufi_matches_init(&m, gpufi_matches_levels(arrangement), g->value_nbytes);
  gpufi_matches_encoder_init(encoder, &m);
  uint64_t estimate = 0, first_bits = 0, bits = 0, rest = w8->bits;
  if (!p->are_first) {
    estimate = first_bits = 8 * encode_piece(&residuals, m.block_values, encoder);
    rest -= rest / gpufi_matches_block_count(&m, g->value_count);
  }
  for (size_t k = 0; k < p->count && estimate < limit; k++) {
    /* and its size, in the part of a block that the piece is */
    bits +=
        8 * encode_piece(&residuals, p->values[k], encoder) + 32 * p->values[k] / m.block_values;
    estimate = first_bits + rest * bits / pieces_w8_bits;
  }
  return estimate < limit ? estimate : UINT64_MAX;
}

bool gpufi_matches_choose(const gpufi_sampled *c, const gpufi_w8_choice *w8, uint64_t bits,
                          gpufi_matches_encoder *encoder, gpufi_w8_choice *chosen,
                          unsigned *arrangement) {
  const gpufi_geometry *const g = c->g;
  const gpufi_w8_choice *const streams[2] = {&as_they_are, w8};
  gpufi_matches m;
  pieces p;
  uint64_t pieces_w8_bits = 0;
  gpufi_matches_init(&m, gpufi_matches_levels(GPUFI_ARRANGED_BYTES), g->value_nbytes);
  pieces_init(&p, g, &m);
  uint64_t best = bits - bits / 32;
  *chosen = (gpufi_w8_choice){.bits = UINT64_MAX};
  for (size_t s = 0; s < (is_predicted(w8) ? 2 : 1); s++) {
    const gpufi_w8_choice *const how = streams[s];
    const unsigned planes = is_predicted(how) ? GPUFI_ARRANGED_ZIGZAG : GPUFI_ARRANGED_BITS;
    bool repeats, idles;
    look(c, how, bits, &repeats, &idles);
    if ((repeats || idles) && pieces_w8_bits == 0) {
      pieces_w8_bits = w8_bits(c, w8, &p);
    }
    if (pieces_w8_bits == 0 || !(repeats || idles)) {
      continue;
    }
    load_stream(c, how, &p, encoder);
    for (unsigned a = repeats ? 0 : 1; a < 2; a++) {
      const unsigned tried = a == 0 ? GPUFI_ARRANGED_BYTES : planes;
      const uint64_t estimate = try_stream(g, tried, &p, w8, pieces_w8_bits, best, encoder);
      if (estimate < best) {
        *chosen = *how;
        chosen->bits = best = estimate;
        *arrangement = tried;
      }
    }
  }
  return chosen->bits != UINT64_MAX;
}
