#include "backend/strided.h"

#include <stdlib.h>
#include <string.h>

/* With edges of this length, at least a quarter of a tile's 32 × 32 elements is used. */
#define TILE_EDGE_MIN 16

void gpufi_strided_init(gpufi_strided *layout, const gpuf_tensor *tensor) {
  int32_t ndim = 0;
  layout->element_nbytes = (uint32_t)gpuf_dtype_nbytes(tensor->dtype);
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    const int64_t length = tensor->shape[axis];
    const int64_t stride = tensor->strides_nbytes[axis];
    if (length == 1) {
      continue;
    }
    if (ndim > 0 && layout->strides_nbytes[ndim - 1] == stride * length) {
      layout->shape[ndim - 1] *= length;
      layout->strides_nbytes[ndim - 1] = stride;
    } else {
      layout->shape[ndim] = length;
      layout->strides_nbytes[ndim] = stride;
      ndim++;
    }
  }
  if (ndim == 0) {
    layout->shape[0] = 1;
    layout->strides_nbytes[0] = layout->element_nbytes;
    ndim = 1;
  }
  layout->ndim = ndim;
}

bool gpufi_strided_is_contiguous(const gpufi_strided *layout) {
  return layout->ndim == 1 && layout->strides_nbytes[0] == layout->element_nbytes;
}

void gpufi_strided_split(gpufi_strided *layout, uint32_t unit_nbytes) {
  if (unit_nbytes < layout->element_nbytes) {
    layout->shape[layout->ndim] = layout->element_nbytes / unit_nbytes;
    layout->strides_nbytes[layout->ndim] = unit_nbytes;
    layout->ndim++;
    layout->element_nbytes = unit_nbytes;
  }
}

static void merge_elements(gpufi_strided *layout, uint32_t unit_nbytes) {
  const int32_t last = layout->ndim - 1;
  layout->shape[last] /= unit_nbytes / layout->element_nbytes;
  layout->strides_nbytes[last] = unit_nbytes;
  layout->element_nbytes = unit_nbytes;
}

void gpufi_strided_refit(gpufi_strided *layout, const void *base, int64_t *first, int64_t *count) {
  const int32_t last = layout->ndim - 1;
  const int64_t nbytes = layout->element_nbytes;
  const bool contiguous = layout->strides_nbytes[last] == nbytes;
  uintptr_t bits = (uintptr_t)base | GPUFI_STRIDED_UNIT_NBYTES_MAX;
  if (contiguous) {
    bits |= (uintptr_t)(layout->shape[last] * nbytes) | (uintptr_t)(*first * nbytes) |
            (uintptr_t)(*count * nbytes);
  } else {
    bits |= (uintptr_t)nbytes | (uintptr_t)layout->strides_nbytes[last];
  }
  for (int32_t axis = 0; axis < last; axis++) {
    bits |= (uintptr_t)layout->strides_nbytes[axis];
  }
  const uint32_t unit_nbytes = (uint32_t)(bits & -bits);
  *first = *first * nbytes / unit_nbytes;
  *count = *count * nbytes / unit_nbytes;
  if (unit_nbytes > nbytes) {
    merge_elements(layout, unit_nbytes);
  } else {
    gpufi_strided_split(layout, unit_nbytes);
  }
}

/* The axis, other than the last, whose neighbours are neighbours in memory; -1 if there is none. */
static int32_t contiguous_axis(const gpufi_strided *layout) {
  for (int32_t axis = 0; axis < layout->ndim - 1; axis++) {
    if (llabs(layout->strides_nbytes[axis]) == layout->element_nbytes &&
        layout->shape[axis] >= TILE_EDGE_MIN) {
      return axis;
    }
  }
  return -1;
}

bool gpufi_strided_tiles(const gpufi_strided *layout, int64_t first, int64_t count,
                         gpufi_tiles *tiles) {
  const int32_t last = layout->ndim - 1;
  const int32_t axis = contiguous_axis(layout);
  if (axis < 0 || layout->shape[last] < TILE_EDGE_MIN ||
      llabs(layout->strides_nbytes[last]) == layout->element_nbytes) {
    return false;
  }
  int64_t slice_elements = 1;
  for (int32_t i = axis + 1; i <= last; i++) {
    slice_elements *= layout->shape[i];
  }
  const int64_t end_slice = (first + count) / slice_elements;
  tiles->axis = axis;
  tiles->slice_elements = slice_elements;
  tiles->first_slice = first / slice_elements + (first % slice_elements > 0);
  tiles->slice_count = end_slice - tiles->first_slice;
  tiles->head_count = tiles->first_slice * slice_elements - first;
  tiles->tail_count = first + count - end_slice * slice_elements;
  return tiles->slice_count >= TILE_EDGE_MIN;
}

