/* The calls of gpufetch/serve.h. */
#include "base/error.h"
#include "base/fork.h"
#include "base/kernel_thread.h"
#include "base/struct.h"
#include "base/thread.h"
#include "server/address.h"
#include "server/await.h"
#include "server/headroom.h"
#include "server/inside.h"
#include "server/ipc.h"
#include "server/server.h"
#include "server/wake.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_MAX_NBYTES 48
#define REPLY_MAX_NBYTES ((size_t)256 << 20)
#define REPLY_MAX_LEAST_NBYTES ((size_t)16 << 20)
#define COMMS_MAX 1024
#define COMMS_MOST 65536
#define CONNECTIONS_MOST 65536

/* The servers that run, linked by `next`: their files are removed at exit. */
static pthread_mutex_t running_lock = PTHREAD_MUTEX_INITIALIZER;
static gpuf_server *running;
/* The process that started the first server; 0 before that. */
static atomic_int_least64_t serving_process_id;

/* --- At exit ------------------------------------------------------------------- */

static void remove_files(void) {
  if (pthread_mutex_trylock(&running_lock) == 0) { /* else a server is just starting or stopping */
    for (gpuf_server *server = running; server; server = server->next) {
      gpufi_connection_remove(&server->connection);
    }
    pthread_mutex_unlock(&running_lock);
  }
}

static void remove_files_at_exit(void) {
  atexit(remove_files);
}

static void add_running(gpuf_server *server) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, remove_files_at_exit);
  pthread_mutex_lock(&running_lock);
  server->next = running;
  running = server;
  pthread_mutex_unlock(&running_lock);
}

static void remove_running(gpuf_server *server) {
  pthread_mutex_lock(&running_lock);
  gpuf_server **link = &running;
  while (*link && *link != server) {
    link = &(*link)->next;
  }
  if (*link) {
    *link = server->next;
  }
  pthread_mutex_unlock(&running_lock);
}

/* A forked child inherits its parent's servers, but not their threads. */
static gpuf_status check_not_forked(gpuf_error *err) {
  const int64_t process_id = atomic_load(&serving_process_id);
  return process_id == 0 ? GPUF_OK : gpufi_check_process(process_id, err);
}

/* What every call on a server begins with. */
static gpuf_status check_server(const gpuf_server *server, gpuf_error *err) {
  GPUFI_REQUIRE(server, err);
  return gpufi_check_process(server->connection.process_id, err);
}

/* A read that is waited for may itself wait for the work behind a kernel. */
static gpuf_status check_no_kernel(gpuf_error *err) {
  return gpufi_in_kernel() ? gpufi_refuse_in_kernel(err) : GPUF_OK;
}

/* What the calls that wait for reads begin with. */
static gpuf_status check_waiting(const gpuf_server *server, gpuf_error *err) {
  const gpuf_status status = check_server(server, err);
  return status == GPUF_OK ? check_no_kernel(err) : status;
}

/* What the calls that publish begin with: what is released while the server stops may call them. */
static gpuf_status check_open(const gpuf_server *server, gpuf_error *err) {
  const gpuf_status status = check_server(server, err);
  return status == GPUF_OK && atomic_load(&server->is_closed)
             ? gpufi_fail(err, GPUF_ERR_STATE, 0,
                          "server '%s' is being stopped: publish before gpuf_server_stop, or start "
                          "another server",
                          server->connection.name)
             : status;
}

/* --- Options ------------------------------------------------------------------- */

static gpuf_status check_name(const char *name, gpuf_error *err) {
  static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
  const size_t nbytes = strlen(name);
  if (nbytes == 0 || nbytes > NAME_MAX_NBYTES || strspn(name, allowed) != nbytes) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the server's name '%.*s' is not 1 to %d of A-Z a-z 0-9 _ . -",
                      NAME_MAX_NBYTES, name, NAME_MAX_NBYTES);
  }
  return GPUF_OK;
}

/* Sockets that only their owner can open, unless the program asked for an address, or for CurveZMQ,
 * which those do not need. */
static bool wants_ipc(const gpuf_server_options *options) {
  return options->transport ? strcmp(options->transport, "ipc") == 0
                            : !options->ip && options->first_port == 0 && !options->curve;
}

