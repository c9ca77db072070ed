/* What the sockets tell of: plain.h where the server speaks ZMTP itself, curve.h where ZeroMQ does.
 * Called on the server's thread. */
#ifndef GPUFI_SERVER_EVENTS_H
#define GPUFI_SERVER_EVENTS_H

#include "server/connection.h"

typedef struct gpufi_events {
  /* A request has come, the client's identity first. False if it was refused: its signature is not
   * of the key, for one. Too many of those in a row cost a client its connection. */
  bool (*request)(void *arg, gpufi_socket which, const gpufi_frame *frames, size_t count);
  /* A topic was subscribed to. */
  void (*subscribed)(void *arg, const char *topic, size_t nbytes);
  /* Something to log: why a connection was closed, for one. */
  void (*log)(void *arg, const char *line);
  void *arg;
} gpufi_events;

/* Of its messages, somebody without the key may send only so many in a row. */
#define GPUFI_REFUSED_MAX 8
#define GPUFI_LOG_REFUSED "a connection that sent nothing but messages to refuse was closed"
#define GPUFI_LOG_TOO_MANY                                                                         \
  "more connections than connections_max, or than leave the program an eighth of its "             \
  "descriptors: further ones are closed as they come"

#endif
