#include "core/pinned.h"

#include <stdatomic.h>
#include <sys/mman.h>

#include "base/arithmetic.h"
#include "base/system.h"
#include "core/workers.h"

#define PAGE_NBYTES ((size_t)4096)
#define HUGE_PAGE_NBYTES ((size_t)2 << 20)
#define TOUCH_NBYTES ((size_t)8 << 20) /* that a thread faults in at a time */
#define TOUCH_THREADS_MAX 16

void *gpufi_map(size_t nbytes) {
  const size_t alignment = nbytes >= HUGE_PAGE_NBYTES ? HUGE_PAGE_NBYTES : PAGE_NBYTES;
  const size_t mapped_nbytes = nbytes + alignment;
  char *start =
      mmap(NULL, mapped_nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) {
    return NULL;
  }
  char *base = (char *)gpufi_round_up((uintptr_t)start, alignment);
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

/* Pages of a mapping to fault in; each thread takes the next TOUCH_NBYTES. */
typedef struct touch_job {
  char *base;
  size_t nbytes;
  atomic_size_t next_offset;
} touch_job;

static void touch_pages(void *arg) {
  touch_job *job = arg;
  size_t offset;
  while ((offset = atomic_fetch_add(&job->next_offset, TOUCH_NBYTES)) < job->nbytes) {
    const size_t end = offset + gpufi_min_nbytes(job->nbytes - offset, TOUCH_NBYTES);
    for (; offset < end; offset += PAGE_NBYTES) {
      *(volatile char *)(job->base + offset) = 0;
    }
  }
}

/* Fault the pages in. Many threads with huge pages are several times as quick as the driver, which
 * would do it page by page on one thread. The calling thread takes part, so that threads that
 * cannot be started only cost speed. */
static void touch(char *base, size_t nbytes) {
  touch_job job = {.base = base, .nbytes = nbytes};
  const size_t steps = (nbytes + TOUCH_NBYTES - 1) / TOUCH_NBYTES;
  const size_t threads = gpufi_min_nbytes((size_t)gpufi_cpu_count(), TOUCH_THREADS_MAX);
  gpufi_workers workers = {0};
  gpufi_workers_start(&workers, (int32_t)gpufi_min_nbytes(threads, steps) - 1, touch_pages, &job);
  touch_pages(&job);
  gpufi_workers_wait(&workers);
}

gpuf_status gpufi_pin(const gpufi_backend *backend, int32_t device, void *base, size_t nbytes,
                      gpuf_error *err) {
  touch(base, nbytes);
  return backend->pin(device, base, nbytes, err);
}
