/* Blocks of ranked chunks. Each value is split into its symbol and the rest (of a float: the
 * exponent, and sign and mantissa), and a block has four sections, each a list in the order of the
 * values:
 *
 *   | rests | first codes | second codes | stored symbols |
 *     c of    c of          one for each   one for each second
 *     w - e   a bits        first code     code that is all
 *     bits                  that is all    ones, 1 or 2 bytes
 *                           ones, b bits
 *
 * The first three are packed like groups of W8, all at one width. The reader finds the lengths of
 * the later sections by counting in the earlier ones. */
#include "codec/ranked_block.h"
#include "base/arithmetic.h"
#include "codec/block.h"
#include "codec/bytes.h"
#include "codec/corrupt.h"
#include "codec/cpu.h"
#include "codec/sparse.h"

#define NO_INDEX 255 /* more than any: there are at most GPUFI_SYMBOLS_MAX symbols */

void gpufi_ranks_index(const gpufi_ranks *ranks, uint8_t index[1 << GPUFI_SYMBOL_BITS_MAX]) {
  memset(index, NO_INDEX, (size_t)1 << GPUFI_SYMBOL_BITS_MAX);
  for (size_t i = gpufi_ranks_count(ranks); i-- > 0;) {
    index[ranks->symbols[i]] = (uint8_t)i;
  }
}

/* Lists have capacity for whole groups, and for what is read too far: GPUFI_EXPAND_READ_NBYTES. */
#define LIST_CAPACITY (GPUFI_BLOCK_VALUES + GPUFI_EXPAND_READ_NBYTES)

/* The sections of a block, each value or code in a place of its own. */
typedef struct sections {
  size_t count, second_count, stored_count;
  uint64_t rests[GPUFI_BLOCK_VALUES]; /* of the values' type, not of this one */
  uint8_t first[LIST_CAPACITY];       /* codes */
  uint8_t second[LIST_CAPACITY];      /* codes */
  uint8_t stored[2 * LIST_CAPACITY];  /* symbols without a code, as in the block */
} sections;

/* --- encoding --- */

/* The rest is the value with what is above the symbol moved down onto it:
 *
 *   value     S EEEEEEEE MMMMMMMMMMMMMMMMMMMMMMM        a float32, highest bit first
 *   rest               S MMMMMMMMMMMMMMMMMMMMMMM
 *   symbol      EEEEEEEE
 */
static void split_rests(const gpufi_ranks *ranks, size_t value_nbytes, const uint8_t *values,
                        size_t count, void *rests, uint16_t *symbols) {
  const unsigned at = ranks->symbol_at, bits = ranks->symbol_bits;
  const uint64_t low_mask = ((uint64_t)1 << at) - 1, symbol_mask = ((uint64_t)1 << bits) - 1;
  GPUFI_BY_NBYTES(value_nbytes, {
    const T low = (T)low_mask;
    T *const out = rests;
    for (size_t i = 0; i < count; i++) {
      T value;
      memcpy(&value, values + i * sizeof(T), sizeof(T));
      const T from = (T)(value >> at);
      symbols[i] = (uint16_t)(from & symbol_mask);
      out[i] = (T)((value & low) | (T)((T)((uint64_t)from >> bits) << at));
    }
  });
}

/* Without branches: every code and symbol is written, and the place for the next one moves on only
 * where it counts. A stored symbol of one byte is written as two, of which the next one overwrites
 * the second. */
static void split_values(const gpufi_ranks *ranks, const uint8_t *index, size_t value_nbytes,
                         const uint8_t *values, size_t count, sections *p) {
  const size_t n1 = gpufi_first_count(ranks), coded = gpufi_ranks_count(ranks);
  const size_t each = gpufi_symbol_nbytes(ranks);
  uint16_t symbols[GPUFI_BLOCK_VALUES];
  size_t seconds = 0, stored = 0;
  split_rests(ranks, value_nbytes, values, count, p->rests, symbols);
  for (size_t i = 0; i < count; i++) {
    const size_t place = index[symbols[i]];
    p->first[i] = (uint8_t)(place < n1 ? place : n1);
    p->second[seconds] = (uint8_t)((place < coded ? place : coded) - n1);
    seconds += place >= n1;
    memcpy(p->stored + stored * each, &symbols[i], sizeof(symbols[i]));
    stored += place >= coded;
  }
  p->count = count;
  p->second_count = seconds;
  p->stored_count = stored;
}

