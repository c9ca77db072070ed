/* Names of tensors and values: 1 to GPUFI_TENSOR_NAME_MAX_NBYTES bytes of UTF-8 without control
 * characters. Thread-safety: any thread. */
#ifndef GPUFI_COMM_NAME_H
#define GPUFI_COMM_NAME_H

#include <gpufetch/gpufetch.h>

/* For text that is known to be UTF-8. */
bool gpufi_name_valid(const char *name, size_t nbytes);
/* For a name that the program gives, which may be NULL or any bytes. */
gpuf_status gpufi_name_check(const char *name, gpuf_error *err);

#endif
