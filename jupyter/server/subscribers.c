#include "server/subscribers.h"

#include "base/clock.h"
#include "comm/protocol.h"
#include "server/topics.h"
#include "server/zmtp.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define ID_NBYTES 5 /* of ZeroMQ's names for connections */
#define HANDSHAKE_MAX_NS INT64_C(5000000000)
#define LOOK_INTERVAL_NS INT64_C(250000000) /* for those that have not made it by then */
/* Messages that wait for one subscriber. */
#define WAITING_MAX 256

struct gpufi_subscriber {
  atomic_int holder_count; /* the peer, and each message that waits: none = it is freed */
  uint8_t id[ID_NBYTES];
  bool is_ready;
  bool is_ended;          /* nothing is sent to it any more, nor read */
  int64_t ready_until_ns; /* while it is not ready */
  int64_t frame_due_ns;   /* gpufi_comes_too_fast: a frame may cost a message to it */
  gpufi_zmtp_reader reader;
  gpufi_topics topics;
};

/* Bytes that are sent to one subscriber, and by which messages that wait for it are counted. */
typedef struct mark {
  gpufi_subscriber *subscriber;
  uint8_t data[GPUFI_ZMTP_GREETING_NBYTES];
} mark;

/* --- Connections --------------------------------------------------------------- */

static void let_go(gpufi_subscriber *subscriber) {
  if (atomic_fetch_sub(&subscriber->holder_count, 1) == 1) {
    gpufi_topics_fini(&subscriber->topics);
    free(subscriber);
  }
}

/* Send it nothing any more and read nothing of it. */
static void end(gpufi_subscribers *subscribers, gpufi_subscriber *subscriber) {
  if (!subscriber->is_ended && !subscriber->is_ready) {
    subscribers->unready_count--;
  }
  subscriber->is_ended = true;
}

static void forget(void *arg, gpufi_subscriber *subscriber) {
  end(arg, subscriber);
  let_go(subscriber);
}

void gpufi_subscribers_init(gpufi_subscribers *subscribers, void *socket, gpufi_peers *peers) {
  *subscribers = (gpufi_subscribers){.socket = socket, .peers = peers};
  peers->forget_subscriber = forget;
  peers->forget_arg = subscribers;
}

/* Whether ZeroMQ has named this connection after that one. */
static bool is_newer(const uint8_t id[ID_NBYTES], const uint8_t than[ID_NBYTES]) {
  uint32_t own = 0, others = 0; /* they count up from a random number, and begin anew after all */
  for (int i = 1; i < ID_NBYTES; i++) {
    own = own << 8 | id[i];
    others = others << 8 | than[i];
  }
  return own != others && own - others < UINT32_C(1) << 31;
}

/* The peer of a connection; NULL if it was shut down, or has ended. */
static gpufi_peer *find_peer(const gpufi_subscribers *subscribers, int fd) {
  gpufi_peer *peer = gpufi_peers_find(subscribers->peers, fd);
  return peer && peer->socket == GPUFI_IOPUB ? peer : NULL;
}

/* Whether `peer`, which may be NULL, is the connection that ZeroMQ has given this name. */
static bool is_connection(const gpufi_peer *peer, const uint8_t id[ID_NBYTES]) {
  return peer && peer->subscriber && memcmp(peer->subscriber->id, id, ID_NBYTES) == 0;
}

/* Its descriptor is that of another connection soon after it has ended, which was told before. The
 * subscriber may be freed. */
static void cut(gpufi_subscribers *subscribers, const gpufi_subscriber *subscriber, int fd) {
  gpufi_peers_refresh(subscribers->peers);
  const gpufi_peer *peer = find_peer(subscribers, fd);
  if (peer && peer->subscriber == subscriber) {
    gpufi_peers_cut(subscribers->peers, GPUFI_IOPUB, fd);
    if (peer->subscriber) {
      end(subscribers, peer->subscriber);
    }
  }
}

void gpufi_subscribers_cut_late(gpufi_subscribers *subscribers) {
  const int64_t now_ns = gpufi_clock_ns();
  if (subscribers->unready_count == 0 || now_ns < subscribers->look_next_ns) {
    return;
  }
  subscribers->look_next_ns = now_ns + LOOK_INTERVAL_NS;
  for (int32_t i = 0; i < subscribers->peers->count; i++) {
    const gpufi_peer *peer = &subscribers->peers->list[i];
    const gpufi_subscriber *subscriber = peer->subscriber;
    if (subscriber && !subscriber->is_ready && !subscriber->is_ended &&
        now_ns > subscriber->ready_until_ns) {
      cut(subscribers, subscriber, peer->fd);
    }
  }
}

