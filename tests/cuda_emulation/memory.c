/* Device memory, which is ordinary memory with garbage in it and a guard on both sides. Under ASan
 * it is malloc's, so that ASan finds what a kernel does outside of it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "devices.h"

#if defined(__SANITIZE_ADDRESS__)
#define GUARD_NBYTES 0
#else
#define GUARD_NBYTES 256
#endif
#define ALIGNMENT 256
#define POISON 0xff
#define GUARD 0xa9
#define POISON_NBYTES_MAX ((size_t)16 << 20) /* more is left as the system gives it */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static emulation_range *ranges;
static size_t used_nbytes[EMULATION_DEVICE_COUNT];

/* --- the list ---------------------------------------------------------------------- */

static emulation_range **range_that_has(const void *ptr, size_t nbytes) {
  const uintptr_t wanted = (uintptr_t)ptr;
  emulation_range **at = &ranges;
  for (; *at; at = &(*at)->next) {
    const uintptr_t begin = (uintptr_t)(*at)->begin;
    if (wanted >= begin && wanted - begin < (*at)->nbytes &&
        nbytes <= (*at)->nbytes - (wanted - begin)) {
      break;
    }
  }
  return at;
}

bool emulation_find(const void *ptr, size_t nbytes, emulation_range *found) {
  pthread_mutex_lock(&lock);
  const emulation_range *const range = *range_that_has(ptr, nbytes);
  if (range) {
    *found = *range;
  }
  pthread_mutex_unlock(&lock);
  return range != NULL;
}

static cudaError_t add(emulation_range range) {
  emulation_range *const added = malloc(sizeof(*added));
  if (!added) {
    return cudaErrorMemoryAllocation;
  }
  pthread_mutex_lock(&lock);
  range.next = ranges;
  *added = range;
  ranges = added;
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

/* Take the range that begins at `begin` out of the list. */
static bool take(const void *begin, enum cudaMemoryType type, emulation_range *taken) {
  pthread_mutex_lock(&lock);
  emulation_range **const at = range_that_has(begin, 1);
  emulation_range *const range = *at;
  const bool found = range && range->begin == begin && range->type == type;
  if (found) {
    *taken = *range;
    *at = range->next;
    free(range);
  }
  pthread_mutex_unlock(&lock);
  return found;
}

/* --- device memory ----------------------------------------------------------------- */

/* False if the device has less. */
static bool reserve(int device, size_t nbytes) {
  pthread_mutex_lock(&lock);
  const bool fits = nbytes <= EMULATION_DEVICE_NBYTES - used_nbytes[device];
  used_nbytes[device] += fits ? nbytes : 0;
  pthread_mutex_unlock(&lock);
  return fits;
}

static void give_back(int device, size_t nbytes) {
  pthread_mutex_lock(&lock);
  used_nbytes[device] -= nbytes;
  pthread_mutex_unlock(&lock);
}

cudaError_t cudaMalloc(void **d_ptr, size_t nbytes) {
  const int device = emulation_device();
  void *memory = NULL;
  if (!reserve(device, nbytes)) {
    return cudaErrorMemoryAllocation;
  }
  if (posix_memalign(&memory, ALIGNMENT, nbytes + (size_t)2 * GUARD_NBYTES) != 0) {
    give_back(device, nbytes);
    return cudaErrorMemoryAllocation;
  }
  unsigned char *const begin = (unsigned char *)memory + GUARD_NBYTES;
  memset(memory, GUARD, GUARD_NBYTES);
  memset(begin, POISON, nbytes < POISON_NBYTES_MAX ? nbytes : POISON_NBYTES_MAX);
  memset(begin + nbytes, GUARD, GUARD_NBYTES);
  const cudaError_t code =
      add((emulation_range){NULL, begin, nbytes, device, cudaMemoryTypeDevice});
  if (code != cudaSuccess) {
    free(memory);
    give_back(device, nbytes);
    return code;
  }
  *d_ptr = begin;
  return cudaSuccess;
}

static void check_guard(const emulation_range *range, const unsigned char *guard) {
  for (size_t i = 0; i < GUARD_NBYTES; i++) {
    if (guard[i] != GUARD) {
      fprintf(stderr, "CUDA emulation: byte %td of an allocation of %zu was written\n",
              guard + i - range->begin, range->nbytes);
      abort();
    }
  }
}

cudaError_t cudaFree(void *d_ptr) {
  emulation_range range;
  if (!d_ptr) {
    return cudaSuccess;
  }
  if (!take(d_ptr, cudaMemoryTypeDevice, &range)) {
    return cudaErrorInvalidValue;
  }
  check_guard(&range, range.begin - GUARD_NBYTES);
  check_guard(&range, range.begin + range.nbytes);
  free(range.begin - GUARD_NBYTES);
  give_back(range.device, range.nbytes);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_nbytes, size_t *total_nbytes) {
  pthread_mutex_lock(&lock);
  *free_nbytes = EMULATION_DEVICE_NBYTES - used_nbytes[emulation_device()];
  pthread_mutex_unlock(&lock);
  *total_nbytes = EMULATION_DEVICE_NBYTES;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr) {
  emulation_range found = {.device = -1, .type = cudaMemoryTypeUnregistered};
  emulation_find(ptr, 1, &found);
  *attributes = (struct cudaPointerAttributes){found.type, found.device};
  return cudaSuccess;
}

/* --- page-locked memory ------------------------------------------------------------ */

cudaError_t cudaHostRegister(void *ptr, size_t nbytes, unsigned int flags) {
  emulation_range found;
  (void)flags;
  if (nbytes == 0) {
    return cudaErrorInvalidValue;
  }
  if (emulation_find(ptr, 1, &found)) {
    return cudaErrorHostMemoryAlreadyRegistered;
  }
  return add((emulation_range){NULL, ptr, nbytes, emulation_device(), cudaMemoryTypeHost});
}

cudaError_t cudaHostUnregister(void *ptr) {
  emulation_range range;
  return take(ptr, cudaMemoryTypeHost, &range) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
}

/* --- other processes --------------------------------------------------------------- */

/* A pointer's attributes say so already. */
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *d_ptr) {
  (void)handle, (void)d_ptr;
  return cudaErrorNotSupported;
}
cudaError_t cudaIpcOpenMemHandle(void **d_ptr, cudaIpcMemHandle_t handle, unsigned int flags) {
  (void)d_ptr, (void)handle, (void)flags;
  return cudaErrorNotSupported;
}
cudaError_t cudaIpcCloseMemHandle(void *d_ptr) {
  (void)d_ptr;
  return cudaErrorNotSupported;
}
