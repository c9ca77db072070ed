#include "hdf5/batches.h"

#include "base/error.h"
#include "core/runtime.h"

#include <string.h>

/* A batch has a part of the tensor, within these bounds: larger ones keep the device busier, and
 * take more memory. */
#define BATCH_MIN_NBYTES ((size_t)16 << 20)
#define BATCH_MAX_NBYTES ((size_t)64 << 20)
/* Where no host memory is taken for it. */
#define KEPT_MAX_NBYTES ((size_t)128 << 20)
#define BATCH_PARTS 64
/* Of very small chunks, what each needs beside its elements would take the most memory. */
#define BATCH_CHUNKS_MAX ((size_t)4096)
/* Longer chunks would take too much of the device's memory. */
#define CHUNK_NBYTES_MAX ((size_t)32 << 20)
/* Of the raw chunks that a device encodes or decodes. */
#define CHUNKS_ALIGNMENT_NBYTES 64
/* One chunk in so many may be left to the calling thread; where there are more, the ring's workers
 * are faster. */
#define LEFT_RATIO 8

bool gpufi_h5_batches_suit(const gpufi_h5_transfer *transfer) {
  const gpuf_tensor *tensor = transfer->tensor;
  const size_t element_nbytes = gpuf_dtype_nbytes(tensor->dtype);
  const gpufi_h5_route route = transfer->dataset->route;
  bool suits = tensor->device.kind != GPUF_DEVICE_CPU &&
               (route == GPUFI_H5_ROUTE_GPUFETCH ||
                (route == GPUFI_H5_ROUTE_BITSHUFFLE && transfer->writes)) &&
               transfer->dataset->chunk_nbytes <= CHUNK_NBYTES_MAX &&
               gpuf_tensor_check(tensor, NULL) == GPUF_OK &&
               (uintptr_t)tensor->data % element_nbytes == 0;
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    suits = suits && (tensor->shape[axis] < 2 ||
                      tensor->strides_nbytes[axis] % (int64_t)element_nbytes == 0);
  }
  return suits;
}

/* --- Memory ------------------------------------------------------------------ */

static gpuf_status batch_init(gpufi_h5_batch *b, const gpufi_h5_batches *all, gpuf_error *err) {
  const gpufi_h5_transfer *transfer = all->transfer;
  const gpuf_tensor *tensor = transfer->tensor;
  const gpufi_h5_batch_use use = {.encodes = transfer->writes,
                                  .has_raw = all->in_row_count < transfer->grid.total,
                                  .has_bytes = !all->has_memory};
  gpuf_status status =
      gpufi_h5_batch_init(b, all->backend, tensor->device, &all->chunks, &use, err);
  if (status == GPUF_OK) {
    status = gpufi_channel_join(b->channel, tensor->stream, err);
  }
  return status == GPUF_OK && transfer->writes && transfer->dataset->has_fill
             ? gpufi_h5_batch_set_fill(b, transfer->dataset->fill, err)
             : status;
}

static int64_t range_begin(const gpufi_h5_batches *all, size_t range) {
  return range == 0 ? 0 : all->range_ends[range - 1];
}

static int64_t range_end(const gpufi_h5_batches *all, size_t range) {
  return all->range_ends ? all->range_ends[range] : all->transfer->grid.total;
}

static int64_t count_batches(const gpufi_h5_batches *all) {
  const int64_t full = (int64_t)all->chunks.count;
  int64_t total = 0;
  for (size_t i = 0; i < all->range_count; i++) {
    total += (range_end(all, i) - range_begin(all, i) - 1) / full + 1;
  }
  return total;
}

/* Batches of so many bytes of raw chunks, or of one chunk. */
static gpuf_status init_batches(gpufi_h5_batches *all, size_t nbytes, gpuf_error *err) {
  const int64_t total = all->transfer->grid.total;
  size_t count = nbytes / all->chunks.raw_pitch_nbytes;
  gpuf_status status = GPUF_OK;
  count = count < 1 ? 1 : count > BATCH_CHUNKS_MAX ? BATCH_CHUNKS_MAX : count;
  all->chunks.count = count < (size_t)total ? count : (size_t)total;
  all->total = count_batches(all);
  while (status == GPUF_OK && all->count < all->total && all->count < GPUFI_H5_BATCH_COUNT) {
    status = batch_init(&all->batches[all->count++], all, err);
  }
  return status;
}

