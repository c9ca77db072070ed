/* The CUDA backend's table. Every call leaves the calling thread's current device as it was, names
 * the CUDA call that failed, and clears CUDA's last error. */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cuda/calls.h"
#include "backend/cuda/codec/codec.h"
#include "backend/cuda/gather.h"
#include "backend/cuda/ipc.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/pack.h"
#include "backend/cuda/reduce/reduce.h"
#include "base/error.h"

/* The count does not change while a process lives; neither does the reason for having none. */
static pthread_once_t count_once = PTHREAD_ONCE_INIT;
static int counted;
static cudaError_t count_code;

static void count_devices(void) {
  count_code = cudaGetDeviceCount(&counted);
  if (count_code == cudaSuccess && counted == 0) {
    count_code = cudaErrorNoDevice;
  }
  cudaGetLastError();
}

static gpuf_status device_count(int32_t *count, gpuf_error *err) {
  pthread_once(&count_once, count_devices);
  if (count_code == cudaErrorInsufficientDriver) {
    return gpufi_fail(err, GPUF_ERR_NO_DEVICE, count_code,
                      "no CUDA driver, or one too old for CUDA %d.%d; install or update the NVIDIA "
                      "driver, or use the host backend (GPUFETCH_BACKEND=host)",
                      CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  }
  if (count_code != cudaSuccess) {
    return gpufi_fail(err, GPUF_ERR_NO_DEVICE, count_code,
                      "no usable CUDA device: %s (%s); check nvidia-smi and CUDA_VISIBLE_DEVICES, "
                      "or use the host backend (GPUFETCH_BACKEND=host)",
                      cudaGetErrorString(count_code), cudaGetErrorName(count_code));
  }
  *count = counted;
  return GPUF_OK;
}

static gpuf_status device_info(int32_t device, gpuf_device_info *info, gpuf_error *err) {
  struct cudaDeviceProp properties;
  int previous, driver, runtime;
  size_t free_nbytes, total_nbytes;
  gpuf_status status = enter(device, &previous, err);
  if (status != GPUF_OK) {
    return status;
  }
  status = CUDA_CALL(cudaGetDeviceProperties(&properties, device));
  if (status == GPUF_OK) {
    status = CUDA_CALL(cudaMemGetInfo(&free_nbytes, &total_nbytes));
  }
  if (status == GPUF_OK) {
    status = CUDA_CALL(cudaDriverGetVersion(&driver));
  }
  if (status == GPUF_OK) {
    status = CUDA_CALL(cudaRuntimeGetVersion(&runtime));
  }
  leave(device, previous);
  if (status == GPUF_OK) {
    snprintf(info->name, sizeof(info->name), "%s", properties.name);
    info->total_nbytes = total_nbytes;
    info->free_nbytes = free_nbytes;
    info->compute_capability_major = properties.major;
    info->compute_capability_minor = properties.minor;
    info->driver_version = driver;
    info->runtime_version = runtime;
  }
  return status;
}

static gpuf_status device_of(const void *ptr, int32_t *device, gpuf_error *err) {
  struct cudaPointerAttributes found;
  /* In a thread without a context, the call would make one on cuda:0. */
  const bool pushed = gpufi_cuda_push_any();
  const gpuf_status status = CUDA_CALL(cudaPointerGetAttributes(&found, ptr));
  if (pushed) {
    gpufi_cuda_pop();
  }
  if (status != GPUF_OK) {
    return status;
  }
  if (found.type != cudaMemoryTypeDevice && found.type != cudaMemoryTypeManaged) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "%p is not in the memory of a CUDA device", ptr);
  }
  *device = found.device;
  return GPUF_OK;
}

static gpuf_status pin(int32_t device, void *ptr, size_t nbytes, gpuf_error *err) {
  int previous;
  const gpuf_status status = enter(device, &previous, err);
  if (status != GPUF_OK) {
    return status;
  }
  const cudaError_t code = cudaHostRegister(ptr, nbytes, cudaHostRegisterPortable);
  leave(device, previous);
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, code,
                      "the system does not page-lock %zu bytes more; raise the limit on locked "
                      "memory (ulimit -l) or lower the pool's cap",
                      nbytes);
  }
  return cuda_check(code, "cudaHostRegister", err);
}

static void unpin(int32_t device, void *ptr) {
  int previous;
  if (enter(device, &previous, NULL) == GPUF_OK) {
    if (cudaHostUnregister(ptr) != cudaSuccess) {
      cudaGetLastError();
    }
    leave(device, previous);
  }
}

