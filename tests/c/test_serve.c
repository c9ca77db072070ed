/* Starting and stopping servers: what is refused, what is left behind, and names that come and go
 * while others read. What clients see is tested from Python, by Jupyter's own tools. */
#include <gpufetch/serve.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "by_hand.h"
#include "entries.h"
#include "structs.h"

static gpuf_error err;
static char folder[] = "/tmp/gpufetch-test-XXXXXX";

static gpuf_server *start(const gpuf_server_options *options) {
  gpuf_server *server = NULL;
  CHECK_OK(gpuf_server_start(options, &server, &err));
  return server;
}

static void a_server_leaves_no_file_descriptor_or_thread(void) {
  gpuf_server_stop(start(NULL), &err);
  const int files = count_entries(folder), descriptors = count_entries("/proc/self/fd");
  const int threads = count_entries("/proc/self/task");
  for (int i = 0; i < 10; i++) {
    const gpuf_server_options options = {.struct_nbytes = sizeof(options),
                                         .transport = i % 2 ? "ipc" : "tcp"};
    gpuf_server *server = start(&options);
    CHECK(access(gpuf_server_connection_file(server), F_OK) == 0);
    CHECK_OK(gpuf_server_stop(server, &err));
  }
  CHECK(count_entries(folder) == files);
  CHECK(count_entries("/proc/self/fd") == descriptors);
  CHECK(count_entries("/proc/self/task") == threads);
}

static void a_server_is_named_after_the_program_or_numbered(void) {
  gpuf_server *first = start(NULL), *second = start(NULL);
  CHECK(strcmp(gpuf_server_name(first), "test_serve") == 0);
  CHECK(strcmp(gpuf_server_name(second), "test_serve-2") == 0);
  CHECK_OK(gpuf_server_stop(first, &err));
  CHECK_OK(gpuf_server_stop(second, &err));
}

static void options_that_do_not_fit_are_refused(void) {
  static const struct {
    gpuf_server_options options;
    const char *text;
  } bad[] = {
      {{sizeof(gpuf_server_options), .name = ""}, "name"},
      {{sizeof(gpuf_server_options), .name = "../up"}, "name"},
      {{sizeof(gpuf_server_options), .transport = "pgm"}, "transport"},
      {{sizeof(gpuf_server_options), .first_port = 65532}, "first_port"},
      {{sizeof(gpuf_server_options), .transport = "ipc", .first_port = 5000}, "first_port"},
      {{sizeof(gpuf_server_options), .reply_max_nbytes = 1000}, "reply_max_nbytes"},
      {{sizeof(gpuf_server_options), .comms_max = -1}, "comms_max"},
      {{sizeof(gpuf_server_options), .connections_max = -1}, "connections_max"},
      {{sizeof(gpuf_server_options), .connections_max = 65537}, "connections_max"},
      {{sizeof(gpuf_server_options), .step_share = 2}, "step_share"},
  };
  gpuf_server *server = NULL;
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    CHECK_FAILS(gpuf_server_start(&bad[i].options, &server, &err), GPUF_ERR_INVALID, bad[i].text);
    CHECK(!server);
  }
  CHECK_OK(gpuf_server_stop(NULL, &err));
}

static gpuf_status start_and_stop(void *given) {
  gpuf_server *server = NULL;
  const gpuf_status status = gpuf_server_start(given, &server, &err);
  CHECK((server != NULL) == (status == GPUF_OK));
  return status == GPUF_OK ? gpuf_server_stop(server, &err) : status;
}

static gpuf_server *publisher;

static gpuf_status publish_some(void *given) {
  static float values[4];
  const int64_t shape[1] = {4};
  gpuf_tensor tensor;
  CHECK_OK(gpuf_tensor_init(&tensor, values, cpu_device, GPUF_DTYPE_FLOAT32, 1, shape, &err));
  return gpuf_server_publish(publisher, "x", &tensor, given, &err);
}

static void structs_of_other_versions_are_taken(void) {
  const versioned serve = {sizeof(gpuf_server_options), "GPUF_SERVER_OPTIONS_INIT", start_and_stop};
  const versioned publish = {sizeof(gpuf_publish_options), "GPUF_PUBLISH_OPTIONS_INIT",
                             publish_some};
  check_versions(&serve);
  publisher = start(NULL);
  check_versions(&publish);
  CHECK_OK(gpuf_server_stop(publisher, &err));
}