static size_t sections_nbytes(const gpufi_ranks *ranks, size_t value_nbytes, const sections *p) {
  return gpufi_fixed_nbytes(p->count, gpufi_rest_bits(ranks, value_nbytes)) +
         gpufi_fixed_nbytes(p->count, ranks->first_bits) +
         gpufi_fixed_nbytes(p->second_count, ranks->second_bits) +
         p->stored_count * gpufi_symbol_nbytes(ranks);
}

/* `out` has capacity for GPUFI_GROUP_WRITE_NBYTES more than the sections take. */
static void sections_write(const gpufi_ranks *ranks, size_t value_nbytes, sections *p,
                           uint8_t *out) {
  const unsigned rest = gpufi_rest_bits(ranks, value_nbytes);
  out = gpufi_fixed_pack(value_nbytes, p->rests, p->count, rest, out);
  out = gpufi_fixed_pack(1, p->first, p->count, ranks->first_bits, out);
  out = gpufi_fixed_pack(1, p->second, p->second_count, ranks->second_bits, out);
  memcpy(out, p->stored, p->stored_count * gpufi_symbol_nbytes(ranks));
}

bool gpufi_ranked_pack(const gpufi_ranks *ranks, const uint8_t *index, size_t value_nbytes,
                       const uint8_t *values, size_t count, uint8_t *out, size_t capacity,
                       gpufi_block *block) {
  uint64_t used[GPUFI_BLOCK_VALUES];
  uint8_t buffer[8 * GPUFI_BLOCK_VALUES + GPUFI_GROUP_WRITE_NBYTES];
  gpufi_mask mask;
  sections p;
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
  split_values(ranks, index, value_nbytes, list, list_count, &p);
  const size_t raw_nbytes = list_count * value_nbytes;
  const size_t ranked_nbytes = sections_nbytes(ranks, value_nbytes, &p);
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
  if (!coded) {
    memcpy(out, list, raw_nbytes);
  } else if (capacity - block->nbytes >= GPUFI_GROUP_WRITE_NBYTES) {
    sections_write(ranks, value_nbytes, &p, out);
  } else {
    sections_write(ranks, value_nbytes, &p, buffer);
    memcpy(out, buffer, ranked_nbytes);
  }
  return true;
}

/* --- decoding --- */

/* In sums of a byte, which 255 codes cannot overflow, so that the compiler counts many at a time.
 */
static size_t count_equal(const uint8_t *codes, size_t count, size_t code) {
  size_t equal = 0;
  for (size_t i = 0; i < count;) {
    const size_t end = count - i < UINT8_MAX ? count : i + UINT8_MAX;
    uint8_t here = 0;
    for (; i < end; i++) {
      here = (uint8_t)(here + (codes[i] == (uint8_t)code));
    }
    equal += here;
  }
  return equal;
}

/* The section at *in, which is then past it; false if it does not end before `end`, or is filled up
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

/* The sections of a ranked block; false if they do not fill it exactly, or a stored symbol is out
 * of range. Codes need no check: each of a or b bits is in the table or the last. */
