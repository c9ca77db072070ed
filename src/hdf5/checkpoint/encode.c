#include "hdf5/checkpoint/encode.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "hdf5/batches.h"
#include "hdf5/chunk_shape.h"

/* The queue should hold so many batches at least, so that there is one for the writer. Larger ones
 * than this are for a queue that holds many of them. */
#define BATCHES_IN_QUEUE 4
#define BATCH_NBYTES ((size_t)64 << 20)
#define LARGE_BATCHES_IN_QUEUE 64

typedef struct encoder {
  gpufi_h5_batches all;
  gpufi_checkpoint_queue *queue;
  const gpufi_checkpoint_tensor *tensor;
  int64_t *range_ends; /* of its shards' parts; NULL: one file holds it */
  /* The batch whose bytes are on their way to the queue's memory, and where it is; NULL: none. */
  const gpufi_h5_batch *source;
  gpufi_checkpoint_batch *pending;
} encoder;

/* A dataset as gpuf_h5_write will create it for the tensor. */
static gpuf_status describe(const gpuf_tensor *tensor, gpufi_h5_dataset *dataset, gpuf_error *err) {
  memset(dataset, 0, sizeof(*dataset));
  dataset->id = H5I_INVALID_HID;
  dataset->dtype = tensor->dtype;
  dataset->ndim = tensor->ndim;
  dataset->route = GPUFI_H5_ROUTE_GPUFETCH;
  dataset->is_chunked = dataset->is_filtered = true;
  memcpy(dataset->shape, tensor->shape, sizeof(dataset->shape));
  gpufi_h5_chunk_shape_default(tensor, dataset->chunk);
  return gpufi_h5_chunk_shape_fold(dataset->dtype, dataset->ndim, dataset->chunk,
                                   &dataset->chunk_shape, &dataset->chunk_nbytes, err);
}

static gpuf_status find_ranges(encoder *e, int64_t total, gpuf_error *err) {
  const gpufi_checkpoint_tensor *const t = e->tensor;
  if (!t->shard_parts) {
    return GPUF_OK;
  }
  e->range_ends = calloc(t->shard_part_count, sizeof(*e->range_ends));
  if (!e->range_ends) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %zu parts", t->shard_part_count);
  }
  for (size_t i = 0; i + 1 < t->shard_part_count; i++) {
    e->range_ends[i] = t->shard_parts[i + 1].first_chunk;
  }
  e->range_ends[t->shard_part_count - 1] = total;
  e->all.range_ends = e->range_ends;
  e->all.range_count = t->shard_part_count;
  return GPUF_OK;
}

/* Who writes the chunks from `first` on. */
static size_t writer_of(const encoder *e, int64_t first) {
  const gpufi_checkpoint_tensor *const t = e->tensor;
  size_t i = 0;
  while (i + 1 < t->shard_part_count && t->shard_parts[i + 1].first_chunk <= first) {
    i++;
  }
  return t->shard_parts ? t->shard_parts[i].shard : GPUFI_CHECKPOINT_WRITER_OF_MASTER;
}

/* Wait until the pending batch's bytes are there, and hand it to the writer. */
static gpuf_status put_pending(encoder *e, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  if (e->pending) {
    status = gpufi_h5_batch_wait(e->source, err);
    if (status == GPUF_OK) {
      gpufi_checkpoint_queue_put(e->queue, writer_of(e, e->pending->first), e->pending);
      e->pending = NULL;
    }
  }
  return status;
}

static gpuf_status start_batch(void *by, gpufi_h5_batch *b, gpuf_error *err) {
  const encoder *const e = by;
  return gpufi_h5_batches_encode(&e->all, b, err);
}

/* Memory for the batch's bytes. While it is not to be had at once, the writer must have all
 * batches, so that it can give memory back. */
static gpuf_status get_memory(encoder *e, const gpufi_h5_batch *b, gpufi_checkpoint_batch **kept,
                              gpuf_error *err) {
  const size_t count = b->chunks.count;
  const size_t nbytes = gpufi_h5_batch_sent_nbytes(b);
  gpuf_status status = gpufi_checkpoint_queue_get(e->queue, count, nbytes, false, kept, err);
  if (status == GPUF_OK && !*kept) {
    status = put_pending(e, err);
    if (status == GPUF_OK) {
      status = gpufi_checkpoint_queue_get(e->queue, count, nbytes, true, kept, err);
    }
  }
  return status;
}

/* Once the batch is encoded: enqueue its way to the queue's memory. */
static gpuf_status keep_batch(void *by, gpufi_h5_batch *b, gpuf_error *err) {
  encoder *const e = by;
  gpufi_checkpoint_batch *kept = NULL;
  gpuf_status status = gpufi_h5_batch_wait(b, err);
  if (status == GPUF_OK) {
    status = get_memory(e, b, &kept, err);
  }
  if (status == GPUF_OK) {
    status = put_pending(e, err);
  }
  if (status == GPUF_OK && kept->place == GPUFI_CHECKPOINT_ON_DEVICE) {
    status = gpufi_h5_batch_keep(b, kept->bytes, err);
  } else if (status == GPUF_OK) {
    uint8_t *const staging = b->bytes;
    b->bytes = kept->bytes;
    status = gpufi_h5_batch_send(b, err);
    b->bytes = staging;
  }
  if (status != GPUF_OK) {
    gpufi_checkpoint_queue_drop(e->queue, kept);
    return status;
  }
  kept->first = b->first;
  memcpy(kept->chunks, b->places, kept->count * sizeof(*kept->chunks));
  e->pending = kept;
  e->source = b;
  return GPUF_OK;
}

/* The batch's memory on the device is used again next: its bytes must have left it. */
static gpuf_status end_batch(void *by, gpufi_h5_batch *b, size_t *left_count, gpuf_error *err) {
  encoder *const e = by;
  return e->source == b ? put_pending(e, err) : GPUF_OK;
}

