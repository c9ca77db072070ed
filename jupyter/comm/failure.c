#include "comm/failure.h"

const char *gpufi_code_name(gpufi_code code) {
  static const char *const names[] = {
      [CODE_OK] = "",
      [CODE_BAD_REQUEST] = "bad_request",
      [CODE_UNKNOWN_OP] = "unknown_op",
      [CODE_UNKNOWN_NAME] = "unknown_name",
      [CODE_BAD_SLICE] = "bad_slice",
      [CODE_TOO_LARGE] = "too_large",
      [CODE_STALE] = "stale",
      [CODE_UNREADABLE] = "unreadable",
      [CODE_UNSUPPORTED] = "unsupported",
      [CODE_BUSY] = "busy",
      [CODE_SUPERSEDED] = "superseded",
      [CODE_CANCELLED] = "cancelled",
      [CODE_UNSUPPORTED_PROTOCOL] = "unsupported_protocol",
      [CODE_TOO_MANY_CLIENTS] = "too_many_clients",
      [CODE_INTERNAL] = "internal",
  };
  return names[code];
}

gpufi_code gpufi_code_of_status(gpuf_status status, const char *doing, const char *name,
                                const gpuf_error *cause, gpuf_error *err) {
  gpufi_code code = CODE_UNREADABLE;
  switch (status) {
  case GPUF_OK:
    return CODE_OK;
  case GPUF_ERR_UNSUPPORTED:
    code = CODE_UNSUPPORTED;
    break;
  case GPUF_ERR_INVALID:
    code = CODE_BAD_REQUEST;
    break;
  case GPUF_ERR_NO_MEMORY:
  case GPUF_ERR_NO_DEVICE_MEMORY:
    code = CODE_BUSY;
    break;
  default:
    break;
  }
  return REFUSE(err, code, "cannot %s %s: %s", doing, name, cause->message);
}
