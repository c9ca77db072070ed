/* Elements at signed strides, addressed by their index in C order.
 *
 * This is what the packing kernels of every backend take, and the reference that they agree with
 * bit for bit. Thread-safety: pure functions. */
#ifndef GPUFI_BACKEND_STRIDED_H
#define GPUFI_BACKEND_STRIDED_H

#include <gpufetch/gpufetch.h>

/* One more axis than a tensor: see gpufi_strided_split. */
#define GPUFI_STRIDED_NDIM_MAX (GPUF_NDIM_MAX + 1)

#define GPUFI_STRIDED_UNIT_NBYTES_MAX 16

/* A layout with its axes merged as far as they go: ndim >= 1, no axis of length 1 unless it is
 * the only one. Holds no pointer; small enough to be a kernel's argument. */
typedef struct gpufi_strided {
  int32_t ndim;
  uint32_t element_nbytes; /* 1, 2, 4, 8 or 16 */
  int64_t shape[GPUFI_STRIDED_NDIM_MAX];
  int64_t strides_nbytes[GPUFI_STRIDED_NDIM_MAX];
} gpufi_strided;

#ifdef __cplusplus
extern "C" {
#endif

/* Layout of a checked tensor with at least one element. */
void gpufi_strided_init(gpufi_strided *layout, const gpuf_tensor *tensor);

/* True if the elements are packed in C order. */
bool gpufi_strided_is_contiguous(const gpufi_strided *layout);

/* Byte offset, from the base, of an element by its index in C order. */
int64_t gpufi_strided_offset(const gpufi_strided *layout, int64_t element);

/* Describe elements first .. first+count-1 of the layout at `base` by the widest units, of at most
 * 16 bytes, that every address is a multiple of: fractions of an element if it is unaligned,
 * several elements where the last axis is contiguous. Counts in *first and *count become units. */
void gpufi_strided_refit(gpufi_strided *layout, const void *base, int64_t *first, int64_t *count);

/* Elements first .. first+count-1 of a layout whose last axis is strided while another, `axis`, is
 * contiguous: a kernel copies them by tiles of these two axes. A slice is what has one index along
 * `axis` and the axes outside of it. The range is head_count elements, slice_count whole slices,
 * tail_count elements. */
typedef struct gpufi_tiles {
  int32_t axis;
  int64_t slice_elements;
  int64_t first_slice;
  int64_t slice_count;
  int64_t head_count;
  int64_t tail_count;
} gpufi_tiles;

/* False where tiles would not pay. */
bool gpufi_strided_tiles(const gpufi_strided *layout, int64_t first, int64_t count,
                         gpufi_tiles *tiles);

/* Describe the same bytes as elements of `unit_nbytes`, a power of two that divides the element's
 * size: each old element becomes a last axis of several new ones. */
void gpufi_strided_split(gpufi_strided *layout, uint32_t unit_nbytes);

/* Copy elements first .. first+count-1 (in C order) of the layout at `base` to packed `dst`. */
void gpufi_strided_pack(const gpufi_strided *layout, const void *base, int64_t first, int64_t count,
                        void *dst);

/* The reverse: packed `src` to elements first .. first+count-1 of the layout at `base`. */
void gpufi_strided_unpack(const gpufi_strided *layout, void *base, int64_t first, int64_t count,
                          const void *src);

#ifdef __cplusplus
}
#endif

#endif
