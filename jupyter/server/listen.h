/* The listening sockets of a server. */
#ifndef GPUFI_SERVER_LISTEN_H
#define GPUFI_SERVER_LISTEN_H

#include "server/connection.h"

/* Listen at the address that `connection` has for a socket, and put in the IPv4 address and the
 * port where the system has chosen them. *fd, which does not block, is the caller's to close; -1 in
 * failure. With ipc it replaces a socket of that path, but no other file, and only the owner can
 * connect. */
gpuf_status gpufi_listen(gpufi_connection *connection, gpufi_socket which, int *fd,
                         gpuf_error *err);

#endif
