/* The server's sockets where there is no CurveZMQ, over ipc or plain tcp: they listen, and their
 * connections are links (link.h), of which there are no more than may be. Belongs to the server's
 * thread. */
#ifndef GPUFI_SERVER_PLAIN_H
#define GPUFI_SERVER_PLAIN_H

#include "server/events.h"
#include "server/links.h"

typedef struct gpufi_plain {
  int listeners[GPUFI_SOCKET_COUNT]; /* -1 = not open */
  int spare_fd; /* given up for a moment, to close a connection that there is no descriptor for */
  bool is_tcp;
  gpufi_links links;      /* whose epoll watches the listeners, too */
  int64_t look_next_ns;   /* when it is to be seen whether handshakes are late */
  int64_t accept_next_ns; /* when the listeners are looked at again; 0 = they are */
  uint8_t *buffer;        /* for what is read at once */
} gpufi_plain;

/* Listen at the connection's addresses, and fill in its ports, for at most `max` connections. After
 * a failure as after success, *plain is to be closed. */
gpuf_status gpufi_plain_open(gpufi_plain *plain, gpufi_connection *connection, int32_t max,
                             gpuf_error *err);
/* Stop listening, send for a second what waits to be sent, and close all connections. */
void gpufi_plain_close(gpufi_plain *plain);

/* Do what there is to do, without waiting. To be called whenever the epoll of the links is
 * readable, and when the time of gpufi_plain_wait_ms is over. While `events->subscribed` is called,
 * what is published reaches the new subscriber alone. */
void gpufi_plain_serve(gpufi_plain *plain, const gpufi_events *events);
/* After how many milliseconds gpufi_plain_serve is due; -1 = no matter. */
int gpufi_plain_wait_ms(const gpufi_plain *plain);

#endif
