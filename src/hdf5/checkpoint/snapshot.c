#include "hdf5/checkpoint/snapshot.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/error.h"
#include "core/runtime.h"
#include "hdf5/checkpoint/encode.h"
#include "hdf5/grid.h"

#define HOST_ALIGNMENT ((size_t)64)
#define DEVICE_ALIGNMENT ((size_t)256)

/* How a tensor is kept. */
typedef enum way { TO_HOST, ON_DEVICE, ENCODED } way;

static bool lies_here(const gpufi_checkpoint_snapshot *s, const gpuf_tensor *tensor) {
  return s->backend && gpufi_is_same_device(tensor->device, s->device);
}

/* With all of its parts. */
static bool is_here(const gpufi_checkpoint_snapshot *s, const gpufi_checkpoint_tensor *t) {
  size_t count = 0;
  while (count < t->part_count && lies_here(s, &t->parts[count].tensor)) {
    count++;
  }
  return t->parts ? count == t->part_count : lies_here(s, &t->tensor);
}

/* `d_used_nbytes` is what copies on the device take so far. Chunks are encoded from one tensor:
 * parts are put together first. */
static way choose_way(const gpufi_checkpoint_snapshot *s, const gpufi_checkpoint_tensor *t,
                      size_t d_used_nbytes) {
  const size_t nbytes = gpuf_tensor_nbytes(&t->tensor);
  if (!is_here(s, t) || nbytes == 0) {
    return TO_HOST;
  }
  if (s->mode == GPUF_CHECKPOINT_DEVICE_COPY && nbytes <= s->device_nbytes - d_used_nbytes) {
    return ON_DEVICE;
  }
  return s->encodes && t->tensor.ndim > 0 && !t->parts ? ENCODED : TO_HOST;
}

static size_t aligned_nbytes(const gpuf_tensor *tensor, size_t alignment) {
  return gpufi_round_up(gpuf_tensor_nbytes(tensor), alignment);
}

static size_t device_end(const gpufi_checkpoint_snapshot *s, size_t begin,
                         const gpuf_tensor *tensor) {
  return gpufi_min_nbytes(begin + aligned_nbytes(tensor, DEVICE_ALIGNMENT), s->device_nbytes);
}

/* --- Copies ------------------------------------------------------------------- */

typedef gpuf_status (*copy_call)(const gpuf_tensor *dst, const gpuf_tensor *src, gpuf_stream stream,
                                 gpuf_error *err);

static gpuf_status copy_and_wait(const gpuf_tensor *dst, const gpuf_tensor *src, gpuf_stream stream,
                                 gpuf_error *err) {
  return gpuf_copy(dst, src, NULL, err);
}

/* Copy the tensor, or each of its parts, to its place in `copy`. */
static gpuf_status copy_parts(const gpufi_checkpoint_tensor *t, const gpuf_tensor *copy,
                              copy_call call, gpuf_stream stream, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  if (!t->parts) {
    return gpuf_tensor_count(copy) > 0 ? call(copy, &t->tensor, stream, err) : GPUF_OK;
  }
  for (size_t i = 0; i < t->part_count && status == GPUF_OK; i++) {
    const gpuf_tensor *const part = &t->parts[i].tensor;
    gpufi_h5_box box;
    gpuf_tensor place = *copy;
    if (gpuf_tensor_count(part) > 0) {
      memcpy(box.start, t->parts[i].start, sizeof(box.start));
      memcpy(box.shape, part->shape, sizeof(box.shape));
      status = gpufi_h5_narrow(&place, &box, NULL, err);
      if (status == GPUF_OK) {
        status = call(&place, part, stream, err);
      }
    }
  }
  return status;
}

/* --- Host memory -------------------------------------------------------------- */

static gpuf_status copy_to_host(gpufi_checkpoint_host *host, gpufi_checkpoint_tensor *t,
                                gpuf_error *err) {
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  gpuf_tensor copy;
  gpuf_status status = gpuf_tensor_init(&copy, host->base ? host->base + host->used_nbytes : NULL,
                                        cpu, t->tensor.dtype, t->tensor.ndim, t->tensor.shape, err);
  if (status == GPUF_OK) {
    status = copy_parts(t, &copy, copy_and_wait, GPUF_STREAM_NONE, err);
  }
  host->used_nbytes += aligned_nbytes(&t->tensor, HOST_ALIGNMENT);
  if (status == GPUF_OK) {
    t->tensor = copy;
  }
  return status;
}

/* How much the tensors that are copied there take. */
static size_t host_nbytes_of(const gpufi_checkpoint_snapshot *s,
                             const gpufi_checkpoint_contents *contents) {
  size_t host_nbytes = 0;
  size_t d_used_nbytes = 0;
  for (size_t i = 0; i < contents->tensor_count; i++) {
    const gpufi_checkpoint_tensor *const t =
        &contents->tensors[gpufi_checkpoint_tensor_at(contents, i)];
    const way chosen = choose_way(s, t, d_used_nbytes);
    if (chosen == TO_HOST) {
      host_nbytes += aligned_nbytes(&t->tensor, HOST_ALIGNMENT);
    } else if (chosen == ON_DEVICE) {
      d_used_nbytes = device_end(s, d_used_nbytes, &t->tensor);
    }
  }
  return host_nbytes;
}

/* --- On the device ------------------------------------------------------------ */

/* The copy is enqueued on the channel's stream: nobody else synchronizes it, and so nobody else is
 * told that the copy failed. */
