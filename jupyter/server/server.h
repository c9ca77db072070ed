/* A server: its thread, and what the files of jupyter/server share. */
#ifndef GPUFI_SERVER_SERVER_H
#define GPUFI_SERVER_SERVER_H

#include "server/comms.h"
#include "server/sockets.h"

#include <gpufetch/serve.h>
#include <pthread.h>
#include <stdatomic.h>

#define GPUFI_LOGGED_MAX 16

struct gpuf_server {
  struct gpuf_server *next; /* of those that run: serve.c */
  gpufi_connection connection;
  void (*shutdown)(void *shutdown_arg);
  void *shutdown_arg;
  void (*log)(void *log_arg, const char *line);
  void *log_arg;

  gpufi_comms comms; /* says itself what is whose */
  pthread_t thread;
  int wake_fd; /* an eventfd: other threads have something for this one */
  atomic_bool is_stopping;

  /* The rest belongs to the thread, once it runs. */
  gpufi_sockets sockets;
  gpufi_session *session;
  int64_t execution_count;
  char logged[GPUFI_LOGGED_MAX][128]; /* lines that were logged: each is once */
  int logged_count;
  bool was_shut_down;
};

/* thread.c: serve until is_stopping. */
void *gpufi_server_main(void *server);
/* From any thread: make the server's look at its queues. */
void gpufi_server_wake(gpuf_server *server);
/* Log a line unless it was logged before. */
void gpufi_server_log(gpuf_server *server, const char *line);

/* --- Sending; these take over `content` and may be given NULL for it, which is an allocation that
 * failed --- */

/* Answer on the channel by which `message` came. */
void gpufi_server_reply(gpuf_server *server, gpufi_channel channel, const gpufi_message *message,
                        const char *type, json_t *content);
/* Publish on iopub under `topic`; `parent` is the header of the message that caused it. */
void gpufi_server_publish(gpuf_server *server, const char *topic, const char *type, json_t *parent,
                          json_t *content);
/* Busy or idle. */
void gpufi_server_status(gpuf_server *server, json_t *parent, const char *state);

/* kernel.c: handle one message, busy and idle included. */
void gpufi_kernel_handle(gpuf_server *server, gpufi_channel channel, gpufi_message *message);

#endif
