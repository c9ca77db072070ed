/* Device memory. A large allocation that is freed is kept for the next request of its size, up to a
 * cap: mapping and unmapping a GiB takes the driver several milliseconds, a sixth of an upload. */
#include "backend/cuda/memory.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdlib.h>

#include "backend/cuda/calls.h"
#include "backend/cuda/driver.h"
#include "base/arithmetic.h"
#include "base/system.h"

#define LARGE_NBYTES ((size_t)1 << 20)
#define LARGE_STEP_NBYTES ((size_t)2 << 20) /* the driver maps no less */
#define KEPT_NBYTES_DEFAULT ((int64_t)2 << 30)

/* A large allocation, in use or kept. */
typedef struct allocation {
  struct allocation *next;
  void *d_ptr;
  size_t nbytes;
  int32_t device;
} allocation;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the lists and the sum */
static allocation *used;
static allocation *kept; /* the latest first */
static size_t kept_nbytes;

static size_t kept_cap;
static pthread_once_t kept_cap_once = PTHREAD_ONCE_INIT;

static void read_kept_cap(void) {
  kept_cap = (size_t)gpufi_env_int64("GPUFETCH_DEVICE_KEEP_MAX_NBYTES", KEPT_NBYTES_DEFAULT);
}

/* Take an allocation out of a list: by its pointer or, if that is NULL, by device and size. NULL if
 * there is none. */
static allocation *take(allocation **list, const void *d_ptr, int32_t device, size_t nbytes) {
  for (allocation **at = list; *at; at = &(*at)->next) {
    allocation *b = *at;
    if (d_ptr ? b->d_ptr == d_ptr : b->device == device && b->nbytes == nbytes) {
      *at = b->next;
      return b;
    }
  }
  return NULL;
}

static void put(allocation **list, allocation *b) {
  b->next = *list;
  *list = b;
}

/* Give kept allocations back to the driver, the oldest first, until at most `limit` bytes stay. */
static void trim(size_t limit) {
  pthread_mutex_lock(&lock);
  while (kept && kept_nbytes > limit) {
    allocation **oldest = &kept;
    while ((*oldest)->next) {
      oldest = &(*oldest)->next;
    }
    allocation *b = *oldest;
    int previous;
    *oldest = NULL;
    kept_nbytes -= b->nbytes;
    if (enter(b->device, &previous, NULL) == GPUF_OK) {
      cuda_check(cudaFree(b->d_ptr), "cudaFree", NULL);
      leave(b->device, previous);
    }
    free(b);
  }
  pthread_mutex_unlock(&lock);
}

void gpufi_cuda_memory_trim(void) {
  trim(0);
}

/* The device is current. */
static cudaError_t map(size_t nbytes, void **d_ptr) {
  cudaError_t code = cudaMalloc(d_ptr, nbytes);
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    trim(0);
    code = cudaMalloc(d_ptr, nbytes);
  }
  return code;
}

static gpuf_status fail_alloc(int32_t device, cudaError_t code, size_t nbytes, gpuf_error *err) {
  size_t free_nbytes = 0, total_nbytes = 0;
  if (code != cudaErrorMemoryAllocation) {
    return cuda_check(code, "cudaMalloc", err);
  }
  cudaMemGetInfo(&free_nbytes, &total_nbytes);
  cudaGetLastError();
  return gpufi_fail(err, GPUF_ERR_NO_DEVICE_MEMORY, code,
                    "cuda:%d has no memory for %zu bytes (%zu of %zu are free); free arrays, or "
                    "empty the framework's cache (torch.cuda.empty_cache(), "
                    "cupy.get_default_memory_pool().free_all_blocks())",
                    (int)device, nbytes, free_nbytes, total_nbytes);
}

