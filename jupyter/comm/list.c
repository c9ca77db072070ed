/* Values beside the tensors, and the listing of both. */
#include "internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- Values --------------------------------------------------------------------------- */

/* Under the lock: where the value of a name is linked, or would be. */
static gpufi_comm_value **value_link(gpufi_comm *comm, const char *name) {
  gpufi_comm_value **link = &comm->values;
  while (*link && strcmp((*link)->name, name) < 0) {
    link = &(*link)->next;
  }
  return link;
}

/* Under the lock. */
static int32_t value_count(const gpufi_comm *comm) {
  int32_t count = 0;
  for (const gpufi_comm_value *value = comm->values; value; value = value->next) {
    count++;
  }
  return count;
}

/* Takes over `json`, NULL for lack of memory. */
static gpuf_status publish_value(gpufi_comm *comm, const char *name, json_t *json,
                                 gpuf_error *err) {
  gpuf_status status = gpufi_comm_name_check(name, err);
  if (status != GPUF_OK) {
    json_decref(json);
    return status;
  }
  gpufi_comm_value *fresh = calloc(1, sizeof(*fresh));
  pthread_mutex_lock(&comm->lock);
  gpufi_comm_value **link = value_link(comm, name);
  const bool known = *link && strcmp((*link)->name, name) == 0;
  if (!json || !fresh) {
    status = gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory to publish %s", name);
  } else if (known) {
    json_t *old = (*link)->json;
    (*link)->json = json;
    json = old;
  } else if (value_count(comm) >= comm->options.value_max) {
    status = gpufi_fail(err, GPUF_ERR_STATE, 0,
                        "%" PRId32 " values are published; unpublish some before %s",
                        comm->options.value_max, name);
  } else {
    COMM_SET_TEXT(fresh->name, name);
    fresh->json = json;
    fresh->next = *link;
    *link = fresh;
    json = NULL;
    fresh = NULL;
  }
  json_decref(json);
  pthread_mutex_unlock(&comm->lock);
  free(fresh);
  return status;
}

gpuf_status gpufi_comm_publish_int64(gpufi_comm *comm, const char *name, int64_t value,
                                     gpuf_error *err) {
  return publish_value(comm, name, json_integer(value), err);
}

gpuf_status gpufi_comm_publish_float64(gpufi_comm *comm, const char *name, double value,
                                       gpuf_error *err) {
  return publish_value(comm, name, gpufi_comm_json_f64(value), err);
}

gpuf_status gpufi_comm_publish_text(gpufi_comm *comm, const char *name, const char *text,
                                    gpuf_error *err) {
  const size_t nbytes = strnlen(text, GPUFI_COMM_TEXT_MAX_NBYTES + 1);
  json_t *json = nbytes <= GPUFI_COMM_TEXT_MAX_NBYTES ? json_string(text) : NULL;
  if (!json) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the text of a value must be UTF-8 of at most %d bytes",
                      GPUFI_COMM_TEXT_MAX_NBYTES);
  }
  return publish_value(comm, name, json, err);
}

/* Under the lock. */
static void value_unlink(gpufi_comm_value **link) {
  gpufi_comm_value *value = *link;
  *link = value->next;
  json_decref(value->json);
  free(value);
}

bool gpufi_comm_value_remove(gpufi_comm *comm, const char *name) {
  pthread_mutex_lock(&comm->lock);
  gpufi_comm_value **link = value_link(comm, name);
  const bool known = *link && strcmp((*link)->name, name) == 0;
  if (known) {
    value_unlink(link);
  }
  pthread_mutex_unlock(&comm->lock);
  return known;
}

void gpufi_comm_values_clear(gpufi_comm *comm) {
  pthread_mutex_lock(&comm->lock);
  while (comm->values) {
    value_unlink(&comm->values);
  }
  pthread_mutex_unlock(&comm->lock);
}

/* --- Listing ------------------------------------------------------------------------------ */

/* JSON that a listing may take, with room for its envelope. */
#define LISTING_NBYTES (GPUFI_COMM_REPLY_JSON_MAX_NBYTES - 4096)
#define PROBLEM_MAX_NBYTES 300

struct gpufi_comm_listing {
  json_t *values, *tensors; /* an object and an array */
  size_t nbytes;            /* of both, as text */
  int64_t skip;             /* items still to pass over */
  bool truncated;
  bool failed; /* no memory */
};

/* True if the next item is to be added; it will take at most `nbytes`. */
static bool admit(gpufi_comm_listing *listing, size_t nbytes) {
  if (listing->skip > 0) {
    listing->skip--;
    return false;
  }
  listing->truncated |= listing->nbytes + nbytes > LISTING_NBYTES;
  if (!listing->truncated) {
    listing->nbytes += nbytes;
  }
  return !listing->truncated;
}

/* A quoted string of `nbytes` takes no more: control characters take six. */
static size_t quoted_nbytes(size_t nbytes) {
  return 6 * nbytes + 4;
}

