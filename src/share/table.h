/* What this process shares, who holds it, and the identity by which handles name this process.
 * Thread-safety: any thread. */
#ifndef GPUFI_SHARE_TABLE_H
#define GPUFI_SHARE_TABLE_H

#include "share/wire.h"

typedef struct gpufi_share gpufi_share;

/* Fill what handles say of this process: process_id, start_time and service. Fails only where the
 * system has no random bytes. */
gpuf_status gpufi_share_own_identity(gpufi_share_fields *fields, gpuf_error *err);
/* True if `service` names this process. */
bool gpufi_share_is_own(const uint8_t *service);

/* What the table takes over with a share. */
typedef struct gpufi_share_memory {
  gpuf_tensor tensor;
  const void *d_base; /* where the allocation of the elements begins; NULL when there is none */
  void *d_copy;       /* memory that the share owns and frees, or NULL */
  gpuf_share_options options;
} gpufi_share_memory;

/* Add a share under the next generation, which this fills in, and encode its handle. On failure the
 * memory stays the caller's. */
gpuf_status gpufi_share_add(const gpufi_share_memory *memory, gpufi_share_fields *fields,
                            gpuf_share_handle *handle, gpuf_error *err);
/* Copy the name under which a share that exists has passed on the same allocation; false if there
 * is none. */
bool gpufi_share_find_name(gpuf_device device, const gpufi_ipc_allocation *allocation,
                           uint8_t *name);

/* Withdraw a share and wait up to `timeout_ns` (< 0: without limit) for its end. Returns true once
 * it has ended, false with the number of importers that are left. */
bool gpufi_share_withdraw(uint64_t generation, int64_t timeout_ns, int32_t *importer_count);
/* False if the share has ended. */
bool gpufi_share_count_importers(uint64_t generation, int32_t *importer_count);

/* Count one more importer of the share whose handle is exactly these bytes. */
gpufi_share_answer gpufi_share_acquire(const uint8_t *handle, size_t nbytes, gpufi_share **share);
/* Give that back; the last importer of a withdrawn share calls its release. */
void gpufi_share_release(gpufi_share *share);
/* Valid while the importer holds the share. */
const gpuf_tensor *gpufi_share_tensor(const gpufi_share *share);

#endif
