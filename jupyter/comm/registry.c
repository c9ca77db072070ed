/* Published tensors. An entry lives until it is not published any more and nobody reads or imports
 * it; then its owner's release is called. */
#include "base/clock.h"
#include "internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- Lifetime ------------------------------------------------------------------------ */

/* Under the lock: take an entry that has no use left out of the list. True if the caller must pass
 * it to entry_free once the lock is open. */
static bool entry_is_over(gpufi_comm_entry *entry) {
  if (entry->published || entry->reader_count > 0 || entry->share_count > 0) {
    return false;
  }
  for (gpufi_comm_entry **link = &entry->comm->entries; *link; link = &(*link)->next) {
    if (*link == entry) {
      *link = entry->next;
      break;
    }
  }
  return true;
}

/* Without the lock: release calls the owner. */
static void entry_free(gpufi_comm_entry *entry) {
  gpufi_comm *comm = entry->comm;
  if (entry->source.release) {
    entry->source.release(entry->source.release_arg);
  }
  free(entry);
  gpufi_comm_unref(comm);
}

static gpufi_comm_entry *entry_create(gpufi_comm *comm, const char *name,
                                      const gpufi_comm_source *source) {
  gpufi_comm_entry *entry = calloc(1, sizeof(*entry));
  if (entry) {
    entry->comm = comm;
    entry->source = *source;
    COMM_SET_TEXT(entry->name, name);
    atomic_fetch_add(&comm->reference_count, 1);
  }
  return entry;
}

/* One use less; `count` is one of the entry's. */
static void entry_drop(gpufi_comm_entry *entry, int32_t *count) {
  gpufi_comm *comm = entry->comm;
  pthread_mutex_lock(&comm->lock);
  --*count;
  const bool over = entry_is_over(entry);
  pthread_cond_broadcast(&comm->changed);
  pthread_mutex_unlock(&comm->lock);
  if (over) {
    entry_free(entry);
  }
}

void gpufi_comm_entry_release(gpufi_comm_entry *entry) {
  entry_drop(entry, &entry->reader_count);
}

void gpufi_comm_entry_share_begin(gpufi_comm_entry *entry) {
  pthread_mutex_lock(&entry->comm->lock);
  entry->share_count++;
  pthread_mutex_unlock(&entry->comm->lock);
}

void gpufi_comm_entry_share_end(void *arg) {
  gpufi_comm_entry *entry = arg;
  entry_drop(entry, &entry->share_count);
}

/* --- Finding ------------------------------------------------------------------------- */

/* Under the lock: where the published entry of a name is linked, or would be. */
static gpufi_comm_entry **entry_link(gpufi_comm *comm, const char *name) {
  gpufi_comm_entry **link = &comm->entries;
  while (*link && (strcmp((*link)->name, name) < 0 ||
                   (strcmp((*link)->name, name) == 0 && !(*link)->published))) {
    link = &(*link)->next;
  }
  return link;
}

static gpufi_comm_entry *entry_find(gpufi_comm *comm, const char *name) {
  gpufi_comm_entry *entry = *entry_link(comm, name);
  return entry && strcmp(entry->name, name) == 0 ? entry : NULL;
}

/* Ask the transport's resolver. */
static gpufi_comm_code resolve(gpufi_comm *comm, const gpufi_comm_request *request,
                               gpufi_comm_entry **entry, gpuf_error *err) {
  gpufi_comm_source source = {0};
  gpuf_error cause = {0};
  const gpuf_status status =
      comm->options.resolve
          ? comm->options.resolve(comm->options.arg, request->name, &source, &cause)
          : GPUF_ERR_INVALID;
  if (status != GPUF_OK) {
    const bool unknown = status == GPUF_ERR_INVALID;
    return COMM_FAIL(err, unknown ? COMM_UNKNOWN_NAME : COMM_UNREADABLE, "%s %s%s%s",
                     unknown ? "no tensor" : "cannot read", request->name,
                     cause.message[0] ? ": " : "",
                     cause.message[0] ? cause.message : ": the operation list gives the names");
  }
  *entry = entry_create(comm, request->name, &source);
  if (!*entry) {
    if (source.release) {
      source.release(source.release_arg);
    }
    return COMM_FAIL(err, COMM_BUSY, "no memory for a request: ask again later");
  }
  pthread_mutex_lock(&comm->lock);
  gpufi_comm_entry **link = entry_link(comm, request->name);
  (*entry)->reader_count = 1;
  (*entry)->next = *link;
  *link = *entry;
  pthread_mutex_unlock(&comm->lock);
  return COMM_OK;
}

