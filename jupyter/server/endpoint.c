#include "server/endpoint.h"

#include "comm/json.h"

#include <stdio.h>
#include <string.h>

gpuf_status gpufi_endpoint_open(gpufi_endpoint *endpoint, gpufi_connection *connection,
                                int32_t peers_max, gpuf_error *err) {
  const gpuf_status status = gpufi_session_create(connection->key, &endpoint->session, err);
  return status == GPUF_OK ? gpufi_sockets_open(&endpoint->sockets, connection, peers_max, err)
                           : status;
}

void gpufi_endpoint_close(gpufi_endpoint *endpoint) {
  gpufi_sockets_close(&endpoint->sockets);
  gpufi_session_destroy(endpoint->session);
  endpoint->session = NULL;
}

void gpufi_endpoint_log(gpufi_endpoint *endpoint, const char *line) {
  for (int i = 0; i < endpoint->logged_count; i++) {
    if (strncmp(endpoint->logged[i], line, sizeof(endpoint->logged[i]) - 1) == 0) {
      return;
    }
  }
  if (endpoint->log && endpoint->logged_count < GPUFI_LOGGED_MAX) {
    char *kept = endpoint->logged[endpoint->logged_count++];
    snprintf(kept, sizeof(endpoint->logged[0]), "%.*s", (int)sizeof(endpoint->logged[0]) - 1, line);
    endpoint->log(endpoint->log_arg, line);
  }
}

static void send_json(gpufi_endpoint *endpoint, gpufi_socket socket, const gpufi_frame *identities,
                      size_t identity_count, const char *type, json_t *parent, json_t *content) {
  gpufi_packed packed;
  gpuf_error err;
  char *text = gpufi_json_dump(content, JSON_COMPACT);
  if (gpufi_message_pack(endpoint->session, type, parent, text, &packed, &err) == GPUF_OK) {
    gpufi_sockets_send(&endpoint->sockets, socket, identities, identity_count, &packed, NULL, 0);
  } else {
    gpufi_endpoint_log(endpoint, err.message);
  }
  json_decref(content);
}

void gpufi_endpoint_reply(gpufi_endpoint *endpoint, gpufi_socket socket,
                          const gpufi_message *message, const char *type, json_t *content) {
  send_json(endpoint, socket, message->identities, message->identity_count, type, message->header,
            content);
}

void gpufi_endpoint_publish(gpufi_endpoint *endpoint, const char *topic, const char *type,
                            json_t *parent, json_t *content) {
  const gpufi_frame frame = {topic, strlen(topic)};
  send_json(endpoint, GPUFI_IOPUB, &frame, frame.nbytes > 0, type, parent, content);
}

void gpufi_endpoint_status(gpufi_endpoint *endpoint, json_t *parent, const char *state) {
  char topic[64];
  snprintf(topic, sizeof(topic), "kernel.%s.status", gpufi_session_id(endpoint->session));
  gpufi_endpoint_publish(endpoint, topic, "status", parent,
                         json_pack("{ss}", "execution_state", state));
}
