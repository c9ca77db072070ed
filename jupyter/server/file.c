#include "server/file.h"

#include "base/error.h"
#include "base/floating_point.h"
#include "base/system.h"
#include "server/address.h"
#include "server/ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#define FILE_MAX_NBYTES 65536

/* --- Reading ------------------------------------------------------------------- */

/* Whether nobody but this user, and root, can have written a file. */
static bool is_own(const struct stat *info) {
  return (info->st_uid == geteuid() || info->st_uid == 0) && !(info->st_mode & S_IWOTH);
}

static gpuf_status check_kind(const char *path, const struct stat *info, gpuf_error *err) {
  if (!S_ISREG(info->st_mode)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      S_ISDIR(info->st_mode) ? "%s is a folder: name a file in it"
                                             : "%s is no connection file, but a pipe or a device: "
                                               "name another file",
                      path);
  }
  return is_own(info) ? GPUF_OK
                      : gpufi_fail(err, GPUF_ERR_STATE, 0,
                                   "%s may have been written by another user, who would know its "
                                   "key: name another file or remove it",
                                   path);
}

/* jansson fails without a word where some of its allocations fail. */
static bool is_out_of_memory(const json_error_t *problem) {
  return !problem->text[0] || json_error_code(problem) == json_error_out_of_memory;
}

static gpuf_status parse(const char *path, int fd, json_t **file, gpuf_error *err) {
  char *text = malloc(FILE_MAX_NBYTES + 1);
  if (!text) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for the connection file %s", path);
  }
  gpuf_status status = GPUF_OK;
  const int64_t nbytes = gpufi_read(fd, text, FILE_MAX_NBYTES + 1);
  if (nbytes < 0) {
    status = gpufi_fail(err, GPUF_ERR_IO, errno, "cannot read %s: %s", path, strerror(errno));
  } else {
    json_error_t problem = {0};
    const bool fits = nbytes <= FILE_MAX_NBYTES;
    const gpufi_floating_point callers = gpufi_floating_point_begin();
    *file = fits ? json_loadb(text, (size_t)nbytes, 0, &problem) : NULL;
    gpufi_floating_point_end(callers);
    if (!*file && fits && is_out_of_memory(&problem)) {
      status = gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for the connection file %s", path);
    } else if (!json_is_object(*file)) {
      json_decref(*file);
      *file = NULL;
      status = gpufi_fail(err, GPUF_ERR_INVALID, 0,
                          "%s exists and is no connection file: it holds no JSON object of at most "
                          "64 KiB; name another file or remove it",
                          path);
    }
  }
  free(text);
  return status;
}

gpuf_status gpufi_file_load(const char *path, json_t **file, gpuf_error *err) {
  struct stat info;
  *file = NULL;
  const int fd = gpufi_open(path, O_RDONLY | O_NONBLOCK, 0);
  if (fd < 0 || fstat(fd, &info) != 0) {
    const int code = errno;
    if (fd >= 0) {
      gpufi_close(fd);
    }
    if (code == ENOENT && lstat(path, &info) == 0) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "%s is a link to a file that does not exist: name another file or remove "
                        "it",
                        path);
    }
    return code == ENOENT
               ? GPUF_OK
               : gpufi_fail(err, GPUF_ERR_IO, code, "cannot open %s: %s", path, strerror(code));
  }
  gpuf_status status = check_kind(path, &info, err);
  if (status == GPUF_OK) {
    status = parse(path, fd, file, err);
  }
  gpufi_close(fd);
  return status;
}

/* --- The server that wrote it -------------------------------------------------- */

void gpufi_file_host(char host[HOST_NAME_MAX + 1]) {
  if (gethostname(host, HOST_NAME_MAX + 1) != 0) {
    host[0] = '\0';
  }
  host[HOST_NAME_MAX] = '\0';
}

/* The process of a server on this machine, and when it started; false if the file is not of one. */
static bool local_process(const json_t *file, int64_t *process_id, uint64_t *start_time) {
  char host[HOST_NAME_MAX + 1];
  const json_t *server = json_object_get(file, "gpufetch");
  const char *there = json_string_value(json_object_get(server, "host"));
  *process_id = json_integer_value(json_object_get(server, "process_id"));
  *start_time = (uint64_t)json_integer_value(json_object_get(server, "start_time"));
  gpufi_file_host(host);
  return there && strcmp(there, host) == 0 && *process_id > 0 && *start_time != 0;
}

bool gpufi_file_is_alive(const json_t *file) {
  int64_t process_id;
  uint64_t start_time;
  return local_process(file, &process_id, &start_time) &&
         gpufi_process_start_time(process_id) == start_time;
}

bool gpufi_file_is_stale(const json_t *file) {
  int64_t process_id;
  uint64_t start_time;
  return local_process(file, &process_id, &start_time) &&
         gpufi_process_start_time(process_id) != start_time;
}

