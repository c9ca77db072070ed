/* A share's handle: the fields that it holds, and the one parser of its bytes, which are untrusted
 * input. docs/sharing.md has the layout. Thread-safety: any thread. */
#ifndef GPUFI_SHARE_HANDLE_H
#define GPUFI_SHARE_HANDLE_H

#include <gpufetch/share.h>

#include "backend/backend.h"

#define GPUFI_SHARE_ID_NBYTES 16

/* A handle's fields, checked: the dtype and the shape are valid and every element lies inside the
 * allocation. */
typedef struct gpufi_share_fields {
  gpuf_tensor tensor; /* data is NULL, stream is NONE */
  bool readonly;
  int64_t process_id;
  uint64_t start_time; /* of the process, in clock ticks since boot */
  uint64_t generation;
  uint8_t service[GPUFI_SHARE_ID_NBYTES]; /* random, one for each process: names its socket */
  uint8_t token[GPUFI_SHARE_ID_NBYTES];   /* random, one for each share */
  uint8_t identity[GPUFI_IPC_IDENTITY_NBYTES];
  uint8_t name[GPUFI_IPC_NAME_NBYTES];
  uint64_t allocation_nbytes;
  uint64_t offset_nbytes;
} gpufi_share_fields;

/* The handle of `fields`, which must be as gpufi_share_decode checks them. */
void gpufi_share_encode(const gpufi_share_fields *fields, gpuf_share_handle *handle);
/* GPUF_ERR_CORRUPT unless every byte is as gpufi_share_encode writes it; *fields is unchanged then.
 * `fields` may be NULL to check only. */
gpuf_status gpufi_share_decode(const gpuf_share_handle *handle, gpufi_share_fields *fields,
                               gpuf_error *err);
/* Make the checksum right, for code that builds a handle by hand, such as a test. */
void gpufi_share_seal(gpuf_share_handle *handle);

#endif
