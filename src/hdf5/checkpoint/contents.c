#include "hdf5/checkpoint/contents.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "hdf5/grid.h"
#include "hdf5/path.h"

#define CAPACITY_MIN 64

static gpuf_status no_memory(const char *name, gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory to note '%s'", name);
}

/* --- Sets of names ----------------------------------------------------------- */

/* Two names with one hash do not happen. */
static uint64_t hash_of(const char *name, size_t nbytes) {
  return (gpufi_h5_hash(name, nbytes) | 2) & ~UINT64_C(1);
}

/* The place of a name, or the free one that it would have. */
static uint64_t *place_of(const gpufi_checkpoint_names *names, uint64_t hash) {
  size_t at = (size_t)(hash >> 2) & (names->capacity - 1);
  while (names->hashes[at] != 0 && (names->hashes[at] & ~UINT64_C(1)) != hash) {
    at = (at + 1) & (names->capacity - 1);
  }
  return &names->hashes[at];
}

/* Let there be room for `more` names. */
static bool reserve(gpufi_checkpoint_names *names, size_t more) {
  gpufi_checkpoint_names grown = *names;
  size_t capacity = names->capacity ? names->capacity : CAPACITY_MIN;
  while (capacity / 2 < names->count + more) {
    capacity *= 2;
  }
  if (capacity == names->capacity) {
    return true;
  }
  grown.capacity = capacity;
  grown.hashes = calloc(capacity, sizeof(*grown.hashes));
  if (!grown.hashes) {
    return false;
  }
  for (size_t i = 0; i < names->capacity; i++) {
    if (names->hashes[i] != 0) {
      *place_of(&grown, names->hashes[i] & ~UINT64_C(1)) = names->hashes[i];
    }
  }
  free(names->hashes);
  *names = grown;
  return true;
}

static void note(gpufi_checkpoint_names *names, uint64_t hash, bool is_group) {
  uint64_t *const place = place_of(names, hash);
  names->count += *place == 0;
  *place = hash | is_group;
}

/* --- Names of datasets ------------------------------------------------------- */

static const char *without_slash(const char *name) {
  return name + (*name == '/');
}

static gpuf_status check_path(const char *name, gpuf_error *err) {
  gpufi_h5_path path;
  const size_t nbytes = strlen(name);
  if (nbytes > GPUFI_CHECKPOINT_NAME_NBYTES_MAX) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "the name '%.60s...' has %zu bytes; at most %zu do",
                      name, nbytes, GPUFI_CHECKPOINT_NAME_NBYTES_MAX);
  }
  const gpuf_status status = gpufi_h5_path_init(&path, name, err);
  gpufi_h5_path_fini(&path);
  return status;
}

/* Note a dataset and its groups, or say why it cannot be there beside the others. */
static gpuf_status claim(gpufi_checkpoint_names *names, const char *name, gpuf_error *err) {
  const size_t nbytes = strlen(name);
  size_t group_count = 0;
  const uint64_t hash = hash_of(name, nbytes);
  if (strcmp(name, GPUFI_CHECKPOINT_MANIFEST) == 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the name '%s' is that of the checkpoint's own dataset: choose another",
                      name);
  }
  for (const char *slash = name; (slash = strchr(slash, '/')); slash++) {
    group_count++;
  }
  if (!reserve(names, group_count + 1)) {
    return no_memory(name, err);
  }
  const uint64_t found = *place_of(names, hash);
  if (found != 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      found & 1 ? "'%s' is a group, in which other tensors lie: choose another name"
                                : "a tensor '%s' was added before: choose another name",
                      name);
  }
  for (const char *slash = name; (slash = strchr(slash, '/')); slash++) {
    const uint64_t group = *place_of(names, hash_of(name, (size_t)(slash - name)));
    if ((group != 0 && !(group & 1)) ||
        strncmp(name, GPUFI_CHECKPOINT_MANIFEST "/", sizeof(GPUFI_CHECKPOINT_MANIFEST)) == 0) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "'%s' cannot lie in '%.*s', which is a dataset: choose another name", name,
                        (int)(slash - name), name);
    }
  }
  for (const char *slash = name; (slash = strchr(slash, '/')); slash++) {
    note(names, hash_of(name, (size_t)(slash - name)), true);
  }
  note(names, hash, false);
  return GPUF_OK;
}

/* --- Adding ------------------------------------------------------------------ */

/* Room for one more element; arrays grow at powers of two. */
static bool grow(void *array, size_t count, size_t element_nbytes) {
  void *old;
  memcpy(&old, array, sizeof(old));
  if (count > 0 && (count & (count - 1)) != 0) {
    return true;
  }
  void *const grown = realloc(old, (count ? 2 * count : 1) * element_nbytes);
  if (grown) {
    memcpy(array, &grown, sizeof(grown));
  }
  return grown != NULL;
}

