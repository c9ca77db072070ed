#include "server/listen.h"

#include "base/error.h"
#include "base/system.h"
#include "server/ipc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 128

/* What `ip` says: an address, "*" for all, or the name of a network interface. */
static bool find_address(const char *ip, struct in_addr *address) {
  if (strcmp(ip, "*") == 0) {
    address->s_addr = htonl(INADDR_ANY);
    return true;
  }
  if (inet_pton(AF_INET, ip, address) == 1) { /* of one host */
    return !IN_MULTICAST(ntohl(address->s_addr)) && address->s_addr != htonl(INADDR_BROADCAST);
  }
  struct ifaddrs *first = NULL;
  bool found = false;
  if (getifaddrs(&first) != 0) {
    return false;
  }
  for (const struct ifaddrs *at = first; at && !found; at = at->ifa_next) {
    found = at->ifa_addr && at->ifa_addr->sa_family == AF_INET && strcmp(at->ifa_name, ip) == 0;
    if (found) {
      *address = ((const struct sockaddr_in *)at->ifa_addr)->sin_addr;
    }
  }
  freeifaddrs(first);
  return found;
}

/* These return 0 or an errno value. */

static int listen_at(int fd, const void *address, socklen_t nbytes) {
  return bind(fd, address, nbytes) == 0 && listen(fd, BACKLOG) == 0 ? 0 : errno;
}

static int listen_tcp(gpufi_connection *connection, gpufi_socket which, int fd) {
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)connection->ports[which])};
  socklen_t nbytes = sizeof(address);
  const int one = 1;
  if (!find_address(connection->ip, &address.sin_addr)) {
    return ENODEV;
  }
  int code = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 ? 0 : errno;
  code = code != 0 ? code : listen_at(fd, &address, sizeof(address));
  if (code == 0 && getsockname(fd, (struct sockaddr *)&address, &nbytes) == 0) {
    connection->ports[which] = ntohs(address.sin_port);
    inet_ntop(AF_INET, &address.sin_addr, connection->ip, sizeof(connection->ip));
  }
  return code;
}

static int listen_ipc(gpufi_connection *connection, gpufi_socket which, const char *path, int fd) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  struct stat info;
  if (strlen(path) >= sizeof(address.sun_path)) {
    return ENAMETOOLONG;
  }
  memcpy(address.sun_path, path, strlen(path));
  if (gpufi_ipc_is_living(path)) {
    return EADDRINUSE;
  }
  if (lstat(path, &info) == 0 && (!S_ISSOCK(info.st_mode) || unlink(path) != 0)) {
    return S_ISSOCK(info.st_mode) ? errno : EEXIST;
  }
  int code = bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 ? 0 : errno;
  if (code == 0) {
    connection->has_sockets = true;
    connection->socket_inodes[which] = lstat(path, &info) == 0 ? info.st_ino : 0;
    /* Nobody can connect before it listens, and then only its owner, whatever the umask is. */
    code = chmod(path, 0600) == 0 && listen(fd, BACKLOG) == 0 ? 0 : errno;
  }
  return code;
}

static gpuf_status fail(const gpufi_connection *connection, gpufi_socket which, const char *url,
                        int code, gpuf_error *err) {
  if (connection->is_ipc && code == EEXIST) {
    return gpufi_fail(err, GPUF_ERR_IO, code,
                      "cannot listen on %.300s: what is there is no socket; remove it, or serve "
                      "over tcp (ip 127.0.0.1)",
                      url + strlen("ipc://"));
  }
  const char *remedy =
      code == EADDRINUSE && connection->is_ipc
          ? "somebody listens there, or it is another user's: end that program, or use another "
            "name or path"
      : code == EADDRINUSE   ? "another process uses it: choose another port, or 0 "
                               "for any"
      : code == ENAMETOOLONG ? "use a shorter path, or tcp"
      : code == ENODEV || code == EADDRNOTAVAIL
          ? "give an IPv4 address of this host, or the name of a network "
            "interface that has one"
      : connection->is_ipc ? "this folder takes no sockets: serve over tcp (ip 127.0.0.1)"
                           : "check the address and the permissions in the options";
  return gpufi_fail(err, GPUF_ERR_IO, code, "cannot listen on %.300s for %s: %s; %s", url,
                    gpufi_socket_names[which], strerror(code), remedy);
}

gpuf_status gpufi_listen(gpufi_connection *connection, gpufi_socket which, int *fd,
                         gpuf_error *err) {
  char url[PATH_MAX + 64];
  gpufi_connection_url(connection, which, url);
  const int made = gpufi_fd_above_stdio(socket(connection->is_ipc ? AF_UNIX : AF_INET,
                                               SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  *fd = -1;
  if (made < 0) {
    return fail(connection, which, url, errno, err);
  }
  const int code = connection->is_ipc ? listen_ipc(connection, which, url + strlen("ipc://"), made)
                                      : listen_tcp(connection, which, made);
  if (code != 0) {
    close(made);
    return fail(connection, which, url, code, err);
  }
  *fd = made;
  return GPUF_OK;
}
