#include "server/plain.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/system.h"
#include "server/headroom.h"
#include "server/inbound.h"
#include "server/limits.h"
#include "server/listen.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_NBYTES 65536
#define EVENTS_AT_ONCE 64
#define ACCEPTS_AT_ONCE 64
#define DROP_NBYTES ((size_t)1 << 20) /* at once */
#define LOOK_INTERVAL_NS INT64_C(250000000)
/* Where there is no descriptor for a connection, not even to close it. */
#define ACCEPT_PAUSE_NS INT64_C(100000000)
/* What is held of messages that have not come whole, in all: twice the largest one. */
#define HELD_MAX_NBYTES ((size_t)2 * GPUFI_WIRE_FRAMES_MAX * GPUFI_WIRE_FRAME_MAX_NBYTES)

/* --- Accepting ----------------------------------------------------------------- */

static void set_tcp_options(int fd) {
  static const struct {
    int level, option, value;
  } options[] = {
      {IPPROTO_TCP, TCP_NODELAY, 1},
      {SOL_SOCKET, SO_KEEPALIVE, 1},
      {IPPROTO_TCP, TCP_KEEPIDLE, GPUFI_KEEPALIVE_IDLE_S},
      {IPPROTO_TCP, TCP_KEEPINTVL, GPUFI_KEEPALIVE_INTERVAL_S},
      {IPPROTO_TCP, TCP_KEEPCNT, GPUFI_KEEPALIVE_COUNT},
      {IPPROTO_TCP, TCP_USER_TIMEOUT, GPUFI_STALL_MAX_MS},
  };
  for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
    setsockopt(fd, options[i].level, options[i].option, &options[i].value, sizeof(int));
  }
}

/* Have epoll tell of connections that come, or not. */
static void watch_listeners(gpufi_plain *plain, bool is_watching) {
  for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
    struct epoll_event event = {.events = is_watching ? EPOLLIN : 0, .data.u64 = (uint64_t)i};
    epoll_ctl(plain->links.epoll_fd, EPOLL_CTL_MOD, plain->listeners[i], &event);
  }
  plain->accept_next_ns = is_watching ? 0 : gpufi_clock_ns() + ACCEPT_PAUSE_NS;
}

static int spare(void) {
  return gpufi_fd_above_stdio(eventfd(0, EFD_CLOEXEC));
}

/* Close a connection that there is no descriptor for. False where even that needs one. */
static bool refuse(gpufi_plain *plain, gpufi_socket which) {
  if (plain->spare_fd >= 0) {
    close(plain->spare_fd);
  }
  const int fd = accept4(plain->listeners[which], NULL, NULL, SOCK_CLOEXEC);
  const bool done = fd >= 0 || errno == EAGAIN;
  if (fd >= 0) {
    close(fd);
  }
  plain->spare_fd = spare();
  return done && plain->spare_fd >= 0;
}

static bool is_lack(int code) {
  return code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM;
}

