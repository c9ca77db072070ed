/* Where a tensor's elements lie. Every function takes a tensor that gpuf_tensor_check accepts, so
 * that nothing overflows, and may be called from any thread. */
#ifndef GPUFI_CORE_GEOMETRY_H
#define GPUFI_CORE_GEOMETRY_H

#include <gpufetch/gpufetch.h>

/* True if the elements are packed in Fortran order (also for fewer than two elements). */
bool gpufi_tensor_is_f_contiguous(const gpuf_tensor *tensor);

/* How many bytes of elements lie below tensor->data and how many from there on; both are 0 if there
 * are no elements. */
void gpufi_tensor_reach(const gpuf_tensor *tensor, size_t *below_nbytes, size_t *above_nbytes);
/* The addresses [low, high) that the elements lie in; empty if there are none. */
void gpufi_tensor_extent(const gpuf_tensor *tensor, uintptr_t *low, uintptr_t *high);
/* True if the extents share a byte. Elements of two views may interleave without sharing any. */
bool gpufi_tensors_overlap(const gpuf_tensor *a, const gpuf_tensor *b);

/* Exchange two axes in place, which describes the transposed tensor. */
void gpufi_tensor_swap_axes(gpuf_tensor *tensor, int32_t a, int32_t b);

/* True if a stride of 0 puts several elements at one address. */
bool gpufi_tensor_repeats_elements(const gpuf_tensor *tensor);
/* GPUF_ERR_INVALID unless `dst` can take a copy of `src`: it has the same shape, and its elements
 * are distinct. Element types, devices and overlap are left to the caller. */
gpuf_status gpufi_destination_check(const gpuf_tensor *dst, const gpuf_tensor *src,
                                    gpuf_error *err);

#endif
