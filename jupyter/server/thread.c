/* The server's thread: all sockets, and nothing that takes long. */
#include "server/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Messages of one socket in a row, so that a busy client does not starve the other sockets. */
#define MESSAGES_IN_A_ROW 32
#define TOPIC_MAX_NBYTES 256
#define WATCH_MS 1000 /* while requests wait for replies */

void gpufi_server_wake(gpuf_server *server) {
  const uint64_t one = 1;
  while (write(server->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

void gpufi_server_log(gpuf_server *server, const char *line) {
  char *kept = server->logged[server->logged_count % GPUFI_LOGGED_MAX];
  for (int i = 0; i < server->logged_count; i++) {
    if (strncmp(server->logged[i], line, sizeof(server->logged[i]) - 1) == 0) {
      return;
    }
  }
  if (server->log && server->logged_count < GPUFI_LOGGED_MAX) {
    snprintf(kept, sizeof(server->logged[0]), "%.*s", (int)sizeof(server->logged[0]) - 1, line);
    server->logged_count++;
    server->log(server->log_arg, line);
  }
}

/* --- Sending ---------------------------------------------------------------------------------- */

static void send_json(gpuf_server *server, gpufi_channel channel, const gpufi_frame *identities,
                      size_t identity_count, const char *type, json_t *parent, json_t *content) {
  gpufi_packed packed;
  gpuf_error err;
  char *text = content ? json_dumps(content, JSON_COMPACT) : NULL;
  if (gpufi_message_pack(server->session, type, parent, text, &packed, &err) == GPUF_OK) {
    gpufi_sockets_send(server->sockets.sockets[channel], identities, identity_count, &packed, NULL,
                       0);
  } else {
    gpufi_server_log(server, err.message);
  }
  json_decref(content);
}

void gpufi_server_reply(gpuf_server *server, gpufi_channel channel, const gpufi_message *message,
                        const char *type, json_t *content) {
  send_json(server, channel, message->identities, message->identity_count, type, message->header,
            content);
}

void gpufi_server_publish(gpuf_server *server, const char *topic, const char *type, json_t *parent,
                          json_t *content) {
  const gpufi_frame frame = {topic, strlen(topic)};
  send_json(server, GPUFI_IOPUB, &frame, frame.nbytes > 0, type, parent, content);
}

void gpufi_server_status(gpuf_server *server, json_t *parent, const char *state) {
  char topic[64];
  snprintf(topic, sizeof(topic), "kernel.%s.status", gpufi_session_id(server->session));
  gpufi_server_publish(server, topic, "status", parent,
                       json_pack("{ss}", "execution_state", state));
}

/* --- Receiving ---------------------------------------------------------------------------------
 */

static bool receive_request(gpuf_server *server, gpufi_channel channel) {
  zmq_msg_t parts[GPUFI_WIRE_FRAMES_MAX + 1];
  gpufi_frame frames[GPUFI_WIRE_FRAMES_MAX + 1];
  gpufi_message message;
  gpuf_error err;
  const size_t count = gpufi_sockets_receive(server->sockets.sockets[channel], parts, frames);
  if (count == 0) {
    return false;
  }
  if (gpufi_message_parse(server->session, frames, count, &message, &err) != GPUF_OK) {
    gpufi_server_log(server, err.message);
  } else {
    if (channel != GPUFI_STDIN) { /* nothing is ever asked for, so nothing is an answer */
      gpufi_kernel_handle(server, channel, &message);
    }
    gpufi_message_fini(&message);
  }
  gpufi_sockets_release(parts, count);
  return true;
}

/* Each frame goes back as it comes, the identity first: to a client this looks like a REP socket.
 */
static bool receive_heartbeat(gpuf_server *server) {
  void *socket = server->sockets.sockets[GPUFI_HEARTBEAT];
  bool more = true;
  while (more) {
    zmq_msg_t part;
    zmq_msg_init(&part);
    if (zmq_msg_recv(&part, socket, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&part);
      return false;
    }
    more = zmq_msg_more(&part);
    if (zmq_msg_send(&part, socket, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) < 0) {
      zmq_msg_close(&part);
    }
  }
  return true;
}

/* A new subscriber learns by this that its subscription has come. It reaches all that have the
 * same topic, so one serves for all that came in a row. */
static void welcome(gpuf_server *server, const char *topic) {
  gpufi_server_publish(server, topic, "iopub_welcome", NULL,
                       json_pack("{ss}", "subscription", topic));
}

static bool receive_subscription(gpuf_server *server, char last[TOPIC_MAX_NBYTES + 1]) {
  char event[TOPIC_MAX_NBYTES + 1];
  const int nbytes =
      zmq_recv(server->sockets.sockets[GPUFI_IOPUB], event, sizeof(event) - 1, ZMQ_DONTWAIT);
  if (nbytes < 0) {
    return false;
  }
  if (nbytes == 0 || nbytes > (int)sizeof(event) - 1 || event[0] != 1) {
    return true; /* somebody left, or none that Jupyter would ask for */
  }
  event[nbytes] = '\0';
  if (strcmp(last, event) != 0) {
    welcome(server, event + 1);
    memcpy(last, event, (size_t)nbytes + 1);
  }
  return true;
}

static void serve_channel(gpuf_server *server, gpufi_channel channel) {
  char last[TOPIC_MAX_NBYTES + 1] = ""; /* the subscription answered last */
  bool more = true;
  for (int i = 0; i < MESSAGES_IN_A_ROW && more; i++) {
    if (channel == GPUFI_HEARTBEAT) {
      more = receive_heartbeat(server);
    } else if (channel == GPUFI_IOPUB) {
      more = receive_subscription(server, last);
    } else {
      more = receive_request(server, channel);
    }
  }
}

static void drain(int wake_fd) {
  uint64_t count;
  while (read(wake_fd, &count, sizeof(count)) < 0 && errno == EINTR) {
  }
}

void *gpufi_server_main(void *arg) {
  gpuf_server *server = arg;
  /* In the order of urgency. */
  static const gpufi_channel order[GPUFI_CHANNEL_COUNT] = {GPUFI_HEARTBEAT, GPUFI_IOPUB,
                                                           GPUFI_CONTROL, GPUFI_SHELL, GPUFI_STDIN};
  zmq_pollitem_t items[GPUFI_CHANNEL_COUNT + 1];
  for (int i = 0; i < GPUFI_CHANNEL_COUNT; i++) {
    items[i] = (zmq_pollitem_t){server->sockets.sockets[order[i]], -1, ZMQ_POLLIN, 0};
  }
  items[GPUFI_CHANNEL_COUNT] = (zmq_pollitem_t){NULL, server->wake_fd, ZMQ_POLLIN, 0};
  while (!atomic_load(&server->is_stopping)) {
    const long timeout_ms = server->comms.request_count > 0 ? WATCH_MS : -1;
    if (zmq_poll(items, GPUFI_CHANNEL_COUNT + 1, timeout_ms) < 0) {
      continue;
    }
    if (timeout_ms > 0 && gpufi_comms_are_stuck(&server->comms)) {
      gpufi_server_log(server, "subscribers that read nothing were disconnected");
      gpufi_sockets_drop_subscribers(&server->sockets, &server->connection);
    }
    for (int i = 0; i < GPUFI_CHANNEL_COUNT; i++) {
      if (items[i].revents) {
        serve_channel(server, order[i]);
      }
    }
    if (items[GPUFI_CHANNEL_COUNT].revents) {
      drain(server->wake_fd);
    }
    gpufi_comms_send_answers(&server->comms);
  }
  gpufi_comms_close_all(&server->comms);
  return NULL;
}
