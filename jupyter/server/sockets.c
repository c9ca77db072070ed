#include "server/sockets.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINGER_MS 1000
/* Messages that wait for one client. Those of iopub may be large. Requests that come in wait
 * without a limit: ZeroMQ ends the process where a connection is reset while its messages wait to
 * be taken into a queue that is full, and a ping is due to it or is among them. */
#define CLIENT_QUEUE_COUNT 64
#define SUBSCRIBER_QUEUE_COUNT 256
/* A peer that has vanished, or takes nothing that is sent, is taken for dead: its connection is
 * closed and its queue freed. The system looks for the former, not ZeroMQ's pings, for the same
 * reason. */
#define KEEPALIVE_IDLE_S 6
#define KEEPALIVE_INTERVAL_S 1
#define KEEPALIVE_COUNT 3
#define STALL_MAX_MS 6000
/* A connection that has not said by then who it is, is closed. */
#define HANDSHAKE_MAX_MS 5000
/* A subscription, which costs ZeroMQ about 32 times its size, and CurveZMQ's handshake. */
#define SUBSCRIPTION_MAX_NBYTES 1024
/* Subscriptions that wait to be looked at, with CurveZMQ: more than a client may have, so that the
 * queue is full of no client's that keeps to that (see above), and so few that one that sends them
 * without end does not keep ZeroMQ from returning to this thread. */
#define SUBSCRIPTION_QUEUE_COUNT 64
/* Without: reads of a connection, of at most 8 KiB, that wait to be looked at. */
#define READ_QUEUE_COUNT 2

/* --- Open ---------------------------------------------------------------------- */

/* Iopub is a publisher of ZeroMQ's own, whom a peer can harm (subscribers.h), where CurveZMQ admits
 * only those who know its keys and what they send cannot be read here. */
static int type_of(const gpufi_connection *connection, gpufi_socket which) {
  const bool has_curve = connection->curve_secretkey[0];
  return which != GPUFI_IOPUB ? ZMQ_ROUTER : has_curve ? ZMQ_XPUB : ZMQ_STREAM;
}

static bool set_int(void *socket, int option, int value) {
  return zmq_setsockopt(socket, option, &value, sizeof(value)) == 0;
}

static bool set_queues(void *socket, int type) {
  const bool publishes = type == ZMQ_XPUB;
  const int64_t frame_max_nbytes =
      publishes ? SUBSCRIPTION_MAX_NBYTES : (int64_t)GPUFI_WIRE_FRAME_MAX_NBYTES;
  if (type == ZMQ_STREAM) { /* subscribers.c limits what goes out, and the size of what comes in */
    return set_int(socket, ZMQ_SNDHWM, 0) && set_int(socket, ZMQ_RCVHWM, READ_QUEUE_COUNT);
  }
  return set_int(socket, ZMQ_SNDHWM, publishes ? SUBSCRIBER_QUEUE_COUNT : CLIENT_QUEUE_COUNT) &&
         set_int(socket, ZMQ_RCVHWM, publishes ? SUBSCRIPTION_QUEUE_COUNT : 0) &&
         set_int(socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MAX_MS) &&
         zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &frame_max_nbytes, sizeof(frame_max_nbytes)) == 0 &&
         set_int(socket, publishes ? ZMQ_XPUB_VERBOSE : ZMQ_ROUTER_HANDOVER, 1);
}

static bool set_limits(void *socket, int type) {
  return set_queues(socket, type) && gpufi_zap_require(socket) &&
         set_int(socket, ZMQ_LINGER, LINGER_MS) && set_int(socket, ZMQ_TCP_KEEPALIVE, 1) &&
         set_int(socket, ZMQ_TCP_KEEPALIVE_IDLE, KEEPALIVE_IDLE_S) &&
         set_int(socket, ZMQ_TCP_KEEPALIVE_INTVL, KEEPALIVE_INTERVAL_S) &&
         set_int(socket, ZMQ_TCP_KEEPALIVE_CNT, KEEPALIVE_COUNT) &&
         set_int(socket, ZMQ_TCP_MAXRT, STALL_MAX_MS);
}

static bool set_curve(void *socket, const gpufi_connection *connection) {
  return !connection->curve_secretkey[0] ||
         (set_int(socket, ZMQ_CURVE_SERVER, 1) &&
          zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, connection->curve_secretkey,
                         GPUFI_CURVE_KEY_NBYTES) == 0);
}

/* Take the address and the port of an endpoint such as "tcp://127.0.0.1:40000": the system may have
 * chosen the port, and clients cannot use the name of a network interface. */
static void take_endpoint(gpufi_connection *connection, gpufi_socket which, const char *endpoint) {
  const char *ip = endpoint + strlen("tcp://"), *colon = strrchr(endpoint, ':');
  if (strncmp(endpoint, "tcp://", strlen("tcp://")) == 0 && colon > ip) {
    snprintf(connection->ip, sizeof(connection->ip), "%.*s", (int)(colon - ip), ip);
    connection->ports[which] = (int32_t)strtol(colon + 1, NULL, 10);
  }
}

