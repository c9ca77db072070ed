/* Any bytes into the parser of Jupyter messages: as frames, and with the signature made right, so
 * that the JSON behind it is reached. What is accepted must pass once only, within the limits. */
#include "server/wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static void check_message(gpufi_session *session, const gpufi_frame *frames, size_t count) {
  gpufi_message message, again;
  gpufi_packed packed;
  gpuf_error err;
  if (gpufi_message_parse(session, frames, count, &message, &err) != GPUF_OK) {
    return;
  }
  if (!message.id || !message.type || !message.session ||
      message.identity_count + message.buffer_count + 6 != count ||
      strlen(message.type) > GPUFI_WIRE_ID_MAX_NBYTES) {
    abort();
  }
  if (gpufi_message_parse(session, frames, count, &again, &err) == GPUF_OK) {
    abort();
  }
  if (gpufi_message_pack(session, "test", message.header, json_dumps(message.content, JSON_COMPACT),
                         &packed, &err) == GPUF_OK) {
    gpufi_packed_fini(&packed);
  }
  gpufi_message_fini(&message);
}

/* Frames that are cut at each 0xFF byte, which no UTF-8 text has. */
static size_t cut(const uint8_t *data, size_t nbytes, gpufi_frame *frames, size_t count_max) {
  size_t count = 0, start = 0;
  for (size_t i = 0; i <= nbytes && count < count_max; i++) {
    if (i == nbytes || data[i] == 0xFF) {
      frames[count++] = (gpufi_frame){data + start, i - start};
      start = i + 1;
    }
  }
  return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes) {
  static gpufi_session *session;
  gpufi_frame frames[GPUFI_WIRE_FRAMES_MAX + 2];
  char signature[GPUFI_WIRE_SIGNATURE_NBYTES];
  if (!session && gpufi_session_create("a key", &session, NULL) != GPUF_OK) {
    abort();
  }
  const size_t count = cut(data, nbytes, frames, GPUFI_WIRE_FRAMES_MAX + 2);
  check_message(session, frames, count);
  for (size_t i = 0; i + 6 <= count; i++) {
    if (frames[i].nbytes == strlen(GPUFI_WIRE_DELIMITER) &&
        memcmp(frames[i].data, GPUFI_WIRE_DELIMITER, frames[i].nbytes) == 0) {
      if (gpufi_session_sign(session, &frames[i + 2], signature, NULL) != GPUF_OK) {
        abort();
      }
      frames[i + 1] = (gpufi_frame){signature, sizeof(signature) - 1};
      check_message(session, frames, count);
      break;
    }
  }
  return 0;
}