static gpuf_status check_address(const gpuf_server_options *options, gpuf_error *err) {
  if (options->transport && strcmp(options->transport, "tcp") != 0 &&
      strcmp(options->transport, "ipc") != 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "transport '%.20s' is neither tcp nor ipc",
                      options->transport);
  }
  if (options->first_port < 0 || options->first_port > 65536 - GPUFI_SOCKET_COUNT) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "first_port %" PRId32 " is not 0 or the first of five ports",
                      options->first_port);
  }
  if (options->first_port != 0 && wants_ipc(options)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "first_port %" PRId32 " is for tcp: leave it 0, or do not ask for ipc",
                      options->first_port);
  }
  if (options->curve && wants_ipc(options)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "curve is for tcp: the sockets of ipc are open to their owner alone; leave "
                      "out curve, or do not ask for ipc");
  }
  if (options->ip && strlen(options->ip) > 255) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "ip '%.40s...' is no address", options->ip);
  }
  const char *problem =
      options->ip && !wants_ipc(options) ? gpufi_address_problem(options->ip) : NULL;
  return problem ? gpufi_fail(err, GPUF_ERR_INVALID, 0, "ip '%s': %s", options->ip, problem)
                 : GPUF_OK;
}

static gpuf_status check_options(const gpuf_server_options *options, gpuf_error *err) {
  if (options->reply_max_nbytes && options->reply_max_nbytes < REPLY_MAX_LEAST_NBYTES) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "reply_max_nbytes %zu holds no replies: take %zu or more, or 0",
                      options->reply_max_nbytes, REPLY_MAX_LEAST_NBYTES);
  }
  if (!isgreaterequal(options->step_share, 0) || !islessequal(options->step_share, 1)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "step_share %g is not in 0 to 1",
                      options->step_share);
  }
  if (options->comms_max < 0 || options->comms_max > COMMS_MOST) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "comms_max %" PRId32 " is not in 0 to %d",
                      options->comms_max, COMMS_MOST);
  }
  if (options->connections_max < 0 || options->connections_max > CONNECTIONS_MOST) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "connections_max %" PRId32 " is not in 0 to %d",
                      options->connections_max, CONNECTIONS_MOST);
  }
  return GPUF_OK;
}

/* The program's name, with '_' for characters that a server's name does not have. */
static void default_name(char name[NAME_MAX_NBYTES + 1]) {
  snprintf(name, NAME_MAX_NBYTES + 1, "%s", program_invocation_short_name);
  for (char *c = name; *c; c++) {
    const bool fits = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                      (*c >= '0' && *c <= '9') || *c == '_' || *c == '.' || *c == '-';
    *c = fits ? *c : '_';
  }
  if (!*name) {
    snprintf(name, NAME_MAX_NBYTES + 1, "gpufetch");
  }
}

/* Choose the addresses and a key, where no kernel manager has. */
static gpuf_status choose_addresses(gpufi_connection *connection,
                                    const gpuf_server_options *options, gpuf_error *err) {
  connection->is_ipc = wants_ipc(options);
  for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
    connection->ports[i] = connection->is_ipc    ? i + 1
                           : options->first_port ? options->first_port + i
                                                 : 0;
  }
  snprintf(connection->ip, sizeof(connection->ip), "%s", options->ip ? options->ip : "127.0.0.1");
  gpuf_status status = gpufi_random_hex(connection->key, 32, err);
  if (status == GPUF_OK && connection->is_ipc) {
    status = gpufi_ipc_make(connection->path, connection->ip, err);
    memcpy(connection->sockets, connection->ip, sizeof(connection->sockets));
    connection->has_sockets = status == GPUF_OK;
  }
  return status;
}

/* Fill in what a kernel manager's file has not set, from the options and the defaults. */
static gpuf_status complete_connection(gpufi_connection *connection,
                                       const gpuf_server_options *options, gpuf_error *err) {
  const bool is_given = connection->key[0] != '\0'; /* by a kernel manager */
  gpuf_status status = is_given ? GPUF_OK : choose_addresses(connection, options, err);
  if (status == GPUF_OK && options->curve && connection->is_ipc) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "curve is for tcp, and %.200s asks for ipc: leave out curve, or have the "
                      "kernel manager use tcp",
                      connection->path);
  }
  if (options->curve && !connection->curve_secretkey[0] &&
      zmq_curve_keypair(connection->curve_publickey, connection->curve_secretkey) != 0) {
    connection->curve_publickey[0] = connection->curve_secretkey[0] = '\0';
    status = gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                        "this libzmq has no CurveZMQ: leave out curve, or use ipc");
  }
  return status;
}

/* --- Start --------------------------------------------------------------------- */

static gpuf_status start_thread(gpuf_server *server, gpuf_error *err) {
  server->bridge.server = server;
  gpuf_status status = gpufi_bridge_start(&server->bridge, err);
  if (status != GPUF_OK) {
    return status;
  }
  const int code =
      gpufi_thread_start(&server->thread, "gpufetch-serve", 0, gpufi_server_main, server);
  if (code != 0) {
    status =
        gpufi_fail(err, GPUF_ERR_NO_MEMORY, code, "no thread for the server: %s", strerror(code));
    gpufi_bridge_stop(&server->bridge);
  }
  return status;
}