/* Take a connection; false if there is none that can be taken. */
static bool accept_one(gpufi_plain *plain, gpufi_socket which, const gpufi_events *events) {
  const int fd = gpufi_fd_above_stdio(
      accept4(plain->listeners[which], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd < 0 && is_lack(errno)) {
    events->log(events->arg, "the program has no descriptors left: connections that come are "
                             "closed; raise RLIMIT_NOFILE (ulimit -n)");
    if (refuse(plain, which)) {
      return true;
    }
    watch_listeners(plain, false);
    return false;
  }
  if (fd < 0) { /* one that has ended already is passed over */
    return errno != EAGAIN && errno != EINVAL && errno != EBADF;
  }
  if (plain->links.count == plain->links.max) {
    gpufi_links_free_ended(&plain->links);
  }
  if (plain->links.count == plain->links.max || fd >= gpufi_headroom_first_reserved()) {
    close(fd);
    events->log(events->arg, GPUFI_LOG_TOO_MANY);
  } else {
    if (plain->is_tcp) {
      set_tcp_options(fd);
    }
    gpufi_links_add(&plain->links, which, fd,
                    gpufi_clock_ns() + GPUFI_HANDSHAKE_MAX_MS * INT64_C(1000000));
  }
  return true;
}

/* --- Receiving ----------------------------------------------------------------- */

/* Of those that have not sent a good message, and whose memory is not freed yet. */
static gpufi_link *find_largest(const gpufi_plain *plain) {
  gpufi_link *largest = NULL;
  for (int32_t i = 0; i < plain->links.count; i++) {
    gpufi_link *link = plain->links.list[i];
    if (link->fd >= 0 && !link->has_key &&
        (!largest || gpufi_link_held_nbytes(link) > gpufi_link_held_nbytes(largest))) {
      largest = link;
    }
  }
  return largest;
}

/* While too much is held, the connection that has the most is closed. */
static void limit_held(gpufi_plain *plain, const gpufi_events *events) {
  gpufi_link *largest = NULL;
  while (plain->links.held_nbytes > HELD_MAX_NBYTES && (largest = find_largest(plain))) {
    gpufi_links_end(&plain->links, largest);
    gpufi_links_free_ended(&plain->links);
    events->log(events->arg, "connections that send messages without an end were closed");
  }
}

static void read_link(gpufi_plain *plain, gpufi_link *link, const gpufi_events *events) {
  const ssize_t nbytes = recv(link->fd, plain->buffer, READ_NBYTES, MSG_DONTWAIT);
  if (nbytes <= 0) {
    if (nbytes == 0 || (errno != EAGAIN && errno != EINTR)) {
      gpufi_links_end(&plain->links, link);
    }
    return;
  }
  const size_t before_nbytes = gpufi_link_held_nbytes(link);
  const char *problem =
      gpufi_inbound_take(&plain->links, link, plain->buffer, (size_t)nbytes, events);
  plain->links.held_nbytes += gpufi_link_held_nbytes(link) - before_nbytes;
  if (problem && link->fd >= 0) {
    gpufi_links_end(&plain->links, link);
    events->log(events->arg, problem);
  }
}

static void serve_link(gpufi_plain *plain, gpufi_link *link, uint32_t what,
                       const gpufi_events *events) {
  if (link->fd >= 0 && (what & EPOLLOUT)) {
    gpufi_links_flush(&plain->links, link);
  }
  if (link->fd >= 0 && (what & ~(uint32_t)EPOLLOUT)) {
    read_link(plain, link, events);
  }
}

static void end_late(gpufi_plain *plain) {
  const int64_t now_ns = gpufi_clock_ns();
  if (plain->links.unready_count == 0 || now_ns < plain->look_next_ns) {
    return;
  }
  plain->look_next_ns = now_ns + LOOK_INTERVAL_NS;
  for (int32_t i = 0; i < plain->links.count; i++) {
    if (!plain->links.list[i]->is_ready && now_ns > plain->links.list[i]->ready_until_ns) {
      gpufi_links_end(&plain->links, plain->links.list[i]);
    }
  }
}

/* --- Serving ------------------------------------------------------------------- */

int gpufi_plain_wait_ms(const gpufi_plain *plain) {
  return plain->accept_next_ns            ? (int)(ACCEPT_PAUSE_NS / 1000000)
         : plain->links.unready_count > 0 ? (int)(LOOK_INTERVAL_NS / 1000000)
                                          : -1;
}

void gpufi_plain_serve(gpufi_plain *plain, const gpufi_events *events) {
  struct epoll_event ready[EVENTS_AT_ONCE];
  if (plain->accept_next_ns && gpufi_clock_ns() >= plain->accept_next_ns) {
    plain->spare_fd = plain->spare_fd >= 0 ? plain->spare_fd : spare();
    watch_listeners(plain, true);
  }
  const int count = epoll_wait(plain->links.epoll_fd, ready, EVENTS_AT_ONCE, 0);
  for (int i = 0; i < count; i++) {
    if (ready[i].data.u64 >= GPUFI_SOCKET_COUNT) {
      serve_link(plain, ready[i].data.ptr, ready[i].events, events);
    }
  }
  limit_held(plain, events);
  end_late(plain);
  gpufi_links_free_ended(&plain->links);
  for (int i = 0; i < count; i++) {
    if (ready[i].data.u64 < GPUFI_SOCKET_COUNT) {
      for (int k = 0;
           k < ACCEPTS_AT_ONCE && accept_one(plain, (gpufi_socket)ready[i].data.u64, events); k++) {
      }
    }
  }
}

/* --- Open and close ------------------------------------------------------------ */

static gpuf_status listen_on(gpufi_plain *plain, gpufi_connection *connection, gpufi_socket which,
                             gpuf_error *err) {
  struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)which};
  const gpuf_status status = gpufi_listen(connection, which, &plain->listeners[which], err);
  if (status == GPUF_OK &&
      epoll_ctl(plain->links.epoll_fd, EPOLL_CTL_ADD, plain->listeners[which], &event) != 0) {
    return gpufi_fail(err, GPUF_ERR_IO, errno, "epoll_ctl: %s", strerror(errno));
  }
  return status;
}

