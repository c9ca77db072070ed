/* A buffer that follows the four sections of a message. */
#ifndef GPUFI_SERVER_PAYLOAD_H
#define GPUFI_SERVER_PAYLOAD_H

#include <stddef.h>

typedef struct gpufi_payload {
  void *data;
  size_t nbytes;
  void (*release)(void *data, void *arg); /* called once, on any thread */
  void *arg;
} gpufi_payload;

#endif
