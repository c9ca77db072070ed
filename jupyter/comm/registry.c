#include "comm/registry.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Lifetime ------------------------------------------------------------------ */

gpufi_registry *gpufi_registry_create(int32_t tensor_max, int32_t held_max, int64_t hold_ns,
                                      gpufi_resolver *resolve, void *resolve_arg) {
  pthread_condattr_t attributes;
  gpufi_registry *registry = calloc(1, sizeof(*registry));
  if (registry) {
    atomic_init(&registry->reference_count, 1);
    registry->tensor_max = tensor_max;
    registry->held_max = held_max;
    registry->hold_ns = hold_ns;
    registry->resolve = resolve;
    registry->resolve_arg = resolve_arg;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&registry->lock, NULL);
    pthread_cond_init(&registry->changed, &attributes);
    pthread_condattr_destroy(&attributes);
  }
  return registry;
}

void gpufi_registry_unref(gpufi_registry *registry) {
  if (atomic_fetch_sub(&registry->reference_count, 1) == 1) {
    pthread_cond_destroy(&registry->changed);
    pthread_mutex_destroy(&registry->lock);
    free(registry);
  }
}

int32_t gpufi_registry_tensor_count(gpufi_registry *registry) {
  pthread_mutex_lock(&registry->lock);
  const int32_t count = registry->tensor_count;
  pthread_mutex_unlock(&registry->lock);
  return count;
}

static gpufi_entry *entry_create(gpufi_registry *registry, const char *name,
                                 const gpufi_source *source) {
  gpufi_entry *entry = calloc(1, sizeof(*entry));
  if (entry) {
    entry->registry = registry;
    entry->source = *source;
    snprintf(entry->name, sizeof(entry->name), "%s", name);
    atomic_fetch_add(&registry->reference_count, 1);
  }
  return entry;
}

/* Without the lock. The source has been released, or is the caller's. */
static void entry_free(gpufi_entry *entry) {
  gpufi_registry *registry = entry->registry;
  free(entry);
  gpufi_registry_unref(registry);
}

static bool entry_is_over(const gpufi_entry *entry) {
  return !entry->published && entry->reader_count == 0 && entry->share_count == 0 &&
         entry->hold_count == 0;
}

/* Under the lock. */
static void unlink_entry(gpufi_entry *entry) {
  for (gpufi_entry **link = &entry->registry->entries; *link; link = &(*link)->next) {
    if (*link == entry) {
      *link = entry->next;
      break;
    }
  }
}

/* One use less; `count` is one of the entry's. After the last one its owner is called, without the
 * lock. Nobody else uses the entry then, but a wait may free it, which still has to tell its end.
 */
static void entry_drop(gpufi_entry *entry, int32_t *count) {
  gpufi_registry *registry = entry->registry;
  gpufi_source source = {0};
  bool over = false;
  pthread_mutex_lock(&registry->lock);
  --*count;
  if (entry_is_over(entry)) {
    source = entry->source;
    entry->source.release = NULL;
    over = !entry->is_awaited;
  }
  if (over) {
    unlink_entry(entry);
  }
  pthread_cond_broadcast(&registry->changed);
  pthread_mutex_unlock(&registry->lock);
  gpufi_source_release(&source);
  if (over) {
    entry_free(entry);
  }
}

void gpufi_entry_release(gpufi_entry *entry) {
  entry_drop(entry, &entry->reader_count);
}

void gpufi_entry_begin_share(gpufi_entry *entry) {
  pthread_mutex_lock(&entry->registry->lock);
  entry->share_count++;
  pthread_mutex_unlock(&entry->registry->lock);
}

void gpufi_entry_end_share(void *arg) {
  gpufi_entry *entry = arg;
  entry_drop(entry, &entry->share_count);
}

void gpufi_entry_end_hold(gpufi_entry *entry) {
  entry_drop(entry, &entry->hold_count);
}

bool gpufi_entry_is_current(gpufi_entry *entry) {
  pthread_mutex_lock(&entry->registry->lock);
  const bool current = entry->published || entry->generation == 0;
  pthread_mutex_unlock(&entry->registry->lock);
  return current;
}

