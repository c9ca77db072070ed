/* Elements at signed strides, addressed by their index in C order.
 *
 * This is what the packing kernels of every backend take, and the reference that they agree with
 * bit for bit. Thread-safety: pure functions. */
#ifndef GPUFI_BACKEND_STRIDED_H
#define GPUFI_BACKEND_STRIDED_H

#include <gpufetch/gpufetch.h>

/* One more axis than a tensor: see gpufi_strided_split. */
#define GPUFI_STRIDED_NDIM_MAX (GPUF_NDIM_MAX + 1)

/* A layout with its axes merged as far as they go: ndim >= 1, no axis of length 1 unless it is
 * the only one. Holds no pointer; small enough to be a kernel's argument. */
typedef struct gpufi_strided {
  int32_t ndim;
  uint32_t element_nbytes; /* 1, 2, 4, 8 or 16 */
  int64_t shape[GPUFI_STRIDED_NDIM_MAX];
  int64_t strides_nbytes[GPUFI_STRIDED_NDIM_MAX];
} gpufi_strided;

/* Layout of a checked tensor with at least one element. */
void gpufi_strided_init(gpufi_strided *layout, const gpuf_tensor *tensor);

/* True if the elements are packed in C order. */
bool gpufi_strided_is_contiguous(const gpufi_strided *layout);

/* Describe the same bytes as elements of `unit_nbytes`, a power of two that divides the element's
 * size: each old element becomes a last axis of several new ones. */
void gpufi_strided_split(gpufi_strided *layout, uint32_t unit_nbytes);

/* Copy elements first .. first+count-1 (in C order) of the layout at `base` to packed `dst`. */
void gpufi_strided_pack(const gpufi_strided *layout, const void *base, int64_t first, int64_t count,
                        void *dst);

/* The reverse: packed `src` to elements first .. first+count-1 of the layout at `base`. */
void gpufi_strided_unpack(const gpufi_strided *layout, void *base, int64_t first, int64_t count,
                          const void *src);

#endif
