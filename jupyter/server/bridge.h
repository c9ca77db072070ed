/* Joins Jupyter comms to the dispatcher (comm/dispatcher.h): opens a client for each comm, hands
 * messages over, sends the replies, and runs the thread that runs requests. */
#ifndef GPUFI_SERVER_BRIDGE_H
#define GPUFI_SERVER_BRIDGE_H

#include "comm/dispatcher.h"
#include "server/answers.h"
#include "server/comm.h"
#include "server/endpoint.h"

#include <gpufetch/serve.h>
#include <pthread.h>
#include <stdatomic.h>

typedef struct gpufi_bridge {
  const gpuf_server *server; /* which the worker is a thread of; set before it starts */
  gpufi_dispatcher *dispatcher;
  gpufi_endpoint *endpoint;
  int wake_fd; /* wakes the server's thread */

  pthread_t worker;
  pthread_mutex_t lock; /* guards has_work and is_stopping */
  pthread_cond_t changed;
  bool has_work, is_stopping;
  bool is_running;       /* the worker; for who starts and stops it */
  gpufi_answers answers; /* for the server's thread to send */

  /* The server's thread's. */
  gpufi_comm *open; /* the one used last comes first */
  int32_t open_count, open_max;
  uint64_t tag_count;
  int32_t pending_count; /* messages that wait for a reply */
  uint64_t watched_release_count;
  int64_t held_until_ns; /* no answers are sent before */
  int64_t watched_ns;    /* since when that many replies have been released; 0 = never asked */

  atomic_uint_least64_t release_count; /* of replies that ZeroMQ has sent or dropped */
} gpufi_bridge;

/* Make the dispatcher. The endpoint must outlive the bridge; its sockets are closed first. */
gpuf_status gpufi_bridge_init(gpufi_bridge *bridge, gpufi_endpoint *endpoint, int wake_fd,
                              const gpufi_dispatcher_options *options, gpuf_error *err);
gpuf_status gpufi_bridge_start(gpufi_bridge *bridge, gpuf_error *err); /* the worker */
void gpufi_bridge_stop(gpufi_bridge *bridge);
/* After the sockets are closed. Waits for importers of shares as gpufi_dispatcher_destroy does. */
gpuf_status gpufi_bridge_fini(gpufi_bridge *bridge, gpuf_error *err);

/* --- On the server's thread ---------------------------------------------------- */

/* Handle comm_open, comm_msg, comm_close. True if a reply will follow, and idle with it. */
bool gpufi_bridge_open(gpufi_bridge *bridge, gpufi_message *message);
bool gpufi_bridge_submit(gpufi_bridge *bridge, gpufi_message *message);
bool gpufi_bridge_close(gpufi_bridge *bridge, gpufi_message *message);
/* Close the comms that the message's session opened, with a comm_close for each. */
void gpufi_bridge_close_session(gpufi_bridge *bridge, const gpufi_message *message);
/* Close all comms, when the server stops. */
void gpufi_bridge_close_all(gpufi_bridge *bridge);
/* {comm_id: {"target_name": ...}}, of one target or, if it is NULL, all. */
json_t *gpufi_bridge_list(const gpufi_bridge *bridge, const char *target);
/* Send what the dispatcher has answered, if anything. */
void gpufi_bridge_send_answers(gpufi_bridge *bridge);
/* Whether a request waits for the memory that replies under way hold. */
bool gpufi_bridge_is_short(const gpufi_bridge *bridge);
/* The time, of CLOCK_MONOTONIC, since which a request has waited so and no reply has been sent or
 * dropped. To be asked every second while pending_count > 0. */
int64_t gpufi_bridge_released_ns(gpufi_bridge *bridge);
/* Subscribers were disconnected that held the memory: give them time to connect anew. */
void gpufi_bridge_hold(gpufi_bridge *bridge);

#endif
