#include "server/ipc.h"

#include "base/error.h"
#include "server/folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define PATH_MAX_NBYTES 107           /* of a Unix socket */
#define SUFFIX "-ipc"                 /* of a folder beside the connection file */
#define SHORT_FOLDER "/tmp/gpufetch-" /* how the others begin */
#define LAST "/s"                     /* how a prefix ends */
#define NUMBER "-5"                   /* what follows it at most */
#define NUMBER_MAX 5

/* Whether the sockets' paths fit into a socket's address. */
static bool fits(const char *folder) {
  return strlen(folder) + strlen(LAST NUMBER) <= PATH_MAX_NBYTES;
}

/* A folder that a killed server has left is used again. */
static bool make_private(const char *folder) {
  struct stat info;
  if (mkdir(folder, 0700) == 0) {
    return true;
  }
  if (errno != EEXIST || lstat(folder, &info) != 0) {
    return false;
  }
  errno = EACCES;
  return S_ISDIR(info.st_mode) && info.st_uid == geteuid() && chmod(folder, 0700) == 0;
}

/* The folder beside a connection file; false if its path is too long. */
static bool beside(const char *connection_file, char folder[PATH_MAX]) {
  const size_t nbytes = strlen(connection_file);
  const bool is_json = nbytes > 5 && strcmp(connection_file + nbytes - 5, ".json") == 0;
  return snprintf(folder, PATH_MAX, "%.*s" SUFFIX, (int)(is_json ? nbytes - 5 : nbytes),
                  connection_file) < PATH_MAX;
}

/* Clients need not have the server's working folder: the path is absolute. `folder` is "" if it
 * would be too long. */
static gpuf_status make_beside(const char *connection_file, char folder[PATH_MAX],
                               gpuf_error *err) {
  char relative[PATH_MAX];
  folder[0] = '\0';
  if (!beside(connection_file, relative)) {
    return GPUF_OK;
  }
  if (!make_private(relative) || !realpath(relative, folder)) {
    return gpufi_fail(err, GPUF_ERR_IO, errno,
                      "cannot make the folder %.200s for the server's sockets: %s; remove it, or "
                      "serve over tcp (ip 127.0.0.1)",
                      relative, strerror(errno));
  }
  if (!fits(folder)) {
    rmdir(folder);
    folder[0] = '\0';
  }
  return GPUF_OK;
}

static gpuf_status make_short(char folder[PATH_MAX], gpuf_error *err) {
  snprintf(folder, PATH_MAX, "%sXXXXXX", SHORT_FOLDER);
  return mkdtemp(folder) ? GPUF_OK
                         : gpufi_fail(err, GPUF_ERR_IO, errno,
                                      "cannot make a folder %s for the server's sockets: %s; use a "
                                      "shorter JUPYTER_RUNTIME_DIR, or serve over tcp (ip "
                                      "127.0.0.1)",
                                      folder, strerror(errno));
}

gpuf_status gpufi_ipc_make(const char *connection_file, char prefix[PATH_MAX], gpuf_error *err) {
  gpuf_status status = make_beside(connection_file, prefix, err);
  if (status == GPUF_OK && !prefix[0]) {
    status = make_short(prefix, err);
  }
  if (status == GPUF_OK) {
    strncat(prefix, LAST, PATH_MAX - strlen(prefix) - 1);
  }
  return status;
}

gpuf_status gpufi_ipc_take(const char *given, char prefix[PATH_MAX], bool *has_made,
                           gpuf_error *err) {
  char folder[PATH_MAX];
  const char *slash = strrchr(given, '/');
  gpufi_folder_of(given, folder);
  *has_made = mkdir(folder, 0700) == 0;
  if ((!*has_made && errno != EEXIST) || !realpath(folder, prefix)) {
    return gpufi_fail(
        err, GPUF_ERR_IO, errno,
        "cannot make the folder %.200s for the server's sockets: %s; make it, or have "
        "the connection file name another",
        folder, strerror(errno));
  }
  const size_t nbytes = strlen(prefix);
  const int length = snprintf(prefix + nbytes, PATH_MAX - nbytes, "/%s", slash ? slash + 1 : given);
  return nbytes + (size_t)length < PATH_MAX ? GPUF_OK : gpufi_path_too_long(prefix, err);
}

/* The folder of a prefix that gpufi_ipc_make gave. */
static bool own_folder(const char *prefix, char folder[PATH_MAX]) {
  const size_t nbytes = strlen(prefix), last = strlen(LAST), suffix = strlen(SUFFIX);
  if (nbytes < last + suffix || strcmp(prefix + nbytes - last, LAST) != 0) {
    return false;
  }
  snprintf(folder, PATH_MAX, "%.*s", (int)(nbytes - last), prefix);
  return strcmp(folder + strlen(folder) - suffix, SUFFIX) == 0 ||
         strncmp(folder, SHORT_FOLDER, strlen(SHORT_FOLDER)) == 0;
}

bool gpufi_ipc_is_living(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  struct stat info;
  if (lstat(path, &info) != 0 || !S_ISSOCK(info.st_mode) ||
      strlen(path) >= sizeof(address.sun_path)) {
    return false;
  }
  memcpy(address.sun_path, path, strlen(path));
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) {
    return true; /* as far as can be told */
  }
  const bool is_dead = connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 &&
                       (errno == ECONNREFUSED || errno == ENOENT);
  close(fd);
  return !is_dead;
}

bool gpufi_ipc_is_in_use(const char *connection_file) {
  char folder[PATH_MAX], path[PATH_MAX + 16];
  bool is_living = false;
  if (!beside(connection_file, folder)) {
    return false;
  }
  for (int number = 1; number <= NUMBER_MAX && !is_living; number++) {
    snprintf(path, sizeof(path), "%s" LAST "-%d", folder, number);
    is_living = gpufi_ipc_is_living(path);
  }
  return is_living;
}

/* Whether the path is of a socket that gpufi_ipc_remove removes. */
static bool is_to_go(const char *path, const uint64_t *inode) {
  struct stat info;
  return lstat(path, &info) == 0 && S_ISSOCK(info.st_mode) && info.st_uid == geteuid() &&
         (inode ? info.st_ino == *inode : !gpufi_ipc_is_living(path));
}

void gpufi_ipc_remove(const char *prefix, const int32_t *numbers, const uint64_t *inodes,
                      int count) {
  char path[PATH_MAX + 16];
  for (int i = 0; i < count; i++) {
    snprintf(path, sizeof(path), "%s-%d", prefix, (int)numbers[i]);
    if (is_to_go(path, inodes ? &inodes[i] : NULL)) {
      unlink(path);
    }
  }
  if (own_folder(prefix, path)) {
    rmdir(path); /* fails where something is left in it */
  }
}
