/* Handing replies over to the transport. Thread-safety: any thread. */
#ifndef GPUFI_COMM_DELIVER_H
#define GPUFI_COMM_DELIVER_H

#include "comm/failure.h"
#include "comm/request.h"
#include "comm/state.h"

/* Hand over the reply to a request, unless its client is closed. Takes over `reply`. */
void gpufi_deliver(gpufi_dispatcher *dispatcher, const gpufi_request *request, gpufi_reply *reply);
/* Answer a request with an error. */
void gpufi_deliver_failure(gpufi_dispatcher *dispatcher, const gpufi_request *request,
                           gpufi_code code, const gpuf_error *err);
/* Tell the log about a failure, once for each code. */
void gpufi_log_failure(gpufi_dispatcher *dispatcher, gpufi_code code, const char *text);

#endif
