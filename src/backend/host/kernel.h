/* Kernels of the program that run on the host backend: see gpuf_host_launch. */
#ifndef GPUFI_BACKEND_HOST_KERNEL_H
#define GPUFI_BACKEND_HOST_KERNEL_H

#include <gpufetch/gpufetch.h>

/* As gpuf_host_launch and gpuf_host_pointer. */
gpuf_status gpufi_host_launch(int32_t device, gpuf_stream stream, void (*kernel)(const void *args),
                              const void *args, size_t args_nbytes, gpuf_error *err);
void *gpufi_host_kernel_pointer(const void *d_ptr);

/* True on a stream's thread while it runs a kernel of the program. */
bool gpufi_host_in_kernel(void);
/* Fill `err` for a call that a kernel may not make, and return GPUF_ERR_STATE. */
gpuf_status gpufi_host_refuse_in_kernel(gpuf_error *err);

#endif
