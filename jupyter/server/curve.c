#include "server/curve.h"

#include "base/error.h"
#include "server/limits.h"
#include "server/listen.h"
#include "server/topics.h"
#include "server/zap.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Requests that come in wait without a limit: ZeroMQ ends the process where a connection is reset
 * while its messages wait to be taken into a queue that is full, and a ping is due to it or is
 * among them. For the same reason the system looks for peers that have vanished, not ZeroMQ's
 * pings. */
#define REQUEST_QUEUE_COUNT 0
/* A subscription, which costs ZeroMQ about 32 times its size, and CurveZMQ's handshake. */
#define SUBSCRIPTION_MAX_NBYTES 1024
/* Subscriptions that wait to be looked at: more than a client may have, so that the queue is full
 * of no client's that keeps to that (see above), and so few that one that sends them without end
 * does not keep ZeroMQ from returning to this thread. */
#define SUBSCRIPTION_QUEUE_COUNT 64
/* Messages of one socket in a row, so that a busy client does not starve the other sockets. */
#define MESSAGES_IN_A_ROW 32

/* --- Open and close ------------------------------------------------------------ */

static bool set_int(void *socket, int option, int value) {
  return zmq_setsockopt(socket, option, &value, sizeof(value)) == 0;
}

/* Each subscriber's subscriptions are counted, and so all must be told of, also those that another
 * has as well, and those that are taken back. */
static bool set_queues(void *socket, bool publishes) {
  const int64_t frame_max_nbytes =
      publishes ? SUBSCRIPTION_MAX_NBYTES : (int64_t)GPUFI_WIRE_FRAME_MAX_NBYTES;
  return set_int(socket, ZMQ_SNDHWM,
                 publishes ? GPUFI_SUBSCRIBER_QUEUE_COUNT : GPUFI_CLIENT_QUEUE_COUNT) &&
         set_int(socket, ZMQ_RCVHWM, publishes ? SUBSCRIPTION_QUEUE_COUNT : REQUEST_QUEUE_COUNT) &&
         zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &frame_max_nbytes, sizeof(frame_max_nbytes)) == 0 &&
         set_int(socket, publishes ? ZMQ_XPUB_VERBOSER : ZMQ_ROUTER_HANDOVER, 1);
}

static bool set_limits(void *socket, bool publishes) {
  return set_queues(socket, publishes) && gpufi_zap_require(socket) &&
         set_int(socket, ZMQ_HANDSHAKE_IVL, GPUFI_HANDSHAKE_MAX_MS) &&
         set_int(socket, ZMQ_LINGER, GPUFI_LINGER_MS) && set_int(socket, ZMQ_TCP_KEEPALIVE, 1) &&
         set_int(socket, ZMQ_TCP_KEEPALIVE_IDLE, GPUFI_KEEPALIVE_IDLE_S) &&
         set_int(socket, ZMQ_TCP_KEEPALIVE_INTVL, GPUFI_KEEPALIVE_INTERVAL_S) &&
         set_int(socket, ZMQ_TCP_KEEPALIVE_CNT, GPUFI_KEEPALIVE_COUNT) &&
         set_int(socket, ZMQ_TCP_MAXRT, GPUFI_STALL_MAX_MS);
}

static bool set_key(void *socket, const gpufi_connection *connection) {
  return set_int(socket, ZMQ_CURVE_SERVER, 1) &&
         zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, connection->curve_secretkey,
                        GPUFI_CURVE_KEY_NBYTES) == 0;
}

static gpuf_status fail(const char *what, gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_IO, zmq_errno(), "cannot %s: %s", what,
                    zmq_strerror(zmq_errno()));
}

