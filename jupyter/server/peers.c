#include "server/peers.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/system.h"
#include "server/address.h"
#include "server/events.h"
#include "server/headroom.h"
#include "server/pace.h"
#include "server/topics.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#define EVENTS (ZMQ_EVENT_LISTENING | ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED)
#define STALLED_NBYTES 16384          /* so much is never left unread by a client that reads */
#define DROP_NBYTES ((size_t)1 << 30) /* at once */
#define SWEEP_INTERVAL_NS 1000000000

/* --- Watching ------------------------------------------------------------------ */

gpuf_status gpufi_peers_init(gpufi_peers *peers, const gpufi_connection *connection, int32_t max,
                             gpuf_error *err) {
  *peers = (gpufi_peers){.connection = connection, .max = max, .empty_fd = -1, .spare_fd = -1};
  for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
    peers->listeners[i] = -1;
  }
  peers->next_number = 1;
  peers->list = calloc((size_t)max, sizeof(*peers->list));
  if (!peers->list) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %d connections", (int)max);
  }
  peers->empty_fd = gpufi_fd_above_stdio(eventfd(0, EFD_CLOEXEC));
  peers->spare_fd = fcntl(peers->empty_fd, F_DUPFD_CLOEXEC, 3);
  return peers->spare_fd >= 0 ? GPUF_OK
                              : gpufi_fail(err, GPUF_ERR_IO, errno, "eventfd: %s", strerror(errno));
}

gpuf_status gpufi_peers_watch(gpufi_peers *peers, void *context, void *socket, gpufi_socket which,
                              gpuf_error *err) {
  char url[64];
  const int unlimited = 0; /* else a socket that has much to tell would wait for this thread */
  snprintf(url, sizeof(url), "inproc://monitor-%s", gpufi_socket_names[which]);
  void *monitor = zmq_socket(context, ZMQ_PAIR);
  peers->monitors[which] = monitor;
  if (!monitor || zmq_setsockopt(monitor, ZMQ_RCVHWM, &unlimited, sizeof(unlimited)) != 0 ||
      zmq_socket_monitor(socket, url, EVENTS) != 0 || zmq_connect(monitor, url) != 0) {
    return gpufi_fail(err, GPUF_ERR_IO, zmq_errno(), "cannot watch the ZeroMQ socket for %s: %s",
                      gpufi_socket_names[which], zmq_strerror(zmq_errno()));
  }
  return GPUF_OK;
}

/* --- Descriptors --------------------------------------------------------------- */

/* Whether a descriptor is a connection that came in at a socket's address. */
static bool is_of(const gpufi_peers *peers, gpufi_socket which, int fd) {
  return gpufi_address_is_of(peers->connection, which, fd);
}

/* ZeroMQ would read all that the system holds for a connection before it sees its end. */
static void drop_unread(const gpufi_peers *peers) {
  while (recv(peers->spare_fd, NULL, DROP_NBYTES, MSG_TRUNC | MSG_DONTWAIT) > 0) {
  }
}

/* ZeroMQ sees the end of a connection that is shut down, and closes it. Its descriptor may be
 * closed already and stand for another file, also from one call to the next: it is copied, and what
 * the copy stands for is looked at. The copy takes the place of a spare descriptor, since there
 * may be no other. */
static void shut_down(gpufi_peers *peers, gpufi_peer *peer) {
  struct stat info;
  /* Copying and closing another file would release its record locks. */
  if (!is_of(peers, peer->socket, peer->fd)) {
    return;
  }
  if (dup3(peer->fd, peers->spare_fd, O_CLOEXEC) >= 0 &&
      is_of(peers, peer->socket, peers->spare_fd) && fstat(peers->spare_fd, &info) == 0 &&
      info.st_ino == peer->inode) {
    shutdown(peers->spare_fd, SHUT_RDWR);
    drop_unread(peers);
  }
  dup3(peers->empty_fd, peers->spare_fd, O_CLOEXEC);
}

/* --- The list ------------------------------------------------------------------ */

