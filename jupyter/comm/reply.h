/* Replies, as transports see them. */
#ifndef GPUFI_COMM_REPLY_H
#define GPUFI_COMM_REPLY_H

#include "comm/protocol.h"

/* Owned by whoever got it, until gpufi_reply_free; its memory counts against the dispatcher's
 * reply_memory_nbytes until then. */
typedef struct gpufi_reply {
  const char *json; /* one object, UTF-8, NUL-terminated */
  size_t json_nbytes;
  size_t buffer_count;
  const void *buffers[GPUFI_REPLY_BUFFERS_MAX]; /* host memory */
  size_t buffer_nbytes[GPUFI_REPLY_BUFFERS_MAX];
} gpufi_reply;

/* From any thread, also after the dispatcher is destroyed. NULL is allowed. */
void gpufi_reply_free(gpufi_reply *reply);

#endif
