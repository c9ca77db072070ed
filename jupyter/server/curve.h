/* The server's sockets with CurveZMQ: ZeroMQ's own, over tcp, where only those who know the keys in
 * the connection file are admitted. They belong to the server's thread. */
#ifndef GPUFI_SERVER_CURVE_H
#define GPUFI_SERVER_CURVE_H

#include "server/events.h"
#include "server/payload.h"
#include "server/peers.h"

#include <zmq.h>

typedef struct gpufi_curve {
  void *context, *zap;
  void *sockets[GPUFI_SOCKET_COUNT];
  gpufi_peers peers;
} gpufi_curve;

/* What the thread waits for. */
#define GPUFI_CURVE_ITEM_COUNT (2 * GPUFI_SOCKET_COUNT + 1)

/* As gpufi_plain_open. ZeroMQ's calls may fail with EINTR before they have done anything: signals
 * are to wait, here and in gpufi_curve_close. */
gpuf_status gpufi_curve_open(gpufi_curve *curve, gpufi_connection *connection, int32_t peers_max,
                             gpuf_error *err);
void gpufi_curve_close(gpufi_curve *curve); /* of all zero: does nothing */

void gpufi_curve_items(const gpufi_curve *curve, zmq_pollitem_t items[GPUFI_CURVE_ITEM_COUNT]);
/* Do what there is to do, once `items` were waited for. */
void gpufi_curve_serve(gpufi_curve *curve, const zmq_pollitem_t items[GPUFI_CURVE_ITEM_COUNT],
                       const gpufi_events *events);

/* Send a message, to the client that its first frame names or, on iopub, to those who have
 * subscribed to the beginning of it, and release the payloads when they are not needed any more, on
 * any thread. A message that does not fit into the receiver's queue is dropped. */
void gpufi_curve_send(gpufi_curve *curve, gpufi_socket which, const gpufi_frame *frames,
                      size_t count, const gpufi_payload *payloads, size_t payload_count);
void gpufi_curve_cut_stalled(gpufi_curve *curve, gpufi_socket which);

#endif
