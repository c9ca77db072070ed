/* Chunks behind filters that HDF5 itself has, shuffle, deflate and fletcher32, decoded without
 * HDF5, so that several threads can. Thread-safety: every function, from any thread. */
#ifndef GPUFI_HDF5_STEPS_H
#define GPUFI_HDF5_STEPS_H

#include <gpufetch/gpufetch.h>

#define GPUFI_H5_STEPS_MAX 4

typedef enum gpufi_h5_step_kind {
  GPUFI_H5_STEP_SHUFFLE,
  GPUFI_H5_STEP_DEFLATE,
  GPUFI_H5_STEP_FLETCHER32,
} gpufi_h5_step_kind;

typedef struct gpufi_h5_step {
  gpufi_h5_step_kind kind;
  uint32_t element_nbytes; /* of shuffle: not 0 */
} gpufi_h5_step;

/* A pipeline of them, in the order of writing. */
typedef struct gpufi_h5_steps {
  int32_t count;
  gpufi_h5_step step[GPUFI_H5_STEPS_MAX];
} gpufi_h5_steps;

/* Most bytes that a stored chunk may have: more than deflate makes of noise. */
size_t gpufi_h5_steps_bound(size_t raw_nbytes);

/* Bytes of scratch that decoding needs. */
size_t gpufi_h5_steps_scratch_nbytes(size_t raw_nbytes);

/* Undo the steps, the last first, into `raw` of exactly `raw_nbytes` bytes. `encoded` is untrusted,
 * and has at most gpufi_h5_steps_bound() bytes. Bit i of `filter_mask` says that step i was left
 * out. GPUF_ERR_CORRUPT for anything but one whole chunk; nothing is written outside `raw` and
 * `scratch`, which are then indeterminate. */
gpuf_status gpufi_h5_steps_decode(const gpufi_h5_steps *steps, uint32_t filter_mask,
                                  const void *encoded, size_t encoded_nbytes, void *raw,
                                  size_t raw_nbytes, void *scratch, gpuf_error *err);

#endif
