/* Kernels of the program that run on the host backend: see gpuf_host_launch. */
#ifndef GPUFI_BACKEND_HOST_KERNEL_H
#define GPUFI_BACKEND_HOST_KERNEL_H

#include <gpufetch/gpufetch.h>

/* As gpuf_host_launch and gpuf_host_pointer. */
gpuf_status gpufi_host_launch(int32_t device, gpuf_stream stream, void (*kernel)(const void *args),
                              const void *args, size_t args_nbytes, gpuf_error *err);
void *gpufi_host_kernel_pointer(const void *d_ptr);

#endif
