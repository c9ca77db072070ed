#include "share/table.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/system.h"
#include "core/device.h"

struct gpufi_share {
  gpufi_share *next;
  gpuf_share_handle handle; /* what an importer must show, byte for byte */
  gpufi_share_memory memory;
  uint64_t generation;
  int32_t importer_count;
  bool withdrawn;
  bool ending; /* `release` runs; the memory is no longer used */
};

/* Guards the table and all shares in it. Never held while a release runs. */
static pthread_mutex_t shares_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t
    shares_changed; /* a count has fallen or a share has ended; made by init_once */
static pthread_once_t shares_once = PTHREAD_ONCE_INIT;
static gpufi_share *shares;
static uint64_t last_generation;

static pthread_mutex_t identity_lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static bool has_identity;
static uint8_t own_service[GPUFI_SHARE_ID_NBYTES];
static uint64_t own_start_time;

gpuf_status gpufi_share_own_identity(gpufi_share_fields *fields, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  pthread_mutex_lock(&identity_lock);
  if (!has_identity) {
    own_start_time = gpufi_process_start_time(getpid());
    has_identity = gpufi_random_bytes(own_service, sizeof(own_service));
  }
  if (!has_identity) {
    status = gpufi_fail(err, GPUF_ERR_IO, errno, "getrandom for a share: %s", strerror(errno));
  }
  memcpy(fields->service, own_service, sizeof(own_service));
  fields->process_id = getpid();
  fields->start_time = own_start_time;
  pthread_mutex_unlock(&identity_lock);
  return status;
}

bool gpufi_share_is_own(const uint8_t *service) {
  pthread_mutex_lock(&identity_lock);
  const bool own = has_identity && memcmp(service, own_service, sizeof(own_service)) == 0;
  pthread_mutex_unlock(&identity_lock);
  return own;
}

/* Called with the lock held. */
static gpufi_share *find(uint64_t generation) {
  gpufi_share *share = shares;
  while (share && share->generation != generation) {
    share = share->next;
  }
  return share;
}

/* The share of the allocation that begins at d_base, or NULL. Called with the lock held. */
static gpufi_share *find_allocation(gpuf_device device, const void *d_base) {
  gpufi_share *share = shares;
  while (share && (share->ending || share->memory.d_base != d_base ||
                   share->memory.tensor.device.kind != device.kind)) {
    share = share->next;
  }
  return share;
}

static gpuf_status check_free(gpuf_device device, const void *d_ptr, gpuf_error *err) {
  pthread_mutex_lock(&shares_lock);
  const gpufi_share *share = find_allocation(device, d_ptr);
  const int32_t importer_count = share ? share->importer_count : 0;
  pthread_mutex_unlock(&shares_lock);
  if (!share) {
    return GPUF_OK;
  }
  return gpufi_fail(err, GPUF_ERR_STATE, 0,
                    "%p is shared with other processes (%" PRId32 " attached now); call "
                    "gpuf_unshare and wait until it returns GPUF_OK before the memory is freed",
                    d_ptr, importer_count);
}

static void init_once(void) {
  static gpufi_free_guard guard = {.check = check_free};
  gpufi_condition_init(&shares_changed);
  gpufi_free_guard_add(&guard);
}

/* End a share that is withdrawn and has no importers. Called after either has become so, with the
 * lock held, which is released while `release` runs. */
static void end_if_unused(gpufi_share *share) {
  gpufi_share_memory *const memory = &share->memory;
  pthread_cond_broadcast(&shares_changed);
  if (share->importer_count > 0 || !share->withdrawn || share->ending) {
    return;
  }
  share->ending = true;
  pthread_mutex_unlock(&shares_lock);
  /* It was written before it was shared, and those who read it are gone. */
  gpufi_free_idle(memory->tensor.device, memory->d_copy);
  if (memory->options.release) {
    memory->options.release(memory->options.release_arg);
  }
  pthread_mutex_lock(&shares_lock);
  gpufi_share **link = &shares;
  while (*link != share) {
    link = &(*link)->next;
  }
  *link = share->next;
  free(share);
  pthread_cond_broadcast(&shares_changed);
}

/* Refuse elements outside the allocation here, because every importer would. */
static gpuf_status check_handle(const gpuf_share_handle *handle, gpuf_error *err) {
  gpuf_error inner;
  if (gpufi_share_decode(handle, NULL, &inner) == GPUF_OK) {
    return GPUF_OK;
  }
  return gpufi_fail(err, GPUF_ERR_INVALID, 0, "the tensor cannot be shared: %.900s", inner.message);
}

