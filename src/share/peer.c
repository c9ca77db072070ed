#include "share/peer.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/system.h"
#include "share/wire.h"

/* An exporter that runs answers within microseconds; one that is stopped must not stop the
 * importer. A request and its reply take no longer together, however many signals arrive. */
#define PATIENCE_S 10
#define PATIENCE_NS (PATIENCE_S * GPUFI_NS_PER_S)
/* Nothing reports that a full queue of connections has a place again, so it is tried so often. */
#define CONNECT_PAUSE_NS 10000000

struct gpufi_peer {
  gpufi_peer *next; /* these four are guarded by peers_lock */
  int32_t user_count;
  int fd;      /* non-blocking; -1 in a forked child; else open as long as there are users */
  bool listed; /* new users may find it */
  uint8_t service[GPUFI_SHARE_ID_NBYTES];
  int64_t process_id;
  uint64_t start_time;
  atomic_bool lost;     /* the exporter has gone or does not keep to the protocol; never reset */
  pthread_mutex_t lock; /* held from a request to its reply; guards all below */
  bool connected;
  pid_t listener; /* the exporter as this process's PID namespace has it, or 0; fixed once connected
                   */
  bool is_stuck;  /* a DETACH was not sent: the references end with the connection */
  uint64_t last_reference;
};

static pthread_mutex_t peers_lock = PTHREAD_MUTEX_INITIALIZER;
static gpufi_peer *peers;

static gpuf_status gone(const gpufi_peer *peer, gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_STATE, 0,
                    "the exporting process %" PRId64 " is gone, and its memory with it; share the "
                    "tensor again from a live process",
                    peer->process_id);
}

static gpuf_status lose(gpufi_peer *peer, gpuf_error *err) {
  atomic_store(&peer->lost, true);
  return gone(peer, err);
}

static gpuf_status io_fail(const char *call, int code, gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_IO, code, "%s for an attachment: %s", call, strerror(code));
}

/* Called with peers_lock held, so that no fork happens between the socket and its record. */
static gpuf_status create(const gpufi_share_fields *fields, gpufi_peer **out, gpuf_error *err) {
  gpufi_peer *peer = calloc(1, sizeof(*peer));
  if (!peer) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for a connection's record");
  }
  peer->fd =
      gpufi_fd_above_stdio(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (peer->fd < 0) {
    const int code = errno;
    free(peer);
    return io_fail("socket", code, err);
  }
  memcpy(peer->service, fields->service, sizeof(peer->service));
  peer->process_id = fields->process_id;
  peer->start_time = fields->start_time;
  pthread_mutex_init(&peer->lock, NULL);
  peer->listed = true;
  peer->next = peers;
  peers = peer;
  *out = peer;
  return GPUF_OK;
}

static void fork_prepare(void) {
  pthread_mutex_lock(&peers_lock);
}
static void fork_parent(void) {
  pthread_mutex_unlock(&peers_lock);
}

static void fork_child(void) {
  for (gpufi_peer *peer = peers; peer; peer = peer->next) {
    close(peer->fd);
    peer->fd = -1;
  }
  peers = NULL; /* the child leaves their memory as it is */
  pthread_mutex_unlock(&peers_lock);
}

GPUFI_AT_FORK(GPUFI_FORK_SHARE, fork_prepare, fork_parent, fork_child);

gpuf_status gpufi_peer_get(const gpufi_share_fields *fields, gpufi_peer **out, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  pthread_mutex_lock(&peers_lock);
  gpufi_peer *peer = peers;
  while (peer &&
         (!peer->listed || memcmp(peer->service, fields->service, sizeof(peer->service)) != 0)) {
    peer = peer->next;
  }
  if (!peer) {
    status = create(fields, &peer, err);
  }
  if (peer) {
    peer->user_count++;
    *out = peer;
  }
  pthread_mutex_unlock(&peers_lock);
  return status;
}

