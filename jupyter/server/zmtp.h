/* ZMTP 3.1, the protocol of ZeroMQ's connections, as a publisher speaks it with one subscriber over
 * the mechanism NULL, which neither encrypts nor asks who it is. No sockets.
 *
 * Everything that is read is untrusted. What is held of it is bounded by
 * GPUFI_ZMTP_FRAME_MAX_NBYTES and a few bytes. */
#ifndef GPUFI_SERVER_ZMTP_H
#define GPUFI_SERVER_ZMTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GPUFI_ZMTP_FRAME_MAX_NBYTES 1024 /* the body of a frame from a subscriber */
#define GPUFI_ZMTP_GREETING_NBYTES 64
#define GPUFI_ZMTP_READY_NBYTES 28
#define GPUFI_ZMTP_HEADER_MAX_NBYTES 9
#define GPUFI_ZMTP_PONG_MAX_NBYTES 23

typedef enum gpufi_zmtp_kind {
  GPUFI_ZMTP_NOTHING,   /* more bytes are needed */
  GPUFI_ZMTP_GREETING,  /* it speaks this protocol: gpufi_zmtp_ready is due */
  GPUFI_ZMTP_READY,     /* the handshake is done: frames follow */
  GPUFI_ZMTP_SUBSCRIBE, /* these two: the data is a topic */
  GPUFI_ZMTP_CANCEL,
  GPUFI_ZMTP_PING, /* the data is to be sent back */
  GPUFI_ZMTP_OTHER,
} gpufi_zmtp_kind;

typedef struct gpufi_zmtp_event {
  gpufi_zmtp_kind kind;
  const uint8_t *data; /* in the reader, until the next call */
  size_t nbytes;
} gpufi_zmtp_event;

/* Of all zero, a reader waits for the greeting. */
typedef struct gpufi_zmtp_reader {
  enum { GPUFI_ZMTP_AT_GREETING, GPUFI_ZMTP_AT_READY, GPUFI_ZMTP_AT_FRAMES } state;
  size_t held_nbytes;
  bool is_whole; /* what is held was told by the last call */
  uint8_t held[GPUFI_ZMTP_HEADER_MAX_NBYTES + GPUFI_ZMTP_FRAME_MAX_NBYTES];
} gpufi_zmtp_reader;

/* Take bytes off the front of *data up to the next event, or all of them where the event is
 * NOTHING. False if they come from no subscriber that speaks ZMTP 3 by the mechanism NULL, or if a
 * frame is too large: the connection is of no use any more. */
bool gpufi_zmtp_read(gpufi_zmtp_reader *reader, const uint8_t **data, size_t *nbytes,
                     gpufi_zmtp_event *event);

/* What a publisher sends first. */
extern const uint8_t gpufi_zmtp_greeting[GPUFI_ZMTP_GREETING_NBYTES];
/* What it sends when it has got the greeting of the other. */
extern const uint8_t gpufi_zmtp_ready[GPUFI_ZMTP_READY_NBYTES + 1]; /* and NUL */

/* Write what comes before the bytes of a frame of a message, and return its size. */
size_t gpufi_zmtp_header(uint8_t header[GPUFI_ZMTP_HEADER_MAX_NBYTES], uint64_t nbytes, bool more);
/* Write the answer to an event of kind PING, and return its size. */
size_t gpufi_zmtp_pong(uint8_t pong[GPUFI_ZMTP_PONG_MAX_NBYTES], const gpufi_zmtp_event *ping);

#endif