static gpuf_status init_bridge(gpuf_server *server, const gpuf_server_options *options,
                               gpuf_error *err) {
  const gpufi_dispatcher_options dispatcher_options = {
      .server_name = server->connection.name,
      .tensor_max = GPUF_PUBLISH_TENSORS_MAX,
      .client_max = options->comms_max ? options->comms_max : COMMS_MAX,
      .reply_memory_nbytes =
          options->reply_max_nbytes ? options->reply_max_nbytes : REPLY_MAX_NBYTES,
      .step_share = options->step_share,
  };
  return gpufi_bridge_init(&server->bridge, &server->endpoint, server->wake_fd, &dispatcher_options,
                           err);
}

static gpuf_status open_endpoint(gpuf_server *server, const gpuf_server_options *options,
                                 gpuf_error *err) {
  const int32_t peers_max =
      options->connections_max ? options->connections_max : gpufi_headroom_connections();
  return gpufi_endpoint_open(&server->endpoint, &server->connection, peers_max, err);
}

/* Other hosts, and whoever can see the network, can subscribe to what the server sends. */
static void warn_if_open(gpuf_server *server) {
  const gpufi_connection *connection = &server->connection;
  const bool is_local = connection->is_ipc || strncmp(connection->ip, "127.", 4) == 0;
  if (!is_local && !connection->curve_secretkey[0]) {
    char line[512];
    snprintf(line, sizeof(line),
             "listening on %.200s without CurveZMQ: everyone who can reach this address can read "
             "what clients are sent; set curve, or listen on 127.0.0.1 or ipc",
             connection->ip);
    gpufi_endpoint_log(&server->endpoint, line);
  }
}

