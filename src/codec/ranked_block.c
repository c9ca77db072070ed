/* Blocks of ranked chunks. Each value is split into its symbol and the rest (of a float: the
 * exponent, perhaps with some bits of the mantissa; and sign and mantissa), and a block has three
 * sections:
 *
 *   | rests | codes | stored symbols |
 *     c of    a bit    one for each code of
 *     w - e   a step   the last leaf, 1 or
 *     - t              2 bytes
 *     bits
 *
 * The rests are packed like groups of W8, all at one width. The codes are in the order of the
 * tree's levels: first the step to level 1 of every value, then the step to level 2 of each value
 * that is not at a leaf yet, and so on (walks.c). So nothing has to be decoded bit by bit. */
#include "codec/ranked_block.h"
#include "base/arithmetic.h"
#include "codec/block.h"
#include "codec/bytes.h"
#include "codec/corrupt.h"
#include "codec/cpu.h"
#include "codec/levels.h"
#include "codec/sparse.h"

/* Lists have capacity for what kernels read or write too far. */
#define LIST_CAPACITY (GPUFI_BLOCK_VALUES + GPUFI_WALK_NBYTES)

/* The sections of a block. */
typedef struct sections {
  size_t count, code_bits, stored_count;
  bool packed; /* the rests are as a block has them, else one by one */
  uint64_t rests[GPUFI_BLOCK_VALUES + GPUFI_GROUP_WRITE_NBYTES / 8];
  uint8_t lower[LIST_CAPACITY], upper[LIST_CAPACITY]; /* of the values' symbols */
  uint8_t leaves[LIST_CAPACITY];
  uint8_t codes[GPUFI_CODE_NBYTES_MAX + GPUFI_WALK_NBYTES];
  uint8_t stored[2 * GPUFI_BLOCK_VALUES + 2]; /* and what is written too far */
} sections;

/* --- encoding --- */

/* The symbols of the last leaf, `total` of them, which are stored as they are: a search finds few
 * of them soonest; many are written without a branch, each in the place after the last one stored,
 * which the next one takes if it is not of that leaf. */
#define FEW_STORED 64

static void store_symbols(const gpufi_ranks *ranks, size_t total, sections *p) {
  const uint8_t last = (uint8_t)(ranks->tree.leaf_count - 1), *next = p->leaves;
  const size_t each = gpufi_symbol_nbytes(ranks);
  const uint8_t *const upper = each == 2 ? p->upper : p->lower;
  uint8_t *to = p->stored;
  p->stored_count = total * each;
  if (total > FEW_STORED) {
    for (size_t i = 0; i < p->count; i++) {
      to[0] = p->lower[i];
      to[1] = upper[i]; /* the next one's place if symbols are of one byte */
      to += p->leaves[i] == last ? each : 0;
    }
    return;
  }
  for (size_t n = 0; n < total; n++, to += each) {
    next = memchr(next, last, (size_t)(p->leaves + p->count - next));
    const size_t at = (size_t)(next++ - p->leaves);
    to[0] = p->lower[at];
    to[1] = upper[at];
  }
}

static void split_values(const gpufi_ranks *ranks, const gpufi_walk_tables *tables,
                         size_t value_nbytes, const uint8_t *values, size_t count, sections *p) {
  const gpufi_cpu *const cpu = gpufi_cpu_get();
  const size_t index = gpufi_value_index(value_nbytes);
  p->count = count;
  p->packed = cpu->take_apart[index] != NULL;
  size_t lasts;
  if (p->packed) {
    lasts = cpu->take_apart[index](&ranks->cut, tables, values, count, (uint8_t *)p->rests,
                                   p->lower, p->upper, p->leaves);
  } else {
    cpu->split[index](&ranks->cut, values, count, p->rests, p->lower, p->upper);
    cpu->leaves(tables, p->lower, p->upper, count, p->leaves);
    lasts = gpufi_count_byte(p->leaves, count, tables->last);
  }
  store_symbols(ranks, lasts, p);
  p->code_bits = cpu->write_walks(p->leaves, count, &ranks->tree, tables, p->codes);
}

static size_t sections_nbytes(const gpufi_ranks *ranks, size_t value_nbytes, const sections *p) {
  return gpufi_fixed_nbytes(p->count, gpufi_rest_bits(ranks, value_nbytes)) +
         (p->code_bits + 7) / 8 + p->stored_count;
}

/* `out` has capacity for GPUFI_GROUP_WRITE_NBYTES more than the sections take. */
static void sections_write(const gpufi_ranks *ranks, size_t value_nbytes, sections *p,
                           uint8_t *out) {
  const unsigned rest = gpufi_rest_bits(ranks, value_nbytes);
  const size_t codes = (p->code_bits + 7) / 8;
  if (p->packed) {
    const size_t nbytes = gpufi_fixed_nbytes(p->count, rest);
    memcpy(out, p->rests, nbytes);
    out += nbytes;
  } else {
    out = gpufi_fixed_pack(value_nbytes, p->rests, p->count, rest, out);
  }
  memcpy(out, p->codes, codes);
  memcpy(out + codes, p->stored, p->stored_count);
}

