/* Packing and unpacking: elements of a strided layout to and from contiguous memory. */
#ifndef GPUFI_BACKEND_PACKING_H
#define GPUFI_BACKEND_PACKING_H

#include "backend/cast.h"
#include "backend/strided.h"

/* Elements first .. first+count-1 (in C order) of a layout, and as many packed ones. To pack reads
 * the former and writes the latter; to unpack does the reverse. Small enough to be copied. */
typedef struct gpufi_packing {
  gpufi_strided layout;
  void *d_base; /* of the layout */
  int64_t first;
  int64_t count;  /* > 0 */
  void *d_packed; /* a multiple of 16 */
  /* The types of what is read and of what is written: equal ones (also zeros) where elements keep
   * their bits. The layout's element size is that of its own side. */
  gpufi_cast cast;
} gpufi_packing;

/* All elements of a tensor, none of them converted. */
static inline gpufi_packing gpufi_packing_whole(const gpuf_tensor *tensor, void *d_packed) {
  gpufi_packing packing;
  gpufi_strided_init(&packing.layout, tensor);
  packing.d_base = tensor->data;
  packing.first = 0;
  packing.count = gpuf_tensor_count(tensor);
  packing.d_packed = d_packed;
  packing.cast.from = packing.cast.to = tensor->dtype;
  return packing;
}

static inline bool gpufi_packing_casts(const gpufi_packing *packing) {
  return packing->cast.from != packing->cast.to;
}

#endif