/* The device is current. */
static gpuf_status alloc_large(int32_t device, size_t nbytes, void **d_ptr, gpuf_error *err) {
  const size_t rounded = gpufi_round_up(nbytes, LARGE_STEP_NBYTES);
  pthread_mutex_lock(&lock);
  allocation *b = take(&kept, NULL, device, rounded);
  if (b) {
    kept_nbytes -= rounded;
    put(&used, b);
  }
  pthread_mutex_unlock(&lock);
  if (b) {
    *d_ptr = b->d_ptr;
    return GPUF_OK;
  }
  b = malloc(sizeof(*b));
  if (!b) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no host memory for %zu bytes", sizeof(*b));
  }
  *b = (allocation){.nbytes = rounded, .device = device};
  const cudaError_t code = rounded >= nbytes ? map(rounded, &b->d_ptr) : cudaErrorMemoryAllocation;
  if (code != cudaSuccess) {
    free(b);
    return fail_alloc(device, code, nbytes, err);
  }
  *d_ptr = b->d_ptr;
  pthread_mutex_lock(&lock);
  put(&used, b);
  pthread_mutex_unlock(&lock);
  return GPUF_OK;
}

gpuf_status gpufi_cuda_alloc(int32_t device, size_t nbytes, void **d_ptr, gpuf_error *err) {
  int previous;
  gpuf_status status = enter(device, &previous, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (nbytes >= LARGE_NBYTES) {
    status = alloc_large(device, nbytes, d_ptr, err);
  } else {
    const cudaError_t code = map(nbytes, d_ptr);
    status = code == cudaSuccess ? GPUF_OK : fail_alloc(device, code, nbytes, err);
  }
  leave(device, previous);
  return status;
}

static bool is_kept(const void *d_ptr) {
  const allocation *b = kept;
  while (b && b->d_ptr != d_ptr) {
    b = b->next;
  }
  return b != NULL;
}

/* The device is current. Work that may use the memory is over before it is kept. */
static gpuf_status free_or_keep(allocation *b, gpuf_error *err) {
  pthread_once(&kept_cap_once, read_kept_cap);
  if (b->nbytes > kept_cap || cudaDeviceSynchronize() != cudaSuccess) {
    const gpuf_status status = CUDA_CALL(cudaFree(b->d_ptr));
    free(b);
    return status;
  }
  trim(kept_cap - b->nbytes);
  pthread_mutex_lock(&lock);
  put(&kept, b);
  kept_nbytes += b->nbytes;
  pthread_mutex_unlock(&lock);
  return GPUF_OK;
}

gpuf_status gpufi_cuda_free(int32_t device, void *d_ptr, gpuf_error *err) {
  int previous;
  pthread_mutex_lock(&lock);
  const bool again = is_kept(d_ptr);
  allocation *b = again ? NULL : take(&used, d_ptr, device, 0);
  pthread_mutex_unlock(&lock);
  if (again) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "%p has been freed already", d_ptr);
  }
  device = b ? b->device : device;
  gpuf_status status = enter(device, &previous, err);
  if (status == GPUF_OK) {
    status = b ? free_or_keep(b, err) : CUDA_CALL(cudaFree(d_ptr));
    leave(device, previous);
  }
  return status;
}

bool gpufi_cuda_is_pinned(int32_t device, const void *ptr, size_t nbytes) {
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                  CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  uint64_t type = 0, managed = 0, start = 0,
           range_nbytes = 0; /* 0 of memory that CUDA does not know */
  void *values[] = {&type, &managed, &start, &range_nbytes};
  const uint64_t begin = (uintptr_t)ptr;
  int previous;
  if (enter_with_context(device, &previous, NULL) != GPUF_OK) {
    return false;
  }
  const bool known = gpufi_cuda_driver.attributes(sizeof(wanted) / sizeof(wanted[0]), wanted,
                                                  values, begin) == CUDA_SUCCESS;
  leave(device, previous);
  return known && type == CU_MEMORYTYPE_HOST && !managed && begin >= start &&
         nbytes <= range_nbytes && begin - start <= range_nbytes - nbytes;
}