gpufi_peer *gpufi_peers_find(gpufi_peers *peers, int fd) {
  for (int32_t i = 0; i < peers->count; i++) {
    if (peers->list[i].fd == fd) {
      return &peers->list[i];
    }
  }
  return NULL;
}

static void forget(gpufi_peers *peers, gpufi_peer *peer) {
  *peer = peers->list[--peers->count];
}

/* Forget connections that are gone though their end was not told. */
static void sweep(gpufi_peers *peers) {
  const int64_t now_ns = gpufi_clock_ns();
  if (now_ns - peers->swept_ns < SWEEP_INTERVAL_NS) {
    return;
  }
  peers->swept_ns = now_ns;
  for (int32_t i = peers->count - 1; i >= 0; i--) {
    if (!is_of(peers, peers->list[i].socket, peers->list[i].fd)) {
      forget(peers, &peers->list[i]);
    }
  }
}

static void add(gpufi_peers *peers, gpufi_socket which, int fd) {
  struct stat info;
  if (!is_of(peers, which, fd) || fstat(fd, &info) != 0) {
    return; /* it has ended already, as will be told */
  }
  gpufi_peer made = {
      .fd = fd, .socket = which, .inode = info.st_ino, .least_number = peers->next_number};
  gpufi_peer *peer = gpufi_peers_find(peers, fd); /* of a connection that has ended */
  if (!peer && peers->count == peers->max) {
    sweep(peers);
  }
  if ((!peer && peers->count == peers->max) || fd >= gpufi_headroom_first_reserved()) {
    shut_down(peers, &made);
    peers->has_refused = true;
    return;
  }
  if (peer) {
  } else {
    peer = &peers->list[peers->count++];
  }
  *peer = made;
}

/* Have the listening sockets drop all packets, or none. Connections that wait to be accepted, and
 * those that were, are not affected. */
static void set_shut(gpufi_peers *peers, bool is_shut) {
  struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  const struct sock_fprog filter = {1, &drop};
  const int unused = 0;
  for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
    if (is_shut) {
      setsockopt(peers->listeners[i], SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter));
    } else {
      setsockopt(peers->listeners[i], SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof(unused));
    }
  }
  peers->is_shut = is_shut;
}

/* Take one event off a monitor; false if there is none. */
static bool take_event(gpufi_peers *peers, gpufi_socket which) {
  struct {
    uint16_t event;
    uint32_t fd;
  } told = {0};
  uint8_t frame[6], address[1];
  if (zmq_recv(peers->monitors[which], frame, sizeof(frame), ZMQ_DONTWAIT) != sizeof(frame)) {
    return false;
  }
  zmq_recv(peers->monitors[which], address, sizeof(address), ZMQ_DONTWAIT);
  memcpy(&told.event, frame, sizeof(told.event));
  memcpy(&told.fd, frame + sizeof(told.event), sizeof(told.fd));
  if (told.event == ZMQ_EVENT_LISTENING) {
    peers->listeners[which] = (int)told.fd;
  } else if (told.event == ZMQ_EVENT_ACCEPTED) {
    add(peers, which, (int)told.fd);
  } else {
    gpufi_peer *peer = gpufi_peers_find(peers, (int)told.fd);
    if (peer && peer->socket == which) { /* else the descriptor is in use again */
      forget(peers, peer);
    }
  }
  return true;
}

void gpufi_peers_refresh(gpufi_peers *peers) {
  for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
    while (take_event(peers, (gpufi_socket)i)) {
      if (!peers->is_shut && peers->count == peers->max) {
        set_shut(peers, true);
      }
    }
  }
  if (peers->is_shut && peers->count <= peers->max - peers->max / 16 - 1) {
    set_shut(peers, false);
  }
}

bool gpufi_peers_update(gpufi_peers *peers) {
  gpufi_peers_refresh(peers);
  const bool fits = !peers->has_refused;
  peers->has_refused = false;
  return fits;
}

