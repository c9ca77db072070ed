/* The five sockets of a kernel. Where the connection has keys of CurveZMQ they are ZeroMQ's
 * (curve.h), otherwise the server's own (plain.h). They belong to the thread that serves them. */
#ifndef GPUFI_SERVER_SOCKETS_H
#define GPUFI_SERVER_SOCKETS_H

#include "server/curve.h"
#include "server/forked.h"
#include "server/plain.h"

typedef struct gpufi_sockets {
  bool is_open, has_curve;
  gpufi_plain plain; /* one of the two is open */
  gpufi_curve curve;
  gpufi_forked forked;
} gpufi_sockets;

/* Listen, and fill in the connection's ports. They accept `peers_max` connections. On failure
 * *sockets holds nothing. */
gpuf_status gpufi_sockets_open(gpufi_sockets *sockets, gpufi_connection *connection,
                               int32_t peers_max, gpuf_error *err);
void gpufi_sockets_close(gpufi_sockets *sockets); /* of all zero: does nothing */

/* Wait until something has come, `wake_fd` is readable, or `timeout_ms` (-1 = no matter) are over;
 * do what there is to do, and return whether `wake_fd` is readable. */
bool gpufi_sockets_serve(gpufi_sockets *sockets, int wake_fd, int timeout_ms,
                         const gpufi_events *events);

/* Send to the identities in front; on iopub, under one topic or none, to those who have subscribed
 * to it. Consumes `packed`, and releases the payloads, of which there are GPUFI_REPLY_BUFFERS_MAX
 * at most, when they are not needed any more. A message that does not fit into the receiver's
 * queue, or that cannot be allocated, is dropped. */
void gpufi_sockets_send(gpufi_sockets *sockets, gpufi_socket which, const gpufi_frame *identities,
                        size_t identity_count, gpufi_packed *packed, const gpufi_payload *payloads,
                        size_t payload_count);

/* Close the connections to a socket for which something has waited since before `late_ns`, of
 * CLOCK_MONOTONIC; with CurveZMQ, where that is not known, those whose clients leave something
 * unread, if nothing has been released since then. Whether any were to be closed. */
bool gpufi_sockets_cut_stalled(gpufi_sockets *sockets, gpufi_socket which, int64_t late_ns,
                               int64_t released_ns);

#endif
