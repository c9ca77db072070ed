#include "codec/coding.h"

/* Choose between W8 and ranked for values as they are; returns the payload's estimate in bits.
 * *w8 is what W8 would do. */
static uint64_t choose_mode(const gpufi_sampled *of, gpufi_chunk_header *header, gpufi_ranks *ranks,
                            gpufi_w8_choice *w8) {
  const gpufi_geometry *const g = of->g;
  const uint64_t sampled = gpufi_predict_choose(of, NULL, w8);
  const uint64_t bits = w8->bits = sampled * gpufi_group_count(g) / gpufi_sample_count(g);
  header->mode = GPUFI_MODE_W8;
  header->transform = w8->transform;
  header->axes = w8->axes;
  header->offset = w8->offset;
  const uint64_t raw = 8 * (uint64_t)g->value_count * g->value_nbytes;
  /* Noise ends as raw either way, and by way of W8 sooner. */
  const uint64_t limit = bits < raw ? bits : raw;
  const uint64_t ranked = gpufi_ranks_choose(ranks, of, limit);
  if (ranked < limit && ranked + ranked / 64 < limit) { /* W8 decodes faster */
    header->mode = GPUFI_MODE_RANKED;
    header->transform = GPUFI_TRANSFORM_NONE;
    header->axes = 0;
    header->offset = 0;
    return ranked;
  }
  return bits;
}

/* W8 by way of a base, if there is one by which that costs fewer than `bits`. Returns the estimate
 * of what is taken. */
static uint64_t choose_numbers(gpufi_coding *c, const gpufi_sampled *of, uint64_t bits,
                               gpufi_chunk_header *header) {
  gpufi_w8_choice w8;
  if (!gpufi_numbers_choose(of, bits, &c->numbers, &w8)) {
    return bits;
  }
  header->mode = GPUFI_MODE_W8;
  header->transform = w8.transform;
  header->axes = w8.axes;
  header->offset = w8.offset;
  header->shift = c->numbers.shift;
  header->flags |= c->numbers.has_fill ? GPUFI_FLAG_FILL : 0;
  return w8.bits;
}

static void without_base(gpufi_chunk_header *header) {
  header->shift = 0;
  header->flags &= (uint8_t)~GPUFI_FLAG_FILL;
}

/* The same for places in a dictionary, if there is one; it is taken if that costs fewer than
 * `bits`. Returns the estimate of what is taken. A value with a dictionary has 2 bytes or more, so
 * the places take the first half of `scratch` (as many bytes as the raw chunk) at most, and their
 * residuals as many bytes after them.
 */
static uint64_t choose_dictionary(gpufi_coding *c, const gpufi_sampled *of, uint64_t bits,
                                  gpufi_chunk_header *header, uint8_t *scratch) {
  gpufi_coding other;
  gpufi_w8_choice w8;
  gpufi_chunk_header tried = *header;
  if (!gpufi_dictionary_collect(&other.dictionary, of->dtype, &c->geometry, c->values, c->swap,
                                header->axes != 0, scratch)) {
    return bits;
  }
  other.raw = c->raw;
  other.raw_swap = c->raw_swap;
  other.geometry = c->geometry;
  other.geometry.value_nbytes = 1;
  other.values = scratch;
  other.residuals = scratch + c->geometry.value_count;
  other.swap = other.as_is = false;
  other.lines = NULL;
  other.bases = NULL;
  without_base(&tried);
  const uint64_t table = 8 * other.dictionary.count * c->geometry.value_nbytes;
  const gpufi_sampled of_places = {&other.geometry, of->sample, scratch, false, GPUF_DTYPE_UINT8};
  const uint64_t places = choose_mode(&of_places, &tried, &other.ranks, &w8) + table;
  if (places >= bits) {
    return bits;
  }
  tried.transform = GPUFI_TRANSFORM_DICTIONARY;
  tried.entries_less1 = (uint8_t)(other.dictionary.count - 1);
  *header = tried;
  *c = other;
  return places;
}

/* Matches instead, if they are expected to cost fewer than `bits`; false if not. */
static bool choose_matches(gpufi_coding *c, const gpufi_coding *as_they_are,
                           const gpufi_sampled *of, const gpufi_w8_choice *w8, uint64_t bits,
                           gpufi_chunk_header *header, gpufi_matches_encoder *encoder) {
  gpufi_w8_choice chosen;
  unsigned arrangement;
  if (!gpufi_matches_choose(of, w8, bits, encoder, &chosen, &arrangement)) {
    return false;
  }
  *c = *as_they_are;
  header->mode = GPUFI_MODE_MATCHES;
  header->transform = chosen.transform;
  header->axes = chosen.axes;
  header->offset = chosen.offset;
  header->levels = gpufi_matches_levels(arrangement);
  header->entries_less1 = 0;
  without_base(header);
  return true;
}

void gpufi_coding_choose(gpufi_coding *c, gpufi_chunk_header *header, uint8_t *scratch,
                         gpufi_matches_encoder *encoder) {
  const gpufi_coding as_they_are = *c;
  gpufi_sample sample;
  const gpufi_sampled of = {&as_they_are.geometry, &sample, c->values, c->swap,
                            header->shape.dtype};
  gpufi_w8_choice w8;
  gpufi_sample_init(&sample, &c->geometry, c->values);
  uint64_t bits = choose_mode(&of, header, &c->ranks, &w8);
  bits = choose_numbers(c, &of, bits, header);
  bits = choose_dictionary(c, &of, bits, header, scratch);
  /* W8's estimate of noise has 3 bits for each group's code, and some groups are narrower. */
  const uint64_t noise_bits =
      8 * header->raw_nbytes + 2 * (uint64_t)gpufi_group_count(&as_they_are.geometry);
  if (!choose_matches(c, &as_they_are, &of, &w8, bits, header, encoder) && bits >= noise_bits) {
    header->mode = GPUFI_MODE_RAW;
  }
}
