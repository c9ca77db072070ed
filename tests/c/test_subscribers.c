/* Subscribers of iopub without CurveZMQ: ZeroMQ's own, and some that speak by hand. */
#include "server/sockets.h"
#include "server/topics.h"
#include "server/wake.h"

#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "by_hand.h"

#define WAIT_NS (20 * INT64_C(1000000000))
#define WAIT_MS 20000
#define SMALL_NBYTES 3
#define LARGE_NBYTES ((size_t)1 << 20)

static gpuf_error err;
static gpufi_sockets sockets;
static gpufi_connection connection;
static gpufi_session *session;
static void *context;
static int wake_fd; /* nobody wakes */
static int subscribed_count, refused_count;
static bool welcomes; /* each subscription is answered, under its topic */
static char refusal[128];
static char large[LARGE_NBYTES];
static atomic_int released_count;

static void count_release(void *data, void *arg) {
  (void)data;
  (void)arg;
  atomic_fetch_add(&released_count, 1);
}

/* Send under a topic, with the payloads of these sizes. As on the server's thread, signals wait
 * while a socket of the server's is used, here and below. */
static void send_message(const char *topic, const char *content, const size_t *nbytes,
                         size_t count) {
  gpufi_packed packed;
  gpufi_payload payloads[2];
  const gpufi_frame frame = {topic, strlen(topic)};
  for (size_t i = 0; i < count; i++) {
    payloads[i] = (gpufi_payload){large, nbytes[i], count_release, NULL};
  }
  CHECK_OK(gpufi_message_pack(session, "test", NULL, strdup(content), &packed, &err));
  sigset_t signals;
  gpufi_signals_block(&signals);
  gpufi_sockets_send(&sockets, GPUFI_IOPUB, &frame, 1, &packed, payloads, count);
  pthread_sigmask(SIG_SETMASK, &signals, NULL);
}

/* Nothing is requested here. */
static bool note_request(void *arg, gpufi_socket which, const gpufi_frame *frames, size_t count) {
  (void)arg;
  (void)which;
  (void)frames;
  CHECK(count == 0);
  return false;
}

static void note_subscribed(void *arg, const char *topic, size_t nbytes) {
  char text[GPUFI_TOPIC_MAX_NBYTES + 1];
  (void)arg;
  subscribed_count++;
  if (welcomes) {
    snprintf(text, sizeof(text), "%.*s", (int)nbytes, topic);
    send_message(text, "{\"welcome\":1}", NULL, 0);
  }
}

static void note_refused(void *arg, const char *why) {
  (void)arg;
  refused_count++;
  snprintf(refusal, sizeof(refusal), "%s", why);
}

/* Do what the server's thread does for `wait_ms`, or until something or a signal has come. */
static void serve(int wait_ms) {
  const gpufi_events events = {note_request, note_subscribed, note_refused, NULL};
  sigset_t signals;
  gpufi_signals_block(&signals);
  gpufi_sockets_serve(&sockets, wake_fd, wait_ms, &events);
  pthread_sigmask(SIG_SETMASK, &signals, NULL);
}

/* The same, where all that comes within `wait_ms` comes while the thread receives. */
static void serve_what_comes_at_once(int wait_ms) {
  const int64_t end_ns = gpufi_clock_ns() + wait_ms * INT64_C(1000000);
  while (gpufi_clock_ns() < end_ns) {
    serve(0);
  }
}

/* Serve until a condition holds, or for long. */
#define SERVE_UNTIL(condition)                                                                     \
  do {                                                                                             \
    const int64_t deadline_ns_ = gpufi_clock_ns() + WAIT_NS;                                       \
    while (!(condition) && gpufi_clock_ns() < deadline_ns_) {                                      \
      serve(10);                                                                                   \
    }                                                                                              \
    CHECK(condition);                                                                              \
  } while (0)

static int link_count(void) {
  return sockets.plain.links.count - sockets.plain.links.ended_count;
}