gpufi_comm_code gpufi_comm_entry_acquire(gpufi_comm *comm, const gpufi_comm_request *request,
                                         gpufi_comm_entry **entry, gpuf_tensor *tensor,
                                         gpuf_error *err) {
  gpufi_comm_code code = COMM_OK;
  pthread_mutex_lock(&comm->lock);
  gpufi_comm_entry *found = entry_find(comm, request->name);
  if (found) {
    found->reader_count++;
    *tensor = found->source.tensor;
    if (!request->at_step) {
      tensor->stream = GPUF_STREAM_NONE; /* the owner's stream is left alone */
    }
  }
  pthread_mutex_unlock(&comm->lock);
  if (!found) {
    code = resolve(comm, request, &found, err);
    if (code == COMM_OK) {
      *tensor = found->source.tensor;
    }
  }
  if (code == COMM_OK && request->has_generation && found->generation != request->generation) {
    code = COMM_FAIL(err, COMM_STALE,
                     "%s is of generation %" PRIu64 ", not %" PRIu64
                     ": its shape, type or place has changed, look at it again with list",
                     request->name, found->generation, request->generation);
    gpufi_comm_entry_release(found);
  }
  *entry = code == COMM_OK ? found : NULL;
  return code;
}

/* --- Publishing ---------------------------------------------------------------------- */

static bool same_type(const gpuf_tensor *a, const gpuf_tensor *b) {
  return a->dtype == b->dtype && a->ndim == b->ndim && a->device.kind == b->device.kind &&
         a->device.index == b->device.index &&
         memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(a->shape[0])) == 0;
}

bool gpufi_comm_same_memory(const gpuf_tensor *a, const gpuf_tensor *b) {
  return same_type(a, b) && a->data == b->data &&
         memcmp(a->strides_nbytes, b->strides_nbytes,
                (size_t)a->ndim * sizeof(a->strides_nbytes[0])) == 0;
}

static bool same_block(const gpufi_comm_source *a, const gpufi_comm_source *b) {
  const size_t nbytes = (size_t)a->tensor.ndim * sizeof(a->block.start[0]);
  return a->block.is_given == b->block.is_given &&
         memcmp(a->block.global_shape, b->block.global_shape, nbytes) == 0 &&
         memcmp(a->block.start, b->block.start, nbytes) == 0;
}

/* The block that the options give, checked: it lies inside an array whose size can be told. */
static gpuf_status take_block(const gpufi_comm_publish_options *options, const char *name,
                              const gpuf_tensor *tensor, gpufi_comm_block *block, gpuf_error *err) {
  int64_t nbytes = (int64_t)gpuf_dtype_nbytes(tensor->dtype);
  if (!options->global_shape && !options->start) {
    return GPUF_OK;
  }
  if (!options->global_shape || !options->start) {
    return gpufi_fail(
        err, GPUF_ERR_INVALID, 0, "%s has %s and no %s: give both, or neither for a whole array",
        name, options->start ? "start" : "global_shape", options->start ? "global_shape" : "start");
  }
  block->is_given = true;
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    const int64_t length = options->global_shape[axis], start = options->start[axis];
    if (start < 0 || tensor->shape[axis] > length || start > length - tensor->shape[axis]) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "axis %" PRId32 " of %s covers %" PRId64 " indices from start %" PRId64
                        ", which are not inside the global length %" PRId64,
                        axis, name, tensor->shape[axis], start, length);
    }
    if (length > 0 && __builtin_mul_overflow(nbytes, length, &nbytes)) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0, "the global shape of %s has over 2^63 bytes",
                        name);
    }
    block->global_shape[axis] = length;
    block->start[axis] = start;
  }
  return GPUF_OK;
}