int64_t gpufi_strided_offset(const gpufi_strided *layout, int64_t element) {
  int64_t offset_nbytes = 0;
  for (int32_t axis = layout->ndim - 1; axis >= 0; axis--) {
    offset_nbytes += element % layout->shape[axis] * layout->strides_nbytes[axis];
    element /= layout->shape[axis];
  }
  return offset_nbytes;
}

/* A position in a layout: the index along each axis and the byte offset it amounts to. */
typedef struct cursor {
  int64_t index[GPUFI_STRIDED_NDIM_MAX];
  int64_t offset_nbytes;
} cursor;

static void cursor_seek(cursor *at, const gpufi_strided *layout, int64_t element) {
  at->offset_nbytes = 0;
  for (int32_t axis = layout->ndim - 1; axis >= 0; axis--) {
    at->index[axis] = element % layout->shape[axis];
    element /= layout->shape[axis];
    at->offset_nbytes += at->index[axis] * layout->strides_nbytes[axis];
  }
}

/* Move on by `count` elements, which do not pass the end of the last axis. */
static void cursor_advance(cursor *at, const gpufi_strided *layout, int64_t count) {
  int32_t axis = layout->ndim - 1;
  at->index[axis] += count;
  at->offset_nbytes += count * layout->strides_nbytes[axis];
  while (axis > 0 && at->index[axis] == layout->shape[axis]) {
    at->offset_nbytes -= layout->shape[axis] * layout->strides_nbytes[axis];
    at->index[axis] = 0;
    axis--;
    at->index[axis]++;
    at->offset_nbytes += layout->strides_nbytes[axis];
  }
}

/* Copy `count` elements of size `nbytes` between two strides. A constant `nbytes` at each call
 * site turns memcpy into one load and one store, at any alignment. */
static inline void copy_elements(char *dst, int64_t dst_stride, const char *src, int64_t src_stride,
                                 int64_t count, size_t nbytes) {
  for (int64_t i = 0; i < count; i++) {
    memcpy(dst + i * dst_stride, src + i * src_stride, nbytes);
  }
}

static void copy_row(char *dst, int64_t dst_stride, const char *src, int64_t src_stride,
                     int64_t count, uint32_t element_nbytes) {
  if (dst_stride == element_nbytes && src_stride == element_nbytes) {
    memcpy(dst, src, (size_t)count * element_nbytes);
    return;
  }
  switch (element_nbytes) {
  case 1:
    copy_elements(dst, dst_stride, src, src_stride, count, 1);
    break;
  case 2:
    copy_elements(dst, dst_stride, src, src_stride, count, 2);
    break;
  case 4:
    copy_elements(dst, dst_stride, src, src_stride, count, 4);
    break;
  case 8:
    copy_elements(dst, dst_stride, src, src_stride, count, 8);
    break;
  default:
    copy_elements(dst, dst_stride, src, src_stride, count, 16);
    break;
  }
}

static int64_t row_remaining(const cursor *at, const gpufi_strided *layout, int64_t count) {
  const int32_t last = layout->ndim - 1;
  const int64_t remaining = layout->shape[last] - at->index[last];
  return remaining < count ? remaining : count;
}

/* Copy elements first .. first+count-1 of the layout at `base` to packed ones, or the reverse. */
static void copy_strided(const gpufi_strided *layout, char *base, int64_t first, int64_t count,
                         char *packed, bool unpack) {
  const int64_t packed_stride = layout->element_nbytes;
  const int64_t stride = layout->strides_nbytes[layout->ndim - 1];
  cursor at;
  cursor_seek(&at, layout, first);
  while (count > 0) {
    const int64_t row = row_remaining(&at, layout, count);
    char *const elements = base + at.offset_nbytes;
    if (unpack) {
      copy_row(elements, stride, packed, packed_stride, row, layout->element_nbytes);
    } else {
      copy_row(packed, packed_stride, elements, stride, row, layout->element_nbytes);
    }
    packed += row * packed_stride;
    count -= row;
    cursor_advance(&at, layout, row);
  }
}

void gpufi_strided_pack(const gpufi_strided *layout, const void *base, int64_t first, int64_t count,
                        void *dst) {
  copy_strided(layout, (char *)base, first, count, dst, false);
}

void gpufi_strided_unpack(const gpufi_strided *layout, void *base, int64_t first, int64_t count,
                          const void *src) {
  copy_strided(layout, base, first, count, (char *)src, true);
}
