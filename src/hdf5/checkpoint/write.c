#include "hdf5/checkpoint/write.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "hdf5/checkpoint/encoded.h"
#include "hdf5/checkpoint/file.h"
#include "hdf5/checkpoint/library.h"
#include "hdf5/checkpoint/manifest.h"

/* A file that is being written. Used by the thread that writes it. */
typedef struct writer {
  gpufi_h5_context context;
  gpuf_h5_options options;
  gpufi_h5_session session; /* for what no public call does */
  gpufi_checkpoint_snapshot *snapshot;
  gpufi_checkpoint_file file;
} writer;

static gpuf_status write_value(const writer *w, const gpufi_checkpoint_value *value,
                               gpuf_error *err) {
  switch (value->kind) {
  case GPUFI_CHECKPOINT_INT64:
    return gpuf_h5_set_attribute_int64(w->file.id, "/", value->name, value->int64, &w->options,
                                       err);
  case GPUFI_CHECKPOINT_FLOAT64:
    return gpuf_h5_set_attribute_float64(w->file.id, "/", value->name, value->float64, &w->options,
                                         err);
  case GPUFI_CHECKPOINT_TEXT:
    return gpuf_h5_set_attribute_text(w->file.id, "/", value->name, value->text, &w->options, err);
  }
  return GPUF_OK;
}

/* The encoded batches of tensor `index`, of which `batch` is the first, or its copy. */
static gpuf_status write_tensor(writer *w, gpufi_checkpoint_tensor *t, size_t index,
                                gpuf_error *err) {
  gpufi_checkpoint_batch *batch;
  gpuf_status status = gpufi_checkpoint_queue_take(&w->snapshot->queue, index, &batch, err);
  if (status != GPUF_OK) {
    return status;
  }
  memset(&t->digest, 0, sizeof(t->digest));
  w->context.digest = &t->digest;
  status = batch ? gpufi_checkpoint_write_encoded(&w->session, w->file.id, t, index, w->snapshot,
                                                  batch, err)
                 : gpuf_h5_write(w->file.id, t->name, &t->tensor, &w->options, err);
  w->context.digest = NULL;
  return status;
}

static gpuf_status write_manifest(const writer *w, const gpufi_checkpoint_contents *contents,
                                  gpuf_error *err) {
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  gpuf_h5_options options = w->options;
  gpuf_tensor bytes;
  char *text;
  size_t nbytes;
  gpuf_status status = gpufi_checkpoint_manifest_format(contents, &text, &nbytes, err);
  if (status != GPUF_OK) {
    return status;
  }
  options.codec = GPUF_H5_CODEC_NONE;
  status =
      gpuf_tensor_init(&bytes, text, cpu, GPUF_DTYPE_UINT8, 1, (int64_t[]){(int64_t)nbytes}, err);
  if (status == GPUF_OK) {
    status = gpuf_h5_write(w->file.id, GPUFI_CHECKPOINT_MANIFEST, &bytes, &options, err);
  }
  free(text);
  return status;
}

static gpuf_status write_contents(writer *w, gpufi_checkpoint_contents *contents, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  for (size_t i = 0; i < contents->tensor_count && status == GPUF_OK; i++) {
    status = write_tensor(w, &contents->tensors[i], i, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_queue_await_end(&w->snapshot->queue, err);
  }
  for (size_t i = 0; i < contents->value_count && status == GPUF_OK; i++) {
    status = write_value(w, &contents->values[i], err);
  }
  return status == GPUF_OK ? write_manifest(w, contents, err) : status;
}

static gpuf_status write_file(writer *w, gpufi_checkpoint_contents *contents, const char *path,
                              gpuf_error *err) {
  gpuf_error close_error;
  gpuf_status status = gpufi_h5_session_init(&w->session, &w->options, err);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_file_create(&w->file, &w->session, path, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  w->context.file = w->file.driven;
  status = write_contents(w, contents, err);
  w->context.file = NULL;
  const gpuf_status closed = gpufi_checkpoint_file_close(&w->file, &w->session, path, &close_error);
  if (closed != GPUF_OK && (status == GPUF_OK || status == GPUF_ERR_HDF5)) {
    status = closed; /* what the driver remembers is the cause of what HDF5 said */
    *err = close_error;
  }
  return status;
}

gpuf_status gpufi_checkpoint_write(const gpufi_checkpoint_writing *writing,
                                   gpufi_checkpoint_snapshot *snapshot,
                                   gpufi_checkpoint_contents *contents, const char *path,
                                   gpuf_error *err) {
  writer w = {.context = {.api = writing->api, .stop = writing->stop}, .snapshot = snapshot};
  w.options = gpufi_checkpoint_h5_options();
  w.options.codec = writing->codec;
  w.options.thread_count = writing->thread_count;
  gpufi_h5_context_set(&w.context);
  const gpuf_status status = write_file(&w, contents, path, err);
  gpufi_h5_context_set(NULL);
  return status;
}
