/* The server's sockets, as its own thread uses them: signals wait meanwhile. */
#include "server/sockets.h"
#include "server/topics.h"
#include "server/wake.h"

#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/thread.h"
#include "by_hand.h"
#include "server/address.h"
#include "server/folder.h"
#include "server/ipc.h"

#define PAYLOAD_COUNT 64
#define PAYLOAD_NBYTES ((size_t)2 << 20)
#define WAIT_NS (10 * INT64_C(1000000000))

enum { TCP, IPC, CURVE, KIND_COUNT };

static gpuf_error err;
static gpufi_sockets sockets;
static gpufi_connection connection;
static int wake_fd; /* nobody wakes */
static void *context;
/* What has come, and the answer to a request. */
static int request_count, subscribed_count, log_count;
static size_t request_frame_count;
static bool is_good, is_replying;
static char logged[256];

static void count_release(void *data, void *arg) {
  (void)data;
  atomic_fetch_add((atomic_int *)arg, 1);
}

static void reply_to(const char *identity);

static bool note_request(void *arg, gpufi_socket which, const gpufi_frame *frames, size_t count) {
  (void)arg;
  (void)frames;
  CHECK(which == GPUFI_SHELL);
  request_count++;
  request_frame_count = count;
  if (is_replying) {
    reply_to("me");
  }
  return is_good;
}

static void note_subscribed(void *arg, const char *topic, size_t nbytes) {
  (void)arg;
  (void)topic;
  CHECK(nbytes <= GPUFI_TOPIC_MAX_NBYTES);
  subscribed_count++;
}

static void note_logged(void *arg, const char *line) {
  (void)arg;
  log_count++;
  snprintf(logged, sizeof(logged), "%s", line);
}

/* Do what the server's thread does, for 10 ms or until something or a signal has come. */
static void serve(void) {
  const gpufi_events events = {note_request, note_subscribed, note_logged, NULL};
  sigset_t signals;
  gpufi_signals_block(&signals);
  gpufi_sockets_serve(&sockets, wake_fd, 10, &events);
  pthread_sigmask(SIG_SETMASK, &signals, NULL);
}

/* Serve until a condition holds, or for long. */
#define SERVE_UNTIL(condition)                                                                     \
  do {                                                                                             \
    const int64_t deadline_ns_ = gpufi_clock_ns() + WAIT_NS;                                       \
    while (!(condition) && gpufi_clock_ns() < deadline_ns_) {                                      \
      serve();                                                                                     \
    }                                                                                              \
    CHECK(condition);                                                                              \
  } while (0)

static int link_count(void) {
  return sockets.plain.links.count - sockets.plain.links.ended_count;
}

static void start(int kind, int32_t peers_max) {
  memset(&connection, 0, sizeof(connection));
  snprintf(connection.ip, sizeof(connection.ip), "127.0.0.1");
  request_count = subscribed_count = log_count = 0;
  is_good = true;
  if (kind == IPC) {
    connection.is_ipc = true;
    snprintf(connection.ip, sizeof(connection.ip), "/tmp/gpufetch-test-%d", (int)getpid());
    for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
      connection.ports[i] = i + 1;
    }
  } else if (kind == CURVE) {
    CHECK(zmq_curve_keypair(connection.curve_publickey, connection.curve_secretkey) == 0);
  }
  CHECK_OK(gpufi_wake_open(&wake_fd, &err));
  CHECK_OK(gpufi_sockets_open(&sockets, &connection, peers_max, &err));
  context = zmq_ctx_new();
}

static void stop(void) {
  gpufi_sockets_close(&sockets);
  close(wake_fd);
  if (connection.is_ipc) {
    gpufi_ipc_remove(connection.ip, connection.ports, NULL, GPUFI_SOCKET_COUNT);
  }
  CHECK(TEMP_FAILURE_RETRY(zmq_ctx_term(context)) == 0);
}

/* A socket of ZeroMQ's that has connected, or does so while the server serves. */
static void *open_client(int type, gpufi_socket which) {
  char url[PATH_MAX + 64], public_key[41], secret_key[41];
  const int none = 0;
  void *client = zmq_socket(context, type);
  gpufi_connection_url(&connection, which, url);
  CHECK(zmq_setsockopt(client, ZMQ_LINGER, &none, sizeof(none)) == 0);
  if (connection.curve_publickey[0]) {
    CHECK(zmq_curve_keypair(public_key, secret_key) == 0);
    CHECK(zmq_setsockopt(client, ZMQ_CURVE_SERVERKEY, connection.curve_publickey, 41) == 0);
    CHECK(zmq_setsockopt(client, ZMQ_CURVE_PUBLICKEY, public_key, 41) == 0);
    CHECK(zmq_setsockopt(client, ZMQ_CURVE_SECRETKEY, secret_key, 41) == 0);
  }
  CHECK(TEMP_FAILURE_RETRY(zmq_connect(client, url)) == 0);
  return client;
}