void gpufi_peer_put(gpufi_peer *peer) {
  pthread_mutex_lock(&peers_lock);
  const bool last = --peer->user_count == 0;
  if (last) {
    gpufi_peer **link = &peers;
    while (*link != peer) {
      link = &(*link)->next;
    }
    *link = peer->next;
    close(peer->fd);
  }
  pthread_mutex_unlock(&peers_lock);
  if (last) {
    pthread_mutex_destroy(&peer->lock);
    free(peer);
  }
}

/* Let later users make a new connection, because this one was refused. */
static void unlist(gpufi_peer *peer) {
  pthread_mutex_lock(&peers_lock);
  peer->listed = false;
  pthread_mutex_unlock(&peers_lock);
}

/* Say why nobody listens at the address, by the process that the handle names. */
static gpuf_status nobody(gpufi_peer *peer, gpuf_error *err) {
  if (peer->start_time != 0 && gpufi_process_start_time(peer->process_id) == peer->start_time) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "process %" PRId64 " shares memory but cannot be reached from here: the two "
                      "processes must be in one network namespace (containers: --network=host or "
                      "--network=container:NAME)",
                      peer->process_id);
  }
  return lose(peer, err);
}

/* A child that the exporter made without fork handlers, or to which it passed its descriptors on,
 * keeps the sockets open after the exporter has ended. */
static bool has_ended(const gpufi_peer *peer) {
  return peer->listener > 0 && kill(peer->listener, 0) != 0 && errno == ESRCH;
}

static gpuf_status check_user(gpufi_peer *peer, gpuf_error *err) {
  struct ucred other;
  socklen_t nbytes = sizeof(other);
  if (getsockopt(peer->fd, SOL_SOCKET, SO_PEERCRED, &other, &nbytes) != 0) {
    return io_fail("SO_PEERCRED", errno, err);
  }
  if (other.uid != geteuid()) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "the exporting process %" PRId64 " runs as user %u and this one as user %u; "
                      "attach as the same user",
                      peer->process_id, (unsigned)other.uid, (unsigned)geteuid());
  }
  peer->listener = other.pid;
  return GPUF_OK;
}

/* Wait until the connection is ready for `events`. 0, ETIMEDOUT at the deadline, or another errno
 * value. */
static int await(const gpufi_peer *peer, short events, int64_t deadline_ns) {
  struct pollfd state = {.fd = peer->fd, .events = events};
  for (;;) {
    const int64_t left_ns = deadline_ns - gpufi_clock_ns();
    const struct timespec left = gpufi_timespec(left_ns > 0 ? left_ns : 0);
    const int count = ppoll(&state, 1, &left, NULL);
    if (count > 0) {
      return 0;
    }
    if (count == 0 || (errno == EINTR && left_ns <= 0)) {
      return ETIMEDOUT;
    }
    if (errno != EINTR) {
      return errno;
    }
  }
}

/* Called with the peer's lock held. */
static gpuf_status connect_once(gpufi_peer *peer, int64_t deadline_ns, gpuf_error *err) {
  struct sockaddr_un address;
  int code;
  if (peer->connected) {
    return GPUF_OK;
  }
  const socklen_t nbytes = gpufi_share_address(peer->service, &address);
  do {
    code = connect(peer->fd, (struct sockaddr *)&address, nbytes) == 0 ? 0 : errno;
    if (code == EAGAIN) { /* the exporter's queue is full */
      gpufi_sleep_ns(CONNECT_PAUSE_NS);
    }
  } while (code == EINTR || (code == EAGAIN && gpufi_clock_ns() < deadline_ns));
  if (code == ECONNREFUSED) {
    return nobody(peer, err);
  }
  if (code == EAGAIN) {
    return gpufi_fail(err, GPUF_ERR_TIMEOUT, code,
                      "the exporting process %" PRId64 " accepted no connection within %d s; is it "
                      "stopped in a debugger?",
                      peer->process_id, PATIENCE_S);
  }
  if (code != 0) {
    return io_fail("connect", code, err);
  }
  const gpuf_status status = check_user(peer, err);
  peer->connected = status == GPUF_OK;
  return status;
}

