/* Streams and events of the host backend. */
#ifndef GPUFI_BACKEND_HOST_STREAM_H
#define GPUFI_BACKEND_HOST_STREAM_H

#include "backend/backend.h"

/* As the backend's entries. */
void gpufi_host_device_synchronize(int32_t device);
gpuf_status gpufi_host_stream_create(int32_t device, bool is_urgent, gpuf_stream *stream,
                                     gpuf_error *err);
gpuf_status gpufi_host_stream_destroy(int32_t device, gpuf_stream stream, gpuf_error *err);
gpuf_status gpufi_host_stream_synchronize(int32_t device, gpuf_stream stream, gpuf_error *err);
void gpufi_host_stream_drain(int32_t device, gpuf_stream stream);
gpuf_status gpufi_host_event_create(int32_t device, gpufi_event **event, gpuf_error *err);
void gpufi_host_event_destroy(int32_t device, gpufi_event *event);
gpuf_status gpufi_host_event_record(int32_t device, gpufi_event *event, gpuf_stream stream,
                                    gpuf_error *err);
gpuf_status gpufi_host_event_wait(int32_t device, gpufi_event *event, gpuf_error *err);
gpuf_status gpufi_host_event_query(int32_t device, gpufi_event *event, bool *done, gpuf_error *err);
gpuf_status gpufi_host_stream_wait_event(int32_t device, gpuf_stream stream, gpufi_event *event,
                                         bool inherits, gpuf_error *err);

/* Work runs on the stream's thread, and its failure becomes the stream's. `args` is copied, at most
 * GPUFI_HOST_ARGS_NBYTES. */
#define GPUFI_HOST_ARGS_NBYTES 1024
typedef gpuf_status (*gpufi_host_work)(const void *args, gpuf_error *err);
gpuf_status gpufi_host_enqueue(int32_t device, gpuf_stream stream, gpufi_host_work work,
                               const void *args, size_t args_nbytes, gpuf_error *err);

#endif