static void send_payload(gpufi_session *session, void *data, atomic_int *released_count) {
  gpufi_packed packed;
  gpufi_payload payload = {data, PAYLOAD_NBYTES, count_release, released_count};
  const gpufi_frame topic = {"comm-1", strlen("comm-1")};
  CHECK_OK(gpufi_message_pack(session, "comm_msg", NULL, strdup("{}"), &packed, &err));
  sigset_t signals;
  gpufi_signals_block(&signals);
  gpufi_sockets_send(&sockets, GPUFI_IOPUB, &topic, 1, &packed, &payload, 1);
  pthread_sigmask(SIG_SETMASK, &signals, NULL);
}

/* Once the sockets are closed, the server frees what the payloads lie in. */
static void closed_sockets_hold_no_payload(void) {
  static char data[PAYLOAD_NBYTES];
  for (int kind = 0; kind < KIND_COUNT; kind++) {
    const int one = 1;
    gpufi_session *session;
    atomic_int released_count = 0;
    start(kind, 16);
    CHECK_OK(gpufi_session_create("key", &session, &err));
    void *subscriber = open_client(ZMQ_SUB, GPUFI_IOPUB); /* it reads nothing */
    CHECK(zmq_setsockopt(subscriber, ZMQ_RCVHWM, &one, sizeof(one)) == 0);
    CHECK(zmq_setsockopt(subscriber, ZMQ_SUBSCRIBE, "", 0) == 0);
    SERVE_UNTIL(subscribed_count == 1);
    for (int i = 0; i < PAYLOAD_COUNT; i++) {
      send_payload(session, data, &released_count);
    }
    CHECK(atomic_load(&released_count) < PAYLOAD_COUNT); /* the subscriber holds the others up */
    gpufi_sockets_close(&sockets);
    CHECK(atomic_load(&released_count) == PAYLOAD_COUNT);
    zmq_close(subscriber);
    gpufi_session_destroy(session);
    stop();
  }
}

/* What waits for a client when the sockets are closed is sent all the same. */
static void what_was_sent_last_arrives(void) {
  static char data[PAYLOAD_NBYTES];
  for (int kind = 0; kind < KIND_COUNT; kind++) {
    gpufi_session *session;
    atomic_int released_count = 0;
    int frame_count = 0, more = 1;
    size_t more_nbytes = sizeof(more);
    start(kind, 16);
    CHECK_OK(gpufi_session_create("key", &session, &err));
    void *subscriber = open_client(ZMQ_SUB, GPUFI_IOPUB);
    CHECK(zmq_setsockopt(subscriber, ZMQ_SUBSCRIBE, "", 0) == 0);
    SERVE_UNTIL(subscribed_count == 1);
    send_payload(session, data, &released_count);
    gpufi_sockets_close(&sockets);
    zmq_pollitem_t item = {subscriber, 0, ZMQ_POLLIN, 0};
    CHECK(TEMP_FAILURE_RETRY(zmq_poll(&item, 1, 10000)) == 1);
    while (more) {
      CHECK(TEMP_FAILURE_RETRY(zmq_recv(subscriber, data, sizeof(data), 0)) >= 0);
      CHECK(zmq_getsockopt(subscriber, ZMQ_RCVMORE, &more, &more_nbytes) == 0);
      frame_count++;
    }
    CHECK(frame_count == 8);
    zmq_close(subscriber);
    gpufi_session_destroy(session);
    stop();
  }
}

/* --- By hand ------------------------------------------------------------------- */

/* `one` again and again, without the NUL at its end, until the server has closed the connection. */
static void write_many(int fd, const char *one, size_t one_nbytes, size_t count) {
  char *many = malloc(count * (one_nbytes - 1));
  CHECK(many != NULL);
  for (size_t i = 0; many && i < count; i++) {
    memcpy(many + i * (one_nbytes - 1), one, one_nbytes - 1);
  }
  gpufi_write(fd, many, count * (one_nbytes - 1));
  free(many);
}

