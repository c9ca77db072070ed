/* The limits of the comm protocol (docs/protocol.md). */
#ifndef GPUFI_COMM_PROTOCOL_H
#define GPUFI_COMM_PROTOCOL_H

#include <stddef.h>

#define GPUFI_PROTOCOL_VERSION 1
#define GPUFI_COMM_TARGET "gpufetch" /* the name of the comm target */

#define GPUFI_REPLY_MAX_NBYTES ((size_t)4 << 20) /* the buffers of one reply, together */
#define GPUFI_REPLY_JSON_MAX_NBYTES ((size_t)256 << 10)
#define GPUFI_REPLY_BUFFERS_MAX 2
#define GPUFI_REQUEST_MAX_NBYTES ((size_t)16 << 10) /* JSON; requests have no buffers */
#define GPUFI_REQUEST_DEPTH_MAX 4                   /* of nested objects and arrays */
#define GPUFI_TENSOR_NAME_MAX_NBYTES 200            /* of a value's name too */
#define GPUFI_TEXT_MAX_NBYTES 4096                  /* of a value that is text */
#define GPUFI_TOKEN_MAX_NBYTES 64                   /* of an id, or of a key in `supersede` */

#endif
