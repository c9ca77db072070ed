/* Connections to a server that no ZeroMQ makes: by hand more can be sent, and at other times. */
#ifndef GPUFI_TEST_BY_HAND_H
#define GPUFI_TEST_BY_HAND_H

#include "base/system.h"
#include "server/connection.h"
#include "test.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Connect a socket of the right family. */
static inline void connect_socket_by_hand(int fd, const gpufi_connection *connection,
                                          gpufi_socket which) {
  const struct sockaddr_in port = {.sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                   .sin_port = htons((uint16_t)connection->ports[which])};
  struct sockaddr_un path = {.sun_family = AF_UNIX};
  const void *address = &port;
  socklen_t nbytes = sizeof(port);
  if (connection->is_ipc) {
    char url[PATH_MAX + 64];
    gpufi_connection_url(connection, which, url);
    const char *name = url + strlen("ipc://");
    CHECK(strlen(name) < sizeof(path.sun_path));
    memcpy(path.sun_path, name, strlen(name));
    address = &path;
    nbytes = sizeof(path);
  }
  while (connect(fd, address, nbytes) != 0 && errno != EISCONN) {
    CHECK(errno == EINTR || errno == EALREADY);
  }
}

/* Calls on the connection wait for 20 seconds at most. */
static inline int connect_by_hand(const gpufi_connection *connection, gpufi_socket which) {
  const struct timeval wait = {20, 0};
  const int fd = socket(connection->is_ipc ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) == 0);
  connect_socket_by_hand(fd, connection, which);
  return fd;
}

/* How every connection of ZMTP 3 begins. */
static inline void greet(int fd) {
  static const unsigned char greeting[64] = {[0] = 0xff, [9] = 0x7f, 3, 0, 'N', 'U', 'L', 'L'};
  CHECK(gpufi_write(fd, greeting, sizeof(greeting)));
}

/* Send what ZeroMQ's sockets of a type send first: a greeting, and READY. */
static inline void shake_hands(int fd, const char *type) {
  static const char start[] = "\5READY\13Socket-Type\0\0\0";
  const size_t nbytes = sizeof(start) - 1, type_nbytes = strlen(type);
  char ready[64] = {4, (char)(nbytes + 1 + type_nbytes)};
  memcpy(ready + 2, start, nbytes);
  ready[2 + nbytes] = (char)type_nbytes;
  memcpy(ready + 3 + nbytes, type, type_nbytes);
  greet(fd);
  CHECK(gpufi_write(fd, ready, 3 + nbytes + type_nbytes));
}

/* Close a connection so that its end of it is an error at the other. */
static inline void reset_connection(int fd) {
  const struct linger at_once = {1, 0};
  CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0);
  close(fd);
}

#endif
