/* The exporter's table of shares: see share.h. */
#include "core/share.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "core/runtime.h"

struct gpufi_share {
  gpufi_share *next;
  gpuf_share_handle handle; /* what an importer must show, byte for byte */
  gpuf_tensor tensor;
  uint64_t generation;
  const void *d_base; /* of the allocation; NULL when there is none */
  void *d_copy;       /* memory that the share owns, or NULL */
  gpuf_share_options options;
  int32_t importer_count;
  bool withdrawn;
  bool ending; /* release runs; nobody uses the memory */
};

/* Guards the table and all shares in it. Never held while a release runs. */
static pthread_mutex_t shares_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t shares_changed; /* a count fell or a share left; made by init_once */
static pthread_once_t shares_once = PTHREAD_ONCE_INIT;
static gpufi_share *shares;
static uint64_t last_generation;

static void init_once(void) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&shares_changed, &attributes);
  pthread_condattr_destroy(&attributes);
}

static gpufi_share *find(uint64_t generation) {
  gpufi_share *share = shares;
  while (share && share->generation != generation) {
    share = share->next;
  }
  return share;
}

/* Called with the lock held, which it lets go for a while, when a count has fallen or a share was
 * withdrawn. */
static void end_if_unused(gpufi_share *share) {
  pthread_cond_broadcast(&shares_changed);
  if (share->importer_count > 0 || !share->withdrawn || share->ending) {
    return;
  }
  share->ending = true;
  pthread_mutex_unlock(&shares_lock);
  gpuf_free(share->tensor.device, share->d_copy, NULL); /* fails with the device, if at all */
  if (share->options.release) {
    share->options.release(share->options.release_arg);
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

static bool same_bytes(const uint8_t *a, const uint8_t *b, size_t nbytes) {
  uint8_t difference = 0; /* in a time that tells nothing of the token */
  for (size_t i = 0; i < nbytes; i++) {
    difference |= a[i] ^ b[i];
  }
  return difference == 0;
}

gpufi_share_answer gpufi_share_acquire(const uint8_t *bytes, size_t nbytes, gpufi_share **out) {
  gpuf_share_handle handle = {0};
  gpufi_share_fields fields;
  gpufi_share_answer answer = GPUFI_SHARE_FORGED;
  if (nbytes > sizeof(handle.bytes)) {
    return GPUFI_SHARE_FORGED;
  }
  handle.nbytes = (uint32_t)nbytes;
  memcpy(handle.bytes, bytes, nbytes);
  if (gpufi_share_decode(&handle, &fields, NULL) != GPUF_OK ||
      !gpufi_share_service_is_own(fields.service)) {
    return GPUFI_SHARE_FORGED;
  }
  pthread_mutex_lock(&shares_lock);
  gpufi_share *share = find(fields.generation);
  if (!share) {
    answer = fields.generation <= last_generation ? GPUFI_SHARE_STALE : GPUFI_SHARE_FORGED;
  } else if (share->handle.nbytes == nbytes && same_bytes(share->handle.bytes, bytes, nbytes)) {
    answer = share->withdrawn                     ? GPUFI_SHARE_STALE
             : share->importer_count == INT32_MAX ? GPUFI_SHARE_FULL
                                                  : GPUFI_SHARE_GRANTED;
  }
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
  return &share->tensor;
}

gpuf_status gpufi_share_allows_free(gpuf_device device, const void *d_ptr, gpuf_error *err) {
  pthread_mutex_lock(&shares_lock);
  const gpufi_share *share = shares;
  while (share &&
         (share->ending || share->d_base != d_ptr || share->tensor.device.kind != device.kind)) {
    share = share->next;
  }
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

/* --- gpuf_share ------------------------------------------------------------- */

/* A driver may leave bytes of a name undefined. Importers tell blocks apart by name, so a block has
 * one as long as any share needs it. */
static void reuse_name(gpuf_device device, gpufi_ipc_block *block) {
  gpufi_share_fields fields;
  pthread_mutex_lock(&shares_lock);
  const gpufi_share *share = shares;
  while (share && (share->ending || share->d_base != block->d_base ||
                   share->tensor.device.kind != device.kind)) {
    share = share->next;
  }
  if (share && gpufi_share_decode(&share->handle, &fields, NULL) == GPUF_OK &&
      fields.allocation_nbytes == block->nbytes) {
    memcpy(block->name, fields.name, sizeof(block->name));
  }
  pthread_mutex_unlock(&shares_lock);
}

/* Where the tensor's elements lie, as a handle says it. */
static gpuf_status describe(const gpufi_backend *backend, const gpuf_tensor *tensor,
                            gpufi_share_fields *fields, const void **d_base, gpuf_error *err) {
  gpufi_ipc_block block;
  fields->tensor = *tensor;
  fields->tensor.data = NULL;
  gpuf_status status = backend->ipc_identity(tensor->device.index, fields->identity, err);
  *d_base = NULL;
  if (status != GPUF_OK || gpuf_tensor_count(tensor) == 0) {
    return status; /* no elements: nothing to open, and the pointer may mean nothing */
  }
  if (gpufi_share_is_attached(tensor->device.kind, tensor->data)) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "%p is attached memory of another process; share it from that process, or "
                      "share a copy (gpuf_share_options.copy; Python: share(x, copy=True))",
                      tensor->data);
  }
  memset(&block, 0, sizeof(block));
  status = backend->ipc_export(tensor->device.index, tensor->data, &block, err);
  if (status == GPUF_OK) {
    reuse_name(tensor->device, &block);
    memcpy(fields->name, block.name, sizeof(fields->name));
    fields->allocation_nbytes = block.nbytes;
    fields->offset_nbytes = (uint64_t)((uintptr_t)tensor->data - (uintptr_t)block.d_base);
    *d_base = block.d_base;
  }
  return status;
}

/* An importer would refuse elements outside the allocation: better to say so here. */
static gpuf_status check_handle(const gpuf_share_handle *handle, gpuf_error *err) {
  gpufi_share_fields fields;
  gpuf_error inner;
  if (gpufi_share_decode(handle, &fields, &inner) == GPUF_OK) {
    return GPUF_OK;
  }
  return gpufi_fail(err, GPUF_ERR_INVALID, 0, "the tensor cannot be shared: %.900s", inner.message);
}

static gpuf_status random_bytes(void *bytes, size_t nbytes, gpuf_error *err) {
  if (getrandom(bytes, nbytes, 0) != (ssize_t)nbytes) {
    return gpufi_fail(err, GPUF_ERR_IO, errno, "getrandom: %s", strerror(errno));
  }
  return GPUF_OK;
}

/* The elements on a stream of their own, packed, once the tensor's work is done. */
static gpuf_status pack(const gpufi_backend *backend, const gpuf_tensor *tensor, void *d_copy,
                        gpuf_error *err) {
  gpufi_strided layout;
  gpuf_stream stream;
  gpuf_status status = backend->stream_create(tensor->device.index, &stream, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_strided_init(&layout, tensor);
  status = backend->pack(tensor->device.index, &layout, tensor->data, 0, gpuf_tensor_count(tensor),
                         d_copy, stream, err);
  if (status == GPUF_OK) {
    status = backend->stream_synchronize(tensor->device.index, stream, err);
  }
  backend->stream_destroy(tensor->device.index, stream, NULL);
  return status;
}

/* Let `tensor` describe a packed copy in memory of its own, *d_copy. */
static gpuf_status copy_packed(const gpufi_backend *backend, gpuf_tensor *tensor, void **d_copy,
                               gpuf_error *err) {
  gpuf_tensor packed;
  gpuf_status status = gpuf_alloc(tensor->device, gpuf_tensor_nbytes(tensor), d_copy, err);
  if (status == GPUF_OK) {
    status = gpuf_tensor_init(&packed, *d_copy, tensor->device, tensor->dtype, tensor->ndim,
                              tensor->shape, err);
  }
  if (status == GPUF_OK && gpuf_tensor_count(tensor) > 0) {
    status = pack(backend, tensor, *d_copy, err);
  }
  if (status == GPUF_OK) {
    *tensor = packed;
  }
  return status;
}

static gpuf_status check_tensor(const gpuf_tensor *tensor, const gpufi_backend **backend,
                                gpuf_error *err) {
  const gpuf_status status = gpuf_tensor_check(tensor, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (tensor->device.kind == GPUF_DEVICE_CPU) {
    gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
               "memory of the CPU is not shared; copy it to a device first (Python: to_device)");
    return GPUF_ERR_UNSUPPORTED;
  }
  return gpufi_backend_for(tensor->device, backend, err);
}

/* Make the tensor ready and describe it: share->tensor, d_base and d_copy, and `fields`. */
static gpuf_status prepare(gpufi_share *share, gpufi_share_fields *fields, gpuf_error *err) {
  gpuf_tensor *tensor = &share->tensor;
  const gpufi_backend *backend = NULL;
  gpuf_status status = check_tensor(tensor, &backend, err);
  if (status == GPUF_OK && tensor->stream != GPUF_STREAM_NONE) {
    status = backend->stream_synchronize(tensor->device.index, tensor->stream, err);
    tensor->stream = GPUF_STREAM_NONE;
  }
  if (status == GPUF_OK && share->options.copy) {
    status = copy_packed(backend, tensor, &share->d_copy, err);
  }
  if (status == GPUF_OK) {
    status = describe(backend, tensor, fields, &share->d_base, err);
  }
  if (status == GPUF_OK) {
    status = random_bytes(fields->token, sizeof(fields->token), err);
  }
  return status == GPUF_OK ? gpufi_share_service_start(fields, err) : status;
}

/* Into the table, with the next generation. */
static gpuf_status enlist(gpufi_share *share, gpufi_share_fields *fields, gpuf_error *err) {
  pthread_mutex_lock(&shares_lock);
  fields->generation = share->generation = last_generation + 1;
  gpufi_share_encode(fields, &share->handle);
  const gpuf_status status = check_handle(&share->handle, err);
  if (status == GPUF_OK) {
    last_generation++;
    share->next = shares;
    shares = share;
  }
  pthread_mutex_unlock(&shares_lock);
  return status;
}

gpuf_status gpuf_share(const gpuf_tensor *tensor, const gpuf_share_options *options,
                       gpuf_share_handle *handle, gpuf_error *err) {
  gpufi_share_fields fields = {0};
  pthread_once(&shares_once, init_once);
  gpufi_share *share = calloc(1, sizeof(*share));
  if (!share) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for a share's record");
  }
  share->tensor = *tensor;
  if (options) {
    share->options = *options;
    fields.readonly = options->readonly;
  }
  gpuf_status status = prepare(share, &fields, err);
  if (status == GPUF_OK) {
    status = enlist(share, &fields, err);
  }
  if (status == GPUF_OK) {
    gpufi_share_encode(&fields, handle);
    return GPUF_OK;
  }
  gpuf_free(share->tensor.device, share->d_copy, NULL);
  free(share);
  return status;
}

/* --- gpuf_unshare ------------------------------------------------------------ */

/* The handle is of this process; *generation is the share's. */
static gpuf_status check_own(const gpuf_share_handle *handle, uint64_t *generation,
                             gpuf_error *err) {
  gpufi_share_fields fields;
  if (gpufi_forked()) {
    return gpufi_refuse_after_fork(err);
  }
  const gpuf_status status = gpufi_share_decode(handle, &fields, err);
  if (status != GPUF_OK) {
    return status;
  }
  *generation = fields.generation;
  if (!gpufi_share_service_is_own(fields.service)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the share was made by process %" PRId64 "; only that process can end it, "
                      "and importers call gpuf_detach",
                      fields.process_id);
  }
  return GPUF_OK;
}

