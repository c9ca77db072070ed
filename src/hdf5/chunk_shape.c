#include "hdf5/chunk_shape.h"

#include "base/error.h"

#include <inttypes.h>
#include <string.h>

#define CHUNK_TARGET_NBYTES ((int64_t)1 << 20)
/* The last axis of a default chunk is at least so many times as long as the others: the elements of
 * a row lie side by side in device memory, so a chunk of long rows crosses the link in few
 * transfers. */
#define ROW_WEIGHT 4

static int32_t longest_axis(const int64_t *chunk, int32_t ndim) {
  int32_t longest = ndim - 1;
  for (int32_t axis = 0; axis < ndim - 1; axis++) {
    const int64_t length = chunk[axis];
    const int64_t best = longest == ndim - 1 ? chunk[longest] / ROW_WEIGHT : chunk[longest];
    if (length > 1 && length > best) {
      longest = axis;
    }
  }
  return longest;
}

void gpufi_h5_chunk_shape_default(const gpuf_tensor *tensor, int64_t *chunk) {
  const int64_t target = CHUNK_TARGET_NBYTES / (int64_t)gpuf_dtype_nbytes(tensor->dtype);
  int64_t count = 1;
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    chunk[axis] = tensor->shape[axis];
    count *= chunk[axis];
  }
  while (count > target) {
    const int32_t axis = longest_axis(chunk, tensor->ndim);
    count /= chunk[axis];
    chunk[axis] = chunk[axis] / 2 + chunk[axis] % 2;
    count *= chunk[axis];
  }
}

gpuf_status gpufi_h5_chunk_shape_fold(gpuf_dtype dtype, int32_t ndim, const int64_t *chunk,
                                      gpufi_chunk_shape *shape, size_t *raw_nbytes,
                                      gpuf_error *err) {
  const int32_t folded = ndim > GPUFI_CODEC_NDIM_MAX ? ndim - GPUFI_CODEC_NDIM_MAX : 0;
  memset(shape, 0, sizeof(*shape));
  shape->dtype = dtype;
  shape->ndim = ndim - folded;
  shape->dims[0] = 1;
  for (int32_t axis = 0; axis < ndim; axis++) {
    const int32_t into = axis > folded ? axis - folded : 0;
    const uint64_t before = axis > folded || axis == 0 ? 1 : shape->dims[0];
    if (chunk[axis] < 1 || (uint64_t)chunk[axis] > UINT32_MAX / before) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "chunk length %" PRId64 " of axis %d makes the chunk 4 GiB or more, which "
                        "HDF5 cannot store: choose shorter chunks",
                        chunk[axis], (int)axis);
    }
    shape->dims[into] = (uint32_t)(before * (uint64_t)chunk[axis]);
  }
  return gpufi_chunk_raw_nbytes(shape, raw_nbytes, err);
}

gpuf_status gpufi_h5_chunk_shape_check(const gpuf_tensor *tensor, const int64_t *chunk,
                                       gpuf_error *err) {
  gpufi_chunk_shape shape;
  size_t raw_nbytes;
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    if (chunk[axis] < 1 || chunk[axis] > tensor->shape[axis]) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "chunk length %" PRId64 " of axis %d does not fit: choose 1 to %" PRId64
                        ", the tensor's length there",
                        chunk[axis], (int)axis, tensor->shape[axis]);
    }
  }
  return gpufi_h5_chunk_shape_fold(tensor->dtype, tensor->ndim, chunk, &shape, &raw_nbytes, err);
}
