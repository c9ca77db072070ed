#include "base/fork.h"

#include <unistd.h>

#include "base/error.h"

gpuf_status gpufi_refuse_after_fork(gpuf_error *err) {
  return gpufi_fail(
      err, GPUF_ERR_STATE, 0,
      "devices, and copies, checkpoints, shares, servers and connections of the parent, "
      "cannot be used in a process that was forked: start workers with spawn or "
      "forkserver");
}

gpuf_status gpufi_check_process(int64_t process_id, gpuf_error *err) {
  return process_id == getpid() ? GPUF_OK : gpufi_refuse_after_fork(err);
}
