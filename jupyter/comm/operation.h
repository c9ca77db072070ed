/* The operations, run on the calling thread by the library's public calls. */
#ifndef GPUFI_COMM_OPERATION_H
#define GPUFI_COMM_OPERATION_H

#include "comm/failure.h"
#include "comm/request.h"
#include "comm/state.h"

/* Run a request. With CODE_OK the result is its reply, NULL without memory; with another code it is
 * NULL, and `err` has the message. */
gpufi_reply *gpufi_execute(gpufi_dispatcher *dispatcher, const gpufi_request *request,
                           gpufi_code *code, gpuf_error *err);

#endif
