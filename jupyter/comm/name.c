#include "comm/name.h"

#include "base/error.h"
#include "base/text.h"
#include "comm/protocol.h"

#include <string.h>

bool gpufi_name_valid(const char *name, size_t nbytes) {
  if (nbytes < 1 || nbytes > GPUFI_TENSOR_NAME_MAX_NBYTES) {
    return false;
  }
  for (size_t i = 0; i < nbytes; i++) {
    if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f) {
      return false;
    }
  }
  return true;
}

gpuf_status gpufi_name_check(const char *name, gpuf_error *err) {
  GPUFI_REQUIRE(name, err);
  const size_t nbytes = strlen(name);
  if (!gpufi_text_is_utf8(name) || !gpufi_name_valid(name, nbytes)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "a name of %zu bytes; it must be UTF-8 of 1 to %d bytes without control "
                      "characters",
                      nbytes, GPUFI_TENSOR_NAME_MAX_NBYTES);
  }
  return GPUF_OK;
}