static size_t batch_max_nbytes_for(size_t queue_nbytes) {
  const size_t few = gpufi_min_nbytes(queue_nbytes / BATCHES_IN_QUEUE, BATCH_NBYTES);
  const size_t large = queue_nbytes / LARGE_BATCHES_IN_QUEUE;
  return large > few ? large : few;
}

static gpuf_status encode(encoder *e, const gpufi_h5_transfer *transfer, int64_t *done,
                          gpuf_error *err) {
  static const gpufi_h5_batch_steps steps = {start_batch, keep_batch, end_batch};
  gpuf_status status = find_ranges(e, transfer->grid.total, err);
  if (status != GPUF_OK) {
    return status;
  }
  e->all.has_memory = true;
  e->all.batch_max_nbytes = batch_max_nbytes_for(gpufi_checkpoint_queue_nbytes(e->queue));
  status = gpufi_h5_batches_init(&e->all, NULL, transfer, err);
  if (status == GPUF_OK &&
      !gpufi_checkpoint_queue_holds(e->queue, gpufi_chunks_encoded_nbytes(&e->all.chunks))) {
    status = GPUF_ERR_NO_MEMORY; /* too large a batch for the rings: none is made */
  }
  status = gpufi_h5_batches_run(&e->all, status, &steps, e, done, err);
  gpufi_h5_batches_fini(&e->all);
  gpufi_checkpoint_queue_drop(e->queue, e->pending);
  free(e->range_ends);
  return status;
}

gpuf_status gpufi_checkpoint_encode(gpufi_checkpoint_queue *queue, const gpufi_checkpoint_tensor *t,
                                    bool *is_encoded, gpuf_error *err) {
  encoder e = {.queue = queue, .tensor = t};
  gpufi_h5_dataset dataset;
  gpufi_h5_transfer transfer;
  gpufi_h5_box box = {{0}, {0}};
  int64_t done = 0;
  *is_encoded = false;
  gpuf_status status = describe(&t->tensor, &dataset, err);
  if (status != GPUF_OK) {
    return status;
  }
  memcpy(box.shape, t->tensor.shape, sizeof(box.shape));
  gpufi_h5_transfer_init(&transfer, NULL, &dataset, &box, &t->tensor, true);
  if (gpufi_h5_batches_suit(&transfer)) {
    status = encode(&e, &transfer, &done, err);
    *is_encoded = done > 0;
  }
  gpufi_h5_transfer_fini(&transfer);
  return status;
}

/* --- Beforehand --------------------------------------------------------------- */

/* What one writer takes. The transfer's tensor stays as long as the batches. */
typedef struct rehearsal {
  gpuf_tensor tensor;
  gpufi_h5_dataset dataset;
  gpufi_h5_transfer transfer;
  gpufi_h5_batches all;
} rehearsal;

/* Take the memory for a tensor of so many bytes at `memory`. */
static gpuf_status rehearse(rehearsal *r, const gpuf_tensor *memory, gpuf_dtype dtype,
                            size_t nbytes) {
  const int64_t columns = 1024;
  const size_t row_nbytes = (size_t)columns * gpuf_dtype_nbytes(dtype);
  const int64_t shape[] = {(int64_t)(nbytes / row_nbytes), columns};
  gpufi_h5_box box = {{0}, {0}};
  if (shape[0] == 0) {
    return GPUF_ERR_INVALID; /* so small a state needs no preparation */
  }
  gpuf_status status =
      gpuf_tensor_init(&r->tensor, memory->data, memory->device, dtype, 2, shape, NULL);
  if (status == GPUF_OK) {
    status = describe(&r->tensor, &r->dataset, NULL);
  }
  if (status == GPUF_OK) {
    memcpy(box.shape, shape, sizeof(shape));
    gpufi_h5_transfer_init(&r->transfer, NULL, &r->dataset, &box, &r->tensor, true);
    status = gpufi_h5_batches_init(&r->all, NULL, &r->transfer, NULL);
  }
  return status;
}

/* Encode a batch of what the memory holds, which is cleared. */
static void perform(rehearsal *r) {
  gpufi_h5_batch *const b = &r->all.batches[0];
  const size_t nbytes =
      gpufi_min_nbytes(b->chunks.count * b->chunks.raw_nbytes, gpuf_tensor_nbytes(&r->tensor));
  const gpufi_channel *const channel = b->channel;
  b->first = 0;
  if (channel->backend->clear(channel->device.index, r->tensor.data, nbytes, channel->stream,
                              NULL) == GPUF_OK &&
      gpufi_h5_batches_encode(&r->all, b, NULL) == GPUF_OK) {
    gpufi_h5_batch_wait(b, NULL);
  }
}

void gpufi_checkpoint_encode_prepare(const gpuf_tensor *memory, size_t writer_count) {
  static const gpuf_dtype dtypes[] = {GPUF_DTYPE_FLOAT32, GPUF_DTYPE_FLOAT64};
  const size_t nbytes = gpuf_tensor_nbytes(memory) / writer_count;
  rehearsal *const all = calloc(writer_count, sizeof(*all));
  for (size_t dtype = 0; all && dtype < sizeof(dtypes) / sizeof(dtypes[0]); dtype++) {
    for (size_t i = 0; i < writer_count; i++) {
      if (rehearse(&all[i], memory, dtypes[dtype], nbytes) == GPUF_OK && i == 0) {
        perform(&all[i]);
      }
    }
    for (size_t i = 0; i < writer_count; i++) {
      gpufi_h5_batches_fini(&all[i].all);
      memset(&all[i], 0, sizeof(all[i]));
    }
  }
  free(all);
}
