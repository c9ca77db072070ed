#include "codec/format.h"
#include "codec/widths.h"
#include "core/error.h"

#include <assert.h>

#define SYMBOLS (1 << GPUFI_SYMBOL_BITS_MAX)
#define NO_PLACE 255

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

static size_t first_count(const gpufi_ranks *ranks) {
  return ((size_t)1 << ranks->first_bits) - 1;
}

static size_t second_count(const gpufi_ranks *ranks) {
  return ((size_t)1 << ranks->second_bits) - 1;
}

static size_t symbol_nbytes(const gpufi_ranks *ranks) {
  return ranks->symbol_bits > 8 ? 2 : 1;
}

/* Bits of a value that are not its symbol. */
static unsigned rest_bits(const gpufi_ranks *ranks, size_t value_nbytes) {
  return (unsigned)(8 * value_nbytes - ranks->symbol_bits);
}

size_t gpufi_ranks_count(const gpufi_ranks *ranks) {
  return first_count(ranks) + second_count(ranks);
}

size_t gpufi_ranks_table_nbytes(const gpufi_ranks *ranks) {
  return gpufi_ranks_count(ranks) * symbol_nbytes(ranks);
}

void gpufi_ranks_write(const gpufi_ranks *ranks, uint8_t *table) {
  const size_t nbytes = symbol_nbytes(ranks);
  for (size_t i = 0; i < gpufi_ranks_count(ranks); i++) {
    memcpy(table + i * nbytes, &ranks->symbols[i], nbytes);
  }
}