static bool has_ended(int fd) {
  char bytes[256];
  ssize_t nbytes;
  while ((nbytes = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
  }
  return nbytes == 0 || errno == ECONNRESET;
}

enum { RESET, CLOSE, CUT, END_COUNT };

static void end_beside_a_full_queue(gpufi_socket which, int how) {
  static const char subscription[] = "\0\2\1t\4\7\4PING\0\20"; /* and a ping */
  static const char request[] = "\0\4text\4\7\4PING\0\20";
  const int fd = connect_by_hand(&connection, which);
  shake_hands(fd, which == GPUFI_IOPUB ? "SUB" : "DEALER");
  SERVE_UNTIL(link_count() == 1 && sockets.plain.links.list[0]->is_ready);
  if (which == GPUFI_IOPUB) {
    write_many(fd, subscription, sizeof(subscription), 5000);
  } else {
    write_many(fd, request, sizeof(request), 5000);
  }
  if (how == RESET) {
    reset_connection(fd);
  } else if (how == CLOSE) {
    close(fd);
  } else {
    gpufi_link_end(sockets.plain.links.list[0]);
    sockets.plain.links.ended_count++;
  }
  SERVE_UNTIL(link_count() == 0);
  if (how == CUT) {
    close(fd);
  }
}

/* ZeroMQ, which spoke ZMTP here before, ended the process where it had a ping to send to, or to
 * answer at, a connection that was reset while its queue was full. */
static void an_end_beside_much_to_read_ends_no_process(void) {
  for (int kind = TCP; kind <= IPC; kind++) {
    start(kind, 16);
    for (int how = RESET; how < END_COUNT; how++) {
      end_beside_a_full_queue(GPUFI_IOPUB, how);
      end_beside_a_full_queue(GPUFI_SHELL, how);
    }
    CHECK(subscribed_count < 6 * 100 && request_count < 6 * 100);
    stop();
  }
}

/* All descriptors of the process are in use when somebody connects. Where ZeroMQ accepts
 * connections over ipc, this ends the process. */
static void a_lack_of_descriptors_closes_what_connects_and_nothing_else(void) {
  for (int kind = TCP; kind <= IPC; kind++) {
    struct rlimit before, fewer;
    int taken[256], taken_count = 0, fd;
    start(kind, 16);
    void *client = open_client(ZMQ_DEALER, GPUFI_SHELL);
    CHECK(TEMP_FAILURE_RETRY(zmq_send(client, "one", 3, 0)) == 3);
    SERVE_UNTIL(request_count == 1);
    const int peer = socket(connection.is_ipc ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(peer >= 0 && getrlimit(RLIMIT_NOFILE, &before) == 0);
    fewer = (struct rlimit){200, before.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &fewer) == 0);
    while (taken_count < 256 && (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) {
      taken[taken_count++] = fd;
    }
    CHECK(taken_count > 0 && errno == EMFILE);
    connect_socket_by_hand(peer, &connection, GPUFI_SHELL);
    SERVE_UNTIL(log_count > 0 && has_ended(peer));
    CHECK(strstr(logged, "no descriptors left") && link_count() == 1);
    CHECK(TEMP_FAILURE_RETRY(zmq_send(client, "two", 3, 0)) == 3);
    SERVE_UNTIL(request_count == 2); /* who is connected goes on */
    close(peer);
    while (taken_count > 0) {
      close(taken[--taken_count]);
    }
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    const int later = connect_by_hand(&connection, GPUFI_SHELL);
    shake_hands(later, "DEALER");
    SERVE_UNTIL(link_count() == 2 && sockets.plain.links.unready_count == 0);
    close(later);
    zmq_close(client);
    stop();
  }
}

/* Nobody is let in past the limit, not even for a moment. */
static void connections_past_the_limit_are_closed(void) {
  for (int kind = TCP; kind <= IPC; kind++) {
    int fds[40];
    start(kind, 8);
    for (int i = 0; i < 40; i++) {
      fds[i] = connect_by_hand(&connection, (gpufi_socket)(i % GPUFI_SOCKET_COUNT));
    }
    for (int i = 0; i < 40; i++) {
      serve();
      CHECK(sockets.plain.links.count <= 8);
    }
    int open_count = 0;
    for (int i = 0; i < 40; i++) {
      open_count += !has_ended(fds[i]);
      close(fds[i]);
    }
    CHECK(open_count == 8 && strcmp(logged, GPUFI_LOG_TOO_MANY) == 0);
    SERVE_UNTIL(link_count() == 0);
    stop();
  }
}

/* Frames that come and come, of messages that never do. */
static void messages_without_an_end_are_held_up_to_a_limit(void) {
  static char frame[9 + GPUFI_WIRE_FRAME_MAX_NBYTES] = {3, 0, 0, 0, 0, 0, 4};
  const size_t most_nbytes = (size_t)34 << 20; /* and what was read last */
  _Static_assert(GPUFI_WIRE_FRAME_MAX_NBYTES == 4 << 16, "the size in the frame's header");
  int fds[12], ended_count = 0;
  start(TCP, 16);
  for (int i = 0; i < 12; i++) {
    fds[i] = connect_by_hand(&connection, GPUFI_SHELL);
    shake_hands(fds[i], "DEALER");
  }
  for (int k = 0; k < 40; k++) {
    for (int i = 0; i < 12; i++) {
      size_t at = 0;
      while (at < sizeof(frame)) { /* the server reads on this thread */
        const ssize_t nbytes =
            send(fds[i], frame + at, sizeof(frame) - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (nbytes < 0 && errno != EAGAIN && errno != EINTR) {
          break;
        }
        at += nbytes > 0 ? (size_t)nbytes : 0;
        serve();
        CHECK(sockets.plain.links.held_nbytes <= most_nbytes);
      }
    }
  }
  for (int i = 0; i < 12; i++) {
    ended_count += has_ended(fds[i]);
    close(fds[i]);
  }
  CHECK(ended_count > 0 && ended_count < 12 && request_count == 0);
  SERVE_UNTIL(link_count() == 0);
  CHECK(sockets.plain.links.held_nbytes == 0);
  stop();
}

/* More could wait to be echoed to one who reads nothing. */
static const char ping_of_1025_bytes[1025 + 9 + 1] = "\2\0\0\0\0\0\0\4\1";

static void each_misuse_costs_its_connection_and_no_other(void) {
  static const struct {
    gpufi_socket which;
    const char *bytes;
    size_t nbytes;
    int count;
    const char *log;
  } misuses[] = {
      {GPUFI_SHELL, "\0\1x", 4, 8, GPUFI_LOG_REFUSED},
      {GPUFI_SHELL, "\1\0", 3, 2000, "has no end"},
      {GPUFI_SHELL, "\4\7\4PING\0\1", 10, 100, "too many commands"},
      {GPUFI_SHELL, "\2\0\0\0\0\0\4\0\1", 10, 1, "too large"},
      {GPUFI_HEARTBEAT, "\0\1x", 4, 100, "it sends too much"},
      {GPUFI_HEARTBEAT, ping_of_1025_bytes, 1025 + 9 + 1, 1, "it sends too much"},
      {GPUFI_STDIN, "\xf0\0", 3, 1, "it is no client's"},
  };
  start(IPC, 16);
  void *other = open_client(ZMQ_DEALER, GPUFI_SHELL);
  for (size_t i = 0; i < sizeof(misuses) / sizeof(misuses[0]); i++) {
    const int fd = connect_by_hand(&connection, misuses[i].which);
    shake_hands(fd, "DEALER");
    is_good = false;
    log_count = 0;
    write_many(fd, misuses[i].bytes, misuses[i].nbytes, (size_t)misuses[i].count);
    SERVE_UNTIL(log_count == 1 && has_ended(fd));
    CHECK(strstr(logged, misuses[i].log) != NULL);
    close(fd);
    is_good = true;
    request_count = 0;
    CHECK(TEMP_FAILURE_RETRY(zmq_send(other, "text", 4, 0)) == 4);
    SERVE_UNTIL(request_count == 1);
    CHECK(request_frame_count == 2 && link_count() == 1);
  }
  zmq_close(other);
  stop();
}

/* --- Requests and replies ------------------------------------------------------ */

static void reply_to(const char *identity) {
  const gpufi_frame frames[] = {{identity, strlen(identity)}, {"text", 4}};
  gpufi_links_send(&sockets.plain.links, GPUFI_SHELL, frames, 2, NULL, 0);
}

/* By hand, under an identity. */
static int open_named(const char ready[], size_t ready_nbytes) {
  const int fd = connect_by_hand(&connection, GPUFI_SHELL);
  greet(fd);
  CHECK(gpufi_write(fd, ready, ready_nbytes));
  return fd;
}

#define READY_OF_ME "\4\x2b\5READY\13Socket-Type\0\0\0\6DEALER\10Identity\0\0\0\2me"

/* One whose last connection has broken without a sign connects anew. What it sent before comes all
 * the same. */
static void a_client_takes_the_place_of_its_earlier_connection(void) {
  for (int kind = TCP; kind <= IPC; kind++) {
    int fds[2];
    start(kind, 16);
    for (int i = 0; i < 2; i++) {
      fds[i] = open_named(READY_OF_ME, sizeof(READY_OF_ME) - 1);
      SERVE_UNTIL(link_count() == i + 1 && sockets.plain.links.list[i]->is_ready);
    }
    CHECK(!has_ended(fds[1]));
    CHECK(gpufi_write(fds[0], "\0\1x", 3));
    SERVE_UNTIL(request_count == 1);
    reply_to("me");
    char reply[16];
    CHECK(recv(fds[1], reply, sizeof(reply), 0) == 6 && memcmp(reply, "\0\4text", 6) == 0);
    SERVE_UNTIL(has_ended(fds[0]) && link_count() == 1);
    CHECK(sockets.plain.links.unready_count == 0);
    const gpufi_frame frames[] = {{"me", 2}, {"text", 4}};
    gpufi_links_send(&sockets.plain.links, GPUFI_CONTROL, frames, 2, NULL, 0); /* nobody's */
    close(fds[0]);
    close(fds[1]);
    stop();
  }
}

/* A client that has sent its requests may close, whatever it is still sent. */
static void all_requests_of_a_client_that_has_closed_are_read(void) {
  for (int kind = TCP; kind <= IPC; kind++) {
    start(kind, 16);
    is_replying = true;
    for (int reads_first = 0; reads_first < 2; reads_first++) {
      const int fd = open_named(READY_OF_ME, sizeof(READY_OF_ME) - 1);
      SERVE_UNTIL(link_count() == 1 && sockets.plain.links.unready_count == 0);
      request_count = 0;
      if (reads_first) {
        char byte[256];
        while (recv(fd, byte, sizeof(byte), MSG_DONTWAIT) > 0) {
        }
      }
      write_many(fd, "\0\1x", 4, 100);
      close(fd); /* over ipc at once, and over tcp by the first reply, nothing can be sent to it */
      SERVE_UNTIL(link_count() == 0);
      CHECK(request_count == 100);
    }
    is_replying = false;
    stop();
  }
}

static char large[(size_t)4 << 20];

static void *read_late(void *arg) {
  size_t nbytes = 0;
  ssize_t count = 1;
  gpufi_sleep_ns(200 * INT64_C(1000000));
  while (count > 0 || (count < 0 && errno == EINTR)) {
    count = recv(*(int *)arg, large, sizeof(large), 0);
    nbytes += count > 0 ? (size_t)count : 0;
  }
  *(int *)arg = (int)nbytes;
  return NULL;
}

/* Over tcp, a connection that is closed while something that has come is unread takes back what has
 * not arrived. */
static void what_is_sent_last_arrives_beside_what_is_not_read(void) {
  static char reply[(size_t)4 << 20];
  for (int kind = TCP; kind <= IPC; kind++) {
    pthread_t reader;
    start(kind, 16);
    const int fd = open_named(READY_OF_ME, sizeof(READY_OF_ME) - 1);
    SERVE_UNTIL(link_count() == 1 && sockets.plain.links.unready_count == 0);
    const gpufi_frame frames[] = {{"me", 2}, {reply, sizeof(reply)}};
    gpufi_links_send(&sockets.plain.links, GPUFI_SHELL, frames, 2, NULL, 0);
    write_many(fd, "\0\1x", 4, 1000);
    int nbytes = fd;
    CHECK(pthread_create(&reader, NULL, read_late, &nbytes) == 0);
    gpufi_sockets_close(&sockets);
    pthread_join(reader, NULL);
    CHECK(nbytes == 64 + 30 + 9 + (int)sizeof(reply));
    close(fd);
    stop();
  }
}

/* --- Addresses ----------------------------------------------------------------- */

/* Another's socket is neither replaced nor removed, whichever of the five paths it has. */
static void a_living_socket_is_left_alone(void) {
  start(IPC, 16);
  for (int taken = 0; taken < GPUFI_SOCKET_COUNT; taken++) {
    static gpufi_sockets others;
    gpufi_connection other = connection;
    memset(other.socket_inodes, 0, sizeof(other.socket_inodes));
    other.has_sockets = false;
    for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
      other.ports[i] = i == taken ? connection.ports[0] : 10 + i;
    }
    CHECK(gpufi_sockets_open(&others, &other, 16, &err) == GPUF_ERR_IO);
    CHECK(err.native_code == EADDRINUSE && strstr(err.message, "somebody listens there"));
    gpufi_ipc_remove(other.ip, other.ports, other.socket_inodes, GPUFI_SOCKET_COUNT);
  }
  gpufi_ipc_remove(connection.ip, connection.ports, NULL, GPUFI_SOCKET_COUNT);
  const int fd = connect_by_hand(&connection, GPUFI_SHELL);
  SERVE_UNTIL(link_count() == 1);
  close(fd);
  stop();
  start(IPC, 16); /* what nobody listens at any more is replaced */
  stop();
}

/* What another program does that starts at the same address, slowly. */
static void *listen_slowly(void *arg) {
  const int *fds = arg; /* of the socket, which is bound, and of the folder's lock */
  gpufi_sleep_ns(200 * INT64_C(1000000));
  CHECK(listen(fds[0], 1) == 0);
  close(fds[1]);
  return NULL;
}

#define LONG_NS (10 * INT64_C(1000000000))

/* A kernel manager's file FOLDER/given.json, which asks for sockets FOLDER/s/s-1 to -5. */
static const char *write_given(const char *folder) {
  static char path[64];
  snprintf(path, sizeof(path), "%s/given.json", folder);
  FILE *file = fopen(path, "w");
  CHECK(file != NULL);
  fprintf(file,
          "{\"transport\": \"ipc\", \"ip\": \"%s/s/s\", \"key\": \"k\", \"shell_port\": 1, "
          "\"iopub_port\": 2, \"stdin_port\": 3, \"control_port\": 4, \"hb_port\": 5}",
          folder);
  CHECK(fclose(file) == 0);
  return path;
}

static void a_socket_that_does_not_listen_yet_is_waited_for(void) {
  char folder[] = "/tmp/test-gpufetch-XXXXXX", of_sockets[64];
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  static gpufi_sockets none;
  static gpufi_connection own;
  pthread_t other;
  int fds[2] = {socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), -1};
  CHECK(mkdtemp(folder) != NULL);
  const char *given = write_given(folder);
  snprintf(of_sockets, sizeof(of_sockets), "%s/s", folder);
  snprintf(address.sun_path, sizeof(address.sun_path), "%s/s/s-1", folder);
  CHECK(mkdir(of_sockets, 0700) == 0);
  CHECK_OK(gpufi_folder_lock(of_sockets, LONG_NS, &fds[1], &err));
  CHECK(bind(fds[0], (const struct sockaddr *)&address, sizeof(address)) == 0);
  CHECK(pthread_create(&other, NULL, listen_slowly, fds) == 0);
  CHECK_OK(gpufi_connection_claim(&own, "n", given, &err));
  CHECK(gpufi_sockets_open(&none, &own, 16, &err) == GPUF_ERR_IO);
  CHECK(err.native_code == EADDRINUSE && strstr(err.message, "somebody listens there"));
  gpufi_sockets_close(&none);
  gpufi_connection_fini(&own);
  pthread_join(other, NULL);
  close(fds[0]);
  CHECK(unlink(address.sun_path) == 0 && rmdir(of_sockets) == 0);
  CHECK(unlink(given) == 0 && rmdir(folder) == 0);
}

/* Whoever can open a folder can lock it, for as long as they like. */
static void a_lock_that_nobody_gives_up_costs_a_start_a_second(void) {
  char folder[] = "/tmp/test-gpufetch-XXXXXX", of_sockets[64];
  static gpufi_sockets opened;
  static gpufi_connection own;
  int fd;
  CHECK(mkdtemp(folder) != NULL);
  const char *given = write_given(folder);
  snprintf(of_sockets, sizeof(of_sockets), "%s/s", folder);
  CHECK(mkdir(of_sockets, 0700) == 0);
  CHECK_OK(gpufi_folder_lock(of_sockets, LONG_NS, &fd, &err));
  const int64_t began_ns = gpufi_clock_ns();
  CHECK_OK(gpufi_connection_claim(&own, "n", given, &err));
  CHECK_OK(gpufi_sockets_open(&opened, &own, 16, &err));
  CHECK(gpufi_clock_ns() - began_ns < 4 * INT64_C(1000000000));
  gpufi_sockets_close(&opened);
  gpufi_folder_unlock(&fd);
  gpufi_connection_fini(&own);
  CHECK(rmdir(of_sockets) == 0 && unlink(given) == 0 && rmdir(folder) == 0);
}

/* A child has the descriptor of a lock that another thread holds while it is forked. */
static void a_forked_child_keeps_no_lock(void) {
  char folder[] = "/tmp/test-gpufetch-XXXXXX";
  int fd;
  CHECK(mkdtemp(folder) != NULL);
  CHECK_OK(gpufi_folder_lock(folder, LONG_NS, &fd, &err));
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  gpufi_folder_unlock(&fd);
  const int64_t began_ns = gpufi_clock_ns();
  CHECK_OK(gpufi_folder_lock(folder, LONG_NS, &fd, &err));
  const int64_t took_ns = gpufi_clock_ns() - began_ns;
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  CHECK(took_ns < LONG_NS / 2);
  gpufi_folder_unlock(&fd);
  CHECK(rmdir(folder) == 0);
}

static void a_given_file_is_there_again_where_the_server_does_not_start(void) {
  char folder[] = "/tmp/test-gpufetch-XXXXXX", text[4096] = "";
  static gpufi_connection own;
  CHECK(mkdtemp(folder) != NULL);
  const char *given = write_given(folder);
  CHECK_OK(gpufi_connection_claim(&own, "n", given, &err));
  CHECK_OK(gpufi_connection_write(&own, false, &err));
  gpufi_connection_fini(&own);
  FILE *file = fopen(given, "r");
  CHECK(file != NULL && fread(text, 1, sizeof(text) - 1, file) > 0 && fclose(file) == 0);
  CHECK(strstr(text, "\"hb_port\": 5") && !strstr(text, "process_id"));
  /* Where it has started, the file goes with it. */
  CHECK_OK(gpufi_connection_claim(&own, "n", given, &err));
  CHECK_OK(gpufi_connection_write(&own, false, &err));
  gpufi_connection_keep(&own);
  gpufi_connection_fini(&own);
  CHECK(access(given, F_OK) != 0 && rmdir(folder) == 0);
}

/* A subscriber for which something has waited for long, though it takes a little now and then, and
 * one that takes all. */
static void who_reads_too_slowly_is_told_from_who_reads(void) {
  static char reply[(size_t)1 << 20];
  char some[4096];
  for (int kind = TCP; kind <= IPC; kind++) {
    int fds[2];
    start(kind, 16);
    for (int i = 0; i < 2; i++) {
      fds[i] = connect_by_hand(&connection, GPUFI_IOPUB);
      shake_hands(fds[i], "SUB");
      CHECK(gpufi_write(fds[i], "\0\1\1", 3));
      SERVE_UNTIL(subscribed_count == i + 1);
    }
    gpufi_link *quick = sockets.plain.links.list[1];
    const int64_t began_ns = gpufi_clock_ns();
    for (int i = 0; i < 24; i++) {
      const gpufi_frame frames[] = {{"t", 1}, {reply, sizeof(reply)}};
      gpufi_links_publish(&sockets.plain.links, frames, 2, NULL, 0);
      CHECK(!has_ended(fds[1]) && recv(fds[0], some, sizeof(some), MSG_DONTWAIT) > 0);
      SERVE_UNTIL(!has_ended(fds[1]) && !quick->first);
    }
    const int64_t now_ns = gpufi_clock_ns();
    CHECK(!gpufi_sockets_cut_stalled(&sockets, GPUFI_SHELL, now_ns, 0));
    CHECK(!gpufi_sockets_cut_stalled(&sockets, GPUFI_IOPUB, began_ns, 0));
    CHECK(link_count() == 2);
    CHECK(gpufi_sockets_cut_stalled(&sockets, GPUFI_IOPUB, now_ns, 0));
    CHECK(link_count() == 1 && quick->fd >= 0);
    close(fds[0]);
    close(fds[1]);
    stop();
  }
}

/* The program's own sockets of the same number, which a forked child keeps. */
static void only_the_servers_sockets_count_as_its_own(void) {
  const int types[] = {SOCK_DGRAM, SOCK_STREAM};
  start(TCP, 16);
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)connection.ports[GPUFI_SHELL])};
  for (int i = 0; i < 2; i++) {
    address.sin_addr.s_addr = htonl(i == 0 ? INADDR_LOOPBACK : INADDR_LOOPBACK + 1);
    const int fd = socket(AF_INET, types[i] | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(!gpufi_address_is_of(&connection, GPUFI_SHELL, fd));
    close(fd);
  }
  CHECK(gpufi_address_is_of(&connection, GPUFI_SHELL, sockets.plain.listeners[GPUFI_SHELL]));
  CHECK(!gpufi_address_is_of(&connection, GPUFI_IOPUB, sockets.plain.listeners[GPUFI_SHELL]));
  stop();
}