static cudaError_t create_with_priority(cudaStream_t *stream, bool is_urgent) {
  int least, greatest;
  const cudaError_t code = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  return code == cudaSuccess ? cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking,
                                                            is_urgent ? greatest : least)
                             : code;
}

static gpuf_status stream_create(int32_t device, bool is_urgent, gpuf_stream *stream,
                                 gpuf_error *err) {
  cudaStream_t created = NULL;
  const gpuf_status status = CUDA_CALL_ON(device, create_with_priority(&created, is_urgent));
  if (status == GPUF_OK) {
    *stream = (gpuf_stream)created;
  }
  return status;
}

static gpuf_status stream_synchronize(int32_t device, gpuf_stream stream, gpuf_error *err) {
  return CUDA_CALL_ON(device, cudaStreamSynchronize((cudaStream_t)stream));
}

/* What has failed once fails for good. */
static void stream_drain(int32_t device, gpuf_stream stream) {
  stream_synchronize(device, stream, NULL);
}

static gpuf_status stream_destroy(int32_t device, gpuf_stream stream, gpuf_error *err) {
  const gpuf_status status = stream_synchronize(device, stream, err);
  const gpuf_status destroyed = CUDA_CALL_ON(device, cudaStreamDestroy((cudaStream_t)stream));
  return status != GPUF_OK ? status : destroyed;
}

static gpuf_status event_create(int32_t device, gpufi_event **event, gpuf_error *err) {
  cudaEvent_t created = NULL;
  const gpuf_status status =
      CUDA_CALL_ON(device, cudaEventCreateWithFlags(&created, cudaEventDisableTiming));
  if (status == GPUF_OK) {
    *event = (gpufi_event *)created;
  }
  return status;
}

static void event_destroy(int32_t device, gpufi_event *event) {
  gpuf_error *const err = NULL;
  CUDA_CALL_ON(device, cudaEventDestroy((cudaEvent_t)event));
}

static gpuf_status event_record(int32_t device, gpufi_event *event, gpuf_stream stream,
                                gpuf_error *err) {
  return CUDA_CALL_ON(device, cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream));
}

static gpuf_status event_wait(int32_t device, gpufi_event *event, gpuf_error *err) {
  return CUDA_CALL_ON(device, cudaEventSynchronize((cudaEvent_t)event));
}

static gpuf_status event_query(int32_t device, gpufi_event *event, bool *done, gpuf_error *err) {
  int previous;
  const gpuf_status status = enter(device, &previous, err);
  if (status != GPUF_OK) {
    return status;
  }
  const cudaError_t code = cudaEventQuery((cudaEvent_t)event);
  leave(device, previous);
  *done = code == cudaSuccess;
  if (code == cudaErrorNotReady) {
    cudaGetLastError();
    return GPUF_OK;
  }
  return cuda_check(code, "cudaEventQuery", err);
}

/* What fails, fails for all streams. */
static gpuf_status stream_wait_event(int32_t device, gpuf_stream stream, gpufi_event *event,
                                     bool inherits, gpuf_error *err) {
  return CUDA_CALL_ON(device, cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0));
}

static enum cudaMemcpyKind copy_kind(gpufi_direction direction) {
  return direction == GPUFI_TO_HOST ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
}

static gpuf_status copy(int32_t device, void *dst, const void *src, size_t nbytes,
                        gpufi_direction direction, gpuf_stream stream, gpuf_error *err) {
  return CUDA_CALL_ON(
      device, cudaMemcpyAsync(dst, src, nbytes, copy_kind(direction), (cudaStream_t)stream));
}

static gpuf_status copy_2d(int32_t device, const gpufi_rows *rows, gpufi_direction direction,
                           gpuf_stream stream, gpuf_error *err) {
  return CUDA_CALL_ON(device,
                      cudaMemcpy2DAsync(rows->dst, rows->dst_pitch_nbytes, rows->src,
                                        rows->src_pitch_nbytes, rows->row_nbytes, rows->row_count,
                                        copy_kind(direction), (cudaStream_t)stream));
}

static gpuf_status clear(int32_t device, void *d_ptr, size_t nbytes, gpuf_stream stream,
                         gpuf_error *err) {
  return CUDA_CALL_ON(device, cudaMemsetAsync(d_ptr, 0, nbytes, (cudaStream_t)stream));
}

