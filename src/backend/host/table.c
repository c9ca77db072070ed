/* The host backend's table: see host.h. */
#include <stdio.h>
#include <sys/sysinfo.h>

#include "backend/backend.h"
#include "backend/host/codec.h"
#include "backend/host/copy.h"
#include "backend/host/host.h"
#include "backend/host/ipc.h"
#include "backend/host/memory.h"
#include "backend/host/reduce.h"
#include "backend/host/stream.h"

static gpuf_status device_count(int32_t *count, gpuf_error *err) {
  *count = GPUFI_HOST_DEVICE_COUNT;
  return GPUF_OK;
}

static gpuf_status device_info(int32_t device, gpuf_device_info *info, gpuf_error *err) {
  struct sysinfo system;
  sysinfo(&system);
  const size_t total = (size_t)system.totalram * system.mem_unit;
  const size_t allocated = gpufi_host_allocated_nbytes(device);
  snprintf(info->name, sizeof(info->name), "host backend (a fake GPU on this machine's CPU)");
  info->total_nbytes = total;
  info->free_nbytes = allocated < total ? total - allocated : 0;
  return GPUF_OK;
}

/* Host memory needs no pinning to be copied by a thread. */
static gpuf_status pin(int32_t device, void *ptr, size_t nbytes, gpuf_error *err) {
  return GPUF_OK;
}
static void unpin(int32_t device, void *ptr) {}

const gpufi_backend gpufi_backend_host = {
    .kind = GPUF_DEVICE_HOST,
    .device_count = device_count,
    .device_info = device_info,
    .device_of = gpufi_host_device_of,
    .alloc = gpufi_host_alloc,
    .free = gpufi_host_free,
    .synchronize = gpufi_host_device_synchronize,
    .pin = pin,
    .unpin = unpin,
    .stream_create = gpufi_host_stream_create,
    .stream_destroy = gpufi_host_stream_destroy,
    .stream_synchronize = gpufi_host_stream_synchronize,
    .stream_drain = gpufi_host_stream_drain,
    .event_create = gpufi_host_event_create,
    .event_destroy = gpufi_host_event_destroy,
    .event_record = gpufi_host_event_record,
    .event_wait = gpufi_host_event_wait,
    .event_query = gpufi_host_event_query,
    .stream_wait_event = gpufi_host_stream_wait_event,
    .copy = gpufi_host_copy,
    .copy_2d = gpufi_host_copy_2d,
    .clear = gpufi_host_clear,
    .pack = gpufi_host_pack,
    .unpack = gpufi_host_unpack,
    .gather = gpufi_host_gather,
    .ipc_identity = gpufi_host_ipc_identity,
    .ipc_export = gpufi_host_ipc_export,
    .ipc_descriptor = gpufi_host_memory_fd,
    .ipc_open = gpufi_host_ipc_open,
    .ipc_close = gpufi_host_close,
    .reduce_scratch_nbytes = gpufi_host_reduce_scratch_nbytes,
    .reduce = gpufi_host_reduce,
    .encode_scratch_nbytes = gpufi_host_encode_scratch_nbytes,
    .decode_scratch_nbytes = gpufi_host_decode_scratch_nbytes,
    .encode = gpufi_host_encode,
    .decode = gpufi_host_decode,
};
