/* What the server's thread speaks by: its sockets, the session that signs messages, and the log.
 * Everything here belongs to that thread, unless it says otherwise. */
#ifndef GPUFI_SERVER_ENDPOINT_H
#define GPUFI_SERVER_ENDPOINT_H

#include "server/sockets.h"

#define GPUFI_LOGGED_MAX 16

typedef struct gpufi_endpoint {
  void (*log)(void *log_arg, const char *line); /* constant; NULL = nobody listens */
  void *log_arg;
  gpufi_sockets sockets;
  gpufi_session *session;
  char logged[GPUFI_LOGGED_MAX][128]; /* lines that were logged: each is once */
  int logged_count;
} gpufi_endpoint;

/* Open the sockets that `connection` names, for at most `peers_max` connections, and fill in its
 * ports. On failure, as on success, the endpoint is to be closed. */
gpuf_status gpufi_endpoint_open(gpufi_endpoint *endpoint, gpufi_connection *connection,
                                int32_t peers_max, gpuf_error *err);
void gpufi_endpoint_close(gpufi_endpoint *endpoint); /* of all zero: does nothing */

/* Log a line unless it was logged before. */
void gpufi_endpoint_log(gpufi_endpoint *endpoint, const char *line);

/* The calls that send take over `content`; NULL is an allocation that failed, and is logged. */

/* Answer on the socket by which `message` came. */
void gpufi_endpoint_reply(gpufi_endpoint *endpoint, gpufi_socket socket,
                          const gpufi_message *message, const char *type, json_t *content);
/* Send on iopub under `topic`; `parent` is the header of the message that caused it, or NULL. */
void gpufi_endpoint_publish(gpufi_endpoint *endpoint, const char *topic, const char *type,
                            json_t *parent, json_t *content);
/* Publish the state "busy" or "idle". */
void gpufi_endpoint_status(gpufi_endpoint *endpoint, json_t *parent, const char *state);

#endif
