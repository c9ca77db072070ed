/* The error for chunks that docs/format.md does not allow. */
#ifndef GPUFI_CODEC_CORRUPT_H
#define GPUFI_CODEC_CORRUPT_H

#include "base/error.h"

#include <stddef.h>

/* `at` is the offset in the chunk of what is wrong. */
static inline gpuf_status gpufi_corrupt(gpuf_error *err, size_t at, const char *what) {
  return gpufi_fail(err, GPUF_ERR_CORRUPT, 0, "corrupt chunk at byte %zu: %s", at, what);
}

#endif