static void addresses_of_no_host_are_refused(void) {
  const char *const ips[] = {"224.0.0.1", "255.255.255.255", "8.8.8.8", "nosuch0"};
  for (size_t i = 0; i < sizeof(ips) / sizeof(ips[0]); i++) {
    static gpufi_sockets none;
    gpufi_connection other = {.is_ipc = false};
    snprintf(other.ip, sizeof(other.ip), "%s", ips[i]);
    CHECK(gpufi_sockets_open(&none, &other, 16, &err) == GPUF_ERR_IO);
    CHECK(strstr(err.message, "give an IPv4 address of this host") != NULL);
  }
}

/* All of a message's frames are echoed, to a ZeroMQ socket of either type. */
static void the_heartbeat_echoes(void) {
  for (int kind = 0; kind < KIND_COUNT; kind++) {
    char text[8];
    start(kind, 16);
    void *client = open_client(ZMQ_REQ, GPUFI_HEARTBEAT);
    for (int i = 0; i < 3; i++) {
      zmq_pollitem_t item = {client, 0, ZMQ_POLLIN, 0};
      CHECK(TEMP_FAILURE_RETRY(zmq_send(client, "ping", 4, 0)) == 4);
      SERVE_UNTIL(zmq_poll(&item, 1, 0) == 1);
      CHECK(TEMP_FAILURE_RETRY(zmq_recv(client, text, sizeof(text), 0)) == 4);
    }
    zmq_close(client);
    stop();
  }
}

