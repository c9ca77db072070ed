/* From a client's JSON to a request: the one place where untrusted input is checked. Size and
 * nesting are limited before text is parsed, and every member is known by name and checked by type
 * and range.
 *
 * Thread-safety: any thread. */
#ifndef GPUFI_COMM_PARSE_H
#define GPUFI_COMM_PARSE_H

#include "comm/failure.h"
#include "comm/request.h"

#include <jansson.h>

/* JSON that a client sent: parsed already, or as text. */
typedef struct gpufi_data {
  const json_t *value; /* NULL = see `text`; borrowed */
  const char *text;    /* not NUL-terminated; NULL = there is none */
  size_t nbytes;
} gpufi_data;

/* The data of a comm_msg. After a failure too, `op` and `id` are those of the request as far as
 * they could be read. */
gpufi_code gpufi_parse_request(const gpufi_data *data, gpufi_request *request, gpuf_error *err);

/* The data of a comm_open: nothing, or an object that asks for this protocol. */
gpufi_code gpufi_parse_open(const gpufi_data *data, gpuf_error *err);

#endif
