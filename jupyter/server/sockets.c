#include "server/sockets.h"

#include "base/thread.h"

#include <string.h>

gpuf_status gpufi_sockets_open(gpufi_sockets *sockets, gpufi_connection *connection,
                               int32_t peers_max, gpuf_error *err) {
  sigset_t signals;
  memset(sockets, 0, sizeof(*sockets));
  sockets->is_open = true;
  sockets->has_curve = connection->curve_secretkey[0];
  gpufi_forked_watch(&sockets->forked, connection);
  gpufi_signals_block(&signals);
  const gpuf_status status = sockets->has_curve
                                 ? gpufi_curve_open(&sockets->curve, connection, peers_max, err)
                                 : gpufi_plain_open(&sockets->plain, connection, peers_max, err);
  pthread_sigmask(SIG_SETMASK, &signals, NULL);
  if (status != GPUF_OK) {
    gpufi_sockets_close(sockets);
  }
  return status;
}

void gpufi_sockets_close(gpufi_sockets *sockets) {
  sigset_t signals;
  if (!sockets->is_open) {
    return;
  }
  gpufi_signals_block(&signals);
  if (sockets->has_curve) {
    gpufi_curve_close(&sockets->curve);
  } else {
    gpufi_plain_close(&sockets->plain);
  }
  pthread_sigmask(SIG_SETMASK, &signals, NULL);
  gpufi_forked_unwatch(&sockets->forked);
  memset(sockets, 0, sizeof(*sockets));
}

/* The sooner of two times in milliseconds, of which each may be -1. */
static int sooner(int one_ms, int other_ms) {
  return one_ms < 0 || (other_ms >= 0 && other_ms < one_ms) ? other_ms : one_ms;
}

static bool serve_plain(gpufi_sockets *sockets, int wake_fd, int timeout_ms,
                        const gpufi_events *events) {
  zmq_pollitem_t items[] = {{NULL, sockets->plain.links.epoll_fd, ZMQ_POLLIN, 0},
                            {NULL, wake_fd, ZMQ_POLLIN, 0}};
  if (zmq_poll(items, 2, sooner(timeout_ms, gpufi_plain_wait_ms(&sockets->plain))) < 0) {
    return false;
  }
  gpufi_plain_serve(&sockets->plain, events);
  return items[1].revents;
}

static bool serve_curve(gpufi_sockets *sockets, int wake_fd, int timeout_ms,
                        const gpufi_events *events) {
  zmq_pollitem_t items[GPUFI_CURVE_ITEM_COUNT + 1];
  gpufi_curve_items(&sockets->curve, items);
  items[GPUFI_CURVE_ITEM_COUNT] = (zmq_pollitem_t){NULL, wake_fd, ZMQ_POLLIN, 0};
  if (zmq_poll(items, GPUFI_CURVE_ITEM_COUNT + 1, timeout_ms) < 0) {
    return false;
  }
  gpufi_curve_serve(&sockets->curve, items, events);
  return items[GPUFI_CURVE_ITEM_COUNT].revents;
}

bool gpufi_sockets_serve(gpufi_sockets *sockets, int wake_fd, int timeout_ms,
                         const gpufi_events *events) {
  return sockets->has_curve ? serve_curve(sockets, wake_fd, timeout_ms, events)
                            : serve_plain(sockets, wake_fd, timeout_ms, events);
}

void gpufi_sockets_send(gpufi_sockets *sockets, gpufi_socket which, const gpufi_frame *identities,
                        size_t identity_count, gpufi_packed *packed, const gpufi_payload *payloads,
                        size_t payload_count) {
  gpufi_frame frames[GPUFI_WIRE_FRAMES_MAX + 6];
  size_t count = 0;
  while (count < identity_count) {
    frames[count] = identities[count];
    count++;
  }
  frames[count++] = (gpufi_frame){GPUFI_WIRE_DELIMITER, strlen(GPUFI_WIRE_DELIMITER)};
  frames[count++] = (gpufi_frame){packed->signature, sizeof(packed->signature) - 1};
  for (int i = 0; i < 4; i++) {
    frames[count++] = packed->sections[i];
  }
  if (sockets->has_curve) {
    gpufi_curve_send(&sockets->curve, which, frames, count, payloads, payload_count);
  } else if (which == GPUFI_IOPUB) {
    gpufi_links_publish(&sockets->plain.links, frames, count, payloads, payload_count);
  } else {
    gpufi_links_send(&sockets->plain.links, which, frames, count, payloads, payload_count);
  }
  gpufi_packed_fini(packed);
}

bool gpufi_sockets_cut_stalled(gpufi_sockets *sockets, gpufi_socket which, int64_t late_ns,
                               int64_t released_ns) {
  if (!sockets->has_curve) {
    return gpufi_links_cut_stalled(&sockets->plain.links, which, late_ns);
  }
  const bool is_late = released_ns < late_ns;
  if (is_late) {
    gpufi_curve_cut_stalled(&sockets->curve, which);
  }
  return is_late;
}
