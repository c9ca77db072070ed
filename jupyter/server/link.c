#include "server/link.h"

#include "base/clock.h"
#include "server/limits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PARTS_AT_ONCE 16
#define AT_ONCE_NBYTES ((size_t)4 << 20)
#define FRAMES_MOST 1024      /* a message with more does not end */
#define KEPT_MAX_NBYTES 65536 /* of the memory for a message, until the next one comes */

gpufi_link *gpufi_link_make(int fd, gpufi_socket socket) {
  gpufi_link *made = calloc(1, sizeof(*made));
  if (!made) {
    close(fd);
    return NULL;
  }
  made->fd = fd;
  made->socket = socket;
  made->reader.role = socket == GPUFI_IOPUB ? GPUFI_ZMTP_PUBLISHER : GPUFI_ZMTP_ROUTER;
  made->reader.frame_max_nbytes = GPUFI_WIRE_FRAME_MAX_NBYTES;
  return made;
}

static void drop_first(gpufi_link *link) {
  gpufi_waiting *first = link->first;
  link->first = first->next;
  link->last = link->first ? link->last : NULL;
  link->waiting_count--;
  link->sent_nbytes = 0;
  gpufi_packet_let_go(first->packet);
  free(first);
}

static void drop_all(gpufi_link *link) {
  while (link->first) {
    drop_first(link);
  }
}

void gpufi_link_end(gpufi_link *link) {
  if (link->fd < 0) {
    return;
  }
  shutdown(link->fd, SHUT_RDWR); /* a forked child may hold it */
  close(link->fd);
  link->fd = -1;
  drop_all(link);
}

void gpufi_link_free(gpufi_link *link) {
  gpufi_link_end(link);
  gpufi_zmtp_reader_fini(&link->reader);
  gpufi_topics_fini(&link->topics);
  free(link->inbox.bytes);
  free(link);
}

/* --- Sending ------------------------------------------------------------------- */

bool gpufi_link_put(gpufi_link *link, gpufi_packet *packet) {
  const int most =
      link->socket == GPUFI_IOPUB ? GPUFI_SUBSCRIBER_QUEUE_COUNT : GPUFI_CLIENT_QUEUE_COUNT;
  const bool fits = !link->is_deaf && link->waiting_count < most;
  gpufi_waiting *made = fits ? malloc(sizeof(*made)) : NULL;
  if (!made) {
    return false;
  }
  *made = (gpufi_waiting){NULL, packet, gpufi_clock_ns()};
  packet->holder_count++;
  if (link->last) {
    link->last->next = made;
  } else {
    link->first = made;
  }
  link->last = made;
  link->waiting_count++;
  return true;
}

static void note_sent(gpufi_link *link, size_t nbytes) {
  link->sent_nbytes += nbytes;
  while (link->first && link->sent_nbytes >= gpufi_packet_nbytes(link->first->packet)) {
    const size_t beyond = link->sent_nbytes - gpufi_packet_nbytes(link->first->packet);
    drop_first(link);
    link->sent_nbytes = beyond;
  }
}

/* Only so much at once: a client that reads as fast as this sends does not hold up the others. */
void gpufi_link_flush(gpufi_link *link) {
  size_t done_nbytes = 0;
  while (link->first && done_nbytes < AT_ONCE_NBYTES) {
    struct iovec parts[PARTS_AT_ONCE];
    struct msghdr message = {.msg_iov = parts};
    size_t sent_nbytes = link->sent_nbytes;
    for (const gpufi_waiting *at = link->first; at && message.msg_iovlen < PARTS_AT_ONCE;
         at = at->next) {
      const int filled = (int)message.msg_iovlen;
      message.msg_iovlen += (size_t)gpufi_packet_left(at->packet, sent_nbytes, parts + filled,
                                                      PARTS_AT_ONCE - filled);
      sent_nbytes = 0;
    }
    const ssize_t nbytes = sendmsg(link->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (nbytes < 0 && errno != EINTR) {
      if (errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM) {
        link->is_deaf = true;
        drop_all(link);
      }
      return;
    }
    if (nbytes > 0) {
      note_sent(link, (size_t)nbytes);
      done_nbytes += (size_t)nbytes;
    }
  }
}

/* --- Receiving ----------------------------------------------------------------- */

static bool reserve(gpufi_inbox *inbox, size_t nbytes) {
  size_t capacity = inbox->capacity ? inbox->capacity : 1024;
  while (capacity < nbytes) {
    capacity *= 2;
  }
  if (capacity == inbox->capacity) {
    return true;
  }
  uint8_t *grown = realloc(inbox->bytes, capacity);
  if (grown) {
    inbox->bytes = grown;
    inbox->capacity = capacity;
  }
  return grown != NULL;
}

bool gpufi_inbox_add(gpufi_inbox *inbox, const uint8_t *data, size_t nbytes) {
  if (inbox->count < GPUFI_INBOX_FRAMES_MAX) {
    if (!reserve(inbox, inbox->nbytes + nbytes)) {
      return false;
    }
    if (nbytes > 0) {
      memcpy(inbox->bytes + inbox->nbytes, data, nbytes);
    }
    inbox->nbytes += nbytes;
    inbox->ends[inbox->count] = inbox->nbytes;
  }
  return ++inbox->count <= FRAMES_MOST;
}

size_t gpufi_inbox_frames(const gpufi_inbox *inbox, gpufi_frame identity,
                          gpufi_frame frames[GPUFI_INBOX_FRAMES_MAX]) {
  size_t count = 0, start = 0;
  frames[count++] = identity;
  for (size_t i = 0; i < inbox->count && count < GPUFI_INBOX_FRAMES_MAX; i++) {
    frames[count++] = (gpufi_frame){inbox->bytes + start, inbox->ends[i] - start};
    start = inbox->ends[i];
  }
  return count;
}

void gpufi_inbox_clear(gpufi_inbox *inbox) {
  if (inbox->capacity > KEPT_MAX_NBYTES) {
    free(inbox->bytes);
    inbox->bytes = NULL;
    inbox->capacity = 0;
  }
  inbox->nbytes = inbox->count = 0;
}

size_t gpufi_link_held_nbytes(const gpufi_link *link) {
  return link->reader.capacity + link->inbox.capacity;
}
