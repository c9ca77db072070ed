#include "backend/host/kernel.h"

#include <string.h>

#include "backend/host/faults.h"
#include "backend/host/memory.h"
#include "backend/host/stream.h"
#include "base/error.h"
#include "base/kernel_thread.h"

typedef struct kernel_args {
  void (*kernel)(const void *args);
  _Alignas(16) char args[GPUFI_HOST_ARGS_NBYTES - 16];
} kernel_args;

static gpuf_status kernel_work(const void *args, gpuf_error *err) {
  const kernel_args *k = args;
  gpufi_host_delay(0);
  gpufi_run_kernel(k->kernel, k->args);
  return GPUF_OK;
}

gpuf_status gpufi_host_launch(int32_t device, gpuf_stream stream, void (*kernel)(const void *args),
                              const void *args, size_t args_nbytes, gpuf_error *err) {
  kernel_args wrapped;
  if (args_nbytes > 0) {
    GPUFI_REQUIRE(args, err);
  }
  if (args_nbytes > sizeof(wrapped.args)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "%zu bytes of kernel arguments; at most %zu: pass a pointer instead",
                      args_nbytes, sizeof(wrapped.args));
  }
  wrapped.kernel = kernel;
  if (args_nbytes > 0) {
    memcpy(wrapped.args, args, args_nbytes);
  }
  return gpufi_host_enqueue(device, stream, kernel_work, &wrapped, sizeof(wrapped), err);
}

void *gpufi_host_kernel_pointer(const void *d_ptr) {
  return gpufi_in_kernel() ? gpufi_host_alias(d_ptr, 1) : NULL;
}