bool gpufi_ranked_pack(const gpufi_ranks *ranks, const gpufi_walk_tables *tables,
                       size_t value_nbytes, const uint8_t *values, size_t count, uint8_t *out,
                       size_t capacity, gpufi_block *block) {
  const gpufi_cpu *const cpu = gpufi_cpu_get();
  uint64_t used[GPUFI_BLOCK_VALUES];
  uint8_t mask_bytes[GPUFI_MASK_WRITE_NBYTES];
  uint8_t buffer[8 * GPUFI_BLOCK_VALUES + GPUFI_GROUP_WRITE_NBYTES];
  gpufi_mask mask;
  sections p;
  const uint8_t *list = values;
  uint64_t any;
  size_t list_count = cpu->look_at[gpufi_value_index(value_nbytes)](values, count, &any);
  const bool sparse = gpufi_mask_pays(list_count, count);
  *block = (gpufi_block){0};
  if (list_count == 0) {
    return true;
  }
  if (sparse) {
    cpu->compact[gpufi_value_index(value_nbytes)](values, count, &mask, (uint8_t *)used);
    mask.nbytes = gpufi_mask_write(cpu->compact[0], &mask, count, mask_bytes);
    list = (const uint8_t *)used;
    block->form = GPUFI_FORM_SPARSE;
    block->nbytes = (uint32_t)mask.nbytes;
  } else {
    list_count = count;
  }
  const size_t raw_nbytes = list_count * value_nbytes;
  size_t ranked_nbytes = raw_nbytes;
  if ((any & ((UINT64_C(1) << ranks->cut.shift) - 1)) == 0) { /* what the rests leave out */
    split_values(ranks, tables, value_nbytes, list, list_count, &p);
    ranked_nbytes = sections_nbytes(ranks, value_nbytes, &p);
  }
  const bool coded = ranked_nbytes < raw_nbytes;
  block->kind = coded ? GPUFI_BLOCK_CODED : GPUFI_BLOCK_RAW;
  block->nbytes += (uint32_t)(coded ? ranked_nbytes : raw_nbytes);
  if (block->nbytes > capacity) {
    return false;
  }
  if (sparse) {
    memcpy(out, mask_bytes, mask.nbytes);
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

/* Kernels may read so many bytes past the first one of a block's codes, and so past the block. */
#define BLOCK_NBYTES_MAX 0x3fff /* of a descriptor */
#define CODES_READ_NBYTES (GPUFI_CODE_NBYTES_MAX + GPUFI_WALK_NBYTES)

/* Where the sections of a coded block are, and what they say; the stored symbols are a copy, after
 * which there are zeros for what is read too far. */
typedef struct coded {
  size_t count, stored_count;
  const uint8_t *rests;
  uint8_t leaves[LIST_CAPACITY];
  uint8_t stored[2 * GPUFI_BLOCK_VALUES + GPUFI_EXPAND_READ_NBYTES];
} coded;

/* The stored symbols, p->stored_count of them; false if they have another size, or one is out of
 * range. */
static bool read_stored(const gpufi_ranks *ranks, const uint8_t *in, size_t nbytes, coded *p) {
  const size_t each = gpufi_symbol_nbytes(ranks);
  if (nbytes != p->stored_count * each) {
    return false;
  }
  unsigned even = 0, odd = 0; /* the bits of any symbol's lower byte, and upper one */
  for (size_t i = 0; i < nbytes; i += each) {
    even |= in[i];
    odd |= in[i + each - 1];
  }
  if ((each == 2 ? even | odd << 8 : even) >> ranks->cut.bits != 0) {
    return false;
  }
  memcpy(p->stored, in, nbytes);
  memset(p->stored + nbytes, 0, GPUFI_EXPAND_READ_NBYTES);
  return true;
}

/* The bits that fill up the last group of the rests, and the last byte of the codes, are 0. */
static bool filled_with_zeros(const uint8_t *bytes, size_t nbytes, size_t bits) {
  unsigned beyond = bits % 8 != 0 ? bytes[bits / 8] >> bits % 8 : 0;
  for (size_t i = (bits + 7) / 8; i < nbytes; i++) {
    beyond |= bytes[i];
  }
  return beyond == 0;
}

/* False if the sections do not fill the block exactly, or a stored symbol is out of range. A code
 * needs no check: every walk ends at a leaf, and one that goes on behind the block is too long. */
static bool read_sections(const gpufi_ranks *ranks, const gpufi_leaf_tables *tables,
                          size_t value_nbytes, const uint8_t *in, size_t nbytes, coded *p) {
  const unsigned rest = gpufi_rest_bits(ranks, value_nbytes);
  const size_t rests_nbytes = gpufi_fixed_nbytes(p->count, rest);
  if (rests_nbytes > nbytes || !filled_with_zeros(in, rests_nbytes, p->count * rest)) {
    return false;
  }
  const uint8_t *const codes = in + rests_nbytes;
  const size_t left = nbytes - rests_nbytes;
  const size_t bits = gpufi_cpu_get()->read_walks(codes, p->count, &ranks->tree, tables, p->leaves,
                                                  &p->stored_count);
  const size_t codes_nbytes = (bits + 7) / 8;
  if (codes_nbytes > left || !filled_with_zeros(codes, codes_nbytes, bits)) {
    return false;
  }
  p->rests = in;
  return read_stored(ranks, codes + codes_nbytes, left - codes_nbytes, p);
}

/* Byte `k` of the symbol of each value. */
static void look_up_symbols(const coded *p, const gpufi_leaf_tables *tables, size_t each,
                            unsigned k, uint8_t *symbols) {
  uint8_t escaped[LIST_CAPACITY];
  for (size_t i = 0; i < p->stored_count; i++) {
    escaped[i] = p->stored[i * each + k];
  }
  escaped[p->stored_count] = 0; /* read, though not used */
  gpufi_cpu_get()->symbols(p->leaves, p->count, k == 0 ? tables->lower : tables->upper,
                           tables->last, escaped, symbols);
}

/* By way of arrays: rests, and both bytes of symbols. */
static void rebuild(const gpufi_ranks *ranks, const gpufi_leaf_tables *tables, size_t value_nbytes,
                    const coded *p, uint8_t *values) {
  uint64_t rests[GPUFI_BLOCK_VALUES]; /* of the values' type, not of this one */
  uint8_t lower[LIST_CAPACITY], upper[LIST_CAPACITY];
  const size_t each = gpufi_symbol_nbytes(ranks);
  gpufi_fixed_unpack(value_nbytes, p->rests, p->count, gpufi_rest_bits(ranks, value_nbytes), rests);
  look_up_symbols(p, tables, each, 0, lower);
  if (each == 2) {
    look_up_symbols(p, tables, each, 1, upper);
  }
  gpufi_cpu_get()->join[gpufi_value_index(value_nbytes)](&ranks->cut, rests, lower, upper, p->count,
                                                         values);
}

/* Of the `readable` bytes at `in` the block has `nbytes`. Where fewer follow than kernels may read,
 * which is so at the end of a chunk, they get a copy. */
static bool unpack_coded(const gpufi_ranks *ranks, const gpufi_leaf_tables *tables,
                         size_t value_nbytes, const uint8_t *in, size_t nbytes, size_t readable,
                         uint8_t *values, size_t count) {
  uint8_t copy[BLOCK_NBYTES_MAX + CODES_READ_NBYTES];
  coded p;
  p.count = count;
  if (readable - nbytes < CODES_READ_NBYTES) {
    memcpy(copy, in, nbytes);
    memset(copy + nbytes, 0, CODES_READ_NBYTES);
    in = copy;
  }
  if (!read_sections(ranks, tables, value_nbytes, in, nbytes, &p)) {
    return false;
  }
  gpufi_rebuild_fn *const at_once = gpufi_cpu_get()->rebuild[gpufi_value_index(value_nbytes)];
  if (at_once == NULL ||
      !at_once(&ranks->cut, tables, p.rests, p.leaves, p.stored, count, values)) {
    rebuild(ranks, tables, value_nbytes, &p, values);
  }
  return true;
}

/* All values of a block, or those of a sparse one that are not 0; `in` has block->nbytes. */
static gpuf_status unpack_list(const gpufi_ranks *ranks, const gpufi_leaf_tables *tables,
                               size_t value_nbytes, const uint8_t *in, size_t readable, size_t at,
                               const gpufi_block *block, uint8_t *values, size_t count,
                               gpuf_error *err) {
  if (block->kind == GPUFI_BLOCK_CODED) {
    return (ranks->first_bits != 0
                ? gpufi_levels_unpack(ranks, value_nbytes, in, block->nbytes, values, count)
                : unpack_coded(ranks, tables, value_nbytes, in, block->nbytes, readable, values,
                               count))
               ? GPUF_OK
               : gpufi_corrupt(err, at, "the sections of a ranked block do not fit it");
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

gpuf_status gpufi_ranked_unpack(const gpufi_ranks *ranks, const gpufi_leaf_tables *tables,
                                size_t value_nbytes, const uint8_t *in, size_t in_nbytes, size_t at,
                                gpufi_block block, uint8_t *values, size_t count, gpuf_error *err) {
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
    return unpack_list(ranks, tables, value_nbytes, in, in_nbytes, at, &block, values, count, err);
  }
  gpuf_status status =
      gpufi_mask_read(gpufi_cpu_get()->expand[0], in, block.nbytes, at, count, &mask, err);
  if (status != GPUF_OK) {
    return status;
  }
  block.nbytes -= (uint32_t)mask.nbytes;
  status = unpack_list(ranks, tables, value_nbytes, in + mask.nbytes, in_nbytes - mask.nbytes,
                       at + mask.nbytes, &block, (uint8_t *)used, mask.used_count, err);
  if (status == GPUF_OK) {
    gpufi_mask_expand(value_nbytes, &mask, (const uint8_t *)used, count, values);
  }
  return status;
}
