/* The call beside those of gpufetch/serve.h that Python makes, where a wait has to end for Ctrl-C.
 */
#ifndef GPUFI_SERVER_AWAIT_H
#define GPUFI_SERVER_AWAIT_H

#include <gpufetch/serve.h>

/* Wait further, as gpuf_server_unpublish does after GPUF_ERR_TIMEOUT, without withdrawing anything:
 * GPUF_ERR_STATE where the name was published again. Thread-safety: as gpuf_server_unpublish. */
gpuf_status gpufi_server_await_unpublished(gpuf_server *server, const char *name,
                                           int64_t timeout_ns, gpuf_error *err);

#endif