static void start(void) {
  memset(&connection, 0, sizeof(connection));
  snprintf(connection.ip, sizeof(connection.ip), "127.0.0.1");
  subscribed_count = refused_count = 0;
  welcomes = false;
  atomic_store(&released_count, 0);
  CHECK_OK(gpufi_session_create("key", &session, &err));
  CHECK_OK(gpufi_sockets_open(&sockets, &connection, 64, &err));
  CHECK_OK(gpufi_wake_open(&wake_fd, &err));
  context = zmq_ctx_new();
}

static void stop(void) {
  gpufi_sockets_close(&sockets);
  gpufi_session_destroy(session);
  close(wake_fd);
  CHECK(TEMP_FAILURE_RETRY(zmq_ctx_term(context)) == 0);
}

static void *open_subscriber(const char *topic) {
  char url[PATH_MAX + 64];
  const int none = 0, count = subscribed_count;
  void *subscriber = zmq_socket(context, ZMQ_SUB);
  gpufi_connection_url(&connection, GPUFI_IOPUB, url);
  CHECK(zmq_setsockopt(subscriber, ZMQ_LINGER, &none, sizeof(none)) == 0);
  CHECK(zmq_setsockopt(subscriber, ZMQ_SUBSCRIBE, topic, strlen(topic)) == 0);
  CHECK(TEMP_FAILURE_RETRY(zmq_connect(subscriber, url)) == 0);
  SERVE_UNTIL(subscribed_count == count + 1);
  return subscriber;
}

/* The next message of a subscriber's, or 0 frames if none has come; `topic` is its first, `content`
 * its seventh. */
static int next_message(void *subscriber, int wait_ms, char topic[32], char content[32],
                        size_t payload_nbytes[2]) {
  zmq_pollitem_t item = {subscriber, 0, ZMQ_POLLIN, 0};
  const int64_t deadline_ns = gpufi_clock_ns() + wait_ms * INT64_C(1000000);
  int count = 0, more = 0;
  while (!more && gpufi_clock_ns() < deadline_ns) {
    serve(0);
    more = zmq_poll(&item, 1, 1) == 1;
  }
  while (more) {
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    CHECK(TEMP_FAILURE_RETRY(zmq_msg_recv(&frame, subscriber, 0)) >= 0);
    if (count == 0 || count == 6) {
      snprintf(count == 0 ? topic : content, 32, "%.*s", (int)zmq_msg_size(&frame),
               (const char *)zmq_msg_data(&frame));
    } else if (count == 7 || count == 8) {
      payload_nbytes[count - 7] = zmq_msg_size(&frame);
    }
    more = zmq_msg_more(&frame);
    zmq_msg_close(&frame);
    count++;
  }
  return count;
}

#define CHECK_MESSAGE(subscriber, its_topic, its_content)                                          \
  do {                                                                                             \
    char topic_[32] = "", content_[32] = "";                                                       \
    size_t nbytes_[2];                                                                             \
    CHECK(next_message(subscriber, WAIT_MS, topic_, content_, nbytes_) == 7);                      \
    CHECK(strcmp(topic_, its_topic) == 0 && strcmp(content_, its_content) == 0);                   \
  } while (0)

static void a_subscriber_gets_what_begins_with_its_topics(void) {
  start();
  void *all = open_subscriber(""), *some = open_subscriber("comm-1");
  send_message("comm-12", "{\"n\":1}", NULL, 0);
  send_message("comm-2", "{\"n\":2}", NULL, 0);
  send_message("comm", "{\"n\":3}", NULL, 0);
  CHECK(zmq_setsockopt(some, ZMQ_SUBSCRIBE, "x", 1) == 0);
  SERVE_UNTIL(subscribed_count == 3);
  CHECK_MESSAGE(some, "comm-12", "{\"n\":1}"); /* before the client itself drops it */
  CHECK(zmq_setsockopt(some, ZMQ_UNSUBSCRIBE, "comm-1", 6) == 0);
  CHECK(zmq_setsockopt(some, ZMQ_SUBSCRIBE, "y", 1) == 0);
  SERVE_UNTIL(subscribed_count == 4);
  send_message("comm-12", "{\"n\":4}", NULL, 0);
  send_message("y", "{\"n\":5}", NULL, 0);
  CHECK_MESSAGE(all, "comm-12", "{\"n\":1}");
  CHECK_MESSAGE(all, "comm-2", "{\"n\":2}");
  CHECK_MESSAGE(all, "comm", "{\"n\":3}");
  CHECK_MESSAGE(all, "comm-12", "{\"n\":4}");
  CHECK_MESSAGE(all, "y", "{\"n\":5}");
  CHECK_MESSAGE(some, "y", "{\"n\":5}");
  zmq_close(all);
  zmq_close(some);
  stop();
}

