#include "hdf5/checkpoint/merge.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "hdf5/checkpoint/manifest.h"
#include "hdf5/checkpoint/shard_files.h"
#include "hdf5/grid.h"

/* A tensor of the name, which mostly is the one at `hint`. */
static gpufi_checkpoint_tensor *find(const gpufi_checkpoint_contents *contents, size_t hint,
                                     const char *name) {
  return hint < contents->tensor_count && strcmp(contents->tensors[hint].name, name) == 0
             ? &contents->tensors[hint]
             : (gpufi_checkpoint_tensor *)gpufi_checkpoint_find_tensor(contents, name);
}

static gpuf_status add_values(gpufi_checkpoint_contents *to, const gpufi_checkpoint_contents *from,
                              gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  for (size_t i = 0; i < from->value_count && status == GPUF_OK; i++) {
    status = gpufi_checkpoint_add_value(to, &from->values[i], err);
  }
  return status;
}

/* --- The share of one rank --------------------------------------------------- */

/* The parts of a piece are boxes of the array. */
static gpuf_status describe_piece(const gpufi_checkpoint_tensor *t,
                                  gpufi_checkpoint_contents *share, gpuf_error *err) {
  const gpufi_checkpoint_piece *const piece = t->piece;
  gpuf_status status = GPUF_OK;
  gpufi_checkpoint_tensor *whole = NULL;
  if (piece->is_first) {
    status = gpufi_checkpoint_add_whole(share, piece->array, &t->tensor, piece->shape, &whole, err);
  } else {
    whole = find(share, SIZE_MAX, piece->array);
  }
  for (size_t i = 0; i < t->shard_part_count && status == GPUF_OK; i++) {
    gpufi_checkpoint_shard_part part = t->shard_parts[i];
    for (int32_t axis = 0; axis < t->tensor.ndim; axis++) {
      part.start[axis] += piece->start[axis];
    }
    status = gpufi_checkpoint_add_shard_part(whole, &part, err);
  }
  return status;
}

gpuf_status gpufi_checkpoint_describe_share(const gpufi_checkpoint_contents *contents,
                                            gpufi_checkpoint_contents *share, gpuf_error *err) {
  share->step = contents->step;
  share->is_share = true;
  gpuf_status status = add_values(share, contents, err);
  for (size_t i = 0; i < contents->shard_count && status == GPUF_OK; i++) {
    status = gpufi_checkpoint_add_shard(share, &contents->shards[i], err);
  }
  for (size_t i = 0; i < contents->tensor_count && status == GPUF_OK; i++) {
    status = describe_piece(&contents->tensors[i], share, err);
  }
  return status;
}

/* --- All of them ------------------------------------------------------------- */

static gpuf_status check_alike(const gpufi_checkpoint_tensor *t, const gpufi_checkpoint_tensor *own,
                               int32_t rank, gpuf_error *err) {
  const int32_t ndim = own->tensor.ndim;
  if (t->tensor.dtype == own->tensor.dtype && t->tensor.ndim == ndim &&
      memcmp(t->tensor.shape, own->tensor.shape, (size_t)ndim * sizeof(*own->tensor.shape)) == 0) {
    return GPUF_OK;
  }
  return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                    "tensor '%s' is %s of shape (%s) on rank %" PRId32
                    ", and %s of (%s) on a lower one: add parts of one array",
                    own->name, gpuf_dtype_name(own->tensor.dtype),
                    gpufi_h5_list_of(ndim, own->tensor.shape).text, rank,
                    gpuf_dtype_name(t->tensor.dtype),
                    gpufi_h5_list_of(t->tensor.ndim, t->tensor.shape).text);
}

/* `base` is the number of the rank's first shard among all. */
static gpuf_status merge_tensor(gpufi_checkpoint_contents *all, size_t hint,
                                const gpufi_checkpoint_tensor *own, int32_t rank, size_t base,
                                gpuf_error *err) {
  gpufi_checkpoint_tensor *t = find(all, hint, own->name);
  gpuf_status status = GPUF_OK;
  if (own->tensor.ndim == 0 && rank > 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "tensor '%s' of rank %" PRId32 " has no axes: add it on rank 0", own->name,
                      rank);
  }
  if (t) {
    status = check_alike(t, own, rank, err);
  } else {
    status = gpufi_checkpoint_add_whole(all, own->name, &own->tensor, own->tensor.shape, &t, err);
  }
  for (size_t i = 0; i < own->shard_part_count && status == GPUF_OK; i++) {
    gpufi_checkpoint_shard_part part = own->shard_parts[i];
    part.shard += base;
    status = gpufi_checkpoint_add_shard_part(t, &part, err);
  }
  return status;
}

