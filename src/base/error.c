#include "base/error.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *gpuf_status_name(gpuf_status status) {
  static const char *const names[] = {
      [GPUF_OK] = "GPUF_OK",
      [GPUF_ERR_INVALID] = "GPUF_ERR_INVALID",
      [GPUF_ERR_UNSUPPORTED] = "GPUF_ERR_UNSUPPORTED",
      [GPUF_ERR_NO_MEMORY] = "GPUF_ERR_NO_MEMORY",
      [GPUF_ERR_NO_DEVICE_MEMORY] = "GPUF_ERR_NO_DEVICE_MEMORY",
      [GPUF_ERR_NO_DEVICE] = "GPUF_ERR_NO_DEVICE",
      [GPUF_ERR_DEVICE] = "GPUF_ERR_DEVICE",
      [GPUF_ERR_HDF5] = "GPUF_ERR_HDF5",
      [GPUF_ERR_IO] = "GPUF_ERR_IO",
      [GPUF_ERR_CORRUPT] = "GPUF_ERR_CORRUPT",
      [GPUF_ERR_STATE] = "GPUF_ERR_STATE",
      [GPUF_ERR_TIMEOUT] = "GPUF_ERR_TIMEOUT",
  };
  const size_t index = (size_t)status;
  return index < sizeof(names) / sizeof(names[0]) ? names[index] : "GPUF_ERR_UNKNOWN";
}

gpuf_status gpufi_fail(gpuf_error *err, gpuf_status status, int64_t native_code, const char *format,
                       ...) {
  if (err) {
    va_list args;
    err->status = status;
    err->native_code = native_code;
    va_start(args, format);
    vsnprintf(err->message, sizeof(err->message), format, args);
    va_end(args);
    gpufi_text_make_utf8(err->message);
  }
  return status;
}

gpuf_status gpufi_fail_system(gpuf_error *err, const char *what, const char *path, int code) {
  return gpufi_fail(err, GPUF_ERR_IO, code, "%s '%s' failed: %s", what, path, strerror(code));
}
