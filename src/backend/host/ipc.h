/* Passing the host backend's device memory to other processes: as the backend's entries. */
#ifndef GPUFI_BACKEND_HOST_IPC_H
#define GPUFI_BACKEND_HOST_IPC_H

#include "backend/backend.h"

gpuf_status gpufi_host_ipc_identity(int32_t device, uint8_t *identity, gpuf_error *err);
gpuf_status gpufi_host_ipc_export(int32_t device, const void *d_ptr,
                                  gpufi_ipc_allocation *allocation, gpuf_error *err);
gpuf_status gpufi_host_ipc_open(int32_t device, const gpufi_ipc_allocation *allocation,
                                int descriptor, void **d_base, gpuf_error *err);

#endif