/* Under the lock. */
static void list_values(const gpufi_comm *comm, gpufi_comm_listing *listing) {
  for (const gpufi_comm_value *value = comm->values; value; value = value->next) {
    const size_t name_nbytes = quoted_nbytes(strlen(value->name));
    if (admit(listing, name_nbytes + quoted_nbytes(json_string_length(value->json)) + 32)) {
      json_t *copy = json_copy(value->json); /* counts of references are not atomic everywhere */
      listing->failed |= json_object_set_new(listing->values, value->name, copy) != 0;
    }
  }
}

static void add_tensor(gpufi_comm_listing *listing, const char *name, const char *framework,
                       const gpuf_tensor *tensor, const gpufi_comm_block *block,
                       uint64_t generation, const char *problem) {
  char device[32] = "?";
  json_t *item = json_object();
  int failed = 0;
  if (tensor) {
    snprintf(device, sizeof(device), "%s:%" PRId32, gpuf_device_kind_name(tensor->device.kind),
             tensor->device.index);
  }
  failed |= json_object_set_new(item, "name", gpufi_comm_json_text(name));
  failed |= json_object_set_new(item, "framework", gpufi_comm_json_text(framework));
  failed |= json_object_set_new(
      item, "shape",
      gpufi_comm_json_shape(tensor ? tensor->shape : NULL, tensor ? tensor->ndim : 0));
  failed |= json_object_set_new(item, "dtype",
                                json_string(tensor ? gpuf_dtype_name(tensor->dtype) : "?"));
  failed |= json_object_set_new(item, "nbytes",
                                gpufi_comm_json_u64(tensor ? gpuf_tensor_nbytes(tensor) : 0));
  failed |= json_object_set_new(item, "device", json_string(device));
  if (block && block->is_given) {
    failed |= json_object_set_new(item, "global_shape",
                                  gpufi_comm_json_shape(block->global_shape, tensor->ndim));
    failed |= json_object_set_new(item, "start", gpufi_comm_json_shape(block->start, tensor->ndim));
  }
  if (generation > 0) {
    failed |= json_object_set_new(item, "generation", gpufi_comm_json_u64(generation));
  }
  if (problem) {
    failed |= json_object_set_new(item, "problem", gpufi_comm_json_text(problem));
  }
  failed |= json_array_append_new(listing->tensors, item);
  listing->failed |= failed != 0;
}

static bool list_tensor(gpufi_comm_listing *listing, const char *name, const char *framework,
                        const gpuf_tensor *tensor, const gpufi_comm_block *block,
                        uint64_t generation, const char *problem) {
  char cut[PROBLEM_MAX_NBYTES + 1] = "";
  char family[sizeof(((gpufi_comm_source *)0)->framework)] = "";
  snprintf(cut, sizeof(cut), "%s", problem ? problem : "");
  snprintf(family, sizeof(family), "%s", framework ? framework : "");
  const size_t nbytes = 256 + quoted_nbytes(strlen(name)) + quoted_nbytes(strlen(family)) +
                        quoted_nbytes(strlen(cut)) + (tensor ? 3 * 21 * (size_t)tensor->ndim : 0);
  if (admit(listing, nbytes)) {
    add_tensor(listing, name, family, tensor, block, generation, problem ? cut : NULL);
  }
  return !listing->truncated && !listing->failed;
}

bool gpufi_comm_listing_add(gpufi_comm_listing *listing, const char *name, const char *framework,
                            const gpuf_tensor *tensor, const char *problem) {
  if (!gpufi_comm_name_valid(name, strlen(name))) {
    return !listing->truncated; /* it could not be asked for */
  }
  return list_tensor(listing, name, framework, tensor, NULL, 0, problem);
}

gpufi_comm_code gpufi_comm_list(gpufi_comm *comm, int64_t skip, json_t *object, gpuf_error *err) {
  gpufi_comm_listing listing = {.values = json_object(), .tensors = json_array(), .skip = skip};
  gpuf_status status = GPUF_OK;
  gpuf_error cause = {0};
  pthread_mutex_lock(&comm->lock);
  list_values(comm, &listing);
  for (const gpufi_comm_entry *entry = comm->entries; entry; entry = entry->next) {
    if (entry->published) {
      list_tensor(&listing, entry->name, entry->source.framework, &entry->source.tensor,
                  &entry->source.block, entry->generation, NULL);
    }
  }
  pthread_mutex_unlock(&comm->lock);
  if (comm->options.list && !listing.truncated) {
    status = comm->options.list(comm->options.arg, &listing, &cause);
  }
  listing.failed |= json_object_set_new(object, "values", listing.values) != 0;
  listing.failed |= json_object_set_new(object, "tensors", listing.tensors) != 0;
  json_object_set_new(object, "truncated", json_boolean(listing.truncated));
  if (status != GPUF_OK) {
    return COMM_FAIL(err, COMM_INTERNAL, "the tensors cannot be listed: %s", cause.message);
  }
  return listing.failed ? COMM_FAIL(err, COMM_BUSY, "no memory for a listing: ask again later")
                        : COMM_OK;
}
