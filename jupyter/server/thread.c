/* The server's thread: it serves all sockets, and does nothing that takes long. */
#include "base/clock.h"
#include "base/text.h"
#include "server/inside.h"
#include "server/server.h"
#include "server/topics.h"
#include "server/wake.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Messages of one socket in a row, so that a busy client does not starve the other sockets. */
#define MESSAGES_IN_A_ROW 32
/* While messages wait for replies or connections to iopub make the handshake, or there is a parent
 * to watch. */
#define WATCH_MS 1000

/* The message came over the connection that has this descriptor and number. */
static void handle_request(gpuf_server *server, gpufi_socket which, const gpufi_frame *frames,
                           size_t count, int fd, uint64_t number) {
  gpufi_message message;
  gpuf_error err;
  const gpuf_status status =
      gpufi_message_parse(server->endpoint.session, frames, count, &message, &err);
  if (status != GPUF_ERR_NO_MEMORY &&
      !gpufi_peers_note_message(&server->endpoint.sockets.peers, which, fd, number,
                                status == GPUF_OK)) {
    gpufi_endpoint_log(&server->endpoint,
                       "a connection that sent nothing but messages to refuse was closed");
  }
  if (status != GPUF_OK) {
    gpufi_endpoint_log(&server->endpoint, err.message);
    return;
  }
  if (which != GPUFI_STDIN) { /* this kernel asks for no input */
    gpufi_kernel_handle(&server->kernel, which, &message);
  }
  gpufi_message_fini(&message);
}

/* Send all frames of a ping back, the identity first: to a client this looks like a REP socket. */
static void echo(void *socket, zmq_msg_t *held, size_t count) {
  bool is_sent = count <= GPUFI_WIRE_FRAMES_MAX;
  for (size_t i = 0; i < count && is_sent; i++) {
    const int flags = ZMQ_DONTWAIT | (i + 1 < count ? ZMQ_SNDMORE : 0);
    is_sent = zmq_msg_send(&held[i], socket, flags) >= 0;
  }
}

/* Receive a request, or a ping to the heartbeat, and answer it. Return whether there was one. */
static bool receive_message(gpuf_server *server, gpufi_socket which) {
  zmq_msg_t held[GPUFI_WIRE_FRAMES_MAX + 1];
  gpufi_frame frames[GPUFI_WIRE_FRAMES_MAX + 1];
  void *socket = server->endpoint.sockets.sockets[which];
  gpufi_peers *peers = &server->endpoint.sockets.peers;
  size_t nbytes;
  const size_t count = gpufi_sockets_receive(socket, held, frames, &nbytes);
  if (count == 0) {
    return false;
  }
  const int fd = zmq_msg_get(&held[count - 1], ZMQ_SRCFD);
  const uint64_t number = gpufi_zap_number(&held[count - 1]);
  gpufi_peers_note_taken(peers, fd, number, nbytes);
  if (!gpufi_peers_has_cut(peers, number)) {
    if (which != GPUFI_HEARTBEAT) {
      handle_request(server, which, frames, count, fd, number);
    } else if (gpufi_peers_note_ping(peers, fd, number)) {
      echo(socket, held, count);
    }
  }
  gpufi_sockets_release(held, count);
  return true;
}

/* Tell a new subscriber that its subscription has arrived. The message reaches all subscribers of
 * the topic, so it is sent once for several in a row. */
static void welcome(gpuf_server *server, const char *topic) {
  gpufi_endpoint_publish(&server->endpoint, topic, "iopub_welcome", NULL,
                         json_pack("{ss}", "subscription", topic));
}

/* Whether a subscriber may subscribe, or take back a subscription; its connection is shut down
 * otherwise. */
static bool note_subscription(gpuf_server *server, zmq_msg_t *event) {
  gpufi_peers *peers = &server->endpoint.sockets.peers;
  const int fd = zmq_msg_get(event, ZMQ_SRCFD);
  const uint8_t *data = zmq_msg_data(event);
  if (zmq_msg_size(event) > 1 + GPUFI_TOPIC_MAX_NBYTES) {
    gpufi_endpoint_log(&server->endpoint, "a subscriber was disconnected: its topic is too long");
    gpufi_peers_cut(peers, GPUFI_IOPUB, fd);
    return false;
  }
  if (zmq_msg_size(event) > 0 && data[0] <= 1 &&
      !gpufi_peers_note_subscription(peers, fd, gpufi_zap_number(event), data[0] == 1)) {
    gpufi_endpoint_log(&server->endpoint, "a subscriber was disconnected: too many subscriptions");
    return false;
  }
  return zmq_msg_size(event) > 0 && data[0] == 1;
}

/* Where ZeroMQ keeps the subscriptions. */
static bool receive_subscription(gpuf_server *server, char last[GPUFI_TOPIC_MAX_NBYTES + 2]) {
  char text[GPUFI_TOPIC_MAX_NBYTES + 2]; /* the event as text: 1 and the topic */
  zmq_msg_t event;
  zmq_msg_init(&event);
  if (zmq_msg_recv(&event, server->endpoint.sockets.sockets[GPUFI_IOPUB], ZMQ_DONTWAIT) < 0) {
    zmq_msg_close(&event);
    return false;
  }
  if (note_subscription(server, &event)) {
    snprintf(text, sizeof(text), "%.*s", (int)zmq_msg_size(&event),
             (const char *)zmq_msg_data(&event));
    /* What is not UTF-8 is no topic of a message. */
    if (strcmp(last, text) != 0 && gpufi_text_is_utf8(text + 1)) {
      welcome(server, text + 1);
      memcpy(last, text, sizeof(text));
    }
  }
  zmq_msg_close(&event);
  return true;
}

