/* Times checkpoints of one tensor on a device, and raw ways to write and read a file, for
 * `run.py --case checkpoint`.
 *
 *   checkpoint DEVICE FOLDER NBYTES
 *
 * DEVICE is "cuda:0" or "host:0"; the tensor has about NBYTES bytes of float32: waves, and noise
 * that is 10⁵ times smaller. Each line of the input is a request, and each line of the output one
 * JSON object:
 *
 *   open MODE RECYCLE SYNC  end the writer, and open another one: MODE is a gpuf_checkpoint_mode,
 *                           the others are 0 or 1. {"mode", "device_nbytes", "host_nbytes"}
 *   save                    the next step, until it is finished. {"stall": seconds in begin, add
 *                           and commit, "seconds": of all, "file_nbytes", "recycled_nbytes",
 *                           "phases": seconds by name, see checkpoint_phases.h}
 *   restart                 the newest one, into the device: {"open": seconds until it was found
 *                           whole, "seconds": of all, "same": whether it is the tensor, "phases"}
 *   link DIRECTION          between the tensor and page-locked memory, "in" or "out" of the device:
 *                           {"nbytes", "seconds"}
 *   raw WAY THREADS NBYTES  a file of so many bytes: WAY is "write", "overwrite" (by pwrite; the
 *                           file is there already, or is made first), "map" (the same through a
 *                           mapping), "copy" (the kernel copies to the mapping) or "read".
 *                           {"seconds"}
 *
 * A failure is {"error": "..."}, and the end. */
#include <errno.h>
#include <fcntl.h>
#include <gpufetch/checkpoint.h>
#include <hdf5.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "checkpoint_phases.h"
#include "hdf5/driver/io.h"

#define LINE_NBYTES 128
#define COLUMNS 1024
#define TILE_ROWS ((int64_t)4096)
#define PIECE_NBYTES ((size_t)1 << 20)
#define THREADS_MAX 64

typedef struct bench {
  const char *folder;
  gpuf_device device;
  gpuf_tensor state, copy; /* on the device */
  float *tile;             /* TILE_ROWS rows, which the state repeats */
  gpuf_checkpoint *writer;
  int64_t step;
} bench;

static double seconds_since(int64_t begin_ns) {
  return (double)(gpufi_clock_ns() - begin_ns) / (double)GPUFI_NS_PER_S;
}

/* --- The state --------------------------------------------------------------- */

static float *make_tile(void) {
  float *const tile = malloc((size_t)TILE_ROWS * COLUMNS * sizeof(*tile));
  uint32_t noise = 1;
  for (int64_t i = 0; tile && i < TILE_ROWS * COLUMNS; i++) {
    const float row = (float)(i / COLUMNS) / (float)TILE_ROWS;
    const float column = (float)(i % COLUMNS) / COLUMNS;
    noise = noise * 1664525U + 1013904223U;
    tile[i] = sinf(19 * row) * cosf(13 * column) + (float)(noise >> 8) * 0x1p-24F * 1e-5F;
  }
  return tile;
}

/* Copy each tile of `tensor`, from the host's with `writes`, or compare it with that. */
static gpuf_status visit_tiles(const bench *b, const gpuf_tensor *tensor, float *host, bool writes,
                               bool *is_same, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  *is_same = true;
  for (int64_t row = 0; row < tensor->shape[0] && status == GPUF_OK; row += TILE_ROWS) {
    const int64_t left = tensor->shape[0] - row;
    const int64_t shape[] = {left < TILE_ROWS ? left : TILE_ROWS, COLUMNS};
    gpuf_tensor part = *tensor, on_host;
    status = gpuf_tensor_slice(&part, 0, row, 1, shape[0], err);
    if (status == GPUF_OK) {
      status = gpuf_tensor_init(&on_host, host, (gpuf_device){GPUF_DEVICE_CPU, 0},
                                GPUF_DTYPE_FLOAT32, 2, shape, err);
    }
    if (status == GPUF_OK) {
      status =
          writes ? gpuf_copy(&part, &on_host, NULL, err) : gpuf_copy(&on_host, &part, NULL, err);
    }
    *is_same = *is_same && (writes || status != GPUF_OK ||
                            memcmp(host, b->tile, gpuf_tensor_nbytes(&on_host)) == 0);
  }
  return status;
}

