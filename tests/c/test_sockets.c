/* The server's sockets, as its own thread uses them: signals wait meanwhile. */
#include "server/ipc.h"
#include "server/sockets.h"
#include "server/topics.h"

#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/clock.h"
#include "base/thread.h"
#include "by_hand.h"

#define PAYLOAD_COUNT 64
#define PAYLOAD_NBYTES ((size_t)2 << 20)

static gpuf_error err;

static void count_release(void *data, void *arg) {
  (void)data;
  atomic_fetch_add((atomic_int *)arg, 1);
}

static void note_subscribed(void *arg, const char *topic, size_t nbytes) {
  (void)topic;
  CHECK(nbytes <= GPUFI_TOPIC_MAX_NBYTES);
  ++*(int *)arg;
}

static void note_refused(void *arg, const char *why) {
  (void)arg;
  CHECK(why != NULL);
}

/* Take in what subscribers have sent, until `count` subscriptions have come or nothing comes for
 * `wait_ms`; how many have come. */
static int receive_subscriptions(gpufi_sockets *sockets, int count, int wait_ms) {
  int subscribed_count = 0;
  const gpufi_subscribers_events events = {note_subscribed, note_refused, &subscribed_count};
  zmq_pollitem_t item = {sockets->sockets[GPUFI_IOPUB], 0, ZMQ_POLLIN, 0};
  int64_t came_ns = gpufi_clock_ns();
  while (subscribed_count < count && gpufi_clock_ns() - came_ns < wait_ms * INT64_C(1000000)) {
    if (zmq_poll(&item, 1, wait_ms) == 1) {
      sigset_t signals;
      gpufi_signals_block(&signals);
      gpufi_subscribers_receive(&sockets->subscribers, &events);
      pthread_sigmask(SIG_SETMASK, &signals, NULL);
      came_ns = gpufi_clock_ns();
    }
  }
  return subscribed_count;
}

/* A subscriber that has subscribed and reads nothing from then on. */
static void *subscribe(void *context, gpufi_sockets *sockets, const gpufi_connection *connection) {
  char url[PATH_MAX + 64];
  const int one = 1;
  void *subscriber = zmq_socket(context, ZMQ_SUB);
  CHECK(zmq_setsockopt(subscriber, ZMQ_RCVHWM, &one, sizeof(one)) == 0);
  CHECK(zmq_setsockopt(subscriber, ZMQ_SUBSCRIBE, "", 0) == 0);
  gpufi_connection_url(connection, GPUFI_IOPUB, url);
  CHECK(TEMP_FAILURE_RETRY(zmq_connect(subscriber, url)) == 0);
  CHECK(receive_subscriptions(sockets, 1, 10000) == 1);
  return subscriber;
}

