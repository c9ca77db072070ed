/* Tensors that are shared with clients in other processes: a share ends with its client, or when
 * its tensor is withdrawn or replaced. */
#include "internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A tensor that the resolver finds has a fresh entry at each request, so it is told by its memory.
 */
static bool is_share_of(const gpufi_comm_share *share, const gpufi_comm_entry *entry) {
  return share->entry == entry ||
         (entry->generation == 0 && share->entry->generation == 0 &&
          strcmp(share->entry->name, entry->name) == 0 &&
          gpufi_comm_same_memory(&share->entry->source.tensor, &entry->source.tensor));
}

/* Under the lock: the client's share of the entry in *handle (kind COMM_OK), or whether it may have
 * another. */
static gpufi_comm_code look_up(gpufi_comm *comm, uint64_t client, const gpufi_comm_entry *entry,
                               gpuf_share_handle *handle, bool *found, gpuf_error *err) {
  int32_t count = 0;
  for (const gpufi_comm_share *share = comm->shares; share; share = share->next) {
    if (share->client == client && is_share_of(share, entry)) {
      *handle = share->handle;
      *found = true;
      return COMM_OK;
    }
    count += share->client == client;
  }
  if (count >= comm->options.share_max) {
    return COMM_FAIL(err, COMM_BUSY, "this client has %" PRId32 " shares: end some with unshare",
                     count);
  }
  return COMM_OK;
}

/* Enter a share in the list; false if its client or its tensor is gone meanwhile. */
static bool enter(gpufi_comm *comm, gpufi_comm_share *share) {
  pthread_mutex_lock(&comm->lock);
  const bool wanted = gpufi_comm_client_find(comm, share->client) &&
                      (share->entry->published || share->entry->generation == 0);
  if (wanted) {
    share->next = comm->shares;
    comm->shares = share;
    comm->counts.share_count++;
  }
  pthread_mutex_unlock(&comm->lock);
  return wanted;
}

gpufi_comm_code gpufi_comm_share_make(gpufi_comm *comm, const gpufi_comm_request *request,
                                      gpufi_comm_entry *entry, const gpuf_tensor *tensor,
                                      gpuf_share_handle *handle, gpuf_error *err) {
  bool found = false;
  gpuf_error cause;
  pthread_mutex_lock(&comm->lock);
  const gpufi_comm_code code = look_up(comm, request->client, entry, handle, &found, err);
  pthread_mutex_unlock(&comm->lock);
  if (code != COMM_OK || found) {
    return code;
  }
  gpufi_comm_share *share = calloc(1, sizeof(*share));
  if (!share) {
    return COMM_FAIL(err, COMM_BUSY, "no memory for a share: ask again later");
  }
  const gpuf_share_options options = {.struct_nbytes = sizeof(options),
                                      .release = gpufi_comm_entry_share_end,
                                      .release_arg = entry};
  share->client = request->client;
  share->entry = entry;
  gpufi_comm_entry_share_begin(entry);
  const gpuf_status status = gpuf_share(tensor, &options, &share->handle, &cause);
  if (status != GPUF_OK) {
    gpufi_comm_entry_share_end(entry);
    free(share);
    return gpufi_comm_core_failure(status, "share", request->name, &cause, err);
  }
  *handle = share->handle;
  if (!enter(comm, share)) {
    gpuf_unshare(handle, 0, NULL, NULL);
    free(share);
    return COMM_FAIL(err, COMM_UNKNOWN_NAME, "%s was withdrawn while it was being shared",
                     request->name);
  }
  return COMM_OK;
}

int32_t gpufi_comm_shares_withdraw(gpufi_comm *comm, uint64_t client, const char *name,
                                   const gpufi_comm_entry *entry) {
  gpufi_comm_share *withdrawn = NULL;
  int32_t count = 0;
  pthread_mutex_lock(&comm->lock);
  for (gpufi_comm_share **link = &comm->shares; *link;) {
    gpufi_comm_share *share = *link;
    if ((client == 0 || share->client == client) && (!entry || share->entry == entry) &&
        (!name || strcmp(share->entry->name, name) == 0)) {
      *link = share->next;
      share->next = withdrawn;
      withdrawn = share;
      count++;
    } else {
      link = &share->next;
    }
  }
  comm->counts.share_count -= count;
  pthread_mutex_unlock(&comm->lock);
  while (withdrawn) {
    gpufi_comm_share *next = withdrawn->next;
    gpuf_unshare(&withdrawn->handle, 0, NULL, NULL); /* importers that are left end it later */
    free(withdrawn);
    withdrawn = next;
  }
  return count;
}