/* --- Sending ------------------------------------------------------------------- */

/* Takes over `part`, in failure too. It fails where the connection has ended. */
static bool send_part(const gpufi_subscribers *subscribers, const gpufi_subscriber *subscriber,
                      zmq_msg_t *part) {
  const int flags = ZMQ_DONTWAIT;
  /* ZeroMQ would take a part of no bytes for the wish to close the connection. */
  const bool sent =
      zmq_msg_size(part) == 0 ||
      (zmq_send(subscribers->socket, subscriber->id, ID_NBYTES, flags | ZMQ_SNDMORE) == ID_NBYTES &&
       zmq_msg_send(part, subscribers->socket, flags) >= 0);
  zmq_msg_close(part);
  return sent;
}

static void release_mark(void *data, void *arg) {
  mark *sent = arg;
  (void)data;
  let_go(sent->subscriber);
  free(sent);
}

/* Send a few bytes that begin a message. False if there is no memory, if too many messages wait, or
 * if the connection has ended. */
static bool send_mark(gpufi_subscribers *subscribers, gpufi_subscriber *subscriber,
                      const uint8_t *data, size_t nbytes) {
  zmq_msg_t part;
  mark *made = NULL;
  if (subscriber->is_ended || atomic_load(&subscriber->holder_count) > WAITING_MAX) {
    return false;
  }
  made = malloc(sizeof(*made));
  if (!made || zmq_msg_init_data(&part, made->data, nbytes, release_mark, made) != 0) {
    free(made);
    return false;
  }
  made->subscriber = subscriber;
  memcpy(made->data, data, nbytes);
  atomic_fetch_add(&subscriber->holder_count, 1);
  const bool sent = send_part(subscribers, subscriber, &part);
  if (!sent) {
    end(subscribers, subscriber);
  }
  return sent;
}

/* A message as every subscriber gets it: the header of its first frame, what follows up to the
 * first payload, and the payloads, each further one behind a header. */
typedef struct packet {
  uint8_t first[GPUFI_ZMTP_HEADER_MAX_NBYTES];
  size_t first_nbytes;
  zmq_msg_t frames;
  size_t payload_count;
  zmq_msg_t payloads[GPUFI_REPLY_BUFFERS_MAX];
} packet;

static size_t put_frame(uint8_t *to, gpufi_frame frame, bool more) {
  const size_t header_nbytes = gpufi_zmtp_header(to, frame.nbytes, more);
  if (frame.nbytes > 0) {
    memcpy(to + header_nbytes, frame.data, frame.nbytes);
  }
  return header_nbytes + frame.nbytes;
}

static void free_frames(void *data, void *arg) {
  (void)data;
  free(arg);
}

static bool pack_frames(packet *made, const gpufi_frame *frames, size_t count,
                        const gpufi_payload *payloads, size_t payload_count) {
  size_t nbytes_max = GPUFI_ZMTP_HEADER_MAX_NBYTES, nbytes = 0;
  for (size_t i = 0; i < count; i++) {
    nbytes_max += GPUFI_ZMTP_HEADER_MAX_NBYTES + frames[i].nbytes;
  }
  uint8_t *data = malloc(nbytes_max);
  if (!data) {
    return false;
  }
  for (size_t i = 0; i < count; i++) {
    nbytes += put_frame(data + nbytes, frames[i], i + 1 < count || payload_count > 0);
  }
  if (payload_count > 0) {
    nbytes += gpufi_zmtp_header(data + nbytes, payloads[0].nbytes, payload_count > 1);
  }
  made->first_nbytes = gpufi_zmtp_header(made->first, frames[0].nbytes, true);
  memcpy(made->first, data, made->first_nbytes);
  if (zmq_msg_init_data(&made->frames, data + made->first_nbytes, nbytes - made->first_nbytes,
                        free_frames, data) != 0) {
    free(data);
    return false;
  }
  return true;
}