int64_t gpufi_file_process_id(const json_t *file) {
  return json_integer_value(json_object_get(json_object_get(file, "gpufetch"), "process_id"));
}

void gpufi_file_remove_sockets(const json_t *file) {
  const char *transport = json_string_value(json_object_get(file, "transport"));
  const char *prefix = json_string_value(json_object_get(file, "ip"));
  const int32_t numbers[GPUFI_SOCKET_COUNT] = {1, 2, 3, 4, 5};
  if (transport && strcmp(transport, "ipc") == 0 && prefix && strlen(prefix) < PATH_MAX) {
    gpufi_ipc_remove(prefix, numbers, NULL, GPUFI_SOCKET_COUNT);
  }
}

/* --- Settings ------------------------------------------------------------------ */

/* Take a member that is missing or a text that fits. */
static bool take_text(const json_t *file, const char *name, char *text, size_t nbytes) {
  const json_t *value = json_object_get(file, name);
  if (value && (!json_is_string(value) || json_string_length(value) >= nbytes)) {
    return false;
  }
  if (value) {
    memcpy(text, json_string_value(value), json_string_length(value) + 1);
  }
  return true;
}

/* Two sockets of ipc with one number would have one path, and the second would take it from the
 * first. */
static bool is_number_taken(const gpufi_connection *connection, int which) {
  for (int i = 0; i < which; i++) {
    if (connection->ports[i] == connection->ports[which]) {
      return true;
    }
  }
  return false;
}

static const char *take_ports(const json_t *file, gpufi_connection *connection) {
  for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
    char name[32];
    snprintf(name, sizeof(name), "%s_port", gpufi_socket_names[i]);
    const json_t *value = json_object_get(file, name);
    const json_int_t port = json_integer_value(value);
    if (!json_is_integer(value) || port < 0 || port > 65535) {
      return "one of its five ports is missing or not in 0 to 65535";
    }
    connection->ports[i] = (int32_t)port;
    if (connection->is_ipc && (port == 0 || is_number_taken(connection, i))) {
      return "the ports of its ipc sockets are not five different numbers from 1 on";
    }
  }
  return NULL;
}

static const char *take_address(const json_t *file, gpufi_connection *connection) {
  char transport[8] = "tcp";
  if (!take_text(file, "transport", transport, sizeof(transport)) ||
      (strcmp(transport, "tcp") != 0 && strcmp(transport, "ipc") != 0)) {
    return "its transport is neither tcp nor ipc";
  }
  connection->is_ipc = strcmp(transport, "ipc") == 0;
  if (!take_text(file, "ip", connection->ip, sizeof(connection->ip))) {
    return "its ip is no text, or too long";
  }
  if (connection->is_ipc && !connection->ip[0]) {
    return "it has no ip, with which the paths of ipc sockets begin";
  }
  if (!connection->ip[0]) {
    snprintf(connection->ip, sizeof(connection->ip), "127.0.0.1");
  }
  return connection->is_ipc ? NULL : gpufi_address_problem(connection->ip);
}

/* None, or a key and the one that belongs to it. */
static bool are_a_pair(const gpufi_connection *connection) {
  const char *secret = connection->curve_secretkey;
  char made[GPUFI_CURVE_KEY_NBYTES];
  return (!secret[0] && !connection->curve_publickey[0]) ||
         (strlen(secret) == GPUFI_CURVE_KEY_NBYTES - 1 && zmq_curve_public(made, secret) == 0 &&
          strcmp(made, connection->curve_publickey) == 0);
}

static const char *take_keys(const json_t *file, gpufi_connection *connection) {
  char scheme[16] = "hmac-sha256";
  if (!take_text(file, "signature_scheme", scheme, sizeof(scheme)) ||
      strcmp(scheme, "hmac-sha256") != 0) {
    return "its signature_scheme is not hmac-sha256";
  }
  if (!take_text(file, "key", connection->key, sizeof(connection->key)) || !connection->key[0]) {
    return "it has no key of 1 to 256 bytes";
  }
  if (!take_text(file, "curve_publickey", connection->curve_publickey, GPUFI_CURVE_KEY_NBYTES) ||
      !take_text(file, "curve_secretkey", connection->curve_secretkey, GPUFI_CURVE_KEY_NBYTES) ||
      !are_a_pair(connection)) {
    return "its curve_publickey and curve_secretkey are not a pair of CurveZMQ's keys";
  }
  return connection->is_ipc && connection->curve_secretkey[0]
             ? "it has keys of CurveZMQ, which are for tcp, and its transport is ipc"
             : NULL;
}

const char *gpufi_file_settings(const json_t *file, gpufi_connection *connection) {
  const char *problem = take_address(file, connection);
  problem = problem ? problem : take_ports(file, connection);
  return problem ? problem : take_keys(file, connection);
}
