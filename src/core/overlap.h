/* Whether elements share memory, and what may be a copy's destination. Every function takes tensors
 * that gpuf_tensor_check accepts, and may be called from any thread. */
#ifndef GPUFI_CORE_OVERLAP_H
#define GPUFI_CORE_OVERLAP_H

#include <gpufetch/gpufetch.h>

/* True if an element of one tensor shares a byte with an element of the other. Views that only
 * interleave do not overlap. Where strides are so irregular that this would take long to find out,
 * the result is true. Device kinds are not compared, because managed memory has one address on the
 * CPU and on a GPU. */
bool gpufi_tensors_overlap(const gpuf_tensor *a, const gpuf_tensor *b);
/* True if two elements of the tensor share a byte, as those along a stride of 0 do; also, again,
 * where this would take long to find out. */
bool gpufi_tensor_repeats_elements(const gpuf_tensor *tensor);

/* GPUF_ERR_INVALID unless `dst` can take a copy of `src`: it has the same shape, and its elements
 * share no memory with each other. Element types, devices and overlap with `src`
 * (gpufi_overlap_check) are left to the caller. */
gpuf_status gpufi_destination_check(const gpuf_tensor *dst, const gpuf_tensor *src,
                                    gpuf_error *err);

/* True if each element of `a` is at the address of the same element of `b`, and has its size. */
bool gpufi_tensors_coincide(const gpuf_tensor *a, const gpuf_tensor *b);
/* GPUF_ERR_INVALID, naming the addresses, if a copy of `src` to `dst` would overwrite elements of
 * `src` before they are read. Their shapes are equal. A tensor may be copied onto itself. */
gpuf_status gpufi_overlap_check(const gpuf_tensor *dst, const gpuf_tensor *src, gpuf_error *err);

#endif
