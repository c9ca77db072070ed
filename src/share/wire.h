/* Requests and replies between an importer and an exporter's service, and the service's address. A
 * message is one SOCK_SEQPACKET packet. Thread-safety: any thread. */
#ifndef GPUFI_SHARE_WIRE_H
#define GPUFI_SHARE_WIRE_H

#include <stdbool.h>
#include <sys/types.h>

#include "share/handle.h"

#define GPUFI_SHARE_WIRE_MAGIC 0x53465047u /* "GPFS" */
#define GPUFI_SHARE_WIRE_VERSION 1

/* Importing processes that a service serves at once, and references that each may hold. */
#define GPUFI_SHARE_CLIENTS_MAX 1024
#define GPUFI_SHARE_REFERENCES_MAX 65536

typedef enum gpufi_share_request_kind {
  GPUFI_SHARE_ATTACH = 1, /* with the handle; answered by a reply with the same reference */
  GPUFI_SHARE_DETACH = 2, /* ends the reference of an earlier ATTACH; not answered */
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
  uint8_t handle[GPUF_SHARE_HANDLE_MAX_NBYTES]; /* of an ATTACH; the message ends where it does */
} gpufi_share_request;

#define GPUFI_SHARE_REQUEST_HEADER_NBYTES offsetof(gpufi_share_request, handle)

typedef struct gpufi_share_reply {
  uint32_t magic;
  uint16_t version;
  uint16_t answer;
  uint64_t reference; /* 0 if the connection is refused */
} gpufi_share_reply;

struct sockaddr_un;
/* The address of a service; returns its length. */
uint32_t gpufi_share_address(const uint8_t *service, struct sockaddr_un *address);

/* Send a reply, with `descriptor` unless it is -1, without waiting. False if it was not sent. */
bool gpufi_share_send_reply(int fd, gpufi_share_answer answer, uint64_t reference, int descriptor);
/* Receive one packet, without waiting, and the descriptor that came with it, or -1; the descriptor
 * is the caller's to close. Returns the packet's size, 0 when the exporter has closed the
 * connection and -1 with errno set after a failure, such as EAGAIN where no packet has come and
 * EMFILE where this process has no number left for the descriptor. A packet that is longer than a
 * reply, or that comes with two descriptors, gives a size that no reply has. */
ssize_t gpufi_share_receive_reply(int fd, gpufi_share_reply *reply, int *descriptor);

#endif
