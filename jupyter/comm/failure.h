/* The codes of error replies, and how a function fails with one.
 *
 * A function that can refuse a request returns a gpufi_code and describes the failure in `err`.
 * Thread-safety: any thread. */
#ifndef GPUFI_COMM_FAILURE_H
#define GPUFI_COMM_FAILURE_H

#include "base/error.h"

typedef enum gpufi_code {
  CODE_OK = 0,
  CODE_BAD_REQUEST,
  CODE_UNKNOWN_OP,
  CODE_UNKNOWN_NAME,
  CODE_BAD_SLICE,
  CODE_TOO_LARGE,
  CODE_STALE,
  CODE_UNREADABLE,
  CODE_UNSUPPORTED,
  CODE_BUSY,
  CODE_SUPERSEDED,
  CODE_CANCELLED,
  CODE_UNSUPPORTED_PROTOCOL,
  CODE_TOO_MANY_CLIENTS,
  CODE_INTERNAL,
} gpufi_code;

/* Fill `err` with the message that goes with a code, and give the code:
 *   return REFUSE(err, CODE_BAD_SLICE, "slices[%d] has step 0", axis); */
#define REFUSE(err, code, ...) (gpufi_fail((err), GPUF_ERR_INVALID, 0, __VA_ARGS__), (code))

/* The name of a code in the protocol; "" for CODE_OK. */
const char *gpufi_code_name(gpufi_code code);

/* CODE_OK for GPUF_OK. Otherwise the code of a failed call of the library, with the message "cannot
 * DOING NAME: " and what `cause` says. */
gpufi_code gpufi_code_of_status(gpuf_status status, const char *doing, const char *name,
                                const gpuf_error *cause, gpuf_error *err);

#endif
