/* Any bytes into the parser of share handles: as they are, with the checksum made right, and as
 * text. What it accepts must come back from its own text, and lie inside its allocation. */
#include "share/handle.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static void check_handle(const gpuf_share_handle *handle) {
  gpufi_share_fields fields;
  gpuf_share_handle back;
  gpuf_error err;
  char text[GPUF_SHARE_TEXT_MAX_NBYTES];
  if (gpufi_share_decode(handle, &fields, &err) != GPUF_OK) {
    return;
  }
  if (gpuf_share_to_text(handle, text, &err) != GPUF_OK ||
      gpuf_share_from_text(text, &back, &err) != GPUF_OK || back.nbytes != handle->nbytes ||
      memcmp(back.bytes, handle->bytes, back.nbytes) != 0) {
    abort();
  }
  const gpuf_tensor *tensor = &fields.tensor;
  __int128 low = fields.offset_nbytes, high = low;
  if (gpuf_tensor_count(tensor) > 0) {
    high += gpuf_dtype_nbytes(tensor->dtype);
    for (int32_t axis = 0; axis < tensor->ndim; axis++) {
      const __int128 span = (__int128)(tensor->shape[axis] - 1) * tensor->strides_nbytes[axis];
      *(span < 0 ? &low : &high) += span;
    }
  }
  if (low < 0 || high > (__int128)fields.allocation_nbytes) {
    abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes) {
  gpuf_share_handle handle = {0};
  gpuf_error err;
  handle.nbytes = (uint32_t)nbytes; /* perhaps more than the handle holds, which is refused */
  memcpy(handle.bytes, data, nbytes < sizeof(handle.bytes) ? nbytes : sizeof(handle.bytes));
  check_handle(&handle);
  if (nbytes >= 16 && nbytes <= sizeof(handle.bytes)) {
    gpufi_share_seal(&handle);
    check_handle(&handle);
  }
  char *text = malloc(nbytes + 1);
  memcpy(text, data, nbytes);
  text[nbytes] = '\0';
  if (gpuf_share_from_text(text, &handle, &err) == GPUF_OK) {
    check_handle(&handle);
  }
  free(text);
  return 0;
}