gpuf_status gpuf_unshare(const gpuf_share_handle *handle, int64_t timeout_ns,
                         int32_t *importer_count, gpuf_error *err) {
  uint64_t generation = 0;
  const gpuf_status status = check_own(handle, &generation, err);
  if (status != GPUF_OK) {
    return status;
  }
  const struct timespec deadline = gpufi_deadline_after(timeout_ns < 0 ? 0 : timeout_ns);
  int code = 0;
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
  const int32_t left_count = share ? share->importer_count : 0;
  const bool ended = !share;
  pthread_mutex_unlock(&shares_lock);
  if (importer_count) {
    *importer_count = left_count;
  }
  if (ended) {
    return GPUF_OK;
  }
  return gpufi_fail(err, GPUF_ERR_TIMEOUT, 0,
                    "%" PRId32 " attachments still use the memory; keep it allocated and call "
                    "gpuf_unshare again to wait for them",
                    left_count);
}

gpuf_status gpuf_share_importer_count(const gpuf_share_handle *handle, int32_t *importer_count,
                                      gpuf_error *err) {
  uint64_t generation = 0;
  const gpuf_status status = check_own(handle, &generation, err);
  if (status != GPUF_OK) {
    return status;
  }
  pthread_mutex_lock(&shares_lock);
  const gpufi_share *share = find(generation);
  const int32_t count = share ? share->importer_count : 0;
  pthread_mutex_unlock(&shares_lock);
  if (!share) {
    return gpufi_fail(err, GPUF_ERR_STATE, 0, "share %" PRIu64 " of this process has ended",
                      generation);
  }
  *importer_count = count;
  return GPUF_OK;
}
