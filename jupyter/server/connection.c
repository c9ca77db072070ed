#include "server/connection.h"

#include "base/error.h"
#include "base/system.h"
#include "comm/json.h"
#include "server/file.h"
#include "server/folder.h"
#include "server/ipc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SAME_NAME_MAX 99

const char *const gpufi_socket_names[GPUFI_SOCKET_COUNT] = {
    [GPUFI_SHELL] = "shell",     [GPUFI_IOPUB] = "iopub",  [GPUFI_STDIN] = "stdin",
    [GPUFI_CONTROL] = "control", [GPUFI_HEARTBEAT] = "hb",
};

/* A server that starts holds a lock for milliseconds; another user's program may hold it for as
 * long as it likes. */
#define LOCK_WAIT_NS INT64_C(5000000000)
#define SOCKETS_LOCK_WAIT_NS INT64_C(1000000000)
#define FOLDER_TAKES_MAX 10
#define UNFINISHED ".new"     /* how the name of a file ends that is being written */
#define UNFINISHED_MAX_S 3600 /* after which nobody writes it any more, on whatever host */

static void unlock_folders(gpufi_connection *connection) {
  gpufi_folder_unlock(&connection->lock_fd);
  gpufi_folder_unlock(&connection->sockets_lock_fd);
}

/* --- Claim --------------------------------------------------------------------- */

/* Take the folder of sockets whose paths were given, and lock it: a socket that is bound and does
 * not listen yet would look dead to another program that starts at the same address. A server that
 * stops may just remove the folder. */
static gpuf_status take_folder(gpufi_connection *connection, gpuf_error *err) {
  char folder[PATH_MAX];
  for (int i = 0; i < FOLDER_TAKES_MAX; i++) {
    const gpuf_status status =
        gpufi_ipc_take(connection->ip, connection->sockets, &connection->has_made_folder, err);
    if (status != GPUF_OK) {
      return status;
    }
    gpufi_folder_of(connection->sockets, folder);
    if (gpufi_folder_is_of(folder, connection->lock_fd)) {
      return GPUF_OK;
    }
    gpufi_folder_lock(folder, SOCKETS_LOCK_WAIT_NS, &connection->sockets_lock_fd, NULL);
    if (gpufi_folder_is_of(folder, connection->sockets_lock_fd)) {
      return GPUF_OK;
    }
    gpufi_folder_unlock(&connection->sockets_lock_fd);
  }
  return GPUF_OK; /* one that cannot be opened has no lock */
}

/* Take what a file says that was given: a kernel manager's for the kernel that it is about to
 * start, or that of a server before this one, where the manager starts it again. */
static gpuf_status take_settings(gpufi_connection *connection, const json_t *file,
                                 gpuf_error *err) {
  const char *problem = gpufi_file_settings(file, connection);
  if (problem) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "%s exists and is no connection file by which a server can listen: %s; name "
                      "another file or remove it",
                      connection->path, problem);
  }
  return connection->is_ipc ? take_folder(connection, err) : GPUF_OK;
}

static gpuf_status claim_file(gpufi_connection *connection, const char *file, gpuf_error *err) {
  char folder[PATH_MAX];
  if (!*file) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "connection_file is empty: name a file, or leave it out");
  }
  gpuf_status status = gpufi_path_absolute(file, connection->path, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_folder_of(connection->path, folder);
  status = gpufi_folder_lock(folder, LOCK_WAIT_NS, &connection->lock_fd, err);
  if (status != GPUF_OK) {
    return status;
  }
  json_t *old = NULL;
  status = gpufi_file_load(file, &old, err);
  if (status == GPUF_OK && gpufi_file_is_alive(old)) {
    status = gpufi_fail(err, GPUF_ERR_STATE, 0,
                        "%s belongs to a server that runs (process %" PRId64
                        "): stop it or name another file",
                        file, gpufi_file_process_id(old));
  } else if (status == GPUF_OK && old) {
    connection->given = gpufi_json_dump(old, JSON_INDENT(2));
    status = connection->given ? take_settings(connection, old, err)
                               : gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0,
                                            "no memory for the connection file %s", file);
  }
  json_decref(old);
  return status;
}

/* Whether the name of a file has to be left alone: the file is of a server that lives or may live,
 * or gpufetch did not write it, or it cannot be read; or the file is gone, and the sockets of such
 * a server are there. Those of a server that ended are removed. */
static bool is_taken(const char *path) {
  json_t *old = NULL;
  const bool is_read = gpufi_file_load(path, &old, NULL) == GPUF_OK;
  const bool is_stale = gpufi_file_is_stale(old);
  const bool is_missing = is_read && !old;
  if (is_stale) {
    gpufi_file_remove_sockets(old);
  }
  json_decref(old);
  return is_missing ? gpufi_ipc_is_in_use(path) : !is_stale;
}

