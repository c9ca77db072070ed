/* The chunk format of docs/format.md as constants and a parsed header. */
#ifndef GPUFI_CODEC_FORMAT_H
#define GPUFI_CODEC_FORMAT_H

#include "base/arithmetic.h"
#include "codec/codec.h"

#include <assert.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the codec reads and writes in place");

#define GPUFI_CHUNK_MAGIC 0x43465047u /* the bytes G P F C */
#define GPUFI_CHUNK_VERSION 1
#define GPUFI_CHUNK_RAW_NBYTES_MAX UINT32_MAX
#define GPUFI_CHUNK_ALIGN 16

/* Offsets of the header's fields. */
enum {
  GPUFI_AT_MAGIC = 0,
  GPUFI_AT_VERSION = 4,
  GPUFI_AT_DTYPE = 5,
  GPUFI_AT_MODE = 6,
  GPUFI_AT_TRANSFORM = 7,
  GPUFI_AT_AXES = 8,
  GPUFI_AT_NDIM = 9,
  GPUFI_AT_FLAGS = 10,
  GPUFI_AT_LEVELS = 11,
  GPUFI_AT_ENTRIES = 12,
  GPUFI_AT_RESERVED = 13, /* three bytes */
  GPUFI_AT_RAW_NBYTES = 16,
  GPUFI_AT_PAYLOAD_NBYTES = 24,
  GPUFI_AT_DIMS = 32,
  GPUFI_AT_SEED = 64,
  GPUFI_AT_OFFSET = 72, /* in the half of the seed that integers leave free */
  GPUFI_AT_CHECKSUM = 80,
  GPUFI_HEADER_NBYTES = 96,
};

enum {
  GPUFI_MODE_RAW = 0,
  GPUFI_MODE_CONSTANT = 1,
  GPUFI_MODE_W8 = 2,
  GPUFI_MODE_RANKED = 3,
  GPUFI_MODE_MAX = GPUFI_MODE_RANKED,
};
enum {
  GPUFI_TRANSFORM_NONE = 0,
  GPUFI_TRANSFORM_ROTATE = 1,
  GPUFI_TRANSFORM_ORDER = 2,
  GPUFI_TRANSFORM_DICTIONARY = 3, /* values become 8-bit indices into a table */
};
enum { GPUFI_FLAG_BIG_ENDIAN = 1 };

#define GPUFI_BLOCK_VALUES 1024
#define GPUFI_GROUP_VALUES 8
#define GPUFI_BLOCK_GROUPS (GPUFI_BLOCK_VALUES / GPUFI_GROUP_VALUES)
#define GPUFI_RUN_BLOCKS 8   /* a run of blocks starts and ends at a multiple of 16 bytes */
#define GPUFI_PREDICT_AXES 4 /* prediction uses only the last so many axes longer than 1 */

/* A block's descriptor: size in bits 0-13, width in 14-20, shift in 21-26, form in 27-29, kind in
 * 30-31. In a ranked chunk GPUFI_BLOCK_CODED means ranked, and kind 2 does not occur. */
enum {
  GPUFI_BLOCK_ZERO = 0,
  GPUFI_BLOCK_CODED = 1,
  GPUFI_BLOCK_CODE3 = 1,
  GPUFI_BLOCK_CODE4 = 2,
  GPUFI_BLOCK_RAW = 3,
};
enum {
  GPUFI_FORM_SPARSE = 1, /* a mask, then only the residuals that are not 0 */
  GPUFI_FORM_PLAIN = 2,  /* no residual is negative: packed without zigzag */
  GPUFI_FORM_EVEN = 4,   /* no codes: every group is `width` wide */
};

typedef struct gpufi_block {
  uint32_t nbytes; /* in the payload, mask and codes included */
  uint32_t width;  /* bits of the widest group */
  uint32_t shift;  /* trailing zero bits that every residual of the block shares */
  uint32_t form;
  uint32_t kind;
} gpufi_block;

static inline uint32_t gpufi_block_to_word(gpufi_block b) {
  return b.nbytes | b.width << 14 | b.shift << 21 | b.form << 27 | b.kind << 30;
}

static inline gpufi_block gpufi_block_from_word(uint32_t word) {
  return (gpufi_block){word & 0x3fff, word >> 14 & 0x7f, word >> 21 & 0x3f, word >> 27 & 7,
                       word >> 30};
}

#define GPUFI_DICTIONARY_ENTRIES_MAX 256