static bool sections_read(const gpufi_ranks *ranks, size_t value_nbytes, const uint8_t *in,
                          size_t in_nbytes, sections *p) {
  const uint8_t *const end = in + in_nbytes;
  const size_t each = gpufi_symbol_nbytes(ranks);
  const unsigned rest = gpufi_rest_bits(ranks, value_nbytes);
  if (!read_section(value_nbytes, &in, end, p->count, rest, p->rests) ||
      !read_section(1, &in, end, p->count, ranks->first_bits, p->first)) {
    return false;
  }
  p->second_count = count_equal(p->first, p->count, gpufi_first_count(ranks));
  if (!read_section(1, &in, end, p->second_count, ranks->second_bits, p->second)) {
    return false;
  }
  p->stored_count = count_equal(p->second, p->second_count, gpufi_second_count(ranks));
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

/* Byte `k` of the symbol of each value. From the back: the stored symbols go where the second code
 * is the last one, the other second codes are looked up, and what that gives goes where the first
 * code is the last one. */
static void symbol_bytes(const gpufi_ranks *ranks, const sections *p, unsigned k,
                         uint8_t *symbols) {
  const size_t n1 = gpufi_first_count(ranks), n2 = gpufi_second_count(ranks);
  const size_t each = gpufi_symbol_nbytes(ranks);
  gpufi_symbols_fn *const look_up = gpufi_cpu_get()->symbols;
  uint8_t firsts[GPUFI_CODES_MAX] = {0}, seconds[GPUFI_CODES_MAX] = {0};
  uint8_t stored[LIST_CAPACITY], escaped[LIST_CAPACITY];
  for (size_t i = 0; i < n1; i++) {
    firsts[i] = (uint8_t)(ranks->symbols[i] >> 8 * k);
  }
  for (size_t i = 0; i < n2; i++) {
    seconds[i] = (uint8_t)(ranks->symbols[n1 + i] >> 8 * k);
  }
  for (size_t i = 0; i < p->stored_count; i++) {
    stored[i] = p->stored[i * each + k];
  }
  stored[p->stored_count] = escaped[p->second_count] = 0; /* read, though not used */
  look_up(p->second, p->second_count, seconds, (unsigned)n2, stored, escaped);
  look_up(p->first, p->count, firsts, (unsigned)n1, escaped, symbols);
}

/* Products by powers of two instead of shifts by a variable: instruction sets have vectors of these
 * for all but the widest values. */
static void join_values(const gpufi_ranks *ranks, size_t value_nbytes, const sections *p,
                        uint8_t *values) {
  const unsigned at = ranks->symbol_at, bits = ranks->symbol_bits;
  uint8_t lower[LIST_CAPACITY], upper[LIST_CAPACITY] = {0};
  symbol_bytes(ranks, p, 0, lower);
  if (gpufi_symbol_nbytes(ranks) == 2) {
    symbol_bytes(ranks, p, 1, upper);
  }
  GPUFI_BY_NBYTES(value_nbytes, {
    const T *const rests = (const T *)p->rests;
    const T unit = (T)((T)1 << at), up = (T)((uint64_t)1 << bits), low = (T)(unit - 1);
    for (size_t i = 0; i < p->count; i++) {
      const T symbol = (T)(sizeof(T) == 8 ? lower[i] | (unsigned)upper[i] << 8 : lower[i]);
      const T rest = (T)((rests[i] & low) | (T)((T)(rests[i] & (T)~low) * up));
      const T value = (T)(rest | (T)(symbol * unit));
      memcpy(values + i * sizeof(T), &value, sizeof(T));
    }
  });
}

/* All values of a block, or those of a sparse one that are not 0; `in` has block->nbytes. */
static gpuf_status unpack_list(const gpufi_ranks *ranks, size_t value_nbytes, const uint8_t *in,
                               size_t at, const gpufi_block *block, uint8_t *values, size_t count,
                               gpuf_error *err) {
  if (block->kind == GPUFI_BLOCK_CODED) {
    sections p;
    p.count = count;
    if (!sections_read(ranks, value_nbytes, in, block->nbytes, &p)) {
      return gpufi_corrupt(err, at, "the sections of a ranked block do not fit it");
    }
    join_values(ranks, value_nbytes, &p, values);
    return GPUF_OK;
  }
  const bool raw = block->kind == GPUFI_BLOCK_RAW;
  if (block->nbytes != (raw ? count * value_nbytes : 0)) {
    return gpufi_corrupt(err, at, "the descriptor of a zero or raw block does not fit it");
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
    return gpufi_corrupt(err, at,
                         "the descriptor of a block of a ranked chunk is none of those allowed");
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