static void a_welcome_reaches_the_new_subscriber_alone(void) {
  start();
  welcomes = true;
  void *first = open_subscriber("a");
  CHECK_MESSAGE(first, "a", "{\"welcome\":1}");
  void *second = open_subscriber("a");
  CHECK_MESSAGE(second, "a", "{\"welcome\":1}");
  send_message("a", "{\"n\":1}", NULL, 0);
  CHECK_MESSAGE(first, "a", "{\"n\":1}");
  CHECK_MESSAGE(second, "a", "{\"n\":1}");
  zmq_close(first);
  zmq_close(second);
  stop();
}

static void payloads_of_every_size_arrive_and_are_released_once(void) {
  static const size_t sizes[][2] = {{0, 0},     {1, 0},       {0, 1},
                                    {255, 256}, {256, 65536}, {LARGE_NBYTES, LARGE_NBYTES}};
  const int count = sizeof(sizes) / sizeof(sizes[0]);
  char topic[32], content[32];
  size_t nbytes[2];
  start();
  void *one = open_subscriber(""), *other = open_subscriber("t");
  for (int i = 0; i < count; i++) {
    send_message("t", "{}", sizes[i], 1);
    send_message("t", "{}", sizes[i], 2);
    send_message("nobody's", "{}", sizes[i], 2);
  }
  for (int i = 0; i < count; i++) {
    for (int k = 0; k < 2; k++) {
      void *subscriber = k == 0 ? one : other;
      CHECK(next_message(subscriber, WAIT_MS, topic, content, nbytes) == 8);
      CHECK(nbytes[0] == sizes[i][0]);
      CHECK(next_message(subscriber, WAIT_MS, topic, content, nbytes) == 9);
      CHECK(nbytes[0] == sizes[i][0] && nbytes[1] == sizes[i][1]);
    }
    CHECK(next_message(one, WAIT_MS, topic, content, nbytes) == 9);
  }
  SERVE_UNTIL(atomic_load(&released_count) == 5 * count);
  CHECK(link_count() == 2); /* nothing of no bytes has ended a connection */
  zmq_close(one);
  zmq_close(other);
  stop();
  CHECK(atomic_load(&released_count) == 5 * count);
}

static void a_subscriber_that_falls_behind_gets_whole_messages(void) {
  const size_t nbytes = LARGE_NBYTES;
  const int one = 1, sent_count = 600;
  char topic[32], content[32], last[32] = "";
  size_t payload_nbytes[2];
  int got_count = 0, frame_count = 0;
  start();
  void *slow = zmq_socket(context, ZMQ_SUB);
  zmq_close(slow);
  slow = open_subscriber("t");
  CHECK(zmq_setsockopt(slow, ZMQ_RCVHWM, &one, sizeof(one)) == 0);
  for (int i = 0; i < sent_count; i++) {
    snprintf(content, sizeof(content), "{\"n\":%d}", i);
    send_message("t", content, &nbytes, 1);
  }
  send_message("end", "{}", NULL, 0);
  while ((frame_count = next_message(slow, 2000, topic, content, payload_nbytes)) > 0) {
    CHECK(frame_count == 8 && payload_nbytes[0] == nbytes && strcmp(topic, "t") == 0);
    CHECK(strcmp(content, last) != 0);
    memcpy(last, content, sizeof(last));
    got_count++;
  }
  CHECK(got_count >= 256 && got_count < sent_count);
  SERVE_UNTIL(atomic_load(&released_count) == sent_count);
  send_message("t", "{\"n\":-1}", NULL, 0); /* and goes on */
  CHECK_MESSAGE(slow, "t", "{\"n\":-1}");
  zmq_close(slow);
  stop();
}

