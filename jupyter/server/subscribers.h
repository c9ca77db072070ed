/* The subscribers of iopub where it has no CurveZMQ: over plain tcp everyone can connect.
 *
 * ZeroMQ's own publishers end the process when a peer resets its connection while a queue is full
 * of its subscriptions and one of its pings waits behind them; and with a queue that is never full,
 * they do not return as long as subscriptions come in. Here ZeroMQ moves bytes only (a socket of
 * type ZMQ_STREAM, whose queues hold a few reads of a connection), and its protocol is spoken by
 * zmtp.h, so that what a peer sends is counted and limited before it costs anything.
 *
 * Belongs to the server's thread, but for what ZeroMQ's threads release. */
#ifndef GPUFI_SERVER_SUBSCRIBERS_H
#define GPUFI_SERVER_SUBSCRIBERS_H

#include "server/payload.h"
#include "server/peers.h"

typedef struct gpufi_subscribers {
  void *socket;                     /* NULL = iopub is a publisher of ZeroMQ's own */
  gpufi_peers *peers;               /* the connections, each with its subscriber */
  int32_t unready_count;            /* of those that have not made the handshake */
  int64_t look_next_ns;             /* when it is to be seen whether they are late */
  const gpufi_subscriber *receiver; /* while it is told of: who alone gets what is published */
} gpufi_subscribers;

typedef struct gpufi_subscribers_events {
  /* A topic was subscribed to; what is published meanwhile reaches the new subscriber alone. */
  void (*subscribed)(void *arg, const char *topic, size_t nbytes);
  /* A connection was shut down, and why. */
  void (*refused)(void *arg, const char *why);
  void *arg;
} gpufi_subscribers_events;

/* `socket`, of type ZMQ_STREAM, is the one that `peers` watches as iopub. They are released with
 * the peers. */
void gpufi_subscribers_init(gpufi_subscribers *subscribers, void *socket, gpufi_peers *peers);

/* Take in what one read of one connection has brought, without waiting. False if there is none. */
bool gpufi_subscribers_receive(gpufi_subscribers *subscribers,
                               const gpufi_subscribers_events *events);
/* Shut down the connections that have not made the handshake in time. To be called at least once a
 * second while `unready_count` is not 0; does nothing if it was called just before. */
void gpufi_subscribers_cut_late(gpufi_subscribers *subscribers);

/* Send a message to those who have subscribed to the beginning of its first frame. Releases the
 * payloads when they are not needed any more, on any thread. For a subscriber for whom too many
 * wait the message is dropped, and for all where there is no memory for it. */
void gpufi_subscribers_publish(gpufi_subscribers *subscribers, const gpufi_frame *frames,
                               size_t count, const gpufi_payload *payloads, size_t payload_count);

#endif
