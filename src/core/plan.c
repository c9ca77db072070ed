#include "core/plan.h"

#include "base/arithmetic.h"
#include "base/error.h"
#include "base/system.h"
#include "core/channel.h"
#include "core/geometry.h"
#include "core/pool.h"
#include "core/runtime.h"

#define DEFAULT_THREAD_COUNT_MAX 12
#define DIRECT_PIECE_NBYTES ((size_t)64 << 20)
/* A gather is cut into several pieces, so that one is packed while another travels. */
#define GATHER_PIECE_NBYTES_MIN ((size_t)1 << 20)
#define GATHER_PIECE_COUNT_MIN 4
#define PIECE_ALIGN_NBYTES ((size_t)4096)
/* Rows of at least this size travel at link speed in 2-D copies, if one copy has enough of them. */
#define ROW_NBYTES_MIN 4096
#define ROWS_NBYTES_MIN (256 << 10)
/* For less than this, asking the driver whether it is page-locked costs as much as staging. */
#define FOREIGN_PINNED_NBYTES_MIN ((size_t)64 << 10)
#define PITCH_NBYTES_MAX INT32_MAX /* CUDA's limit */

/* Whether axis `a` is to be outside axis `b`, by the strides of `lead`. A stride of 0 stays
 * outermost, where it repeats whole rows. */
static bool is_outer(const gpuf_tensor *lead, int32_t a, int32_t b) {
  const int64_t stride_a = lead->shape[a] > 1 ? gpufi_magnitude(lead->strides_nbytes[a]) : 0;
  const int64_t stride_b = lead->shape[b] > 1 ? gpufi_magnitude(lead->strides_nbytes[b]) : 0;
  return stride_b != 0 && (stride_a == 0 || stride_a > stride_b);
}

static void reverse_axis(gpuf_tensor *tensor, int32_t axis) {
  tensor->data = (char *)tensor->data + (tensor->shape[axis] - 1) * tensor->strides_nbytes[axis];
  tensor->strides_nbytes[axis] = -tensor->strides_nbytes[axis];
}

void gpufi_plan_order(gpuf_tensor *lead, gpuf_tensor *other) {
  for (int32_t axis = 0; axis < lead->ndim; axis++) {
    if (lead->shape[axis] > 1 && lead->strides_nbytes[axis] < 0) {
      reverse_axis(lead, axis);
      reverse_axis(other, axis);
    }
    for (int32_t at = axis; at > 0 && is_outer(lead, at, at - 1); at--) {
      gpufi_tensor_swap_axes(lead, at, at - 1);
      gpufi_tensor_swap_axes(other, at, at - 1);
    }
  }
}

/* True if the innermost two axes of the device side are rows that a 2-D copy takes well. */
static bool has_wide_rows(const gpufi_strided *layout) {
  const int32_t last = layout->ndim - 1;
  if (last < 1 || layout->strides_nbytes[last] != layout->element_nbytes) {
    return false;
  }
  const int64_t row_nbytes = layout->shape[last] * layout->element_nbytes;
  const int64_t pitch = layout->strides_nbytes[last - 1];
  return row_nbytes >= ROW_NBYTES_MIN && pitch >= row_nbytes && pitch <= PITCH_NBYTES_MAX &&
         (last == 1 || layout->shape[last - 1] >= ROWS_NBYTES_MIN / row_nbytes);
}

static gpufi_route choose_route(const gpufi_copy *copy) {
  if (copy->device_dtype != copy->host_dtype) {
    return GPUFI_ROUTE_GATHER;
  }
  if (gpufi_strided_is_contiguous(&copy->device_layout)) {
    return GPUFI_ROUTE_FLAT;
  }
  return has_wide_rows(&copy->device_layout) ? GPUFI_ROUTE_ROWS : GPUFI_ROUTE_GATHER;
}

/* Pieces of a direct copy that needs no scratch may have any size; every other piece has to fit the
 * channel's scratch or staging buffer. */
