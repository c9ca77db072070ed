/* A chunk as an array of values: how many, how wide, and where their neighbours are.
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_GEOMETRY_H
#define GPUFI_CODEC_GEOMETRY_H

#include "codec/codec.h"
#include "codec/format.h"

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

/* Bytes of an element; 0 for a dtype outside the enumeration. */
size_t gpufi_chunk_element_nbytes(gpuf_dtype dtype);

/* True for the types whose top bit is a sign. */
bool gpufi_chunk_dtype_is_float(gpuf_dtype dtype);

/* `shape` is one that gpufi_chunk_raw_nbytes() accepts. */
void gpufi_geometry_init(gpufi_geometry *g, const gpufi_chunk_shape *shape);

/* Bit a set: axis a may be in the header's `axes`. */
uint32_t gpufi_geometry_axes(const gpufi_geometry *g);

static inline size_t gpufi_block_count(const gpufi_geometry *g) {
  return (g->value_count + GPUFI_BLOCK_VALUES - 1) / GPUFI_BLOCK_VALUES;
}

static inline size_t gpufi_group_count(const gpufi_geometry *g) {
  return (g->value_count + GPUFI_GROUP_VALUES - 1) / GPUFI_GROUP_VALUES;
}

#endif
