#include "hdf5/checkpoint/write.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/publish.h"
#include "hdf5/checkpoint/encoded.h"
#include "hdf5/checkpoint/file.h"
#include "hdf5/checkpoint/library.h"
#include "hdf5/checkpoint/manifest.h"
#include "hdf5/checkpoint/seal.h"
#include "hdf5/checkpoint/shard_files.h"
#include "hdf5/checkpoint/virtual.h"
#include "hdf5/chunk_shape.h"
#include "hdf5/grid.h"

/* The number of no shard: with ranks, shards count on over all of them. */
#define MASTER SIZE_MAX
_Static_assert(GPUFI_CHECKPOINT_SHARDS_MAX <= GPUFI_CHECKPOINT_WRITER_OF_MASTER,
               "each shard of a rank has a writer");

/* A file that is being written. Used by the thread that writes it. */
typedef struct writer {
  size_t number; /* the shard, or MASTER */
  gpufi_h5_context context;
  gpuf_h5_options options;
  gpufi_h5_session session; /* for what no public call does */
  gpufi_checkpoint_snapshot *snapshot;
  gpufi_checkpoint_contents *contents; /* of the checkpoint */
  gpufi_checkpoint_leftovers *leftovers;
  gpufi_checkpoint_file file;
} writer;

/* Of the queue's. */
static size_t writer_of(const writer *w) {
  return w->number == MASTER ? GPUFI_CHECKPOINT_WRITER_OF_MASTER : w->number;
}

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

/* The item's encoded batches, of which `batch` is the first, or its copy. */
static gpuf_status write_item(writer *w, const gpufi_checkpoint_item *item,
                              gpufi_checkpoint_batch *batch, gpufi_h5_digest *digest,
                              gpuf_error *err) {
  memset(digest, 0, sizeof(*digest));
  w->context.digest = digest;
  const gpuf_status status =
      batch ? gpufi_checkpoint_write_encoded(&w->session, w->file.id, item, w->snapshot, batch, err)
            : gpuf_h5_write(w->file.id, item->name, &item->tensor, &w->options, err);
  w->context.digest = NULL;
  return status;
}

/* A tensor, or, where `part` is not NULL, the part of it. */
static gpuf_status write_part(writer *w, gpufi_checkpoint_tensor *t,
                              gpufi_checkpoint_shard_part *part, size_t position, gpuf_error *err) {
  int64_t chunk[GPUF_NDIM_MAX];
  gpufi_checkpoint_batch *batch;
  gpufi_checkpoint_item item = {.name = part ? part->dataset : t->name,
                                .first_chunk = part ? part->first_chunk : 0,
                                .writer = writer_of(w),
                                .position = position};
  gpuf_status status =
      gpufi_checkpoint_queue_take(&w->snapshot->queue, writer_of(w), position, &batch, err);
  if (status != GPUF_OK) {
    return status;
  }
  item.tensor = t->tensor;
  if (part) {
    gpufi_h5_box box;
    memcpy(box.start, part->start, sizeof(box.start));
    memcpy(box.shape, part->shape, sizeof(box.shape));
    gpufi_h5_chunk_shape_default(&t->tensor, chunk);
    w->options.chunk_shape = w->session.options.chunk_shape = chunk;
    status = gpufi_h5_narrow(&item.tensor, &box, NULL, err);
  }
  if (status == GPUF_OK) {
    status = write_item(w, &item, batch, part ? &part->digest : &t->digest, err);
  } else {
    gpufi_checkpoint_queue_drop(&w->snapshot->queue, batch);
  }
  w->options.chunk_shape = w->session.options.chunk_shape = NULL;
  return status;
}

