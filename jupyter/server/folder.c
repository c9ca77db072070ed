#include "server/folder.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/system.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_PAUSE_NS INT64_C(5000000)

gpuf_status gpufi_path_too_long(const char *path, gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_INVALID, 0, "the path '%.200s...' is too long", path);
}

gpuf_status gpufi_path_absolute(const char *path, char absolute[PATH_MAX], gpuf_error *err) {
  char folder[PATH_MAX] = "";
  if (*path != '/' && !getcwd(folder, sizeof(folder))) {
    return gpufi_fail(err, GPUF_ERR_IO, errno,
                      "%.200s is relative, and the working folder cannot be found: %s; give an "
                      "absolute path",
                      path, strerror(errno));
  }
  const int length = *path == '/' ? snprintf(absolute, PATH_MAX, "%s", path)
                                  : snprintf(absolute, PATH_MAX, "%s/%s", folder, path);
  return length < PATH_MAX ? GPUF_OK : gpufi_path_too_long(path, err);
}

static bool from_environment(const char *name, const char *tail, char *folder, int *length) {
  const char *value = getenv(name);
  if (!value || !*value) {
    return false;
  }
  *length = snprintf(folder, PATH_MAX, "%s%s", value, tail);
  return true;
}

gpuf_status gpufi_folder_runtime(char folder[PATH_MAX], gpuf_error *err) {
  int length = 0;
  if (!from_environment("JUPYTER_RUNTIME_DIR", "", folder, &length) &&
      !from_environment("JUPYTER_DATA_DIR", "/runtime", folder, &length) &&
      !from_environment("XDG_DATA_HOME", "/jupyter/runtime", folder, &length) &&
      !from_environment("HOME", "/.local/share/jupyter/runtime", folder, &length)) {
    struct passwd entry, *found = NULL;
    char strings[4096];
    if (getpwuid_r(geteuid(), &entry, strings, sizeof(strings), &found) != 0 || !found) {
      return gpufi_fail(err, GPUF_ERR_IO, errno,
                        "this user has no home folder for Jupyter's runtime files: set "
                        "JUPYTER_RUNTIME_DIR");
    }
    length = snprintf(folder, PATH_MAX, "%s/.local/share/jupyter/runtime", entry.pw_dir);
  }
  return length < PATH_MAX ? GPUF_OK : gpufi_path_too_long(folder, err);
}

gpuf_status gpufi_folder_make(const char *folder, gpuf_error *err) {
  char path[PATH_MAX];
  snprintf(path, sizeof(path), "%s", folder);
  for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
    if (slash) {
      *slash = '\0';
    }
    if (mkdir(path, 0700) != 0 && errno != EEXIST && (!slash || errno != EROFS)) {
      return gpufi_fail(err, GPUF_ERR_IO, errno,
                        "cannot make the folder %s for the connection file: %s; set "
                        "JUPYTER_RUNTIME_DIR to a folder that can be written",
                        path, strerror(errno));
    }
    if (!slash) {
      return GPUF_OK;
    }
    *slash = '/';
  }
}

void gpufi_folder_of(const char *path, char folder[PATH_MAX]) {
  const char *slash = strrchr(path, '/');
  const int nbytes = slash ? (int)(slash - path) : 0;
  snprintf(folder, PATH_MAX, "%.*s", nbytes, path);
  if (nbytes == 0) {
    snprintf(folder, PATH_MAX, "%s", slash ? "/" : ".");
  }
}

gpuf_status gpufi_folder_lock(const char *folder, int64_t wait_ns, int *fd, gpuf_error *err) {
  const int64_t deadline_ns = gpufi_clock_ns() + wait_ns;
  *fd = gpufi_open(folder, O_RDONLY | O_DIRECTORY, 0);
  if (*fd < 0) {
    return gpufi_fail(
        err, GPUF_ERR_IO, errno,
        "cannot open the folder %s of the connection file: %s; make it, or name a file in "
        "another folder",
        folder, strerror(errno));
  }
  while (flock(*fd, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR) &&
         gpufi_clock_ns() < deadline_ns) {
    gpufi_sleep_ns(LOCK_PAUSE_NS);
  }
  return GPUF_OK;
}

void gpufi_folder_unlock(int *fd) {
  if (*fd >= 0) {
    flock(*fd, LOCK_UN); /* a child that was forked meanwhile has the descriptor, and so the lock */
    close(*fd);
    *fd = -1;
  }
}

bool gpufi_folder_is_of(const char *folder, int fd) {
  struct stat named, opened;
  return fd >= 0 && fstat(fd, &opened) == 0 && stat(folder, &named) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}