gpuf_status gpufi_checkpoint_add_tensor(gpufi_checkpoint_contents *contents, const char *name,
                                        const gpuf_tensor *tensor, gpuf_error *err) {
  gpufi_checkpoint_tensor added = {.tensor = *tensor};
  gpuf_status status = check_path(name, err);
  if (status != GPUF_OK) {
    return status;
  }
  added.name = strdup(without_slash(name));
  if (!added.name ||
      !grow(&contents->tensors, contents->tensor_count, sizeof(*contents->tensors))) {
    free(added.name);
    return no_memory(name, err);
  }
  status = claim(&contents->tensor_names, added.name, err);
  if (status != GPUF_OK) {
    free(added.name);
    return status;
  }
  contents->tensors[contents->tensor_count++] = added;
  return GPUF_OK;
}

/* --- Parts ------------------------------------------------------------------- */

gpuf_status gpufi_checkpoint_check_part(const char *name, const gpuf_tensor *tensor,
                                        const gpuf_part *part, gpuf_error *err) {
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    const int64_t length = tensor->shape[axis];
    const int64_t whole = part->shape[axis];
    if (part->start[axis] < 0 || whole < length || part->start[axis] > whole - length) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "along axis %d the part of tensor '%s' has %" PRId64
                        " elements from %" PRId64 " on, and the whole has %" PRId64,
                        (int)axis, name, length, part->start[axis], whole);
    }
  }
  return GPUF_OK;
}

static bool is_whole(const gpuf_tensor *tensor, const gpuf_part *part) {
  return memcmp(tensor->shape, part->shape, (size_t)tensor->ndim * sizeof(*part->shape)) == 0;
}

static bool overlap(const gpufi_checkpoint_part *a, const gpufi_checkpoint_part *b) {
  for (int32_t axis = 0; axis < a->tensor.ndim; axis++) {
    if (a->start[axis] + a->tensor.shape[axis] <= b->start[axis] ||
        b->start[axis] + b->tensor.shape[axis] <= a->start[axis]) {
      return false;
    }
  }
  return gpuf_tensor_count(&a->tensor) > 0 && gpuf_tensor_count(&b->tensor) > 0;
}

/* Whether the part can be one of `t`, which was added before. */
static gpuf_status check_beside(const gpufi_checkpoint_tensor *t, const gpufi_checkpoint_part *part,
                                const int64_t *shape, gpuf_error *err) {
  const int32_t ndim = part->tensor.ndim;
  if (!t->parts && gpuf_tensor_count(&part->tensor) > 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "a whole tensor '%s' was added before: choose another name", t->name);
  }
  if (t->tensor.dtype != part->tensor.dtype || t->tensor.ndim != ndim ||
      memcmp(t->tensor.shape, shape, (size_t)ndim * sizeof(*shape)) != 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the parts of tensor '%s' that were added before are %s of shape (%s), and "
                      "this one is %s of (%s)",
                      t->name, gpuf_dtype_name(t->tensor.dtype),
                      gpufi_h5_list_of(t->tensor.ndim, t->tensor.shape).text,
                      gpuf_dtype_name(part->tensor.dtype), gpufi_h5_list_of(ndim, shape).text);
  }
  for (size_t i = 0; i < t->part_count; i++) {
    if (overlap(&t->parts[i], part)) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "the parts of tensor '%s' that begin at (%s) and at (%s) overlap", t->name,
                        gpufi_h5_list_of(ndim, t->parts[i].start).text,
                        gpufi_h5_list_of(ndim, part->start).text);
    }
  }
  return GPUF_OK;
}

gpuf_status gpufi_checkpoint_add_whole(gpufi_checkpoint_contents *contents, const char *name,
                                       const gpuf_tensor *like, const int64_t *shape,
                                       gpufi_checkpoint_tensor **added, gpuf_error *err) {
  static char no_data;
  gpuf_tensor whole;
  gpuf_status status = gpuf_tensor_init(&whole, &no_data, (gpuf_device){GPUF_DEVICE_CPU, 0},
                                        like->dtype, like->ndim, shape, err);
  if (status == GPUF_OK) {
    whole.data = NULL;
    status = gpufi_checkpoint_add_tensor(contents, name, &whole, err);
  }
  if (status == GPUF_OK) {
    *added = &contents->tensors[contents->tensor_count - 1];
  }
  return status;
}

