/* Passing the host backend's device memory to other processes: the file that it lies in, and an
 * offset. */
#include <string.h>

#include "backend/host/host.h"
#include "base/error.h"

/* In an ipc block's name; the rest of it is zero. */
typedef struct host_name {
  int64_t offset;
} host_name;

_Static_assert(sizeof(host_name) <= GPUFI_IPC_NAME_NBYTES, "fits an ipc block's name");

/* Every machine has the same fake GPUs. */
gpuf_status gpufi_host_ipc_identity(int32_t device, uint8_t *identity, gpuf_error *err) {
  memset(identity, 0, GPUFI_IPC_IDENTITY_NBYTES);
  memcpy(identity, &device, sizeof(device));
  return GPUF_OK;
}

gpuf_status gpufi_host_ipc_export(int32_t device, const void *d_ptr, gpufi_ipc_allocation *block,
                                  gpuf_error *err) {
  gpufi_host_range range;
  const gpuf_status status = gpufi_host_locate(d_ptr, &range, err);
  if (status == GPUF_OK) {
    const host_name name = {range.offset};
    memset(block, 0, sizeof(*block));
    memcpy(block->name, &name, sizeof(name));
    block->d_base = range.d_base;
    block->nbytes = range.nbytes;
  }
  return status;
}

gpuf_status gpufi_host_ipc_open(int32_t device, const gpufi_ipc_allocation *block, int descriptor,
                                void **d_base, gpuf_error *err) {
  host_name name;
  memcpy(&name, block->name, sizeof(name));
  const gpufi_host_range range = {NULL, block->nbytes, name.offset};
  return gpufi_host_import(device, descriptor, &range, d_base, err);
}
