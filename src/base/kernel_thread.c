#include "base/kernel_thread.h"

#include "base/error.h"

static _Thread_local bool in_kernel;

void gpufi_run_kernel(void (*kernel)(const void *args), const void *args) {
  in_kernel = true;
  kernel(args);
  in_kernel = false;
}

bool gpufi_in_kernel(void) {
  return in_kernel;
}

gpuf_status gpufi_refuse_in_kernel(gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_STATE, 0,
                    "a kernel of gpuf_host_launch must not use devices or wait for them: its own "
                    "stream would wait for itself; make the call on a thread of the program");
}
