/* Whether the calling thread runs a kernel of the program, which may not use devices. */
#ifndef GPUFI_BASE_KERNEL_THREAD_H
#define GPUFI_BASE_KERNEL_THREAD_H

#include <gpufetch/gpufetch.h>

/* Run a kernel on the calling thread, a stream's. */
void gpufi_run_kernel(void (*kernel)(const void *args), const void *args);
bool gpufi_in_kernel(void);
/* Fill `err` for a call that a kernel may not make, and return GPUF_ERR_STATE. */
gpuf_status gpufi_refuse_in_kernel(gpuf_error *err);

#endif