void gpufi_peers_fini(gpufi_peers *peers, void *const sockets[GPUFI_SOCKET_COUNT]) {
  for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
    if (sockets[i]) {
      zmq_socket_monitor(sockets[i], NULL, 0);
    }
    if (peers->monitors[i]) {
      zmq_close(peers->monitors[i]);
    }
  }
  while (peers->count > 0) {
    forget(peers, &peers->list[0]);
  }
  if (peers->list) { /* else it was never made */
    close(peers->empty_fd);
    close(peers->spare_fd);
    free(peers->list);
  }
  memset(peers, 0, sizeof(*peers));
}

/* --- Misuse -------------------------------------------------------------------- */

/* The connection, if it has not ended. */
static gpufi_peer *find_number(gpufi_peers *peers, gpufi_socket which, int fd, uint64_t number) {
  gpufi_peer *peer = gpufi_peers_find(peers, fd);
  return peer && peer->socket == which && number >= peer->least_number ? peer : NULL;
}

bool gpufi_peers_note_subscription(gpufi_peers *peers, int fd, uint64_t number, bool is_added) {
  gpufi_peer *peer = find_number(peers, GPUFI_IOPUB, fd, number);
  if (!peer) {
    return true; /* it has ended, or is being shut down */
  }
  peer->subscription_count += is_added ? 1 : -1;
  if (peer->subscription_count < 0) {
    peer->subscription_count = 0;
  }
  if (peer->subscription_count > GPUFI_TOPICS_MAX) {
    shut_down(peers, peer);
    return false;
  }
  return true;
}

bool gpufi_peers_has_cut(const gpufi_peers *peers, uint64_t number) {
  for (int i = 0; i < GPUFI_PEERS_CUT_MAX; i++) {
    if (peers->cut_numbers[i] == number) {
      return number != 0;
    }
  }
  return false;
}

static void drop_all_of(gpufi_peers *peers, uint64_t number) {
  peers->cut_numbers[peers->cut_next++ % GPUFI_PEERS_CUT_MAX] = number;
}

/* Drop the rest of what the connection has sent, and shut it down, if it has not ended. */
static void cut(gpufi_peers *peers, gpufi_socket which, int fd, uint64_t number) {
  drop_all_of(peers, number);
  gpufi_peers_refresh(peers); /* ZeroMQ tells that a connection has ended before it closes it */
  gpufi_peer *peer = find_number(peers, which, fd, number);
  if (peer) {
    shut_down(peers, peer);
  }
}

bool gpufi_peers_note_message(gpufi_peers *peers, gpufi_socket which, int fd, uint64_t number,
                              bool is_good) {
  gpufi_peer *peer = find_number(peers, which, fd, number);
  if (!peer) {
    if (!is_good) {
      drop_all_of(peers, number);
    }
    return true;
  }
  peer->refused_count = is_good ? 0 : peer->refused_count + 1;
  if (peer->refused_count < GPUFI_REFUSED_MAX) {
    return true;
  }
  cut(peers, which, fd, number);
  return false;
}

bool gpufi_peers_note_ping(gpufi_peers *peers, int fd, uint64_t number) {
  gpufi_peer *peer = find_number(peers, GPUFI_HEARTBEAT, fd, number);
  if (peer && !gpufi_pace_is_too_fast(&peer->ping_due_ns)) {
    return true;
  }
  cut(peers, GPUFI_HEARTBEAT, fd, number);
  return false;
}

void gpufi_peers_cut(gpufi_peers *peers, gpufi_socket socket, int fd) {
  gpufi_peer *peer = gpufi_peers_find(peers, fd);
  if (peer && peer->socket == socket) {
    shut_down(peers, peer);
  }
}

void gpufi_peers_cut_stalled(gpufi_peers *peers, gpufi_socket socket) {
  for (int32_t i = 0; i < peers->count; i++) {
    gpufi_peer *peer = &peers->list[i];
    int unread_nbytes = 0;
    if (peer->socket == socket && is_of(peers, socket, peer->fd) &&
        ioctl(peer->fd, SIOCOUTQ, &unread_nbytes) == 0 && unread_nbytes > STALLED_NBYTES) {
      shut_down(peers, peer);
    }
  }
}