/* The server can be released when this fails, whatever was done by then. */
static gpuf_status start(gpuf_server *server, const gpuf_server_options *options, const char *name,
                         gpuf_error *err) {
  gpufi_connection *connection = &server->connection;
  gpuf_status status = gpufi_headroom_check(err);
  if (status == GPUF_OK) {
    status = gpufi_connection_claim(connection, name, options->connection_file, err);
  }
  if (status == GPUF_OK) {
    status = complete_connection(connection, options, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_wake_open(&server->wake_fd, err);
  }
  if (status == GPUF_OK) {
    status = init_bridge(server, options, err);
  }
  if (status == GPUF_OK) {
    status = open_endpoint(server, options, err);
  }
  if (status == GPUF_OK) {
    warn_if_open(server);
    status = gpufi_connection_write(connection, options->jupyterlab, err);
  }
  if (status == GPUF_OK) {
    status = start_thread(server, err);
  }
  if (status == GPUF_OK) {
    gpufi_connection_keep(connection);
  }
  return status;
}

static gpuf_status release(gpuf_server *server, gpuf_error *err) {
  gpufi_connection_fini(&server->connection);
  gpufi_endpoint_close(&server->endpoint);
  const gpuf_status status = gpufi_bridge_fini(&server->bridge, err);
  if (server->wake_fd >= 0) {
    close(server->wake_fd);
  }
  free(server);
  return status;
}

gpuf_status gpuf_server_start(const gpuf_server_options *options, gpuf_server **server,
                              gpuf_error *err) {
  gpuf_server_options own;
  char name[NAME_MAX_NBYTES + 1];
  GPUFI_REQUIRE(server, err);
  default_name(name);
  gpuf_status status = check_not_forked(err);
  if (status == GPUF_OK) {
    status = gpufi_struct_read(&own, sizeof(own), options, "GPUF_SERVER_OPTIONS_INIT", err);
  }
  if (status == GPUF_OK) {
    status = check_address(&own, err);
  }
  if (status == GPUF_OK) {
    status = check_options(&own, err);
  }
  if (status == GPUF_OK && own.name) {
    status = check_name(own.name, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  gpuf_server *created = calloc(1, sizeof(*created));
  if (!created) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for a server");
  }
  created->wake_fd = -1;
  created->connection.lock_fd = created->connection.sockets_lock_fd = -1;
  created->endpoint.log = own.log;
  created->endpoint.log_arg = own.log_arg;
  created->kernel = (gpufi_kernel){
      .endpoint = &created->endpoint,
      .bridge = &created->bridge,
      .connection = &created->connection,
      .shutdown = own.shutdown,
      .shutdown_arg = own.shutdown_arg,
  };
  if (own.connection_file) {
    created->parent = gpufi_parent_find();
    created->kernel.is_managed = created->parent.process_id != 0;
    created->kernel.launch_time_ns = gpufi_parent_launch_time();
  }
  status = start(created, &own, own.name ? own.name : name, err);
  if (status != GPUF_OK) {
    release(created, NULL);
    return status;
  }
  atomic_store(&serving_process_id, getpid());
  add_running(created);
  *server = created;
  return GPUF_OK;
}

gpuf_status gpuf_server_stop(gpuf_server *server, gpuf_error *err) {
  if (!server) {
    return GPUF_OK;
  }
  gpuf_status status = check_waiting(server, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (gpufi_inside_of(server)) {
    return gpufi_fail(
        err, GPUF_ERR_STATE, 0,
        "gpuf_server_stop of '%s' in one of its callbacks, or on a thread of its own: "
        "let the callback set a flag, and stop the server on a thread of the "
        "program's",
        server->connection.name);
  }
  gpufi_inside inside; /* of what is released below: it cannot stop the server once more */
  gpufi_inside_enter(&inside, server);
  atomic_store(&server->is_closed, true);
  remove_running(server);
  /* First, so that a client that is told of the end finds no file to attach by once more, and
   * nobody a file whose ports may be another program's. */
  gpufi_connection_remove(&server->connection);
  gpufi_bridge_stop(&server->bridge);
  atomic_store(&server->is_stopping, true);
  gpufi_wake(server->wake_fd);
  pthread_join(server->thread, NULL);
  status = release(server, err);
  gpufi_inside_leave(&inside);
  return status;
}

/* --- Publishing ---------------------------------------------------------------- */

const char *gpuf_server_connection_file(const gpuf_server *server) {
  return server ? server->connection.path : NULL;
}
const char *gpuf_server_name(const gpuf_server *server) {
  return server ? server->connection.name : NULL;
}

gpuf_status gpuf_server_publish(gpuf_server *server, const char *name, const gpuf_tensor *tensor,
                                const gpuf_publish_options *options, gpuf_error *err) {
  gpuf_publish_options own;
  gpuf_status status = check_open(server, err);
  GPUFI_REQUIRE(tensor, err);
  if (status == GPUF_OK) {
    status = gpufi_struct_read(&own, sizeof(own), options, "GPUF_PUBLISH_OPTIONS_INIT", err);
  }
  if (status == GPUF_OK) {
    gpufi_inside inside;
    gpufi_inside_enter(&inside, server);
    status = gpufi_dispatcher_publish(server->bridge.dispatcher, name, tensor, &own, err);
    gpufi_inside_leave(&inside);
  }
  return status;
}

gpuf_status gpuf_server_publish_int64(gpuf_server *server, const char *name, int64_t value,
                                      gpuf_error *err) {
  const gpuf_status status = check_open(server, err);
  return status == GPUF_OK
             ? gpufi_dispatcher_publish_int64(server->bridge.dispatcher, name, value, err)
             : status;
}

gpuf_status gpuf_server_publish_float64(gpuf_server *server, const char *name, double value,
                                        gpuf_error *err) {
  const gpuf_status status = check_open(server, err);
  return status == GPUF_OK
             ? gpufi_dispatcher_publish_float64(server->bridge.dispatcher, name, value, err)
             : status;
}

gpuf_status gpuf_server_publish_text(gpuf_server *server, const char *name, const char *text,
                                     gpuf_error *err) {
  const gpuf_status status = check_open(server, err);
  GPUFI_REQUIRE(text, err);
  return status == GPUF_OK
             ? gpufi_dispatcher_publish_text(server->bridge.dispatcher, name, text, err)
             : status;
}

gpuf_status gpuf_server_unpublish(gpuf_server *server, const char *name, int64_t timeout_ns,
                                  gpuf_error *err) {
  gpuf_status status = check_waiting(server, err);
  if (status == GPUF_OK) {
    gpufi_inside inside;
    gpufi_inside_enter(&inside, server);
    status = gpufi_dispatcher_unpublish(server->bridge.dispatcher, name, timeout_ns, err);
    gpufi_inside_leave(&inside);
  }
  return status;
}

gpuf_status gpufi_server_await_unpublished(gpuf_server *server, const char *name,
                                           int64_t timeout_ns, gpuf_error *err) {
  const gpuf_status status = check_waiting(server, err);
  return status == GPUF_OK
             ? gpufi_dispatcher_await_unpublished(server->bridge.dispatcher, name, timeout_ns, err)
             : status;
}

gpuf_status gpuf_server_publish_step(gpuf_server *server, int64_t step, double time,
                                     gpuf_error *err) {
  gpuf_status status = check_open(server, err);
  if (status == GPUF_OK) {
    status = check_no_kernel(err);
  }
  if (status == GPUF_OK) {
    gpufi_inside inside;
    gpufi_inside_enter(&inside, server);
    gpufi_dispatcher_step(server->bridge.dispatcher, step, time);
    gpufi_inside_leave(&inside);
  }
  return status;
}
