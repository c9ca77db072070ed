#include "codec/geometry.h"
#include "base/error.h"

#include <string.h>

size_t gpufi_chunk_element_nbytes(gpuf_dtype dtype) {
  static const uint8_t nbytes[GPUF_DTYPE_MAX + 1] = {
      [GPUF_DTYPE_BOOL] = 1,           [GPUF_DTYPE_INT8] = 1,
      [GPUF_DTYPE_INT16] = 2,          [GPUF_DTYPE_INT32] = 4,
      [GPUF_DTYPE_INT64] = 8,          [GPUF_DTYPE_UINT8] = 1,
      [GPUF_DTYPE_UINT16] = 2,         [GPUF_DTYPE_UINT32] = 4,
      [GPUF_DTYPE_UINT64] = 8,         [GPUF_DTYPE_FLOAT16] = 2,
      [GPUF_DTYPE_BFLOAT16] = 2,       [GPUF_DTYPE_FLOAT32] = 4,
      [GPUF_DTYPE_FLOAT64] = 8,        [GPUF_DTYPE_COMPLEX64] = 8,
      [GPUF_DTYPE_COMPLEX128] = 16,    [GPUF_DTYPE_FLOAT8_E3M4] = 1,
      [GPUF_DTYPE_FLOAT8_E4M3] = 1,    [GPUF_DTYPE_FLOAT8_E4M3B11FNUZ] = 1,
      [GPUF_DTYPE_FLOAT8_E4M3FN] = 1,  [GPUF_DTYPE_FLOAT8_E4M3FNUZ] = 1,
      [GPUF_DTYPE_FLOAT8_E5M2] = 1,    [GPUF_DTYPE_FLOAT8_E5M2FNUZ] = 1,
      [GPUF_DTYPE_FLOAT8_E8M0FNU] = 1,
  };
  const size_t index = (size_t)dtype;
  return index <= GPUF_DTYPE_MAX ? nbytes[index] : 0;
}

/* True for the types whose top bit is a sign. */
bool gpufi_chunk_dtype_is_float(gpuf_dtype dtype) {
  return dtype >= GPUF_DTYPE_FLOAT16 && dtype <= GPUF_DTYPE_FLOAT8_E5M2FNUZ;
}

void gpufi_geometry_init(gpufi_geometry *g, const gpufi_chunk_shape *shape) {
  const bool is_complex =
      shape->dtype == GPUF_DTYPE_COMPLEX64 || shape->dtype == GPUF_DTYPE_COMPLEX128;
  size_t stride = is_complex ? 2 : 1;
  memset(g, 0, sizeof(*g));
  g->component_count = stride;
  g->value_nbytes = gpufi_chunk_element_nbytes(shape->dtype) / stride;
  g->ndim = shape->ndim;
  for (int32_t a = shape->ndim - 1; a >= 0; a--) {
    g->dims[a] = shape->dims[a];
    g->strides[a] = stride;
    stride *= shape->dims[a];
  }
  g->value_count = stride;
}

uint32_t gpufi_geometry_axes(const gpufi_geometry *g) {
  uint32_t axes = 0;
  int32_t count = 0;
  for (int32_t a = g->ndim - 1; a >= 0 && count < GPUFI_PREDICT_AXES; a--) {
    if (g->dims[a] > 1) {
      axes |= 1u << a;
      count++;
    }
  }
  return axes;
}

gpuf_status gpufi_chunk_raw_nbytes(const gpufi_chunk_shape *shape, size_t *raw_nbytes,
                                   gpuf_error *err) {
  uint64_t nbytes = gpufi_chunk_element_nbytes(shape->dtype);
  if (nbytes == 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "dtype code %d does not exist", (int)shape->dtype);
  }
  if (shape->ndim < 1 || shape->ndim > GPUFI_CODEC_NDIM_MAX) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "a chunk has 1 to %d dimensions, not %d",
                      GPUFI_CODEC_NDIM_MAX, (int)shape->ndim);
  }
  for (int32_t a = 0; a < shape->ndim; a++) {
    if (shape->dims[a] == 0) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0, "dimension %d of the chunk is 0", (int)a);
    }
    nbytes *= shape->dims[a]; /* both factors are below 2^32, so this does not wrap */
    if (nbytes > GPUFI_CHUNK_RAW_NBYTES_MAX) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "the chunk has 4 GiB or more; choose smaller chunk dimensions");
    }
  }
  *raw_nbytes = (size_t)nbytes;
  return GPUF_OK;
}
