/* The five sockets of a kernel. They belong to the thread that serves them. */
#ifndef GPUFI_SERVER_SOCKETS_H
#define GPUFI_SERVER_SOCKETS_H

#include "server/connection.h"
#include "server/forked.h"
#include "server/payload.h"
#include "server/peers.h"
#include "server/subscribers.h"
#include "server/zap.h"

#include <zmq.h>

typedef struct gpufi_sockets {
  void *context, *zap;
  void *sockets[GPUFI_SOCKET_COUNT];
  gpufi_peers peers;
  gpufi_subscribers subscribers; /* of iopub without CurveZMQ */
  gpufi_forked forked;
} gpufi_sockets;

/* Bind all of them and fill in the connection's ports. They accept `peers_max` connections. On
 * failure *sockets holds nothing. */
gpuf_status gpufi_sockets_open(gpufi_sockets *sockets, gpufi_connection *connection,
                               int32_t peers_max, gpuf_error *err);
void gpufi_sockets_close(gpufi_sockets *sockets); /* of all zero: does nothing */

/* One message, without waiting. `frames` point into `held`, both of GPUFI_WIRE_FRAMES_MAX + 1,
 * which the caller passes to gpufi_sockets_release. 0 if no message has come. Frames past the
 * end of the arrays are dropped; the count then says that there were too many. *nbytes is what ZMTP
 * takes for all of them but the identity, without CurveZMQ. */
size_t gpufi_sockets_receive(void *socket, zmq_msg_t *held, gpufi_frame *frames, size_t *nbytes);
void gpufi_sockets_release(zmq_msg_t *held, size_t count);

/* Send to the identities in front; on iopub, under one topic or none, to those who have subscribed
 * to it. Consumes `packed`, and releases the payloads, of which there are GPUFI_REPLY_BUFFERS_MAX
 * at most, when they are not needed any more. A message that does not fit into the receiver's
 * queue, or that cannot be allocated, is dropped. */
void gpufi_sockets_send(gpufi_sockets *sockets, gpufi_socket which, const gpufi_frame *identities,
                        size_t identity_count, gpufi_packed *packed, gpufi_payload *payloads,
                        size_t payload_count);

#endif