/* Under the lock: put `entry` in place of the one that has the name, which goes to *old. False if
 * there are too many. */
static bool entry_install(gpufi_comm *comm, gpufi_comm_entry *entry, gpufi_comm_entry **old) {
  gpufi_comm_entry **link = entry_link(comm, entry->name);
  *old = *link && strcmp((*link)->name, entry->name) == 0 ? *link : NULL;
  if (!*old && comm->counts.tensor_count >= comm->options.tensor_max) {
    return false;
  }
  if (*old && same_type(&(*old)->source.tensor, &entry->source.tensor) &&
      same_block(&(*old)->source, &entry->source)) {
    entry->generation = (*old)->generation;
  } else {
    entry->generation = ++comm->last_generation;
  }
  comm->counts.tensor_count += *old == NULL;
  entry->published = true;
  entry->next = *link;
  *link = entry;
  if (*old) {
    (*old)->published = false;
    (*old)->reader_count++; /* until it is let go of without the lock */
  }
  return true;
}

/* A tensor that is published every step, unchanged but for its stream and owner, stays the same
 * entry, so that shares of it go on. */
static bool republish(gpufi_comm *comm, const char *name, const gpufi_comm_source *source) {
  gpufi_comm_source old = {0};
  pthread_mutex_lock(&comm->lock);
  gpufi_comm_entry *entry = entry_find(comm, name);
  const bool same = entry && gpufi_comm_same_memory(&entry->source.tensor, &source->tensor) &&
                    same_block(&entry->source, source);
  if (same) {
    old = entry->source;
    entry->source = *source;
  }
  pthread_mutex_unlock(&comm->lock);
  if (old.release) {
    old.release(old.release_arg); /* the new owner keeps the memory for those who read it */
  }
  return same;
}

gpuf_status gpufi_comm_name_check(const char *name, gpuf_error *err) {
  const size_t nbytes = name ? strlen(name) : 0;
  json_t *text = name ? json_string(name) : NULL; /* NULL for what is not UTF-8 */
  json_decref(text);
  if (!text || !gpufi_comm_name_valid(name, nbytes)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "a name of %zu bytes; it must be UTF-8 of 1 to %d bytes without control "
                      "characters",
                      nbytes, GPUFI_COMM_NAME_MAX_NBYTES);
  }
  return GPUF_OK;
}

