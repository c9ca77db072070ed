#include "server/inbound.h"

#include "base/clock.h"
#include "server/pace.h"

#include <string.h>

#define REPLACED_MAX_NS INT64_C(1000000000)
#define PING_MAX_NBYTES 1024 /* all of its frames, which wait to be sent back */

/* A client that connects anew takes the place of its earlier connection, which may not have been
 * seen to end. One without an identity gets one that no client can choose. */
static void set_ready(gpufi_links *links, gpufi_link *link, const gpufi_zmtp_event *event) {
  if (event->nbytes > 0 && link->socket != GPUFI_IOPUB) {
    gpufi_link *earlier =
        gpufi_links_find(links, link->socket, (gpufi_frame){event->data, event->nbytes});
    if (earlier) {
      gpufi_links_replace(links, earlier, gpufi_clock_ns() + REPLACED_MAX_NS);
    }
    link->identity_nbytes = event->nbytes;
    memcpy(link->identity, event->data, event->nbytes);
  } else {
    const uint32_t number = links->next_identity++;
    link->identity[0] = 0;
    memcpy(link->identity + 1, &number, sizeof(number));
    link->identity_nbytes = 1 + sizeof(number);
  }
  link->is_ready = true;
  links->unready_count--;
}

static void send_ready(gpufi_links *links, gpufi_link *link) {
  uint8_t ready[GPUFI_ZMTP_READY_MAX_NBYTES];
  gpufi_links_send_packet(links, link,
                          gpufi_packet_of_bytes(ready, gpufi_zmtp_ready(ready, link->reader.role)));
}

static void send_pong(gpufi_links *links, gpufi_link *link, const gpufi_zmtp_event *ping) {
  uint8_t pong[GPUFI_ZMTP_PONG_MAX_NBYTES];
  gpufi_links_send_packet(links, link, gpufi_packet_of_bytes(pong, gpufi_zmtp_pong(pong, ping)));
}

/* A message has come whole. Why the connection cannot go on; else NULL. */
static const char *deliver(gpufi_links *links, gpufi_link *link, const gpufi_events *events) {
  gpufi_frame frames[GPUFI_INBOX_FRAMES_MAX];
  const gpufi_frame identity = {link->identity, link->identity_nbytes};
  const size_t count = gpufi_inbox_frames(&link->inbox, identity, frames);
  if (link->socket == GPUFI_HEARTBEAT) {
    if (link->inbox.nbytes > PING_MAX_NBYTES || gpufi_pace_is_too_fast(&link->frame_due_ns)) {
      return "a connection to the heartbeat was closed: it sends too much";
    }
    if (count <= GPUFI_WIRE_FRAMES_MAX) { /* to a client this looks like a REP socket */
      gpufi_links_send(links, link->socket, frames, count, NULL, 0);
    }
    return NULL;
  }
  if (events->request(events->arg, link->socket, frames, count)) {
    link->has_key = true;
    link->refused_count = 0;
  } else if (++link->refused_count == GPUFI_REFUSED_MAX) {
    return GPUFI_LOG_REFUSED;
  }
  return NULL;
}

static const char *add_frame(gpufi_links *links, gpufi_link *link, const gpufi_zmtp_event *event,
                             const gpufi_events *events) {
  if (!gpufi_inbox_add(&link->inbox, event->data, event->nbytes)) {
    return "a connection was closed: its message has no end, or there is no memory for it";
  }
  if (event->more) {
    return NULL;
  }
  const char *problem = deliver(links, link, events);
  gpufi_inbox_clear(&link->inbox);
  return problem;
}

static const char *subscribe(gpufi_links *links, gpufi_link *link, const gpufi_zmtp_event *event,
                             const gpufi_events *events) {
  const char *problem = gpufi_topics_add(&link->topics, event->data, event->nbytes);
  if (!problem) {
    links->receiver = link;
    events->subscribed(events->arg, (const char *)event->data, event->nbytes);
    links->receiver = NULL;
  }
  return problem;
}

/* Why the connection cannot go on; else NULL. Frames of requests cost what they bring, and nothing
 * besides. */
static const char *handle(gpufi_links *links, gpufi_link *link, const gpufi_zmtp_event *event,
                          const gpufi_events *events) {
  const bool is_paced = event->kind != GPUFI_ZMTP_FRAME && event->kind != GPUFI_ZMTP_NOTHING;
  if (is_paced && gpufi_pace_is_too_fast(&link->frame_due_ns)) {
    return link->socket == GPUFI_IOPUB ? "a subscriber was disconnected: it sends too much"
                                       : "a connection was closed: it sends too many commands";
  }
  switch (event->kind) {
  case GPUFI_ZMTP_GREETING:
    send_ready(links, link);
    break;
  case GPUFI_ZMTP_READY:
    set_ready(links, link, event);
    break;
  case GPUFI_ZMTP_SUBSCRIBE:
    return subscribe(links, link, event, events);
  case GPUFI_ZMTP_CANCEL:
    gpufi_topics_remove(&link->topics, event->data, event->nbytes);
    break;
  case GPUFI_ZMTP_PING:
    send_pong(links, link, event);
    break;
  case GPUFI_ZMTP_FRAME:
    return add_frame(links, link, event, events);
  case GPUFI_ZMTP_OTHER:
  case GPUFI_ZMTP_NOTHING:
    break;
  }
  return NULL;
}

const char *gpufi_inbound_take(gpufi_links *links, gpufi_link *link, const uint8_t *data,
                               size_t nbytes, const gpufi_events *events) {
  gpufi_zmtp_event event;
  const char *problem = NULL;
  do {
    if (!gpufi_zmtp_read(&link->reader, &data, &nbytes, &event)) {
      return link->socket == GPUFI_IOPUB
                 ? "a connection to iopub was closed: it is no subscriber's (of ZMTP 3, without "
                   "encryption), or a message is too large"
                 : "a connection was closed: it is no client's (of ZMTP 3, without encryption), or "
                   "a message is too large";
    }
    problem = handle(links, link, &event, events);
  } while (!problem && event.kind != GPUFI_ZMTP_NOTHING && link->fd >= 0);
  return problem;
}
