/* Chunks with a short last axis, such as the components of vectors or the bytes of records: each
 * component is coded as a plane of its own. The last axis changes places with the axis before it
 * that is longer than 1: an array (..., length, planes) is coded as one of (..., planes, length).
 *
 *   raw       x0 y0 z0  x1 y1 z1  x2 y2 z2 ...
 *   coded     x0 x1 x2 ...  y0 y1 y2 ...  z0 z1 z2 ...      row by row of the axes before
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_PLANES_H
#define GPUFI_CODEC_PLANES_H

#include "codec/geometry.h"

/* Whether a chunk of this shape may be coded so, and whether the encoder does it. */
bool gpufi_planes_fit(const gpufi_chunk_shape *shape);
bool gpufi_planes_pay(const gpufi_chunk_shape *shape);

/* The shape that is coded, of a shape that fits. */
gpufi_chunk_shape gpufi_planes_shape(const gpufi_chunk_shape *shape);

/* A whole chunk of `shape` from `raw` to `coded`, and back. */
void gpufi_planes_split(const gpufi_chunk_shape *shape, const uint8_t *raw, uint8_t *coded);
void gpufi_planes_join(const gpufi_chunk_shape *shape, const uint8_t *coded, uint8_t *raw);

#endif