static bool are_equal(const gpufi_checkpoint_value *a, const gpufi_checkpoint_value *b) {
  uint64_t bits[2];
  if (a->kind != b->kind) {
    return false;
  }
  switch (a->kind) {
  case GPUFI_CHECKPOINT_INT64:
    return a->int64 == b->int64;
  case GPUFI_CHECKPOINT_FLOAT64:
    memcpy(&bits[0], &a->float64, sizeof(bits[0])); /* NaN, too */
    memcpy(&bits[1], &b->float64, sizeof(bits[1]));
    return bits[0] == bits[1];
  case GPUFI_CHECKPOINT_TEXT:
    return strcmp(a->text, b->text) == 0;
  }
  return false;
}

static gpuf_status merge_value(gpufi_checkpoint_contents *all, const gpufi_checkpoint_value *own,
                               int32_t rank, gpuf_error *err) {
  const gpufi_checkpoint_value *const value = gpufi_checkpoint_find_value(all, own->name);
  if (!value) {
    return gpufi_checkpoint_add_value(all, own, err);
  }
  return are_equal(value, own) ? GPUF_OK
                               : gpufi_fail(err, GPUF_ERR_INVALID, 0,
                                            "value '%s' of rank %" PRId32
                                            " is another than that of a lower rank: add "
                                            "the same, or under names of their own",
                                            own->name, rank);
}

gpuf_status gpufi_checkpoint_merge(gpufi_checkpoint_contents *all,
                                   const gpufi_checkpoint_contents *share, int32_t rank,
                                   gpuf_error *err) {
  const size_t base = all->shard_count;
  gpuf_status status = GPUF_OK;
  all->step = share->step;
  for (size_t i = 0; i < share->shard_count && status == GPUF_OK; i++) {
    status = gpufi_checkpoint_add_shard(all, &share->shards[i], err);
  }
  for (size_t i = 0; i < share->tensor_count && status == GPUF_OK; i++) {
    status = merge_tensor(all, i, &share->tensors[i], rank, base, err);
  }
  for (size_t i = 0; i < share->value_count && status == GPUF_OK; i++) {
    status = merge_value(all, &share->values[i], rank, err);
  }
  return status;
}

/* --- Checks ------------------------------------------------------------------ */

static gpuf_status check_part(const gpufi_checkpoint_tensor *t, size_t index, size_t shard_count,
                              gpuf_error *err) {
  const gpufi_checkpoint_shard_part *const part = &t->shard_parts[index];
  const int32_t ndim = t->tensor.ndim;
  if (!gpufi_checkpoint_lies_in(part, &t->tensor)) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0, "a part of tensor '%s' lies outside of it",
                      t->name);
  }
  for (size_t i = 0; i < index; i++) {
    const gpufi_checkpoint_shard_part *const other = &t->shard_parts[i];
    if (gpufi_checkpoint_boxes_overlap(part, other, ndim)) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "the parts of tensor '%s' that begin at (%s), of rank %zu, and at (%s), of "
                        "rank %zu, overlap",
                        t->name, gpufi_h5_list_of(ndim, other->start).text,
                        other->shard / shard_count, gpufi_h5_list_of(ndim, part->start).text,
                        part->shard / shard_count);
    }
  }
  return GPUF_OK;
}

static gpuf_status check_tensor(const gpufi_checkpoint_tensor *t, size_t shard_count,
                                gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  int64_t count = 0;
  if (t->shard_part_count > GPUFI_CHECKPOINT_PARTS_MAX) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "tensor '%s' has %zu parts over all ranks; at most %d are kept: add fewer, "
                      "larger ones",
                      t->name, t->shard_part_count, GPUFI_CHECKPOINT_PARTS_MAX);
  }
  for (size_t i = 0; i < t->shard_part_count && status == GPUF_OK; i++) {
    status = check_part(t, i, shard_count, err);
    count += gpufi_checkpoint_part_count(&t->shard_parts[i], t->tensor.ndim);
  }
  if (status == GPUF_OK && t->tensor.ndim > 0 && count != gpuf_tensor_count(&t->tensor)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the parts of tensor '%s' of all ranks hold %" PRId64 " of its %" PRId64
                      " elements: add the others, too",
                      t->name, count, gpuf_tensor_count(&t->tensor));
  }
  return status;
}

gpuf_status gpufi_checkpoint_check_merged(const gpufi_checkpoint_contents *all, size_t shard_count,
                                          gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  for (size_t i = 0; i < all->tensor_count && status == GPUF_OK; i++) {
    status = check_tensor(&all->tensors[i], shard_count, err);
  }
  return status;
}
