/* The calls of the driver that the backend makes: contexts, and what memory a pointer points to. */
#include "devices.h"

#define CONTEXTS_MAX 16

struct CUctx_st {
  int device;
};
static struct CUctx_st contexts[EMULATION_DEVICE_COUNT] = {{0}, {1}};

/* The calling thread's contexts, the current one last; without any, the runtime's calls make the
 * one of its own device current. */
static _Thread_local CUcontext pushed[CONTEXTS_MAX];
static _Thread_local int pushed_count;
static _Thread_local int own_device;

int emulation_device(void) {
  return pushed_count > 0 ? pushed[pushed_count - 1]->device : own_device;
}

cudaError_t cudaGetDevice(int *device) {
  *device = emulation_device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= EMULATION_DEVICE_COUNT) {
    return cudaErrorInvalidDevice;
  }
  own_device = device;
  pushed_count += pushed_count == 0;
  pushed[pushed_count - 1] = &contexts[device];
  return cudaSuccess;
}

static CUresult get_device(CUdevice *device, int index) {
  if (index < 0 || index >= EMULATION_DEVICE_COUNT) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  *device = index;
  return CUDA_SUCCESS;
}

static CUresult retain_context(CUcontext *context, CUdevice device) {
  *context = &contexts[device];
  return CUDA_SUCCESS;
}

static CUresult get_context_state(CUdevice device, unsigned int *flags, int *active) {
  (void)device;
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}

static CUresult get_context(CUcontext *context) {
  *context = pushed_count > 0 ? pushed[pushed_count - 1] : NULL;
  return CUDA_SUCCESS;
}

static CUresult push_context(CUcontext context) {
  if (pushed_count == CONTEXTS_MAX) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  pushed[pushed_count++] = context;
  return CUDA_SUCCESS;
}

static CUresult pop_context(CUcontext *context) {
  if (pushed_count == 0) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  *context = pushed[--pushed_count];
  return CUDA_SUCCESS;
}

static CUresult get_error_name(CUresult code, const char **name) {
  *name = code == CUDA_ERROR_INVALID_VALUE    ? "CUDA_ERROR_INVALID_VALUE"
          : code == CUDA_ERROR_INVALID_DEVICE ? "CUDA_ERROR_INVALID_DEVICE"
                                              : "CUDA_ERROR_INVALID_CONTEXT";
  return CUDA_SUCCESS;
}

static CUresult get_address_range(CUdeviceptr *base, size_t *nbytes, CUdeviceptr ptr) {
  emulation_range found;
  if (!emulation_find((const void *)(uintptr_t)ptr, 1, &found) ||
      found.type != cudaMemoryTypeDevice) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *base = (uintptr_t)found.begin;
  *nbytes = found.nbytes;
  return CUDA_SUCCESS;
}

/* As the driver: an attribute of memory that it does not know is 0. No memory can be passed to
 * other processes. */
static CUresult get_attributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                               CUdeviceptr ptr) {
  emulation_range found = {.device = -2, .type = cudaMemoryTypeUnregistered};
  emulation_find((const void *)(uintptr_t)ptr, 1, &found);
  for (unsigned int i = 0; i < count; i++) {
    switch (attributes[i]) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *(unsigned int *)data[i] = (unsigned int)found.type;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *(int *)data[i] = found.device;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *(CUdeviceptr *)data[i] = (uintptr_t)found.begin;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *(size_t *)data[i] = found.nbytes;
      break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      *(void **)data[i] = NULL;
      break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *(bool *)data[i] = false;
      break;
    }
  }
  return CUDA_SUCCESS;
}

typedef void (*driver_call)(void); /* of any signature */

void *emulation_driver_call(const char *name) {
  static const struct {
    const char *name;
    driver_call call;
  } calls[] = {
      {"cuMemGetAddressRange", (driver_call)get_address_range},
      {"cuPointerGetAttributes", (driver_call)get_attributes},
      {"cuGetErrorName", (driver_call)get_error_name},
      {"cuDeviceGet", (driver_call)get_device},
      {"cuDevicePrimaryCtxRetain", (driver_call)retain_context},
      {"cuDevicePrimaryCtxGetState", (driver_call)get_context_state},
      {"cuCtxGetCurrent", (driver_call)get_context},
      {"cuCtxPushCurrent", (driver_call)push_context},
      {"cuCtxPopCurrent", (driver_call)pop_context},
  };
  void *call = NULL;
  for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
    if (strcmp(name, calls[i].name) == 0) {
      memcpy(&call, &calls[i].call, sizeof(call));
    }
  }
  return call;
}