/* What this file holds of a tensor. */
static gpuf_status write_tensor(writer *w, size_t position, gpuf_error *err) {
  gpufi_checkpoint_tensor *const t =
      &w->contents->tensors[gpufi_checkpoint_tensor_at(w->contents, position)];
  gpuf_status status = GPUF_OK;
  if (!t->shard_parts) {
    return w->number == MASTER ? write_part(w, t, NULL, position, err) : GPUF_OK;
  }
  for (size_t i = 0; i < t->shard_part_count && status == GPUF_OK; i++) {
    if (t->shard_parts[i].shard == w->number) {
      status = write_part(w, t, &t->shard_parts[i], position, err);
    }
  }
  return status;
}

static gpuf_status write_tensors(writer *w, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  gpufi_checkpoint_file_note_elements(&w->file, true);
  for (size_t i = 0; i < w->contents->tensor_count && status == GPUF_OK; i++) {
    status = write_tensor(w, i, err);
  }
  gpufi_checkpoint_file_note_elements(&w->file, false);
  return status == GPUF_OK ? gpufi_checkpoint_queue_await_end(&w->snapshot->queue, err) : status;
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

static gpuf_status write_master(writer *w, gpuf_error *err) {
  const gpufi_checkpoint_contents *const contents = w->contents;
  gpuf_status status = write_tensors(w, err);
  for (size_t i = 0; i < contents->tensor_count && status == GPUF_OK; i++) {
    if (contents->tensors[i].shard_parts) {
      status = gpufi_checkpoint_create_virtual(&w->session, w->file.id, contents,
                                               &contents->tensors[i], err);
    }
  }
  for (size_t i = 0; i < contents->value_count && status == GPUF_OK; i++) {
    status = write_value(w, &contents->values[i], err);
  }
  return status == GPUF_OK ? write_manifest(w, contents, err) : status;
}

/* --- Shards ------------------------------------------------------------------- */

/* A part is a tensor in the shard's own manifest. */
static gpuf_status note_part(gpufi_checkpoint_contents *own, const gpufi_checkpoint_tensor *t,
                             const gpufi_checkpoint_shard_part *part, gpuf_error *err) {
  static char no_data;
  gpuf_tensor tensor;
  gpuf_status status = gpuf_tensor_init(&tensor, &no_data, (gpuf_device){GPUF_DEVICE_CPU, 0},
                                        t->tensor.dtype, t->tensor.ndim, part->shape, err);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_add_tensor(own, part->dataset, &tensor, err);
  }
  if (status == GPUF_OK) {
    own->tensors[own->tensor_count - 1].digest = part->digest;
  }
  return status;
}

static gpuf_status write_shard(writer *w, gpuf_error *err) {
  const gpufi_checkpoint_contents *const contents = w->contents;
  const gpufi_checkpoint_shard *const shard = &contents->shards[w->number];
  gpufi_checkpoint_contents own = {.step = contents->step};
  gpuf_status status = write_tensors(w, err);
  for (size_t i = 0; i < contents->tensor_count; i++) {
    const gpufi_checkpoint_tensor *const t = &contents->tensors[i];
    for (size_t k = 0; k < t->shard_part_count && status == GPUF_OK; k++) {
      if (t->shard_parts[k].shard == w->number) {
        status = note_part(&own, t, &t->shard_parts[k], err);
      }
    }
  }
  if (status == GPUF_OK) {
    own.self = (gpufi_checkpoint_shard){.name = strdup(shard->name),
                                        .uuid = {shard->uuid[0], shard->uuid[1]}};
    status = own.self.name
                 ? write_manifest(w, &own, err)
                 : gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory to note '%s'", shard->name);
  }
  gpufi_checkpoint_contents_clear(&own);
  return status;
}

/* --- Files -------------------------------------------------------------------- */

