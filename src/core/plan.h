/* How a copy between a device and host memory travels: see plan.c. Thread-safety: any thread. */
#ifndef GPUFI_CORE_PLAN_H
#define GPUFI_CORE_PLAN_H

#include "backend/backend.h"

#define GPUFI_COPY_THREADS_MAX 64

/* How the device side travels. */
typedef enum gpufi_route {
  GPUFI_ROUTE_FLAT,   /* contiguous: one range of bytes a piece */
  GPUFI_ROUTE_ROWS,   /* wide rows: 2-D copies */
  GPUFI_ROUTE_GATHER, /* a kernel packs (or unpacks) each piece in scratch, and casts if need be */
} gpufi_route;

/* What to copy. Constant once planned. */
typedef struct gpufi_copy {
  const gpufi_backend *backend;
  gpuf_device device;
  gpufi_direction direction;
  char *d_data; /* element 0 of the device side */
  char *h_data; /* element 0 of the host side */
  gpufi_strided device_layout;
  gpufi_strided host_layout; /* the same elements in the same order */
  gpuf_dtype device_dtype;
  gpuf_dtype host_dtype; /* what travels; another only in a copy that casts */
  gpufi_route route;
  bool host_pinned;     /* contiguous, and page-locked in one piece */
  size_t nbytes;        /* that travel in all, > 0 */
  size_t piece_nbytes;  /* a multiple of the size of the elements that travel */
  gpuf_stream producer; /* the copy starts after the work on it */
  int32_t thread_count; /* of a copy by threads */
  gpufi_chunks chunks;  /* of a coded copy: a batch */
} gpufi_copy;

/* For checked tensors of equal shape with at least one element, one of them on the CPU. */
gpuf_status gpufi_plan(gpufi_copy *copy, const gpuf_tensor *dst, const gpuf_tensor *src,
                       const gpuf_copy_options *options, gpuf_error *err);
/* Permute and reverse the axes of both tensors alike, so that `lead` ascends in memory as far as
 * it can: elements then lie in it in C order where any order makes them. */
void gpufi_plan_order(gpuf_tensor *lead, gpuf_tensor *other);

#endif
