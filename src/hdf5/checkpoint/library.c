#include "hdf5/checkpoint/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/system.h"
#include "hdf5/section.h"

/* --- The locks --------------------------------------------------------------- */

/* Held around HDF5 calls for checkpoints, and taken before a section begins (hdf5/section.h). */
static pthread_mutex_t entry = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t copy_mutex = PTHREAD_MUTEX_INITIALIZER; /* guards `copied` and `copy_of` */

static void hold(void) {
  pthread_mutex_lock(&copy_mutex);
  pthread_mutex_lock(&entry);
}
static void release(void) {
  pthread_mutex_unlock(&entry);
  pthread_mutex_unlock(&copy_mutex);
}
GPUFI_AT_FORK(GPUFI_FORK_CHECKPOINT_HDF5, hold, release, release);

static void enter(void *arg) {
  (void)arg;
  pthread_mutex_lock(&entry);
}
static void leave(void *arg) {
  (void)arg;
  pthread_mutex_unlock(&entry);
}

gpuf_h5_options gpufi_checkpoint_h5_options(void) {
  gpuf_h5_options options = GPUF_H5_OPTIONS_INIT;
  options.lock = enter;
  options.unlock = leave;
  return options;
}

/* --- A copy of the library --------------------------------------------------- */

static gpufi_h5_api *copied, *copy_of;

static gpuf_status fail_copy(const char *path, const char *why, gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                    "%s was not built thread-safe, and no second copy of it can be loaded for "
                    "checkpoints (%s): use a thread-safe libhdf5, or one that is a shared library",
                    path, why);
}

/* The file's bytes in memory of its own, so that the loader takes it for another library. */
static int copy_file(const char *path) {
  struct stat file;
  int copy = -1;
  const int fd = gpufi_open(path, O_RDONLY, 0);
  if (fd >= 0 && fstat(fd, &file) == 0) {
    copy = memfd_create("gpufetch-libhdf5", MFD_CLOEXEC);
  }
  off_t done = 0;
  while (copy >= 0 && done < file.st_size) {
    const ssize_t count = sendfile(copy, fd, &done, (size_t)(file.st_size - done));
    if (count <= 0 && !(count < 0 && errno == EINTR)) {
      close(copy);
      copy = -1;
    }
  }
  if (fd >= 0) {
    const int code = errno;
    gpufi_close(fd);
    errno = code;
  }
  return copy;
}

/* RTLD_DEEPBIND: its calls of its own functions stay within it. */
static void *load_file(int fd) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
}

static gpuf_status load_copy(const gpufi_h5_api *api, gpufi_h5_api **copy, gpuf_error *err) {
  Dl_info info;
  if (!dladdr(api->h5open, &info) || !info.dli_fname) {
    return fail_copy("libhdf5", "its file is not known", err);
  }
  const int fd = copy_file(info.dli_fname);
  if (fd < 0) {
    const int code = errno;
    return code == EMFILE || code == ENFILE
               ? gpufi_fail(err, GPUF_ERR_IO, code,
                            "copying %s, which was not built thread-safe, for checkpoints: %s",
                            info.dli_fname, strerror(code))
               : fail_copy(info.dli_fname, strerror(code), err);
  }
  /* The descriptor stays open: the loader knows the library by that name, as does whoever asks it
   * for the library's symbols. */
  void *const handle = load_file(fd);
  if (!handle) {
    const char *const why = dlerror();
    const gpuf_status status = fail_copy(info.dli_fname, why ? why : "dlopen failed", err);
    gpufi_close(fd);
    return status;
  }
  if (dlsym(handle, "H5open") == api->h5open) {
    dlclose(handle);
    gpufi_close(fd);
    return fail_copy(info.dli_fname, "the loader gives the first one", err);
  }
  return gpufi_h5_adopt(handle, copy, err);
}

gpuf_status gpufi_checkpoint_library_copy(gpufi_h5_api *api, gpufi_h5_api **copy, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  pthread_mutex_lock(&copy_mutex);
  if (copy_of != api) {
    gpufi_h5_api *fresh = NULL;
    status = load_copy(api, &fresh, err);
    if (status == GPUF_OK) {
      copied = fresh;
      copy_of = api;
    }
  }
  *copy = copied;
  pthread_mutex_unlock(&copy_mutex);
  return status;
}

gpuf_status gpufi_checkpoint_library(gpufi_h5_api **api, gpuf_error *err) {
  hbool_t is_safe = false;
  gpufi_h5_api *bound;
  const gpuf_status status = gpufi_h5_bound(&bound, err);
  if (status != GPUF_OK) {
    return status;
  }
  *api = bound;
  if (bound->is_library_threadsafe(&is_safe) >= 0 && is_safe) {
    return GPUF_OK;
  }
  return gpufi_checkpoint_library_copy(bound, api, err);
}
