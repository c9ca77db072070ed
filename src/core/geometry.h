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

/* Exchange two axes in place, which describes the transposed tensor. */
void gpufi_tensor_swap_axes(gpuf_tensor *tensor, int32_t a, int32_t b);

#endif
