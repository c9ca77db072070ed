/* Several flat copies inside one device, done by one call. */
#ifndef GPUFI_BACKEND_GATHER_H
#define GPUFI_BACKEND_GATHER_H

#include <stddef.h>

/* `nbytes` > 0 from `src` to `dst`, both in the memory of one device, of any alignment. */
typedef struct gpufi_flat_copy {
  void *dst;
  const void *src;
  size_t nbytes;
} gpufi_flat_copy;

#endif
