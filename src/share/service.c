#include "share/service.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/system.h"
#include "base/thread.h"
#include "share/table.h"

typedef struct reference {
  struct reference *next;
  uint64_t id;
  gpufi_share *share;
} reference;

typedef struct client {
  struct client *next; /* guarded by `lock`, as is fd; the rest is used by the thread only */
  int fd;
  reference *references;
  int32_t reference_count;
} client;

/* Guards what a forked child must close. Once the service's thread runs, only that changes it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int listen_fd = -1;
static int epoll_fd = -1;
static client *clients;
static int32_t client_count;

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER; /* guards `started` */
static bool started;

static void drop(client *c) {
  pthread_mutex_lock(&lock);
  client **link = &clients;
  while (*link != c) {
    link = &(*link)->next;
  }
  *link = c->next;
  client_count--;
  /* A child that has not run its exec yet, or its handlers of fork, may hold the descriptor, too:
   * with close alone, epoll would report the freed client for as long. */
  epoll_ctl(epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
  close(c->fd);
  pthread_mutex_unlock(&lock);
  while (c->references) {
    reference *r = c->references;
    c->references = r->next;
    gpufi_share_release(r->share);
    free(r);
  }
  free(c);
}

static int descriptor_of(const gpufi_share *share) {
  const gpuf_tensor *tensor = gpufi_share_tensor(share);
  const gpufi_backend *backend =
      tensor->device.kind == GPUF_DEVICE_CUDA ? &gpufi_backend_cuda : &gpufi_backend_host;
  return gpuf_tensor_count(tensor) > 0 ? backend->ipc_descriptor() : -1;
}

static bool attach(client *c, const gpufi_share_request *request, size_t handle_nbytes) {
  gpufi_share *share = NULL;
  reference *r = NULL;
  gpufi_share_answer answer = GPUFI_SHARE_FULL;
  if (c->reference_count < GPUFI_SHARE_REFERENCES_MAX) {
    r = malloc(sizeof(*r));
  }
  if (r) {
    answer = gpufi_share_acquire(request->handle, handle_nbytes, &share);
  }
  if (!share) {
    free(r);
    return gpufi_share_send_reply(c->fd, answer, request->reference, -1);
  }
  *r = (reference){c->references, request->reference, share};
  c->references = r;
  c->reference_count++;
  return gpufi_share_send_reply(c->fd, answer, request->reference, descriptor_of(share));
}

/* A client that lacks the reference had its ATTACH refused. */
static void detach(client *c, uint64_t id) {
  reference **link = &c->references;
  while (*link && (*link)->id != id) {
    link = &(*link)->next;
  }
  reference *r = *link;
  if (r) {
    *link = r->next;
    c->reference_count--;
    gpufi_share_release(r->share);
    free(r);
  }
}

/* False when the client has gone or does not keep to the protocol. */
static bool serve(client *c) {
  gpufi_share_request request;
  const ssize_t received = recv(c->fd, &request, sizeof(request), MSG_DONTWAIT | MSG_TRUNC);
  if (received < 0) {
    return errno == EAGAIN || errno == EINTR;
  }
  const size_t nbytes = (size_t)received;
  if (nbytes < GPUFI_SHARE_REQUEST_HEADER_NBYTES || nbytes > sizeof(request) ||
      request.magic != GPUFI_SHARE_WIRE_MAGIC) {
    return false;
  }
  if (request.version != GPUFI_SHARE_WIRE_VERSION) {
    gpufi_share_send_reply(c->fd, GPUFI_SHARE_OTHER_VERSION, 0, -1);
    return false;
  }
  if (request.kind == GPUFI_SHARE_ATTACH) {
    return attach(c, &request, nbytes - GPUFI_SHARE_REQUEST_HEADER_NBYTES);
  }
  if (request.kind != GPUFI_SHARE_DETACH) {
    return false;
  }
  detach(c, request.reference);
  return true;
}

static bool is_same_user(int fd) {
  struct ucred peer;
  socklen_t nbytes = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &nbytes) == 0 && peer.uid == geteuid();
}

/* Called with the lock held. */
static gpufi_share_answer admit(int fd) {
  if (!is_same_user(fd)) {
    return GPUFI_SHARE_OTHER_USER;
  }
  client *c = client_count < GPUFI_SHARE_CLIENTS_MAX ? calloc(1, sizeof(*c)) : NULL;
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
  if (!c || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
    free(c);
    return GPUFI_SHARE_FULL;
  }
  c->fd = fd;
  c->next = clients;
  clients = c;
  client_count++;
  return GPUFI_SHARE_GRANTED;
}