gpuf_status gpufi_checkpoint_add_part(gpufi_checkpoint_contents *contents, const char *name,
                                      const gpuf_tensor *tensor, const gpuf_part *part,
                                      gpuf_error *err) {
  gpufi_checkpoint_part added = {.tensor = *tensor};
  const uint64_t hash = hash_of(without_slash(name), strlen(without_slash(name)));
  gpuf_status status = gpufi_checkpoint_check_part(name, tensor, part, err);
  if (status != GPUF_OK) {
    return status;
  }
  memcpy(added.start, part->start, sizeof(added.start));
  gpufi_checkpoint_tensor *t = NULL;
  if (contents->tensor_names.capacity > 0 && *place_of(&contents->tensor_names, hash) == hash) {
    t = (gpufi_checkpoint_tensor *)gpufi_checkpoint_find_tensor(contents, name);
  }
  if (t) {
    status = check_beside(t, &added, part->shape, err);
  } else if (is_whole(tensor, part)) {
    return gpufi_checkpoint_add_tensor(contents, name, tensor, err);
  } else {
    /* Its first part has a place of its own: nothing is to be undone below. */
    gpufi_checkpoint_part *const parts = malloc(sizeof(*parts));
    if (!parts) {
      return no_memory(name, err);
    }
    status = gpufi_checkpoint_add_whole(contents, name, tensor, part->shape, &t, err);
    if (status != GPUF_OK) {
      free(parts);
      return status;
    }
    t->parts = parts;
  }
  if (status != GPUF_OK || !t->parts) { /* what lies beside all of it is empty */
    return status;
  }
  if (t->part_count > 0 && !grow(&t->parts, t->part_count, sizeof(*t->parts))) {
    return no_memory(name, err);
  }
  t->parts[t->part_count++] = added;
  if (tensor->device.kind != GPUF_DEVICE_CPU) {
    t->tensor.device = tensor->device;
  }
  return GPUF_OK;
}

gpuf_status gpufi_checkpoint_check_parts(const gpufi_checkpoint_contents *contents,
                                         gpuf_error *err) {
  for (size_t i = 0; i < contents->tensor_count; i++) {
    const gpufi_checkpoint_tensor *const t = &contents->tensors[i];
    int64_t count = 0;
    for (size_t k = 0; k < t->part_count; k++) {
      count += gpuf_tensor_count(&t->parts[k].tensor);
    }
    if (t->parts && count != gpuf_tensor_count(&t->tensor)) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "the parts of tensor '%s' hold %" PRId64 " of its %" PRId64
                        " elements: add the others, too",
                        t->name, count, gpuf_tensor_count(&t->tensor));
    }
  }
  return GPUF_OK;
}

/* --- Shards ------------------------------------------------------------------ */

gpuf_status gpufi_checkpoint_add_shard_part(gpufi_checkpoint_tensor *t,
                                            const gpufi_checkpoint_shard_part *part,
                                            gpuf_error *err) {
  gpufi_checkpoint_shard_part added = *part;
  if (!grow(&t->shard_parts, t->shard_part_count, sizeof(*t->shard_parts))) {
    return no_memory(t->name, err);
  }
  added.dataset = strdup(part->dataset);
  if (!added.dataset) {
    return no_memory(t->name, err);
  }
  t->shard_parts[t->shard_part_count++] = added;
  return GPUF_OK;
}

gpuf_status gpufi_checkpoint_add_shard(gpufi_checkpoint_contents *contents,
                                       const gpufi_checkpoint_shard *shard, gpuf_error *err) {
  gpufi_checkpoint_shard added = *shard;
  if (!grow(&contents->shards, contents->shard_count, sizeof(*contents->shards))) {
    return no_memory(shard->name, err);
  }
  added.name = strdup(shard->name);
  if (!added.name) {
    return no_memory(shard->name, err);
  }
  contents->shards[contents->shard_count++] = added;
  return GPUF_OK;
}

bool gpufi_checkpoint_lies_in(const gpufi_checkpoint_shard_part *part, const gpuf_tensor *tensor) {
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    if (part->start[axis] < 0 || part->shape[axis] < 1 || part->shape[axis] > tensor->shape[axis] ||
        part->start[axis] > tensor->shape[axis] - part->shape[axis]) {
      return false;
    }
  }
  return true;
}

bool gpufi_checkpoint_boxes_overlap(const gpufi_checkpoint_shard_part *a,
                                    const gpufi_checkpoint_shard_part *b, int32_t ndim) {
  for (int32_t axis = 0; axis < ndim; axis++) {
    if (a->start[axis] + a->shape[axis] <= b->start[axis] ||
        b->start[axis] + b->shape[axis] <= a->start[axis]) {
      return false;
    }
  }
  return true;
}

int64_t gpufi_checkpoint_part_count(const gpufi_checkpoint_shard_part *part, int32_t ndim) {
  int64_t count = 1;
  for (int32_t axis = 0; axis < ndim; axis++) {
    count *= part->shape[axis];
  }
  return count;
}

/* Parts that lie in the tensor and do not overlap are all of it where they have as many elements.
 */