/* Ranked values: the most frequent symbols have codes of first_bits, the next ones of
 * second_bits; docs/format.md. A symbol is the exponent of a float, else an 8-bit value. */
#define GPUFI_FIRST_BITS_MAX 6
#define GPUFI_SECOND_BITS_MAX 4
#define GPUFI_SYMBOLS_MAX ((1 << GPUFI_FIRST_BITS_MAX) + (1 << GPUFI_SECOND_BITS_MAX) - 2)
#define GPUFI_SYMBOL_BITS_MAX 11

typedef struct gpufi_ranks {
  uint8_t symbol_at, symbol_bits; /* where the symbol is in a value */
  uint8_t first_bits, second_bits;
  uint16_t symbols[GPUFI_SYMBOLS_MAX]; /* of the first codes, then of the second ones */
} gpufi_ranks;

typedef struct gpufi_chunk_header {
  gpufi_chunk_shape shape;
  uint8_t mode, transform, axes, flags;
  uint8_t levels;        /* first_bits, and second_bits << 4; ranked only */
  uint8_t entries_less1; /* of the dictionary */
  uint64_t raw_nbytes, payload_nbytes;
  uint64_t offset; /* that each residual is less by; W8 of integers only */
  uint8_t seed[16];
} gpufi_chunk_header;

/* What is predicted and packed: unsigned integers ("values") of value_nbytes; a complex element
 * is component_count = 2 of them, any other element is one. Strides are in values. */
typedef struct gpufi_geometry {
  size_t value_nbytes;
  size_t component_count;
  size_t value_count;
  int32_t ndim;
  size_t dims[GPUFI_CODEC_NDIM_MAX];
  size_t strides[GPUFI_CODEC_NDIM_MAX];
} gpufi_geometry;

static inline uint32_t gpufi_load_u32(const uint8_t *p) {
  uint32_t x;
  memcpy(&x, p, sizeof(x));
  return x;
}

static inline uint64_t gpufi_load_u64(const uint8_t *p) {
  uint64_t x;
  memcpy(&x, p, sizeof(x));
  return x;
}

/* A value of 1, 2, 4 or 8 bytes at `p`, which need not be aligned. */
static inline uint64_t gpufi_load_value(const uint8_t *p, size_t nbytes) {
  uint64_t x = 0;
  memcpy(&x, p, nbytes);
  return x;
}

static inline uint64_t gpufi_load_swapped(const uint8_t *p, size_t nbytes) {
  return __builtin_bswap64(gpufi_load_value(p, nbytes)) >> (64 - 8 * nbytes);
}

/* 0 for a value outside the enumeration. */
size_t gpufi_chunk_element_nbytes(gpuf_dtype dtype);
bool gpufi_chunk_dtype_is_float(gpuf_dtype dtype);
void gpufi_geometry_init(gpufi_geometry *g, const gpufi_chunk_shape *shape);
/* Bit a set: axis a may be in the header's `axes`. */
uint32_t gpufi_geometry_axes(const gpufi_geometry *g);

static inline size_t gpufi_block_count(const gpufi_geometry *g) {
  return (g->value_count + GPUFI_BLOCK_VALUES - 1) / GPUFI_BLOCK_VALUES;
}

void gpufi_header_write(uint8_t *encoded, const gpufi_chunk_header *header);
/* Checks all that a header says against itself and `encoded_nbytes`, not the checksum. */
gpuf_status gpufi_header_read(const uint8_t *encoded, size_t encoded_nbytes,
                              gpufi_chunk_header *header, gpuf_error *err);

/* What is packed: the values, or the places of a dictionary, one byte each. */
void gpufi_header_geometry(const gpufi_chunk_header *header, gpufi_geometry *g);
/* Code lengths and where the symbols are; false if a chunk cannot be ranked so. */
bool gpufi_header_ranks(const gpufi_chunk_header *header, gpufi_ranks *ranks);
/* Bytes of the two tables, 0 for one that is not there; returns those of both with their
 * padding, which is where the descriptors begin in the payload. */
size_t gpufi_header_tables(const gpufi_chunk_header *header, size_t *dictionary, size_t *symbols);

/* The two checksum words of a chunk; `encoded_nbytes` is a multiple of 16, at least a header. */
void gpufi_checksum(const uint8_t *encoded, size_t encoded_nbytes, uint64_t sums[2]);

/* The sample that all choices rest on: up to so many groups of a chunk, spread evenly with a
 * jitter. */
#define GPUFI_SAMPLE_GROUPS 256
#define GPUFI_OFFSET_GROUPS 31 /* of these, for the offset */

