#include "share/attach.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/kernel_thread.h"
#include "core/device.h"
#include "core/runtime.h"
#include "share/peer.h"
#include "share/table.h"

/* Another process's allocation, which is opened once, however many attachments lie in it. */
typedef struct import {
  struct import *next;
  uint8_t service[GPUFI_SHARE_ID_NBYTES];
  uint8_t name[GPUFI_IPC_NAME_NBYTES];
  size_t nbytes;
  gpuf_device device;
  void *d_base;
  int32_t attachment_count;
  bool is_closing; /* its attachments are gone, and the device may still work on it */
} import;

struct gpuf_attachment {
  gpufi_share *own; /* a share of this process itself, or NULL; the rest is unset then */
  gpufi_peer *peer;
  uint64_t reference; /* the peer's */
  import *allocation; /* NULL when there are no elements */
};

/* Guards the list. Held while an allocation is opened, so that it is open only once; not while one
 * is closed, which waits for the device. */
static pthread_mutex_t imports_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t import_closed = PTHREAD_COND_INITIALIZER;
static import *imports;

static import *find_import(const gpufi_share_fields *fields, gpuf_device device) {
  import *found = imports;
  while (found && (memcmp(found->service, fields->service, sizeof(found->service)) != 0 ||
                   memcmp(found->name, fields->name, sizeof(found->name)) != 0 ||
                   found->nbytes != fields->allocation_nbytes ||
                   !gpufi_is_same_device(found->device, device))) {
    found = found->next;
  }
  return found;
}

bool gpufi_share_is_attached(gpuf_device_kind kind, const void *d_ptr) {
  const uintptr_t address = (uintptr_t)d_ptr;
  pthread_mutex_lock(&imports_lock);
  const import *found = imports;
  while (found && (found->device.kind != kind || address < (uintptr_t)found->d_base ||
                   address - (uintptr_t)found->d_base >= found->nbytes)) {
    found = found->next;
  }
  pthread_mutex_unlock(&imports_lock);
  return found != NULL;
}

static gpuf_status check_free(gpuf_device device, const void *d_ptr, gpuf_error *err) {
  if (!gpufi_share_is_attached(device.kind, d_ptr)) {
    return GPUF_OK;
  }
  return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                    "%p is attached memory of another process; give it back with gpuf_detach",
                    d_ptr);
}

static void guard_frees(void) {
  static gpufi_free_guard guard = {.check = check_free};
  gpufi_free_guard_add(&guard);
}

static gpuf_status create_import(const gpufi_backend *backend, gpuf_device device,
                                 const gpufi_share_fields *fields, int descriptor, import **out,
                                 gpuf_error *err) {
  gpufi_ipc_allocation opened = {.nbytes = (size_t)fields->allocation_nbytes};
  import *created = calloc(1, sizeof(*created));
  if (!created) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for an import's record");
  }
  memcpy(opened.name, fields->name, sizeof(opened.name));
  const gpuf_status status =
      backend->ipc_open(device.index, &opened, descriptor, &created->d_base, err);
  if (status != GPUF_OK) {
    free(created);
    return status;
  }
  memcpy(created->service, fields->service, sizeof(created->service));
  memcpy(created->name, fields->name, sizeof(created->name));
  created->nbytes = opened.nbytes;
  created->device = device;
  created->next = imports;
  imports = created;
  *out = created;
  return GPUF_OK;
}

static gpuf_status open_import(const gpufi_backend *backend, gpuf_device device,
                               const gpufi_share_fields *fields, int descriptor, import **out,
                               gpuf_error *err) {
  static pthread_once_t guard_once = PTHREAD_ONCE_INIT;
  gpuf_status status = GPUF_OK;
  pthread_once(&guard_once, guard_frees);
  pthread_mutex_lock(&imports_lock);
  import *found = find_import(fields, device);
  while (found && found->is_closing) {
    pthread_cond_wait(&import_closed, &imports_lock);
    found = find_import(fields, device);
  }
  if (!found) {
    status = create_import(backend, device, fields, descriptor, &found, err);
  }
  if (found) {
    found->attachment_count++;
    *out = found;
  }
  pthread_mutex_unlock(&imports_lock);
  return status;
}

static gpuf_status close_import(import *opened, gpuf_error *err) {
  const gpufi_backend *backend;
  pthread_mutex_lock(&imports_lock);
  opened->is_closing = --opened->attachment_count == 0;
  const bool is_last = opened->is_closing;
  pthread_mutex_unlock(&imports_lock);
  if (!is_last) {
    return GPUF_OK;
  }
  gpuf_status status = gpufi_backend_for(opened->device, &backend, err);
  if (status == GPUF_OK) {
    status = backend->ipc_close(opened->device.index, opened->d_base, err);
  }
  pthread_mutex_lock(&imports_lock);
  import **link = &imports;
  while (*link != opened) {
    link = &(*link)->next;
  }
  *link = opened->next;
  pthread_cond_broadcast(&import_closed);
  pthread_mutex_unlock(&imports_lock);
  free(opened);
  return status;
}

