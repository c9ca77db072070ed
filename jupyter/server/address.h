/* The address that a server is to listen on over tcp. Thread-safety: any thread. */
#ifndef GPUFI_SERVER_ADDRESS_H
#define GPUFI_SERVER_ADDRESS_H

/* Why no server can listen on an address, as far as its text says; else NULL. */
const char *gpufi_address_problem(const char *ip);

#endif