/* ZeroMQ accepts on a socket that listens already, and closes it. */
static gpuf_status listen_on(void *socket, gpufi_connection *connection, gpufi_socket which,
                             gpuf_error *err) {
  char url[PATH_MAX + 64];
  int fd;
  gpuf_status status = gpufi_listen(connection, which, &fd, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_connection_url(connection, which, url);
  if (!set_int(socket, ZMQ_USE_FD, fd) || zmq_bind(socket, url) != 0) {
    status = fail("have ZeroMQ listen", err);
    close(fd);
  }
  return status;
}

static gpuf_status open_socket(gpufi_curve *curve, gpufi_connection *connection, gpufi_socket which,
                               gpuf_error *err) {
  const bool publishes = which == GPUFI_IOPUB;
  void *socket = zmq_socket(curve->context, publishes ? ZMQ_XPUB : ZMQ_ROUTER);
  curve->sockets[which] = socket;
  if (!socket || !set_limits(socket, publishes) || !set_key(socket, connection)) {
    return fail("open a ZeroMQ socket", err);
  }
  const gpuf_status status = gpufi_peers_watch(&curve->peers, curve->context, socket, which, err);
  return status == GPUF_OK ? listen_on(socket, connection, which, err) : status;
}

gpuf_status gpufi_curve_open(gpufi_curve *curve, gpufi_connection *connection, int32_t peers_max,
                             gpuf_error *err) {
  memset(curve, 0, sizeof(*curve));
  gpuf_status status = gpufi_peers_init(&curve->peers, connection, peers_max, err);
  if (status == GPUF_OK) {
    curve->context = zmq_ctx_new();
    status = curve->context
                 ? GPUF_OK
                 : gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for a ZeroMQ context");
  }
  if (status == GPUF_OK) {
    curve->zap = gpufi_zap_open(curve->context);
    status = curve->zap ? GPUF_OK : fail("open a ZeroMQ socket for handshakes", err);
  }
  for (int i = 0; i < GPUFI_SOCKET_COUNT && status == GPUF_OK; i++) {
    status = open_socket(curve, connection, (gpufi_socket)i, err);
  }
  return status;
}

void gpufi_curve_close(gpufi_curve *curve) {
  gpufi_peers_fini(&curve->peers, curve->sockets);
  for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
    if (curve->sockets[i]) {
      zmq_close(curve->sockets[i]);
    }
  }
  if (curve->zap) {
    zmq_close(curve->zap);
  }
  if (curve->context) {
    /* Until it returns 0, the context's threads may still send buffers of replies. */
    while (zmq_ctx_term(curve->context) != 0 && zmq_errno() == EINTR) {
    }
  }
  memset(curve, 0, sizeof(*curve));
}

/* --- Sending ------------------------------------------------------------------- */

/* Takes over `frame`, in failure too. When it was the first of a message, the others must not
 * follow. */
static bool send_frame(void *socket, zmq_msg_t *frame, bool more) {
  const int flags = ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0);
  if (zmq_msg_send(frame, socket, flags) < 0) {
    zmq_msg_close(frame);
    return false;
  }
  return true;
}

static bool send_copy(void *socket, const void *data, size_t nbytes, bool more) {
  zmq_msg_t frame;
  if (zmq_msg_init_size(&frame, nbytes) != 0) {
    return false;
  }
  if (nbytes > 0) {
    memcpy(zmq_msg_data(&frame), data, nbytes);
  }
  return send_frame(socket, &frame, more);
}

static bool send_payload(void *socket, const gpufi_payload *payload, bool more) {
  zmq_msg_t frame;
  if (zmq_msg_init_data(&frame, payload->data, payload->nbytes, payload->release, payload->arg) !=
      0) {
    payload->release(payload->data, payload->arg);
    return false;
  }
  return send_frame(socket, &frame, more);
}

void gpufi_curve_send(gpufi_curve *curve, gpufi_socket which, const gpufi_frame *frames,
                      size_t count, const gpufi_payload *payloads, size_t payload_count) {
  void *socket = curve->sockets[which];
  bool sent = true;
  for (size_t i = 0; i < count && sent; i++) {
    sent = send_copy(socket, frames[i].data, frames[i].nbytes, i + 1 < count || payload_count > 0);
  }
  for (size_t i = 0; i < payload_count; i++) {
    if (sent) {
      sent = send_payload(socket, &payloads[i], i + 1 < payload_count);
    } else {
      payloads[i].release(payloads[i].data, payloads[i].arg);
    }
  }
}

void gpufi_curve_cut_stalled(gpufi_curve *curve, gpufi_socket which) {
  gpufi_peers_cut_stalled(&curve->peers, which);
}

/* --- Receiving ----------------------------------------------------------------- */

/* One message, without waiting. `frames` point into `held`, both of GPUFI_WIRE_FRAMES_MAX + 1; the
 * caller releases them. 0 if no message has come. Frames past the end of the arrays are dropped;
 * the count then says that there were too many. */