/* With CurveZMQ, too, topics that are taken back do not count, whoever else has them. */
static void topics_that_are_taken_back_do_not_count(void) {
  start(CURVE, 16);
  void *other = open_client(ZMQ_SUB, GPUFI_IOPUB), *one = open_client(ZMQ_SUB, GPUFI_IOPUB);
  CHECK(zmq_setsockopt(other, ZMQ_SUBSCRIBE, "t", 1) == 0);
  SERVE_UNTIL(subscribed_count == 1);
  for (int i = 0; i < 2 * GPUFI_TOPICS_MAX; i++) {
    CHECK(zmq_setsockopt(one, ZMQ_SUBSCRIBE, "t", 1) == 0);
    SERVE_UNTIL(subscribed_count == 2 + i);
    CHECK(zmq_setsockopt(one, ZMQ_UNSUBSCRIBE, "t", 1) == 0);
  }
  CHECK(log_count == 0 && sockets.curve.peers.count == 2);
  zmq_close(one);
  SERVE_UNTIL(sockets.curve.peers.count == 1);
  CHECK(zmq_setsockopt(other, ZMQ_SUBSCRIBE, "u", 1) == 0);
  SERVE_UNTIL(subscribed_count == 2 + 2 * GPUFI_TOPICS_MAX);
  CHECK(log_count == 0);
  zmq_close(other);
  stop();
}

