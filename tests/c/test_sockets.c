/* The server's sockets, as its own thread uses them. */
#include "server/sockets.h"

#include <stdatomic.h>
#include <string.h>

#include "test.h"

#define PAYLOAD_COUNT 64
#define PAYLOAD_NBYTES ((size_t)2 << 20)

static gpuf_error err;

static void count_release(void *data, void *arg) {
  (void)data;
  atomic_fetch_add((atomic_int *)arg, 1);
}

/* A subscriber that has subscribed and reads nothing from then on. */
static void *subscribe(void *context, void *iopub, const gpufi_connection *connection) {
  char url[PATH_MAX + 64], event[16];
  const int one = 1;
  void *subscriber = zmq_socket(context, ZMQ_SUB);
  CHECK(zmq_setsockopt(subscriber, ZMQ_RCVHWM, &one, sizeof(one)) == 0);
  CHECK(zmq_setsockopt(subscriber, ZMQ_SUBSCRIBE, "", 0) == 0);
  gpufi_connection_url(connection, GPUFI_IOPUB, url);
  CHECK(zmq_connect(subscriber, url) == 0);
  CHECK(TEMP_FAILURE_RETRY(zmq_recv(iopub, event, sizeof(event), 0)) == 1);
  return subscriber;
}

static void send_payload(gpufi_sockets *sockets, gpufi_session *session, void *data,
                         atomic_int *released_count) {
  gpufi_packed packed;
  gpufi_payload payload = {data, PAYLOAD_NBYTES, count_release, released_count};
  const gpufi_frame topic = {"comm-1", strlen("comm-1")};
  CHECK_OK(gpufi_message_pack(session, "comm_msg", NULL, strdup("{}"), &packed, &err));
  gpufi_sockets_send(sockets->sockets[GPUFI_IOPUB], &topic, 1, &packed, &payload, 1);
}

/* Once the sockets are closed, the server frees what the payloads lie in. */
static void closed_sockets_hold_no_payload(void) {
  static char data[PAYLOAD_NBYTES];
  gpufi_connection connection = {.ip = "127.0.0.1"};
  gpufi_sockets sockets;
  gpufi_session *session;
  atomic_int released_count = 0;
  CHECK_OK(gpufi_session_create("key", &session, &err));
  CHECK_OK(gpufi_sockets_open(&sockets, &connection, 16, &err));
  void *context = zmq_ctx_new();
  void *subscriber = subscribe(context, sockets.sockets[GPUFI_IOPUB], &connection);
  for (int i = 0; i < PAYLOAD_COUNT; i++) {
    send_payload(&sockets, session, data, &released_count);
  }
  CHECK(atomic_load(&released_count) < PAYLOAD_COUNT); /* the subscriber holds the others up */
  gpufi_sockets_close(&sockets);
  CHECK(atomic_load(&released_count) == PAYLOAD_COUNT);
  zmq_close(subscriber);
  CHECK(TEMP_FAILURE_RETRY(zmq_ctx_term(context)) == 0);
  gpufi_session_destroy(session);
}

int main(void) {
  TEST(closed_sockets_hold_no_payload);
  return test_finish();
}
