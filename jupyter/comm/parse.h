/* From a client's JSON to a request: the one place where untrusted input is checked. Size and
 * nesting are limited before text is parsed, each member is parsed by itself, and every member is
 * known by name and checked by type and range.
 *
 * Thread-safety: any thread. */
#ifndef GPUFI_COMM_PARSE_H
#define GPUFI_COMM_PARSE_H

#include "comm/failure.h"
#include "comm/object.h"
#include "comm/request.h"

/* The data of a comm_msg. After a failure too, `op` and `id` are those of the request as far as
 * they could be read: whatever else is wrong with it, its reply can be told by them. */
gpufi_code gpufi_parse_request(gpufi_raw data, gpufi_request *request, gpuf_error *err);

/* The data of a comm_open: nothing, or an object that asks for this protocol. */
gpufi_code gpufi_parse_open(gpufi_raw data, gpuf_error *err);

#endif
