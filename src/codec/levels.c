/* A block has four sections, each a list in the order of the values:
 *
 *   | rests | first codes | second codes | stored symbols |
 *     c of    c of          one for each   one for each second
 *     w - e   a bits        first code     code that is all
 *     bits                  that is all    ones, 1 or 2 bytes
 *                           ones, b bits
 *
 * The first three are packed like groups of W8, all at one width. The reader finds the lengths of
 * the later sections by counting in the earlier ones. */
#include "codec/levels.h"
#include "codec/block.h"
#include "codec/bytes.h"
#include "codec/cpu.h"

bool gpufi_levels_cut(gpufi_cut *cut, gpuf_dtype dtype, size_t value_nbytes) {
  static const gpufi_cut exponents[GPUF_DTYPE_MAX + 1] = {
      [GPUF_DTYPE_FLOAT16] = {10, 5, 0},           [GPUF_DTYPE_BFLOAT16] = {7, 8, 0},
      [GPUF_DTYPE_FLOAT32] = {23, 8, 0},           [GPUF_DTYPE_FLOAT64] = {52, 11, 0},
      [GPUF_DTYPE_COMPLEX64] = {23, 8, 0},         [GPUF_DTYPE_COMPLEX128] = {52, 11, 0},
      [GPUF_DTYPE_FLOAT8_E3M4] = {4, 3, 0},        [GPUF_DTYPE_FLOAT8_E4M3] = {3, 4, 0},
      [GPUF_DTYPE_FLOAT8_E4M3B11FNUZ] = {3, 4, 0}, [GPUF_DTYPE_FLOAT8_E4M3FN] = {3, 4, 0},
      [GPUF_DTYPE_FLOAT8_E4M3FNUZ] = {3, 4, 0},    [GPUF_DTYPE_FLOAT8_E5M2] = {2, 5, 0},
      [GPUF_DTYPE_FLOAT8_E5M2FNUZ] = {2, 5, 0},
  };
  *cut = exponents[dtype];
  if (cut->bits == 0 && value_nbytes == 1) {
    cut->bits = 8;
  }
  return cut->bits != 0;
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

/* Codes need no check: each of a or b bits is in the table or the last. */
static bool read_sections(const gpufi_ranks *ranks, size_t value_nbytes, const uint8_t *in,
                          size_t nbytes, sections *p) {
  const uint8_t *const end = in + nbytes;
  const size_t each = gpufi_symbol_nbytes(ranks);
  const unsigned rest = gpufi_rest_bits(ranks, value_nbytes);
  if (!read_section(value_nbytes, &in, end, p->count, rest, p->rests) ||
      !read_section(1, &in, end, p->count, ranks->first_bits, p->first)) {
    return false;
  }
  p->second_count = gpufi_count_byte(p->first, p->count, (uint8_t)((1u << ranks->first_bits) - 1));
  if (!read_section(1, &in, end, p->second_count, ranks->second_bits, p->second)) {
    return false;
  }
  p->stored_count =
      gpufi_count_byte(p->second, p->second_count, (uint8_t)((1u << ranks->second_bits) - 1));
  if ((size_t)(end - in) != p->stored_count * each) {
    return false;
  }
  memcpy(p->stored, in, p->stored_count * each);
  for (size_t i = 0; i < p->stored_count; i++) {
    if (gpufi_load_value(in + i * each, each) >> ranks->cut.bits) {
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
  const size_t n1 = ((size_t)1 << ranks->first_bits) - 1;
  const size_t n2 = ((size_t)1 << ranks->second_bits) - 1;
  const size_t each = gpufi_symbol_nbytes(ranks);
  gpufi_symbols_fn *const look_up = gpufi_cpu_get()->symbols;
  uint8_t firsts[GPUFI_TREE_LEAVES_MAX + 1] = {0}, seconds[GPUFI_TREE_LEAVES_MAX + 1] = {0};
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

bool gpufi_levels_unpack(const gpufi_ranks *ranks, size_t value_nbytes, const uint8_t *in,
                         size_t nbytes, uint8_t *values, size_t count) {
  sections p;
  uint8_t lower[LIST_CAPACITY], upper[LIST_CAPACITY];
  p.count = count;
  if (!read_sections(ranks, value_nbytes, in, nbytes, &p)) {
    return false;
  }
  symbol_bytes(ranks, &p, 0, lower);
  if (gpufi_symbol_nbytes(ranks) == 2) {
    symbol_bytes(ranks, &p, 1, upper);
  }
  gpufi_cpu_get()->join[gpufi_value_index(value_nbytes)](&ranks->cut, p.rests, lower, upper, count,
                                                         values);
  return true;
}
