#include "checkpoint_raw.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "hdf5/driver/io.h"

#define PIECE_NBYTES ((size_t)1 << 20)
#define THREADS_MAX 64

typedef enum way { WRITE, ALLOCATE, OVERWRITE, MAP, COPY, READ, WAY_COUNT } way;

static const char *const way_names[WAY_COUNT] = {"write", "allocate", "overwrite",
                                                 "map",   "copy",     "read"};

typedef struct raw {
  way way;
  int fd;
  char *mapped; /* NULL: by pwrite, or pread */
  char *memory;
  size_t nbytes, next; /* next is atomic */
  int code;            /* atomic: errno of a failure */
} raw;

/* It is kept, so that it is touched once. */
static char *memory;
static size_t memory_nbytes;

static bool fill_memory(const raw_work *work) {
  if (memory_nbytes < work->nbytes) {
    free(memory);
    memory = malloc(work->nbytes);
    memory_nbytes = memory ? work->nbytes : 0;
    for (size_t at = 0; at < memory_nbytes; at += work->pattern_nbytes) {
      const size_t left = memory_nbytes - at;
      memcpy(memory + at, work->pattern, left < work->pattern_nbytes ? left : work->pattern_nbytes);
    }
  }
  return memory != NULL;
}

/* --- Threads ------------------------------------------------------------------- */

static int do_piece(raw *r, size_t at, size_t nbytes) {
  const gpufi_h5_target to = {r->fd, (uint8_t *)r->mapped, r->nbytes};
  ssize_t done = (ssize_t)nbytes;
  if (r->way == COPY) {
    return gpufi_h5_io_overwrite(&to, at, r->memory + at, nbytes);
  }
  if (r->mapped) {
    memcpy(r->mapped + at, r->memory + at, nbytes);
  } else {
    done = r->way == READ ? pread(r->fd, r->memory + at, nbytes, (off_t)at)
                          : pwrite(r->fd, r->memory + at, nbytes, (off_t)at);
  }
  return done == (ssize_t)nbytes ? 0 : done < 0 ? errno : ENOSPC;
}

static void *do_raw(void *arg) {
  raw *const r = arg;
  size_t at;
  while ((at = __atomic_fetch_add(&r->next, PIECE_NBYTES, __ATOMIC_RELAXED)) < r->nbytes) {
    const size_t left = r->nbytes - at;
    const int code = do_piece(r, at, left < PIECE_NBYTES ? left : PIECE_NBYTES);
    if (code != 0) {
      __atomic_store_n(&r->code, code, __ATOMIC_RELAXED);
    }
  }
  return NULL;
}

/* Give a new file its blocks, and map it. */
static int allocate(raw *r) {
  const int code = posix_fallocate(r->fd, 0, (off_t)r->nbytes);
  if (code == 0) {
    r->mapped = mmap(NULL, r->nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
  }
  return code != 0 ? code : r->mapped == MAP_FAILED ? errno : 0;
}

static double do_all(raw *files, const raw_work *work) {
  pthread_t others[THREADS_MAX];
  int started = 1;
  const int64_t begin_ns = gpufi_clock_ns();
  for (int i = 0; i < work->files; i++) {
    files[i].next = 0;
    files[i].code = files[i].way == ALLOCATE ? allocate(&files[i]) : 0;
  }
  while (started < work->threads &&
         pthread_create(&others[started], NULL, do_raw, &files[started % work->files]) == 0) {
    started++;
  }
  for (int i = 0; i < work->files; i++) { /* its own, and what no thread was started for */
    if (i == 0 || i >= started) {
      do_raw(&files[i]);
    }
  }
  for (int i = 1; i < started; i++) {
    pthread_join(others[i], NULL);
  }
  return (double)(gpufi_clock_ns() - begin_ns) / (double)GPUFI_NS_PER_S;
}

/* --- Files ---------------------------------------------------------------------- */

/* A new one, or one that is full already, with its mapping; errno of a failure. */
static int open_raw(raw *r, const char *path) {
  const bool is_new = r->way == WRITE || r->way == ALLOCATE;
  r->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | (is_new ? O_TRUNC : 0), 0666);
  if (r->fd < 0) {
    return errno;
  }
  if (!is_new && lseek(r->fd, 0, SEEK_END) != (off_t)r->nbytes) {
    raw fill = *r;
    fill.way = OVERWRITE;
    do_raw(&fill);
    if (fill.code != 0 || ftruncate(r->fd, (off_t)r->nbytes) != 0) {
      return fill.code ? fill.code : errno;
    }
  }
  if (r->way == MAP || r->way == COPY) {
    r->mapped = mmap(NULL, r->nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
  }
  return r->mapped == MAP_FAILED ? errno : 0;
}

static int open_files(raw *files, way found, const raw_work *work) {
  int code = 0;
  for (int i = 0; i < work->files && code == 0; i++) {
    char path[4096];
    const size_t first = work->nbytes / (size_t)work->files * (size_t)i;
    const bool is_last = i == work->files - 1;
    files[i] = (raw){.way = found, .fd = -1, .memory = memory + first};
    files[i].nbytes = is_last ? work->nbytes - first : work->nbytes / (size_t)work->files;
    snprintf(path, sizeof(path), "%s/raw.%d.%d", work->folder, work->files, i);
    code = open_raw(&files[i], path);
  }
  return code;
}

static int close_files(raw *files, int count) {
  int code = 0;
  for (int i = 0; i < count; i++) {
    code = code ? code : files[i].code;
    if (files[i].mapped && files[i].mapped != MAP_FAILED) {
      munmap(files[i].mapped, files[i].nbytes);
    }
    if (files[i].fd >= 0) {
      close(files[i].fd);
    }
  }
  return code;
}

gpuf_status raw_time(const raw_work *work, double *seconds, gpuf_error *err) {
  raw files[THREADS_MAX];
  int found = 0;
  while (found < WAY_COUNT && strcmp(way_names[found], work->way) != 0) {
    found++;
  }
  if (found == WAY_COUNT || work->threads < 1 || work->threads > THREADS_MAX || work->files < 1 ||
      work->files > THREADS_MAX || work->nbytes < (size_t)work->files) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "raw %s of %zu bytes: %d threads, %d files",
                      work->way, work->nbytes, work->threads, work->files);
  }
  if (!fill_memory(work)) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %zu bytes", work->nbytes);
  }
  for (int i = 0; i < work->files; i++) {
    files[i] = (raw){.fd = -1};
  }
  int code = open_files(files, (way)found, work);
  if (code == 0) {
    *seconds = do_all(files, work);
  }
  const int failed = close_files(files, work->files);
  code = code ? code : failed;
  return code == 0 ? GPUF_OK
                   : gpufi_fail(err, GPUF_ERR_IO, code, "raw %s: %s", work->way, strerror(code));
}