/* Takes over the payloads. */
static bool pack(packet *made, const gpufi_frame *frames, size_t count,
                 const gpufi_payload *payloads, size_t payload_count) {
  const bool packed = pack_frames(made, frames, count, payloads, payload_count);
  bool done = packed;
  made->payload_count = 0;
  for (size_t i = 0; i < payload_count; i++) {
    const gpufi_payload *payload = &payloads[i];
    if (done && zmq_msg_init_data(&made->payloads[i], payload->data, payload->nbytes,
                                  payload->release, payload->arg) == 0) {
      made->payload_count++;
    } else {
      payload->release(payload->data, payload->arg);
      done = false;
    }
  }
  if (!packed) {
    zmq_msg_init(&made->frames);
  }
  return done;
}

static void unpack(packet *made) {
  zmq_msg_close(&made->frames);
  for (size_t i = 0; i < made->payload_count; i++) {
    zmq_msg_close(&made->payloads[i]);
  }
}

/* ZeroMQ counts who else holds the bytes. */
static bool send_shared(const gpufi_subscribers *subscribers, const gpufi_subscriber *subscriber,
                        zmq_msg_t *part) {
  zmq_msg_t copy;
  zmq_msg_init(&copy);
  return zmq_msg_copy(&copy, part) == 0 && send_part(subscribers, subscriber, &copy);
}

static bool send_payload(const gpufi_subscribers *subscribers, const gpufi_subscriber *subscriber,
                         packet *made, size_t index) {
  zmq_msg_t header;
  uint8_t bytes[GPUFI_ZMTP_HEADER_MAX_NBYTES];
  zmq_msg_t *const payload = &made->payloads[index];
  if (index > 0) {
    const size_t nbytes =
        gpufi_zmtp_header(bytes, zmq_msg_size(payload), index + 1 < made->payload_count);
    zmq_msg_init_size(&header, nbytes); /* ZeroMQ holds so few bytes without an allocation */
    memcpy(zmq_msg_data(&header), bytes, nbytes);
    if (!send_part(subscribers, subscriber, &header)) {
      return false;
    }
  }
  return send_shared(subscribers, subscriber, payload);
}

static void send_packet(gpufi_subscribers *subscribers, gpufi_subscriber *subscriber,
                        packet *made) {
  if (!send_mark(subscribers, subscriber, made->first, made->first_nbytes)) {
    return;
  }
  bool sent = send_shared(subscribers, subscriber, &made->frames);
  for (size_t i = 0; i < made->payload_count && sent; i++) {
    sent = send_payload(subscribers, subscriber, made, i);
  }
  if (!sent) {
    end(subscribers, subscriber);
  }
}

/* --- Receiving ----------------------------------------------------------------- */

static void set_ready(gpufi_subscribers *subscribers, gpufi_subscriber *subscriber) {
  subscriber->is_ready = true;
  subscribers->unready_count--;
}

/* Why the connection cannot go on; else NULL. */
static const char *handle(gpufi_subscribers *subscribers, gpufi_subscriber *subscriber,
                          const gpufi_zmtp_event *event, const gpufi_subscribers_events *events) {
  uint8_t pong[GPUFI_ZMTP_PONG_MAX_NBYTES];
  const char *problem = NULL;
  if (gpufi_comes_too_fast(&subscriber->frame_due_ns)) {
    return "a subscriber was disconnected: it sends too much";
  }
  switch (event->kind) {
  case GPUFI_ZMTP_GREETING:
    send_mark(subscribers, subscriber, gpufi_zmtp_ready, GPUFI_ZMTP_READY_NBYTES);
    break;
  case GPUFI_ZMTP_READY:
    set_ready(subscribers, subscriber);
    break;
  case GPUFI_ZMTP_SUBSCRIBE:
    problem = gpufi_topics_add(&subscriber->topics, event->data, event->nbytes);
    if (!problem) {
      subscribers->receiver = subscriber;
      events->subscribed(events->arg, (const char *)event->data, event->nbytes);
      subscribers->receiver = NULL;
    }
    break;
  case GPUFI_ZMTP_CANCEL:
    gpufi_topics_remove(&subscriber->topics, event->data, event->nbytes);
    break;
  case GPUFI_ZMTP_PING:
    send_mark(subscribers, subscriber, pong, gpufi_zmtp_pong(pong, event));
    break;
  case GPUFI_ZMTP_OTHER:
  case GPUFI_ZMTP_NOTHING:
    break;
  }
  return problem;
}

