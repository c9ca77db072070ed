#include "comm/source.h"

#include "base/error.h"
#include "base/thread.h"

#include <gpufetch/share.h>
#include <inttypes.h>
#include <string.h>

/* GPUF_ERR_NO_DEVICE for a device that there is not. */
static gpuf_status check_device(gpuf_device device, const char *name, gpuf_error *err) {
  int32_t count = 0;
  if (device.kind == GPUF_DEVICE_CPU) {
    return GPUF_OK;
  }
  const gpuf_status status = gpuf_device_count(device.kind, &count, err);
  if (status == GPUF_OK && (device.index < 0 || device.index >= count)) {
    return gpufi_fail(err, GPUF_ERR_NO_DEVICE, 0,
                      "%s is on device %s:%" PRId32 ", and there are %" PRId32, name,
                      gpuf_device_kind_name(device.kind), device.index, count);
  }
  return status;
}

static gpuf_status take_part(const gpuf_publish_options *options, const char *name,
                             const gpuf_tensor *tensor, gpufi_part *part, gpuf_error *err) {
  int64_t nbytes = (int64_t)gpuf_dtype_nbytes(tensor->dtype);
  if (!options->global_shape && !options->start) {
    return GPUF_OK;
  }
  if (!options->global_shape || !options->start) {
    return gpufi_fail(
        err, GPUF_ERR_INVALID, 0, "%s has %s and no %s: give both, or neither for a whole array",
        name, options->start ? "start" : "global_shape", options->start ? "global_shape" : "start");
  }
  part->is_given = true;
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    const int64_t length = options->global_shape[axis], start = options->start[axis];
    if (start < 0 || tensor->shape[axis] > length || start > length - tensor->shape[axis]) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "axis %" PRId32 " of %s covers %" PRId64 " indices from start %" PRId64
                        ", which are not inside the global length %" PRId64,
                        axis, name, tensor->shape[axis], start, length);
    }
    if (length > 0 && __builtin_mul_overflow(nbytes, length, &nbytes)) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0, "the global shape of %s has over 2^63 bytes",
                        name);
    }
    part->global_shape[axis] = length;
    part->start[axis] = start;
  }
  return GPUF_OK;
}

gpuf_status gpufi_source_init(gpufi_source *source, const char *name, const gpuf_tensor *tensor,
                              const gpuf_publish_options *options, gpuf_error *err) {
  *source = (gpufi_source){.tensor = *tensor};
  if (tensor->stream == GPUF_STREAM_PER_THREAD && tensor->device.kind != GPUF_DEVICE_CPU) {
    source->stream_thread = gpufi_thread_number();
  }
  gpuf_status status = gpuf_tensor_check(tensor, err);
  if (status == GPUF_OK) {
    status = check_device(tensor->device, name, err);
  }
  if (status == GPUF_OK && options) {
    source->release = options->release;
    source->release_arg = options->release_arg;
    source->attachment = options->attachment;
    status = take_part(options, name, tensor, &source->part, err);
  }
  return status;
}

void gpufi_source_release(const gpufi_source *source) {
  if (source->release) {
    source->release(source->release_arg);
  }
}

gpuf_status gpufi_source_check_stream(const gpufi_source *source, gpuf_error *err) {
  return source->stream_thread == 0 || source->stream_thread == gpufi_thread_number()
             ? GPUF_OK
             : gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                          "it was published with GPUF_STREAM_PER_THREAD by another thread than the "
                          "one that publishes steps: publish it there, or with a stream of "
                          "gpuf_stream_create");
}

gpuf_status gpufi_source_check(const gpufi_source *source, gpuf_error *err) {
  return source->attachment ? gpuf_attachment_check(source->attachment, err) : GPUF_OK;
}

static bool same_part(const gpufi_source *a, const gpufi_source *b) {
  const size_t nbytes = (size_t)a->tensor.ndim * sizeof(a->part.start[0]);
  return a->part.is_given == b->part.is_given &&
         memcmp(a->part.global_shape, b->part.global_shape, nbytes) == 0 &&
         memcmp(a->part.start, b->part.start, nbytes) == 0;
}

bool gpufi_source_same_type(const gpufi_source *a, const gpufi_source *b) {
  const gpuf_tensor *x = &a->tensor, *y = &b->tensor;
  return x->dtype == y->dtype && x->ndim == y->ndim && x->device.kind == y->device.kind &&
         x->device.index == y->device.index &&
         memcmp(x->shape, y->shape, (size_t)x->ndim * sizeof(x->shape[0])) == 0 && same_part(a, b);
}

bool gpufi_source_same_memory(const gpufi_source *a, const gpufi_source *b) {
  const gpuf_tensor *x = &a->tensor, *y = &b->tensor;
  return gpufi_source_same_type(a, b) && x->data == y->data &&
         memcmp(x->strides_nbytes, y->strides_nbytes,
                (size_t)x->ndim * sizeof(x->strides_nbytes[0])) == 0;
}