/* Receive one packet. *nbytes is above 0 after a success. */
static gpuf_status receive(gpufi_peer *peer, int64_t deadline_ns, gpufi_share_reply *reply,
                           int *descriptor, ssize_t *nbytes, gpuf_error *err) {
  int code;
  do {
    *nbytes = -1;
    code = await(peer, POLLIN, deadline_ns);
    if (code == 0) {
      *nbytes = gpufi_share_receive_reply(peer->fd, reply, descriptor);
      code = *nbytes < 0 ? errno : 0;
    }
  } while (code == EAGAIN);
  if (code == ETIMEDOUT) {
    return gpufi_fail(err, GPUF_ERR_TIMEOUT, code,
                      "the exporting process %" PRId64 " did not answer within %d s; is it "
                      "stopped in a debugger?",
                      peer->process_id, PATIENCE_S);
  }
  if (*nbytes == 0 || code == ECONNRESET || code == EPIPE) {
    return lose(peer, err);
  }
  return code == 0 ? GPUF_OK : io_fail("recvmsg", code, err);
}

/* Receive the reply to `reference`. An earlier reply that came too late is dropped. */
static gpuf_status await_reply(gpufi_peer *peer, uint64_t reference, int64_t deadline_ns,
                               gpufi_share_reply *reply, int *descriptor, gpuf_error *err) {
  for (;;) {
    ssize_t nbytes;
    const gpuf_status status = receive(peer, deadline_ns, reply, descriptor, &nbytes, err);
    if (status != GPUF_OK) {
      return status;
    }
    if (nbytes == sizeof(*reply) && reply->magic == GPUFI_SHARE_WIRE_MAGIC &&
        (reply->reference == 0 || reply->reference == reference)) {
      return GPUF_OK;
    }
    if (*descriptor >= 0) {
      close(*descriptor);
    }
    if (nbytes != sizeof(*reply) || reply->magic != GPUFI_SHARE_WIRE_MAGIC) {
      atomic_store(&peer->lost, true);
      return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                        "process %" PRId64 " does not answer as gpufetch does; use the same "
                        "gpufetch in both processes",
                        peer->process_id);
    }
  }
}

static gpuf_status refuse(const gpufi_peer *peer, uint16_t answer, gpuf_error *err) {
  switch ((gpufi_share_answer)answer) {
  case GPUFI_SHARE_STALE:
    return gpufi_fail(err, GPUF_ERR_STATE, 0,
                      "the share is stale: process %" PRId64 " has withdrawn it; ask for a fresh "
                      "handle",
                      peer->process_id);
  case GPUFI_SHARE_FORGED:
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "process %" PRId64 " never gave out this share handle; pass the handle "
                      "unchanged",
                      peer->process_id);
  case GPUFI_SHARE_FULL:
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0,
                      "process %" PRId64 " serves %d importing processes, or holds %d attachments "
                      "of this one; detach some",
                      peer->process_id, GPUFI_SHARE_CLIENTS_MAX, GPUFI_SHARE_REFERENCES_MAX);
  case GPUFI_SHARE_OTHER_USER:
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "process %" PRId64 " runs as another user; attach as the same user",
                      peer->process_id);
  default:
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "process %" PRId64 " has a gpufetch of another version (answer %u); use the "
                      "same in both",
                      peer->process_id, answer);
  }
}

/* Send a request, whole, as all packets are sent. 0, ETIMEDOUT at the deadline, or another errno
 * value. */