/* --- Finding ------------------------------------------------------------------- */

/* Under the lock: the link that leads to the published entry of a name, or to where it would be. */
static gpufi_entry **entry_link(gpufi_registry *registry, const char *name) {
  gpufi_entry **link = &registry->entries;
  while (*link && (strcmp((*link)->name, name) < 0 ||
                   (strcmp((*link)->name, name) == 0 && !(*link)->published))) {
    link = &(*link)->next;
  }
  return link;
}

/* Under the lock: the published entry of a name, or NULL. */
static gpufi_entry *entry_find(gpufi_registry *registry, const char *name) {
  gpufi_entry *entry = *entry_link(registry, name);
  return entry && strcmp(entry->name, name) == 0 ? entry : NULL;
}

static gpufi_code resolve(gpufi_registry *registry, const char *name, gpufi_source *source,
                          gpuf_error *err) {
  gpuf_error cause = {0};
  const gpuf_status status = registry->resolve
                                 ? registry->resolve(registry->resolve_arg, name, source, &cause)
                                 : GPUF_ERR_INVALID;
  if (status == GPUF_OK) {
    return CODE_OK;
  }
  const bool unknown = status == GPUF_ERR_INVALID;
  return REFUSE(err, unknown ? CODE_UNKNOWN_NAME : CODE_UNREADABLE, "%s %s%s%s",
                unknown ? "no tensor is published as" : "cannot read", name,
                cause.message[0] ? ": " : "",
                cause.message[0] ? cause.message : ": list gives the names");
}

/* Ask the resolver, and enter what it finds with one reader. */
static gpufi_code entry_resolve(gpufi_registry *registry, const char *name, gpufi_entry **entry,
                                gpuf_error *err) {
  gpufi_source source = {0};
  const gpufi_code code = resolve(registry, name, &source, err);
  if (code != CODE_OK) {
    return code;
  }
  *entry = entry_create(registry, name, &source);
  if (!*entry) {
    gpufi_source_release(&source);
    return REFUSE(err, CODE_BUSY, "no memory for a request: ask again later");
  }
  pthread_mutex_lock(&registry->lock);
  gpufi_entry **link = entry_link(registry, name);
  (*entry)->reader_count = 1;
  (*entry)->publication = ++registry->last_publication;
  (*entry)->next = *link;
  *link = *entry;
  pthread_mutex_unlock(&registry->lock);
  return CODE_OK;
}

/* Under the lock: what is held for a request, NULL if nothing is; its time begins anew. */
static gpufi_entry *find_held(gpufi_registry *registry, const gpufi_request *request) {
  if (request->publication == 0 || request->at_step) { /* its stream may be gone */
    return NULL;
  }
  for (gpufi_hold **link = &registry->holds; *link; link = &(*link)->next) {
    gpufi_hold *hold = *link;
    if (hold->client == request->client && hold->entry->publication == request->publication &&
        strcmp(hold->entry->name, request->name) == 0) {
      hold->used_ns = gpufi_clock_ns();
      *link = hold->next;
      hold->next = registry->holds;
      registry->holds = hold;
      return hold->entry;
    }
  }
  return NULL;
}

/* Whether an entry is the one that a request names. */
static gpufi_code check_numbers(const gpufi_request *request, const gpufi_entry *entry,
                                gpuf_error *err) {
  if (request->generation != 0 && entry->generation != request->generation) {
    return REFUSE(err, CODE_STALE,
                  "%s is of generation %" PRId64 ", not %" PRId64
                  ": its shape, type or place has changed, look it up anew",
                  request->name, entry->generation, request->generation);
  }
  if (request->publication != 0 && entry->publication != request->publication) {
    return REFUSE(err, CODE_STALE,
                  "%s is publication %" PRId64 ", and %" PRId64
                  " is not held: begin again, from fragment 0",
                  request->name, entry->publication, request->publication);
  }
  return CODE_OK;
}

