/* Passing CUDA memory to other processes by CUDA IPC. A handle covers all that one cudaMalloc
 * returned, so its start and size are looked up. */
#include "backend/cuda/ipc.h"

#include <pthread.h>
#include <string.h>

#include "backend/cuda/calls.h"

_Static_assert(sizeof(cudaIpcMemHandle_t) == GPUFI_IPC_NAME_NBYTES,
               "a handle is an allocation's name");
_Static_assert(sizeof(cudaUUID_t) == GPUFI_IPC_IDENTITY_NBYTES, "a UUID is a device's identity");

/* --- Identity ------------------------------------------------------------------------------------
 */

#define DEVICES_MAX 64

/* The UUIDs that were asked for, because the runtime takes milliseconds to answer. */
static pthread_mutex_t identities_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  bool known;
  cudaUUID_t uuid;
} identities[DEVICES_MAX];

gpuf_status gpufi_cuda_ipc_identity(int32_t device, uint8_t *identity, gpuf_error *err) {
  struct cudaDeviceProp properties;
  gpuf_status status = GPUF_OK;
  pthread_mutex_lock(&identities_lock);
  if (device < DEVICES_MAX && identities[device].known) {
    memcpy(identity, &identities[device].uuid, GPUFI_IPC_IDENTITY_NBYTES);
  } else {
    status = CUDA_CALL(cudaGetDeviceProperties(&properties, device));
    if (status == GPUF_OK) {
      memcpy(identity, &properties.uuid, GPUFI_IPC_IDENTITY_NBYTES);
    }
    if (status == GPUF_OK && device < DEVICES_MAX) {
      identities[device].uuid = properties.uuid;
      identities[device].known = true;
    }
  }
  pthread_mutex_unlock(&identities_lock);
  return status;
}

/* --- Export --------------------------------------------------------------------------------------
 */

static gpuf_status refuse(const char *what, gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                    "%s cannot be passed to another process by CUDA IPC; share a copy in "
                    "gpuf_alloc memory (gpuf_share_options.copy; Python: share(x, copy=True))",
                    what);
}

/* Only cudaMalloc'ed memory of this device can be passed on. */
static gpuf_status check_pointer(int32_t device, const void *d_ptr, gpuf_error *err) {
  CUpointer_attribute wanted[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
  };
  /* The driver writes as many bytes as the attribute's type has; a boolean's are not documented. */
  uint64_t memory_type = 0, managed = 0, pool = 0, ipc_capable = 0;
  int ordinal = -1;
  void *values[] = {&memory_type, &managed, &pool, &ipc_capable, &ordinal};
  const gpuf_status status = gpufi_cuda_driver_check(
      gpufi_cuda_driver.attributes(sizeof(wanted) / sizeof(wanted[0]), wanted, values,
                                   (CUdeviceptr)(uintptr_t)d_ptr),
      "cuPointerGetAttributes", err);
  if (status != GPUF_OK) {
    return status;
  }
  if (managed) {
    return refuse("managed memory (cudaMallocManaged)", err);
  }
  if (memory_type != CU_MEMORYTYPE_DEVICE) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "%p is not device memory of cuda:%d; share a GPU array", d_ptr, (int)device);
  }
  if (pool) {
    return refuse("memory from a CUDA memory pool (cudaMallocAsync)", err);
  }
  if (!ipc_capable) {
    return refuse("memory from the virtual memory API (cuMemMap; torch's expandable_segments)",
                  err);
  }
  if (ordinal != device) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "%p is memory of cuda:%d, not of cuda:%d", d_ptr,
                      ordinal, (int)device);
  }
  return GPUF_OK;
}

/* Called with the device current. */
static gpuf_status export_allocation(int32_t device, const void *d_ptr,
                                     gpufi_ipc_allocation *allocation, gpuf_error *err) {
  CUdeviceptr base = 0;
  size_t nbytes = 0;
  cudaIpcMemHandle_t handle;
  gpuf_status status = check_pointer(device, d_ptr, err);
  if (status == GPUF_OK) {
    status = gpufi_cuda_driver_check(
        gpufi_cuda_driver.address_range(&base, &nbytes, (CUdeviceptr)(uintptr_t)d_ptr),
        "cuMemGetAddressRange", err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  memset(&handle, 0, sizeof(handle));
  status = CUDA_CALL(cudaIpcGetMemHandle(&handle, (void *)(uintptr_t)base));
  if (status == GPUF_OK) {
    memset(allocation, 0, sizeof(*allocation));
    memcpy(allocation->name, &handle, sizeof(handle));
    allocation->d_base = (void *)(uintptr_t)base;
    allocation->nbytes = nbytes;
  }
  return status;
}

gpuf_status gpufi_cuda_ipc_export(int32_t device, const void *d_ptr,
                                  gpufi_ipc_allocation *allocation, gpuf_error *err) {
  int previous;
  gpuf_status status = enter_with_context(device, &previous, err);
  if (status == GPUF_OK) {
    status = export_allocation(device, d_ptr, allocation, err);
    leave(device, previous);
  }
  return status;
}

/* The allocation's name is enough. */
int gpufi_cuda_ipc_descriptor(void) {
  return -1;
}

/* --- Import --------------------------------------------------------------------------------------
 */

/* Check, where the driver tells, that the allocation that was opened holds `nbytes` from d_base on.
 */
static gpuf_status check_opened(const void *d_base, size_t nbytes, gpuf_error *err) {
  CUdeviceptr base;
  size_t there_nbytes;
  const CUdeviceptr wanted = (CUdeviceptr)(uintptr_t)d_base;
  if (gpufi_cuda_driver.address_range(&base, &there_nbytes, wanted) != CUDA_SUCCESS ||
      (wanted >= base && wanted - base <= there_nbytes &&
       nbytes <= there_nbytes - (wanted - base))) {
    return GPUF_OK;
  }
  return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                    "the share handle says that its allocation has %zu bytes, and it has %zu",
                    nbytes, there_nbytes);
}

gpuf_status gpufi_cuda_ipc_open(int32_t device, const gpufi_ipc_allocation *allocation,
                                int descriptor, void **d_base, gpuf_error *err) {
  cudaIpcMemHandle_t handle;
  void *opened = NULL;
  int previous;
  gpuf_status status = enter_with_context(device, &previous, err);
  if (status != GPUF_OK) {
    return status;
  }
  memcpy(&handle, allocation->name, sizeof(handle));
  status = CUDA_CALL(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess));
  if (status == GPUF_OK) {
    status = check_opened(opened, allocation->nbytes, err);
    if (status != GPUF_OK && cudaIpcCloseMemHandle(opened) != cudaSuccess) {
      cudaGetLastError();
    }
  }
  leave(device, previous);
  if (status == GPUF_OK) {
    *d_base = opened;
  }
  return status;
}

gpuf_status gpufi_cuda_ipc_close(int32_t device, void *d_base, gpuf_error *err) {
  int previous;
  gpuf_status status = enter(device, &previous, err);
  if (status != GPUF_OK) {
    return status;
  }
  status = CUDA_CALL(cudaDeviceSynchronize());
  if (status != GPUF_OK) {
    err = NULL; /* keeps the first failure, which is reported */
  }
  const gpuf_status closed = CUDA_CALL(cudaIpcCloseMemHandle(d_base));
  leave(device, previous);
  return status != GPUF_OK ? status : closed;
}
