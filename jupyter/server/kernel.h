/* What a Jupyter kernel answers to each type of message. It belongs to the server's thread. */
#ifndef GPUFI_SERVER_KERNEL_H
#define GPUFI_SERVER_KERNEL_H

#include "server/bridge.h"

typedef struct gpufi_kernel {
  gpufi_endpoint *endpoint;
  gpufi_bridge *bridge;
  const gpufi_connection *connection;
  void (*shutdown)(void *shutdown_arg); /* NULL = a shutdown request only detaches its client */
  void *shutdown_arg;
  bool is_managed;        /* a kernel manager started the program and may start it again */
  int64_t launch_time_ns; /* of a managed program, since 1970 */
  bool was_shut_down;
  int64_t execution_count;
} gpufi_kernel;

/* Tell the program to end; false if it did not ask to be told. It is told once. */
bool gpufi_kernel_shut_down(gpufi_kernel *kernel);

/* Handle one message, busy and idle included. */
void gpufi_kernel_handle(gpufi_kernel *kernel, gpufi_socket socket, gpufi_message *message);

#endif
