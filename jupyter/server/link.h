/* One connection to a socket of the server's where there is no CurveZMQ: over ipc, and over plain
 * tcp, where everyone can connect. The server speaks ZMTP itself (zmtp.h), so that what a client
 * sends is counted and limited before it costs anything, and no lack of descriptors and no peer can
 * end the process, as they can where ZeroMQ accepts connections. Belongs to the server's thread. */
#ifndef GPUFI_SERVER_LINK_H
#define GPUFI_SERVER_LINK_H

#include "server/connection.h"
#include "server/packet.h"
#include "server/topics.h"
#include "server/zmtp.h"

/* Of a message, the client's identity among them: one more than a message may have. */
#define GPUFI_INBOX_FRAMES_MAX (GPUFI_WIRE_FRAMES_MAX + 1)

/* The message that is being received. */
typedef struct gpufi_inbox {
  uint8_t *bytes;
  size_t nbytes, capacity;
  size_t count; /* of frames that have come; the bytes of those past the most are dropped */
  size_t ends[GPUFI_INBOX_FRAMES_MAX];
} gpufi_inbox;

/* A packet that waits to be sent. */
typedef struct gpufi_waiting {
  struct gpufi_waiting *next;
  gpufi_packet *packet;
  int64_t put_ns; /* since when, of CLOCK_MONOTONIC */
} gpufi_waiting;

typedef struct gpufi_link {
  int fd; /* -1 = it has ended: nothing is sent any more, nor read */
  gpufi_socket socket;
  bool is_ready; /* the handshake is done, and no later connection has taken its client's place */
  bool is_deaf;  /* nothing can be sent any more, but what has come is still read */
  bool has_key;  /* it has sent a good message */
  int64_t ready_until_ns; /* it ends if it is not ready by then */
  int64_t frame_due_ns;   /* gpufi_pace_is_too_fast, of what is limited so */
  int32_t refused_count;  /* of its messages, since one was good */
  gpufi_zmtp_reader reader;
  size_t identity_nbytes;
  uint8_t identity[GPUFI_ZMTP_IDENTITY_MAX_NBYTES];
  gpufi_inbox inbox;
  gpufi_topics topics; /* of a subscriber */
  gpufi_waiting *first, *last;
  int waiting_count;
  size_t sent_nbytes; /* of the first */
} gpufi_link;

/* For a connection, which it takes over. NULL without memory: it is closed then. */
gpufi_link *gpufi_link_make(int fd, gpufi_socket socket);
/* Close the connection, and drop what waits to be sent. What it has received stays until
 * gpufi_link_free. */
void gpufi_link_end(gpufi_link *link);
void gpufi_link_free(gpufi_link *link);

/* Let a packet wait behind the others. False, and nothing done, where as many wait as may, where
 * nothing can be sent any more, or without memory. */
bool gpufi_link_put(gpufi_link *link, gpufi_packet *packet);
/* Send what the connection takes without waiting. Where it has broken, what waits is dropped. */
void gpufi_link_flush(gpufi_link *link);

/* Add a frame to the message that is being received. False without memory, or where there are so
 * many that no message has them. */
bool gpufi_inbox_add(gpufi_inbox *inbox, const uint8_t *data, size_t nbytes);
/* `identity` and the message's frames behind it; how many. Those past the most are left out. They
 * are valid until gpufi_inbox_clear. */
size_t gpufi_inbox_frames(const gpufi_inbox *inbox, gpufi_frame identity,
                          gpufi_frame frames[GPUFI_INBOX_FRAMES_MAX]);
void gpufi_inbox_clear(gpufi_inbox *inbox);

/* The memory that holds what it has received. */
size_t gpufi_link_held_nbytes(const gpufi_link *link);

#endif
