/* Any bytes as the messages of two clients: a line each, whose first character says what it is. The
 * dispatcher must answer every message once, with JSON and buffers inside the limits, and hold
 * nothing at the end. */
#include "comm/dispatcher.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static int reply_count;

static void take_reply(void *arg, uint64_t client, uint64_t tag, gpufi_reply *reply) {
  size_t total = 0;
  reply_count++;
  json_t *json = json_loadb(reply->json, reply->json_nbytes, JSON_REJECT_DUPLICATES, NULL);
  if (!json_is_object(json) || reply->json_nbytes > GPUFI_REPLY_JSON_MAX_NBYTES) {
    abort();
  }
  for (size_t i = 0; i < reply->buffer_count; i++) {
    total += reply->buffer_nbytes[i];
  }
  const json_t *offset = json_object_get(json, "offset");
  if (total > GPUFI_REPLY_MAX_NBYTES ||
      (offset && json_integer_value(offset) + (int64_t)total >
                     json_integer_value(json_object_get(json, "nbytes")))) {
    abort();
  }
  json_decref(json);
  gpufi_reply_free(reply);
}

/* Tensors in host memory of many shapes; one is far larger than its memory. */
static void publish(gpufi_dispatcher *dispatcher) {
  static double values[6 * 5 * 4];
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  const int64_t shape[3] = {6, 5, 4}, empty[2] = {0, 3}, wide[3] = {3, 700, 1000};
  const int64_t global_shape[3] = {INT32_MAX, 5, 8}, start[3] = {INT32_MAX - 6, 0, 4};
  const gpuf_publish_options part = {.global_shape = global_shape, .start = start};
  gpuf_tensor x, e, w, p;
  gpuf_tensor_init(&x, values, cpu, GPUF_DTYPE_FLOAT64, 3, shape, NULL);
  gpuf_tensor_init(&e, values, cpu, GPUF_DTYPE_INT8, 2, empty, NULL);
  gpuf_tensor_init(&w, values, cpu, GPUF_DTYPE_UINT16, 3, wide, NULL);
  memset(w.strides_nbytes, 0, sizeof(w.strides_nbytes)); /* every element is the same one */
  gpuf_tensor_init(&p, values, cpu, GPUF_DTYPE_COMPLEX64, 0, NULL, NULL);
  if (gpufi_dispatcher_publish(dispatcher, "x", &x, &part, NULL) != GPUF_OK ||
      gpufi_dispatcher_publish(dispatcher, "e", &e, NULL, NULL) != GPUF_OK ||
      gpufi_dispatcher_publish(dispatcher, "w", &w, NULL, NULL) != GPUF_OK ||
      gpufi_dispatcher_publish(dispatcher, "p", &p, NULL, NULL) != GPUF_OK ||
      gpufi_dispatcher_publish_text(dispatcher, "text", "value", NULL) != GPUF_OK) {
    abort();
  }
}

static uint64_t open_client(gpufi_dispatcher *dispatcher, const char *text, size_t nbytes) {
  gpufi_reply *refusal;
  uint64_t client = 0;
  if (gpufi_client_open(dispatcher, text, nbytes, 0, &client, &refusal, NULL) != GPUF_OK) {
    gpufi_reply_free(refusal);
  }
  return client;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes) {
  const gpufi_dispatcher_options options = {.reply = take_reply, .client_max = 8, .step_share = 1};
  gpufi_dispatcher_counts counts;
  gpufi_dispatcher *dispatcher;
  int messages = 0, dropped = 0;
  reply_count = 0;
  if (gpufi_dispatcher_create(&options, &dispatcher, NULL) != GPUF_OK) {
    abort();
  }
  publish(dispatcher);
  uint64_t clients[2] = {open_client(dispatcher, "", 0), open_client(dispatcher, "", 0)};
  messages += 2;
  for (const uint8_t *line = data, *end = data + nbytes; line < end;) {
    const uint8_t *stop = memchr(line, '\n', (size_t)(end - line));
    const size_t length = (size_t)((stop ? stop : end) - line);
    const char *text = (const char *)line + 1;
    switch (length > 0 ? line[0] : 0) {
    case 0:
      break;
    case 'o':
      messages += open_client(dispatcher, text, length - 1) != 0;
      break;
    case 'r':
      gpufi_dispatcher_run(dispatcher);
      break;
    case 's':
      gpufi_dispatcher_step(dispatcher, (int64_t)length, 0.5);
      break;
    case 'c': /* another client in its place */
      gpufi_dispatcher_get_counts(dispatcher, &counts);
      dropped += counts.waiting_count;
      gpufi_client_close(dispatcher, clients[0]);
      gpufi_dispatcher_get_counts(dispatcher, &counts);
      dropped -= counts.waiting_count;
      clients[0] = open_client(dispatcher, "", 0);
      messages += clients[0] != 0;
      break;
    case '2':
    case '3': /* damaged around its data */
      messages += gpufi_dispatcher_refuse(dispatcher, clients[line[0] % 2], text, length - 1,
                                          "the test says so", 7);
      break;
    default:
      messages +=
          gpufi_dispatcher_message(dispatcher, clients[line[0] % 2], text, length - 1, 0, 7);
      break;
    }
    line += length + 1;
  }
  while (gpufi_dispatcher_run(dispatcher)) {
  }
  gpufi_dispatcher_get_counts(dispatcher, &counts);
  if (reply_count + dropped + counts.waiting_count != messages || counts.reply_nbytes != 0) {
    abort();
  }
  if (gpufi_dispatcher_destroy(dispatcher, 0, NULL) != GPUF_OK) {
    abort();
  }
  return 0;
}