/* Find the exporter's device among those of this process. */
static gpuf_status find_device(const gpufi_share_fields *fields, gpuf_device *device,
                               const gpufi_backend **backend, gpuf_error *err) {
  uint8_t identity[GPUFI_IPC_IDENTITY_NBYTES];
  int32_t count = 0;
  const gpuf_device_kind kind = fields->tensor.device.kind;
  gpuf_status status = gpuf_device_count(kind, &count, err);
  for (int32_t index = 0; index < count && status == GPUF_OK; index++) {
    *device = (gpuf_device){kind, index};
    status = gpufi_backend_for(*device, backend, err);
    if (status == GPUF_OK) {
      status = (*backend)->ipc_identity(index, identity, err);
    }
    if (status == GPUF_OK && memcmp(identity, fields->identity, sizeof(identity)) == 0) {
      return GPUF_OK;
    }
  }
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_fail(err, GPUF_ERR_NO_DEVICE, 0,
             "the memory is on %s:%" PRId32 " of process %" PRId64 ", and none of the %" PRId32
             " devices here is that one; make it visible (CUDA_VISIBLE_DEVICES)",
             gpuf_device_kind_name(kind), fields->tensor.device.index, fields->process_id, count);
  return GPUF_ERR_NO_DEVICE;
}

static gpuf_status attach_own(const gpuf_share_handle *handle, gpuf_attachment *attachment,
                              gpuf_tensor *tensor, gpuf_error *err) {
  switch (gpufi_share_acquire(handle->bytes, handle->nbytes, &attachment->own)) {
  case GPUFI_SHARE_GRANTED:
    *tensor = *gpufi_share_tensor(attachment->own);
    return GPUF_OK;
  case GPUFI_SHARE_STALE:
    return gpufi_fail(err, GPUF_ERR_STATE, 0,
                      "the share is stale: this process has withdrawn it; share the tensor again");
  case GPUFI_SHARE_FULL:
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "the share has too many attachments");
  default:
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "this process never gave out this share handle; pass the handle unchanged");
  }
}

static gpuf_status attach_other(const gpuf_share_handle *handle, const gpufi_share_fields *fields,
                                gpuf_attachment *attachment, gpuf_tensor *tensor, gpuf_error *err) {
  const gpufi_backend *backend = NULL;
  gpuf_device device;
  int descriptor = -1;
  gpuf_status status = find_device(fields, &device, &backend, err);
  if (status == GPUF_OK) {
    status = gpufi_peer_get(fields, &attachment->peer, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  status = gpufi_peer_attach(attachment->peer, handle, &attachment->reference, &descriptor, err);
  if (status != GPUF_OK) {
    goto done;
  }
  if (gpuf_tensor_count(&fields->tensor) > 0) {
    status = open_import(backend, device, fields, descriptor, &attachment->allocation, err);
  }
  if (status != GPUF_OK) {
    gpufi_peer_detach(attachment->peer, attachment->reference);
    goto done;
  }
  *tensor = fields->tensor;
  tensor->device = device;
  tensor->data = attachment->allocation
                     ? (char *)attachment->allocation->d_base + fields->offset_nbytes
                     : NULL;

done:
  if (descriptor >= 0) {
    close(descriptor);
  }
  if (status != GPUF_OK) {
    gpufi_peer_put(attachment->peer);
  }
  return status;
}

gpuf_status gpuf_attach(const gpuf_share_handle *handle, gpuf_attachment **attachment,
                        gpuf_tensor *tensor, gpuf_error *err) {
  GPUFI_REQUIRE(attachment, err);
  GPUFI_REQUIRE(tensor, err);
  gpufi_share_fields fields;
  if (gpufi_forked()) {
    return gpufi_refuse_after_fork(err);
  }
  gpuf_status status = gpufi_share_decode(handle, &fields, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpuf_attachment *created = calloc(1, sizeof(*created));
  if (!created) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for an attachment's record");
  }
  status = gpufi_share_is_own(fields.service) ? attach_own(handle, created, tensor, err)
                                              : attach_other(handle, &fields, created, tensor, err);
  if (status != GPUF_OK) {
    free(created);
    return status;
  }
  *attachment = created;
  return GPUF_OK;
}

gpuf_status gpuf_detach(gpuf_attachment *attachment, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  if (!attachment) {
    return GPUF_OK;
  }
  if (gpufi_forked()) {
    return gpufi_refuse_after_fork(err);
  }
  if (gpufi_in_kernel()) { /* it would wait for itself */
    return gpufi_refuse_in_kernel(err);
  }
  if (attachment->own) {
    gpufi_share_release(attachment->own);
  } else {
    if (attachment->allocation) {
      status = close_import(attachment->allocation, err);
    }
    gpufi_peer_detach(attachment->peer, attachment->reference);
    gpufi_peer_put(attachment->peer);
  }
  free(attachment);
  return status;
}

gpuf_status gpuf_attachment_check(gpuf_attachment *attachment, gpuf_error *err) {
  GPUFI_REQUIRE(attachment, err);
  if (gpufi_forked()) {
    return gpufi_refuse_after_fork(err);
  }
  return attachment->own ? GPUF_OK : gpufi_peer_check(attachment->peer, err);
}