static void a_subscriber_with_heartbeats_stays_connected(void) {
  const int interval_ms = 100, timeout_ms = 1000;
  char url[PATH_MAX + 64];
  start();
  void *subscriber = zmq_socket(context, ZMQ_SUB), *watch = zmq_socket(context, ZMQ_PAIR);
  gpufi_connection_url(&connection, GPUFI_IOPUB, url);
  CHECK(zmq_setsockopt(subscriber, ZMQ_HEARTBEAT_IVL, &interval_ms, sizeof(int)) == 0);
  CHECK(zmq_setsockopt(subscriber, ZMQ_HEARTBEAT_TIMEOUT, &timeout_ms, sizeof(int)) == 0);
  CHECK(zmq_setsockopt(subscriber, ZMQ_SUBSCRIBE, "", 0) == 0);
  CHECK(TEMP_FAILURE_RETRY(
            zmq_socket_monitor(subscriber, "inproc://watch", ZMQ_EVENT_DISCONNECTED)) == 0);
  CHECK(TEMP_FAILURE_RETRY(zmq_connect(watch, "inproc://watch")) == 0);
  CHECK(TEMP_FAILURE_RETRY(zmq_connect(subscriber, url)) == 0);
  SERVE_UNTIL(subscribed_count == 1);
  const int64_t until_ns = gpufi_clock_ns() + 3 * INT64_C(1000000000);
  while (gpufi_clock_ns() < until_ns) {
    serve(10);
  }
  zmq_pollitem_t item = {watch, 0, ZMQ_POLLIN, 0};
  CHECK(zmq_poll(&item, 1, 0) == 0 && refused_count == 0);
  CHECK(zmq_socket_monitor(subscriber, NULL, 0) == 0);
  zmq_close(watch);
  zmq_close(subscriber);
  stop();
}

/* --- By hand ------------------------------------------------------------------- */

static int connect_to_iopub(void) {
  return connect_by_hand(&connection, GPUFI_IOPUB);
}

static void each_misuse_costs_its_connection_and_no_other(void) {
  static const struct {
    const char *bytes;
    size_t nbytes;
    int count;
    const char *refusal;
  } misuses[] = {
      {"\0\1\1\0\1\0", 6, 1000, "it sends too much"},   /* subscribes and takes it back */
      {"\4\7\4PING\0\1", 9, 1000, "it sends too much"}, /* pings */
      {"\1\0", 2, 5000, "it sends too much"},           /* a message without an end */
      {"\2\xff\0\0\0\0\0\0\0", 9, 1, "too large"},      /* which would not end */
      {"\0\xa1\1", 3, 100, "its topic is too long"},    /* of 160 bytes, the next ones */
      {"\xf0\0", 2, 1, "it is no subscriber's"},        /* flags that there are not */
  };
  start();
  void *other = open_subscriber("t");
  for (size_t i = 0; i < sizeof(misuses) / sizeof(misuses[0]); i++) {
    char byte[4096];
    const int count = refused_count, fd = connect_to_iopub();
    shake_hands(fd, "SUB");
    for (int k = 0; k < misuses[i].count; k++) {
      if (!gpufi_write(fd, misuses[i].bytes, misuses[i].nbytes)) {
        break; /* it is closed already */
      }
    }
    SERVE_UNTIL(refused_count == count + 1 && link_count() == 1);
    CHECK(strstr(refusal, misuses[i].refusal) != NULL);
    while (recv(fd, byte, sizeof(byte), 0) > 0) {
    }
    close(fd);
    send_message("t", "{\"n\":1}", NULL, 0);
    CHECK_MESSAGE(other, "t", "{\"n\":1}");
  }
  zmq_close(other);
  stop();
}

