#include "comm/shares.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void gpufi_shares_init(gpufi_shares *shares, int32_t max, gpufi_clients *clients) {
  *shares = (gpufi_shares){.max = max, .clients = clients};
  pthread_mutex_init(&shares->lock, NULL);
}

void gpufi_shares_fini(gpufi_shares *shares) {
  pthread_mutex_destroy(&shares->lock);
}

/* A tensor that the resolver finds has a new entry at each request, so it is recognized by its
 * memory. */
static bool is_share_of(const gpufi_client_share *share, const gpufi_entry *entry) {
  return share->entry == entry || (entry->generation == 0 && share->entry->generation == 0 &&
                                   strcmp(share->entry->name, entry->name) == 0 &&
                                   gpufi_source_same_memory(&share->entry->source, &entry->source));
}

/* Look the client's share of an entry up. If it is not *found, the code says whether the client may
 * have another. */
static gpufi_code look_up(gpufi_shares *shares, uint64_t client, const gpufi_entry *entry,
                          gpuf_share_handle *handle, bool *found, gpuf_error *err) {
  int32_t count = 0;
  *found = false;
  pthread_mutex_lock(&shares->lock);
  for (const gpufi_client_share *share = shares->first; share && !*found; share = share->next) {
    if (share->client == client && is_share_of(share, entry)) {
      *handle = share->handle;
      *found = true;
    }
    count += share->client == client;
  }
  pthread_mutex_unlock(&shares->lock);
  if (!*found && count >= shares->max) {
    return REFUSE(err, CODE_BUSY, "this client has %" PRId32 " shares: end some with unshare",
                  count);
  }
  return CODE_OK;
}

/* Enter a share in the list; false if its client or its tensor has gone meanwhile. These are asked
 * afterwards: whoever closes the client or withdraws the tensor does that first and then withdraws
 * the shares, so that one of the two sees the other. */
static bool enter(gpufi_shares *shares, gpufi_client_share *share) {
  gpufi_entry *entry = share->entry;
  const uint64_t client = share->client;
  pthread_mutex_lock(&shares->lock);
  share->next = shares->first;
  shares->first = share;
  shares->count++;
  pthread_mutex_unlock(&shares->lock);
  if (gpufi_clients_has(shares->clients, client) && gpufi_entry_is_current(entry)) {
    return true;
  }
  gpufi_shares_withdraw(shares, client, NULL, entry);
  return false;
}

gpufi_code gpufi_shares_make(gpufi_shares *shares, const gpufi_request *request, gpufi_entry *entry,
                             const gpuf_tensor *tensor, gpuf_share_handle *handle,
                             gpuf_error *err) {
  bool found;
  gpuf_error cause;
  const gpufi_code code = look_up(shares, request->client, entry, handle, &found, err);
  if (code != CODE_OK || found) {
    return code;
  }
  gpufi_client_share *share = calloc(1, sizeof(*share));
  if (!share) {
    return REFUSE(err, CODE_BUSY, "no memory for a share: ask again later");
  }
  const gpuf_share_options options = {
      .struct_nbytes = sizeof(options), .release = gpufi_entry_end_share, .release_arg = entry};
  share->client = request->client;
  share->entry = entry;
  gpufi_entry_begin_share(entry);
  const gpuf_status status = gpuf_share(tensor, &options, &share->handle, &cause);
  if (status != GPUF_OK) {
    gpufi_entry_end_share(entry);
    free(share);
    return gpufi_code_of_status(status, "share", request->name, &cause, err);
  }
  *handle = share->handle;
  return enter(shares, share) ? CODE_OK
                              : REFUSE(err, CODE_UNKNOWN_NAME,
                                       "%s was withdrawn while it was being shared", request->name);
}

/* Which shares are meant: those for which every member that is set holds. */
typedef struct share_filter {
  uint64_t client;            /* 0 = any */
  const char *name;           /* NULL = any */
  const gpufi_entry *entry;   /* NULL = any */
  bool is_found;              /* of tensors that the resolver found */
  const gpufi_source *except; /* but not those of this memory; NULL = all */
} share_filter;

static bool matches(const gpufi_client_share *share, const share_filter *filter) {
  return (filter->client == 0 || share->client == filter->client) &&
         (!filter->name || strcmp(share->entry->name, filter->name) == 0) &&
         (!filter->entry || share->entry == filter->entry) &&
         (!filter->is_found || share->entry->generation == 0) &&
         (!filter->except || !gpufi_source_same_memory(&share->entry->source, filter->except));
}

/* Take the shares that fit out of the list. */
static gpufi_client_share *take_matching(gpufi_shares *shares, const share_filter *filter) {
  gpufi_client_share *taken = NULL;
  pthread_mutex_lock(&shares->lock);
  for (gpufi_client_share **link = &shares->first; *link;) {
    gpufi_client_share *share = *link;
    if (matches(share, filter)) {
      *link = share->next;
      share->next = taken;
      taken = share;
      shares->count--;
    } else {
      link = &share->next;
    }
  }
  pthread_mutex_unlock(&shares->lock);
  return taken;
}

static int32_t withdraw(gpufi_shares *shares, const share_filter *filter) {
  gpufi_client_share *taken = take_matching(shares, filter);
  int32_t count = 0;
  for (; taken; count++) {
    gpufi_client_share *next = taken->next;
    gpuf_unshare(&taken->handle, 0, NULL, NULL);
    free(taken);
    taken = next;
  }
  return count;
}

int32_t gpufi_shares_withdraw(gpufi_shares *shares, uint64_t client, const char *name,
                              const gpufi_entry *entry) {
  const share_filter filter = {.client = client, .name = name, .entry = entry};
  return withdraw(shares, &filter);
}

/* The first name after `name`, in the order of strcmp, of a tensor that the resolver found and that
 * is shared; it takes the place of `name`. False if there is none. */
static bool next_found_name(gpufi_shares *shares, char name[GPUFI_TENSOR_NAME_MAX_NBYTES + 1]) {
  char next[GPUFI_TENSOR_NAME_MAX_NBYTES + 1] = "";
  pthread_mutex_lock(&shares->lock);
  for (const gpufi_client_share *share = shares->first; share; share = share->next) {
    const char *found = share->entry->name;
    if (share->entry->generation == 0 && strcmp(found, name) > 0 &&
        (!next[0] || strcmp(found, next) < 0)) {
      strcpy(next, found);
    }
  }
  pthread_mutex_unlock(&shares->lock);
  strcpy(name, next);
  return next[0] != '\0';
}

int32_t gpufi_shares_withdraw_stale(gpufi_shares *shares, gpufi_registry *registry) {
  char name[GPUFI_TENSOR_NAME_MAX_NBYTES + 1] = "";
  int32_t count = 0;
  while (registry->resolve && next_found_name(shares, name)) {
    gpufi_source now = {0};
    gpuf_error cause;
    const bool is_there = registry->resolve(registry->resolve_arg, name, &now, &cause) == GPUF_OK;
    const share_filter filter = {.name = name, .is_found = true, .except = is_there ? &now : NULL};
    count += withdraw(shares, &filter);
    if (is_there) {
      gpufi_source_release(&now);
    }
  }
  return count;
}

int32_t gpufi_shares_count(gpufi_shares *shares) {
  pthread_mutex_lock(&shares->lock);
  const int32_t count = shares->count;
  pthread_mutex_unlock(&shares->lock);
  return count;
}