static void a_failed_start_leaves_nothing(void) {
  const gpuf_server_options nowhere = {.struct_nbytes = sizeof(nowhere),
                                       .connection_file = "/nonexistent/kernel.json"};
  const gpuf_server_options no_address = {.struct_nbytes = sizeof(no_address), .ip = "203.0.113.1"};
  gpuf_server *server = NULL;
  const int files = count_entries(folder), descriptors = count_entries("/proc/self/fd");
  CHECK_FAILS(gpuf_server_start(&nowhere, &server, &err), GPUF_ERR_IO, "/nonexistent");
  CHECK_FAILS(gpuf_server_start(&no_address, &server, &err), GPUF_ERR_IO, "203.0.113.1");
  CHECK(count_entries(folder) == files);
  CHECK(count_entries("/proc/self/fd") == descriptors);
}

static void count_warnings(void *count, const char *line) {
  *(int *)count += strstr(line, "without CurveZMQ") != NULL;
}

static void listening_to_other_hosts_without_curve_is_logged(void) {
  static const struct {
    const char *ip;
    bool curve;
    int warning_count;
  } cases[] = {{"0.0.0.0", false, 1},
               {"0.0.0.0", true, 0},
               {"127.0.0.1", false, 0},
               {"127.0.0.2", false, 0},
               {NULL, false, 0}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    int count = 0;
    const gpuf_server_options options = {.struct_nbytes = sizeof(options),
                                         .ip = cases[i].ip,
                                         .curve = cases[i].curve,
                                         .log = count_warnings,
                                         .log_arg = &count};
    CHECK_OK(gpuf_server_stop(start(&options), &err));
    CHECK(count == cases[i].warning_count);
  }
}

/* --- Publishing ---------------------------------------------------------------- */

static void count_release(void *count) {
  atomic_fetch_add((atomic_int *)count, 1);
}

static void a_published_tensor_is_released_once_replaced_withdrawn_or_stopped(void) {
  float values[8] = {0};
  const int64_t shape[] = {8};
  gpuf_tensor tensor;
  atomic_int count;
  atomic_init(&count, 0);
  const gpuf_publish_options options = {
      .struct_nbytes = sizeof(options), .release = count_release, .release_arg = &count};
  gpuf_server *server = start(NULL);
  CHECK_OK(gpuf_tensor_init(&tensor, values, cpu_device, GPUF_DTYPE_FLOAT32, 1, shape, &err));
  CHECK_OK(gpuf_server_publish(server, "x", &tensor, &options, &err));
  CHECK_OK(gpuf_server_publish(server, "y", &tensor, &options, &err));
  CHECK(atomic_load(&count) == 0);
  CHECK_OK(gpuf_server_publish(server, "x", &tensor, &options, &err));
  CHECK(atomic_load(&count) == 1);
  CHECK_OK(gpuf_server_unpublish(server, "x", 0, &err));
  CHECK(atomic_load(&count) == 2);
  CHECK_FAILS(gpuf_server_unpublish(server, "x", 0, &err), GPUF_ERR_INVALID, "x");
  CHECK_OK(gpuf_server_stop(server, &err));
  CHECK(atomic_load(&count) == 3);
}

/* A callback that tries to stop the server that it is called by. */
typedef struct stopper {
  gpuf_server *_Atomic server;
  atomic_int count;
  gpuf_status status;
  gpuf_error err;
} stopper;

static void stop_from_callback(void *arg) {
  stopper *own = arg;
  own->status = gpuf_server_stop(own->server, &own->err);
  atomic_fetch_add(&own->count, 1);
}

static void stop_from_log(void *arg, const char *line) {
  CHECK(*line);
  stop_from_callback(arg);
}

static void check_refused(stopper *own) {
  CHECK(own->status == GPUF_ERR_STATE && strstr(own->err.message, "callback"));
  CHECK_OK(gpuf_server_publish_int64(own->server, "n", 1, &err));
}

static void a_callback_within_a_call_cannot_stop_the_server(void) {
  float values[8] = {0};
  const int64_t shape[] = {8};
  gpuf_tensor tensor;
  stopper own = {.server = start(NULL)};
  const gpuf_publish_options options = {
      .struct_nbytes = sizeof(options), .release = stop_from_callback, .release_arg = &own};
  CHECK_OK(gpuf_tensor_init(&tensor, values, cpu_device, GPUF_DTYPE_FLOAT32, 1, shape, &err));
  CHECK_OK(gpuf_server_publish(own.server, "x", &tensor, &options, &err));
  CHECK_OK(gpuf_server_publish(own.server, "x", &tensor, &options, &err));
  CHECK(atomic_load(&own.count) == 1);
  check_refused(&own);
  CHECK_OK(gpuf_server_unpublish(own.server, "x", 0, &err));
  CHECK(atomic_load(&own.count) == 2);
  check_refused(&own);
  CHECK_OK(gpuf_server_publish(own.server, "x", &tensor, &options, &err));
  CHECK_OK(gpuf_server_stop(own.server, &err));
  CHECK(atomic_load(&own.count) == 3 && own.status == GPUF_ERR_STATE);
}

