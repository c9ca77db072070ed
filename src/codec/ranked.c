#include "codec/ranked.h"
#include "base/arithmetic.h"
#include "codec/bytes.h"
#include "codec/levels.h"
#include "codec/sparse.h"

#include <assert.h>

#define SYMBOLS (1 << GPUFI_SYMBOL_BITS_MAX)

size_t gpufi_ranks_count(const gpufi_ranks *ranks) {
  return ranks->first_bits != 0
             ? ((size_t)1 << ranks->first_bits) + ((size_t)1 << ranks->second_bits) - 2
             : (size_t)ranks->tree.leaf_count - 1;
}

size_t gpufi_ranks_table_nbytes(const gpufi_ranks *ranks) {
  return gpufi_ranks_count(ranks) * gpufi_symbol_nbytes(ranks);
}

void gpufi_ranks_write(const gpufi_ranks *ranks, uint8_t *table) {
  const size_t nbytes = gpufi_symbol_nbytes(ranks);
  for (size_t i = 0; i < gpufi_ranks_count(ranks); i++) {
    memcpy(table + i * nbytes, &ranks->symbols[i], nbytes);
  }
}

size_t gpufi_ranks_read(gpufi_ranks *ranks, const uint8_t *table) {
  const size_t nbytes = gpufi_symbol_nbytes(ranks), count = gpufi_ranks_count(ranks);
  for (size_t i = 0; i < count; i++) {
    ranks->symbols[i] = (uint16_t)gpufi_load_value(table + i * nbytes, nbytes);
    if (ranks->symbols[i] >> ranks->cut.bits) {
      return i;
    }
  }
  return count;
}

/* --- choosing by the sample --- */

/* The sampled values that are to be coded: all, or, where a mask pays, those that are not 0. */
typedef struct sample {
  size_t count, used_count; /* and how many are not 0 */
  uint64_t mask_bits;       /* of the sampled groups, if only those that are not 0 are coded */
  uint64_t any;             /* the bits that are 1 in any of them */
  uint64_t values[GPUFI_SAMPLE_GROUPS * GPUFI_GROUP_VALUES];
} sample;

/* Add the values of a batch of groups; returns how many groups are not all 0. */
static size_t add_groups(const gpufi_sample_batch *batch, size_t value_nbytes, sample *s) {
  size_t used_groups = 0;
  GPUFI_BY_NBYTES(
      value_nbytes, for (size_t k = 0; k < batch->count; k++) {
        uint64_t any = 0;
        for (size_t j = 0; j < batch->groups[k].count; j++) {
          T x;
          memcpy(&x, batch->raw + (k * GPUFI_GROUP_VALUES + j) * sizeof(T), sizeof(T));
          s->values[s->count++] = x;
          s->used_count += x != 0;
          any |= x;
        }
        s->any |= any;
        used_groups += any != 0;
      });
  return used_groups;
}

static void take_sample(const gpufi_sampled *of, sample *s) {
  const size_t nbytes = of->g->value_nbytes;
  size_t used_groups = 0;
  gpufi_sample_batch batch;
  s->count = s->used_count = 0;
  s->mask_bits = s->any = 0;
  for (size_t k = 0; k < of->sample->count; k += batch.count) {
    gpufi_sample_gather_alone(of, k, SIZE_MAX, &batch);
    used_groups += add_groups(&batch, nbytes, s);
  }
  if (gpufi_mask_pays(s->used_count, s->count)) {
    s->mask_bits = of->sample->count + (uint64_t)GPUFI_GROUP_VALUES * used_groups;
    size_t kept = 0;
    for (size_t i = 0; i < s->count; i++) {
      s->values[kept] = s->values[i];
      kept += s->values[i] != 0;
    }
    s->count = kept;
  }
}

/* A float's exponent, with some or all bits of the mantissa; the top of an integer, with its sign;
 * and all of a byte. */
gpufi_cuts gpufi_ranks_cuts(gpuf_dtype dtype, size_t value_nbytes) {
  gpufi_cut exponent;
  const unsigned bits = 8 * (unsigned)value_nbytes;
  if (!gpufi_levels_cut(&exponent, dtype, value_nbytes)) {
    return (gpufi_cuts){(uint8_t)(bits - 8), 8, GPUFI_SYMBOL_BITS_MAX - 8, 1};
  }
  if (value_nbytes == 1) {
    return (gpufi_cuts){exponent.at, exponent.bits, exponent.at,
                        exponent.at != 0 ? exponent.at : 1};
  }
  const unsigned room = GPUFI_SYMBOL_BITS_MAX - exponent.bits;
  return (gpufi_cuts){exponent.at, exponent.bits, (uint8_t)(room < 2 ? room : 2), 1};
}

/* The symbols that occur, by falling count, equal ones by rising symbol, as many as a table may
 * hold. Returns how many. Sorted by counting the counts. */