static size_t batch_nbytes_for(const gpufi_h5_batches *all) {
  const size_t part =
      (size_t)all->transfer->grid.total * all->chunks.raw_pitch_nbytes / BATCH_PARTS;
  const size_t bound = all->has_memory ? KEPT_MAX_NBYTES : BATCH_MAX_NBYTES;
  const size_t most = all->batch_max_nbytes ? all->batch_max_nbytes : bound;
  const size_t wanted = gpufi_min_nbytes(gpufi_min_nbytes(part, most), bound);
  return wanted > BATCH_MIN_NBYTES ? wanted : BATCH_MIN_NBYTES;
}

/* How many chunks of the grid, from the first on, lie whole in the tensor, each behind the one
 * before, as far as that follows from the shapes. Looking at each of them takes longer than a
 * device does to encode it. */
static int64_t count_in_row(const gpufi_h5_transfer *transfer, const gpufi_chunks *chunks) {
  const gpufi_h5_grid *const grid = &transfer->grid;
  int32_t axis = grid->ndim - 1; /* the first one from behind of which a chunk is a part */
  int64_t before = 1;            /* chunks along the axes before it */
  if (!gpuf_tensor_is_contiguous(transfer->tensor) ||
      (uintptr_t)transfer->tensor->data % CHUNKS_ALIGNMENT_NBYTES != 0 ||
      chunks->raw_nbytes % CHUNKS_ALIGNMENT_NBYTES != 0) {
    return 0;
  }
  while (axis > 0 && grid->tile[axis] == grid->box.shape[axis]) {
    axis--;
  }
  for (int32_t i = 0; i < grid->ndim; i++) {
    if (grid->first[i] != grid->box.start[i] || (i < axis && grid->tile[i] != 1)) {
      return 0;
    }
    before *= i < axis ? grid->counts[i] : 1;
  }
  const bool are_whole = axis >= 0 && grid->box.shape[axis] % grid->tile[axis] == 0;
  return are_whole ? grid->total : before == 1 ? grid->total - 1 : 0;
}

