/* The backends of devices, and what is not allowed in a forked child. Thread-safety: any thread. */
#ifndef GPUFI_CORE_RUNTIME_H
#define GPUFI_CORE_RUNTIME_H

#include "backend/backend.h"

static inline bool gpufi_is_same_device(gpuf_device a, gpuf_device b) {
  return a.kind == b.kind && a.index == b.index;
}

/* Find the backend of a device. GPUF_ERR_NO_DEVICE if the device does not exist, GPUF_ERR_INVALID
 * for the CPU, and GPUF_ERR_STATE in a forked child and in a kernel of the host backend. */
gpuf_status gpufi_backend_for(gpuf_device device, const gpufi_backend **backend, gpuf_error *err);

/* True in a child that was forked after the process had used a device. The parent's threads and
 * device handles do not exist there and its locks may be held, so none of them may be used. */
bool gpufi_forked(void);

#endif