static size_t piece_limit(const gpufi_copy *copy) {
  if (copy->route != GPUFI_ROUTE_GATHER) {
    return copy->host_pinned ? DIRECT_PIECE_NBYTES : GPUFI_CHANNEL_BUFFER_NBYTES;
  }
  size_t nbytes = copy->nbytes / GATHER_PIECE_COUNT_MIN;
  nbytes -= nbytes % PIECE_ALIGN_NBYTES;
  nbytes = nbytes > GATHER_PIECE_NBYTES_MIN ? nbytes : GATHER_PIECE_NBYTES_MIN;
  return gpufi_min_nbytes(nbytes,
                          copy->host_pinned ? GPUFI_SCRATCH_NBYTES : GPUFI_CHANNEL_BUFFER_NBYTES);
}

static void plan_pieces(gpufi_copy *copy, const gpuf_copy_options *options) {
  const size_t element_nbytes = copy->host_layout.element_nbytes;
  const gpufi_strided *layout = &copy->device_layout;
  size_t nbytes = piece_limit(copy);
  if (options->piece_nbytes > 0) {
    nbytes = gpufi_min_nbytes(options->piece_nbytes, nbytes);
  }
  nbytes -= nbytes % element_nbytes;
  if (copy->route == GPUFI_ROUTE_ROWS) { /* whole rows, unless they are larger than a piece */
    const size_t row_nbytes = (size_t)layout->shape[layout->ndim - 1] * element_nbytes;
    nbytes -= row_nbytes <= nbytes ? nbytes % row_nbytes : 0;
  }
  copy->piece_nbytes = nbytes > 0 ? nbytes : element_nbytes;
  const size_t piece_count = (copy->nbytes + copy->piece_nbytes - 1) / copy->piece_nbytes;
  int32_t threads = options->thread_count;
  if (threads == 0) {
    threads = (int32_t)gpufi_min_nbytes((size_t)gpufi_cpu_count(), DEFAULT_THREAD_COUNT_MAX);
  }
  copy->thread_count = (int32_t)gpufi_min_nbytes(piece_count, (size_t)threads);
}

/* Whether the host side is page-locked, by the pool or, which the driver has to say, by others. */
static bool is_pinned(const gpufi_copy *copy) {
  return gpufi_pool_is_pinned(copy->device.kind, copy->h_data, copy->nbytes) ||
         (copy->nbytes >= FOREIGN_PINNED_NBYTES_MIN && copy->backend->is_pinned &&
          copy->backend->is_pinned(copy->device.index, copy->h_data, copy->nbytes));
}

gpuf_status gpufi_plan(gpufi_copy *copy, const gpuf_tensor *dst, const gpuf_tensor *src,
                       const gpuf_copy_options *options, gpuf_error *err) {
  const bool upload = src->device.kind == GPUF_DEVICE_CPU;
  gpuf_tensor device_side = upload ? *dst : *src;
  gpuf_tensor host_side = upload ? *src : *dst;
  const gpuf_status status = gpufi_backend_for(device_side.device, &copy->backend, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_plan_order(&host_side, &device_side);
  copy->device = device_side.device;
  copy->direction = upload ? GPUFI_TO_DEVICE : GPUFI_TO_HOST;
  copy->d_data = device_side.data;
  copy->h_data = host_side.data;
  copy->device_dtype = device_side.dtype;
  copy->host_dtype = host_side.dtype;
  copy->producer = device_side.stream;
  copy->nbytes = gpuf_tensor_nbytes(&host_side);
  gpufi_strided_init(&copy->device_layout, &device_side);
  gpufi_strided_init(&copy->host_layout, &host_side);
  copy->route = choose_route(copy);
  copy->host_pinned = gpufi_strided_is_contiguous(&copy->host_layout) && is_pinned(copy);
  plan_pieces(copy, options);
  return GPUF_OK;
}