gpuf_status gpufi_plain_open(gpufi_plain *plain, gpufi_connection *connection, int32_t max,
                             gpuf_error *err) {
  *plain = (gpufi_plain){.spare_fd = spare(), .is_tcp = !connection->is_ipc};
  for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
    plain->listeners[i] = -1;
  }
  plain->buffer = malloc(READ_NBYTES);
  gpuf_status status = gpufi_links_init(&plain->links, max, err);
  if (status == GPUF_OK && !plain->buffer) {
    status = gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for a server");
  }
  for (int i = 0; i < GPUFI_SOCKET_COUNT && status == GPUF_OK; i++) {
    status = listen_on(plain, connection, (gpufi_socket)i, err);
  }
  return status;
}

static void stop_listening(gpufi_plain *plain) {
  for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
    if (plain->listeners[i] >= 0) {
      epoll_ctl(plain->links.epoll_fd, EPOLL_CTL_DEL, plain->listeners[i], NULL);
      close(plain->listeners[i]);
      plain->listeners[i] = -1;
    }
  }
}

/* Whether there is more to send to a client, or it may not have arrived. Over tcp, closing a
 * connection on which something has come that was not read drops what has not arrived. */
static bool is_under_way(gpufi_plain *plain, gpufi_link *link) {
  int left_nbytes = 0;
  if (link->first) {
    gpufi_links_flush(&plain->links, link);
  }
  if (plain->is_tcp && link->fd >= 0 && !link->is_deaf) {
    while (recv(link->fd, NULL, DROP_NBYTES, MSG_TRUNC | MSG_DONTWAIT) > 0) {
    }
    ioctl(link->fd, SIOCOUTQ, &left_nbytes);
  }
  return link->first || left_nbytes > 0;
}

/* Send what waits, for a while, to those that take it. */
static void linger(gpufi_plain *plain) {
  const int64_t until_ns = gpufi_clock_ns() + GPUFI_LINGER_MS * INT64_C(1000000);
  bool is_waiting = true;
  while (is_waiting && gpufi_clock_ns() < until_ns) {
    is_waiting = false;
    for (int32_t i = 0; i < plain->links.count; i++) {
      is_waiting = is_under_way(plain, plain->links.list[i]) || is_waiting;
    }
    if (is_waiting) {
      gpufi_sleep_ns(1000000);
    }
  }
}

void gpufi_plain_close(gpufi_plain *plain) {
  stop_listening(plain);
  linger(plain);
  gpufi_links_fini(&plain->links);
  if (plain->spare_fd >= 0) {
    close(plain->spare_fd);
  }
  free(plain->buffer);
  memset(plain, 0, sizeof(*plain));
}