static void send_payload(gpufi_sockets *sockets, gpufi_session *session, void *data,
                         atomic_int *released_count) {
  gpufi_packed packed;
  gpufi_payload payload = {data, PAYLOAD_NBYTES, count_release, released_count};
  const gpufi_frame topic = {"comm-1", strlen("comm-1")};
  CHECK_OK(gpufi_message_pack(session, "comm_msg", NULL, strdup("{}"), &packed, &err));
  sigset_t signals;
  gpufi_signals_block(&signals);
  gpufi_sockets_send(sockets, GPUFI_IOPUB, &topic, 1, &packed, &payload, 1);
  pthread_sigmask(SIG_SETMASK, &signals, NULL);
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
  void *subscriber = subscribe(context, &sockets, &connection);
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

#define ANSWER_NBYTES (64 + 28) /* a greeting, and READY or the most of it */

/* Have iopub answer. */
static void await_answer(gpufi_sockets *sockets, int fd) {
  const int64_t deadline_ns = gpufi_clock_ns() + 10 * INT64_C(1000000000);
  int nbytes = 0;
  while (nbytes < ANSWER_NBYTES && gpufi_clock_ns() < deadline_ns) {
    CHECK(receive_subscriptions(sockets, 1, 10) == 0);
    CHECK(ioctl(fd, FIONREAD, &nbytes) == 0);
  }
  CHECK(nbytes == ANSWER_NBYTES);
}

static void read_answer(int fd) {
  char answer[ANSWER_NBYTES];
  CHECK(gpufi_read(fd, answer, sizeof(answer)) == (int64_t)sizeof(answer));
}

/* `one` again and again, without the NUL at its end. */
static void write_many(int fd, const char *one, size_t one_nbytes, size_t count) {
  char *many = malloc(count * (one_nbytes - 1));
  CHECK(many != NULL);
  for (size_t i = 0; many && i < count; i++) {
    memcpy(many + i * (one_nbytes - 1), one, one_nbytes - 1);
  }
  CHECK(gpufi_write(fd, many, count * (one_nbytes - 1)));
  free(many);
}

static int count_messages(void *socket) {
  char frame[32];
  int count = 0;
  while (zmq_recv(socket, frame, sizeof(frame), ZMQ_DONTWAIT) >= 0) {
    count++;
  }
  return count;
}

/* Let a peer connect to another socket than iopub. */
static void admit(gpufi_sockets *sockets) {
  zmq_pollitem_t item = {sockets->zap, 0, ZMQ_POLLIN, 0};
  sigset_t signals;
  CHECK(TEMP_FAILURE_RETRY(zmq_poll(&item, 1, 10000)) == 1);
  gpufi_signals_block(&signals);
  CHECK(gpufi_zap_answer(sockets->zap, &sockets->peers));
  pthread_sigmask(SIG_SETMASK, &signals, NULL);
}

/* ZeroMQ ends the process where it has a ping to send to, or to answer at, a connection that was
 * reset while its queue was full. No ping of the server's own may fall due, therefore. */
static void a_reset_beside_a_full_queue_ends_no_process(void) {
  static const char one[] = "\0\4text\4\7\4PING\0\20"; /* a message and a ping */
  gpufi_connection connection = {.ip = "127.0.0.1"};
  gpufi_sockets sockets;
  CHECK_OK(gpufi_sockets_open(&sockets, &connection, 16, &err));
  void *const shell = sockets.sockets[GPUFI_SHELL];
  const int fd = connect_by_hand(&connection, GPUFI_SHELL);
  shake_hands(fd, "DEALER");
  admit(&sockets);
  read_answer(fd);
  write_many(fd, one, sizeof(one), 1000);
  zmq_pollitem_t item = {shell, 0, ZMQ_POLLIN, 0};
  CHECK(TEMP_FAILURE_RETRY(zmq_poll(&item, 1, 10000)) == 1);
  gpufi_sleep_ns(300 * INT64_C(1000000)); /* until the queue is full */
  reset_connection(fd);
  gpufi_sleep_ns(3500 * INT64_C(1000000)); /* a ping would have fallen due after 3 s */
  CHECK(count_messages(shell) > 0);
  gpufi_sockets_close(&sockets);
}

enum { RESET, CLOSE, CUT, END_COUNT };

static void end_beside_a_full_queue(gpufi_sockets *sockets, const gpufi_connection *connection,
                                    int how) {
  static const char one[] = "\0\2\1t\4\7\4PING\0\20"; /* a subscription and a ping */
  const int fd = connect_by_hand(connection, GPUFI_IOPUB);
  shake_hands(fd, "SUB");
  await_answer(sockets, fd);
  CHECK(gpufi_write(fd, "\0\1\1", 3));
  CHECK(receive_subscriptions(sockets, 1, 10000) == 1);
  CHECK(sockets->peers.count == 1);
  write_many(fd, one, sizeof(one), 5000);
  gpufi_sleep_ns(300 * INT64_C(1000000)); /* until the queue is full */
  if (how == RESET) {
    reset_connection(fd);
  } else if (how == CLOSE) {
    close(fd);
  } else {
    gpufi_peers_cut(&sockets->peers, GPUFI_IOPUB, sockets->peers.list[0].fd);
  }
  gpufi_sleep_ns(300 * INT64_C(1000000)); /* until ZeroMQ has seen it */
  CHECK(receive_subscriptions(sockets, INT_MAX, 1000) < 100);
  CHECK(gpufi_peers_update(&sockets->peers) && sockets->peers.count == 0);
  if (how == CUT) {
    close(fd);
  }
}

/* The same of iopub, whose queue is limited: subscriptions fill it. The connection also ends by the
 * server's own wish, while there is more to read. */
static void an_end_beside_a_full_queue_of_subscriptions_ends_no_process(void) {
  for (int is_ipc = 0; is_ipc < 2; is_ipc++) {
    gpufi_connection connection = {.is_ipc = is_ipc, .ip = "127.0.0.1"};
    gpufi_sockets sockets;
    if (is_ipc) {
      snprintf(connection.ip, sizeof(connection.ip), "/tmp/gpufetch-test-%d", (int)getpid());
    }
    for (int i = 0; i < GPUFI_SOCKET_COUNT && is_ipc; i++) {
      connection.ports[i] = i + 1;
    }
    CHECK_OK(gpufi_sockets_open(&sockets, &connection, 16, &err));
    for (int how = RESET; how < END_COUNT; how++) {
      end_beside_a_full_queue(&sockets, &connection, how);
    }
    gpufi_sockets_close(&sockets);
    if (is_ipc) {
      gpufi_ipc_remove(connection.ip, connection.ports, GPUFI_SOCKET_COUNT);
    }
  }
}

int main(void) {
  TEST(closed_sockets_hold_no_payload);
  TEST(a_reset_beside_a_full_queue_ends_no_process);
  TEST(an_end_beside_a_full_queue_of_subscriptions_ends_no_process);
  return test_finish();
}
