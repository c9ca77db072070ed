/* The CUDA backend of a build without CUDA: it has no devices, and says why. */
#include "backend/backend.h"
#include "base/error.h"

static gpuf_status device_count(int32_t *count, gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_NO_DEVICE, 0,
                    "this gpufetch was built without CUDA; build it where nvcc is installed, or "
                    "use the host backend (GPUFETCH_BACKEND=host)");
}

/* The core asks for the count before anything else. */
const gpufi_backend gpufi_backend_cuda = {.kind = GPUF_DEVICE_CUDA, .device_count = device_count};
