/* The answer to the operation list: published values and tensors, and those that the transport
 * finds. Thread-safety: a listing belongs to one thread. */
#ifndef GPUFI_COMM_LISTING_H
#define GPUFI_COMM_LISTING_H

#include "comm/failure.h"

struct gpufi_registry;
struct gpufi_values;
struct json_t;

typedef struct gpufi_listing gpufi_listing;

/* Adds the tensors that the transport can find: gpufi_dispatcher_options.list. */
typedef gpuf_status gpufi_lister(void *arg, gpufi_listing *listing, gpuf_error *err);

/* For a gpufi_lister: add a tensor, or, with `tensor` NULL, the `problem` why one cannot be read.
 * False once the listing is full. */
bool gpufi_listing_add(gpufi_listing *listing, const char *name, const char *framework,
                       const gpuf_tensor *tensor, const char *problem);

/* Set the members `values`, `tensors` and `truncated` of `object`, passing over the first `skip`
 * items. `list` may be NULL. */
gpufi_code gpufi_listing_make(struct gpufi_registry *registry, struct gpufi_values *values,
                              gpufi_lister *list, void *list_arg, int64_t skip,
                              struct json_t *object, gpuf_error *err);

#endif