static void read_bytes(gpufi_subscribers *subscribers, const gpufi_peer *peer, const uint8_t *data,
                       size_t nbytes, const gpufi_subscribers_events *events) {
  gpufi_subscriber *subscriber = peer->subscriber;
  gpufi_zmtp_event event;
  const char *problem = NULL;
  do {
    problem = gpufi_zmtp_read(&subscriber->reader, &data, &nbytes, &event)
                  ? NULL
                  : "a connection to iopub was closed: it is no subscriber's (of ZMTP 3, without "
                    "encryption), or a message is too large";
    if (!problem && event.kind != GPUFI_ZMTP_NOTHING) {
      problem = handle(subscribers, subscriber, &event, events);
    }
  } while (!problem && event.kind != GPUFI_ZMTP_NOTHING && !subscriber->is_ended);
  if (problem) {
    cut(subscribers, subscriber, peer->fd);
    events->refused(events->arg, problem);
  }
}

/* A connection has begun. Its descriptor may be that of another one that has ended, whose last
 * messages may come later. */
static void begin(gpufi_subscribers *subscribers, gpufi_peer *peer, const uint8_t *id) {
  gpufi_subscriber *made = calloc(1, sizeof(*made));
  if (peer->subscriber) {
    forget(subscribers, peer->subscriber);
  }
  peer->subscriber = made;
  if (!made) {
    cut(subscribers, NULL, peer->fd);
    return;
  }
  atomic_init(&made->holder_count, 1);
  memcpy(made->id, id, ID_NBYTES);
  made->ready_until_ns = gpufi_clock_ns() + HANDSHAKE_MAX_NS;
  subscribers->unready_count++;
  if (!send_mark(subscribers, made, gpufi_zmtp_greeting, sizeof(gpufi_zmtp_greeting)) &&
      !made->is_ended) {
    cut(subscribers, made, peer->fd);
  }
}

/* A part of no bytes begins a connection, and another one ends it unless its queue is full. */
static void take(gpufi_subscribers *subscribers, zmq_msg_t *id_part, zmq_msg_t *part,
                 const gpufi_subscribers_events *events) {
  const uint8_t *id = zmq_msg_data(id_part);
  const size_t nbytes = zmq_msg_size(part);
  const int fd = zmq_msg_get(id_part, ZMQ_SRCFD);
  gpufi_peer *peer = find_peer(subscribers, fd);
  if (!is_connection(peer, id)) {
    /* Before anything that a connection has sent it was told that it was accepted, and before that,
     * that the one which had its descriptor has ended. */
    gpufi_peers_refresh(subscribers->peers);
    peer = find_peer(subscribers, fd);
  }
  if (!peer) {
    return;
  }
  gpufi_subscriber *subscriber = peer->subscriber;
  if (is_connection(peer, id)) {
    if (nbytes == 0) {
      end(subscribers, subscriber);
    } else if (!subscriber->is_ended) {
      read_bytes(subscribers, peer, zmq_msg_data(part), nbytes, events);
    }
  } else if (nbytes == 0 && (!subscriber || is_newer(id, subscriber->id))) {
    begin(subscribers, peer, id);
  }
}

bool gpufi_subscribers_receive(gpufi_subscribers *subscribers,
                               const gpufi_subscribers_events *events) {
  zmq_msg_t id, part;
  zmq_msg_init(&id);
  zmq_msg_init(&part);
  const bool received = zmq_msg_recv(&id, subscribers->socket, ZMQ_DONTWAIT) == ID_NBYTES &&
                        zmq_msg_recv(&part, subscribers->socket, ZMQ_DONTWAIT) >= 0;
  if (received) {
    take(subscribers, &id, &part, events);
  }
  zmq_msg_close(&id);
  zmq_msg_close(&part);
  return received;
}

void gpufi_subscribers_publish(gpufi_subscribers *subscribers, const gpufi_frame *frames,
                               size_t count, const gpufi_payload *payloads, size_t payload_count) {
  packet made;
  const bool packed = pack(&made, frames, count, payloads, payload_count);
  for (int32_t i = 0; i < subscribers->peers->count && packed; i++) {
    gpufi_subscriber *subscriber = subscribers->peers->list[i].subscriber;
    if (subscriber && (!subscribers->receiver || subscribers->receiver == subscriber) &&
        gpufi_topics_match(&subscriber->topics, frames[0].data, frames[0].nbytes)) {
      send_packet(subscribers, subscriber, &made);
    }
  }
  unpack(&made);
}
