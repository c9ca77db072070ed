#include "backend/host/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "backend/host/faults.h"
#include "backend/host/host.h"
#include "backend/host/stream.h"
#include "base/arithmetic.h"
#include "base/error.h"
#include "base/kernel_thread.h"
#include "base/system.h"

typedef struct allocation {
  struct allocation *next;
  char *d_ptr; /* PROT_NONE */
  char *alias; /* readable and writable, same pages */
  size_t nbytes;
  size_t mapped_nbytes;
  off_t offset; /* in memory_fd */
  int32_t device;
  bool imported; /* the pages are another process's; `offset` is in its file */
} allocation;

/* Guards the list with its elements, and the file. */
static pthread_mutex_t allocations_lock = PTHREAD_MUTEX_INITIALIZER;
static allocation *allocations;

/* All device memory of this process is one file without a name, so that one descriptor serves any
 * number of allocations. Offsets are not used twice: they name allocations to other processes.
 * The file never shrinks, which is sealed: an importer's pages stay. */
static int memory_fd = -1;
static off_t memory_end;

static size_t page_round(size_t nbytes) {
  return gpufi_round_up(nbytes, (size_t)sysconf(_SC_PAGESIZE));
}

/* Create the file. Returns 0 or errno. Called with the lock held, as the next. */
static int create_memory(void) {
  const int fd = gpufi_fd_above_stdio(
      memfd_create("gpufetch-host-device-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd < 0) {
    return errno;
  }
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    const int code = errno;
    close(fd);
    return code;
  }
  memory_fd = fd;
  return 0;
}

/* Take the next mapped_nbytes of the file. A file over the limit on sizes is EFBIG here, without
 * the signal that ftruncate would raise. */
static int extend_memory(allocation *a) {
  struct rlimit limit;
  const off_t end = memory_end + (off_t)a->mapped_nbytes;
  const int code = memory_fd < 0 ? create_memory() : 0;
  if (code != 0) {
    return code;
  }
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && (rlim_t)end > limit.rlim_cur) {
    return EFBIG;
  }
  while (ftruncate(memory_fd, end) != 0) {
    if (errno != EINTR) {
      return errno;
    }
  }
  a->offset = memory_end;
  memory_end = end;
  return 0;
}

/* Map the same pages at two addresses. */
static bool map_twice(allocation *a, int fd) {
  a->d_ptr = mmap(NULL, a->mapped_nbytes, PROT_NONE, MAP_SHARED, fd, a->offset);
  a->alias = mmap(NULL, a->mapped_nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, a->offset);
  return a->d_ptr != MAP_FAILED && a->alias != MAP_FAILED;
}

/* Give the pages of one's own allocation back to the system. */
static void punch(const allocation *a) {
  while (fallocate(memory_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, a->offset,
                   (off_t)a->mapped_nbytes) != 0 &&
         errno == EINTR) {
  }
}

static void unmap(allocation *a) {
  if (a->d_ptr != MAP_FAILED) {
    munmap(a->d_ptr, a->mapped_nbytes);
  }
  if (a->alias != MAP_FAILED) {
    munmap(a->alias, a->mapped_nbytes);
  }
  free(a);
}

static void enlist(allocation *a) {
  pthread_mutex_lock(&allocations_lock);
  a->next = allocations;
  allocations = a;
  pthread_mutex_unlock(&allocations_lock);
}

/* `code` is 0 or errno. */
static gpuf_status fail_alloc(int32_t device, size_t nbytes, int code, gpuf_error *err) {
  if (code == EFBIG) {
    return gpufi_fail(err, GPUF_ERR_NO_DEVICE_MEMORY, code,
                      "host:%d cannot add %zu bytes to its memory, which is a file, within the "
                      "limit on the size of files; raise RLIMIT_FSIZE (ulimit -f)",
                      device, nbytes);
  }
  return gpufi_fail(err, GPUF_ERR_NO_DEVICE_MEMORY, code,
                    "host:%d has no memory for %zu bytes%s%s; free device arrays or use smaller "
                    "ones",
                    device, nbytes, code ? ": " : "", code ? strerror(code) : "");
}

gpuf_status gpufi_host_alloc(int32_t device, size_t nbytes, void **d_ptr, gpuf_error *err) {
  struct sysinfo system;
  sysinfo(&system);
  if (!gpufi_host_take_alloc() || nbytes > (size_t)system.totalram * system.mem_unit) {
    return fail_alloc(device, nbytes, 0, err);
  }
  allocation *a = calloc(1, sizeof(*a));
  if (!a) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for an allocation's record");
  }
  a->nbytes = nbytes;
  a->mapped_nbytes = page_round(nbytes);
  a->device = device;
  a->d_ptr = a->alias = MAP_FAILED;
  pthread_mutex_lock(&allocations_lock);
  int code = extend_memory(a);
  const int fd = memory_fd;
  pthread_mutex_unlock(&allocations_lock);
  if (code == 0 && !map_twice(a, fd)) {
    code = errno;
  }
  if (code != 0) {
    unmap(a);
    return fail_alloc(device, nbytes, code, err);
  }
  memset(a->alias, GPUFI_HOST_POISON, a->mapped_nbytes);
  enlist(a);
  *d_ptr = a->d_ptr;
  return GPUF_OK;
}