gpuf_status gpufi_h5_batches_init(gpufi_h5_batches *all, gpufi_h5_session *session,
                                  const gpufi_h5_transfer *transfer, gpuf_error *err) {
  const gpufi_h5_dataset *dataset = transfer->dataset;
  gpuf_status status = gpufi_backend_for(transfer->tensor->device, &all->backend, err);
  if (status == GPUF_OK) {
    status = gpufi_chunks_init(&all->chunks, &dataset->chunk_shape, 1, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  all->session = session;
  all->transfer = transfer;
  all->range_count = all->range_ends ? all->range_count : 1;
  all->in_row_count = count_in_row(transfer, &all->chunks);
  if (dataset->route == GPUFI_H5_ROUTE_BITSHUFFLE) {
    all->chunks.coding = GPUFI_CODING_BITSHUFFLE;
  }
  const size_t nbytes = batch_nbytes_for(all);
  status = init_batches(all, nbytes, err);
  if ((status == GPUF_ERR_NO_DEVICE_MEMORY || status == GPUF_ERR_NO_MEMORY) &&
      nbytes > BATCH_MIN_NBYTES) {
    gpufi_h5_batches_fini(all);
    status = init_batches(all, BATCH_MIN_NBYTES, err);
  }
  return status;
}

void gpufi_h5_batches_fini(gpufi_h5_batches *all) {
  for (int i = 0; i < all->count; i++) {
    gpufi_h5_batch_fini(&all->batches[i]);
  }
  memset(all->batches, 0, sizeof(all->batches));
  all->count = 0;
}

/* --- Work -------------------------------------------------------------------- */

static bool is_packed(const gpufi_strided *layout, const gpuf_tensor *tensor) {
  return gpufi_strided_is_contiguous(layout) &&
         (uintptr_t)tensor->data % GPUFI_STRIDED_UNIT_NBYTES_MAX == 0;
}

gpuf_status gpufi_h5_batches_find_chunks(const gpufi_h5_batches *all, gpufi_h5_batch *b,
                                         gpuf_error *err) {
  uint8_t *first = NULL;
  b->d_chunks = b->d_raw;
  if (all->chunks.raw_nbytes != all->chunks.raw_pitch_nbytes) {
    return GPUF_OK;
  }
  if (b->first + (int64_t)b->chunks.count <= all->in_row_count) {
    b->d_chunks =
        (uint8_t *)all->transfer->tensor->data + (size_t)b->first * all->chunks.raw_nbytes;
    return GPUF_OK;
  }
  for (size_t i = 0; i < b->chunks.count; i++) {
    gpuf_tensor in_chunk, in_tensor;
    const gpuf_status status =
        gpufi_h5_transfer_views(all->transfer, b->first + (int64_t)i, b->d_raw, b->channel->device,
                                &in_chunk, &in_tensor, err);
    if (status != GPUF_OK) {
      return status;
    }
    const gpufi_packing whole = gpufi_packing_whole(&in_tensor, b->d_raw);
    uint8_t *const at = in_tensor.data;
    first = i == 0 ? at : first;
    if (gpuf_tensor_nbytes(&in_tensor) != all->chunks.raw_nbytes ||
        !gpufi_strided_is_contiguous(&whole.layout) ||
        (uintptr_t)first % CHUNKS_ALIGNMENT_NBYTES != 0 ||
        (uintptr_t)at - (uintptr_t)first != i * all->chunks.raw_pitch_nbytes) {
      return GPUF_OK;
    }
  }
  b->d_chunks = first;
  return GPUF_OK;
}

gpuf_status gpufi_h5_batch_copy(const gpufi_h5_batches *all, const gpufi_h5_batch *b,
                                const gpuf_tensor *dst, const gpuf_tensor *src, gpuf_error *err) {
  const gpufi_backend *const backend = all->backend;
  const int32_t device = dst->device.index;
  const gpuf_stream stream = b->channel->stream;
  gpufi_packing to = gpufi_packing_whole(dst, src->data);
  gpufi_packing from = gpufi_packing_whole(src, dst->data);
  gpuf_status status = GPUF_OK;
  if (is_packed(&to.layout, dst)) {
    return backend->pack(device, &from, stream, err);
  }
  if (!is_packed(&from.layout, src)) {
    from.d_packed = to.d_packed = b->d_spare;
    status = backend->pack(device, &from, stream, err);
  }
  return status == GPUF_OK ? backend->unpack(device, &to, stream, err) : status;
}

static gpufi_h5_batch *batch_at(gpufi_h5_batches *all, int64_t index) {
  return &all->batches[index % all->count];
}

/* Say which chunks batch `index` has: the next ones of the range whose turn it is, or of the first
 * one behind it that has any left. */
static gpufi_h5_batch *assign(gpufi_h5_batches *all, int64_t index) {
  gpufi_h5_batch *b = batch_at(all, index);
  const int64_t full = (int64_t)all->chunks.count;
  int64_t left = 0;
  while (left <= 0) {
    b->first = range_begin(all, all->next_range) + all->round * full;
    left = range_end(all, all->next_range) - b->first;
    all->next_range = (all->next_range + 1) % all->range_count;
    all->round += all->next_range == 0;
  }
  b->chunks.count = (size_t)(left < full ? left : full);
  return b;
}

static gpuf_status run_steps(gpufi_h5_batches *all, const gpufi_h5_batch_steps *steps, void *by,
                             int64_t *done, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  for (int64_t i = 0; i < all->total + 2 && status == GPUF_OK; i++) {
    if (i < all->total) {
      status = steps->begin(by, assign(all, i), err);
    }
    if (status == GPUF_OK && i >= 1 && i <= all->total) {
      status = steps->middle(by, batch_at(all, i - 1), err);
    }
    if (status == GPUF_OK && i >= 2) {
      gpufi_h5_batch *b = batch_at(all, i - 2);
      size_t left_count = 0;
      status = steps->end(by, b, &left_count, err);
      if (status == GPUF_OK) {
        *done = b->first + (int64_t)b->chunks.count;
      }
      if (left_count > b->chunks.count / LEFT_RATIO) {
        break;
      }
    }
  }
  return status;
}

gpuf_status gpufi_h5_batches_run(gpufi_h5_batches *all, gpuf_status status,
                                 const gpufi_h5_batch_steps *steps, void *by, int64_t *done,
                                 gpuf_error *err) {
  if (status == GPUF_ERR_NO_DEVICE_MEMORY || status == GPUF_ERR_NO_MEMORY) {
    return GPUF_OK; /* the ring takes less */
  }
  if (status == GPUF_OK) {
    status = run_steps(all, steps, by, done, err);
  }
  return status == GPUF_ERR_UNSUPPORTED && *done == 0 ? GPUF_OK : status;
}