static gpuf_status make_state(bench *b, size_t nbytes, gpuf_error *err) {
  const int64_t shape[] = {(int64_t)(nbytes / (COLUMNS * sizeof(float))) + 1, COLUMNS};
  bool is_same;
  b->tile = make_tile();
  if (!b->tile) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for a tile");
  }
  gpuf_status status = gpuf_tensor_alloc(b->device, GPUF_DTYPE_FLOAT32, 2, shape, &b->state, err);
  if (status == GPUF_OK) {
    status = gpuf_tensor_alloc(b->device, GPUF_DTYPE_FLOAT32, 2, shape, &b->copy, err);
  }
  return status == GPUF_OK ? visit_tiles(b, &b->state, b->tile, true, &is_same, err) : status;
}

/* The end of an answer. */
static void print_phases(void) {
  double seconds[PHASE_COUNT];
  phases_take(seconds);
  printf(", \"phases\": {");
  for (int i = 0; i < PHASE_COUNT; i++) {
    printf("%s\"%s\": %.9f", i ? ", " : "", phase_names[i], seconds[i]);
  }
  printf("}}\n");
}

/* --- Checkpoints --------------------------------------------------------------- */

static gpuf_status answer_open(bench *b, int mode, int recycles, int syncs, gpuf_error *err) {
  gpuf_checkpoint_options options = GPUF_CHECKPOINT_OPTIONS_INIT;
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  gpuf_checkpoint_close(b->writer, NULL, NULL);
  b->writer = NULL;
  options.directory = b->folder;
  options.prefix = "bench";
  options.device = b->device;
  options.state_nbytes = gpuf_tensor_nbytes(&b->state);
  options.mode = (gpuf_checkpoint_mode)mode;
  options.keep_count = 1;
  options.recycle = recycles != 0;
  options.unsynced = syncs == 0;
  const gpuf_status status = gpuf_checkpoint_open(&options, &b->writer, &report, err);
  if (status == GPUF_OK) {
    printf("{\"mode\": %d, \"device_nbytes\": %" PRIu64 ", \"host_nbytes\": %" PRIu64 "}\n",
           (int)report.mode, report.device_nbytes, report.host_nbytes);
  }
  return status;
}

static gpuf_status answer_save(bench *b, gpuf_error *err) {
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  double before[PHASE_COUNT];
  phases_take(before);
  const int64_t begin_ns = gpufi_clock_ns();
  gpuf_status status = gpuf_checkpoint_begin(b->writer, ++b->step, NULL, err);
  if (status == GPUF_OK) {
    status = gpuf_checkpoint_add(b->writer, "u", &b->state, NULL, err);
  }
  if (status == GPUF_OK) {
    status = gpuf_checkpoint_commit(b->writer, GPUF_STREAM_NONE, err);
  }
  if (status == GPUF_OK) {
    status = gpuf_checkpoint_wait(b->writer, -1, &report, err);
  }
  if (status == GPUF_OK) {
    printf("{\"stall\": %.9f, \"seconds\": %.9f, \"file_nbytes\": %" PRIu64
           ", \"recycled_nbytes\": %" PRIu64,
           (double)report.stall_ns / (double)GPUFI_NS_PER_S, seconds_since(begin_ns),
           report.file_nbytes, report.recycled_nbytes);
    print_phases();
  }
  return status;
}

static gpuf_status answer_restart(bench *b, gpuf_error *err) {
  gpuf_restart *restart = NULL;
  bool is_same = false;
  double before[PHASE_COUNT];
  phases_take(before);
  const int64_t begin_ns = gpufi_clock_ns();
  gpuf_status status = gpuf_restart_open(b->folder, "bench", -1, &restart, NULL, err);
  const double open_seconds = seconds_since(begin_ns);
  if (status == GPUF_OK) {
    status = gpuf_restart_read(restart, "u", &b->copy, NULL, err);
  }
  const double seconds = seconds_since(begin_ns);
  float *const host = malloc((size_t)TILE_ROWS * COLUMNS * sizeof(*host));
  if (status == GPUF_OK && host) {
    status = visit_tiles(b, &b->copy, host, false, &is_same, err);
  }
  free(host);
  gpuf_restart_close(restart);
  if (status == GPUF_OK) {
    printf("{\"open\": %.9f, \"seconds\": %.9f, \"same\": %s", open_seconds, seconds,
           is_same ? "true" : "false");
    print_phases();
  }
  return status;
}

