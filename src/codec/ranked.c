/* Ranked chunks spend few bits on frequent symbols: a prefix code of three levels, of which the
 * lengths a and b and the symbols of the first two are in the chunk. With a = 2 and b = 1, for the
 * symbols A to D in order of their frequency, and others:
 *
 *   A  00        first code 0           D       11 0           first code 3, second code 0
 *   B  01        first code 1           others  11 1 + symbol  first code 3, second code 1
 *   C  10        first code 2
 *
 * First codes, second codes and stored symbols are in lists of their own (ranked_block.c), so that
 * nothing has to be decoded bit by bit. */
#include "codec/ranked.h"
#include "codec/bytes.h"
#include "codec/sample.h"
#include "codec/sparse.h"

#include <assert.h>

#define SYMBOLS (1 << GPUFI_SYMBOL_BITS_MAX)

bool gpufi_ranks_init(gpufi_ranks *ranks, gpuf_dtype dtype, size_t value_nbytes) {
  static const struct {
    uint8_t at, bits;
  } exponents[GPUF_DTYPE_MAX + 1] = {
      [GPUF_DTYPE_FLOAT16] = {10, 5},           [GPUF_DTYPE_BFLOAT16] = {7, 8},
      [GPUF_DTYPE_FLOAT32] = {23, 8},           [GPUF_DTYPE_FLOAT64] = {52, 11},
      [GPUF_DTYPE_COMPLEX64] = {23, 8},         [GPUF_DTYPE_COMPLEX128] = {52, 11},
      [GPUF_DTYPE_FLOAT8_E3M4] = {4, 3},        [GPUF_DTYPE_FLOAT8_E4M3] = {3, 4},
      [GPUF_DTYPE_FLOAT8_E4M3B11FNUZ] = {3, 4}, [GPUF_DTYPE_FLOAT8_E4M3FN] = {3, 4},
      [GPUF_DTYPE_FLOAT8_E4M3FNUZ] = {3, 4},    [GPUF_DTYPE_FLOAT8_E5M2] = {2, 5},
      [GPUF_DTYPE_FLOAT8_E5M2FNUZ] = {2, 5},
  };
  memset(ranks, 0, sizeof(*ranks));
  ranks->symbol_at = exponents[dtype].at;
  ranks->symbol_bits = exponents[dtype].bits;
  if (ranks->symbol_bits == 0 && value_nbytes == 1) {
    ranks->symbol_bits = 8;
  }
  return ranks->symbol_bits != 0;
}

size_t gpufi_ranks_count(const gpufi_ranks *ranks) {
  return gpufi_first_count(ranks) + gpufi_second_count(ranks);
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
    if (ranks->symbols[i] >> ranks->symbol_bits) {
      return i;
    }
  }
  return count;
}

static unsigned symbol_of(const gpufi_ranks *ranks, uint64_t value) {
  return (unsigned)(value >> ranks->symbol_at) & ((1u << ranks->symbol_bits) - 1);
}

/* --- choosing by the sample --- */

/* The cost of each pair of lengths follows from how many sampled values have each symbol: all have
 * a first code; those whose symbol is not among the first 2^a - 1 have a second code too; those
 * whose symbol is in neither level have the symbol itself. */

/* used: of values that are not 0 */
typedef struct sample {
  uint32_t value_count, used_count, used_groups;
  uint16_t counts[SYMBOLS], used_counts[SYMBOLS]; /* by symbol */
} sample;

static void take_sample(const gpufi_ranks *ranks, const gpufi_geometry *g, const uint8_t *raw,
                        bool swap, sample *s) {
  memset(s, 0, sizeof(*s));
  for (size_t k = 0; k < gpufi_sample_count(g); k++) {
    const size_t first = gpufi_sample_first(g, k);
    bool used = false;
    for (size_t i = first; i < first + GPUFI_GROUP_VALUES && i < g->value_count; i++) {
      const uint8_t *const at = raw + i * g->value_nbytes;
      const uint64_t value =
          swap ? gpufi_load_swapped(at, g->value_nbytes) : gpufi_load_value(at, g->value_nbytes);
      const unsigned symbol = symbol_of(ranks, value);
      s->value_count++;
      s->counts[symbol]++;
      s->used_count += value != 0;
      s->used_counts[symbol] += value != 0;
      used = used || value != 0;
    }
    s->used_groups += used;
  }
}

