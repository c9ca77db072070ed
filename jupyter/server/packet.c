#include "server/packet.h"

#include "server/zmtp.h"

#include <stdlib.h>
#include <string.h>

gpufi_packet *gpufi_packet_of_bytes(const void *bytes, size_t nbytes) {
  gpufi_packet *made = malloc(sizeof(*made) + nbytes);
  if (made) {
    *made = (gpufi_packet){.holder_count = 1, .part_count = 1};
    memcpy(made->bytes, bytes, nbytes);
    made->parts[0] = (struct iovec){made->bytes, nbytes};
  }
  return made;
}

static size_t put_frame(uint8_t *to, gpufi_frame frame, bool more) {
  const size_t header_nbytes = gpufi_zmtp_header(to, frame.nbytes, more);
  if (frame.nbytes > 0) {
    memcpy(to + header_nbytes, frame.data, frame.nbytes);
  }
  return header_nbytes + frame.nbytes;
}

static void put_frames(gpufi_packet *made, const gpufi_frame *frames, size_t count) {
  uint8_t *at = made->bytes;
  for (size_t i = 0; i < count; i++) {
    at += put_frame(at, frames[i], i + 1 < count || made->payload_count > 0);
  }
  for (size_t i = 0; i < made->payload_count; i++) {
    const gpufi_payload *payload = &made->payloads[i];
    uint8_t *const header = i == 0 ? made->bytes : at;
    at += gpufi_zmtp_header(at, payload->nbytes, i + 1 < made->payload_count);
    made->parts[made->part_count++] = (struct iovec){header, (size_t)(at - header)};
    made->parts[made->part_count++] = (struct iovec){payload->data, payload->nbytes};
  }
  if (made->payload_count == 0) {
    made->parts[made->part_count++] = (struct iovec){made->bytes, (size_t)(at - made->bytes)};
  }
}

static void release_all(const gpufi_payload *payloads, size_t count) {
  for (size_t i = 0; i < count; i++) {
    payloads[i].release(payloads[i].data, payloads[i].arg);
  }
}

gpufi_packet *gpufi_packet_of_message(const gpufi_frame *frames, size_t count,
                                      const gpufi_payload *payloads, size_t payload_count) {
  size_t nbytes_max = payload_count * GPUFI_ZMTP_HEADER_MAX_NBYTES;
  for (size_t i = 0; i < count; i++) {
    nbytes_max += GPUFI_ZMTP_HEADER_MAX_NBYTES + frames[i].nbytes;
  }
  gpufi_packet *made = malloc(sizeof(*made) + nbytes_max);
  if (!made) {
    release_all(payloads, payload_count);
    return NULL;
  }
  *made = (gpufi_packet){.holder_count = 1, .payload_count = payload_count};
  if (payload_count > 0) {
    memcpy(made->payloads, payloads, payload_count * sizeof(*payloads));
  }
  put_frames(made, frames, count);
  return made;
}

void gpufi_packet_let_go(gpufi_packet *packet) {
  if (packet && --packet->holder_count == 0) {
    release_all(packet->payloads, packet->payload_count);
    free(packet);
  }
}

int gpufi_packet_left(const gpufi_packet *packet, size_t sent_nbytes, struct iovec *left,
                      int count) {
  int filled = 0;
  for (int i = 0; i < packet->part_count && filled < count; i++) {
    const struct iovec part = packet->parts[i];
    if (sent_nbytes < part.iov_len) {
      left[filled++] =
          (struct iovec){(uint8_t *)part.iov_base + sent_nbytes, part.iov_len - sent_nbytes};
      sent_nbytes = 0;
    } else {
      sent_nbytes -= part.iov_len;
    }
  }
  return filled;
}

size_t gpufi_packet_nbytes(const gpufi_packet *packet) {
  size_t nbytes = 0;
  for (int i = 0; i < packet->part_count; i++) {
    nbytes += packet->parts[i].iov_len;
  }
  return nbytes;
}
