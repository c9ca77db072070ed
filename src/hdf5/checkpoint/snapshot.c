#include "hdf5/checkpoint/snapshot.h"

#include <stdlib.h>

#include "base/arithmetic.h"
#include "base/error.h"
#include "hdf5/checkpoint/encode.h"

#define HOST_ALIGNMENT ((size_t)64)
#define DEVICE_ALIGNMENT ((size_t)256)

/* How a tensor is kept. */
typedef enum way { TO_HOST, ON_DEVICE, ENCODED } way;

/* Of tensors on the device, `d_used_nbytes` is what copies take so far. */
static way choose_way(const gpufi_checkpoint_snapshot *s, const gpuf_tensor *tensor,
                      size_t d_used_nbytes) {
  const bool is_here = s->backend && tensor->device.kind == s->device.kind &&
                       tensor->device.index == s->device.index;
  const size_t nbytes = gpuf_tensor_nbytes(tensor);
  if (!is_here || nbytes == 0) {
    return TO_HOST;
  }
  if (s->mode == GPUF_CHECKPOINT_DEVICE_COPY && nbytes <= s->device_nbytes - d_used_nbytes) {
    return ON_DEVICE;
  }
  return s->encodes && tensor->ndim > 0 ? ENCODED : TO_HOST;
}

static size_t aligned_nbytes(const gpuf_tensor *tensor, size_t alignment) {
  return gpufi_round_up(gpuf_tensor_nbytes(tensor), alignment);
}

static size_t device_end(const gpufi_checkpoint_snapshot *s, size_t begin,
                         const gpuf_tensor *tensor) {
  return gpufi_min_nbytes(begin + aligned_nbytes(tensor, DEVICE_ALIGNMENT), s->device_nbytes);
}

/* --- Host memory -------------------------------------------------------------- */

static gpuf_status copy_to_host(gpufi_checkpoint_host *host, gpuf_tensor *tensor, gpuf_error *err) {
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  gpuf_tensor copy;
  gpuf_status status = gpuf_tensor_init(&copy, host->base ? host->base + host->used_nbytes : NULL,
                                        cpu, tensor->dtype, tensor->ndim, tensor->shape, err);
  if (status == GPUF_OK && gpuf_tensor_count(tensor) > 0) {
    status = gpuf_copy(&copy, tensor, NULL, err);
  }
  host->used_nbytes += aligned_nbytes(tensor, HOST_ALIGNMENT);
  if (status == GPUF_OK) {
    *tensor = copy;
  }
  return status;
}

/* How much the tensors that are copied there take. */
static size_t host_nbytes_of(const gpufi_checkpoint_snapshot *s,
                             const gpufi_checkpoint_contents *contents) {
  size_t host_nbytes = 0;
  size_t d_used_nbytes = 0;
  for (size_t i = 0; i < contents->tensor_count; i++) {
    const gpuf_tensor *const tensor = &contents->tensors[i].tensor;
    const way chosen = choose_way(s, tensor, d_used_nbytes);
    if (chosen == TO_HOST) {
      host_nbytes += aligned_nbytes(tensor, HOST_ALIGNMENT);
    } else if (chosen == ON_DEVICE) {
      d_used_nbytes = device_end(s, d_used_nbytes, tensor);
    }
  }
  return host_nbytes;
}

/* --- On the device ------------------------------------------------------------ */

/* The copy is enqueued on `stream`, so that what comes there later may overwrite the tensor. */
static gpuf_status copy_on_device(gpufi_checkpoint_snapshot *s, gpuf_tensor *tensor,
                                  gpuf_stream stream, gpuf_error *err) {
  gpuf_tensor copy;
  gpuf_status status = gpuf_tensor_init(&copy, s->d_memory + s->d_used_nbytes, s->device,
                                        tensor->dtype, tensor->ndim, tensor->shape, err);
  if (status == GPUF_OK) {
    s->d_used_nbytes = device_end(s, s->d_used_nbytes, tensor);
    status = gpuf_tensor_copy(&copy, tensor, stream, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_channel_join(s->channel, stream, err);
    copy.stream = s->channel->stream;
    *tensor = copy;
  }
  return status;
}

static gpuf_status encode(gpufi_checkpoint_snapshot *s, gpuf_tensor *tensor, gpuf_error *err) {
  bool is_encoded = false;
  gpuf_status status = gpufi_checkpoint_encode(&s->queue, tensor, &is_encoded, err);
  if (status != GPUF_OK || is_encoded) {
    return status;
  }
  gpufi_checkpoint_spill *const spill = calloc(1, sizeof(*spill));
  if (!spill) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %zu bytes", sizeof(*spill));
  }
  spill->next = s->spills;
  s->spills = spill;
  status = gpufi_checkpoint_host_need(&spill->host, gpuf_tensor_nbytes(tensor), err);
  return status == GPUF_OK ? copy_to_host(&spill->host, tensor, err) : status;
}

/* --- All ---------------------------------------------------------------------- */

static gpuf_status take(gpufi_checkpoint_snapshot *s, gpuf_tensor *tensor, gpuf_stream stream,
                        gpuf_error *err) {
  const way chosen = choose_way(s, tensor, s->d_used_nbytes);
  gpuf_status status = GPUF_OK;
  if (chosen == ON_DEVICE) {
    return copy_on_device(s, tensor, stream == GPUF_STREAM_NONE ? s->channel->stream : stream, err);
  }
  if (s->channel && tensor->device.kind == s->device.kind &&
      tensor->device.index == s->device.index) {
    status = gpufi_channel_join(s->channel, tensor->stream, err);
    tensor->stream = s->channel->stream; /* which waits for `stream`, too */
  }
  if (status != GPUF_OK) {
    return status;
  }
  return chosen == ENCODED ? encode(s, tensor, err) : copy_to_host(&s->host, tensor, err);
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
  return GPUF_OK;
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
    status = take(s, &contents->tensors[i].tensor, stream, err);
    if (status == GPUF_OK) {
      gpufi_checkpoint_queue_end_tensor(&s->queue);
    }
  }
  /* Without a stream, nothing orders the program's next work behind the copies. */
  if (status == GPUF_OK && s->channel && stream == GPUF_STREAM_NONE) {
    status = s->backend->stream_synchronize(s->device.index, s->channel->stream, err);
  }
  return status;
}
