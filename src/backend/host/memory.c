/* Device memory of the host backend: see host.h. */
#include "backend/host/host.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "core/error.h"

typedef struct allocation {
  struct allocation *next;
  char *d_ptr; /* PROT_NONE */
  char *alias; /* readable and writable, same pages */
  size_t nbytes;
  size_t mapped_nbytes;
  int32_t device;
} allocation;

/* Guards the list and what hangs on it. */
static pthread_mutex_t allocations_lock = PTHREAD_MUTEX_INITIALIZER;
static allocation *allocations;

static size_t page_round(size_t nbytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (nbytes + page - 1) / page * page;
}

/* Map the same fresh pages at two addresses. */
static bool map_twice(allocation *a) {
  const int fd = memfd_create("gpufetch-host-device-memory", MFD_CLOEXEC);
  a->d_ptr = MAP_FAILED;
  a->alias = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, (off_t)a->mapped_nbytes) == 0) {
    a->d_ptr = mmap(NULL, a->mapped_nbytes, PROT_NONE, MAP_SHARED, fd, 0);
    a->alias = mmap(NULL, a->mapped_nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (fd >= 0) {
    close(fd);
  }
  return a->d_ptr != MAP_FAILED && a->alias != MAP_FAILED;
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

gpuf_status gpufi_host_alloc(int32_t device, size_t nbytes, void **d_ptr, gpuf_error *err) {
  struct sysinfo system;
  sysinfo(&system);
  allocation *a = NULL;
  if (!gpufi_host_take_alloc() || nbytes > (size_t)system.totalram * system.mem_unit) {
    goto fail;
  }
  a = calloc(1, sizeof(*a));
  if (!a) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for an allocation's record");
  }
  a->nbytes = nbytes;
  a->mapped_nbytes = page_round(nbytes);
  a->device = device;
  if (!map_twice(a)) {
    unmap(a);
    goto fail;
  }
  memset(a->alias, GPUFI_HOST_POISON, a->mapped_nbytes);
  pthread_mutex_lock(&allocations_lock);
  a->next = allocations;
  allocations = a;
  pthread_mutex_unlock(&allocations_lock);
  *d_ptr = a->d_ptr;
  return GPUF_OK;

fail:
  return gpufi_fail(err, GPUF_ERR_NO_DEVICE_MEMORY, errno,
                    "host:%d has no memory for %zu bytes; free device arrays or use smaller ones",
                    device, nbytes);
}

gpuf_status gpufi_host_free(int32_t device, void *d_ptr, gpuf_error *err) {
  gpufi_host_device_synchronize(device);
  pthread_mutex_lock(&allocations_lock);
  allocation **link = &allocations;
  while (*link && (*link)->d_ptr != d_ptr) {
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
  unmap(a);
  return GPUF_OK;
}

size_t gpufi_host_allocated_nbytes(int32_t device) {
  size_t total = 0;
  pthread_mutex_lock(&allocations_lock);
  for (const allocation *a = allocations; a; a = a->next) {
    total += a->device == device ? a->nbytes : 0;
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