static void welcome_subscriber(void *server, const char *topic, size_t nbytes) {
  char text[GPUFI_TOPIC_MAX_NBYTES + 1];
  snprintf(text, sizeof(text), "%.*s", (int)nbytes, topic);
  if (gpufi_text_is_utf8(text)) {
    welcome(server, text);
  }
}

static void log_refused(void *arg, const char *why) {
  gpuf_server *server = arg;
  gpufi_endpoint_log(&server->endpoint, why);
}

/* Where subscribers.c keeps them. */
static bool receive_from_subscriber(gpuf_server *server) {
  const gpufi_subscribers_events events = {welcome_subscriber, log_refused, server};
  return gpufi_subscribers_receive(&server->endpoint.sockets.subscribers, &events);
}

static void serve_socket(gpuf_server *server, gpufi_socket which) {
  char last[GPUFI_TOPIC_MAX_NBYTES + 2] = ""; /* the subscription answered last */
  bool more = true;
  for (int i = 0; i < MESSAGES_IN_A_ROW && more; i++) {
    if (which == GPUFI_IOPUB) {
      more = server->endpoint.sockets.subscribers.socket ? receive_from_subscriber(server)
                                                         : receive_subscription(server, last);
    } else {
      more = receive_message(server, which);
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

/* In the order of urgency. */
static const gpufi_socket order[GPUFI_SOCKET_COUNT] = {GPUFI_HEARTBEAT, GPUFI_IOPUB, GPUFI_CONTROL,
                                                       GPUFI_SHELL, GPUFI_STDIN};

/* What the thread waits for: the sockets in this order, their monitors, questions at handshakes,
 * and other threads. */
enum { FIRST_MONITOR = GPUFI_SOCKET_COUNT, ZAP = 2 * GPUFI_SOCKET_COUNT, WAKE, ITEM_COUNT };

static void fill_items(gpuf_server *server, zmq_pollitem_t items[ITEM_COUNT]) {
  gpufi_sockets *sockets = &server->endpoint.sockets;
  for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
    items[i] = (zmq_pollitem_t){sockets->sockets[order[i]], -1, ZMQ_POLLIN, 0};
    items[FIRST_MONITOR + i] = (zmq_pollitem_t){sockets->peers.monitors[i], -1, ZMQ_POLLIN, 0};
  }
  items[ZAP] = (zmq_pollitem_t){sockets->zap, -1, ZMQ_POLLIN, 0};
  items[WAKE] = (zmq_pollitem_t){NULL, server->wake_fd, ZMQ_POLLIN, 0};
}

/* Before anything that a new connection has sent is looked at. */
static void update_peers(gpuf_server *server) {
  if (!gpufi_peers_update(&server->endpoint.sockets.peers)) {
    gpufi_endpoint_log(&server->endpoint,
                       "more connections than connections_max, or than leave the program an eighth "
                       "of its descriptors: further ones are closed as they come");
  }
  if (!gpufi_peers_cut_unread(&server->endpoint.sockets.peers)) {
    gpufi_endpoint_log(
        &server->endpoint,
        "connections that send faster than requests are read, or messages without an "
        "end, were closed");
  }
}

static void admit(gpuf_server *server) {
  gpufi_sockets *sockets = &server->endpoint.sockets;
  for (int i = 0; i < MESSAGES_IN_A_ROW && gpufi_zap_answer(sockets->zap, &sockets->peers); i++) {
  }
}

static void cut_stalled_subscribers(gpuf_server *server) {
  gpufi_endpoint_log(&server->endpoint, "subscribers that read nothing were disconnected");
  gpufi_peers_cut_stalled(&server->endpoint.sockets.peers, GPUFI_IOPUB);
}

void *gpufi_server_main(void *arg) {
  gpuf_server *server = arg;
  gpufi_subscribers *subscribers = &server->endpoint.sockets.subscribers;
  gpufi_peers *peers = &server->endpoint.sockets.peers;
  zmq_pollitem_t items[ITEM_COUNT];
  int64_t watch_next_ns = 0;
  gpufi_inside inside;
  gpufi_inside_enter(&inside, server);
  fill_items(server, items);
  while (!atomic_load(&server->is_stopping)) {
    const bool is_waiting = server->bridge.pending_count > 0;
    const bool is_watching =
        is_waiting || subscribers->unready_count > 0 || server->parent.process_id;
    const long look_ms = gpufi_peers_look_ms(peers);
    const bool is_looking = look_ms >= 0 && (!is_watching || look_ms < WATCH_MS);
    const long timeout_ms = is_looking ? look_ms : is_watching ? WATCH_MS : -1;
    if (zmq_poll(items, ITEM_COUNT, timeout_ms) < 0) {
      continue;
    }
    update_peers(server);
    watch_parent(server, &watch_next_ns);
    gpufi_subscribers_cut_late(subscribers);
    if (is_waiting && gpufi_bridge_is_stuck(&server->bridge)) {
      cut_stalled_subscribers(server);
    }
    if (items[ZAP].revents) {
      admit(server);
    }
    for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
      if (items[i].revents) {
        serve_socket(server, order[i]);
      }
    }
    if (items[WAKE].revents) {
      gpufi_wake_drain(server->wake_fd);
    }
    gpufi_bridge_send_answers(&server->bridge);
  }
  gpufi_bridge_close_all(&server->bridge);
  gpufi_inside_leave(&inside);
  return NULL;
}