gpuf_status gpufi_share_add(const gpufi_share_memory *memory, gpufi_share_fields *fields,
                            gpuf_share_handle *handle, gpuf_error *err) {
  pthread_once(&shares_once, init_once);
  gpufi_share *const share = calloc(1, sizeof(*share));
  if (!share) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for a share's record");
  }
  share->memory = *memory;
  pthread_mutex_lock(&shares_lock);
  fields->generation = share->generation = last_generation + 1;
  gpufi_share_encode(fields, &share->handle);
  const gpuf_status status = check_handle(&share->handle, err);
  if (status == GPUF_OK) {
    last_generation++;
    share->next = shares;
    shares = share;
    *handle = share->handle;
  }
  pthread_mutex_unlock(&shares_lock);
  if (status != GPUF_OK) {
    free(share);
  }
  return status;
}

bool gpufi_share_find_name(gpuf_device device, const gpufi_ipc_allocation *allocation,
                           uint8_t *name) {
  gpufi_share_fields fields;
  pthread_mutex_lock(&shares_lock);
  const gpufi_share *share = find_allocation(device, allocation->d_base);
  const bool found = share && gpufi_share_decode(&share->handle, &fields, NULL) == GPUF_OK &&
                     fields.allocation_nbytes == allocation->nbytes;
  pthread_mutex_unlock(&shares_lock);
  if (found) {
    memcpy(name, fields.name, sizeof(fields.name));
  }
  return found;
}

bool gpufi_share_withdraw(uint64_t generation, int64_t timeout_ns, int32_t *importer_count) {
  const struct timespec deadline = gpufi_deadline_after(timeout_ns < 0 ? 0 : timeout_ns);
  int code = 0;
  pthread_once(&shares_once, init_once);
  pthread_mutex_lock(&shares_lock);
  gpufi_share *share = find(generation);
  if (share && !share->withdrawn) {
    share->withdrawn = true;
    end_if_unused(share);
  }
  while (code == 0 && timeout_ns != 0 && find(generation)) {
    code = timeout_ns < 0 ? pthread_cond_wait(&shares_changed, &shares_lock)
                          : pthread_cond_timedwait(&shares_changed, &shares_lock, &deadline);
  }
  share = find(generation);
  *importer_count = share ? share->importer_count : 0;
  pthread_mutex_unlock(&shares_lock);
  return !share;
}

bool gpufi_share_count_importers(uint64_t generation, int32_t *importer_count) {
  pthread_mutex_lock(&shares_lock);
  const gpufi_share *share = find(generation);
  if (share) {
    *importer_count = share->importer_count;
  }
  pthread_mutex_unlock(&shares_lock);
  return share != NULL;
}

/* Compare in a time that does not depend on the bytes, and so tells nothing about the token. */
static bool same_bytes(const uint8_t *a, const uint8_t *b, size_t nbytes) {
  uint8_t difference = 0;
  for (size_t i = 0; i < nbytes; i++) {
    difference |= a[i] ^ b[i];
  }
  return difference == 0;
}

/* What to answer to a handle that decodes. Called with the lock held. */
static gpufi_share_answer judge(const gpufi_share *share, const gpuf_share_handle *handle,
                                uint64_t generation) {
  if (!share) {
    return generation <= last_generation ? GPUFI_SHARE_STALE : GPUFI_SHARE_FORGED;
  }
  if (share->handle.nbytes != handle->nbytes ||
      !same_bytes(share->handle.bytes, handle->bytes, handle->nbytes)) {
    return GPUFI_SHARE_FORGED;
  }
  if (share->withdrawn) {
    return GPUFI_SHARE_STALE;
  }
  return share->importer_count == INT32_MAX ? GPUFI_SHARE_FULL : GPUFI_SHARE_GRANTED;
}

gpufi_share_answer gpufi_share_acquire(const uint8_t *bytes, size_t nbytes, gpufi_share **out) {
  gpuf_share_handle handle = {0};
  gpufi_share_fields fields;
  if (nbytes > sizeof(handle.bytes)) {
    return GPUFI_SHARE_FORGED;
  }
  handle.nbytes = (uint32_t)nbytes;
  memcpy(handle.bytes, bytes, nbytes);
  if (gpufi_share_decode(&handle, &fields, NULL) != GPUF_OK ||
      !gpufi_share_is_own(fields.service)) {
    return GPUFI_SHARE_FORGED;
  }
  pthread_mutex_lock(&shares_lock);
  gpufi_share *const share = find(fields.generation);
  const gpufi_share_answer answer = judge(share, &handle, fields.generation);
  if (answer == GPUFI_SHARE_GRANTED) {
    share->importer_count++;
    *out = share;
  }
  pthread_mutex_unlock(&shares_lock);
  return answer;
}

void gpufi_share_release(gpufi_share *share) {
  pthread_mutex_lock(&shares_lock);
  share->importer_count--;
  end_if_unused(share);
  pthread_mutex_unlock(&shares_lock);
}

const gpuf_tensor *gpufi_share_tensor(const gpufi_share *share) {
  return &share->memory.tensor;
}
