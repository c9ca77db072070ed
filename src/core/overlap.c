/* Two elements share a byte if their addresses differ by less than their size. The difference of
 * two addresses is a sum of strides, each taken a bounded number of times. So the question is
 * whether such a sum can lie in a given interval. The search takes the largest stride first: what
 * the smaller ones reach together then leaves few multiples of it to try, one or two where axes are
 * nested as those of arrays and their slices are. */
#include "core/overlap.h"

#include <inttypes.h>

#include "base/error.h"
#include "core/geometry.h"

#define TERMS_MAX (2 * GPUF_NDIM_MAX)
/* The most multiples that are tried: about 0.1 ms. */
#define TRIES_MAX 20000
/* Addresses beyond this are of no memory that there is; sums of them could overflow. */
#define SPAN_MAX (INT64_MAX / 8)

/* 0 to `last` times `stride`, which is positive. */
typedef struct term {
  int64_t stride;
  int64_t last;
} term;

/* By descending stride, all of which differ. */
typedef struct terms {
  int count;
  int64_t span; /* the sum of all at their last */
  term list[TERMS_MAX];
} terms;

static void add_term(terms *t, int64_t stride, int64_t last) {
  int at = 0;
  t->span += stride * last;
  while (at < t->count && t->list[at].stride > stride) {
    at++;
  }
  if (at < t->count && t->list[at].stride == stride) {
    t->list[at].last += last;
    return;
  }
  for (int i = t->count++; i > at; i--) {
    t->list[i] = t->list[i - 1];
  }
  t->list[at] = (term){stride, last};
}

static void add_axes(terms *t, const gpuf_tensor *tensor) {
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    const int64_t stride = tensor->strides_nbytes[axis];
    if (tensor->shape[axis] > 1 && stride != 0) {
      add_term(t, stride < 0 ? -stride : stride, tensor->shape[axis] - 1);
    }
  }
}

/* Whether the terms, which sum up to `span` at most, can sum up to a number in [low, high]. True
 * also when *tries is used up. */
static bool reaches(const term *list, int count, int64_t span, int64_t low, int64_t high,
                    int *tries) {
  if (high < 0 || low > span) {
    return false;
  }
  if (count == 0) {
    return true; /* the span is 0 */
  }
  const int64_t stride = list->stride, rest = span - stride * list->last;
  const int64_t first = low > rest ? (low - rest + stride - 1) / stride : 0;
  const int64_t last = high / stride < list->last ? high / stride : list->last;
  for (int64_t i = first; i <= last; i++) {
    if (--*tries < 0 ||
        reaches(list + 1, count - 1, rest, low - i * stride, high - i * stride, tries)) {
      return true;
    }
  }
  return false;
}

bool gpufi_tensors_overlap(const gpuf_tensor *a, const gpuf_tensor *b) {
  uintptr_t a_low, a_high, b_low, b_high;
  gpufi_tensor_extent(a, &a_low, &a_high);
  gpufi_tensor_extent(b, &b_low, &b_high);
  if (a_low >= a_high || b_low >= b_high || a_low >= b_high || b_low >= a_high) {
    return false;
  }
  if (a_high - a_low > SPAN_MAX || b_high - b_low > SPAN_MAX) {
    return true;
  }
  const int64_t a_nbytes = (int64_t)gpuf_dtype_nbytes(a->dtype);
  const int64_t b_nbytes = (int64_t)gpuf_dtype_nbytes(b->dtype);
  terms t = {0};
  int tries = TRIES_MAX;
  add_axes(&t, a);
  add_axes(&t, b);
  /* An element of `a` is at a_low plus a sum of its strides, one of `b` at its last address minus a
   * sum of its strides. They are at one address if both sums together are this: */
  const int64_t apart = (int64_t)(b_high - (uintptr_t)b_nbytes - a_low);
  return reaches(t.list, t.count, t.span, apart - a_nbytes + 1, apart + b_nbytes - 1, &tries);
}

/* Whether each stride is at least what the smaller ones reach, so that all elements are apart. */
static bool is_nested(const terms *t, int64_t element_nbytes) {
  int64_t reach = element_nbytes;
  for (int i = t->count - 1; i >= 0; i--) {
    if (t->list[i].stride < reach) {
      return false;
    }
    reach += t->list[i].stride * t->list[i].last;
  }
  return true;
}

/* Whether two elements overlap whose indices are equal along the terms before `first`, and differ
 * along that one by 1 or more. Along those behind it, the difference has either sign. */
