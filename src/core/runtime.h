/* What is decided once per process: the backends, the default device, fork detection. */
#ifndef GPUFI_CORE_RUNTIME_H
#define GPUFI_CORE_RUNTIME_H

#include "backend/backend.h"

/* The backend of a device that exists; GPUF_ERR_NO_DEVICE, GPUF_ERR_INVALID (the CPU is no
 * device) or, in a forked child, GPUF_ERR_STATE otherwise. */
gpuf_status gpufi_backend_for(gpuf_device device, const gpufi_backend **backend, gpuf_error *err);

/* True in a child forked after the process first used a device: locks, threads and device handles
 * of the parent are gone, so nothing of theirs may be touched. */
bool gpufi_forked(void);
/* Fails with GPUF_ERR_STATE and says so. */
gpuf_status gpufi_refuse_after_fork(gpuf_error *err);

#endif
