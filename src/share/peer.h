/* The importer's connections, one to each exporting process. A forked child closes them, because
 * they would hold the references of a process that has died. Thread-safety: any thread. */
#ifndef GPUFI_SHARE_PEER_H
#define GPUFI_SHARE_PEER_H

#include "share/handle.h"

typedef struct gpufi_peer gpufi_peer;

/* The connection to a handle's exporter, made if need be. End each use with gpufi_peer_put. */
gpuf_status gpufi_peer_get(const gpufi_share_fields *fields, gpufi_peer **peer, gpuf_error *err);
/* Closes the connection with its last user. */
void gpufi_peer_put(gpufi_peer *peer);
/* Ask for a reference. *descriptor is the caller's to close, or -1. */
gpuf_status gpufi_peer_attach(gpufi_peer *peer, const gpuf_share_handle *handle,
                              uint64_t *reference, int *descriptor, gpuf_error *err);
void gpufi_peer_detach(gpufi_peer *peer, uint64_t reference);
/* GPUF_ERR_STATE once the exporter has gone. */
gpuf_status gpufi_peer_check(gpufi_peer *peer, gpuf_error *err);

#endif
