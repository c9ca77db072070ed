/* The chunk format of docs/format.md: its constants, and the descriptor of a block. Declarations
 * only, so that the CUDA sources can take them from here too. */
#ifndef GPUFI_CODEC_FORMAT_H
#define GPUFI_CODEC_FORMAT_H

#include <stdint.h>

#define GPUFI_CHUNK_MAGIC 0x43465047u /* the bytes G P F C */
#define GPUFI_CHUNK_VERSION 2
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
  GPUFI_AT_SHIFT = 13,
  GPUFI_AT_SYMBOL = 14,
  GPUFI_AT_RESERVED = 15,
  GPUFI_AT_RAW_NBYTES = 16,
  GPUFI_AT_PAYLOAD_NBYTES = 24,
  GPUFI_AT_DIMS = 32,
  GPUFI_AT_SEED = 64,
  GPUFI_AT_OFFSET = 72, /* in the half of the seed that integers leave free */
  GPUFI_AT_CHECKSUM = 80,
  GPUFI_HEADER_NBYTES = 96,
};

/* How the payload is coded. */
enum {
  GPUFI_MODE_RAW = 0,      /* the raw bytes */
  GPUFI_MODE_CONSTANT = 1, /* no payload: every element is the seed */
  GPUFI_MODE_W8 = 2,       /* residuals of a prediction, packed in groups of 8 of one width */
  GPUFI_MODE_RANKED = 3,   /* values split into a symbol with a short code, and the rest */
  GPUFI_MODE_MATCHES = 4,  /* residuals of a prediction in LZ4 blocks, as bytes or as bit planes */
  GPUFI_MODE_MAX = GPUFI_MODE_MATCHES,
};

/* What happens to a value before it is predicted. */
enum {
  GPUFI_TRANSFORM_NONE = 0,
  GPUFI_TRANSFORM_ROTATE = 1,     /* a float's sign becomes its lowest bit */
  GPUFI_TRANSFORM_ORDER = 2,      /* a float's bits, as a signed integer, sort as the floats do */
  GPUFI_TRANSFORM_DICTIONARY = 3, /* values become 8-bit indices into a table */
  GPUFI_TRANSFORM_QUOTIENT = 4,   /* floats become integers p, where the float is p / a */
  GPUFI_TRANSFORM_LINEAR = 5,     /* or p * a + b */
  GPUFI_TRANSFORM_SINGLE = 6,     /* the same in single precision */
};

enum {
  GPUFI_FLAG_BIG_ENDIAN = 1,
  GPUFI_FLAG_CORRECTIONS = 2, /* a second stream has what the values differ by from the first */
  GPUFI_FLAG_PLANES = 4,      /* the last axis changes places with the long one before it */
  GPUFI_FLAG_FILL = 8,        /* a correction of 1 means one value that the parameters give */
};

#define GPUFI_PLANES_MAX 64 /* dimension of the last axis with that flag */

#define GPUFI_PARAMETERS_NBYTES 16 /* a and b, with transforms 4, 5 and 6 */
#define GPUFI_FILL_NBYTES 8        /* after them, with that flag */

#define GPUFI_BLOCK_VALUES 1024
#define GPUFI_GROUP_VALUES 8
#define GPUFI_BLOCK_GROUPS (GPUFI_BLOCK_VALUES / GPUFI_GROUP_VALUES)
#define GPUFI_RUN_BLOCKS 8   /* a run of blocks starts and ends at a multiple of 16 bytes */
#define GPUFI_PREDICT_AXES 4 /* prediction uses only the last so many axes longer than 1 */

/* Kinds of a block. In a ranked chunk kind 1 is GPUFI_BLOCK_CODED, and kind 2 does not occur. */
enum {
  GPUFI_BLOCK_ZERO = 0,
  GPUFI_BLOCK_CODED = 1,
  GPUFI_BLOCK_CODE3 = 1,
  GPUFI_BLOCK_CODE4 = 2,
  GPUFI_BLOCK_RAW = 3,
};

/* Bits of a block's form. */
enum {
  GPUFI_FORM_SPARSE = 1, /* a mask, then only the residuals that are not 0 */
  GPUFI_FORM_PLAIN = 2,  /* no residual is negative: packed without zigzag */
  GPUFI_FORM_EVEN = 4,   /* kind 1, no codes: every group is `width` wide */
  GPUFI_FORM_RANGES = 4, /* kind 2: groups are `width` wide, or at most `second` */
};

/* A block's descriptor. As a 32-bit word:
 *
 *   bit  0            14        21       27     30   32
 *        | nbytes     | width   | shift  | form | kind|   */
typedef struct gpufi_block {
  uint32_t nbytes; /* in the payload, mask and codes included */
  uint32_t width;  /* bits of the widest group */
  uint32_t shift;  /* trailing zero bits that every residual of the block shares */
  uint32_t form;
  uint32_t kind;
  uint32_t second; /* width that code 1 means: in the block's first byte, or else width - 1 */
} gpufi_block;

static inline uint32_t gpufi_block_to_word(gpufi_block b) {
  return b.nbytes | b.width << 14 | b.shift << 21 | b.form << 27 | b.kind << 30;
}

static inline gpufi_block gpufi_block_from_word(uint32_t word) {
  const uint32_t width = word >> 14 & 0x7f;
  const gpufi_block b = {word & 0x3fff,  width,      word >> 21 & 0x3f,
                         word >> 27 & 7, word >> 30, width - (width != 0)};
  return b;
}

/* A mask's middle level: a bit for each byte of the lowest one. */
#define GPUFI_MASK_MIDDLE_NBYTES (GPUFI_BLOCK_GROUPS / 8)

#define GPUFI_DICTIONARY_ENTRIES_MAX 256

/* Ranked chunks of version 1: the most frequent symbols have codes of `first` bits, the next ones
 * of `second` bits. A symbol is the exponent of a float, else an 8-bit value. */
#define GPUFI_FIRST_BITS_MAX 6
#define GPUFI_SECOND_BITS_MAX 4
#define GPUFI_SYMBOLS_MAX ((1 << GPUFI_FIRST_BITS_MAX) + (1 << GPUFI_SECOND_BITS_MAX) - 2)
#define GPUFI_SYMBOL_BITS_MAX 11

/* Since version 2: the prefix code of a ranked chunk is a binary tree of so many levels and leaves
 * (tree.h). */
#define GPUFI_TREE_DEPTH_MAX 12
#define GPUFI_TREE_LEAVES_MAX 255
#define GPUFI_CODE_NBYTES_MAX (GPUFI_BLOCK_VALUES * GPUFI_TREE_DEPTH_MAX / 8) /* of a block */

/* The checksum's multiplier. */
#define GPUFI_WORD_KEY UINT64_C(0x9e3779b97f4a7c15)

/* What an encoder chooses by: up to so many groups, and the first value of some of them. */
#define GPUFI_SAMPLE_GROUPS 256
#define GPUFI_OFFSET_GROUPS 31

#endif