static gpuf_status pack(int32_t device, const gpufi_packing *packing, gpuf_stream stream,
                        gpuf_error *err) {
  return CUDA_CALL_ON(device, gpufi_cuda_pack(packing, false, (cudaStream_t)stream));
}

static gpuf_status unpack(int32_t device, const gpufi_packing *packing, gpuf_stream stream,
                          gpuf_error *err) {
  return CUDA_CALL_ON(device, gpufi_cuda_pack(packing, true, (cudaStream_t)stream));
}

static gpuf_status gather(int32_t device, const gpufi_flat_copy *copies, size_t count,
                          gpuf_stream stream, gpuf_error *err) {
  return CUDA_CALL_ON(device, gpufi_cuda_gather(copies, count, (cudaStream_t)stream));
}

static gpuf_status reduce(int32_t device, const gpufi_reduce *job, const void *d_base,
                          void *d_result, void *d_scratch, gpuf_stream stream, gpuf_error *err) {
  return CUDA_CALL_ON(device,
                      gpufi_cuda_reduce(job, d_base, d_result, d_scratch, (cudaStream_t)stream));
}

/* Whether a thread block may have `needed` bytes of shared memory. */
static gpuf_status check_shared(int32_t device, size_t needed, const char *verb, gpuf_error *err) {
  int there = 0;
  const gpuf_status status =
      CUDA_CALL(cudaDeviceGetAttribute(&there, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  if (status == GPUF_OK && (size_t)there < needed) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "to %s these chunks takes %zu bytes of shared memory a thread block, and "
                      "cuda:%d has %d; %s them on the CPU",
                      verb, needed, (int)device, there, verb);
  }
  return status;
}

static gpuf_status encode(int32_t device, const gpufi_chunks *chunks, const void *d_raw,
                          void *d_encoded, gpufi_chunk_place *d_places, void *d_scratch,
                          gpuf_stream stream, gpuf_error *err) {
  const gpuf_status status =
      check_shared(device, gpufi_cuda_encode_shared_nbytes(chunks), "encode", err);
  return status == GPUF_OK
             ? CUDA_CALL_ON(device, gpufi_cuda_encode(chunks, d_raw, d_encoded, d_places, d_scratch,
                                                      (cudaStream_t)stream))
             : status;
}

static gpuf_status decode(int32_t device, const gpufi_chunks *chunks, const void *d_encoded,
                          size_t encoded_nbytes, const gpufi_chunk_place *d_places, void *d_raw,
                          uint32_t *d_verdicts, void *d_scratch, gpuf_stream stream,
                          gpuf_error *err) {
  const gpuf_status status =
      check_shared(device, gpufi_cuda_decode_shared_nbytes(chunks), "decode", err);
  return status == GPUF_OK
             ? CUDA_CALL_ON(device,
                            gpufi_cuda_decode(chunks, d_encoded, encoded_nbytes, d_places, d_raw,
                                              d_verdicts, d_scratch, (cudaStream_t)stream))
             : status;
}

const gpufi_backend gpufi_backend_cuda = {
    .kind = GPUF_DEVICE_CUDA,
    .fails_for_good = true,
    .device_count = device_count,
    .device_info = device_info,
    .device_of = device_of,
    .alloc = gpufi_cuda_alloc,
    .free = gpufi_cuda_free,
    .trim = gpufi_cuda_memory_trim,
    .is_pinned = gpufi_cuda_is_pinned,
    .pin = pin,
    .unpin = unpin,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_synchronize = stream_synchronize,
    .stream_drain = stream_drain,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_query = event_query,
    .stream_wait_event = stream_wait_event,
    .copy = copy,
    .copy_2d = copy_2d,
    .clear = clear,
    .pack = pack,
    .unpack = unpack,
    .gather = gather,
    .ipc_identity = gpufi_cuda_ipc_identity,
    .ipc_export = gpufi_cuda_ipc_export,
    .ipc_descriptor = gpufi_cuda_ipc_descriptor,
    .ipc_open = gpufi_cuda_ipc_open,
    .ipc_close = gpufi_cuda_ipc_close,
    .reduce_scratch_nbytes = gpufi_cuda_reduce_scratch_nbytes,
    .reduce = reduce,
    .encode_scratch_nbytes = gpufi_cuda_encode_scratch_nbytes,
    .decode_scratch_nbytes = gpufi_cuda_decode_scratch_nbytes,
    .encode = encode,
    .decode = decode,
};
