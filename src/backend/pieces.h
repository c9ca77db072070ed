/* Several flat copies inside one device, done by one call. */
#ifndef GPUFI_BACKEND_PIECES_H
#define GPUFI_BACKEND_PIECES_H

#include <stddef.h>

/* `nbytes` > 0 from `src` to `dst`, both in the memory of one device, of any alignment. */
typedef struct gpufi_piece {
  void *dst;
  const void *src;
  size_t nbytes;
} gpufi_piece;

#endif