int main(void) {
  TEST(closed_sockets_hold_no_payload);
  TEST(what_was_sent_last_arrives);
  TEST(an_end_beside_much_to_read_ends_no_process);
  TEST(a_lack_of_descriptors_closes_what_connects_and_nothing_else);
  TEST(connections_past_the_limit_are_closed);
  TEST(messages_without_an_end_are_held_up_to_a_limit);
  TEST(each_misuse_costs_its_connection_and_no_other);
  TEST(a_client_takes_the_place_of_its_earlier_connection);
  TEST(all_requests_of_a_client_that_has_closed_are_read);
  TEST(what_is_sent_last_arrives_beside_what_is_not_read);
  TEST(a_living_socket_is_left_alone);
  TEST(a_socket_that_does_not_listen_yet_is_waited_for);
  TEST(a_lock_that_nobody_gives_up_costs_a_start_a_second);
  TEST(a_forked_child_keeps_no_lock);
  TEST(a_given_file_is_there_again_where_the_server_does_not_start);
  TEST(who_reads_too_slowly_is_told_from_who_reads);
  TEST(only_the_servers_sockets_count_as_its_own);
  TEST(addresses_of_no_host_are_refused);
  TEST(the_heartbeat_echoes);
  TEST(topics_that_are_taken_back_do_not_count);
  return test_finish();
}
