#include "server/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

const char *gpufi_address_problem(const char *ip) {
  struct in6_addr address;
  char bare[64];
  if (!*ip) {
    return "it is empty: give an IPv4 address of this host, such as 127.0.0.1";
  }
  if (!strchr(ip, ':')) {
    return NULL;
  }
  const bool is_bracketed = *ip == '[';
  snprintf(bare, sizeof(bare), "%.*s", (int)strcspn(ip + is_bracketed, "]%"), ip + is_bracketed);
  return inet_pton(AF_INET6, bare, &address) == 1
             ? "it is an IPv6 address, to which Jupyter's clients do not connect: give an IPv4 "
               "address of this host, such as 127.0.0.1"
             : "an address holds no colon: give the ports apart from it";
}

int64_t gpufi_address_number(const char *text, const char *end) {
  int64_t number = text < end && *text ? 0 : -1;
  for (; text < end && *text && number >= 0; text++) {
    number = *text >= '0' && *text <= '9' && number <= INT32_MAX ? 10 * number + (*text - '0') : -1;
  }
  return number;
}

bool gpufi_address_is_of(const gpufi_connection *connection, gpufi_socket which, int fd) {
  union {
    struct sockaddr any;
    struct sockaddr_in ip4;
    struct sockaddr_un local;
    struct sockaddr_storage storage;
  } own;
  socklen_t nbytes = sizeof(own);
  memset(&own, 0, sizeof(own));
  if (getsockname(fd, &own.any, &nbytes) != 0) {
    return false;
  }
  if (own.any.sa_family == AF_UNIX) { /* IP-PORT, as in gpufi_connection_url */
    const size_t length = strlen(connection->ip);
    const char *path = own.local.sun_path;
    return connection->is_ipc && length + 1 < sizeof(own.local.sun_path) &&
           memcmp(path, connection->ip, length) == 0 && path[length] == '-' &&
           gpufi_address_number(path + length + 1, path + sizeof(own.local.sun_path)) ==
               connection->ports[which];
  }
  struct in_addr listened;
  int type = 0;
  socklen_t type_nbytes = sizeof(type);
  return own.any.sa_family == AF_INET && !connection->is_ipc && own.ip4.sin_port != 0 &&
         ntohs(own.ip4.sin_port) == connection->ports[which] &&
         getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_nbytes) == 0 && type == SOCK_STREAM &&
         inet_pton(AF_INET, connection->ip, &listened) == 1 &&
         (listened.s_addr == htonl(INADDR_ANY) || listened.s_addr == own.ip4.sin_addr.s_addr);
}