static int send_request(gpufi_peer *peer, const gpufi_share_request *request, size_t nbytes,
                        int64_t deadline_ns) {
  int code;
  do {
    code = send(peer->fd, request, nbytes, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0;
    if (code == EAGAIN) {
      const int waited = await(peer, POLLOUT, deadline_ns);
      code = waited == 0 ? EAGAIN : waited;
    }
  } while (code == EINTR || code == EAGAIN);
  return code;
}

/* Called with the peer's lock held. */
static gpuf_status ask(gpufi_peer *peer, const gpuf_share_handle *handle, uint64_t reference,
                       int *descriptor, gpuf_error *err) {
  gpufi_share_request request = {
      GPUFI_SHARE_WIRE_MAGIC, GPUFI_SHARE_WIRE_VERSION, GPUFI_SHARE_ATTACH, reference, {0}};
  const int64_t deadline_ns = gpufi_clock_ns() + PATIENCE_NS;
  gpufi_share_reply reply = {0};
  gpuf_status status = connect_once(peer, deadline_ns, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (has_ended(peer)) {
    return lose(peer, err);
  }
  memcpy(request.handle, handle->bytes, handle->nbytes);
  const int code =
      send_request(peer, &request, GPUFI_SHARE_REQUEST_HEADER_NBYTES + handle->nbytes, deadline_ns);
  /* An exporter that refuses a connection says why before it closes it, so the reply is read even
   * if sending fails for that. */
  if (code != 0 && code != EPIPE && code != ECONNRESET && code != ETIMEDOUT) {
    return io_fail("send", code, err);
  }
  status = await_reply(peer, reference, deadline_ns, &reply, descriptor, err);
  if (status == GPUF_OK && reply.answer != GPUFI_SHARE_GRANTED) {
    if (*descriptor >= 0) {
      close(*descriptor);
    }
    if (reply.reference == 0) {
      unlist(peer);
    }
    status = refuse(peer, reply.answer, err);
  }
  return status;
}

/* Called with the peer's lock held. */
static void send_detach(gpufi_peer *peer, uint64_t reference, int64_t patience_ns) {
  const gpufi_share_request request = {
      GPUFI_SHARE_WIRE_MAGIC, GPUFI_SHARE_WIRE_VERSION, GPUFI_SHARE_DETACH, reference, {0}};
  const int64_t deadline_ns = gpufi_clock_ns() + (peer->is_stuck ? 0 : patience_ns);
  if (peer->connected &&
      send_request(peer, &request, GPUFI_SHARE_REQUEST_HEADER_NBYTES, deadline_ns) != 0) {
    /* The exporter has gone, or is stopped with its queue full, and nothing that is sent later
     * makes up for this message. The reference ends with the connection, so no new user may keep
     * that alive. */
    peer->is_stuck = true;
    unlist(peer);
  }
}

gpuf_status gpufi_peer_attach(gpufi_peer *peer, const gpuf_share_handle *handle,
                              uint64_t *reference, int *descriptor, gpuf_error *err) {
  if (atomic_load(&peer->lost)) {
    return gone(peer, err);
  }
  pthread_mutex_lock(&peer->lock);
  const uint64_t mine = ++peer->last_reference;
  const gpuf_status status = ask(peer, handle, mine, descriptor, err);
  if (!peer->connected) {
    unlist(peer);
  }
  if (status == GPUF_ERR_TIMEOUT || status == GPUF_ERR_IO) {
    send_detach(peer, mine, 0); /* the exporter may have granted it, or still do so */
  }
  pthread_mutex_unlock(&peer->lock);
  if (status == GPUF_OK) {
    *reference = mine;
  } else {
    *descriptor = -1;
  }
  return status;
}

void gpufi_peer_detach(gpufi_peer *peer, uint64_t reference) {
  if (atomic_load(&peer->lost)) {
    return;
  }
  pthread_mutex_lock(&peer->lock);
  send_detach(peer, reference, PATIENCE_NS);
  pthread_mutex_unlock(&peer->lock);
}

gpuf_status gpufi_peer_check(gpufi_peer *peer, gpuf_error *err) {
  struct pollfd state = {.fd = peer->fd, .events = POLLRDHUP};
  int count;
  if (atomic_load(&peer->lost)) {
    return gone(peer, err);
  }
  do {
    count = poll(&state, 1, 0);
  } while (count < 0 && errno == EINTR);
  if (count < 0) {
    return io_fail("poll", errno, err);
  }
  const bool hung_up = state.revents & (POLLHUP | POLLRDHUP | POLLERR);
  return hung_up || has_ended(peer) ? lose(peer, err) : GPUF_OK;
}