static inline size_t gpufi_group_count(const gpufi_geometry *g) {
  return (g->value_count + GPUFI_GROUP_VALUES - 1) / GPUFI_GROUP_VALUES;
}

static inline size_t gpufi_sample_count(const gpufi_geometry *g) {
  const size_t groups = gpufi_group_count(g);
  return groups < GPUFI_SAMPLE_GROUPS ? groups : GPUFI_SAMPLE_GROUPS;
}

/* First value of the k-th sampled group. */
static inline size_t gpufi_sample_first(const gpufi_geometry *g, size_t k) {
  const uint64_t groups = gpufi_group_count(g), take = gpufi_sample_count(g);
  assert(take != 0 && take <= groups);
  const uint64_t begin = k * groups / take, end = (k + 1) * groups / take;
  const uint64_t jitter = (uint32_t)(k * 2654435761u) % (end - begin);
  return (size_t)(begin + jitter) * GPUFI_GROUP_VALUES;
}

/* Choose transform and axes by the cost of the sample, in bits, which is returned; integer
 * arithmetic only. */
uint64_t gpufi_predict_choose(const gpufi_geometry *g, const void *raw, bool is_float, bool swap,
                              uint8_t *transform, uint8_t *axes, uint64_t *offset);
/* raw (value_count values) to residuals; the first element's values go to `seed`. */
void gpufi_predict_forward(const gpufi_geometry *g, const void *raw, bool swap, uint8_t transform,
                           uint8_t axes, uint64_t offset, void *residuals, uint8_t seed[16]);
/* The inverse, in place. */
void gpufi_predict_inverse(const gpufi_geometry *g, void *values, bool swap, uint8_t transform,
                           uint8_t axes, uint64_t offset, const uint8_t seed[16]);

/* Which of up to 1024 values are not 0, and how that is stored: docs/format.md, sparse blocks. */
#define GPUFI_MASK_MIDDLE_NBYTES (GPUFI_BLOCK_GROUPS / 8)

typedef struct gpufi_mask {
  uint8_t bits[GPUFI_BLOCK_GROUPS]; /* bit i % 8 of byte i / 8: value i is not 0 */
  size_t used_count;                /* bits set */
  size_t nbytes;                    /* as read; gpufi_mask_nbytes() before it is written */
} gpufi_mask;

/* How many of the values are not 0. */
size_t gpufi_used_count(size_t value_nbytes, const uint8_t *values, size_t count);
void gpufi_mask_of(size_t value_nbytes, const uint8_t *values, size_t count, gpufi_mask *mask);
size_t gpufi_mask_nbytes(const gpufi_mask *mask, size_t count);
void gpufi_mask_write(const gpufi_mask *mask, size_t count, uint8_t *out);
gpuf_status gpufi_mask_read(const uint8_t *in, size_t in_nbytes, size_t at, size_t count,
                            gpufi_mask *mask, gpuf_error *err);
/* `used` holds used_count values, and has room for one more. */
void gpufi_mask_compact(size_t value_nbytes, const uint8_t *values, size_t count, uint8_t *used);
/* `used` is readable for GPUFI_EXPAND_READ_NBYTES more. */
#define GPUFI_EXPAND_READ_NBYTES 64
void gpufi_mask_expand(size_t value_nbytes, const gpufi_mask *mask, const uint8_t *used,
                       size_t count, uint8_t *values);
/* Worth trying: at least a quarter of the values are 0, but not all. */
static inline bool gpufi_mask_pays(size_t used_count, size_t count) {
  return used_count != 0 && 4 * used_count <= 3 * count;
}

/* Pack `count` (1 .. 1024) residuals into `out` and return true, or false if that takes more
 * than `capacity` bytes. What follows block->nbytes, up to `capacity`, is indeterminate. */
bool gpufi_block_pack(size_t value_nbytes, const void *residuals, size_t count, uint8_t *out,
                      size_t capacity, gpufi_block *block);
/* Unpack the block at `in`, where `in_nbytes` >= block.nbytes are readable, at chunk offset `at`
 * (for the message). */
gpuf_status gpufi_block_unpack(size_t value_nbytes, const uint8_t *in, size_t in_nbytes, size_t at,
                               gpufi_block block, void *residuals, size_t count, gpuf_error *err);

/* `count` values of value_nbytes at one width, 0 to 8 * value_nbytes bits, in groups of 8: the last
 * is filled up with zeros. `values` has room for whole groups. gpufi_fixed_unpack says whether
 * what it was filled up with is zeros. */
