/* The bytes of a message, or of what ZMTP has besides, as they go to one client or more. Belongs to
 * one thread. */
#ifndef GPUFI_SERVER_PACKET_H
#define GPUFI_SERVER_PACKET_H

#include "comm/protocol.h"
#include "server/payload.h"
#include "server/wire.h"

#include <sys/uio.h>

/* The frames and the first payload's header, the payload, the next one's header, ... */
#define GPUFI_PACKET_PARTS_MAX (2 * GPUFI_REPLY_BUFFERS_MAX)

typedef struct gpufi_packet {
  int32_t holder_count;
  int part_count;
  struct iovec parts[GPUFI_PACKET_PARTS_MAX];
  size_t payload_count;
  gpufi_payload payloads[GPUFI_REPLY_BUFFERS_MAX];
  uint8_t bytes[];
} gpufi_packet;

/* The caller holds the packet. NULL without memory. */
gpufi_packet *gpufi_packet_of_bytes(const void *bytes, size_t nbytes);
/* The same, of the frames of a message and of payloads, one frame each, which it takes over: they
 * are released with it, or in failure. */
gpufi_packet *gpufi_packet_of_message(const gpufi_frame *frames, size_t count,
                                      const gpufi_payload *payloads, size_t payload_count);
/* Whoever holds it lets it go once; the last one frees it. NULL is allowed. */
void gpufi_packet_let_go(gpufi_packet *packet);

/* Fill in what is left of a packet of which the first `sent_nbytes` were sent; how many entries of
 * `left`, at most `count`, that takes. */
int gpufi_packet_left(const gpufi_packet *packet, size_t sent_nbytes, struct iovec *left,
                      int count);
size_t gpufi_packet_nbytes(const gpufi_packet *packet);

#endif
