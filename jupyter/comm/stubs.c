/* The dispatcher in a build without jansson: there is none, so nothing but its creation can be
 * called. */
#include "base/error.h"
#include "comm.h"

gpuf_status gpufi_comm_create(const gpufi_comm_options *options, gpufi_comm **comm,
                              gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                    "this gpufetch was built without jansson, which the comm needs: build it with "
                    "-Djansson=enabled (Debian's libjansson-dev)");
}

void gpufi_comm_reply_free(gpufi_comm_reply *reply) {}

gpuf_status gpufi_comm_destroy(gpufi_comm *comm, int64_t timeout_ns, gpuf_error *err) {
  return GPUF_OK;
}

gpuf_status gpufi_comm_publish(gpufi_comm *comm, const char *name, const gpuf_tensor *tensor,
                               const gpufi_comm_publish_options *options, gpuf_error *err) {
  return gpufi_comm_create(NULL, NULL, err);
}

gpuf_status gpufi_comm_unpublish(gpufi_comm *comm, const char *name, int64_t timeout_ns,
                                 gpuf_error *err) {
  return gpufi_comm_create(NULL, NULL, err);
}

gpuf_status gpufi_comm_publish_int64(gpufi_comm *comm, const char *name, int64_t value,
                                     gpuf_error *err) {
  return gpufi_comm_create(NULL, NULL, err);
}

gpuf_status gpufi_comm_publish_float64(gpufi_comm *comm, const char *name, double value,
                                       gpuf_error *err) {
  return gpufi_comm_create(NULL, NULL, err);
}

gpuf_status gpufi_comm_publish_text(gpufi_comm *comm, const char *name, const char *text,
                                    gpuf_error *err) {
  return gpufi_comm_create(NULL, NULL, err);
}

void gpufi_comm_step(gpufi_comm *comm, int64_t step, double time) {}

gpuf_status gpufi_comm_client_open(gpufi_comm *comm, const char *data, size_t data_nbytes,
                                   uint64_t tag, uint64_t *client, gpufi_comm_reply **refusal,
                                   gpuf_error *err) {
  return gpufi_comm_create(NULL, NULL, err);
}

void gpufi_comm_client_close(gpufi_comm *comm, uint64_t client) {}

bool gpufi_comm_message(gpufi_comm *comm, uint64_t client, const char *json, size_t json_nbytes,
                        size_t buffer_count, uint64_t tag) {
  return false;
}

bool gpufi_comm_run(gpufi_comm *comm) {
  return false;
}

bool gpufi_comm_listing_add(gpufi_comm_listing *listing, const char *name, const char *framework,
                            const gpuf_tensor *tensor, const char *problem) {
  return false;
}

void gpufi_comm_get_counts(gpufi_comm *comm, gpufi_comm_counts *counts) {
  *counts = (gpufi_comm_counts){0};
}
