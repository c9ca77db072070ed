/* A channel: what one transfer uses at a time on a device, namely a stream, its events, staging
 * buffers and scratch. Channels are kept for reuse, because making streams and events costs more
 * than a small copy. Thread-safety: any thread; a channel is used by one thread at a time. */
#ifndef GPUFI_CORE_CHANNEL_H
#define GPUFI_CORE_CHANNEL_H

#include "core/scratch.h"

/* Size of a staging buffer. At 2 MiB a processor finds what the device has just written in its
 * cache; 4 MiB and 1 MiB are slower. */
#define GPUFI_CHANNEL_BUFFER_NBYTES ((size_t)2 << 20)
_Static_assert(GPUFI_CHANNEL_BUFFER_NBYTES <= GPUFI_SCRATCH_NBYTES,
               "a staged piece fits the scratch");
#define GPUFI_CHANNEL_BUFFER_COUNT 2
/* A larger workspace is freed when the channel is released. An overview of 2^21 cells, none of
 * which is split, needs 64 MiB at most: 16 bytes and two elements of 8 bytes for each cell. */
#define GPUFI_CHANNEL_WORKSPACE_KEPT_NBYTES ((size_t)96 << 20)

/* A pinned buffer and the event that says when the device is done with it. */
typedef struct gpufi_staging_buffer {
  void *data; /* NULL until gpufi_channel_need_staging */
  gpufi_event *copied;
} gpufi_staging_buffer;

typedef struct gpufi_channel {
  struct gpufi_channel *next; /* while unused */
  const gpufi_backend *backend;
  gpuf_device device;
  gpuf_stream stream;
  gpufi_event *joined;    /* recorded on a producer's stream */
  gpufi_event *finished;  /* recorded behind the last piece of a direct transfer */
  gpufi_scratch *scratch; /* NULL until gpufi_channel_need_scratch */
  void *d_scratch;        /* the scratch's memory, or NULL */
  void *d_workspace;      /* of a reduction or a batch; NULL until gpufi_channel_need_workspace */
  size_t workspace_nbytes;
  gpufi_staging_buffer buffers[GPUFI_CHANNEL_BUFFER_COUNT];
} gpufi_channel;

/* Take a channel that nobody uses, or make one. Release it with gpufi_channel_release. */
gpuf_status gpufi_channel_acquire(const gpufi_backend *backend, gpuf_device device,
                                  gpufi_channel **channel, gpuf_error *err);
/* Let both buffers have memory of the pinned pool, until the channel's release. */
gpuf_status gpufi_channel_need_staging(gpufi_channel *channel, gpuf_error *err);
/* Take scratch for the work that is enqueued next on the channel's stream, until
 * gpufi_channel_give_scratch or the channel's release. If all scratch is in use, `need` waits for
 * some, and `try` fails; a thread that already has scratch for another channel may only `try`. */
gpuf_status gpufi_channel_need_scratch(gpufi_channel *channel, gpuf_error *err);
gpuf_status gpufi_channel_try_scratch(gpufi_channel *channel, gpuf_error *err);
/* Give the scratch back when the last work that uses it is enqueued; it need not be done. */
void gpufi_channel_give_scratch(gpufi_channel *channel);
/* Let d_workspace have at least `nbytes`. Its contents are lost if it has to grow. */
gpuf_status gpufi_channel_need_workspace(gpufi_channel *channel, size_t nbytes, gpuf_error *err);

/* Free the workspaces of channels that nobody uses. */
void gpufi_channels_trim(void);

/* Make later work on the channel's stream wait for what is on `producer` now, and fail if that
 * fails. */
gpuf_status gpufi_channel_join(gpufi_channel *channel, gpuf_stream producer, gpuf_error *err);
/* The same for any stream `consumer` of the channel's device, which fails only if `inherits`. */
gpuf_status gpufi_channel_order(gpufi_channel *channel, gpuf_stream producer, gpuf_stream consumer,
                                bool inherits, gpuf_error *err);
/* For what goes on after the call: replace *stream by the stream of a channel, *keeper, which waits
 * for the work that is on it now, and for no later one. The caller releases *keeper at the end.
 * GPUF_STREAM_NONE is left as it is, and *keeper is NULL, as it is after a failure. */
gpuf_status gpufi_channel_keep_stream(const gpufi_backend *backend, gpuf_device device,
                                      gpuf_stream *stream, gpufi_channel **keeper, gpuf_error *err);
/* The same for GPUF_STREAM_PER_THREAD alone, which names another stream in each thread of a call.
 */
gpuf_status gpufi_channel_name_stream(const gpufi_backend *backend, gpuf_device device,
                                      gpuf_stream *stream, gpufi_channel **keeper, gpuf_error *err);
/* The same for the stream of a tensor; one in host memory has none. */
gpuf_status gpufi_channel_name_stream_of(gpuf_tensor *tensor, gpufi_channel **keeper,
                                         gpuf_error *err);

/* End the use of a channel whose stream is idle; it is kept for others. With `failed`, the stream
 * need not be idle: the work on it is waited for, and the channel is destroyed. NULL is allowed. */
void gpufi_channel_release(gpufi_channel *channel, bool failed);

#endif
