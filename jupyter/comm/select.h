/* Slices of a tensor, with the meaning of Python's, and fragments of what is too large for one
 * reply. The numbers in a request are any 64-bit integers: nothing here overflows. */
#ifndef GPUFI_COMM_SELECT_H
#define GPUFI_COMM_SELECT_H

#include "comm/failure.h"
#include "comm/request.h"

/* Narrow `tensor` by the request's slices. */
gpufi_code gpufi_select(const gpufi_request *request, gpuf_tensor *tensor, gpuf_error *err);

/* Where a fragment of a selection lies. */
typedef struct gpufi_fragment {
  int64_t count;        /* fragments of the selection */
  size_t offset_nbytes; /* of the fragment in the packed selection, in C order */
} gpufi_fragment;

/* Narrow `tensor` to fragment number `index` of the fewest fragments that are contiguous in the
 * packed selection and fit a reply. */
gpufi_code gpufi_select_fragment(gpuf_tensor *tensor, size_t element_nbytes, int64_t index,
                                 gpufi_fragment *fragment, gpuf_error *err);

#endif
