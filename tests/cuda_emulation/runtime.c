/* CUDA's runtime: devices, streams, events and copies. Work is done by the call that would enqueue
 * it, so that a stream never has any left. The wrong use of an argument fails as on a GPU. */
#include <stdio.h>
#include <stdlib.h>

#include "devices.h"

/* --- errors ------------------------------------------------------------------------ */

const char *cudaGetErrorName(cudaError_t code) {
  switch (code) {
  case cudaSuccess:
    return "cudaSuccess";
  case cudaErrorInvalidValue:
    return "cudaErrorInvalidValue";
  case cudaErrorMemoryAllocation:
    return "cudaErrorMemoryAllocation";
  case cudaErrorInvalidConfiguration:
    return "cudaErrorInvalidConfiguration";
  case cudaErrorInvalidDevice:
    return "cudaErrorInvalidDevice";
  case cudaErrorInvalidResourceHandle:
    return "cudaErrorInvalidResourceHandle";
  case cudaErrorHostMemoryAlreadyRegistered:
    return "cudaErrorHostMemoryAlreadyRegistered";
  case cudaErrorHostMemoryNotRegistered:
    return "cudaErrorHostMemoryNotRegistered";
  default:
    return "cudaErrorNotSupported";
  }
}

const char *cudaGetErrorString(cudaError_t code) {
  return code == cudaErrorMemoryAllocation ? "out of memory" : "as its name says";
}

/* No call leaves an error behind for the next. */
cudaError_t cudaGetLastError(void) {
  return cudaSuccess;
}

/* --- devices ----------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *count) {
  *count = EMULATION_DEVICE_COUNT;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
  if (device < 0 || device >= EMULATION_DEVICE_COUNT) {
    return cudaErrorInvalidDevice;
  }
  memset(properties, 0, sizeof(*properties));
  snprintf(properties->name, sizeof(properties->name), "CUDA emulation %d", device);
  snprintf(properties->uuid.bytes, sizeof(properties->uuid.bytes), "emulation %d", device);
  properties->major = 9;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= EMULATION_DEVICE_COUNT) {
    return cudaErrorInvalidDevice;
  }
  if (attribute != cudaDevAttrMaxSharedMemoryPerBlockOptin) {
    return cudaErrorInvalidValue;
  }
  *value = EMULATION_SHARED_NBYTES(device);
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **call, unsigned int version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result) {
  (void)version, (void)flags;
  *call = emulation_driver_call(symbol);
  *result = *call ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

/* --- streams and events ------------------------------------------------------------ */

/* The default streams of a device, which nobody creates. */
#define DEFAULT_STREAM_MAX 2

struct CUstream_st {
  bool is_alive;
};
struct CUevent_st {
  bool is_alive;
};

static cudaError_t check_stream(cudaStream_t stream) {
  return (uintptr_t)stream <= DEFAULT_STREAM_MAX || stream->is_alive
             ? cudaSuccess
             : cudaErrorInvalidResourceHandle;
}

static cudaError_t check_event(cudaEvent_t event) {
  return event && event->is_alive ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

/* Work is done by the call that enqueues it, whatever its priority. */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority) {
  (void)flags;
  if (priority < -5 || priority > 0) {
    return cudaErrorInvalidValue;
  }
  *stream = malloc(sizeof(**stream));
  if (!*stream) {
    return cudaErrorMemoryAllocation;
  }
  (*stream)->is_alive = true;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if ((uintptr_t)stream <= DEFAULT_STREAM_MAX) {
    return cudaErrorInvalidResourceHandle;
  }
  stream->is_alive = false;
  free(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return check_stream(stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  (void)flags;
  return check_stream(stream) == cudaSuccess ? check_event(event) : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
  (void)flags;
  *event = malloc(sizeof(**event));
  if (!*event) {
    return cudaErrorMemoryAllocation;
  }
  (*event)->is_alive = true;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const cudaError_t code = check_event(event);
  if (code == cudaSuccess) {
    event->is_alive = false;
    free(event);
  }
  return code;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return check_stream(stream) == cudaSuccess ? check_event(event) : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return check_event(event);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return check_event(event);
}

/* --- copies ------------------------------------------------------------------------ */

/* Whether [d_ptr, d_ptr + nbytes) lies in an allocation of any device. */
static bool is_device_memory(const void *d_ptr, size_t nbytes) {
  emulation_range found;
  return emulation_find(d_ptr, nbytes, &found) && found.type == cudaMemoryTypeDevice;
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch_nbytes, const void *src,
                              size_t src_pitch_nbytes, size_t row_nbytes, size_t row_count,
                              enum cudaMemcpyKind kind, cudaStream_t stream) {
  const bool upload = kind == cudaMemcpyHostToDevice;
  const size_t pitch = upload ? dst_pitch_nbytes : src_pitch_nbytes;
  if (row_nbytes == 0 || row_count == 0) {
    return check_stream(stream);
  }
  if (dst_pitch_nbytes < row_nbytes || src_pitch_nbytes < row_nbytes ||
      !is_device_memory(upload ? dst : src, (row_count - 1) * pitch + row_nbytes)) {
    return cudaErrorInvalidValue;
  }
  for (size_t i = 0; i < row_count; i++) {
    memcpy((char *)dst + i * dst_pitch_nbytes, (const char *)src + i * src_pitch_nbytes,
           row_nbytes);
  }
  return check_stream(stream);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t nbytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return cudaMemcpy2DAsync(dst, nbytes, src, nbytes, nbytes, nbytes > 0, kind, stream);
}

cudaError_t cudaMemsetAsync(void *d_ptr, int value, size_t nbytes, cudaStream_t stream) {
  if (nbytes > 0 && !is_device_memory(d_ptr, nbytes)) {
    return cudaErrorInvalidValue;
  }
  memset(d_ptr, value, nbytes);
  return check_stream(stream);
}