static gpuf_status claim_name(gpufi_connection *connection, const char *name, gpuf_error *err) {
  char folder[PATH_MAX];
  char runtime[PATH_MAX];
  gpuf_status status = gpufi_folder_runtime(runtime, err);
  if (status == GPUF_OK) {
    status = gpufi_path_absolute(runtime, folder, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_folder_make(folder, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_folder_lock(folder, LOCK_WAIT_NS, &connection->lock_fd, err);
  }
  for (int number = 1; status == GPUF_OK && number <= SAME_NAME_MAX; number++) {
    char suffix[8] = "";
    if (number > 1) {
      snprintf(suffix, sizeof(suffix), "-%d", number);
    }
    const int name_nbytes =
        snprintf(connection->name, sizeof(connection->name), "%s%s", name, suffix);
    const int length =
        snprintf(connection->path, PATH_MAX, "%s/kernel-%s%s.json", folder, name, suffix);
    if (length >= PATH_MAX || name_nbytes >= (int)sizeof(connection->name)) {
      return gpufi_path_too_long(connection->path, err);
    }
    if (!is_taken(connection->path)) {
      return GPUF_OK;
    }
  }
  return status != GPUF_OK ? status
                           : gpufi_fail(err, GPUF_ERR_STATE, 0,
                                        "%d servers are named %s already: choose another name, or "
                                        "remove the files of servers on other machines that ended",
                                        SAME_NAME_MAX, name);
}

gpuf_status gpufi_connection_claim(gpufi_connection *connection, const char *name, const char *file,
                                   gpuf_error *err) {
  connection->lock_fd = connection->sockets_lock_fd = -1;
  connection->process_id = getpid();
  snprintf(connection->name, sizeof(connection->name), "%s", name);
  return file ? claim_file(connection, file, err) : claim_name(connection, name, err);
}

void gpufi_connection_url(const gpufi_connection *connection, gpufi_socket socket, char *url) {
  const int32_t port = connection->ports[socket];
  if (connection->is_ipc) {
    snprintf(url, PATH_MAX + 64, "ipc://%s-%d", connection->ip, (int)port);
  } else if (port == 0) {
    snprintf(url, PATH_MAX + 64, "tcp://%s:*", connection->ip);
  } else {
    snprintf(url, PATH_MAX + 64, "tcp://%s:%d", connection->ip, (int)port);
  }
}

/* --- Write and remove ---------------------------------------------------------- */

/* What the file says; NULL if there is no memory for all of it. */
static json_t *describe(const gpufi_connection *connection) {
  char host[HOST_NAME_MAX + 1], kernel_name[sizeof("gpufetch-") + GPUFI_NAME_MAX_NBYTES];
  gpufi_file_host(host);
  /* JupyterLab lists the kernel by this name, which no kernel specification has. */
  snprintf(kernel_name, sizeof(kernel_name), "gpufetch-%s", connection->name);
  json_t *server =
      json_pack("{ss ss ss sI sI}", "name", connection->name, "version", gpuf_version(), "host",
                host, "process_id", (json_int_t)connection->process_id, "start_time",
                (json_int_t)gpufi_process_start_time(connection->process_id));
  json_t *file = json_pack("{ss ss ss ss ss so}", "transport", connection->is_ipc ? "ipc" : "tcp",
                           "ip", connection->ip, "key", connection->key, "signature_scheme",
                           "hmac-sha256", "kernel_name", kernel_name, "gpufetch", server);
  for (int i = 0; i < GPUFI_SOCKET_COUNT; i++) {
    char name[32];
    snprintf(name, sizeof(name), "%s_port", gpufi_socket_names[i]);
    gpufi_json_put(&file, name, json_integer(connection->ports[i]));
  }
  if (connection->curve_secretkey[0]) {
    gpufi_json_put(&file, "curve_publickey", json_string(connection->curve_publickey));
    gpufi_json_put(&file, "curve_secretkey", json_string(connection->curve_secretkey));
  }
  return file;
}

/* Write `text` to a new file beside `path`, then give it that name. */
static bool replace_file(const char *path, const char *text, gpufi_written *written) {
  char fresh[PATH_MAX + 32];
  struct stat info;
  snprintf(fresh, sizeof(fresh), "%s.%ld" UNFINISHED, path, (long)getpid());
  unlink(fresh);
  const int fd = gpufi_open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  if (fd < 0) {
    return false;
  }
  const bool done = fchmod(fd, 0600) == 0 && gpufi_write(fd, text, strlen(text));
  int code = errno;
  if (!gpufi_close(fd) || !done || rename(fresh, path) != 0) {
    code = done ? errno : code;
    unlink(fresh);
    errno = code;
    return false;
  }
  /* Only now: a file system of another host's may give it the time when it is closed. */
  if (stat(path, &info) == 0) {
    *written = (gpufi_written){info.st_ino, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
  }
  return true;
}

/* external_kernels/kernel-NAME.json beside the file. */
static bool external_path(const gpufi_connection *connection, char path[PATH_MAX]) {
  char folder[PATH_MAX];
  gpufi_folder_of(connection->path, folder);
  const char *slash = strrchr(connection->path, '/');
  return snprintf(path, PATH_MAX, "%s/external_kernels/%s", folder,
                  slash ? slash + 1 : connection->path) < PATH_MAX;
}

/* A program that was killed while it wrote a file has left it. */
static bool is_unfinished(const char *path) {
  struct stat info;
  const size_t nbytes = strlen(path), end = strlen(UNFINISHED);
  return nbytes > end && strcmp(path + nbytes - end, UNFINISHED) == 0 && lstat(path, &info) == 0 &&
         S_ISREG(info.st_mode) && time(NULL) - info.st_mtime > UNFINISHED_MAX_S;
}

/* Remove the files that killed programs have left in a folder: JupyterLab would list them for
 * ever. */
static void remove_stale(const char *folder) {
  char path[PATH_MAX];
  DIR *entries = opendir(folder);
  for (struct dirent *entry; entries && (entry = readdir(entries)) != NULL;) {
    if (strncmp(entry->d_name, "kernel-", strlen("kernel-")) != 0 ||
        snprintf(path, PATH_MAX, "%s/%s", folder, entry->d_name) >= PATH_MAX) {
      continue;
    }
    if (is_unfinished(path)) {
      unlink(path);
      continue;
    }
    json_t *file = NULL;
    gpufi_file_load(path, &file, NULL);
    if (gpufi_file_is_stale(file)) {
      gpufi_file_remove_sockets(file);
      unlink(path);
    }
    json_decref(file);
  }
  if (entries) {
    closedir(entries);
  }
}

static gpuf_status write_file(const char *path, const char *text, const char *remedy,
                              gpufi_written *written, gpuf_error *err) {
  return replace_file(path, text, written)
             ? GPUF_OK
             : gpufi_fail(err, GPUF_ERR_IO, errno, "cannot write the connection file %s: %s; %s",
                          path, strerror(errno), remedy);
}

static gpuf_status write_external(gpufi_connection *connection, const char *text, gpuf_error *err) {
  char path[PATH_MAX], folder[PATH_MAX];
  if (!external_path(connection, path)) {
    return gpufi_path_too_long(connection->path, err);
  }
  gpufi_folder_of(path, folder);
  const gpuf_status status = gpufi_folder_make(folder, err);
  if (status != GPUF_OK) {
    return status;
  }
  remove_stale(folder);
  return write_file(path, text,
                    "the server's jupyterlab option asks for it: leave that out, or let the folder "
                    "be written",
                    &connection->external, err);
}

gpuf_status gpufi_connection_write(gpufi_connection *connection, bool external, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  json_t *file = describe(connection);
  char *text = gpufi_json_dump(file, JSON_INDENT(2));
  if (!text) {
    status = gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for a connection file");
  }
  if (status == GPUF_OK && external) {
    status = write_external(connection, text, err);
  }
  if (status == GPUF_OK) {
    status = write_file(connection->path, text,
                        "set JUPYTER_RUNTIME_DIR to a folder that can be written, or name a file "
                        "in the options",
                        &connection->written, err);
  }
  json_decref(file);
  free(text);
  unlock_folders(connection);
  return status;
}

static void remove_own(const char *path, gpufi_written *written) {
  struct stat info;
  if (written->inode && stat(path, &info) == 0 && info.st_ino == written->inode &&
      info.st_mtim.tv_sec == written->time_s && info.st_mtim.tv_nsec == written->time_ns) {
    unlink(path);
  }
  *written = (gpufi_written){0};
}

void gpufi_connection_remove(gpufi_connection *connection) {
  char path[PATH_MAX];
  if (connection->process_id != getpid()) {
    return; /* a forked child: the files are its parent's */
  }
  if (connection->has_sockets) {
    gpufi_ipc_remove(connection->sockets, connection->ports, connection->socket_inodes,
                     GPUFI_SOCKET_COUNT);
    connection->has_sockets = false;
  }
  if (connection->has_made_folder) {
    int fd;
    gpufi_folder_of(connection->sockets, path);
    gpufi_folder_lock(path, SOCKETS_LOCK_WAIT_NS, &fd, NULL); /* nobody is about to use it */
    rmdir(path); /* fails where something is left in it */
    gpufi_folder_unlock(&fd);
    connection->has_made_folder = false;
  }
  remove_own(connection->path, &connection->written);
  if (external_path(connection, path)) {
    remove_own(path, &connection->external);
  }
}

void gpufi_connection_keep(gpufi_connection *connection) {
  free(connection->given);
  connection->given = NULL;
}

void gpufi_connection_fini(gpufi_connection *connection) {
  const bool is_given = connection->given && connection->written.inode;
  gpufi_folder_unlock(&connection->sockets_lock_fd);
  gpufi_connection_remove(connection);
  if (is_given && access(connection->path, F_OK) != 0) {
    replace_file(connection->path, connection->given, &connection->written);
  }
  gpufi_connection_keep(connection);
  unlock_folders(connection);
}