/* Free one's own allocation, or close an imported one. */
static gpuf_status release(int32_t device, void *d_ptr, bool imported, gpuf_error *err) {
  if (gpufi_in_kernel()) {
    return gpufi_refuse_in_kernel(err);
  }
  pthread_mutex_lock(&allocations_lock);
  allocation **link = &allocations;
  while (*link && ((*link)->d_ptr != d_ptr || (*link)->imported != imported)) {
    link = &(*link)->next;
  }
  allocation *a = *link;
  if (a) {
    *link = a->next;
  }
  pthread_mutex_unlock(&allocations_lock);
  if (!a) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "%p is not the start of a live allocation on host:%d", d_ptr, device);
  }
  if (!imported) {
    punch(a);
  }
  unmap(a);
  return GPUF_OK;
}

gpuf_status gpufi_host_free(int32_t device, void *d_ptr, gpuf_error *err) {
  return release(device, d_ptr, false, err);
}

int gpufi_host_memory_fd(void) {
  pthread_mutex_lock(&allocations_lock);
  const int fd = memory_fd;
  pthread_mutex_unlock(&allocations_lock);
  return fd;
}

/* The allocation that d_ptr lies in, or NULL. Called with the lock held. */
static const allocation *find(const void *d_ptr) {
  const uintptr_t address = (uintptr_t)d_ptr;
  const allocation *a = allocations;
  while (a && (address < (uintptr_t)a->d_ptr || address - (uintptr_t)a->d_ptr >= a->nbytes)) {
    a = a->next;
  }
  return a;
}

/* What the allocation says of itself, taken under the lock: either may be NULL. */
static gpuf_status locate(const void *d_ptr, gpufi_host_range *range, int32_t *device,
                          gpuf_error *err) {
  pthread_mutex_lock(&allocations_lock);
  const allocation *a = find(d_ptr);
  if (a && range) {
    *range = (gpufi_host_range){a->d_ptr, a->nbytes, a->offset};
  }
  if (a && device) {
    *device = a->device;
  }
  pthread_mutex_unlock(&allocations_lock);
  return a ? GPUF_OK
           : gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "%p is not inside a live allocation of the host backend", d_ptr);
}

gpuf_status gpufi_host_locate(const void *d_ptr, gpufi_host_range *range, gpuf_error *err) {
  return locate(d_ptr, range, NULL, err);
}

gpuf_status gpufi_host_device_of(const void *d_ptr, int32_t *device, gpuf_error *err) {
  return locate(d_ptr, NULL, device, err);
}

/* The file holds the range, on whole pages, and cannot shrink under it. */
static bool is_memory_file(int fd, const gpufi_host_range *range) {
  struct stat file;
  const int seals = fcntl(fd, F_GET_SEALS);
  const size_t limit = (size_t)PTRDIFF_MAX - (size_t)sysconf(_SC_PAGESIZE);
  return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &file) == 0 && range->nbytes > 0 &&
         range->nbytes < limit && range->offset >= 0 && range->offset <= file.st_size &&
         range->offset % sysconf(_SC_PAGESIZE) == 0 &&
         page_round(range->nbytes) <= (size_t)(file.st_size - range->offset);
}

gpuf_status gpufi_host_import(int32_t device, int fd, const gpufi_host_range *range, void **d_ptr,
                              gpuf_error *err) {
  if (!is_memory_file(fd, range)) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "the exporting process passed on no memory of %zu bytes at offset %lld",
                      range->nbytes, (long long)range->offset);
  }
  allocation *a = calloc(1, sizeof(*a));
  if (!a) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for an allocation's record");
  }
  a->nbytes = range->nbytes;
  a->mapped_nbytes = page_round(range->nbytes);
  a->offset = range->offset;
  a->device = device;
  a->imported = true;
  if (!map_twice(a, fd)) {
    const int code = errno;
    unmap(a);
    return gpufi_fail(err, GPUF_ERR_NO_DEVICE_MEMORY, code,
                      "host:%d cannot map %zu bytes of another process: %s", device, range->nbytes,
                      strerror(code));
  }
  enlist(a);
  *d_ptr = a->d_ptr;
  return GPUF_OK;
}

gpuf_status gpufi_host_close(int32_t device, void *d_ptr, gpuf_error *err) {
  gpufi_host_device_synchronize(device);
  return release(device, d_ptr, true, err);
}

size_t gpufi_host_allocated_nbytes(int32_t device) {
  size_t total = 0;
  pthread_mutex_lock(&allocations_lock);
  for (const allocation *a = allocations; a; a = a->next) {
    total += a->device == device && !a->imported ? a->nbytes : 0;
  }
  pthread_mutex_unlock(&allocations_lock);
  return total;
}

void *gpufi_host_alias(const void *d_ptr, size_t nbytes) {
  const uintptr_t address = (uintptr_t)d_ptr;
  void *alias = NULL;
  pthread_mutex_lock(&allocations_lock);
  for (const allocation *a = allocations; a && !alias; a = a->next) {
    const uintptr_t start = (uintptr_t)a->d_ptr;
    if (address >= start && address - start <= a->nbytes &&
        nbytes <= a->nbytes - (address - start)) {
      alias = a->alias + (address - start);
    }
  }
  pthread_mutex_unlock(&allocations_lock);
  return alias;
}

gpuf_status gpufi_host_resolve(const void *d_ptr, size_t nbytes, void **alias, gpuf_error *err) {
  *alias = gpufi_host_alias(d_ptr, nbytes);
  return *alias ? GPUF_OK
                : gpufi_fail(err, GPUF_ERR_DEVICE, 0,
                             "%zu bytes at %p are not inside a live allocation of the host "
                             "backend; keep the memory allocated until the work on it is done",
                             nbytes, d_ptr);
}
