/* The server's thread: it serves all sockets, and does nothing that takes long. */
#include "base/clock.h"
#include "server/server.h"
#include "server/wake.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Messages of one socket in a row, so that a busy client does not starve the other sockets. */
#define MESSAGES_IN_A_ROW 32
#define TOPIC_MAX_NBYTES 256
#define WATCH_MS 1000 /* while messages wait for replies, or there is a parent to watch */

static bool receive_request(gpuf_server *server, gpufi_socket which) {
  zmq_msg_t held[GPUFI_WIRE_FRAMES_MAX + 1];
  gpufi_frame frames[GPUFI_WIRE_FRAMES_MAX + 1];
  gpufi_message message;
  gpuf_error err;
  const size_t count = gpufi_sockets_receive(server->endpoint.sockets.sockets[which], held, frames);
  if (count == 0) {
    return false;
  }
  if (gpufi_message_parse(server->endpoint.session, frames, count, &message, &err) != GPUF_OK) {
    gpufi_endpoint_log(&server->endpoint, err.message);
  } else {
    if (which != GPUFI_STDIN) { /* this kernel asks for no input */
      gpufi_kernel_handle(&server->kernel, which, &message);
    }
    gpufi_message_fini(&message);
  }
  gpufi_sockets_release(held, count);
  return true;
}

/* Send each frame back as it comes, the identity first: to a client this looks like a REP socket.
 */
static bool receive_heartbeat(gpuf_server *server) {
  void *socket = server->endpoint.sockets.sockets[GPUFI_HEARTBEAT];
  bool more = true;
  while (more) {
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    if (zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&frame);
      return false;
    }
    more = zmq_msg_more(&frame);
    if (zmq_msg_send(&frame, socket, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) < 0) {
      zmq_msg_close(&frame);
    }
  }
  return true;
}

/* Tell a new subscriber that its subscription has arrived. The message reaches all subscribers of
 * the topic, so it is sent once for several in a row. */
static void welcome(gpuf_server *server, const char *topic) {
  gpufi_endpoint_publish(&server->endpoint, topic, "iopub_welcome", NULL,
                         json_pack("{ss}", "subscription", topic));
}

static bool receive_subscription(gpuf_server *server, char last[TOPIC_MAX_NBYTES + 1]) {
  char event[TOPIC_MAX_NBYTES + 1];
  const int nbytes = zmq_recv(server->endpoint.sockets.sockets[GPUFI_IOPUB], event,
                              sizeof(event) - 1, ZMQ_DONTWAIT);
  if (nbytes < 0) {
    return false;
  }
  if (nbytes == 0 || nbytes > (int)sizeof(event) - 1 || event[0] != 1) {
    return true; /* a subscriber left, or asked for what Jupyter does not send */
  }
  event[nbytes] = '\0';
  if (strcmp(last, event) != 0) {
    welcome(server, event + 1);
    memcpy(last, event, (size_t)nbytes + 1);
  }
  return true;
}

static void serve_socket(gpuf_server *server, gpufi_socket which) {
  char last[TOPIC_MAX_NBYTES + 1] = ""; /* the subscription answered last */
  bool more = true;
  for (int i = 0; i < MESSAGES_IN_A_ROW && more; i++) {
    if (which == GPUFI_HEARTBEAT) {
      more = receive_heartbeat(server);
    } else if (which == GPUFI_IOPUB) {
      more = receive_subscription(server, last);
    } else {
      more = receive_request(server, which);
    }
  }
}

/* A program that was started as a kernel ends with its kernel manager, as ipykernel does: it is
 * told by its shutdown callback or, where it has none, by SIGTERM. */
static void watch_parent(gpuf_server *server, int64_t *next_ns) {
  const int64_t now_ns = gpufi_clock_ns();
  if (now_ns < *next_ns) {
    return;
  }
  *next_ns = now_ns + WATCH_MS * INT64_C(1000000);
  if (gpufi_parent_has_ended(&server->parent)) {
    server->parent.process_id = 0;
    gpufi_endpoint_log(&server->endpoint,
                       "the kernel manager that started this program has ended, and so it ends");
    if (!gpufi_kernel_shut_down(&server->kernel)) {
      kill(getpid(), SIGTERM);
    }
  }
}

void *gpufi_server_main(void *arg) {
  gpuf_server *server = arg;
  /* In the order of urgency. */
  static const gpufi_socket order[GPUFI_SOCKET_COUNT] = {GPUFI_HEARTBEAT, GPUFI_IOPUB,
                                                         GPUFI_CONTROL, GPUFI_SHELL, GPUFI_STDIN};
  zmq_pollitem_t items[GPUFI_SOCKET_COUNT + 1];
  for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
    items[i] = (zmq_pollitem_t){server->endpoint.sockets.sockets[order[i]], -1, ZMQ_POLLIN, 0};
  }
  items[GPUFI_SOCKET_COUNT] = (zmq_pollitem_t){NULL, server->wake_fd, ZMQ_POLLIN, 0};
  int64_t watch_next_ns = 0;
  while (!atomic_load(&server->is_stopping)) {
    const bool is_waiting = server->bridge.pending_count > 0;
    const long timeout_ms = is_waiting || server->parent.process_id ? WATCH_MS : -1;
    if (zmq_poll(items, GPUFI_SOCKET_COUNT + 1, timeout_ms) < 0) {
      continue;
    }
    watch_parent(server, &watch_next_ns);
    if (is_waiting && gpufi_bridge_is_stuck(&server->bridge)) {
      gpufi_endpoint_log(&server->endpoint, "subscribers that read nothing were disconnected");
      gpufi_sockets_drop_subscribers(&server->endpoint.sockets, &server->connection);
    }
    for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
      if (items[i].revents) {
        serve_socket(server, order[i]);
      }
    }
    if (items[GPUFI_SOCKET_COUNT].revents) {
      gpufi_wake_drain(server->wake_fd);
    }
    gpufi_bridge_send_answers(&server->bridge);
  }
  gpufi_bridge_close_all(&server->bridge);
  return NULL;
}