/* One server's callback may stop another server. */
static void a_callback_of_one_server_can_stop_another(void) {
  float values[8] = {0};
  const int64_t shape[] = {8};
  gpuf_tensor tensor;
  gpuf_server *first = start(NULL);
  stopper own = {.server = start(NULL)};
  const gpuf_publish_options options = {
      .struct_nbytes = sizeof(options), .release = stop_from_callback, .release_arg = &own};
  CHECK_OK(gpuf_tensor_init(&tensor, values, cpu_device, GPUF_DTYPE_FLOAT32, 1, shape, &err));
  CHECK_OK(gpuf_server_publish(first, "x", &tensor, &options, &err));
  CHECK_OK(gpuf_server_stop(first, &err));
  CHECK(atomic_load(&own.count) == 1 && own.status == GPUF_OK);
}

/* The port of shell, from a server's connection file. */
static int shell_port_of(const gpuf_server *server) {
  char text[4096] = "";
  int port = 0;
  FILE *file = fopen(gpuf_server_connection_file(server), "r");
  CHECK(file && fread(text, 1, sizeof(text) - 1, file) > 0);
  fclose(file);
  const char *member = strstr(text, "\"shell_port\":");
  CHECK(member && sscanf(member, "\"shell_port\": %d", &port) == 1);
  return port;
}

/* More connections than the server takes are logged on its thread. */
static void a_callback_on_the_servers_thread_cannot_stop_it(void) {
  stopper own = {.server = NULL};
  const gpuf_server_options options = {.struct_nbytes = sizeof(options),
                                       .transport = "tcp",
                                       .connections_max = 1,
                                       .log = stop_from_log,
                                       .log_arg = &own};
  gpuf_server *server = start(&options);
  own.server = server;
  const gpufi_connection connection = {.ports[GPUFI_SHELL] = shell_port_of(server)};
  int sockets[8];
  for (int i = 0; i < 8; i++) {
    sockets[i] = connect_by_hand(&connection, GPUFI_SHELL);
  }
  for (int i = 0; i < 10000 && atomic_load(&own.count) == 0; i++) {
    usleep(1000);
  }
  CHECK(atomic_load(&own.count) == 1);
  check_refused(&own);
  CHECK_OK(gpuf_server_stop(server, &err));
  for (int i = 0; i < 8; i++) {
    close(sockets[i]);
  }
}

static void what_cannot_be_published_is_refused(void) {
  char longer[GPUF_PUBLISH_NAME_MAX_NBYTES + 2], text[GPUF_PUBLISH_TEXT_MAX_NBYTES + 2];
  gpuf_tensor tensor = {.dtype = (gpuf_dtype)99};
  gpuf_server *server = start(NULL);
  memset(longer, 'n', sizeof(longer) - 1);
  longer[sizeof(longer) - 1] = '\0';
  memset(text, 't', sizeof(text) - 1);
  text[sizeof(text) - 1] = '\0';
  CHECK_FAILS(gpuf_server_publish(server, "x", &tensor, NULL, &err), GPUF_ERR_INVALID, "");
  CHECK_FAILS(gpuf_server_publish_int64(server, "", 1, &err), GPUF_ERR_INVALID, "name");
  CHECK_FAILS(gpuf_server_publish_float64(server, longer, 1, &err), GPUF_ERR_INVALID, "name");
  CHECK_FAILS(gpuf_server_publish_text(server, "note", text, &err), GPUF_ERR_INVALID, "4096");
  CHECK_FAILS(gpuf_server_publish_text(server, "note", "\xff", &err), GPUF_ERR_INVALID, "UTF-8");
  CHECK_OK(gpuf_server_publish_text(server, "note", text + 1, &err));
  CHECK_OK(gpuf_server_stop(server, &err));
}

/* A callback that publishes anew what was released. */
typedef struct republisher {
  gpuf_server *server;
  gpuf_tensor tensor;
  int count, refused_count;
} republisher;

