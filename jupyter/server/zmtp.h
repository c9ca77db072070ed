/* ZMTP 3.1, the protocol of ZeroMQ's connections, as a server speaks it with one client over the
 * mechanism NULL, which neither encrypts nor asks who it is. No sockets.
 *
 * Everything that is read is untrusted. What is held of it is bounded by the largest frame, and by
 * about twice what has come of it. */
#ifndef GPUFI_SERVER_ZMTP_H
#define GPUFI_SERVER_ZMTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GPUFI_ZMTP_GREETING_NBYTES 64
#define GPUFI_ZMTP_READY_MAX_NBYTES 30
#define GPUFI_ZMTP_HEADER_MAX_NBYTES 9
#define GPUFI_ZMTP_PONG_MAX_NBYTES 23
#define GPUFI_ZMTP_IDENTITY_MAX_NBYTES 255
/* The body of a frame from a subscriber, of a command, and of the end of the handshake. */
#define GPUFI_ZMTP_SMALL_MAX_NBYTES 1024

typedef enum gpufi_zmtp_role {
  GPUFI_ZMTP_PUBLISHER, /* XPUB: clients are subscribers */
  GPUFI_ZMTP_ROUTER,    /* ROUTER: clients send messages and get replies */
} gpufi_zmtp_role;

typedef enum gpufi_zmtp_kind {
  GPUFI_ZMTP_NOTHING,  /* more bytes are needed */
  GPUFI_ZMTP_GREETING, /* it speaks this protocol: gpufi_zmtp_ready is due */
  GPUFI_ZMTP_READY,    /* the handshake is done: frames follow. The data is the client's identity */
  GPUFI_ZMTP_SUBSCRIBE, /* these two, to a publisher: the data is a topic */
  GPUFI_ZMTP_CANCEL,
  GPUFI_ZMTP_PING,  /* the data is to be sent back */
  GPUFI_ZMTP_FRAME, /* to a router: the data is a frame of a message */
  GPUFI_ZMTP_OTHER,
} gpufi_zmtp_kind;

typedef struct gpufi_zmtp_event {
  gpufi_zmtp_kind kind;
  bool more;           /* of a FRAME: it is not the message's last */
  const uint8_t *data; /* in the reader, until the next call */
  size_t nbytes;
} gpufi_zmtp_event;

/* Of all zero but for the first two, a reader waits for the greeting. */
typedef struct gpufi_zmtp_reader {
  gpufi_zmtp_role role;
  size_t frame_max_nbytes; /* the body of a frame of a message to a router */
  enum { GPUFI_ZMTP_AT_GREETING, GPUFI_ZMTP_AT_READY, GPUFI_ZMTP_AT_FRAMES } state;
  bool is_whole; /* what is held was told by the last call */
  size_t held_nbytes, capacity;
  uint8_t *held;
} gpufi_zmtp_reader;

/* Take bytes off the front of *data up to the next event, or all of them where the event is
 * NOTHING. False if they come from no client of this role's that speaks ZMTP 3 by the mechanism
 * NULL, if a frame is too large, or if there is no memory: the connection is of no use any more. */
bool gpufi_zmtp_read(gpufi_zmtp_reader *reader, const uint8_t **data, size_t *nbytes,
                     gpufi_zmtp_event *event);
void gpufi_zmtp_reader_fini(gpufi_zmtp_reader *reader);

/* What a server sends first. */
extern const uint8_t gpufi_zmtp_greeting[GPUFI_ZMTP_GREETING_NBYTES];
/* Write what it sends when it has got the greeting of the other, and return its size. */
size_t gpufi_zmtp_ready(uint8_t ready[GPUFI_ZMTP_READY_MAX_NBYTES], gpufi_zmtp_role role);

/* Write what comes before the bytes of a frame of a message, and return its size. */
size_t gpufi_zmtp_header(uint8_t header[GPUFI_ZMTP_HEADER_MAX_NBYTES], uint64_t nbytes, bool more);
/* Write the answer to an event of kind PING, and return its size. */
size_t gpufi_zmtp_pong(uint8_t pong[GPUFI_ZMTP_PONG_MAX_NBYTES], const gpufi_zmtp_event *ping);

#endif
