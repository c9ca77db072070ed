/* Running requests on the calling thread, and delivering the replies. */
#ifndef GPUFI_COMM_RUN_H
#define GPUFI_COMM_RUN_H

#include "comm/request.h"
#include "comm/state.h"

void gpufi_run_request(gpufi_dispatcher *dispatcher, const gpufi_request *request);

#endif
