/* Withdrawing everything that is published. */
#ifndef GPUFI_COMM_PUBLISH_H
#define GPUFI_COMM_PUBLISH_H

#include "comm/state.h"

/* Waits for importers of shares as gpufi_dispatcher_destroy does. */
gpuf_status gpufi_unpublish_all(gpufi_dispatcher *dispatcher, int64_t timeout_ns, gpuf_error *err);

#endif
