#include "server/links.h"

#include "base/error.h"
#include "base/system.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* --- The list ------------------------------------------------------------------ */

void gpufi_links_end(gpufi_links *links, gpufi_link *link) {
  if (link->fd < 0) {
    return;
  }
  links->unready_count -= !link->is_ready;
  links->ended_count++;
  /* A forked child may hold the connection, and so would epoll. */
  epoll_ctl(links->epoll_fd, EPOLL_CTL_DEL, link->fd, NULL);
  gpufi_link_end(link);
}

void gpufi_links_free_ended(gpufi_links *links) {
  for (int32_t i = links->count - 1; i >= 0 && links->ended_count > 0; i--) {
    gpufi_link *link = links->list[i];
    if (link->fd < 0) {
      links->held_nbytes -= gpufi_link_held_nbytes(link);
      links->ended_count--;
      links->list[i] = links->list[--links->count];
      gpufi_link_free(link);
    }
  }
}

/* Have epoll tell when there is more to read and, while something waits, when it can be sent. */
static void watch(gpufi_links *links, gpufi_link *link, int how) {
  struct epoll_event event = {.events = EPOLLIN | (link->first ? EPOLLOUT : 0), .data.ptr = link};
  if (epoll_ctl(links->epoll_fd, how, link->fd, &event) != 0) {
    gpufi_links_end(links, link);
  }
}

bool gpufi_links_send_packet(gpufi_links *links, gpufi_link *link, gpufi_packet *packet) {
  const bool is_first = !link->first;
  const bool sent = packet && link->fd >= 0 && gpufi_link_put(link, packet);
  gpufi_packet_let_go(packet);
  if (sent && is_first) {
    gpufi_link_flush(link);
    if (link->first) {
      watch(links, link, EPOLL_CTL_MOD);
    }
  }
  return sent;
}

void gpufi_links_add(gpufi_links *links, gpufi_socket which, int fd, int64_t ready_until_ns) {
  gpufi_link *link = gpufi_link_make(fd, which);
  if (!link) {
    return;
  }
  link->ready_until_ns = ready_until_ns;
  links->list[links->count++] = link;
  links->unready_count++;
  watch(links, link, EPOLL_CTL_ADD);
  if (!gpufi_links_send_packet(
          links, link, gpufi_packet_of_bytes(gpufi_zmtp_greeting, GPUFI_ZMTP_GREETING_NBYTES))) {
    gpufi_links_end(links, link);
  }
}

void gpufi_links_flush(gpufi_links *links, gpufi_link *link) {
  gpufi_link_flush(link);
  if (!link->first) {
    watch(links, link, EPOLL_CTL_MOD);
  }
}

void gpufi_links_replace(gpufi_links *links, gpufi_link *link, int64_t until_ns) {
  link->is_ready = false;
  link->ready_until_ns = until_ns;
  links->unready_count++;
}

gpuf_status gpufi_links_init(gpufi_links *links, int32_t max, gpuf_error *err) {
  *links = (gpufi_links){.epoll_fd = -1, .max = max};
  links->list = calloc((size_t)max, sizeof(gpufi_link *));
  if (!links->list) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %d connections", (int)max);
  }
  links->epoll_fd = gpufi_fd_above_stdio(epoll_create1(EPOLL_CLOEXEC));
  return links->epoll_fd >= 0 ? GPUF_OK
                              : gpufi_fail(err, GPUF_ERR_IO, errno, "epoll: %s", strerror(errno));
}

void gpufi_links_fini(gpufi_links *links) {
  for (int32_t i = 0; i < links->count; i++) {
    gpufi_links_end(links, links->list[i]);
  }
  gpufi_links_free_ended(links);
  if (links->list && links->epoll_fd >= 0) {
    close(links->epoll_fd);
  }
  free(links->list);
  memset(links, 0, sizeof(*links));
}

/* --- Sending ------------------------------------------------------------------- */

gpufi_link *gpufi_links_find(const gpufi_links *links, gpufi_socket which, gpufi_frame identity) {
  for (int32_t i = 0; i < links->count; i++) {
    gpufi_link *link = links->list[i];
    if (link->fd >= 0 && link->is_ready && link->socket == which &&
        link->identity_nbytes == identity.nbytes &&
        memcmp(link->identity, identity.data, identity.nbytes) == 0) {
      return link;
    }
  }
  return NULL;
}

void gpufi_links_send(gpufi_links *links, gpufi_socket which, const gpufi_frame *frames,
                      size_t count, const gpufi_payload *payloads, size_t payload_count) {
  gpufi_packet *packet = gpufi_packet_of_message(frames + 1, count - 1, payloads, payload_count);
  gpufi_link *link = gpufi_links_find(links, which, frames[0]);
  if (link) {
    gpufi_links_send_packet(links, link, packet);
  } else {
    gpufi_packet_let_go(packet);
  }
}

void gpufi_links_publish(gpufi_links *links, const gpufi_frame *frames, size_t count,
                         const gpufi_payload *payloads, size_t payload_count) {
  gpufi_packet *packet = gpufi_packet_of_message(frames, count, payloads, payload_count);
  for (int32_t i = 0; i < links->count && packet; i++) {
    gpufi_link *link = links->list[i];
    if (link->socket == GPUFI_IOPUB && (!links->receiver || links->receiver == link) &&
        gpufi_topics_match(&link->topics, frames[0].data, frames[0].nbytes)) {
      packet->holder_count++;
      gpufi_links_send_packet(links, link, packet);
    }
  }
  gpufi_packet_let_go(packet);
}

bool gpufi_links_cut_stalled(gpufi_links *links, gpufi_socket which, int64_t late_ns) {
  bool has_cut = false;
  for (int32_t i = 0; i < links->count; i++) {
    gpufi_link *link = links->list[i];
    if (link->socket == which && link->first && link->first->put_ns < late_ns) {
      gpufi_links_end(links, link);
      has_cut = true;
    }
  }
  return has_cut;
}