static size_t sort_symbols(const uint16_t *counts, size_t symbol_count, uint16_t *sorted) {
  uint16_t first[GPUFI_SAMPLE_GROUPS * GPUFI_GROUP_VALUES + 1]; /* of each count, its first place */
  uint16_t occurring[SYMBOLS + 1] = {0}, most = 0;
  size_t occur_count = 0, listed = 0;
  for (size_t symbol = 0; symbol < symbol_count; symbol++) {
    occurring[occur_count] = (uint16_t)symbol;
    occur_count += counts[symbol] != 0;
    most = counts[symbol] > most ? counts[symbol] : most;
  }
  memset(first, 0, ((size_t)most + 1) * sizeof(first[0]));
  for (size_t i = 0; i < occur_count; i++) {
    first[counts[occurring[i]]]++;
  }
  for (size_t count = most; count > 0; count--) {
    const uint16_t here = first[count];
    first[count] = (uint16_t)listed;
    listed += here;
  }
  for (size_t i = 0; i < occur_count; i++) {
    const size_t place = first[counts[occurring[i]]]++;
    if (place < GPUFI_TREE_LEAVES_MAX - 1) {
      sorted[place] = occurring[i];
    }
  }
  return listed < GPUFI_TREE_LEAVES_MAX - 1 ? listed : GPUFI_TREE_LEAVES_MAX - 1;
}

/* Symbols and codes for one place of the symbol, and the bits of the sample's codes. Those symbols
 * that occur once are a sign of others that do not occur in the sample: as many values again are
 * taken to be coded by their symbol itself. */
static uint64_t build_ranks(gpufi_ranks *ranks, const uint16_t *counts, size_t total) {
  uint32_t weights[GPUFI_TREE_LEAVES_MAX];
  const size_t symbol_count = (size_t)1 << ranks->cut.bits;
  const size_t listed = sort_symbols(counts, symbol_count, ranks->symbols);
  uint64_t bits = 0;
  size_t escaped = total, leaf = 0;
  for (size_t i = 0; i < listed; i++) {
    weights[i] = counts[ranks->symbols[i]];
    escaped = escaped - weights[i] + (weights[i] == 1);
  }
  weights[listed] = 1; /* the last leaf; none of the others is less */
  gpufi_tree_build(&ranks->tree, weights, listed + 1);
  for (unsigned j = 1; j <= ranks->tree.depth; j++) {
    for (size_t end = leaf + ranks->tree.leaves[j]; leaf < end; leaf++) {
      bits += (uint64_t)j * (leaf < listed ? weights[leaf] : escaped);
    }
  }
  return bits + 8 * gpufi_symbol_nbytes(ranks) * escaped;
}

/* How often each symbol occurs: that of `bits` bits in place 2^bits + symbol, for all numbers of
 * bits from `least` to `most`, of which the fewer are the upper ones. */
static void count_symbols(const sample *s, unsigned at, unsigned least, unsigned most,
                          uint16_t counts[2 * SYMBOLS]) {
  uint16_t *const longest = counts + ((size_t)1 << most);
  const unsigned mask = (1u << most) - 1;
  memset(longest, 0, sizeof(counts[0]) << most);
  for (size_t i = 0; i < s->count; i++) {
    longest[s->values[i] >> at & mask]++;
  }
  for (unsigned bits = most; bits-- > least;) {
    const size_t count = (size_t)1 << bits;
    for (size_t i = 0; i < count; i++) {
      counts[count + i] = (uint16_t)(counts[2 * (count + i)] + counts[2 * (count + i) + 1]);
    }
  }
}

uint64_t gpufi_ranks_choose(gpufi_ranks *ranks, const gpufi_sampled *of, uint64_t limit) {
  const gpufi_geometry *const g = of->g;
  sample s;
  uint16_t counts[2 * SYMBOLS];
  const unsigned value_bits = 8 * (unsigned)g->value_nbytes;
  const gpufi_cuts all = gpufi_ranks_cuts(of->dtype, g->value_nbytes);
  const uint64_t groups = gpufi_group_count(g), take = gpufi_sample_count(g);
  uint64_t best = UINT64_MAX;
  take_sample(of, &s);
  assert(take != 0);
  count_symbols(&s, all.at - all.more, all.bits, all.bits + all.more, counts);
  const unsigned zeros = s.any != 0 ? (unsigned)__builtin_ctzll(s.any) : value_bits;
  for (unsigned more = 0; more <= all.more && s.count != 0; more += all.step) {
    gpufi_ranks tried = {
        .cut = {.at = (uint8_t)(all.at - more), .bits = (uint8_t)(all.bits + more)}};
    tried.cut.shift = (uint8_t)(zeros < tried.cut.at ? zeros : tried.cut.at);
    const uint64_t rests = (uint64_t)s.count * gpufi_rest_bits(&tried, g->value_nbytes);
    if ((s.mask_bits + rests) * groups / take >= limit) {
      continue;
    }
    const uint64_t codes = build_ranks(&tried, counts + ((size_t)1 << tried.cut.bits), s.count);
    const uint64_t bits = (s.mask_bits + rests) * groups / take + codes * groups / take +
                          8 * gpufi_ranks_table_nbytes(&tried);
    if (bits < best) {
      best = bits;
      *ranks = tried;
    }
  }
  return best;
}
