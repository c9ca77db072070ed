/* The first failure of an open file's system calls, which stays. Thread-safety: any thread; nothing
 * is locked, so a forked child may ask too. */
#ifndef GPUFI_HDF5_DRIVER_LATCH_H
#define GPUFI_HDF5_DRIVER_LATCH_H

#include <stdbool.h>
#include <stdint.h>

/* Zeroed: nothing has failed. */
typedef struct gpufi_h5_latch {
  bool is_claimed; /* by the thread that fills in what follows */
  bool is_set;     /* what follows is filled in, and does not change any more */
  int system_error;
  const char *operation; /* a static string, such as "write" */
  uint64_t offset;       /* in the file; 0 where the operation has none */
} gpufi_h5_latch;

/* Remember that `operation` failed with errno `system_error`, unless another one failed before. */
void gpufi_h5_latch_set(gpufi_h5_latch *latch, const char *operation, int system_error,
                        uint64_t offset);
/* Whether an operation has failed, and the members of `latch` can be read. */
bool gpufi_h5_latch_is_set(const gpufi_h5_latch *latch);

#endif