static inline size_t gpufi_fixed_nbytes(size_t count, unsigned width) {
  return (count + GPUFI_GROUP_VALUES - 1) / GPUFI_GROUP_VALUES * width;
}
/* Returns where the bytes end, and may write GPUFI_GROUP_WRITE_NBYTES more. */
uint8_t *gpufi_fixed_pack(size_t value_nbytes, void *values, size_t count, unsigned width,
                          uint8_t *bytes);
bool gpufi_fixed_unpack(size_t value_nbytes, const uint8_t *bytes, size_t count, unsigned width,
                        void *values);

/* --- ranked chunks --- */

#define GPUFI_CODES_MAX (1 << GPUFI_FIRST_BITS_MAX)

/* Symbols that have a first code, or a second one: the last code means that it has none. */
static inline size_t gpufi_first_count(const gpufi_ranks *ranks) {
  return ((size_t)1 << ranks->first_bits) - 1;
}

static inline size_t gpufi_second_count(const gpufi_ranks *ranks) {
  return ((size_t)1 << ranks->second_bits) - 1;
}

static inline size_t gpufi_symbol_nbytes(const gpufi_ranks *ranks) {
  return ranks->symbol_bits > 8 ? 2 : 1; /* 2 only in values of 8 bytes */
}

/* Bits of a value that are not its symbol. */
static inline unsigned gpufi_rest_bits(const gpufi_ranks *ranks, size_t value_nbytes) {
  return (unsigned)(8 * value_nbytes - ranks->symbol_bits);
}

/* Where the symbol is in a value; false if values of this kind are not ranked. */
bool gpufi_ranks_init(gpufi_ranks *ranks, gpuf_dtype dtype, size_t value_nbytes);
/* Choose levels and symbols by the sample; returns its cost in bits. */
uint64_t gpufi_ranks_choose(gpufi_ranks *ranks, const gpufi_geometry *g, const uint8_t *raw,
                            bool swap);
size_t gpufi_ranks_count(const gpufi_ranks *ranks);
size_t gpufi_ranks_table_nbytes(const gpufi_ranks *ranks);
void gpufi_ranks_write(const gpufi_ranks *ranks, uint8_t *table);
/* The first index of a symbol that is out of range, or gpufi_ranks_count(). */
size_t gpufi_ranks_read(gpufi_ranks *ranks, const uint8_t *table);

/* index[symbol] is its place in `symbols`, or 255. */
void gpufi_ranks_index(const gpufi_ranks *ranks, uint8_t index[1 << GPUFI_SYMBOL_BITS_MAX]);
bool gpufi_ranked_pack(const gpufi_ranks *ranks, const uint8_t *index, size_t value_nbytes,
                       const uint8_t *values, size_t count, uint8_t *out, size_t capacity,
                       gpufi_block *block);
gpuf_status gpufi_ranked_unpack(const gpufi_ranks *ranks, size_t value_nbytes, const uint8_t *in,
                                size_t at, gpufi_block block, uint8_t *values, size_t count,
                                gpuf_error *err);

/* --- dictionaries --- */

#define GPUFI_DICTIONARY_SLOTS 4096 /* a power of two */

typedef struct gpufi_dictionary {
  gpuf_dtype dtype; /* decides the order of the entries */
  size_t value_nbytes;
  size_t count;
  uint64_t values[GPUFI_DICTIONARY_ENTRIES_MAX];
  uint16_t slots[GPUFI_DICTIONARY_SLOTS]; /* index + 1 of an entry, 0 if free; by hash */
} gpufi_dictionary;

/* The distinct values of a chunk, in order, and the place of each value among them. False, with
 * `places` (value_count bytes) indeterminate, if there are too many to be worth it. */
bool gpufi_dictionary_collect(gpufi_dictionary *d, gpuf_dtype dtype, const gpufi_geometry *g,
                              const uint8_t *raw, bool swap, uint8_t *places);
void gpufi_dictionary_write(const gpufi_dictionary *d, uint8_t *table);
/* Reads dtype, value_nbytes and count entries; returns the first that is not above the one before,
 * or `count`. */
size_t gpufi_dictionary_read(gpufi_dictionary *d, const uint8_t *table);
/* Places (value_count bytes) to values, in place; false if one lies outside. */
bool gpufi_dictionary_expand(const gpufi_dictionary *d, size_t value_count, bool swap,
                             uint8_t *values);

#endif