static void publish_again(void *arg) {
  republisher *own = arg;
  const gpuf_publish_options options = {
      .struct_nbytes = sizeof(options), .release = publish_again, .release_arg = own};
  gpuf_error refused; /* `err` is that of the call which releases */
  const gpuf_status statuses[] = {
      gpuf_server_publish(own->server, "again", &own->tensor, &options, &refused),
      gpuf_server_publish_int64(own->server, "n", 1, &refused),
      gpuf_server_publish_float64(own->server, "n", 1, &refused),
      gpuf_server_publish_text(own->server, "n", "1", &refused),
      gpuf_server_publish_step(own->server, 1, 1, &refused),
  };
  own->count++;
  for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
    own->refused_count += statuses[i] == GPUF_ERR_STATE && strstr(refused.message, "stopped");
  }
}

/* Else it would never end. */
static void nothing_is_published_while_a_server_stops(void) {
  float values[8] = {0};
  const int64_t shape[] = {8};
  republisher own = {.server = start(NULL)};
  const gpuf_publish_options options = {
      .struct_nbytes = sizeof(options), .release = publish_again, .release_arg = &own};
  CHECK_OK(gpuf_tensor_init(&own.tensor, values, cpu_device, GPUF_DTYPE_FLOAT32, 1, shape, &err));
  CHECK_OK(gpuf_server_publish(own.server, "again", &own.tensor, &options, &err));
  CHECK_OK(gpuf_server_unpublish(own.server, "again", 0, &err));
  CHECK(own.count == 1 && own.refused_count == 0);
  alarm(60);
  CHECK_OK(gpuf_server_stop(own.server, &err));
  alarm(0);
  CHECK(own.count == 2 && own.refused_count == 5);
}

typedef struct tried_calls {
  gpuf_server *server;
  gpuf_status statuses[3];
} tried_calls;

static void server_kernel(const void *arg) {
  tried_calls *const tried = *(tried_calls *const *)arg;
  tried->statuses[0] = gpuf_server_publish_step(tried->server, 1, 0, NULL);
  tried->statuses[1] = gpuf_server_unpublish(tried->server, "n", -1, NULL);
  tried->statuses[2] = gpuf_server_stop(tried->server, NULL);
}

/* The calls may wait for a read that comes after the kernel. */
static void calls_in_a_kernel_that_may_wait_are_refused(void) {
  gpuf_stream stream;
  tried_calls tried = {.server = start(NULL)}, *const args = &tried;
  CHECK_OK(gpuf_server_publish_int64(tried.server, "n", 1, &err));
  CHECK_OK(gpuf_stream_create(host_device, &stream, &err));
  CHECK_OK(gpuf_host_launch(host_device, stream, server_kernel, &args, sizeof(args), &err));
  CHECK_OK(gpuf_stream_synchronize(host_device, stream, &err));
  for (int i = 0; i < 3; i++) {
    CHECK(tried.statuses[i] == GPUF_ERR_STATE);
  }
  CHECK_OK(gpuf_server_unpublish(tried.server, "n", 0, &err));
  CHECK_OK(gpuf_server_stop(tried.server, &err));
  CHECK_OK(gpuf_stream_destroy(host_device, stream, &err));
}

/* As many tensors as serve.h says, and devices that there are. */
static void a_tensor_too_many_or_of_no_device_is_refused(void) {
  float values[8] = {0};
  const int64_t shape[] = {8};
  char name[32];
  gpuf_tensor tensor;
  gpuf_server *server = start(NULL);
  CHECK_OK(gpuf_tensor_init(&tensor, values, cpu_device, GPUF_DTYPE_FLOAT32, 1, shape, &err));
  for (int i = 0; i < GPUF_PUBLISH_TENSORS_MAX; i++) {
    snprintf(name, sizeof(name), "t%d", i);
    CHECK_OK(gpuf_server_publish(server, name, &tensor, NULL, &err));
  }
  CHECK_FAILS(gpuf_server_publish(server, "more", &tensor, NULL, &err), GPUF_ERR_STATE,
              "the most at a time: unpublish some before more");
  tensor.device = (gpuf_device){GPUF_DEVICE_HOST, 77};
  CHECK_FAILS(gpuf_server_publish(server, "t0", &tensor, NULL, &err), GPUF_ERR_NO_DEVICE, "77");
  CHECK_OK(gpuf_server_stop(server, &err));
}

static atomic_bool is_over;