/* A socket of ipc is a file, which the umask may have opened to others. */
static void keep_to_owner(const gpufi_connection *connection, const char *url) {
  if (connection->is_ipc) {
    chmod(url + strlen("ipc://"), 0600);
  }
}

/* ZeroMQ removes whatever has the path of a socket of ipc: only a socket that was left may go. */
static gpuf_status check_place(const gpufi_connection *connection, const char *url,
                               gpuf_error *err) {
  struct stat info;
  const char *path = url + strlen("ipc://");
  if (!connection->is_ipc || lstat(path, &info) != 0 || S_ISSOCK(info.st_mode)) {
    return GPUF_OK;
  }
  return gpufi_fail(err, GPUF_ERR_IO, EEXIST,
                    "cannot listen on %.300s: what is there is no socket; remove it, or serve over "
                    "tcp (ip 127.0.0.1)",
                    path);
}

static gpuf_status bind_socket(gpufi_sockets *sockets, gpufi_connection *connection,
                               gpufi_socket which, gpuf_error *err) {
  char endpoint[PATH_MAX + 64];
  size_t endpoint_nbytes = sizeof(endpoint);
  void *socket = sockets->sockets[which];
  gpufi_connection_url(connection, which, endpoint);
  const gpuf_status status = check_place(connection, endpoint, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (zmq_bind(socket, endpoint) != 0) {
    const int code = zmq_errno();
    const char *remedy =
        code == EADDRINUSE     ? "another process uses it: choose another port, or 0 for any"
        : code == ENAMETOOLONG ? "use a shorter path, or tcp"
        : code == ENODEV
            ? "give an IPv4 address of this host, or the name of a network interface that has one"
        : connection->is_ipc ? "this folder takes no sockets: serve over tcp (ip 127.0.0.1)"
                             : "check the address and the permissions in the options";
    return gpufi_fail(err, GPUF_ERR_IO, code, "cannot listen on %.300s for %s: %s; %s", endpoint,
                      gpufi_socket_names[which], zmq_strerror(code), remedy);
  }
  if (zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &endpoint_nbytes) == 0 &&
      !connection->is_ipc) {
    take_endpoint(connection, which, endpoint);
  }
  connection->has_sockets = connection->is_ipc;
  keep_to_owner(connection, endpoint);
  return GPUF_OK;
}

static gpuf_status open_socket(gpufi_sockets *sockets, gpufi_connection *connection,
                               gpufi_socket which, gpuf_error *err) {
  const int type = type_of(connection, which);
  void *socket = zmq_socket(sockets->context, type);
  sockets->sockets[which] = socket;
  if (!socket || !set_limits(socket, type) || !set_curve(socket, connection)) {
    return gpufi_fail(err, GPUF_ERR_IO, zmq_errno(), "cannot open a ZeroMQ socket for %s: %s",
                      gpufi_socket_names[which], zmq_strerror(zmq_errno()));
  }
  if (type == ZMQ_STREAM) {
    gpufi_subscribers_init(&sockets->subscribers, socket, &sockets->peers);
  }
  const gpuf_status status =
      gpufi_peers_watch(&sockets->peers, sockets->context, socket, which, err);
  return status == GPUF_OK ? bind_socket(sockets, connection, which, err) : status;
}

/* ZeroMQ's calls on sockets may fail with EINTR before they have done anything: signals wait, here
 * and in gpufi_sockets_close. */
gpuf_status gpufi_sockets_open(gpufi_sockets *sockets, gpufi_connection *connection,
                               int32_t peers_max, gpuf_error *err) {
  sigset_t signals;
  memset(sockets, 0, sizeof(*sockets));
  gpufi_forked_watch(&sockets->forked, connection);
  gpufi_signals_block(&signals);
  gpuf_status status = gpufi_peers_init(&sockets->peers, connection, peers_max, err);
  if (status == GPUF_OK) {
    sockets->context = zmq_ctx_new();
    status = sockets->context
                 ? GPUF_OK
                 : gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for a ZeroMQ context");
  }
  if (status == GPUF_OK) {
    sockets->zap = gpufi_zap_open(sockets->context);
    status = sockets->zap ? GPUF_OK
                          : gpufi_fail(err, GPUF_ERR_IO, zmq_errno(),
                                       "cannot open a ZeroMQ socket for handshakes: %s",
                                       zmq_strerror(zmq_errno()));
  }
  for (int i = 0; i < GPUFI_SOCKET_COUNT && status == GPUF_OK; i++) {
    status = open_socket(sockets, connection, (gpufi_socket)i, err);
  }
  pthread_sigmask(SIG_SETMASK, &signals, NULL);
  if (status != GPUF_OK) {
    gpufi_sockets_close(sockets);
  }
  return status;
}

