/* What a rank adds of arrays that all ranks hold. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "hdf5/checkpoint/contents.h"
#include "hdf5/grid.h"

static bool overlap(const gpufi_checkpoint_tensor *a, const gpuf_tensor *b, const int64_t *start) {
  for (int32_t axis = 0; axis < b->ndim; axis++) {
    const int64_t a_start = a->piece->start[axis];
    if (a_start + a->tensor.shape[axis] <= start[axis] || start[axis] + b->shape[axis] <= a_start) {
      return false;
    }
  }
  return gpuf_tensor_count(&a->tensor) > 0 && gpuf_tensor_count(b) > 0;
}

/* Whether the piece can be there beside `t`, which is of the same array. */
static gpuf_status check_beside(const gpufi_checkpoint_tensor *t, const gpuf_tensor *tensor,
                                const gpufi_checkpoint_piece *piece, gpuf_error *err) {
  const int32_t ndim = tensor->ndim;
  if (t->tensor.dtype != tensor->dtype || t->tensor.ndim != ndim ||
      memcmp(t->piece->shape, piece->shape, (size_t)ndim * sizeof(*piece->shape)) != 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the parts of tensor '%s' that were added before are %s of shape (%s), and "
                      "this one is %s of (%s)",
                      piece->array, gpuf_dtype_name(t->tensor.dtype),
                      gpufi_h5_list_of(t->tensor.ndim, t->piece->shape).text,
                      gpuf_dtype_name(tensor->dtype), gpufi_h5_list_of(ndim, piece->shape).text);
  }
  if (overlap(t, tensor, piece->start)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the parts of tensor '%s' that begin at (%s) and at (%s) overlap",
                      piece->array, gpufi_h5_list_of(ndim, t->piece->start).text,
                      gpufi_h5_list_of(ndim, piece->start).text);
  }
  return GPUF_OK;
}

/* *count: how many pieces of the array there are already. */
static gpuf_status check_beside_all(const gpufi_checkpoint_contents *contents,
                                    const gpuf_tensor *tensor, const gpufi_checkpoint_piece *piece,
                                    size_t *count, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  *count = 0;
  for (size_t i = 0; i < contents->tensor_count && status == GPUF_OK; i++) {
    const gpufi_checkpoint_tensor *const t = &contents->tensors[i];
    if (strcmp(t->piece->array, piece->array) == 0) {
      (*count)++;
      status = check_beside(t, tensor, piece, err);
    }
  }
  return status;
}

/* The caller frees the piece, which is that of `array`. */
static gpuf_status create(const char *array, const gpuf_tensor *tensor, const gpuf_part *part,
                          gpufi_checkpoint_piece **piece, gpuf_error *err) {
  gpuf_status status = part ? gpufi_checkpoint_check_part(array, tensor, part, err) : GPUF_OK;
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_checkpoint_piece *const p = calloc(1, sizeof(*p));
  char *const name = strdup(array);
  if (!p || !name) {
    free(p);
    free(name);
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory to note '%s'", array);
  }
  p->array = name;
  memcpy(p->shape, part ? part->shape : tensor->shape, sizeof(p->shape));
  if (part) {
    memcpy(p->start, part->start, sizeof(p->start));
  }
  *piece = p;
  return GPUF_OK;
}

/* A further piece has a dataset of its own in its shard. */
static gpuf_status add(gpufi_checkpoint_contents *contents, const gpuf_tensor *tensor,
                       const gpufi_checkpoint_piece *piece, size_t number, gpuf_error *err) {
  char *dataset;
  if (number == 0) {
    return gpufi_checkpoint_add_tensor(contents, piece->array, tensor, err);
  }
  if (asprintf(&dataset, "gpufetch_part/%zu/%s", number, piece->array) < 0) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory to note '%s'", piece->array);
  }
  const gpuf_status status = gpufi_checkpoint_add_tensor(contents, dataset, tensor, err);
  free(dataset);
  return status;
}

gpuf_status gpufi_checkpoint_add_piece(gpufi_checkpoint_contents *contents, const char *name,
                                       const gpuf_tensor *tensor, const gpuf_part *part,
                                       gpuf_error *err) {
  gpufi_checkpoint_piece *piece = NULL;
  size_t number;
  gpuf_status status = create(name + (*name == '/'), tensor, part, &piece, err);
  if (!piece) {
    return status;
  }
  status = check_beside_all(contents, tensor, piece, &number, err);
  if (status == GPUF_OK) {
    status = add(contents, tensor, piece, number, err);
  }
  if (status != GPUF_OK) {
    free(piece->array);
    free(piece);
    return status;
  }
  piece->is_first = number == 0;
  contents->tensors[contents->tensor_count - 1].piece = piece;
  return GPUF_OK;
}
