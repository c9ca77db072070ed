/* The host backend: a fake GPU that fails where a real one would.
 *
 *   - A stream is a thread with a FIFO queue: work really is asynchronous.
 *   - Device memory is mapped twice: at the device address, where nobody may touch it, and at an
 *     alias that only the stream threads use. A host access to a device pointer is a SIGSEGV.
 *   - Fresh device memory is filled with GPUFI_HOST_POISON (a NaN in every float type).
 *   - Work on an address outside a live allocation fails the stream.
 *   - Faults and a slow link can be injected. */
#ifndef GPUFI_BACKEND_HOST_HOST_H
#define GPUFI_BACKEND_HOST_HOST_H

#include "backend/backend.h"

#define GPUFI_HOST_DEVICE_COUNT 2
#define GPUFI_HOST_POISON 0xff

/* Process-wide. Changed at any time; work that already runs may see either setting. */
typedef struct gpufi_host_faults {
  int64_t alloc_fail_after;       /* device allocations that still succeed; -1 = no limit */
  int64_t copy_fail_after_nbytes; /* bytes that copies still move; -1 = no limit */
  int64_t link_nbytes_per_second; /* 0 = as fast as the machine */
  int64_t latency_ns;             /* before each copy or kernel; 0 = none */
} gpufi_host_faults;

#define GPUFI_HOST_FAULTS_NONE ((gpufi_host_faults){-1, -1, 0, 0})

void gpufi_host_faults_set(const gpufi_host_faults *faults);

/* As gpuf_host_launch and gpuf_host_pointer. */
gpuf_status gpufi_host_launch(int32_t device, gpuf_stream stream, void (*kernel)(const void *args),
                              const void *args, size_t args_nbytes, gpuf_error *err);
void *gpufi_host_kernel_pointer(const void *d_ptr);

/* memory.c */

gpuf_status gpufi_host_alloc(int32_t device, size_t nbytes, void **d_ptr, gpuf_error *err);
gpuf_status gpufi_host_free(int32_t device, void *d_ptr, gpuf_error *err);
size_t gpufi_host_allocated_nbytes(int32_t device);
/* Where [d_ptr, d_ptr + nbytes) may be touched; NULL if it is not inside one live allocation. */
void *gpufi_host_alias(const void *d_ptr, size_t nbytes);

/* Part of the file that device memory lies in; `offset` names an allocation for ever. */
typedef struct gpufi_host_range {
  void *d_base;
  size_t nbytes;
  int64_t offset;
} gpufi_host_range;

/* The file itself; -1 before the first allocation. */
int gpufi_host_memory_fd(void);
gpuf_status gpufi_host_device_of(const void *d_ptr, int32_t *device, gpuf_error *err);
/* The allocation of this process that d_ptr lies in. */
gpuf_status gpufi_host_locate(const void *d_ptr, gpufi_host_range *range, gpuf_error *err);
/* Map a range of another process's file as device memory; and end that. d_base is not used. */
gpuf_status gpufi_host_import(int32_t device, int fd, const gpufi_host_range *range, void **d_ptr,
                              gpuf_error *err);
gpuf_status gpufi_host_close(int32_t device, void *d_ptr, gpuf_error *err);

/* ipc.c: the table's entries */

gpuf_status gpufi_host_ipc_identity(int32_t device, uint8_t *identity, gpuf_error *err);
gpuf_status gpufi_host_ipc_export(int32_t device, const void *d_ptr, gpufi_ipc_allocation *block,
                                  gpuf_error *err);
gpuf_status gpufi_host_ipc_open(int32_t device, const gpufi_ipc_allocation *block, int descriptor,
                                void **d_base, gpuf_error *err);

/* stream.c */

/* Wait until no stream of the device has work. */
void gpufi_host_device_synchronize(int32_t device);

gpuf_status gpufi_host_stream_create(int32_t device, gpuf_stream *stream, gpuf_error *err);
gpuf_status gpufi_host_stream_destroy(int32_t device, gpuf_stream stream, gpuf_error *err);
gpuf_status gpufi_host_stream_synchronize(int32_t device, gpuf_stream stream, gpuf_error *err);
gpuf_status gpufi_host_event_create(int32_t device, gpufi_event **event, gpuf_error *err);
void gpufi_host_event_destroy(int32_t device, gpufi_event *event);
gpuf_status gpufi_host_event_record(int32_t device, gpufi_event *event, gpuf_stream stream,
                                    gpuf_error *err);
gpuf_status gpufi_host_event_wait(int32_t device, gpufi_event *event, gpuf_error *err);
gpuf_status gpufi_host_event_query(int32_t device, gpufi_event *event, bool *done, gpuf_error *err);
gpuf_status gpufi_host_stream_wait_event(int32_t device, gpuf_stream stream, gpufi_event *event,
                                         gpuf_error *err);

/* A piece of work: runs on the stream's thread; a failure becomes the stream's. `args` is copied,
 * at most GPUFI_HOST_ARGS_NBYTES. */
#define GPUFI_HOST_ARGS_NBYTES 1024
typedef gpuf_status (*gpufi_host_work)(const void *args, gpuf_error *err);
gpuf_status gpufi_host_enqueue(int32_t device, gpuf_stream stream, gpufi_host_work work,
                               const void *args, size_t args_nbytes, gpuf_error *err);

/* faults, as the work sees them (host.c) */

bool gpufi_host_take_alloc(void);
/* How many of `nbytes` a copy may move before the injected failure. */
size_t gpufi_host_take_copy(size_t nbytes);
/* Sleep as the link takes for `nbytes`. */
void gpufi_host_delay(size_t nbytes);

#endif