/* GPUF_ERR_INVALID, never a crash; and the getters give NULL. */
static void null_is_refused(void) {
  static float values[4];
  const int64_t shape[1] = {4};
  gpuf_tensor tensor;
  gpuf_server *server = start(NULL);
  CHECK_OK(gpuf_tensor_init(&tensor, values, cpu_device, GPUF_DTYPE_FLOAT32, 1, shape, &err));
  CHECK_FAILS(gpuf_server_start(NULL, NULL, &err), GPUF_ERR_INVALID, "server");
  CHECK_FAILS(gpuf_server_publish(NULL, "x", &tensor, NULL, &err), GPUF_ERR_INVALID, "server");
  CHECK_FAILS(gpuf_server_publish(server, NULL, &tensor, NULL, &err), GPUF_ERR_INVALID, "name");
  CHECK_FAILS(gpuf_server_publish(server, "x", NULL, NULL, &err), GPUF_ERR_INVALID, "tensor");
  CHECK_FAILS(gpuf_server_publish_int64(NULL, "n", 1, &err), GPUF_ERR_INVALID, "server");
  CHECK_FAILS(gpuf_server_publish_int64(server, NULL, 1, &err), GPUF_ERR_INVALID, "name is NULL");
  CHECK_FAILS(gpuf_server_publish_float64(NULL, "n", 1, &err), GPUF_ERR_INVALID, "server");
  CHECK_FAILS(gpuf_server_publish_text(NULL, "n", "t", &err), GPUF_ERR_INVALID, "server");
  CHECK_FAILS(gpuf_server_publish_text(server, "n", NULL, &err), GPUF_ERR_INVALID, "text");
  CHECK_FAILS(gpuf_server_publish_step(NULL, 1, 0, &err), GPUF_ERR_INVALID, "server");
  CHECK_FAILS(gpuf_server_unpublish(NULL, "x", 0, &err), GPUF_ERR_INVALID, "server");
  CHECK_FAILS(gpuf_server_unpublish(server, NULL, 0, &err), GPUF_ERR_INVALID, "name");
  CHECK(!gpuf_server_name(NULL) && !gpuf_server_connection_file(NULL));
  CHECK_OK(gpuf_server_stop(NULL, &err));
  CHECK_OK(gpuf_server_stop(server, &err));
}

static void *publish_and_step(void *server) {
  float values[8] = {0};
  const int64_t shape[] = {8};
  gpuf_tensor tensor;
  bool done =
      gpuf_tensor_init(&tensor, values, cpu_device, GPUF_DTYPE_FLOAT32, 1, shape, NULL) == GPUF_OK;
  for (int64_t step = 0; !atomic_load(&is_over) && done; step++) {
    done = gpuf_server_publish(server, "x", &tensor, NULL, NULL) == GPUF_OK &&
           gpuf_server_publish_int64(server, "step", step, NULL) == GPUF_OK &&
           gpuf_server_publish_step(server, step, (double)step, NULL) == GPUF_OK &&
           gpuf_server_unpublish(server, "x", -1, NULL) == GPUF_OK;
  }
  return done ? server : NULL;
}

static void names_come_and_go_while_servers_start_and_stop(void) {
  pthread_t thread;
  void *result = NULL;
  gpuf_server *server = start(NULL);
  atomic_store(&is_over, false);
  CHECK(pthread_create(&thread, NULL, publish_and_step, server) == 0);
  for (int i = 0; i < 5; i++) {
    gpuf_server_stop(start(NULL), NULL);
  }
  atomic_store(&is_over, true);
  pthread_join(thread, &result);
  CHECK(result == server);
  CHECK_OK(gpuf_server_stop(server, &err));
}

int main(void) {
  if (!mkdtemp(folder) || setenv("JUPYTER_RUNTIME_DIR", folder, 1) != 0) {
    return 1;
  }
  TEST(a_server_leaves_no_file_descriptor_or_thread);
  TEST(null_is_refused);
  TEST(a_server_is_named_after_the_program_or_numbered);
  TEST(options_that_do_not_fit_are_refused);
  TEST(structs_of_other_versions_are_taken);
  TEST(a_failed_start_leaves_nothing);
  TEST(listening_to_other_hosts_without_curve_is_logged);
  TEST(a_published_tensor_is_released_once_replaced_withdrawn_or_stopped);
  TEST(a_callback_within_a_call_cannot_stop_the_server);
  TEST(a_callback_of_one_server_can_stop_another);
  TEST(a_callback_on_the_servers_thread_cannot_stop_it);
  TEST(what_cannot_be_published_is_refused);
  TEST(nothing_is_published_while_a_server_stops);
  TEST(calls_in_a_kernel_that_may_wait_are_refused);
  TEST(a_tensor_too_many_or_of_no_device_is_refused);
  TEST(names_come_and_go_while_servers_start_and_stop);
  rmdir(folder);
  return test_finish();
}
