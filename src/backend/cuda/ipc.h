/* The CUDA backend's table entries for passing memory to other processes: see backend.h. */
#ifndef GPUFI_BACKEND_CUDA_IPC_H
#define GPUFI_BACKEND_CUDA_IPC_H

#include "backend/backend.h"

gpuf_status gpufi_cuda_ipc_identity(int32_t device, uint8_t *identity, gpuf_error *err);
gpuf_status gpufi_cuda_ipc_export(int32_t device, const void *d_ptr,
                                  gpufi_ipc_allocation *allocation, gpuf_error *err);
int gpufi_cuda_ipc_descriptor(void);
gpuf_status gpufi_cuda_ipc_open(int32_t device, const gpufi_ipc_allocation *allocation,
                                int descriptor, void **d_base, gpuf_error *err);
gpuf_status gpufi_cuda_ipc_close(int32_t device, void *d_base, gpuf_error *err);

#endif
