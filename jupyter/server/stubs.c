/* The calls of serve.h in a build without libzmq, jansson or libcrypto. */
#include "base/error.h"
#include "server/await.h"

#include <gpufetch/serve.h>

static gpuf_status unsupported(gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                    "this gpufetch was built without the server: build it with -Dserve=enabled "
                    "(needs libzmq, jansson and OpenSSL's libcrypto 3 or newer)");
}

gpuf_status gpuf_server_start(const gpuf_server_options *options, gpuf_server **server,
                              gpuf_error *err) {
  return unsupported(err);
}

gpuf_status gpuf_server_stop(gpuf_server *server, gpuf_error *err) {
  return server ? unsupported(err) : GPUF_OK;
}

const char *gpuf_server_connection_file(const gpuf_server *server) {
  return "";
}
const char *gpuf_server_name(const gpuf_server *server) {
  return "";
}

gpuf_status gpuf_server_publish(gpuf_server *server, const char *name, const gpuf_tensor *tensor,
                                const gpuf_publish_options *options, gpuf_error *err) {
  return unsupported(err);
}

gpuf_status gpuf_server_publish_int64(gpuf_server *server, const char *name, int64_t value,
                                      gpuf_error *err) {
  return unsupported(err);
}

gpuf_status gpuf_server_publish_float64(gpuf_server *server, const char *name, double value,
                                        gpuf_error *err) {
  return unsupported(err);
}

gpuf_status gpuf_server_publish_text(gpuf_server *server, const char *name, const char *text,
                                     gpuf_error *err) {
  return unsupported(err);
}

gpuf_status gpuf_server_unpublish(gpuf_server *server, const char *name, int64_t timeout_ns,
                                  gpuf_error *err) {
  return unsupported(err);
}

gpuf_status gpufi_server_await_unpublished(gpuf_server *server, const char *name,
                                           int64_t timeout_ns, gpuf_error *err) {
  return unsupported(err);
}

gpuf_status gpuf_server_publish_step(gpuf_server *server, int64_t step, double time,
                                     gpuf_error *err) {
  return unsupported(err);
}
