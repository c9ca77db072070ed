/* The chunk format of docs/format.md as constants and a parsed header. */
#ifndef GPUFI_CODEC_FORMAT_H
#define GPUFI_CODEC_FORMAT_H

#include "codec/codec.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the codec reads and writes in place");

#define GPUFI_CHUNK_MAGIC 0x43465047u /* the bytes G P F C */
#define GPUFI_CHUNK_VERSION 0
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
  GPUFI_AT_RESERVED = 11, /* five bytes */
  GPUFI_AT_RAW_NBYTES = 16,
  GPUFI_AT_PAYLOAD_NBYTES = 24,
  GPUFI_AT_DIMS = 32,
  GPUFI_AT_SEED = 64,
  GPUFI_AT_CHECKSUM = 80,
  GPUFI_HEADER_NBYTES = 96,
};

enum { GPUFI_MODE_RAW = 0, GPUFI_MODE_CONSTANT = 1, GPUFI_MODE_W8 = 2 };
enum { GPUFI_TRANSFORM_NONE = 0, GPUFI_TRANSFORM_ROTATE = 1, GPUFI_TRANSFORM_ORDER = 2 };
enum { GPUFI_FLAG_BIG_ENDIAN = 1 };

#define GPUFI_BLOCK_VALUES 1024
#define GPUFI_GROUP_VALUES 8
#define GPUFI_BLOCK_GROUPS (GPUFI_BLOCK_VALUES / GPUFI_GROUP_VALUES)
#define GPUFI_RUN_BLOCKS 8   /* a run of blocks starts and ends at a multiple of 16 bytes */
#define GPUFI_PREDICT_AXES 4 /* prediction uses only the last so many axes longer than 1 */

/* A block's descriptor: size in bits 0-13, width in 14-20, shift in 21-26, kind in 30-31. */
enum { GPUFI_BLOCK_ZERO = 0, GPUFI_BLOCK_CODE3 = 1, GPUFI_BLOCK_CODE4 = 2, GPUFI_BLOCK_RAW = 3 };

typedef struct gpufi_block {
  uint32_t nbytes; /* in the payload, code table included */
  uint32_t width;  /* bits of the widest group */
  uint32_t shift;  /* trailing zero bits that every residual of the block shares */
  uint32_t kind;
} gpufi_block;

static inline uint32_t gpufi_block_to_word(gpufi_block b) {
  return b.nbytes | b.width << 14 | b.shift << 21 | b.kind << 30;
}

static inline gpufi_block gpufi_block_from_word(uint32_t word) {
  return (gpufi_block){word & 0x3fff, word >> 14 & 0x7f, word >> 21 & 0x3f, word >> 30};
}

#define GPUFI_BLOCK_UNUSED_BITS 0x38000000u

typedef struct gpufi_chunk_header {
  gpufi_chunk_shape shape;
  uint8_t mode, transform, axes, flags;
  uint64_t raw_nbytes, payload_nbytes;
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

static inline size_t gpufi_round_up_16(size_t nbytes) {
  return (nbytes + 15) & ~(size_t)15;
}

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

/* 0 for a value outside the enumeration. */
size_t gpufi_chunk_element_nbytes(gpuf_dtype dtype);
bool gpufi_chunk_dtype_is_float(gpuf_dtype dtype);
void gpufi_geometry_init(gpufi_geometry *g, const gpufi_chunk_shape *shape);
/* Bit a set: axis a may be in the header's `axes`. */
uint32_t gpufi_geometry_axes(const gpufi_geometry *g);

/* Payload bytes before the first run of a W8 chunk: the descriptors, padded. */
static inline size_t gpufi_block_count(const gpufi_geometry *g) {
  return (g->value_count + GPUFI_BLOCK_VALUES - 1) / GPUFI_BLOCK_VALUES;
}

void gpufi_header_write(uint8_t *encoded, const gpufi_chunk_header *header);
/* Checks all that a header says against itself and `encoded_nbytes`, not the checksum. */
gpuf_status gpufi_header_read(const uint8_t *encoded, size_t encoded_nbytes,
                              gpufi_chunk_header *header, gpuf_error *err);

/* The two checksum words of a chunk; `encoded_nbytes` is a multiple of 16, at least a header. */
void gpufi_checksum(const uint8_t *encoded, size_t encoded_nbytes, uint64_t sums[2]);

/* Choose transform and axes by the cost of a sample; integer arithmetic only. */
void gpufi_predict_choose(const gpufi_geometry *g, const void *raw, bool is_float, bool swap,
                          uint8_t *transform, uint8_t *axes);
/* raw (value_count values) to residuals; the first element's values go to `seed`. */
void gpufi_predict_forward(const gpufi_geometry *g, const void *raw, bool swap, uint8_t transform,
                           uint8_t axes, void *residuals, uint8_t seed[16]);
/* The inverse, in place. */
void gpufi_predict_inverse(const gpufi_geometry *g, void *values, bool swap, uint8_t transform,
                           uint8_t axes, const uint8_t seed[16]);

/* Pack `count` (1 .. 1024) residuals into `out` and return true, or false if that takes more
 * than `capacity` bytes. Writes nothing past out + block->nbytes. */
bool gpufi_block_pack(size_t value_nbytes, const void *residuals, size_t count, uint8_t *out,
                      size_t capacity, gpufi_block *block);
/* Unpack a block whose nbytes are readable at `in`, at chunk offset `at` (for the message). */
gpuf_status gpufi_block_unpack(size_t value_nbytes, const uint8_t *in, size_t at, gpufi_block block,
                               void *residuals, size_t count, gpuf_error *err);

#endif
