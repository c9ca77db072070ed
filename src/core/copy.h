/* Checking a copy, planning it and choosing who carries it out. Thread-safety: any thread. */
#ifndef GPUFI_CORE_COPY_H
#define GPUFI_CORE_COPY_H

#include "core/plan.h"

/* Who carries a copy out. */
typedef enum gpufi_carrier {
  GPUFI_CARRIER_NONE,   /* there are no elements, or each is in its place already */
  GPUFI_CARRIER_CPU,    /* both sides are on the CPU */
  GPUFI_CARRIER_DIRECT, /* the device alone: the CPU side is pinned and contiguous */
  GPUFI_CARRIER_STAGED, /* the device and threads */
} gpufi_carrier;

/* Complete the caller's options, which may be NULL for the defaults. Every other call here takes
 * complete ones. */
gpuf_status gpufi_copy_options_read(gpuf_copy_options *own, const gpuf_copy_options *given,
                                    gpuf_error *err);
/* Check the arguments, and plan the copies that a device takes part in; *copy is filled for those
 * only. */
gpuf_status gpufi_copy_plan(gpufi_copy *copy, const gpuf_tensor *dst, const gpuf_tensor *src,
                            const gpuf_copy_options *options, gpufi_carrier *carrier,
                            gpuf_error *err);

#endif
