/* Tensors whose memory is shared with clients in other processes. A share ends with its client, by
 * the operation unshare, when its tensor is withdrawn or replaced, and, of a tensor that the
 * resolver found, when it is seen that the name stands for that memory no more. Thread-safety: any
 * thread. */
#ifndef GPUFI_COMM_SHARES_H
#define GPUFI_COMM_SHARES_H

#include "comm/clients.h"
#include "comm/registry.h"

#include <gpufetch/share.h>

typedef struct gpufi_client_share {
  struct gpufi_client_share *next;
  uint64_t client;
  gpufi_entry *entry; /* alive: the share counts in it */
  gpuf_share_handle handle;
} gpufi_client_share;

typedef struct gpufi_shares {
  int32_t max; /* of one client */
  gpufi_clients *clients;
  pthread_mutex_t lock; /* guards what follows */
  gpufi_client_share *first;
  int32_t count;
} gpufi_shares;

void gpufi_shares_init(gpufi_shares *shares, int32_t max, gpufi_clients *clients);
void gpufi_shares_fini(gpufi_shares *shares); /* once all are withdrawn */

/* The handle of the share that the request's client has of `entry`, which the caller reads; it is
 * made if there is none. `tensor` is what is shared. */
gpufi_code gpufi_shares_make(gpufi_shares *shares, const gpufi_request *request, gpufi_entry *entry,
                             const gpuf_tensor *tensor, gpuf_share_handle *handle, gpuf_error *err);
/* Withdraw the shares of a client (0 = any) of tensors with a name and of an entry (NULL = any).
 * Returns how many. Processes that have attached keep the entry until they detach. */
int32_t gpufi_shares_withdraw(gpufi_shares *shares, uint64_t client, const char *name,
                              const gpufi_entry *entry);
/* Withdraw the shares of tensors that the resolver found and finds no more by their names, or finds
 * elsewhere in memory. Returns how many. */
int32_t gpufi_shares_withdraw_stale(gpufi_shares *shares, gpufi_registry *registry);
int32_t gpufi_shares_count(gpufi_shares *shares);

#endif