/* The symbols by falling count, equal ones by rising symbol, as many as a table may hold; by
 * insertion, where what falls off the end is lost. Returns how many. */
static size_t sort_symbols(const uint16_t *counts, size_t symbol_count, uint16_t *sorted) {
  size_t n = 0;
  for (size_t symbol = 0; symbol < symbol_count; symbol++) {
    size_t at = n;
    while (at > 0 && counts[sorted[at - 1]] < counts[symbol]) {
      at--;
    }
    if (at < GPUFI_SYMBOLS_MAX) {
      n += n < GPUFI_SYMBOLS_MAX;
      memmove(sorted + at + 1, sorted + at, (n - 1 - at) * sizeof(sorted[0]));
      sorted[at] = (uint16_t)symbol;
    }
  }
  return n;
}

/* The cheapest pair of code lengths for `total` sampled values, and the chunk's cost in bits, which
 * is that of the sample times `groups` / `take`, and the table. covered[i] is how many values have
 * one of the first i symbols. */
static uint64_t choose_levels(gpufi_ranks *ranks, const uint16_t *counts, size_t symbol_count,
                              uint64_t total, uint64_t groups, uint64_t take) {
  uint64_t best = UINT64_MAX, covered[GPUFI_SYMBOLS_MAX + 1] = {0};
  gpufi_ranks tried = *ranks;
  for (size_t i = 0; i < GPUFI_SYMBOLS_MAX; i++) {
    covered[i + 1] = covered[i] + (i < symbol_count ? counts[ranks->symbols[i]] : 0);
  }
  for (unsigned a = 1; a <= GPUFI_FIRST_BITS_MAX; a++) {
    for (unsigned b = 0; b <= GPUFI_SECOND_BITS_MAX; b++) {
      tried.first_bits = (uint8_t)a;
      tried.second_bits = (uint8_t)b;
      if (gpufi_ranks_count(&tried) > symbol_count) {
        continue;
      }
      const uint64_t second = total - covered[gpufi_first_count(&tried)];
      const uint64_t escaped = total - covered[gpufi_ranks_count(&tried)];
      const uint64_t bits = total * a + second * b + escaped * 8 * gpufi_symbol_nbytes(ranks);
      const uint64_t cost = bits * groups / take + 8 * gpufi_ranks_table_nbytes(&tried);
      if (cost < best) {
        best = cost;
        ranks->first_bits = (uint8_t)a;
        ranks->second_bits = (uint8_t)b;
      }
    }
  }
  return best;
}

uint64_t gpufi_ranks_choose(gpufi_ranks *ranks, const gpufi_geometry *g, const uint8_t *raw,
                            bool swap) {
  sample s;
  take_sample(ranks, g, raw, swap, &s);
  const size_t symbol_count = (size_t)1 << ranks->symbol_bits;
  const uint64_t groups = gpufi_group_count(g), take = gpufi_sample_count(g);
  assert(take != 0);
  const bool sparse = gpufi_mask_pays(s.used_count, s.value_count);
  const uint16_t *const counts = sparse ? s.used_counts : s.counts;
  const uint64_t total = sparse ? s.used_count : s.value_count;
  const uint64_t mask = sparse ? take + (uint64_t)GPUFI_GROUP_VALUES * s.used_groups : 0;
  const uint64_t rest = total * gpufi_rest_bits(ranks, g->value_nbytes);
  sort_symbols(counts, symbol_count, ranks->symbols);
  return (mask + rest) * groups / take +
         choose_levels(ranks, counts, symbol_count, total, groups, take);
}
