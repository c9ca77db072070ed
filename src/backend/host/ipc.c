/* The host backend's device memory lies in a file, so that a descriptor of it and an offset name an
 * allocation to another process. */
#include "backend/host/ipc.h"

#include <string.h>

#include "backend/host/memory.h"

/* What an allocation's name begins with; the rest of it is zero. */
typedef struct host_name {
  int64_t offset;
} host_name;

_Static_assert(sizeof(host_name) <= GPUFI_IPC_NAME_NBYTES, "fits an allocation's name");

/* Every machine has the same fake GPUs. */
gpuf_status gpufi_host_ipc_identity(int32_t device, uint8_t *identity, gpuf_error *err) {
  memset(identity, 0, GPUFI_IPC_IDENTITY_NBYTES);
  memcpy(identity, &device, sizeof(device));
  return GPUF_OK;
}

gpuf_status gpufi_host_ipc_export(int32_t device, const void *d_ptr,
                                  gpufi_ipc_allocation *allocation, gpuf_error *err) {
  gpufi_host_range range;
  const gpuf_status status = gpufi_host_locate(d_ptr, &range, err);
  if (status == GPUF_OK) {
    const host_name name = {range.offset};
    memset(allocation, 0, sizeof(*allocation));
    memcpy(allocation->name, &name, sizeof(name));
    allocation->d_base = range.d_base;
    allocation->nbytes = range.nbytes;
  }
  return status;
}

gpuf_status gpufi_host_ipc_open(int32_t device, const gpufi_ipc_allocation *allocation,
                                int descriptor, void **d_base, gpuf_error *err) {
  host_name name;
  memcpy(&name, allocation->name, sizeof(name));
  const gpufi_host_range range = {NULL, allocation->nbytes, name.offset};
  return gpufi_host_import(device, descriptor, &range, d_base, err);
}