/* --- Raw files ------------------------------------------------------------------ */

typedef struct raw {
  int fd;
  char *mapped; /* NULL: by pwrite, or pread with `reads` */
  bool by_kernel;
  char *memory;
  size_t nbytes, next; /* next is atomic */
  bool reads;
  int code; /* atomic: errno of a failure */
} raw;

static void *do_raw(void *arg) {
  raw *const r = arg;
  size_t at;
  while ((at = __atomic_fetch_add(&r->next, PIECE_NBYTES, __ATOMIC_RELAXED)) < r->nbytes) {
    const size_t left = r->nbytes - at;
    const size_t nbytes = left < PIECE_NBYTES ? left : PIECE_NBYTES;
    ssize_t done = (ssize_t)nbytes;
    if (r->by_kernel) {
      const gpufi_h5_target to = {r->fd, (uint8_t *)r->mapped, r->nbytes};
      done -= gpufi_h5_io_overwrite(&to, at, r->memory + at, nbytes) != 0;
    } else if (r->mapped) {
      memcpy(r->mapped + at, r->memory + at, nbytes);
    } else {
      done = r->reads ? pread(r->fd, r->memory + at, nbytes, (off_t)at)
                      : pwrite(r->fd, r->memory + at, nbytes, (off_t)at);
    }
    if (done != (ssize_t)nbytes) {
      __atomic_store_n(&r->code, done < 0 ? errno : ENOSPC, __ATOMIC_RELAXED);
    }
  }
  return NULL;
}

static double time_raw(raw *r, int threads) {
  pthread_t others[THREADS_MAX];
  int started = 0;
  r->next = 0;
  const int64_t begin_ns = gpufi_clock_ns();
  while (started < threads - 1 && pthread_create(&others[started], NULL, do_raw, r) == 0) {
    started++;
  }
  do_raw(r);
  for (int i = 0; i < started; i++) {
    pthread_join(others[i], NULL);
  }
  return seconds_since(begin_ns);
}

/* A fresh file, or one that is full already; -1 and errno after a failure. */
static int open_raw(const bench *b, raw *r, bool is_fresh) {
  char path[4096];
  snprintf(path, sizeof(path), "%s/raw", b->folder);
  r->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | (is_fresh ? O_TRUNC : 0), 0666);
  if (r->fd >= 0 && !is_fresh && lseek(r->fd, 0, SEEK_END) != (off_t)r->nbytes) {
    time_raw(r, 1);
  }
  return r->fd >= 0 && ftruncate(r->fd, is_fresh ? 0 : (off_t)r->nbytes) == 0 ? 0 : -1;
}

static gpuf_status answer_raw(const bench *b, const char *way, int threads, size_t nbytes,
                              gpuf_error *err) {
  raw r = {.fd = -1, .nbytes = nbytes, .memory = malloc(nbytes)};
  if (!r.memory || threads < 1 || threads > THREADS_MAX) {
    free(r.memory);
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "%zu bytes by %d threads", nbytes, threads);
  }
  for (size_t at = 0; at < nbytes; at += sizeof(float)) {
    memcpy(r.memory + at, &b->tile[at / sizeof(float) % (size_t)(TILE_ROWS * COLUMNS)],
           nbytes - at < sizeof(float) ? nbytes - at : sizeof(float));
  }
  int code = open_raw(b, &r, strcmp(way, "write") == 0) == 0 ? 0 : errno;
  r.by_kernel = strcmp(way, "copy") == 0;
  if (code == 0 && (r.by_kernel || strcmp(way, "map") == 0)) {
    r.mapped = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, r.fd, 0);
    code = r.mapped == MAP_FAILED ? errno : 0;
  }
  r.reads = strcmp(way, "read") == 0;
  if (code == 0) {
    const double seconds = time_raw(&r, threads);
    code = r.code;
    printf(code == 0 ? "{\"seconds\": %.9f}\n" : "", seconds);
  }
  if (r.mapped && r.mapped != MAP_FAILED) {
    munmap(r.mapped, nbytes);
  }
  if (r.fd >= 0) {
    close(r.fd);
  }
  free(r.memory);
  return code == 0 ? GPUF_OK
                   : gpufi_fail(err, GPUF_ERR_IO, code, "raw %s: %s", way, strerror(code));
}