size_t gpufi_ranks_read(gpufi_ranks *ranks, const uint8_t *table) {
  const size_t nbytes = symbol_nbytes(ranks), count = gpufi_ranks_count(ranks);
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

typedef struct sample {
  uint32_t value_count, used_count, used_groups; /* used: not 0 */
  uint16_t counts[SYMBOLS], used_counts[SYMBOLS];
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

/* The symbols by falling count, equal ones by rising symbol, as many as a table may hold. */
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

/* The cheapest pair of code lengths for `total` values, and its cost in bits, tables included. */
static uint64_t choose_levels(gpufi_ranks *ranks, const uint16_t *counts, size_t symbol_count,
                              uint64_t total, uint64_t scale_numerator, uint64_t scale) {
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
      const uint64_t second = total - covered[first_count(&tried)];
      const uint64_t escaped = total - covered[gpufi_ranks_count(&tried)];
      const uint64_t bits = total * a + second * b + escaped * 8 * symbol_nbytes(ranks);
      const uint64_t cost = bits * scale_numerator / scale + 8 * gpufi_ranks_table_nbytes(&tried);
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
  const uint64_t rest = total * rest_bits(ranks, g->value_nbytes);
  sort_symbols(counts, symbol_count, ranks->symbols);
  return (mask + rest) * groups / take +
         choose_levels(ranks, counts, symbol_count, total, groups, take);
}

/* --- blocks --- */

void gpufi_ranks_index(const gpufi_ranks *ranks, uint8_t index[SYMBOLS]) {
  memset(index, NO_PLACE, SYMBOLS);
  for (size_t i = gpufi_ranks_count(ranks); i-- > 0;) {
    index[ranks->symbols[i]] = (uint8_t)i;
  }
}

/* A block's values taken apart. Lists have room for whole groups. */
typedef struct parts {
  size_t count, second_count, stored_count;
  uint64_t rests[GPUFI_BLOCK_VALUES];         /* of the values' type, not of this one */
  uint8_t first[GPUFI_BLOCK_VALUES + 1];      /* codes */
  uint8_t second[GPUFI_BLOCK_VALUES + 1];     /* codes; room for one more, as in `stored` */
  uint8_t stored[2 * GPUFI_BLOCK_VALUES + 2]; /* symbols without a code, as in the block */
} parts;

/* The rest is the value with what is above the symbol moved down. */
static void take_apart(const gpufi_ranks *ranks, const uint8_t *index, size_t value_nbytes,
                       const uint8_t *values, size_t count, parts *p) {
  const size_t n1 = first_count(ranks), coded = gpufi_ranks_count(ranks);
  const unsigned at = ranks->symbol_at, bits = ranks->symbol_bits;
  const size_t each = symbol_nbytes(ranks);
  size_t second_count = 0, stored_count = 0;
  GPUFI_BY_NBYTES(value_nbytes, {
    T *const rests = (T *)p->rests;
    for (size_t i = 0; i < count; i++) {
      T value;
      memcpy(&value, values + i * sizeof(T), sizeof(T));
      const T low = (T)(value & (((uint64_t)1 << at) - 1));
      const uint16_t symbol = (uint16_t)(value >> at & (((uint64_t)1 << bits) - 1));
      const size_t place = index[symbol];
      rests[i] = (T)(low | (T)((T)((uint64_t)value >> at >> bits) << at));
      p->first[i] = (uint8_t)(place < n1 ? place : n1);
      p->second[second_count] = (uint8_t)((place < coded ? place : coded) - n1);
      memcpy(p->stored + stored_count * each, &symbol, each);
      second_count += place >= n1;
      stored_count += place >= coded;
    }
  });
  p->count = count;
  p->second_count = second_count;
  p->stored_count = stored_count;
}

static size_t parts_nbytes(const gpufi_ranks *ranks, size_t value_nbytes, const parts *p) {
  return gpufi_fixed_nbytes(p->count, rest_bits(ranks, value_nbytes)) +
         gpufi_fixed_nbytes(p->count, ranks->first_bits) +
         gpufi_fixed_nbytes(p->second_count, ranks->second_bits) +
         p->stored_count * symbol_nbytes(ranks);
}

static uint8_t *write_section(size_t value_nbytes, void *values, size_t count, unsigned width,
                              uint8_t *out) {
  gpufi_fixed_pack(value_nbytes, values, count, width, out);
  return out + gpufi_fixed_nbytes(count, width);
}

static void parts_write(const gpufi_ranks *ranks, size_t value_nbytes, parts *p, uint8_t *out) {
  const unsigned rest = rest_bits(ranks, value_nbytes);
  out = write_section(value_nbytes, p->rests, p->count, rest, out);
  out = write_section(1, p->first, p->count, ranks->first_bits, out);
  out = write_section(1, p->second, p->second_count, ranks->second_bits, out);
  memcpy(out, p->stored, p->stored_count * symbol_nbytes(ranks));
}

bool gpufi_ranked_pack(const gpufi_ranks *ranks, const uint8_t *index, size_t value_nbytes,
                       const uint8_t *values, size_t count, uint8_t *out, size_t capacity,
                       gpufi_block *block) {
  uint64_t used[GPUFI_BLOCK_VALUES];
  gpufi_mask mask;
  parts p;
  const uint8_t *list = values;
  size_t list_count = gpufi_used_count(value_nbytes, values, count);
  const bool sparse = gpufi_mask_pays(list_count, count);
  *block = (gpufi_block){0};
  if (list_count == 0) {
    return true;
  }
  if (sparse) {
    gpufi_mask_of(value_nbytes, values, count, &mask);
    mask.nbytes = gpufi_mask_nbytes(&mask, count);
    gpufi_mask_compact(value_nbytes, values, count, (uint8_t *)used);
    list = (const uint8_t *)used;
    block->form = GPUFI_FORM_SPARSE;
    block->nbytes = (uint32_t)mask.nbytes;
  } else {
    list_count = count;
  }
  take_apart(ranks, index, value_nbytes, list, list_count, &p);
  const size_t raw_nbytes = list_count * value_nbytes;
  const size_t ranked_nbytes = parts_nbytes(ranks, value_nbytes, &p);
  const bool coded = ranked_nbytes < raw_nbytes;
  block->kind = coded ? GPUFI_BLOCK_CODED : GPUFI_BLOCK_RAW;
  block->nbytes += (uint32_t)(coded ? ranked_nbytes : raw_nbytes);
  if (block->nbytes > capacity) {
    return false;
  }
  if (sparse) {
    gpufi_mask_write(&mask, count, out);
    out += mask.nbytes;
  }
  if (coded) {
    parts_write(ranks, value_nbytes, &p, out);
  } else {
    memcpy(out, list, raw_nbytes);
  }
  return true;
}

static gpuf_status corrupt(gpuf_error *err, size_t at, const char *what) {
  return gpufi_fail(err, GPUF_ERR_CORRUPT, 0, "corrupt chunk at byte %zu: %s", at, what);
}

static size_t count_equal(const uint8_t *codes, size_t count, size_t code) {
  size_t equal = 0;
  for (size_t i = 0; i < count; i++) {
    equal += codes[i] == code;
  }
  return equal;
}

/* A section at *in, which moves past it; false if it does not end before `end`, or is filled up
 * with anything but zeros. */
static bool read_section(size_t value_nbytes, const uint8_t **in, const uint8_t *end, size_t count,
                         unsigned width, void *values) {
  const size_t nbytes = gpufi_fixed_nbytes(count, width);
  if (nbytes > (size_t)(end - *in) ||
      !gpufi_fixed_unpack(value_nbytes, *in, count, width, values)) {
    return false;
  }
  *in += nbytes;
  return true;
}

/* The sections of a ranked block; false if they do not fill it exactly. */
static bool parts_read(const gpufi_ranks *ranks, size_t value_nbytes, const uint8_t *in,
                       size_t in_nbytes, parts *p) {
  const uint8_t *const end = in + in_nbytes;
  const size_t each = symbol_nbytes(ranks);
  if (!read_section(value_nbytes, &in, end, p->count, rest_bits(ranks, value_nbytes), p->rests) ||
      !read_section(1, &in, end, p->count, ranks->first_bits, p->first)) {
    return false;
  }
  p->second_count = count_equal(p->first, p->count, first_count(ranks));
  if (!read_section(1, &in, end, p->second_count, ranks->second_bits, p->second)) {
    return false;
  }
  p->stored_count = count_equal(p->second, p->second_count, second_count(ranks));
  if ((size_t)(end - in) != p->stored_count * each) {
    return false;
  }
  memcpy(p->stored, in, p->stored_count * each);
  for (size_t i = 0; i < p->stored_count; i++) {
    if (gpufi_load_value(in + i * each, each) >> ranks->symbol_bits) {
      return false;
    }
  }
  return true;
}

/* The symbols of the values whose first code is the last one. */
static void second_symbols(const gpufi_ranks *ranks, const parts *p, uint16_t *symbols) {
  const size_t n1 = first_count(ranks), n2 = second_count(ranks), each = symbol_nbytes(ranks);
  const uint8_t *stored = p->stored;
  for (size_t i = 0; i < p->second_count; i++) {
    uint16_t symbol = 0;
    memcpy(&symbol, stored, each);
    const bool has_code = p->second[i] < n2;
    symbols[i] = has_code ? ranks->symbols[n1 + p->second[i]] : symbol;
    stored += has_code ? 0 : each;
  }
}

static void put_together(const gpufi_ranks *ranks, size_t value_nbytes, const parts *p,
                         uint8_t *values) {
  const size_t n1 = first_count(ranks);
  const unsigned at = ranks->symbol_at, bits = ranks->symbol_bits;
  uint16_t seconds[GPUFI_BLOCK_VALUES + 1] = {0};
  const uint16_t *next = seconds;
  second_symbols(ranks, p, seconds);
  GPUFI_BY_NBYTES(value_nbytes, {
    const T *const rests = (const T *)p->rests;
    for (size_t i = 0; i < p->count; i++) {
      const bool has_code = p->first[i] < n1;
      const T symbol = (T)(has_code ? ranks->symbols[p->first[i]] : *next);
      const T low = (T)(rests[i] & (((uint64_t)1 << at) - 1));
      const uint64_t high = (uint64_t)(rests[i] >> at) << bits;
      const T value = (T)(low | (T)((T)(high | symbol) << at));
      next += !has_code;
      memcpy(values + i * sizeof(T), &value, sizeof(T));
    }
  });
}

/* All values of a block, or those of a sparse one that are not 0. */
static gpuf_status unpack_list(const gpufi_ranks *ranks, size_t value_nbytes, const uint8_t *in,
                               size_t at, const gpufi_block *block, uint8_t *values, size_t count,
                               gpuf_error *err) {
  if (block->kind == GPUFI_BLOCK_CODED) {
    parts p;
    p.count = count;
    p.stored[0] = p.stored[1] = 0; /* read, though not used, where nothing is stored */
    if (!parts_read(ranks, value_nbytes, in, block->nbytes, &p)) {
      return corrupt(err, at, "the sections of a ranked block do not fit it");
    }
    put_together(ranks, value_nbytes, &p, values);
    return GPUF_OK;
  }
  const bool raw = block->kind == GPUFI_BLOCK_RAW;
  if (block->nbytes != (raw ? count * value_nbytes : 0)) {
    return corrupt(err, at, "the descriptor of a zero or raw block does not fit it");
  }
  if (raw) {
    memcpy(values, in, count * value_nbytes);
  } else {
    memset(values, 0, count * value_nbytes);
  }
  return GPUF_OK;
}

gpuf_status gpufi_ranked_unpack(const gpufi_ranks *ranks, size_t value_nbytes, const uint8_t *in,
                                size_t at, gpufi_block block, uint8_t *values, size_t count,
                                gpuf_error *err) {
  uint64_t used[GPUFI_BLOCK_VALUES + GPUFI_EXPAND_READ_NBYTES / 8];
  gpufi_mask mask;
  const bool sparse = block.form == GPUFI_FORM_SPARSE;
  const bool has_list = block.kind == GPUFI_BLOCK_CODED || block.kind == GPUFI_BLOCK_RAW;
  if (block.width != 0 || block.shift != 0 || (block.form != 0 && !(sparse && has_list)) ||
      (!has_list && block.kind != GPUFI_BLOCK_ZERO)) {
    return corrupt(err, at, "the descriptor of a block of a ranked chunk is none of those allowed");
  }
  if (!sparse) {
    return unpack_list(ranks, value_nbytes, in, at, &block, values, count, err);
  }
  gpuf_status status = gpufi_mask_read(in, block.nbytes, at, count, &mask, err);
  if (status != GPUF_OK) {
    return status;
  }
  block.nbytes -= (uint32_t)mask.nbytes;
  status = unpack_list(ranks, value_nbytes, in + mask.nbytes, at + mask.nbytes, &block,
                       (uint8_t *)used, mask.used_count, err);
  if (status == GPUF_OK) {
    gpufi_mask_expand(value_nbytes, &mask, (const uint8_t *)used, count, values);
  }
  return status;
}