void gpufi_sockets_close(gpufi_sockets *sockets) {
  sigset_t signals;
  gpufi_signals_block(&signals);
  gpufi_peers_fini(&sockets->peers, sockets->sockets);
  for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
    if (sockets->sockets[i]) {
      zmq_close(sockets->sockets[i]);
    }
  }
  if (sockets->zap) {
    zmq_close(sockets->zap);
  }
  pthread_sigmask(SIG_SETMASK, &signals, NULL);
  if (sockets->context) {
    /* Until it returns 0, the context's threads may still send buffers of replies. */
    while (zmq_ctx_term(sockets->context) != 0 && zmq_errno() == EINTR) {
    }
  }
  gpufi_forked_unwatch(&sockets->forked);
  memset(sockets, 0, sizeof(*sockets));
}

/* --- Messages ------------------------------------------------------------------ */

size_t gpufi_sockets_receive(void *socket, zmq_msg_t *held, gpufi_frame *frames, size_t *nbytes) {
  size_t count = 0;
  bool more = true;
  *nbytes = 0;
  while (more) {
    zmq_msg_t *frame = &held[count];
    zmq_msg_init(frame);
    if (zmq_msg_recv(frame, socket, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(frame);
      return count;
    }
    more = zmq_msg_more(frame);
    if (count > 0) {
      *nbytes += zmq_msg_size(frame) + (zmq_msg_size(frame) > UINT8_MAX ? 9 : 2);
    }
    frames[count] = (gpufi_frame){zmq_msg_data(frame), zmq_msg_size(frame)};
    if (count == GPUFI_WIRE_FRAMES_MAX && more) {
      zmq_msg_close(frame); /* the last frame takes this place */
    } else {
      count++;
    }
  }
  return count;
}

void gpufi_sockets_release(zmq_msg_t *held, size_t count) {
  for (size_t i = 0; i < count; i++) {
    zmq_msg_close(&held[i]);
  }
}

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

static bool send_payload(void *socket, gpufi_payload *payload, bool more) {
  zmq_msg_t frame;
  if (zmq_msg_init_data(&frame, payload->data, payload->nbytes, payload->release, payload->arg) !=
      0) {
    payload->release(payload->data, payload->arg);
    return false;
  }
  return send_frame(socket, &frame, more);
}

/* To everyone who has subscribed, where subscribers.c keeps them. */
static void publish(gpufi_sockets *sockets, const gpufi_frame *topics, size_t topic_count,
                    const gpufi_packed *packed, const gpufi_payload *payloads,
                    size_t payload_count) {
  gpufi_frame frames[7];
  size_t count = 0;
  if (topic_count > 0) {
    frames[count++] = topics[0];
  }
  frames[count++] = (gpufi_frame){GPUFI_WIRE_DELIMITER, strlen(GPUFI_WIRE_DELIMITER)};
  frames[count++] = (gpufi_frame){packed->signature, sizeof(packed->signature) - 1};
  for (int i = 0; i < 4; i++) {
    frames[count++] = packed->sections[i];
  }
  gpufi_subscribers_publish(&sockets->subscribers, frames, count, payloads, payload_count);
}

static void send_frames(void *socket, const gpufi_frame *identities, size_t identity_count,
                        gpufi_packed *packed, gpufi_payload *payloads, size_t payload_count) {
  bool sent = true;
  for (size_t i = 0; i < identity_count && sent; i++) {
    sent = send_copy(socket, identities[i].data, identities[i].nbytes, true);
  }
  sent = sent && send_copy(socket, GPUFI_WIRE_DELIMITER, strlen(GPUFI_WIRE_DELIMITER), true) &&
         send_copy(socket, packed->signature, sizeof(packed->signature) - 1, true);
  for (int i = 0; i < 4 && sent; i++) {
    sent = send_copy(socket, packed->sections[i].data, packed->sections[i].nbytes,
                     i < 3 || payload_count > 0);
  }
  for (size_t i = 0; i < payload_count; i++) {
    if (sent) {
      sent = send_payload(socket, &payloads[i], i + 1 < payload_count);
    } else {
      payloads[i].release(payloads[i].data, payloads[i].arg);
    }
  }
}

void gpufi_sockets_send(gpufi_sockets *sockets, gpufi_socket which, const gpufi_frame *identities,
                        size_t identity_count, gpufi_packed *packed, gpufi_payload *payloads,
                        size_t payload_count) {
  if (which == GPUFI_IOPUB && sockets->subscribers.socket) {
    publish(sockets, identities, identity_count, packed, payloads, payload_count);
  } else {
    send_frames(sockets->sockets[which], identities, identity_count, packed, payloads,
                payload_count);
  }
  gpufi_packed_fini(packed);
}