/* Tell an importer why it is refused, and close the connection. What it has sent is read first, and
 * nothing more is let in, because unread bytes would reset the connection before the reply is read.
 */
static void turn_away(int fd, gpufi_share_answer answer) {
  gpufi_share_request unread;
  shutdown(fd, SHUT_RD);
  while (recv(fd, &unread, sizeof(unread), MSG_DONTWAIT) > 0) {
  }
  gpufi_share_send_reply(fd, answer, 0, -1);
  close(fd);
}

static void accept_one(void) {
  pthread_mutex_lock(&lock);
  const int fd = gpufi_fd_above_stdio(accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const int code = errno;
  const gpufi_share_answer answer = fd >= 0 ? admit(fd) : GPUFI_SHARE_GRANTED;
  pthread_mutex_unlock(&lock);
  if (answer != GPUFI_SHARE_GRANTED) {
    turn_away(fd, answer);
  }
  if (fd < 0 && code != EAGAIN && code != EINTR && code != ECONNABORTED) {
    /* The process is out of descriptors. The importer waits in the backlog, and without a pause
     * epoll would report it again at once. */
    gpufi_sleep_ns(10000000);
  }
}

static void *service_main(void *arg) {
  struct epoll_event events[16];
  const int fd = (int)(intptr_t)arg;
  for (;;) {
    const int count = epoll_wait(fd, events, 16, -1);
    for (int i = 0; i < count; i++) {
      client *c = events[i].data.ptr;
      if (!c) {
        accept_one();
      } else if (!serve(c)) {
        drop(c);
      }
    }
  }
  return NULL;
}

static gpuf_status io_fail(const char *call, gpuf_error *err) {
  const gpuf_status status = errno == EAGAIN ? GPUF_ERR_NO_MEMORY : GPUF_ERR_IO; /* no thread */
  return gpufi_fail(err, status, errno, "%s for the share service: %s", call, strerror(errno));
}

/* Called with the lock held. After a failure the caller closes what was opened. */
static gpuf_status open_sockets(const uint8_t *service, gpuf_error *err) {
  struct sockaddr_un address;
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
  const socklen_t nbytes = gpufi_share_address(service, &address);
  listen_fd =
      gpufi_fd_above_stdio(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  epoll_fd = gpufi_fd_above_stdio(epoll_create1(EPOLL_CLOEXEC));
  if (listen_fd < 0 || epoll_fd < 0) {
    return io_fail("socket or epoll_create1", err);
  }
  if (bind(listen_fd, (struct sockaddr *)&address, nbytes) != 0 || listen(listen_fd, 128) != 0) {
    return io_fail("bind or listen", err);
  }
  if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listen_fd, &event) != 0) {
    return io_fail("epoll_ctl", err);
  }
  return GPUF_OK;
}

static int start_thread(void) {
  pthread_t thread;
  const int code =
      gpufi_thread_start(&thread, "gpufetch-share", 0, service_main, (void *)(intptr_t)epoll_fd);
  if (code == 0) {
    pthread_detach(thread);
  }
  return code;
}

static void close_sockets(void) {
  if (listen_fd >= 0) {
    close(listen_fd);
  }
  if (epoll_fd >= 0) {
    close(epoll_fd);
  }
  listen_fd = epoll_fd = -1;
}

static void fork_prepare(void) {
  pthread_mutex_lock(&lock);
}
static void fork_parent(void) {
  pthread_mutex_unlock(&lock);
}

static void fork_child(void) {
  for (client *c = clients; c; c = c->next) {
    close(c->fd);
  }
  clients = NULL; /* the child leaves their memory as it is */
  close_sockets();
  pthread_mutex_unlock(&lock);
}

GPUFI_AT_FORK(GPUFI_FORK_SHARE, fork_prepare, fork_parent, fork_child);

static gpuf_status start(const uint8_t *service, gpuf_error *err) {
  pthread_mutex_lock(&lock);
  gpuf_status status = open_sockets(service, err);
  if (status == GPUF_OK) {
    const int code = start_thread();
    if (code != 0) {
      errno = code;
      status = io_fail("pthread_create", err);
    }
  }
  if (status != GPUF_OK) {
    close_sockets();
  }
  pthread_mutex_unlock(&lock);
  return status;
}

gpuf_status gpufi_share_service_start(gpufi_share_fields *fields, gpuf_error *err) {
  gpuf_status status = gpufi_share_own_identity(fields, err);
  pthread_mutex_lock(&start_lock);
  if (status == GPUF_OK && !started) {
    status = start(fields->service, err);
    started = status == GPUF_OK;
  }
  pthread_mutex_unlock(&start_lock);
  return status;
}
