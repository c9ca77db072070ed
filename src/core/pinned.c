#include "core/pinned.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "core/error.h"
#include "core/pool.h"
#include "core/runtime.h"

#define PAGE_NBYTES ((size_t)4096)
#define HUGE_PAGE_NBYTES ((size_t)2 << 20)
#define PIN_THREAD_COUNT 8 /* more only contend in the driver */

void *gpufi_map(size_t nbytes) {
  const size_t alignment = nbytes >= HUGE_PAGE_NBYTES ? HUGE_PAGE_NBYTES : PAGE_NBYTES;
  const size_t mapped_nbytes = nbytes + alignment;
  char *start =
      mmap(NULL, mapped_nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) {
    return NULL;
  }
  char *base = (char *)(((uintptr_t)start + alignment - 1) / alignment * alignment);
  const size_t head_nbytes = (size_t)(base - start);
  if (head_nbytes > 0) {
    munmap(start, head_nbytes);
  }
  if (alignment > head_nbytes) {
    munmap(base + nbytes, alignment - head_nbytes);
  }
  if (nbytes >= HUGE_PAGE_NBYTES) {
    madvise(base, nbytes, MADV_HUGEPAGE); /* advice: a refusal only costs speed */
  }
  return base;
}

void gpufi_unmap(void *base, size_t nbytes) {
  if (base) {
    munmap(base, nbytes);
  }
}

/* The segments of one mapping; threads take the next one each until none is left or one fails. */
typedef struct pin_job {
  const gpufi_backend *backend;
  int32_t device;
  char *base;
  size_t nbytes;
  pthread_mutex_t lock; /* guards all below */
  size_t next_segment;
  bool *pinned; /* by segment */
  gpuf_status status;
  gpuf_error error;
} pin_job;

static size_t segment_count(size_t nbytes) {
  return (nbytes + GPUFI_POOL_SEGMENT_NBYTES - 1) / GPUFI_POOL_SEGMENT_NBYTES;
}

static size_t segment_nbytes(size_t nbytes, size_t segment) {
  const size_t left = nbytes - segment * GPUFI_POOL_SEGMENT_NBYTES;
  return left < GPUFI_POOL_SEGMENT_NBYTES ? left : GPUFI_POOL_SEGMENT_NBYTES;
}

/* The driver pins page by page; faulting pages in beforehand, huge ones at once, is what makes
 * pinning quick. */
static void touch(char *start, size_t nbytes) {
  for (size_t offset = 0; offset < nbytes; offset += PAGE_NBYTES) {
    *(volatile char *)(start + offset) = 0;
  }
}

static void *pin_segments(void *arg) {
  pin_job *job = arg;
  pthread_mutex_lock(&job->lock);
  while (job->status == GPUF_OK && job->next_segment < segment_count(job->nbytes)) {
    const size_t segment = job->next_segment++;
    pthread_mutex_unlock(&job->lock);
    gpuf_error error;
    char *start = job->base + segment * GPUFI_POOL_SEGMENT_NBYTES;
    const size_t nbytes = segment_nbytes(job->nbytes, segment);
    touch(start, nbytes);
    const gpuf_status status = job->backend->pin(job->device, start, nbytes, &error);
    pthread_mutex_lock(&job->lock);
    job->pinned[segment] = status == GPUF_OK;
    if (status != GPUF_OK && job->status == GPUF_OK) {
      job->status = status;
      job->error = error;
    }
  }
  pthread_mutex_unlock(&job->lock);
  return NULL;
}

/* The calling thread takes part, so that failing to start others only costs speed. */
static void pin_in_parallel(pin_job *job) {
  pthread_t threads[PIN_THREAD_COUNT];
  const size_t segments = segment_count(job->nbytes);
  size_t wanted = (size_t)gpufi_cpu_count();
  size_t started = 0;
  wanted = wanted < PIN_THREAD_COUNT ? wanted : PIN_THREAD_COUNT;
  wanted = wanted < segments ? wanted : segments;
  while (started + 1 < wanted &&
         pthread_create(&threads[started], NULL, pin_segments, job) == 0) {
    started++;
  }
  pin_segments(job);
  for (size_t i = 0; i < started; i++) {
    pthread_join(threads[i], NULL);
  }
}

static void unpin_segments(const pin_job *job) {
  for (size_t segment = 0; segment < segment_count(job->nbytes); segment++) {
    if (job->pinned[segment]) {
      job->backend->unpin(job->device, job->base + segment * GPUFI_POOL_SEGMENT_NBYTES);
    }
  }
}

gpuf_status gpufi_pinned_create(const gpufi_backend *backend, int32_t device, size_t nbytes,
                                void **base, gpuf_error *err) {
  pin_job job = {.backend = backend,
                 .device = device,
                 .nbytes = nbytes,
                 .lock = PTHREAD_MUTEX_INITIALIZER};
  job.base = gpufi_map(nbytes);
  job.pinned = calloc(segment_count(nbytes), sizeof(*job.pinned));
  if (!job.base || !job.pinned) {
    job.status = gpufi_fail(&job.error, GPUF_ERR_NO_MEMORY, errno,
                            "the system has no %zu bytes for a pinned block", nbytes);
  } else {
    pin_in_parallel(&job);
    if (job.status != GPUF_OK) {
      unpin_segments(&job);
    }
  }
  free(job.pinned);
  if (job.status != GPUF_OK) {
    gpufi_unmap(job.base, nbytes);
    return gpufi_fail(err, job.status, job.error.native_code, "%s", job.error.message);
  }
  *base = job.base;
  return GPUF_OK;
}

void gpufi_pinned_destroy(const gpufi_backend *backend, int32_t device, void *base,
                          size_t nbytes) {
  for (size_t segment = 0; segment < segment_count(nbytes); segment++) {
    backend->unpin(device, (char *)base + segment * GPUFI_POOL_SEGMENT_NBYTES);
  }
  gpufi_unmap(base, nbytes);
}
