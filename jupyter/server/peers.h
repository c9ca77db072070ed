/* The connections that the server's sockets have accepted, of which others must not make so many
 * that the program lacks descriptors. ZeroMQ has no limit: it accepts every connection and tells
 * its monitor afterwards. Here they are counted; those that are too many are shut down, and as long
 * as there are as many as may be, the listening sockets of tcp drop the packets that ask for more.
 * Belongs to the server's thread. */
#ifndef GPUFI_SERVER_PEERS_H
#define GPUFI_SERVER_PEERS_H

#include "server/connection.h"

#include <sys/types.h>

typedef struct gpufi_subscriber gpufi_subscriber; /* subscribers.h */

typedef struct gpufi_peer {
  int fd; /* ZeroMQ's: it may be closed, and stand for another file, at any time */
  gpufi_socket socket;
  ino_t inode; /* of the connection, which tells it from the next one with its descriptor */
  uint64_t least_number;  /* those of earlier connections with its descriptor are less than its own,
                           * which is this one or more (zap.h) */
  int32_t refused_count;  /* of its messages, since one was good */
  int64_t ping_due_ns;    /* gpufi_comes_too_fast */
  uint64_t taken_nbytes;  /* of messages that gpufi_peers_note_taken has counted */
  uint64_t unread_nbytes; /* at the last look of gpufi_peers_cut_unread */
  bool has_key;           /* it has sent a good message */
  bool is_cut;            /* it was shut down; ZeroMQ may keep it all the same */
  int32_t subscription_count;   /* where ZeroMQ keeps its subscriptions */
  gpufi_subscriber *subscriber; /* where it does not; NULL = nothing was heard of it */
} gpufi_peer;

#define GPUFI_PEERS_CUT_MAX 64

typedef struct gpufi_peers {
  const gpufi_connection *connection; /* whose addresses tell which descriptors are ours */
  void *monitors[GPUFI_SOCKET_COUNT]; /* ZeroMQ sockets on which events arrive */
  int listeners[GPUFI_SOCKET_COUNT];  /* of tcp, as ZeroMQ has told; -1 = not known */
  bool is_shut;                       /* the listeners drop what asks to be connected */
  bool has_refused;                   /* and gpufi_peers_update has not told it yet */
  gpufi_peer *list;
  int32_t count, max;
  uint64_t next_number; /* of a connection; they begin with 1 */
  /* The last connections of which no further message is looked at; 0 = none. */
  uint64_t cut_numbers[GPUFI_PEERS_CUT_MAX];
  uint32_t cut_next; /* it may wrap round */
  /* Called for the subscriber of a connection that has ended. */
  void (*forget_subscriber)(void *forget_arg, gpufi_subscriber *subscriber);
  void *forget_arg;
  int empty_fd; /* of no use but to be copied */
  int spare_fd; /* a copy of it, but while a connection is shut down */
  int32_t unread_interval_ms;
  int64_t unread_due_ns; /* when gpufi_peers_cut_unread looks again */
  int64_t swept_ns;      /* when the list was last compared with the descriptors */
} gpufi_peers;

/* How many connections a server takes if the options do not say: a quarter of RLIMIT_NOFILE. */
int32_t gpufi_peers_default_max(void);

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
/* A message was taken from ZeroMQ, for which `nbytes` have come over the connection. */
void gpufi_peers_note_taken(gpufi_peers *peers, int fd, uint64_t number, size_t nbytes);
/* Shut down those connections that have sent no good message and of which the most bytes wait in
 * ZeroMQ's memory, parts of messages without an end among them, until those of all others are few
 * enough. Looks again only some time after it last did. False if there were such connections. */
bool gpufi_peers_cut_unread(gpufi_peers *peers);
/* After how many milliseconds gpufi_peers_cut_unread is to be called next; -1 = no matter. */
long gpufi_peers_look_ms(const gpufi_peers *peers);
/* Whether a client sends, now, more than 64 of something at once and 32 a second. *due_ns, of 0 at
 * first, is when all so far would have come, one in each interval. */
bool gpufi_comes_too_fast(int64_t *due_ns);

/* Shut down the connection with this descriptor, if it is one of the socket's. */
void gpufi_peers_cut(gpufi_peers *peers, gpufi_socket socket, int fd);
/* Shut down the connections of a socket whose clients leave unread what was sent to them. */
void gpufi_peers_cut_stalled(gpufi_peers *peers, gpufi_socket socket);

#endif