static void subscriptions_past_the_limit_cost_the_connection(void) {
  char frame[] = "\0\2\1a";
  start();
  const int fd = connect_to_iopub();
  shake_hands(fd, "SUB");
  for (int i = 0; i < GPUFI_TOPICS_MAX; i++) {
    frame[3] = (char)('a' + i);
    CHECK(gpufi_write(fd, frame, 4));
    if (i < 4) {
      CHECK(gpufi_write(fd, frame, 4)); /* a topic that is known takes no place */
    }
  }
  SERVE_UNTIL(subscribed_count == GPUFI_TOPICS_MAX + 4);
  CHECK(refused_count == 0 && link_count() == 1);
  frame[3] = 'A';
  CHECK(gpufi_write(fd, frame, 4));
  SERVE_UNTIL(refused_count == 1 && link_count() == 0);
  CHECK(strstr(refusal, "too many subscriptions") != NULL);
  close(fd);
  stop();
}

static void a_connection_without_a_handshake_is_closed_in_time(void) {
  start();
  const int silent = connect_to_iopub(), half = connect_to_iopub(), done = connect_to_iopub();
  CHECK(gpufi_write(half, "\xff\0\0\0", 4));
  shake_hands(done, "SUB");
  SERVE_UNTIL(link_count() == 3);
  const int64_t began_ns = gpufi_clock_ns();
  SERVE_UNTIL(link_count() == 1);
  CHECK(gpufi_clock_ns() - began_ns > 4 * INT64_C(1000000000));
  CHECK(sockets.plain.links.unready_count == 0 && sockets.plain.links.list[0]->is_ready);
  close(silent);
  close(half);
  close(done);
  SERVE_UNTIL(link_count() == 0);
  stop();
}

/* The descriptor of a connection that has ended is that of the next one, while messages of the
 * former wait to be looked at, or before it was seen that it has ended. */
static void a_connection_is_not_taken_for_the_one_before_it(void) {
  start();
  for (int i = 0; i < 200; i++) {
    const int count = subscribed_count;
    const int earlier = connect_to_iopub();
    shake_hands(earlier, "SUB");
    if (i % 2) {
      CHECK(gpufi_write(earlier, "\0\1\1\0\1\1", 6));
    }
    if (i % 4 > 1) { /* else nothing of it is looked at before the next has come */
      SERVE_UNTIL(link_count() == 1);
    }
    if (i % 3) {
      reset_connection(earlier);
    } else {
      close(earlier);
    }
    const int later = connect_to_iopub();
    shake_hands(later, "SUB");
    CHECK(gpufi_write(later, "\0\4\1yes", 6));
    if (i % 5 > 1) {
      serve_what_comes_at_once(5);
    }
    const int64_t deadline_ns = gpufi_clock_ns() + WAIT_NS;
    char answer[64 + 28 + 2 + 3];
    bool is_answered = false;
    while (!is_answered && gpufi_clock_ns() < deadline_ns) {
      serve(1);
      send_message("yes", "{}", NULL, 0);
      is_answered = recv(later, answer, sizeof(answer), MSG_PEEK | MSG_DONTWAIT) == sizeof(answer);
    }
    CHECK(is_answered && memcmp(answer + 92, "\1\3yes", 5) == 0);
    CHECK(subscribed_count > count);
    close(later);
    SERVE_UNTIL(link_count() == 0);
  }
  CHECK(refused_count == 0 && sockets.plain.links.unready_count == 0);
  stop();
}

int main(void) {
  TEST(a_subscriber_gets_what_begins_with_its_topics);
  TEST(a_welcome_reaches_the_new_subscriber_alone);
  TEST(payloads_of_every_size_arrive_and_are_released_once);
  TEST(a_subscriber_that_falls_behind_gets_whole_messages);
  TEST(a_subscriber_with_heartbeats_stays_connected);
  TEST(each_misuse_costs_its_connection_and_no_other);
  TEST(subscriptions_past_the_limit_cost_the_connection);
  TEST(a_connection_without_a_handshake_is_closed_in_time);
  TEST(a_connection_is_not_taken_for_the_one_before_it);
  return test_finish();
}
