/* How a copy between a device and host memory travels. The axes of both sides are put into the
 * order of host memory, and the route follows from the device side then. Whichever route it is, the
 * host side is either pinned, so that the device transfers to it directly, or the elements go
 * through pinned staging buffers. Thread-safety: any thread. */
#ifndef GPUFI_CORE_PLAN_H
#define GPUFI_CORE_PLAN_H

#include "backend/backend.h"

#define GPUFI_COPY_THREADS_MAX 64

/* How the device side travels. */
typedef enum gpufi_route {
  GPUFI_ROUTE_FLAT,   /* contiguous: a piece is one range of bytes */
  GPUFI_ROUTE_ROWS,   /* wide rows: 2-D copies */
  GPUFI_ROUTE_GATHER, /* else: a kernel packs (or unpacks) each piece in scratch, and casts if need
                         be */
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
  gpuf_dtype host_dtype; /* of the elements that travel; differs only in a copy that casts */
  gpufi_route route;
  bool host_pinned;     /* contiguous, and page-locked as one range */
  size_t nbytes;        /* that travel in all, > 0 */
  size_t piece_nbytes;  /* a multiple of the size of the elements that travel */
  gpuf_stream producer; /* the copy starts after the work on it */
  int32_t thread_count; /* of a copy by threads: all that take part */
} gpufi_copy;

/* Plan a copy between checked tensors of equal shape with at least one element, exactly one of
 * which is on the CPU. */
gpuf_status gpufi_plan(gpufi_copy *copy, const gpuf_tensor *dst, const gpuf_tensor *src,
                       const gpuf_copy_options *options, gpuf_error *err);
/* Permute and reverse the axes of both tensors alike, so that the addresses of `lead` ascend as far
 * as they can: if some order of the axes makes it C order, this one does. */
void gpufi_plan_order(gpuf_tensor *lead, gpuf_tensor *other);

#endif
