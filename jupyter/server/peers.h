/* The connections that ZeroMQ's sockets have accepted (curve.h), of which others must not make so
 * many that the program lacks descriptors. ZeroMQ has no limit: it accepts every connection and
 * tells its monitor afterwards. Here they are counted; those that are too many are shut down, and
 * as long as there are as many as may be, the listening sockets drop the packets that ask for more.
 * Belongs to the server's thread. */
#ifndef GPUFI_SERVER_PEERS_H
#define GPUFI_SERVER_PEERS_H

#include "server/connection.h"

#include <sys/types.h>

typedef struct gpufi_peer {
  int fd; /* ZeroMQ's: it may be closed, and stand for another file, at any time */
  gpufi_socket socket;
  ino_t inode; /* of the connection, which tells it from the next one with its descriptor */
  uint64_t least_number; /* those of earlier connections with its descriptor are less than its own,
                          * which is this one or more (zap.h) */
  int32_t refused_count; /* of its messages, since one was good */
  int64_t ping_due_ns;   /* gpufi_pace_is_too_fast */
  int32_t subscription_count;
} gpufi_peer;

#define GPUFI_PEERS_CUT_MAX 64

typedef struct gpufi_peers {
  const gpufi_connection *connection; /* whose addresses tell which descriptors are ours */
  void *monitors[GPUFI_SOCKET_COUNT]; /* ZeroMQ sockets on which events arrive */
  int listeners[GPUFI_SOCKET_COUNT];  /* as ZeroMQ has told; -1 = not known */
  bool is_shut;                       /* the listeners drop what asks to be connected */
  bool has_refused;                   /* and gpufi_peers_update has not told it yet */
  gpufi_peer *list;
  int32_t count, max;
  uint64_t next_number; /* of a connection; they begin with 1 */
  /* The last connections of which no further message is looked at; 0 = none. */
  uint64_t cut_numbers[GPUFI_PEERS_CUT_MAX];
  uint32_t cut_next; /* it may wrap round */
  int empty_fd;      /* of no use but to be copied */
  int spare_fd;      /* a copy of it, but while a connection is shut down */
  int64_t swept_ns;  /* when the list was last compared with the descriptors */
} gpufi_peers;

/* For at most `max` connections. After a failure as after success, *peers is to be released. */
gpuf_status gpufi_peers_init(gpufi_peers *peers, const gpufi_connection *connection, int32_t max,
                             gpuf_error *err);
/* Watch a ZeroMQ socket, before it is bound. */
gpuf_status gpufi_peers_watch(gpufi_peers *peers, void *context, void *socket, gpufi_socket which,
                              gpuf_error *err);
/* Before the sockets are closed: stop watching them. NULL among `sockets` is allowed. */
void gpufi_peers_fini(gpufi_peers *peers, void *const sockets[GPUFI_SOCKET_COUNT]);

/* Take in what has happened. */
void gpufi_peers_refresh(gpufi_peers *peers);
/* The same. False if connections were shut down, since the last call, because there are too many:
 * more than `max`, or so many that the last eighth of the process's descriptors, which is left to
 * the program, would be used. */
bool gpufi_peers_update(gpufi_peers *peers);

/* The connection with this descriptor, until the next call that may change the list; else NULL. */
gpufi_peer *gpufi_peers_find(gpufi_peers *peers, int fd);

/* A subscription has come (or gone, if `is_added` is false) on the connection with this descriptor.
 * False if the connection was shut down because it has too many. */
bool gpufi_peers_note_subscription(gpufi_peers *peers, int fd, uint64_t number, bool is_added);

/* Whether what the connection with this number has sent is to be dropped. Many messages may still
 * wait, and each would take time to check. */
bool gpufi_peers_has_cut(const gpufi_peers *peers, uint64_t number);
/* A message has come, to which the descriptor and the number of its connection belong: a good one,
 * or one that was refused, as are all of somebody without the key. Of those, which wait in ZeroMQ's
 * memory, a connection may send only so many in a row, and nothing after the first where it has
 * ended. False if it was shut down. */
bool gpufi_peers_note_message(gpufi_peers *peers, gpufi_socket which, int fd, uint64_t number,
                              bool is_good);
/* The same of a ping to the heartbeat, which is to be echoed if the result is true. */
bool gpufi_peers_note_ping(gpufi_peers *peers, int fd, uint64_t number);

/* Shut down the connection with this descriptor, if it is one of the socket's. */
void gpufi_peers_cut(gpufi_peers *peers, gpufi_socket socket, int fd);
/* Shut down the connections of a socket whose clients leave unread what was sent to them. */
void gpufi_peers_cut_stalled(gpufi_peers *peers, gpufi_socket socket);

#endif
