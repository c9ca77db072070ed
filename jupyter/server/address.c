#include "server/address.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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