/* --- The link --------------------------------------------------------------------- */

#define LINK_ROWS ((int64_t)65536)

/* The best of a few copies. */
static gpuf_status answer_link(const bench *b, bool is_in, gpuf_error *err) {
  const int64_t rows = b->state.shape[0] < LINK_ROWS ? b->state.shape[0] : LINK_ROWS;
  gpuf_tensor part = b->copy, pinned;
  void *memory = NULL;
  double best = INFINITY;
  gpuf_status status = gpuf_tensor_slice(&part, 0, 0, 1, rows, err);
  if (status == GPUF_OK) {
    status = gpuf_pool_acquire(b->device, gpuf_tensor_nbytes(&part), &memory, err);
  }
  if (status == GPUF_OK) {
    status = gpuf_tensor_init(&pinned, memory, (gpuf_device){GPUF_DEVICE_CPU, 0},
                              GPUF_DTYPE_FLOAT32, 2, part.shape, err);
  }
  for (int times = 0; times < 5 && status == GPUF_OK; times++) {
    const int64_t begin_ns = gpufi_clock_ns();
    status = is_in ? gpuf_copy(&part, &pinned, NULL, err) : gpuf_copy(&pinned, &part, NULL, err);
    best = fmin(best, seconds_since(begin_ns));
  }
  gpuf_pool_release(memory, NULL);
  if (status == GPUF_OK) {
    printf("{\"nbytes\": %zu, \"seconds\": %.9f}\n", gpuf_tensor_nbytes(&part), best);
  }
  return status;
}

/* --- Requests -------------------------------------------------------------------- */

static gpuf_status answer(bench *b, const char *line, gpuf_error *err) {
  char word[16] = "";
  char way[16] = "";
  int mode, recycles, syncs, threads;
  size_t nbytes;
  sscanf(line, "%15s", word);
  if (sscanf(line, "open %d %d %d", &mode, &recycles, &syncs) == 3) {
    return answer_open(b, mode, recycles, syncs, err);
  }
  if (sscanf(line, "raw %15s %d %zu", way, &threads, &nbytes) == 3) {
    return answer_raw(b, way, threads, nbytes, err);
  }
  if (sscanf(line, "link %15s", way) == 1) {
    return answer_link(b, strcmp(way, "in") == 0, err);
  }
  if (strcmp(word, "save") == 0) {
    return answer_save(b, err);
  }
  return strcmp(word, "restart") == 0
             ? answer_restart(b, err)
             : gpufi_fail(err, GPUF_ERR_INVALID, 0, "no request: %s", word);
}

static gpuf_status answer_all(bench *b, gpuf_error *err) {
  char line[LINE_NBYTES];
  gpuf_status status = GPUF_OK;
  printf("{\"nbytes\": %zu}\n", gpuf_tensor_nbytes(&b->state));
  fflush(stdout);
  while (status == GPUF_OK && fgets(line, sizeof(line), stdin)) {
    status = answer(b, line, err);
    fflush(stdout);
  }
  return status;
}

static void print_error(const char *message) {
  printf("{\"error\": \"");
  for (; *message; message++) {
    putchar(*message == '"' || *message == '\\' ? '\'' : *message);
  }
  printf("\"}\n");
}

int main(int argc, char **argv) {
  gpuf_error err = {0};
  if (argc != 4) {
    fprintf(stderr, "usage: checkpoint DEVICE FOLDER NBYTES\n");
    return 2;
  }
  H5open(); /* so that the linker keeps libhdf5 */
  bench b = {.folder = argv[2], .device = {GPUF_DEVICE_CUDA, 0}};
  if (strncmp(argv[1], "host", 4) == 0) {
    b.device.kind = GPUF_DEVICE_HOST;
  }
  gpuf_status status = make_state(&b, strtoull(argv[3], NULL, 10), &err);
  if (status == GPUF_OK) {
    status = answer_all(&b, &err);
  }
  if (status != GPUF_OK) {
    print_error(err.message);
  }
  gpuf_checkpoint_close(b.writer, NULL, NULL);
  gpuf_tensor_free(&b.state, NULL);
  gpuf_tensor_free(&b.copy, NULL);
  free(b.tile);
  return status == GPUF_OK ? 0 : 1;
}
