/* Sharing between processes, inside the library.
 *
 *   share_handle.c   a handle's bytes and text: the one parser of what comes from outside
 *   share.c          the exporter: a table of shares and who holds them
 *   share_service.c  the exporter: the thread that answers importers
 *   share_peer.c     the importer: one connection to each exporting process
 *   share_attach.c   the importer: attachments, and blocks opened once
 *
 * An importer's references live as long as its connection: when it dies, the kernel closes the
 * connection and the service gives them back. */
#ifndef GPUFI_CORE_SHARE_H
#define GPUFI_CORE_SHARE_H

#include <gpufetch/share.h>

#include "backend/backend.h"

/* --- share_handle.c -------------------------------------------------------- */

#define GPUFI_SHARE_ID_NBYTES 16

/* A handle's fields, checked: the dtype and the shape are valid and every element lies inside the
 * allocation. */
typedef struct gpufi_share_fields {
  gpuf_tensor tensor; /* data is NULL, stream is NONE */
  bool readonly;
  int64_t process_id;
  uint64_t start_time; /* of the process, in clock ticks since boot */
  uint64_t generation;
  uint8_t service[GPUFI_SHARE_ID_NBYTES]; /* random, one a process: names its socket */
  uint8_t token[GPUFI_SHARE_ID_NBYTES];   /* random, one a share */
  uint8_t identity[GPUFI_IPC_IDENTITY_NBYTES];
  uint8_t name[GPUFI_IPC_NAME_NBYTES];
  uint64_t allocation_nbytes;
  uint64_t offset_nbytes;
} gpufi_share_fields;

/* `fields` must be as gpufi_share_decode checks them. */
void gpufi_share_encode(const gpufi_share_fields *fields, gpuf_share_handle *handle);
gpuf_status gpufi_share_decode(const gpuf_share_handle *handle, gpufi_share_fields *fields,
                               gpuf_error *err);
/* Make the checksum right. For whoever builds a handle by hand, such as a test. */
void gpufi_share_seal(gpuf_share_handle *handle);

/* --- Requests and replies: one SOCK_SEQPACKET message each ------------------ */

#define GPUFI_SHARE_WIRE_MAGIC 0x53465047u /* "GPFS" */
#define GPUFI_SHARE_WIRE_VERSION 1

typedef enum gpufi_share_request_kind {
  GPUFI_SHARE_ATTACH = 1, /* with the handle; answered by a reply with the same reference */
  GPUFI_SHARE_DETACH = 2, /* of an earlier ATTACH's reference; not answered */
} gpufi_share_request_kind;

typedef enum gpufi_share_answer {
  GPUFI_SHARE_GRANTED = 0, /* a descriptor comes along where the backend has one */
  GPUFI_SHARE_STALE = 1,   /* was a share once */
  GPUFI_SHARE_FORGED = 2,  /* never was */
  GPUFI_SHARE_FULL = 3,    /* too many importers or references */
  GPUFI_SHARE_OTHER_USER = 4,
  GPUFI_SHARE_OTHER_VERSION = 5,
} gpufi_share_answer;

typedef struct gpufi_share_request {
  uint32_t magic;
  uint16_t version;
  uint16_t kind;
  uint64_t reference; /* chosen by the importer, increasing along a connection */
  uint8_t handle[GPUF_SHARE_HANDLE_MAX_NBYTES]; /* ATTACH: as long as the message goes on */
} gpufi_share_request;

#define GPUFI_SHARE_REQUEST_HEADER_NBYTES offsetof(gpufi_share_request, handle)

typedef struct gpufi_share_reply {
  uint32_t magic;
  uint16_t version;
  uint16_t answer;
  uint64_t reference; /* 0 if the connection is refused */
} gpufi_share_reply;

/* --- share.c: the table ----------------------------------------------------- */

typedef struct gpufi_share gpufi_share;

/* Count one more importer of the share whose handle is exactly these bytes. */
gpufi_share_answer gpufi_share_acquire(const uint8_t *handle, size_t nbytes, gpufi_share **share);
/* Give that back; the last of a withdrawn share calls its release. */
void gpufi_share_release(gpufi_share *share);
/* While the importer holds it. */
const gpuf_tensor *gpufi_share_tensor(const gpufi_share *share);
/* GPUF_ERR_STATE if a share needs the allocation that begins at d_ptr. */
gpuf_status gpufi_share_allows_free(gpuf_device device, const void *d_ptr, gpuf_error *err);

/* --- share_service.c --------------------------------------------------------- */

/* Importing processes that are served at once, and references that each may hold. */
#define GPUFI_SHARE_CLIENTS_MAX 1024
#define GPUFI_SHARE_REFERENCES_MAX 65536

/* Start the service, once per process, and fill what handles say of it: process_id, start_time
 * and service. */
gpuf_status gpufi_share_service_start(gpufi_share_fields *fields, gpuf_error *err);
/* True if `service` names this process. */
bool gpufi_share_service_is_own(const uint8_t *service);

struct sockaddr_un;
/* The address of a service; returns its length. */
uint32_t gpufi_share_address(const uint8_t *service, struct sockaddr_un *address);

/* --- share_attach.c ---------------------------------------------------------- */

/* True if the address lies in another process's allocation that is attached here. */
bool gpufi_share_is_attached(gpuf_device_kind kind, const void *d_ptr);

/* --- share_peer.c ------------------------------------------------------------ */

typedef struct gpufi_peer gpufi_peer;

/* The connection to a handle's exporter, made if need be. */
gpuf_status gpufi_peer_get(const gpufi_share_fields *fields, gpufi_peer **peer, gpuf_error *err);
/* Closes the connection with its last user. */
void gpufi_peer_put(gpufi_peer *peer);
/* Ask for a reference. *descriptor is the caller's to close, or -1. */
gpuf_status gpufi_peer_attach(gpufi_peer *peer, const gpuf_share_handle *handle,
                              uint64_t *reference, int *descriptor, gpuf_error *err);
void gpufi_peer_detach(gpufi_peer *peer, uint64_t reference);
gpuf_status gpufi_peer_check(gpufi_peer *peer, gpuf_error *err);

/* Both sides keep sockets out of forked children, where they would hold the references of a
 * process that has died. The handlers are for pthread_atfork. */
void gpufi_peer_fork_prepare(void);
void gpufi_peer_fork_parent(void);
void gpufi_peer_fork_child(void);
/* Register them, once. */
void gpufi_share_watch_fork(void);

#endif
