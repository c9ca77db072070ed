#include "hdf5/checkpoint/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/system.h"
#include "hdf5/checkpoint/shard_files.h"
#include "hdf5/chunk_shape.h"

/* How a tensor may be cut: into layers of chunks along an axis. */
typedef struct layers {
  int32_t axis;
  int64_t chunk;       /* length of a layer along the axis; the last one may be shorter */
  int64_t count;       /* of layers, each at least as long as a chunk: a shorter one at the end
                          belongs to the layer before */
  int64_t chunk_count; /* of chunks in a layer of the length of one */
} layers;

static layers layers_of(const gpuf_tensor *tensor) {
  int64_t chunk[GPUF_NDIM_MAX];
  layers l = {.chunk_count = 1};
  gpufi_h5_chunk_shape_default(tensor, chunk);
  while (l.axis < tensor->ndim - 1 && chunk[l.axis] == tensor->shape[l.axis]) {
    l.axis++;
  }
  l.chunk = chunk[l.axis];
  l.count = tensor->shape[l.axis] / l.chunk;
  for (int32_t axis = l.axis + 1; axis < tensor->ndim; axis++) {
    l.chunk_count *= (tensor->shape[axis] - 1) / chunk[axis] + 1;
  }
  return l;
}

static bool is_in_master(const gpuf_tensor *tensor) {
  return tensor->ndim == 0 || gpuf_tensor_count(tensor) == 0;
}

/* Which shard a layer belongs to: that in whose range of the `total` bytes its middle lies. */
static size_t shard_of(double begin, double nbytes, int64_t layer, int64_t layer_count,
                       double total, size_t shard_count) {
  const double middle = begin + nbytes * ((double)layer + 0.5) / (double)layer_count;
  const size_t shard = (size_t)(middle / total * (double)shard_count);
  return shard < shard_count ? shard : shard_count - 1;
}

/* The tensor's part from one layer to another. */
static gpuf_status add_part(gpufi_checkpoint_tensor *t, const layers *l, int64_t first, int64_t end,
                            size_t shard, gpuf_error *err) {
  gpufi_checkpoint_shard_part part = {.dataset = t->name, .shard = shard};
  const int64_t length = t->tensor.shape[l->axis];
  memcpy(part.shape, t->tensor.shape, sizeof(part.shape));
  part.start[l->axis] = first * l->chunk;
  part.shape[l->axis] = (end == l->count ? length : end * l->chunk) - first * l->chunk;
  part.first_chunk = first * l->chunk_count;
  return gpufi_checkpoint_add_shard_part(t, &part, err);
}

/* `begin` is where the tensor lies among the bytes of all. */
static gpuf_status cut(gpufi_checkpoint_tensor *t, double begin, double total, size_t shard_count,
                       gpuf_error *err) {
  const layers l = layers_of(&t->tensor);
  const double nbytes = (double)gpuf_tensor_nbytes(&t->tensor);
  gpuf_status status = GPUF_OK;
  int64_t first = 0;
  while (first < l.count && status == GPUF_OK) {
    const size_t shard = shard_of(begin, nbytes, first, l.count, total, shard_count);
    int64_t low = first + 1, high = l.count; /* the first layer of the next shard lies here */
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (shard_of(begin, nbytes, middle, l.count, total, shard_count) == shard) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    status = add_part(t, &l, first, low, shard, err);
    first = low;
  }
  return status;
}

static gpuf_status cut_all(gpufi_checkpoint_contents *contents, size_t shard_count,
                           gpuf_error *err) {
  double total = 0;
  double begin = 0;
  gpuf_status status = GPUF_OK;
  for (size_t i = 0; i < contents->tensor_count; i++) {
    total += (double)gpuf_tensor_nbytes(&contents->tensors[i].tensor);
  }
  for (size_t i = 0; i < contents->tensor_count && status == GPUF_OK; i++) {
    gpufi_checkpoint_tensor *const t = &contents->tensors[i];
    if (!is_in_master(&t->tensor)) {
      status = cut(t, begin, total, shard_count, err);
    }
    begin += (double)gpuf_tensor_nbytes(&t->tensor);
  }
  return status;
}

/* --- Shards ------------------------------------------------------------------ */

/* Leave out the shards that hold nothing. Parts come in the order of their shards. */
static size_t number(gpufi_checkpoint_contents *contents) {
  size_t count = 0;
  size_t last = SIZE_MAX;
  for (size_t i = 0; i < contents->tensor_count; i++) {
    for (size_t k = 0; k < contents->tensors[i].shard_part_count; k++) {
      size_t *const shard = &contents->tensors[i].shard_parts[k].shard;
      count += *shard != last;
      last = *shard;
      *shard = count - 1;
    }
  }
  return count;
}

static gpuf_status name_shards(gpufi_checkpoint_contents *contents, const char *prefix,
                               const gpufi_checkpoint_share *share, gpuf_error *err) {
  gpufi_checkpoint_shard shard = {.name = NULL};
  gpuf_status status = GPUF_OK;
  uint64_t set = share->set;
  bool is_random = set || gpufi_random_bytes(&set, sizeof(set));
  for (size_t i = 0; i < share->count && status == GPUF_OK && is_random; i++) {
    gpufi_checkpoint_shard_name name =
        gpufi_checkpoint_shard_name_of(prefix, contents->step, set, share->first + i);
    shard.name = name.text;
    shard.uuid[0] = set;
    is_random = gpufi_random_bytes(&shard.uuid[1], sizeof(shard.uuid[1]));
    status = gpufi_checkpoint_add_shard(contents, &shard, err);
  }
  return is_random ? status
                   : gpufi_fail(err, GPUF_ERR_IO, errno, "getrandom for the shards' names: %s",
                                strerror(errno));
}

/* --- Order ------------------------------------------------------------------- */

/* A tensor, and how many come before it of those that begin in the same shard. */
typedef struct place {
  size_t rank, tensor;
} place;

static int by_place(const void *a, const void *b) {
  const place *const left = a;
  const place *const right = b;
  if (left->rank != right->rank) {
    return left->rank < right->rank ? -1 : 1;
  }
  return (left->tensor > right->tensor) - (left->tensor < right->tensor);
}

static gpuf_status order_tensors(gpufi_checkpoint_contents *contents, gpuf_error *err) {
  const size_t count = contents->tensor_count;
  place *const places = calloc(count + 1, sizeof(*places));
  contents->order = calloc(count + 1, sizeof(*contents->order));
  if (!places || !contents->order) {
    free(places);
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory to order %zu tensors", count);
  }
  size_t rank = 0;
  size_t last = SIZE_MAX;
  for (size_t i = 0; i < count; i++) {
    const gpufi_checkpoint_tensor *const t = &contents->tensors[i];
    const size_t shard = t->shard_parts ? t->shard_parts[0].shard : last;
    rank = shard == last ? rank + 1 : 0;
    last = shard;
    places[i] = (place){rank, i};
  }
  qsort(places, count, sizeof(*places), by_place);
  for (size_t i = 0; i < count; i++) {
    contents->order[i] = places[i].tensor;
  }
  free(places);
  return GPUF_OK;
}

gpuf_status gpufi_checkpoint_plan(gpufi_checkpoint_contents *contents, const char *prefix,
                                  const gpufi_checkpoint_share *share, gpuf_error *err) {
  gpufi_checkpoint_share made = *share;
  gpuf_status status = cut_all(contents, share->count, err);
  if (status == GPUF_OK) {
    made.count = share->set ? share->count : number(contents);
    status = name_shards(contents, prefix, &made, err);
  }
  return status == GPUF_OK ? order_tensors(contents, err) : status;
}