static gpuf_status seal(const writer *w, const gpufi_checkpoint_temporary *temporary,
                        const gpufi_h5_extents *elements, gpuf_error *err) {
  const char *const path = temporary->path.text;
  const gpufi_checkpoint_contents *const contents = w->contents;
  gpuf_status status = GPUF_OK;
  if (w->number == MASTER && contents->shard_count > 0) {
    gpufi_checkpoint_set set = {contents->shards[0].uuid[0], contents->shard_count, 0};
    for (size_t i = 0; i < contents->shard_count; i++) {
      const gpufi_checkpoint_shard *const shard = &contents->shards[i];
      set.marks_sum = gpufi_checkpoint_add_mark(
          set.marks_sum, &(gpufi_checkpoint_seal_mark){shard->nbytes, shard->seal_sum});
    }
    status = gpufi_checkpoint_note_set(temporary->fd, path, &set, err);
  }
  return status == GPUF_OK ? gpufi_checkpoint_seal(temporary->fd, path, elements, err) : status;
}

static gpuf_status write_file(writer *w, const gpufi_checkpoint_temporary *temporary,
                              gpuf_error *err) {
  const char *const path = temporary->path.text;
  gpuf_error close_error;
  gpufi_h5_extents elements;
  gpuf_status status = gpufi_h5_session_init(&w->session, &w->options, err);
  if (status == GPUF_OK) {
    status = gpufi_check_name(path, temporary->fd, err); /* HDF5 opens it by its name */
  }
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_file_create(&w->file, &w->session, path,
                                          temporary->recycled_nbytes > 0, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  w->context.file = w->file.driven;
  status = w->number == MASTER ? write_master(w, err) : write_shard(w, err);
  w->context.file = NULL;
  const gpuf_status closed =
      gpufi_checkpoint_file_finish(&w->file, &w->session, path, &elements, &close_error);
  gpufi_checkpoint_leftovers_add(w->leftovers, w->file.mapping);
  if (closed != GPUF_OK && (status == GPUF_OK || status == GPUF_ERR_HDF5)) {
    status = closed; /* what the driver remembers is the cause of what HDF5 said */
    *err = close_error;
  }
  if (status == GPUF_OK) {
    status = seal(w, temporary, &elements, err);
  }
  gpufi_h5_extents_fini(&elements);
  return status;
}

static gpuf_status write_as(const gpufi_checkpoint_writing *writing, size_t number,
                            gpufi_checkpoint_snapshot *snapshot,
                            gpufi_checkpoint_contents *contents,
                            const gpufi_checkpoint_temporary *temporary, gpuf_error *err) {
  writer w = {.number = number,
              .context = {.api = writing->api, .stop = writing->stop},
              .snapshot = snapshot,
              .contents = contents,
              .leftovers = writing->leftovers};
  w.options = gpufi_checkpoint_h5_options();
  w.options.codec = writing->codec;
  w.options.thread_count = writing->thread_count;
  gpufi_h5_context_set(&w.context);
  const gpuf_status status = write_file(&w, temporary, err);
  gpufi_h5_context_set(NULL);
  return status;
}

gpuf_status gpufi_checkpoint_write(const gpufi_checkpoint_writing *writing,
                                   gpufi_checkpoint_snapshot *snapshot,
                                   gpufi_checkpoint_contents *contents,
                                   const gpufi_checkpoint_temporary *temporary, gpuf_error *err) {
  return write_as(writing, MASTER, snapshot, contents, temporary, err);
}

gpuf_status gpufi_checkpoint_write_shard(const gpufi_checkpoint_writing *writing,
                                         gpufi_checkpoint_snapshot *snapshot,
                                         gpufi_checkpoint_contents *contents, size_t index,
                                         const gpufi_checkpoint_temporary *temporary,
                                         gpuf_error *err) {
  gpufi_checkpoint_seal_mark mark;
  gpuf_status status = write_as(writing, index, snapshot, contents, temporary, err);
  if (status == GPUF_OK) {
    status = gpufi_checkpoint_read_mark(temporary->fd, temporary->path.text, &mark, err);
  }
  if (status == GPUF_OK) {
    contents->shards[index].nbytes = mark.nbytes;
    contents->shards[index].seal_sum = mark.sum;
  }
  return status;
}