gpufi_code gpufi_entry_acquire(gpufi_registry *registry, const gpufi_request *request,
                               gpufi_entry **entry, gpuf_tensor *tensor, gpuf_error *err) {
  gpuf_error cause = {0};
  gpufi_code code = CODE_OK;
  pthread_mutex_lock(&registry->lock);
  gpufi_entry *found = find_held(registry, request);
  if (!found) {
    found = entry_find(registry, request->name);
  }
  /* Under the lock, since publishing the memory again may end the attachment. */
  if (found &&
      (gpufi_source_check(&found->source, &cause) != GPUF_OK ||
       (request->at_step && gpufi_source_check_stream(&found->source, &cause) != GPUF_OK))) {
    pthread_mutex_unlock(&registry->lock);
    return REFUSE(err, CODE_UNREADABLE, "cannot read %s: %s", request->name, cause.message);
  }
  if (found) {
    found->reader_count++;
    *tensor = found->source.tensor;
    if (!request->at_step) {
      tensor->stream = GPUF_STREAM_NONE; /* a live read does not wait for the owner's work */
    }
  }
  pthread_mutex_unlock(&registry->lock);
  if (!found) {
    code = entry_resolve(registry, request->name, &found, err);
    if (code == CODE_OK) {
      *tensor = found->source.tensor;
    }
  }
  if (code == CODE_OK) {
    code = check_numbers(request, found, err);
    if (code != CODE_OK) {
      gpufi_entry_release(found);
    }
  }
  *entry = code == CODE_OK ? found : NULL;
  return code;
}

/* --- Publishing ---------------------------------------------------------------- */

/* Under the lock: put `entry` in place of the one that has the name, which goes to *old with a
 * reader counted. False if too many are published. */
static bool entry_install(gpufi_registry *registry, gpufi_entry *entry, gpufi_entry **old) {
  gpufi_entry **link = entry_link(registry, entry->name);
  *old = *link && strcmp((*link)->name, entry->name) == 0 ? *link : NULL;
  if (!*old && registry->tensor_count >= registry->tensor_max) {
    return false;
  }
  entry->generation = *old && gpufi_source_same_type(&(*old)->source, &entry->source)
                          ? (*old)->generation
                          : ++registry->last_generation;
  entry->publication = ++registry->last_publication;
  registry->tensor_count += *old == NULL;
  entry->published = true;
  entry->next = *link;
  *link = entry;
  if (*old) {
    (*old)->published = false;
    (*old)->reader_count++;
  }
  return true;
}

/* A tensor that is published every step, unchanged but for its stream and owner, stays the same
 * entry, so that shares of it go on. */
static bool republish(gpufi_registry *registry, const char *name, const gpufi_source *source) {
  gpufi_source old = {0};
  pthread_mutex_lock(&registry->lock);
  gpufi_entry *entry = entry_find(registry, name);
  const bool same = entry && gpufi_source_same_memory(&entry->source, source);
  if (same) {
    old = entry->source;
    entry->source = *source;
  }
  pthread_mutex_unlock(&registry->lock);
  gpufi_source_release(&old); /* the new owner keeps the memory for those who read it */
  return same;
}

gpuf_status gpufi_registry_put(gpufi_registry *registry, const char *name,
                               const gpufi_source *source, gpufi_entry **replaced,
                               gpuf_error *err) {
  *replaced = NULL;
  if (republish(registry, name, source)) {
    return GPUF_OK;
  }
  gpufi_entry *entry = entry_create(registry, name, source);
  if (!entry) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory to publish %s", name);
  }
  pthread_mutex_lock(&registry->lock);
  const bool installed = entry_install(registry, entry, replaced);
  pthread_mutex_unlock(&registry->lock);
  if (!installed) {
    entry_free(entry);
    return gpufi_fail(err, GPUF_ERR_STATE, 0,
                      "%" PRId32 " tensors are published, the most at a time: unpublish some "
                      "before %s",
                      registry->tensor_max, name);
  }
  return GPUF_OK;
}

