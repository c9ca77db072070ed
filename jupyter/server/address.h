/* The addresses that a server listens at. Thread-safety: any thread. */
#ifndef GPUFI_SERVER_ADDRESS_H
#define GPUFI_SERVER_ADDRESS_H

#include "server/connection.h"

/* Why no server can listen on an address of tcp, as far as its text says; else NULL. */
const char *gpufi_address_problem(const char *ip);

/* The following two take neither a lock nor memory: a forked child calls them before all else. */

/* Whether a descriptor is a socket at the address of one of the server's: it listens there, or is
 * the server's end of a connection. */
bool gpufi_address_is_of(const gpufi_connection *connection, gpufi_socket which, int fd);

/* The number that text is, in decimal digits up to a NUL or `end`; -1 if it is none. */
int64_t gpufi_address_number(const char *text, const char *end);

#endif
