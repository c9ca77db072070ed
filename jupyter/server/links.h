/* The links of a server (link.h). Belongs to the server's thread. */
#ifndef GPUFI_SERVER_LINKS_H
#define GPUFI_SERVER_LINKS_H

#include "server/link.h"

typedef struct gpufi_links {
  int epoll_fd; /* watches all: what it tells of is the link; others may watch more by it */
  gpufi_link **list;
  int32_t count, max;
  int32_t unready_count;  /* of those that have not made the handshake */
  int32_t ended_count;    /* of those that are to be freed */
  size_t held_nbytes;     /* gpufi_link_held_nbytes of all */
  uint32_t next_identity; /* of a client that names none; it may wrap round */
  const gpufi_link
      *receiver; /* while a subscription is told of: who alone gets what is published */
} gpufi_links;

/* For at most `max`. After a failure as after success, *links is to be released. */
gpuf_status gpufi_links_init(gpufi_links *links, int32_t max, gpuf_error *err);
/* Close all connections. */
void gpufi_links_fini(gpufi_links *links);

/* Take over a connection to a socket, and greet the client. There are fewer than `max`. */
void gpufi_links_add(gpufi_links *links, gpufi_socket which, int fd, int64_t ready_until_ns);
/* Another connection takes the place of this one, to whose client nothing is sent on it any more.
 * It ends at that time, so that what has come on it before can be read. */
void gpufi_links_replace(gpufi_links *links, gpufi_link *link, int64_t until_ns);
/* Close a connection. The link is freed later. */
void gpufi_links_end(gpufi_links *links, gpufi_link *link);
/* Not while a link is in use: a message of its own may have ended it. */
void gpufi_links_free_ended(gpufi_links *links);
/* The link of the client with this identity; NULL if there is none. */
gpufi_link *gpufi_links_find(const gpufi_links *links, gpufi_socket which, gpufi_frame identity);

/* Send to one; takes over the caller's hold of `packet`, which may be NULL. False if it was not
 * sent, nor will be. */
bool gpufi_links_send_packet(gpufi_links *links, gpufi_link *link, gpufi_packet *packet);
/* Send more of what waits for one. */
void gpufi_links_flush(gpufi_links *links, gpufi_link *link);
/* Send a message, whose first frame is the identity of a client, and release the payloads when they
 * are not needed any more. It is dropped where the client is gone, or has as many messages waiting
 * as may. */
void gpufi_links_send(gpufi_links *links, gpufi_socket which, const gpufi_frame *frames,
                      size_t count, const gpufi_payload *payloads, size_t payload_count);
/* The same, to those who have subscribed to the beginning of its first frame. */
void gpufi_links_publish(gpufi_links *links, const gpufi_frame *frames, size_t count,
                         const gpufi_payload *payloads, size_t payload_count);

/* Close the connections to a socket for which something has waited since before `late_ns`, of
 * CLOCK_MONOTONIC. Whether there were any. */
bool gpufi_links_cut_stalled(gpufi_links *links, gpufi_socket which, int64_t late_ns);

#endif
