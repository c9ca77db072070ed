/* The dispatcher in a build without jansson: there is none, so nothing but its creation can be
 * called. */
#include "base/error.h"
#include "comm/dispatcher.h"

gpuf_status gpufi_dispatcher_create(const gpufi_dispatcher_options *options,
                                    gpufi_dispatcher **dispatcher, gpuf_error *err) {
  return gpufi_fail(
      err, GPUF_ERR_UNSUPPORTED, 0,
      "this gpufetch was built without jansson, which the comm protocol needs: build it with "
      "-Djansson=enabled (Debian's libjansson-dev)");
}

void gpufi_reply_free(gpufi_reply *reply) {}

gpuf_status gpufi_dispatcher_destroy(gpufi_dispatcher *dispatcher, int64_t timeout_ns,
                                     gpuf_error *err) {
  return GPUF_OK;
}

gpuf_status gpufi_dispatcher_publish(gpufi_dispatcher *dispatcher, const char *name,
                                     const gpuf_tensor *tensor, const gpuf_publish_options *options,
                                     gpuf_error *err) {
  return gpufi_dispatcher_create(NULL, NULL, err);
}

gpuf_status gpufi_dispatcher_unpublish(gpufi_dispatcher *dispatcher, const char *name,
                                       int64_t timeout_ns, gpuf_error *err) {
  return gpufi_dispatcher_create(NULL, NULL, err);
}

gpuf_status gpufi_dispatcher_publish_int64(gpufi_dispatcher *dispatcher, const char *name,
                                           int64_t value, gpuf_error *err) {
  return gpufi_dispatcher_create(NULL, NULL, err);
}

gpuf_status gpufi_dispatcher_publish_float64(gpufi_dispatcher *dispatcher, const char *name,
                                             double value, gpuf_error *err) {
  return gpufi_dispatcher_create(NULL, NULL, err);
}

gpuf_status gpufi_dispatcher_publish_text(gpufi_dispatcher *dispatcher, const char *name,
                                          const char *text, gpuf_error *err) {
  return gpufi_dispatcher_create(NULL, NULL, err);
}

void gpufi_dispatcher_end_stale_shares(gpufi_dispatcher *dispatcher) {}

void gpufi_dispatcher_step(gpufi_dispatcher *dispatcher, int64_t step, double time) {}

gpuf_status gpufi_client_open(gpufi_dispatcher *dispatcher, const char *data, size_t data_nbytes,
                              uint64_t tag, uint64_t *client, gpufi_reply **refusal,
                              gpuf_error *err) {
  return gpufi_dispatcher_create(NULL, NULL, err);
}

bool gpufi_client_set_owner(gpufi_dispatcher *dispatcher, uint64_t client, uint64_t owner) {
  return false;
}

void gpufi_client_close(gpufi_dispatcher *dispatcher, uint64_t client) {}

bool gpufi_dispatcher_message(gpufi_dispatcher *dispatcher, uint64_t client, const char *data,
                              size_t data_nbytes, size_t buffer_count, uint64_t tag) {
  return false;
}

bool gpufi_dispatcher_refuse(gpufi_dispatcher *dispatcher, uint64_t client, const char *data,
                             size_t data_nbytes, const char *problem, uint64_t tag) {
  return false;
}

bool gpufi_dispatcher_run(gpufi_dispatcher *dispatcher) {
  return false;
}

bool gpufi_listing_add(gpufi_listing *listing, const char *name, const char *framework,
                       const gpuf_tensor *tensor, const char *problem) {
  return false;
}

void gpufi_dispatcher_get_counts(gpufi_dispatcher *dispatcher, gpufi_dispatcher_counts *counts) {
  *counts = (gpufi_dispatcher_counts){0};
}
