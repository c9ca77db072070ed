#include "hdf5/checkpoint/leftovers.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/system.h"

/* Threads that give files back, with the calling one: each takes as long as it has pages. */
#define THREADS_MAX 16

void gpufi_checkpoint_leftovers_init(gpufi_checkpoint_leftovers *l) {
  for (int i = 0; i < GPUFI_CHECKPOINT_LEFTOVERS_MAX; i++) {
    atomic_init(&l->fds[i], -1);
  }
  pthread_mutex_init(&l->mutex, NULL);
  l->mapping_count = l->ending_count = 0;
  l->unmapping = (gpufi_workers){0};
}

void gpufi_checkpoint_leftovers_fini(gpufi_checkpoint_leftovers *l) {
  gpufi_workers_wait(&l->unmapping);
  pthread_mutex_destroy(&l->mutex);
}

/* --- Files ------------------------------------------------------------------- */

/* Whether a file that is open may lose its name here. Network file systems give it another one
 * instead, which stays until it is closed. */
static bool is_local(int fd) {
  static const unsigned kinds[] = {
      0xef53,     /* ext2 to ext4 */
      0x58465342, /* XFS */
      0x9123683e, /* Btrfs */
      0x01021994, /* tmpfs */
      0x794c7630, /* overlayfs */
  };
  struct statfs found;
  bool is_known = false;
  if (fstatfs(fd, &found) == 0) {
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
      is_known = is_known || (unsigned)found.f_type == kinds[i];
    }
  }
  return is_known;
}

static bool keep(gpufi_checkpoint_leftovers *l, int fd) {
  for (int i = 0; i < GPUFI_CHECKPOINT_LEFTOVERS_MAX; i++) {
    int none = -1;
    if (atomic_compare_exchange_strong(&l->fds[i], &none, fd)) {
      return true;
    }
  }
  return false;
}

/* The system gives a file's pages back when the last of its names and descriptors goes. */
static void hold(gpufi_checkpoint_leftovers *l, const char *path) {
  const int fd = gpufi_open(path, O_PATH | O_NOFOLLOW, 0);
  if (fd >= 0 && !(is_local(fd) && keep(l, fd))) {
    gpufi_close(fd);
  }
}

int gpufi_checkpoint_leftovers_unlink(gpufi_checkpoint_leftovers *l, const char *path) {
  if (l) {
    hold(l, path);
  }
  return unlink(path) == 0 || errno == ENOENT ? 0 : errno;
}

/* --- Mappings ---------------------------------------------------------------- */

void gpufi_checkpoint_leftovers_add(gpufi_checkpoint_leftovers *l, gpufi_h5_mapping mapping) {
  pthread_mutex_lock(&l->mutex);
  const bool has_place = l->mapping_count < GPUFI_CHECKPOINT_LEFTOVERS_MAX;
  if (has_place && mapping.bytes) {
    l->mappings[l->mapping_count++] = mapping;
  }
  pthread_mutex_unlock(&l->mutex);
  if (!has_place) {
    gpufi_h5_io_unmap(&mapping);
  }
}

/* --- The end ----------------------------------------------------------------- */

static gpuf_status release_file(void *arg, size_t index, gpuf_error *err) {
  gpufi_checkpoint_leftovers *const l = arg;
  const int fd = atomic_exchange(&l->fds[index], -1);
  (void)err;
  if (fd >= 0) {
    gpufi_close(fd);
  }
  return GPUF_OK;
}

static void unmap_all(void *arg) {
  gpufi_checkpoint_leftovers *const l = arg;
  for (size_t i = 0; i < l->ending_count; i++) {
    gpufi_h5_io_unmap(&l->ending[i]);
  }
}

static void begin_unmapping(gpufi_checkpoint_leftovers *l) {
  gpufi_workers_wait(&l->unmapping); /* of the checkpoint before */
  pthread_mutex_lock(&l->mutex);
  memcpy(l->ending, l->mappings, sizeof(l->ending));
  l->ending_count = l->mapping_count;
  l->mapping_count = 0;
  pthread_mutex_unlock(&l->mutex);
  if (l->ending_count > 0 && gpufi_workers_start(&l->unmapping, 1, unmap_all, l) == 0) {
    unmap_all(l);
  }
}

void gpufi_checkpoint_leftovers_release(gpufi_checkpoint_leftovers *l) {
  size_t count = 0;
  while (count < GPUFI_CHECKPOINT_LEFTOVERS_MAX && atomic_load(&l->fds[count]) >= 0) {
    count++;
  }
  gpufi_workers_each(count, THREADS_MAX, release_file, l, NULL);
  begin_unmapping(l);
}

void gpufi_checkpoint_leftovers_forget(const gpufi_checkpoint_leftovers *l) {
  for (int i = 0; i < GPUFI_CHECKPOINT_LEFTOVERS_MAX; i++) {
    const int fd = atomic_load(&l->fds[i]);
    if (fd >= 0) {
      close(fd);
    }
  }
}
