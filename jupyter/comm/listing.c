#include "comm/listing.h"

#include "comm/json.h"
#include "comm/name.h"
#include "comm/registry.h"
#include "comm/values.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What the items of a listing may take of a reply's JSON; the rest is for its other members. */
#define LISTING_NBYTES (GPUFI_REPLY_JSON_MAX_NBYTES - 4096)
#define PROBLEM_MAX_NBYTES 300
#define AXIS_MAX_NBYTES 63 /* its length, global length and start: 20 digits and a comma each */

struct gpufi_listing {
  json_t *values, *tensors; /* an object and an array */
  size_t nbytes;            /* of both, as text */
  int64_t skip;             /* items still to pass over */
  bool truncated;
  bool failed; /* no memory */
};

/* True if the next item is to be added; it takes at most `nbytes`. */
static bool admit(gpufi_listing *listing, size_t nbytes) {
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

/* The most that a string of `nbytes` takes as JSON: a control character takes six bytes. */
static size_t quoted_nbytes(size_t nbytes) {
  return 6 * nbytes + 4;
}

static void list_values(gpufi_values *values, gpufi_listing *listing) {
  pthread_mutex_lock(&values->lock);
  for (const gpufi_value *value = values->first; value; value = value->next) {
    const size_t name_nbytes = quoted_nbytes(strlen(value->name));
    if (admit(listing, name_nbytes + quoted_nbytes(json_string_length(value->json)) + 32)) {
      json_t *copy = json_copy(value->json); /* jansson's reference counts need not be atomic */
      listing->failed |= json_object_set_new(listing->values, value->name, copy) != 0;
    }
  }
  pthread_mutex_unlock(&values->lock);
}

static void add_tensor(gpufi_listing *listing, const char *name, const char *framework,
                       const gpuf_tensor *tensor, const gpufi_part *part, int64_t generation,
                       const char *problem) {
  char device[32] = "?";
  json_t *item = json_object();
  int failed = 0;
  if (tensor) {
    snprintf(device, sizeof(device), "%s:%" PRId32, gpuf_device_kind_name(tensor->device.kind),
             tensor->device.index);
  }
  failed |= json_object_set_new(item, "name", gpufi_json_text(name));
  failed |= json_object_set_new(item, "framework", gpufi_json_text(framework));
  failed |= json_object_set_new(
      item, "shape", gpufi_json_shape(tensor ? tensor->shape : NULL, tensor ? tensor->ndim : 0));
  failed |= json_object_set_new(item, "dtype",
                                json_string(tensor ? gpuf_dtype_name(tensor->dtype) : "?"));
  failed |=
      json_object_set_new(item, "nbytes", gpufi_json_u64(tensor ? gpuf_tensor_nbytes(tensor) : 0));
  failed |= json_object_set_new(item, "device", json_string(device));
  if (part && part->is_given) {
    failed |= json_object_set_new(item, "global_shape",
                                  gpufi_json_shape(part->global_shape, tensor->ndim));
    failed |= json_object_set_new(item, "start", gpufi_json_shape(part->start, tensor->ndim));
  }
  if (generation > 0) {
    failed |= json_object_set_new(item, "generation", json_integer(generation));
  }
  if (problem) {
    failed |= json_object_set_new(item, "problem", gpufi_json_text(problem));
  }
  failed |= json_array_append_new(listing->tensors, item);
  listing->failed |= failed != 0;
}

static bool list_tensor(gpufi_listing *listing, const char *name, const char *framework,
                        const gpuf_tensor *tensor, const gpufi_part *part, int64_t generation,
                        const char *problem) {
  char cut[PROBLEM_MAX_NBYTES + 1] = "";
  char family[sizeof(((gpufi_source *)0)->framework)] = "";
  snprintf(cut, sizeof(cut), "%s", problem ? problem : "");
  snprintf(family, sizeof(family), "%s", framework ? framework : "");
  const size_t nbytes = 256 + quoted_nbytes(strlen(name)) + quoted_nbytes(strlen(family)) +
                        quoted_nbytes(strlen(cut)) +
                        (tensor ? AXIS_MAX_NBYTES * (size_t)tensor->ndim : 0);
  if (admit(listing, nbytes)) {
    add_tensor(listing, name, family, tensor, part, generation, problem ? cut : NULL);
  }
  return !listing->truncated && !listing->failed;
}

bool gpufi_listing_add(gpufi_listing *listing, const char *name, const char *framework,
                       const gpuf_tensor *tensor, const char *problem) {
  if (!gpufi_name_valid(name, strlen(name))) {
    return !listing->truncated; /* no request could name it */
  }
  return list_tensor(listing, name, framework, tensor, NULL, 0, problem);
}

/* Published tensors, under the registry's lock: a descriptor may be replaced otherwise. */
static void list_published(gpufi_registry *registry, gpufi_listing *listing) {
  pthread_mutex_lock(&registry->lock);
  for (const gpufi_entry *entry = registry->entries; entry; entry = entry->next) {
    if (entry->published) {
      list_tensor(listing, entry->name, entry->source.framework, &entry->source.tensor,
                  &entry->source.part, entry->generation, NULL);
    }
  }
  pthread_mutex_unlock(&registry->lock);
}

gpufi_code gpufi_listing_make(gpufi_registry *registry, gpufi_values *values, gpufi_lister *list,
                              void *list_arg, int64_t skip, json_t *object, gpuf_error *err) {
  gpufi_listing listing = {.values = json_object(), .tensors = json_array(), .skip = skip};
  gpuf_status status = GPUF_OK;
  gpuf_error cause = {0};
  list_values(values, &listing);
  list_published(registry, &listing);
  if (list && !listing.truncated) {
    status = list(list_arg, &listing, &cause);
  }
  listing.failed |= json_object_set_new(object, "values", listing.values) != 0;
  listing.failed |= json_object_set_new(object, "tensors", listing.tensors) != 0;
  listing.failed |= json_object_set_new(object, "truncated", json_boolean(listing.truncated)) != 0;
  if (status != GPUF_OK) {
    return REFUSE(err, CODE_INTERNAL, "the tensors cannot be listed: %s", cause.message);
  }
  return listing.failed ? REFUSE(err, CODE_BUSY, "no memory for a listing: ask again later")
                        : CODE_OK;
}