static bool parts_fit(const gpufi_checkpoint_tensor *t, size_t shard_count) {
  int64_t count = 0;
  for (size_t i = 0; i < t->shard_part_count; i++) {
    const gpufi_checkpoint_shard_part *const part = &t->shard_parts[i];
    if (part->shard >= shard_count || !gpufi_checkpoint_lies_in(part, &t->tensor)) {
      return false;
    }
    for (size_t k = 0; k < i; k++) {
      if (gpufi_checkpoint_boxes_overlap(part, &t->shard_parts[k], t->tensor.ndim)) {
        return false;
      }
    }
    count += gpufi_checkpoint_part_count(part, t->tensor.ndim);
  }
  return count == gpuf_tensor_count(&t->tensor);
}

bool gpufi_checkpoint_shard_parts_fit(const gpufi_checkpoint_contents *contents) {
  for (size_t i = 0; i < contents->tensor_count; i++) {
    const gpufi_checkpoint_tensor *const t = &contents->tensors[i];
    if (t->shard_parts && !parts_fit(t, contents->shard_count)) {
      return false;
    }
  }
  return true;
}

/* --- Values ------------------------------------------------------------------ */

static gpuf_status check_value(const gpufi_checkpoint_value *value, gpuf_error *err) {
  const size_t nbytes = strlen(value->name);
  if (nbytes == 0 || nbytes > GPUFI_CHECKPOINT_NAME_NBYTES_MAX) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the value's name has %zu bytes; it must have from 1 to %zu", nbytes,
                      GPUFI_CHECKPOINT_NAME_NBYTES_MAX);
  }
  if (!gpufi_text_is_utf8(value->name)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "the value's name '%s' is not UTF-8", value->name);
  }
  if (value->kind == GPUFI_CHECKPOINT_TEXT && !gpufi_text_is_utf8(value->text)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "the text of value '%s' is not UTF-8", value->name);
  }
  return GPUF_OK;
}

gpuf_status gpufi_checkpoint_add_value(gpufi_checkpoint_contents *contents,
                                       const gpufi_checkpoint_value *value, gpuf_error *err) {
  gpufi_checkpoint_value added = *value;
  const gpuf_status status = check_value(value, err);
  if (status != GPUF_OK) {
    return status;
  }
  const uint64_t hash = hash_of(value->name, strlen(value->name));
  if (!reserve(&contents->value_names, 1) ||
      !grow(&contents->values, contents->value_count, sizeof(*contents->values))) {
    return no_memory(value->name, err);
  }
  if (*place_of(&contents->value_names, hash) != 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "a value '%s' was added before: choose another name", value->name);
  }
  added.name = strdup(value->name);
  added.text = added.name && value->text ? strdup(value->text) : NULL;
  if (!added.name || (value->text && !added.text)) {
    free(added.name);
    return no_memory(value->name, err);
  }
  note(&contents->value_names, hash, false);
  contents->values[contents->value_count++] = added;
  return GPUF_OK;
}

/* --- Finding ----------------------------------------------------------------- */

const gpufi_checkpoint_tensor *
gpufi_checkpoint_find_tensor(const gpufi_checkpoint_contents *contents, const char *name) {
  for (size_t i = 0; i < contents->tensor_count; i++) {
    if (strcmp(contents->tensors[i].name, without_slash(name)) == 0) {
      return &contents->tensors[i];
    }
  }
  return NULL;
}

const gpufi_checkpoint_value *gpufi_checkpoint_find_value(const gpufi_checkpoint_contents *contents,
                                                          const char *name) {
  for (size_t i = 0; i < contents->value_count; i++) {
    if (strcmp(contents->values[i].name, name) == 0) {
      return &contents->values[i];
    }
  }
  return NULL;
}

static void clear_tensor(gpufi_checkpoint_tensor *t) {
  for (size_t i = 0; i < t->shard_part_count; i++) {
    free(t->shard_parts[i].dataset);
  }
  if (t->piece) {
    free(t->piece->array);
  }
  free(t->piece);
  free(t->shard_parts);
  free(t->parts);
  free(t->name);
}

void gpufi_checkpoint_contents_clear(gpufi_checkpoint_contents *contents) {
  for (size_t i = 0; i < contents->tensor_count; i++) {
    clear_tensor(&contents->tensors[i]);
  }
  for (size_t i = 0; i < contents->shard_count; i++) {
    free(contents->shards[i].name);
  }
  for (size_t i = 0; i < contents->value_count; i++) {
    free(contents->values[i].name);
    free(contents->values[i].text);
  }
  free(contents->tensors);
  free(contents->values);
  free(contents->shards);
  free(contents->self.name);
  free(contents->order);
  free(contents->tensor_names.hashes);
  free(contents->value_names.hashes);
  memset(contents, 0, sizeof(*contents));
}
