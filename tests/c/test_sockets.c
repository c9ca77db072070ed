/* The server's sockets, as its own thread uses them. */
#include "server/sockets.h"

#include <netinet/in.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system.h"
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

/* Connect to shell as ZeroMQ's sockets do, with a greeting and READY, and send `nbytes`. */
static int connect_by_hand(const gpufi_connection *connection, const void *bytes, size_t nbytes) {
  static const unsigned char greeting[64] = {[0] = 0xff, [9] = 0x7f, 3, 0, 'N', 'U', 'L', 'L'};
  static const char ready[] = "\4\x1c\5READY\13Socket-Type\0\0\0\6DEALER";
  const struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                      .sin_port = htons((uint16_t)connection->ports[GPUFI_SHELL])};
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
  CHECK(gpufi_write(fd, greeting, sizeof(greeting)) && gpufi_write(fd, ready, sizeof(ready) - 1));
  char answer[64 + 28]; /* the server's greeting and some of its READY */
  CHECK(gpufi_read(fd, answer, sizeof(answer)) == (int64_t)sizeof(answer));
  CHECK(gpufi_write(fd, bytes, nbytes));
  return fd;
}

/* Close a connection so that its end of it is an error at the other. */
static void reset_connection(int fd) {
  const struct linger at_once = {1, 0};
  CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0);
  close(fd);
}

static int count_messages(void *socket) {
  char frame[32];
  int count = 0;
  while (zmq_recv(socket, frame, sizeof(frame), ZMQ_DONTWAIT) >= 0) {
    count++;
  }
  return count;
}

/* ZeroMQ ends the process where it has a ping to send to, or to answer at, a connection that was
 * reset while its queue was full. No ping of the server's own may fall due, therefore. */
static void a_reset_beside_a_full_queue_ends_no_process(void) {
  static const char one[] = "\0\4text\4\7\4PING\0\20"; /* a message and a ping */
  char many[1000 * (sizeof(one) - 1)];
  gpufi_connection connection = {.ip = "127.0.0.1"};
  gpufi_sockets sockets;
  for (size_t i = 0; i < sizeof(many); i++) {
    many[i] = one[i % (sizeof(one) - 1)];
  }
  CHECK_OK(gpufi_sockets_open(&sockets, &connection, 16, &err));
  void *const shell = sockets.sockets[GPUFI_SHELL];
  const int fd = connect_by_hand(&connection, many, sizeof(many));
  zmq_pollitem_t item = {shell, 0, ZMQ_POLLIN, 0};
  CHECK(TEMP_FAILURE_RETRY(zmq_poll(&item, 1, 10000)) == 1);
  gpufi_sleep_ns(300 * INT64_C(1000000)); /* until the queue is full */
  reset_connection(fd);
  gpufi_sleep_ns(3500 * INT64_C(1000000)); /* a ping would have fallen due after 3 s */
  CHECK(count_messages(shell) > 0);
  gpufi_sockets_close(&sockets);
}

int main(void) {
  TEST(closed_sockets_hold_no_payload);
  TEST(a_reset_beside_a_full_queue_ends_no_process);
  return test_finish();
}
