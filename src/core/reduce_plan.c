/* Putting a reduction's axes into the order of memory, and merging them where that is possible. */
#include "base/arithmetic.h"
#include "core/reduce.h"

/* A repeated axis goes outermost, so that the elements are read in contiguous ranges. */
static bool belongs_before(const gpufi_reduce_axis *a, const gpufi_reduce_axis *b) {
  if (b->stride_nbytes == 0) {
    return false;
  }
  return a->stride_nbytes == 0 ||
         gpufi_magnitude(a->stride_nbytes) > gpufi_magnitude(b->stride_nbytes);
}

static void sort_axes(gpufi_reduce *job) {
  for (int32_t i = 1; i < job->ndim; i++) {
    const gpufi_reduce_axis axis = job->axes[i];
    int32_t place = i;
    while (place > 0 && belongs_before(&axis, &job->axes[place - 1])) {
      job->axes[place] = job->axes[place - 1];
      place--;
    }
    job->axes[place] = axis;
  }
}

/* Two neighbours are one axis if their elements follow each other at one stride and the cells of
 * the one axis are those of the two. */
static bool merge(gpufi_reduce_axis *outer, const gpufi_reduce_axis *inner) {
  if (outer->stride_nbytes != inner->stride_nbytes * inner->length) {
    return false;
  }
  const bool whole = inner->cell_count == 1 && outer->length % outer->cell_count == 0;
  const bool single = outer->cell_count == outer->length &&
                      inner->length % inner->cell_count == 0 &&
                      outer->cell_stride == inner->cell_stride * inner->cell_count;
  if (!whole && !single) {
    return false;
  }
  if (!whole) {
    outer->cell_stride = inner->cell_stride;
  }
  outer->stride_nbytes = inner->stride_nbytes;
  outer->length *= inner->length;
  outer->cell_count *= inner->cell_count;
  return true;
}

static void merge_axes(gpufi_reduce *job) {
  int32_t last = 0;
  for (int32_t i = 1; i < job->ndim; i++) {
    if (!merge(&job->axes[last], &job->axes[i])) {
      job->axes[++last] = job->axes[i];
    }
  }
  job->ndim = last + 1;
}

void gpufi_reduce_plan(gpufi_reduce *job, const gpuf_tensor *src, const int64_t *shape,
                       const char **base) {
  const char *start = src->data;
  job->dtype = src->dtype;
  job->element_nbytes = (uint32_t)gpuf_dtype_nbytes(src->dtype);
  job->ndim = 0;
  job->cell_count = 1;
  for (int32_t axis = src->ndim - 1; axis >= 0; axis--) {
    gpufi_reduce_axis a = {src->shape[axis], src->strides_nbytes[axis], shape ? shape[axis] : 1,
                           job->cell_count};
    if (a.length == 1) {
      continue;
    }
    if (!shape && a.stride_nbytes < 0) {
      start += (a.length - 1) * a.stride_nbytes;
      a.stride_nbytes = -a.stride_nbytes;
    }
    job->cell_count *= a.cell_count;
    job->axes[job->ndim++] = a;
  }
  if (job->ndim == 0) {
    job->axes[job->ndim++] = (gpufi_reduce_axis){1, job->element_nbytes, 1, 1};
  }
  for (int32_t i = 0; i < job->ndim / 2; i++) { /* collected from the last axis on */
    const gpufi_reduce_axis axis = job->axes[i];
    job->axes[i] = job->axes[job->ndim - 1 - i];
    job->axes[job->ndim - 1 - i] = axis;
  }
  sort_axes(job);
  merge_axes(job);
  *base = start;
}
