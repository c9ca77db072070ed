#include "share/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Space for the one descriptor that a packet carries; the system aligns it, so that two fit. */
typedef union control_data {
  struct cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
} control_data;

uint32_t gpufi_share_address(const uint8_t *service, struct sockaddr_un *address) {
  static const char name[] = "gpufetch-share-";
  memset(address, 0, sizeof(*address));
  address->sun_family = AF_UNIX;
  char *text = address->sun_path + 1; /* after a NUL: an abstract address */
  text += sprintf(text, "%s", name);
  for (int i = 0; i < GPUFI_SHARE_ID_NBYTES; i++) {
    text += sprintf(text, "%02x", service[i]);
  }
  return (uint32_t)(text - (char *)address);
}

bool gpufi_share_send_reply(int fd, gpufi_share_answer answer, uint64_t reference, int descriptor) {
  gpufi_share_reply reply = {GPUFI_SHARE_WIRE_MAGIC, GPUFI_SHARE_WIRE_VERSION, (uint16_t)answer,
                             reference};
  control_data control = {0};
  struct iovec content = {&reply, sizeof(reply)};
  struct msghdr message = {.msg_iov = &content, .msg_iovlen = 1};
  if (descriptor >= 0) {
    message.msg_control = &control;
    message.msg_controllen = sizeof(control);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  ssize_t sent;
  do {
    sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == (ssize_t)sizeof(reply);
}

/* Take over the descriptors that came with a packet: one, or none. Returns false, with all of them
 * closed, if there are more, which no exporter sends. */
static bool take_descriptor(struct msghdr *message, int *descriptor) {
  size_t count = 0;
  for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
       header = CMSG_NXTHDR(message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= header->cmsg_len; at += sizeof(int)) {
      int received;
      memcpy(&received, (const char *)header + at, sizeof(received));
      if (count++ == 0) {
        *descriptor = received;
      } else {
        close(received);
      }
    }
  }
  if (count > 1) {
    close(*descriptor);
    *descriptor = -1;
  }
  return count <= 1;
}

ssize_t gpufi_share_receive_reply(int fd, gpufi_share_reply *reply, int *descriptor) {
  control_data control = {0};
  struct iovec content = {reply, sizeof(*reply)};
  struct msghdr message = {.msg_iov = &content,
                           .msg_iovlen = 1,
                           .msg_control = &control,
                           .msg_controllen = sizeof(control)};
  ssize_t nbytes;
  *descriptor = -1;
  do {
    nbytes = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (nbytes < 0 && errno == EINTR);
  if (nbytes < 0) {
    return nbytes;
  }
  const bool whole = take_descriptor(&message, descriptor) && !(message.msg_flags & MSG_TRUNC);
  if (message.msg_flags & MSG_CTRUNC && *descriptor < 0 && whole) {
    errno = EMFILE; /* the system had no number for the descriptor that came along */
    return -1;
  }
  return whole ? nbytes : 1;
}