static bool differ_along(const terms *t, int first, int64_t element_nbytes, int *tries) {
  terms differences = {0};
  int64_t offset = 0; /* of the sum of the differences, each of which counts from its least */
  for (int i = first + 1; i < t->count; i++) {
    add_term(&differences, t->list[i].stride, 2 * t->list[i].last);
    offset += t->list[i].stride * t->list[i].last;
  }
  const int64_t stride = t->list[first].stride;
  if (t->list[first].last > 1) {
    add_term(&differences, stride, t->list[first].last - 1);
  }
  return reaches(differences.list, differences.count, differences.span,
                 offset - stride - element_nbytes + 1, offset - stride + element_nbytes - 1, tries);
}

bool gpufi_tensor_repeats_elements(const gpuf_tensor *tensor) {
  const int64_t element_nbytes = (int64_t)gpuf_dtype_nbytes(tensor->dtype);
  uintptr_t low, high;
  terms t = {0};
  int32_t axes = 0;
  gpufi_tensor_extent(tensor, &low, &high);
  if (low == high) {
    return false; /* there are no elements, and the strides mean nothing */
  }
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    axes += tensor->shape[axis] > 1;
  }
  add_axes(&t, tensor);
  if (t.count < axes) {
    return true; /* a stride of 0, or two that are equal */
  }
  int tries = TRIES_MAX;
  bool found = false;
  if (!is_nested(&t, element_nbytes)) {
    found = high - low > SPAN_MAX;
    for (int i = 0; i < t.count && !found; i++) {
      found = differ_along(&t, i, element_nbytes, &tries);
    }
  }
  return found;
}

bool gpufi_tensors_coincide(const gpuf_tensor *a, const gpuf_tensor *b) {
  bool equal = a->data == b->data && a->ndim == b->ndim &&
               gpuf_dtype_nbytes(a->dtype) == gpuf_dtype_nbytes(b->dtype);
  for (int32_t axis = 0; axis < a->ndim && equal; axis++) {
    equal = a->shape[axis] == b->shape[axis] &&
            (a->shape[axis] < 2 || a->strides_nbytes[axis] == b->strides_nbytes[axis]);
  }
  return equal;
}

gpuf_status gpufi_overlap_check(const gpuf_tensor *dst, const gpuf_tensor *src, gpuf_error *err) {
  uintptr_t dst_low, dst_high, src_low, src_high;
  if (!gpufi_tensors_overlap(dst, src) || gpufi_tensors_coincide(dst, src)) {
    return GPUF_OK;
  }
  gpufi_tensor_extent(dst, &dst_low, &dst_high);
  gpufi_tensor_extent(src, &src_low, &src_high);
  return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                    "the destination (at 0x%zx to 0x%zx) and the source (at 0x%zx to 0x%zx) share "
                    "memory, so that elements would be overwritten before they are read; copy to "
                    "other memory first",
                    (size_t)dst_low, (size_t)dst_high, (size_t)src_low, (size_t)src_high);
}

/* Several elements of `dst` share memory: say which, as far as a stride alone tells it. */
static gpuf_status refuse_repeated(const gpuf_tensor *dst, gpuf_error *err) {
  int32_t axis = 0;
  while (axis < dst->ndim && (dst->shape[axis] < 2 || dst->strides_nbytes[axis] != 0)) {
    axis++;
  }
  return axis < dst->ndim
             ? gpufi_fail(err, GPUF_ERR_INVALID, 0,
                          "the destination repeats one element along axis %" PRId32
                          " (stride 0); give each element memory of its own",
                          axis)
             : gpufi_fail(err, GPUF_ERR_INVALID, 0,
                          "by the destination's strides, several of its elements at %p share "
                          "memory; give each element memory of its own",
                          dst->data);
}

gpuf_status gpufi_destination_check(const gpuf_tensor *dst, const gpuf_tensor *src,
                                    gpuf_error *err) {
  if (dst->ndim != src->ndim) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the destination has %" PRId32 " axes and the source %" PRId32
                      "; the shapes must be equal",
                      dst->ndim, src->ndim);
  }
  for (int32_t axis = 0; axis < dst->ndim; axis++) {
    if (dst->shape[axis] != src->shape[axis]) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "the destination's shape[%" PRId32 "] is %" PRId64
                        " and the source's %" PRId64 "; the shapes must be equal",
                        axis, dst->shape[axis], src->shape[axis]);
    }
  }
  return gpufi_tensor_repeats_elements(dst) ? refuse_repeated(dst, err) : GPUF_OK;
}