gpufi_entry *gpufi_registry_take(gpufi_registry *registry, const char *name) {
  pthread_mutex_lock(&registry->lock);
  gpufi_entry *entry = registry->entries;
  while (entry && !(entry->published && (!name || strcmp(entry->name, name) == 0))) {
    entry = entry->next;
  }
  if (entry) {
    entry->published = false;
    entry->reader_count++;
    registry->tensor_count--;
  }
  pthread_mutex_unlock(&registry->lock);
  return entry;
}

/* --- Waiting for uses to end --------------------------------------------------- */

/* Under the lock: uses of the entries that had a name (NULL = any) and are not published. */
static int32_t count_uses(const gpufi_registry *registry, const char *name, bool of_shares) {
  int32_t count = 0;
  for (const gpufi_entry *entry = registry->entries; entry; entry = entry->next) {
    if (!entry->published && (!name || strcmp(entry->name, name) == 0)) {
      count += of_shares ? entry->share_count : entry->reader_count;
    }
  }
  return count;
}

bool gpufi_registry_is_awaited(gpufi_registry *registry, const char *name) {
  bool some = false;
  pthread_mutex_lock(&registry->lock);
  for (const gpufi_entry *entry = registry->entries; entry && !some; entry = entry->next) {
    some = !entry->published && strcmp(entry->name, name) == 0 &&
           (entry->share_count > 0 || entry->is_awaited);
  }
  pthread_mutex_unlock(&registry->lock);
  return some;
}

bool gpufi_registry_has(gpufi_registry *registry, const char *name) {
  pthread_mutex_lock(&registry->lock);
  const bool has = entry_find(registry, name) != NULL;
  pthread_mutex_unlock(&registry->lock);
  return has;
}

/* Under the lock, after a wait for the withdrawn entries of a name (NULL = any). Those that it has
 * timed out for are marked; those that have ended and were marked are taken out of the list, and
 * are the caller's to free. When all names are waited for, nobody asks again. */
static gpufi_entry *end_wait(gpufi_registry *registry, const char *name) {
  gpufi_entry *ended = NULL;
  for (gpufi_entry **link = &registry->entries; *link;) {
    gpufi_entry *entry = *link;
    const bool is_meant = !entry->published && (!name || strcmp(entry->name, name) == 0);
    const bool was_awaited = entry->is_awaited;
    if (is_meant) {
      entry->is_awaited = name && entry->share_count > 0;
    }
    if (is_meant && was_awaited && entry_is_over(entry)) {
      *link = entry->next;
      entry->next = ended;
      ended = entry;
    } else {
      link = &entry->next;
    }
  }
  return ended;
}

static void free_entries(gpufi_entry *entries) {
  while (entries) {
    gpufi_entry *next = entries->next;
    entry_free(entries);
    entries = next;
  }
}

gpuf_status gpufi_registry_wait(gpufi_registry *registry, const char *name, int64_t timeout_ns,
                                gpuf_error *err) {
  const struct timespec deadline = gpufi_deadline_after(timeout_ns < 0 ? 0 : timeout_ns);
  int waited = 0;
  pthread_mutex_lock(&registry->lock);
  while (count_uses(registry, name, false) > 0) {
    pthread_cond_wait(&registry->changed, &registry->lock);
  }
  while (count_uses(registry, name, true) > 0 && waited == 0) {
    waited = timeout_ns < 0
                 ? pthread_cond_wait(&registry->changed, &registry->lock)
                 : pthread_cond_timedwait(&registry->changed, &registry->lock, &deadline);
  }
  const int32_t left = count_uses(registry, name, true);
  gpufi_entry *ended = end_wait(registry, name);
  pthread_mutex_unlock(&registry->lock);
  free_entries(ended);
  return left == 0 ? GPUF_OK
                   : gpufi_fail(err, GPUF_ERR_TIMEOUT, 0,
                                "other processes still use %" PRId32 " shares of %s: keep the "
                                "memory until they let go%s",
                                left, name ? name : "the published tensors",
                                name ? ", and call again to wait longer" : "");
}