gpuf_status gpufi_comm_publish(gpufi_comm *comm, const char *name, const gpuf_tensor *tensor,
                               const gpufi_comm_publish_options *options, gpuf_error *err) {
  gpufi_comm_source source = {.tensor = *tensor};
  gpufi_comm_entry *old = NULL;
  gpuf_status status = gpufi_comm_name_check(name, err);
  if (status == GPUF_OK) {
    status = gpuf_tensor_check(tensor, err);
  }
  if (status == GPUF_OK && options) {
    status = take_block(options, name, tensor, &source.block, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  if (options) {
    snprintf(source.framework, sizeof(source.framework), "%s",
             options->framework ? options->framework : "");
    source.release = options->release;
    source.release_arg = options->release_arg;
  }
  if (republish(comm, name, &source)) {
    return GPUF_OK;
  }
  gpufi_comm_entry *entry = entry_create(comm, name, &source);
  if (!entry) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory to publish %s", name);
  }
  pthread_mutex_lock(&comm->lock);
  const bool installed = entry_install(comm, entry, &old);
  pthread_mutex_unlock(&comm->lock);
  if (!installed) {
    entry->source.release = NULL;
    entry_free(entry);
    return gpufi_fail(err, GPUF_ERR_STATE, 0,
                      "%" PRId32 " tensors are published; unpublish some before %s, or raise "
                      "tensor_max",
                      comm->options.tensor_max, name);
  }
  if (old) {
    gpufi_comm_shares_withdraw(comm, 0, NULL, old);
    gpufi_comm_entry_release(old);
  }
  return GPUF_OK;
}

/* --- Withdrawing ---------------------------------------------------------------------- */

/* Under the lock: uses of the entries that had a name (NULL = any) and are not published. */
static int32_t count_uses(const gpufi_comm *comm, const char *name, bool of_shares) {
  int32_t count = 0;
  for (const gpufi_comm_entry *entry = comm->entries; entry; entry = entry->next) {
    if (!entry->published && (!name || strcmp(entry->name, name) == 0)) {
      count += of_shares ? entry->share_count : entry->reader_count;
    }
  }
  return count;
}

/* Under the lock. */
static gpuf_status wait_for_uses(gpufi_comm *comm, const char *name, int64_t timeout_ns,
                                 gpuf_error *err) {
  const struct timespec deadline = gpufi_deadline_after(timeout_ns < 0 ? 0 : timeout_ns);
  int waited = 0;
  while (count_uses(comm, name, false) > 0) {
    pthread_cond_wait(&comm->changed, &comm->lock);
  }
  while (count_uses(comm, name, true) > 0 && waited == 0) {
    waited = timeout_ns < 0 ? pthread_cond_wait(&comm->changed, &comm->lock)
                            : pthread_cond_timedwait(&comm->changed, &comm->lock, &deadline);
  }
  const int32_t left = count_uses(comm, name, true);
  return left == 0 ? GPUF_OK
                   : gpufi_fail(err, GPUF_ERR_TIMEOUT, 0,
                                "other processes still use %" PRId32 " shares of %s: keep the "
                                "memory until they let go, and call again to wait longer",
                                left, name ? name : "the published tensors");
}

/* Withdraw one published entry by name (NULL = any); false if there is none. */
static bool withdraw(gpufi_comm *comm, const char *name) {
  pthread_mutex_lock(&comm->lock);
  gpufi_comm_entry *entry = comm->entries;
  while (entry && !(entry->published && (!name || strcmp(entry->name, name) == 0))) {
    entry = entry->next;
  }
  if (entry) {
    entry->published = false;
    entry->reader_count++;
    comm->counts.tensor_count--;
  }
  pthread_mutex_unlock(&comm->lock);
  if (entry) {
    gpufi_comm_shares_withdraw(comm, 0, NULL, entry);
    gpufi_comm_entry_release(entry);
  }
  return entry != NULL;
}

gpuf_status gpufi_comm_unpublish(gpufi_comm *comm, const char *name, int64_t timeout_ns,
                                 gpuf_error *err) {
  gpuf_status status = gpufi_comm_name_check(name, err);
  if (status != GPUF_OK) {
    return status;
  }
  bool known = withdraw(comm, name);
  known |= gpufi_comm_value_remove(comm, name);
  pthread_mutex_lock(&comm->lock);
  known |= count_uses(comm, name, true) > 0; /* a second call, after a timeout */
  status = known ? wait_for_uses(comm, name, timeout_ns, err)
                 : gpufi_fail(err, GPUF_ERR_INVALID, 0, "nothing is published as %s", name);
  pthread_mutex_unlock(&comm->lock);
  return status;
}

gpuf_status gpufi_comm_registry_clear(gpufi_comm *comm, int64_t timeout_ns, gpuf_error *err) {
  while (withdraw(comm, NULL)) {
  }
  pthread_mutex_lock(&comm->lock);
  const gpuf_status status = wait_for_uses(comm, NULL, timeout_ns, err);
  pthread_mutex_unlock(&comm->lock);
  return status;
}