static gpuf_status copy_on_device(gpufi_checkpoint_snapshot *s, gpufi_checkpoint_tensor *t,
                                  gpuf_error *err) {
  gpuf_tensor copy;
  gpuf_status status = gpuf_tensor_init(&copy, s->d_memory + s->d_used_nbytes, s->device,
                                        t->tensor.dtype, t->tensor.ndim, t->tensor.shape, err);
  if (status == GPUF_OK) {
    s->d_used_nbytes = device_end(s, s->d_used_nbytes, &t->tensor);
    status = copy_parts(t, &copy, gpuf_tensor_copy, s->channel->stream, err);
  }
  if (status == GPUF_OK) {
    copy.stream = s->channel->stream;
    t->tensor = copy;
  }
  return status;
}

static gpuf_status encode(gpufi_checkpoint_snapshot *s, gpufi_checkpoint_tensor *t,
                          gpuf_error *err) {
  bool is_encoded = false;
  gpuf_status status = gpufi_checkpoint_encode(&s->queue, t, &is_encoded, err);
  if (status != GPUF_OK || is_encoded) {
    return status;
  }
  gpufi_checkpoint_spill *const spill = calloc(1, sizeof(*spill));
  if (!spill) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %zu bytes", sizeof(*spill));
  }
  spill->next = s->spills;
  s->spills = spill;
  status = gpufi_checkpoint_host_need(&spill->host, gpuf_tensor_nbytes(&t->tensor), err);
  return status == GPUF_OK ? copy_to_host(&spill->host, t, err) : status;
}

/* --- All ---------------------------------------------------------------------- */

/* Let the tensor be read behind `stream`, too, for which the channel's stream waits, and behind its
 * own. */
static gpuf_status join(const gpufi_checkpoint_snapshot *s, gpuf_tensor *tensor, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  if (s->channel && lies_here(s, tensor)) {
    status = gpufi_channel_join(s->channel, tensor->stream, err);
    tensor->stream = s->channel->stream;
  }
  return status;
}

static gpuf_status take(gpufi_checkpoint_snapshot *s, gpufi_checkpoint_tensor *t, gpuf_error *err) {
  const way chosen = choose_way(s, t, s->d_used_nbytes);
  if (chosen == ON_DEVICE) {
    return copy_on_device(s, t, err);
  }
  gpuf_status status = t->parts ? GPUF_OK : join(s, &t->tensor, err);
  for (size_t i = 0; t->parts && i < t->part_count && status == GPUF_OK; i++) {
    status = join(s, &t->parts[i].tensor, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  return chosen == ENCODED ? encode(s, t, err) : copy_to_host(&s->host, t, err);
}

static gpuf_status check_stream(const gpufi_checkpoint_snapshot *s,
                                const gpufi_checkpoint_contents *contents, gpuf_stream stream,
                                gpuf_error *err) {
  if (stream == GPUF_STREAM_NONE || s->backend) {
    return GPUF_OK;
  }
  for (size_t i = 0; i < contents->tensor_count; i++) {
    if (contents->tensors[i].tensor.device.kind != GPUF_DEVICE_CPU) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "options.device is the CPU, and tensor '%s' is on a device: set "
                        "options.device to that of the stream",
                        contents->tensors[i].name);
    }
  }
  if (stream == GPUF_STREAM_LEGACY || stream == GPUF_STREAM_PER_THREAD) {
    return GPUF_OK; /* what is given where nobody thinks of streams */
  }
  return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                    "stream is %#" PRIx64 ", and options.device is the CPU, which has no streams: "
                    "give GPUF_STREAM_NONE, or set options.device to that of the stream",
                    (uint64_t)stream);
}

static gpuf_status prepare(gpufi_checkpoint_snapshot *s, const gpufi_checkpoint_contents *contents,
                           gpuf_stream stream, gpuf_error *err) {
  gpuf_status status = check_stream(s, contents, stream, err);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_host_need(&s->host, host_nbytes_of(s, contents), err);
  }
  if (status == GPUF_OK && s->backend) {
    status = gpufi_channel_acquire(s->backend, s->device, &s->channel, err);
    if (status == GPUF_OK) {
      status = gpufi_channel_join(s->channel, stream, err);
    }
  }
  return status;
}

gpuf_status gpufi_checkpoint_snapshot_take(gpufi_checkpoint_snapshot *s,
                                           gpufi_checkpoint_contents *contents, gpuf_stream stream,
                                           gpuf_error *err) {
  gpuf_status status = prepare(s, contents, stream, err);
  for (size_t i = 0; i < contents->tensor_count && status == GPUF_OK; i++) {
    status = take(s, &contents->tensors[gpufi_checkpoint_tensor_at(contents, i)], err);
    if (status == GPUF_OK) {
      gpufi_checkpoint_queue_end_tensor(&s->queue);
    }
  }
  /* Without a stream, nothing orders the program's next work behind the copies. */
  if (status == GPUF_OK && s->channel && stream == GPUF_STREAM_NONE) {
    status = s->backend->stream_synchronize(s->device.index, s->channel->stream, err);
  } else if (status == GPUF_OK && s->channel) {
    status = gpufi_channel_order(s->channel, s->channel->stream, stream, false, err);
  }
  return status;
}

gpuf_status gpufi_checkpoint_snapshot_check(const gpufi_checkpoint_snapshot *s, gpuf_error *err) {
  return s->channel ? s->backend->stream_synchronize(s->device.index, s->channel->stream, err)
                    : GPUF_OK;
}