static size_t receive(void *socket, zmq_msg_t *held, gpufi_frame *frames) {
  size_t count = 0;
  bool more = true;
  while (more) {
    zmq_msg_t *frame = &held[count];
    zmq_msg_init(frame);
    if (zmq_msg_recv(frame, socket, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(frame);
      return count;
    }
    more = zmq_msg_more(frame);
    frames[count] = (gpufi_frame){zmq_msg_data(frame), zmq_msg_size(frame)};
    if (count == GPUFI_WIRE_FRAMES_MAX && more) {
      zmq_msg_close(frame); /* the last frame takes this place */
    } else {
      count++;
    }
  }
  return count;
}

static void release(zmq_msg_t *held, size_t count) {
  for (size_t i = 0; i < count; i++) {
    zmq_msg_close(&held[i]);
  }
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
static bool receive_message(gpufi_curve *curve, gpufi_socket which, const gpufi_events *events) {
  zmq_msg_t held[GPUFI_WIRE_FRAMES_MAX + 1];
  gpufi_frame frames[GPUFI_WIRE_FRAMES_MAX + 1];
  void *socket = curve->sockets[which];
  const size_t count = receive(socket, held, frames);
  if (count == 0) {
    return false;
  }
  const int fd = zmq_msg_get(&held[count - 1], ZMQ_SRCFD);
  const uint64_t number = gpufi_zap_number(&held[count - 1]);
  if (!gpufi_peers_has_cut(&curve->peers, number)) {
    if (which != GPUFI_HEARTBEAT) {
      const bool is_good = events->request(events->arg, which, frames, count);
      if (!gpufi_peers_note_message(&curve->peers, which, fd, number, is_good)) {
        events->log(events->arg, GPUFI_LOG_REFUSED);
      }
    } else if (gpufi_peers_note_ping(&curve->peers, fd, number)) {
      echo(socket, held, count);
    }
  }
  release(held, count);
  return true;
}

/* Whether a subscriber has subscribed, as it may; otherwise it has taken a subscription back, or
 * its connection was shut down. */
static bool note_subscription(gpufi_curve *curve, zmq_msg_t *event, const gpufi_events *events) {
  const int fd = zmq_msg_get(event, ZMQ_SRCFD);
  const uint8_t *data = zmq_msg_data(event);
  if (zmq_msg_size(event) > 1 + GPUFI_TOPIC_MAX_NBYTES) {
    events->log(events->arg, "a subscriber was disconnected: its topic is too long");
    gpufi_peers_cut(&curve->peers, GPUFI_IOPUB, fd);
    return false;
  }
  if (zmq_msg_size(event) > 0 && data[0] <= 1 &&
      !gpufi_peers_note_subscription(&curve->peers, fd, gpufi_zap_number(event), data[0] == 1)) {
    events->log(events->arg, "a subscriber was disconnected: too many subscriptions");
    return false;
  }
  return zmq_msg_size(event) > 0 && data[0] == 1;
}

/* What tells a subscriber that its subscription has arrived reaches all subscribers of the topic,
 * so that several in a row are told of once. */
static bool receive_subscription(gpufi_curve *curve, char last[GPUFI_TOPIC_MAX_NBYTES + 2],
                                 const gpufi_events *events) {
  char text[GPUFI_TOPIC_MAX_NBYTES + 2]; /* the event as text: 1 and the topic */
  zmq_msg_t event;
  zmq_msg_init(&event);
  if (zmq_msg_recv(&event, curve->sockets[GPUFI_IOPUB], ZMQ_DONTWAIT) < 0) {
    zmq_msg_close(&event);
    return false;
  }
  if (note_subscription(curve, &event, events)) {
    snprintf(text, sizeof(text), "%.*s", (int)zmq_msg_size(&event),
             (const char *)zmq_msg_data(&event));
    if (strcmp(last, text) != 0) {
      events->subscribed(events->arg, text + 1, strlen(text + 1));
      memcpy(last, text, sizeof(text));
    }
  }
  zmq_msg_close(&event);
  return true;
}

static void serve_socket(gpufi_curve *curve, gpufi_socket which, const gpufi_events *events) {
  char last[GPUFI_TOPIC_MAX_NBYTES + 2] = ""; /* the subscription that was told of last */
  bool more = true;
  for (int i = 0; i < MESSAGES_IN_A_ROW && more; i++) {
    more = which == GPUFI_IOPUB ? receive_subscription(curve, last, events)
                                : receive_message(curve, which, events);
  }
}

/* In the order of urgency. */
static const gpufi_socket order[GPUFI_SOCKET_COUNT] = {GPUFI_HEARTBEAT, GPUFI_IOPUB, GPUFI_CONTROL,
                                                       GPUFI_SHELL, GPUFI_STDIN};

/* The sockets in this order, their monitors, and questions at handshakes. */
enum { FIRST_MONITOR = GPUFI_SOCKET_COUNT, ZAP = 2 * GPUFI_SOCKET_COUNT };
_Static_assert(ZAP + 1 == GPUFI_CURVE_ITEM_COUNT, "all that is waited for");

void gpufi_curve_items(const gpufi_curve *curve, zmq_pollitem_t items[GPUFI_CURVE_ITEM_COUNT]) {
  for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
    items[i] = (zmq_pollitem_t){curve->sockets[order[i]], -1, ZMQ_POLLIN, 0};
    items[FIRST_MONITOR + i] = (zmq_pollitem_t){curve->peers.monitors[i], -1, ZMQ_POLLIN, 0};
  }
  items[ZAP] = (zmq_pollitem_t){curve->zap, -1, ZMQ_POLLIN, 0};
}

void gpufi_curve_serve(gpufi_curve *curve, const zmq_pollitem_t items[GPUFI_CURVE_ITEM_COUNT],
                       const gpufi_events *events) {
  /* Before anything that a new connection has sent is looked at. */
  if (!gpufi_peers_update(&curve->peers)) {
    events->log(events->arg, GPUFI_LOG_TOO_MANY);
  }
  for (int i = 0;
       i < MESSAGES_IN_A_ROW && items[ZAP].revents && gpufi_zap_answer(curve->zap, &curve->peers);
       i++) {
  }
  for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
    if (items[i].revents) {
      serve_socket(curve, order[i], events);
    }
  }
}
