/* Times checkpoints of one array on a device, and raw ways to write and read files, for
 * `run.py --case checkpoint`.
 *
 *   checkpoint DEVICE FOLDER NBYTES RANKS
 *
 * DEVICE is "cuda" or "host"; the array has about NBYTES bytes of float32: waves, and noise that is
 * 10⁵ times smaller. RANKS processes, forked at the beginning, hold as many of its rows each, on
 * device RANK modulo the number of devices, and do together what is asked of the first. Each line
 * of the input is a request, and each line of the output one JSON object, of which the first is
 * {"nbytes": of the array, "devices": how many there are}:
 *
 *   open MODE RECYCLE SYNC SHARDS SHARE HOST
 *                           end the writer, and open another one: MODE is a gpuf_checkpoint_mode,
 *                           RECYCLE and SYNC are 0 or 1, SHARDS are each rank's, and SHARE
 *                           percent of the state are what it may take on the device (0: any),
 *                           HOST percent of it are its page-locked memory (0: the default).
 *                           {"mode", "device_nbytes", "host_nbytes"}: of rank 0
 *   save                    the next step, until it is finished. {"stall": seconds in begin, add
 *                           and commit, "delay": seconds after which the stream has done what
 *                           commit enqueued, both of the rank that takes longest, "seconds": of
 *                           all, "file_nbytes", "recycled_nbytes", "phases": seconds by name, see
 *                           checkpoint_phases.h}
 *   restart CHECK           the newest one, into the device, each rank the rows of the next one:
 *                           {"open": seconds until it was found whole, "seconds": of all, "same",
 *                           "phases"}. With CHECK 1 the memory is cleared first and compared
 *                           afterwards, and "same" says whether it has the array.
 *   link DIRECTION          between the array and page-locked memory, "in" or "out" of the device:
 *                           {"nbytes", "seconds"}
 *   raw WAY THREADS NBYTES FILES
 *                           so many files of so many bytes together: WAY is "write" (new ones),
 *                           "allocate" (new ones, which get their blocks by posix_fallocate and
 *                           are filled through a mapping), "overwrite" (by pwrite; the files are
 *                           there already, or are made first), "map" (the same through a
 *                           mapping), "copy" (the kernel copies to the mapping) or "read".
 *                           {"seconds"}
 *
 * A failure is {"error": "..."}, and the end. */
#include <errno.h>
#include <gpufetch/checkpoint.h>
#include <hdf5.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "checkpoint_phases.h"
#include "checkpoint_ranks.h"
#include "checkpoint_raw.h"

#define LINE_NBYTES 128
#define COLUMNS 1024
#define TILE_ROWS ((int64_t)4096)
#define PINNED_NBYTES_MIN ((size_t)64 << 20) /* what the library takes at least */

typedef struct bench {
  ranks ranks;
  const char *folder;
  gpuf_device device;
  int32_t device_count;
  gpuf_stream stream;
  int64_t rows;            /* of the whole array */
  gpuf_tensor state, copy; /* on the device: this rank's rows, and the next one's */
  float *tile, *next_tile; /* TILE_ROWS rows, which the state repeats, and the next rank's */
  float *host;             /* as many */
  gpuf_checkpoint *writer;
  int64_t step;
} bench;

static double seconds_since(int64_t begin_ns) {
  return (double)(gpufi_clock_ns() - begin_ns) / (double)GPUFI_NS_PER_S;
}

/* --- The state --------------------------------------------------------------- */

static float *make_tile(int rank) {
  float *const tile = malloc((size_t)TILE_ROWS * COLUMNS * sizeof(*tile));
  uint32_t noise = 1 + (uint32_t)rank;
  for (int64_t i = 0; tile && i < TILE_ROWS * COLUMNS; i++) {
    const float row = (float)(i / COLUMNS) / (float)TILE_ROWS;
    const float column = (float)(i % COLUMNS) / COLUMNS;
    noise = noise * 1664525U + 1013904223U;
    tile[i] = sinf(19 * row) * cosf(13 * column) + (float)(noise >> 8) * 0x1p-24F * 1e-5F;
  }
  return tile;
}

/* Copy `host` to each tile of `tensor`; or, with `is_same`, each tile to `host`, and compare it
 * with `wanted`. */
static gpuf_status visit_tiles(const gpuf_tensor *tensor, float *host, const float *wanted,
                               bool *is_same, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
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
          is_same ? gpuf_copy(&on_host, &part, NULL, err) : gpuf_copy(&part, &on_host, NULL, err);
    }
    if (status == GPUF_OK && is_same) {
      *is_same = *is_same && memcmp(host, wanted, gpuf_tensor_nbytes(&on_host)) == 0;
    }
  }
  return status;
}

/* Copy `tile` to each tile of `tensor`. */
static gpuf_status fill(const gpuf_tensor *tensor, const float *tile, gpuf_error *err) {
  return visit_tiles(tensor, (float *)tile, NULL, NULL, err);
}

static int64_t first_row(const bench *b, int rank) {
  return b->rows * rank / b->ranks.count;
}

static gpuf_status alloc_rows(bench *b, int rank, gpuf_tensor *tensor, gpuf_error *err) {
  const int64_t shape[] = {first_row(b, rank + 1) - first_row(b, rank), COLUMNS};
  return gpuf_tensor_alloc(b->device, GPUF_DTYPE_FLOAT32, 2, shape, tensor, err);
}

static gpuf_status choose_device(bench *b, const char *name, gpuf_error *err) {
  const bool is_host = strncmp(name, "host", 4) == 0;
  b->device.kind = is_host ? GPUF_DEVICE_HOST : GPUF_DEVICE_CUDA;
  const gpuf_status status = gpuf_device_count(b->device.kind, &b->device_count, err);
  if (status == GPUF_OK && b->device_count == 0) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0, "%s: there is no such device", name);
  }
  b->device.index = status == GPUF_OK ? b->ranks.rank % b->device_count : 0;
  return status == GPUF_OK ? gpuf_stream_create(b->device, &b->stream, err) : status;
}

static gpuf_status make_state(bench *b, size_t nbytes, gpuf_error *err) {
  const int rank = b->ranks.rank, next = (rank + 1) % b->ranks.count;
  b->rows = (int64_t)(nbytes / (COLUMNS * sizeof(float))) + 1;
  b->tile = make_tile(rank);
  b->next_tile = make_tile(next);
  b->host = malloc((size_t)TILE_ROWS * COLUMNS * sizeof(*b->host));
  if (!b->tile || !b->next_tile || !b->host) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for a tile");
  }
  gpuf_status status = alloc_rows(b, rank, &b->state, err);
  if (status == GPUF_OK) {
    status = alloc_rows(b, next, &b->copy, err);
  }
  return status == GPUF_OK ? fill(&b->state, b->tile, err) : status;
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

static gpuf_status answer_open(bench *b, const int numbers[6], gpuf_error *err) {
  gpuf_checkpoint_options options = GPUF_CHECKPOINT_OPTIONS_INIT;
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  gpuf_checkpoint_close(b->writer, NULL, NULL);
  b->writer = NULL;
  options.directory = b->folder;
  options.prefix = "bench";
  options.device = b->device;
  options.state_nbytes = gpuf_tensor_nbytes(&b->state);
  options.mode = (gpuf_checkpoint_mode)numbers[0];
  options.keep_count = 1;
  options.recycle = numbers[1] != 0;
  options.unsynced = numbers[2] == 0;
  options.shard_count = (size_t)numbers[3];
  options.device_max_nbytes =
      numbers[4] ? options.state_nbytes * (size_t)numbers[4] / 100 + 4096 : 0;
  const size_t host_nbytes = options.state_nbytes / 100 * (size_t)numbers[5];
  options.host_max_nbytes =
      numbers[5] && host_nbytes < PINNED_NBYTES_MIN ? PINNED_NBYTES_MIN : host_nbytes;
  options.rank = b->ranks.rank;
  options.rank_count = b->ranks.count;
  options.agree = ranks_min;
  options.agree_arg = &b->ranks;
  const gpuf_status status = gpuf_checkpoint_open(&options, &b->writer, &report, err);
  if (status == GPUF_OK) {
    printf("{\"mode\": %d, \"device_nbytes\": %" PRIu64 ", \"host_nbytes\": %" PRIu64 "}\n",
           (int)report.mode, report.device_nbytes, report.host_nbytes);
  }
  return status;
}

/* Begin, add and commit; *delay is how long the stream then takes for what commit enqueued. */
static gpuf_status snapshot(bench *b, double *delay, gpuf_error *err) {
  gpuf_part part = GPUF_PART_INIT;
  part.shape[0] = b->rows;
  part.shape[1] = COLUMNS;
  part.start[0] = first_row(b, b->ranks.rank);
  gpuf_status status = gpuf_checkpoint_begin(b->writer, ++b->step, NULL, err);
  if (status == GPUF_OK) {
    status = gpuf_checkpoint_add(b->writer, "u", &b->state, b->ranks.count > 1 ? &part : NULL, err);
  }
  if (status == GPUF_OK) {
    status = gpuf_checkpoint_commit(b->writer, b->stream, err);
  }
  const int64_t begin_ns = gpufi_clock_ns();
  if (status == GPUF_OK) {
    status = gpuf_stream_synchronize(b->device, b->stream, err);
  }
  *delay = seconds_since(begin_ns);
  return status;
}

/* Of the rank that took longest. */
static double longest(bench *b, double seconds) {
  const double ns = seconds * (double)GPUFI_NS_PER_S;
  return (double)-ranks_min(&b->ranks, -(int64_t)ns) / (double)GPUFI_NS_PER_S;
}

static gpuf_status answer_save(bench *b, gpuf_error *err) {
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  double before[PHASE_COUNT], delay;
  phases_take(before);
  ranks_min(&b->ranks, 0); /* all begin at once */
  const int64_t begin_ns = gpufi_clock_ns();
  gpuf_status status = snapshot(b, &delay, err);
  if (status == GPUF_OK) {
    status = gpuf_checkpoint_wait(b->writer, -1, &report, err);
  }
  if (status == GPUF_OK) {
    const double seconds = longest(b, seconds_since(begin_ns));
    const double stall = longest(b, (double)report.stall_ns / (double)GPUFI_NS_PER_S);
    printf("{\"stall\": %.9f, \"delay\": %.9f, \"seconds\": %.9f", stall, longest(b, delay),
           seconds);
    printf(", \"file_nbytes\": %" PRId64 ", \"recycled_nbytes\": %" PRIu64,
           ranks_sum(&b->ranks, (int64_t)report.file_nbytes), report.recycled_nbytes);
    print_phases();
  }
  return status;
}

/* The rows of the next rank, so that they are another process's; *open_seconds is until the
 * checkpoint was found whole. */
static gpuf_status restart(bench *b, double *open_seconds, gpuf_error *err) {
  const int64_t begin_ns = gpufi_clock_ns();
  gpuf_restart *restart = NULL;
  gpuf_part part = GPUF_PART_INIT;
  part.shape[0] = b->rows;
  part.shape[1] = COLUMNS;
  part.start[0] = first_row(b, (b->ranks.rank + 1) % b->ranks.count);
  gpuf_status status = gpuf_restart_open(b->folder, "bench", -1, &restart, NULL, err);
  *open_seconds = seconds_since(begin_ns);
  if (status == GPUF_OK && restart == NULL) {
    status = gpufi_fail(err, GPUF_ERR_IO, 0, "%s: no checkpoint is there", b->folder);
  }
  if (status == GPUF_OK) {
    status = gpuf_restart_read(restart, "u", &b->copy, &part, err);
  }
  gpuf_restart_close(restart);
  return status;
}

static gpuf_status answer_restart(bench *b, bool checks, gpuf_error *err) {
  bool is_same = true;
  double before[PHASE_COUNT], open_seconds;
  gpuf_status status = GPUF_OK;
  if (checks) {
    memset(b->host, 0, (size_t)TILE_ROWS * COLUMNS * sizeof(*b->host));
    status = fill(&b->copy, b->host, err);
  }
  phases_take(before);
  ranks_min(&b->ranks, 0);
  const int64_t begin_ns = gpufi_clock_ns();
  if (status == GPUF_OK) {
    status = restart(b, &open_seconds, err);
  }
  const double seconds = longest(b, seconds_since(begin_ns));
  if (status == GPUF_OK && checks) {
    status = visit_tiles(&b->copy, b->host, b->next_tile, &is_same, err);
  }
  if (status == GPUF_OK) {
    const bool are_same = ranks_min(&b->ranks, is_same) == 1;
    printf("{\"open\": %.9f, \"seconds\": %.9f, \"same\": %s", open_seconds, seconds,
           are_same ? "true" : "false");
    print_phases();
  }
  return status;
}

/* --- Raw files ------------------------------------------------------------------ */

static gpuf_status answer_raw(const bench *b, const char *way, int threads, size_t nbytes,
                              int files, gpuf_error *err) {
  const raw_work work = {b->folder,
                         way,
                         threads,
                         files,
                         nbytes,
                         b->tile,
                         (size_t)TILE_ROWS * COLUMNS * sizeof(*b->tile)};
  double seconds = 0;
  const gpuf_status status = b->ranks.rank == 0 ? raw_time(&work, &seconds, err) : GPUF_OK;
  printf(status == GPUF_OK ? "{\"seconds\": %.9f}\n" : "", seconds);
  return status;
}

/* --- The link --------------------------------------------------------------------- */

#define LINK_ROWS ((int64_t)65536)

/* The best of a few copies. */
static gpuf_status answer_link(const bench *b, bool is_in, gpuf_error *err) {
  const int64_t rows = b->copy.shape[0] < LINK_ROWS ? b->copy.shape[0] : LINK_ROWS;
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
  char word[16] = "", way[16] = "";
  int numbers[6], threads, files;
  size_t nbytes;
  sscanf(line, "%15s", word);
  if (sscanf(line, "open %d %d %d %d %d %d", &numbers[0], &numbers[1], &numbers[2], &numbers[3],
             &numbers[4], &numbers[5]) == 6) {
    return answer_open(b, numbers, err);
  }
  if (sscanf(line, "raw %15s %d %zu %d", way, &threads, &nbytes, &files) == 4) {
    return answer_raw(b, way, threads, nbytes, files, err);
  }
  if (sscanf(line, "link %15s", way) == 1) {
    return answer_link(b, strcmp(way, "in") == 0, err);
  }
  if (sscanf(line, "restart %d", &numbers[0]) == 1) {
    return answer_restart(b, numbers[0] != 0, err);
  }
  return strcmp(word, "save") == 0 ? answer_save(b, err)
                                   : gpufi_fail(err, GPUF_ERR_INVALID, 0, "no request: %s", word);
}

static gpuf_status answer_all(bench *b, gpuf_error *err) {
  char line[LINE_NBYTES];
  gpuf_status status = GPUF_OK;
  printf("{\"nbytes\": %zu, \"devices\": %d}\n", (size_t)b->rows * COLUMNS * sizeof(float),
         b->device_count);
  fflush(stdout);
  while (status == GPUF_OK && ranks_read_line(&b->ranks, line, sizeof(line))) {
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

static int run(bench *b, char **argv) {
  gpuf_error err = {0};
  gpuf_status status = choose_device(b, argv[1], &err);
  if (status == GPUF_OK) {
    status = make_state(b, strtoull(argv[3], NULL, 10), &err);
  }
  if (status == GPUF_OK) {
    status = answer_all(b, &err);
  }
  if (status != GPUF_OK) {
    print_error(err.message);
    fprintf(stderr, "checkpoint: rank %d: %s\n", b->ranks.rank, err.message);
    ranks_leave(&b->ranks);
  }
  gpuf_checkpoint_close(b->writer, NULL, NULL);
  if (b->stream) {
    gpuf_stream_destroy(b->device, b->stream, NULL);
  }
  gpuf_tensor_free(&b->state, NULL);
  gpuf_tensor_free(&b->copy, NULL);
  free(b->tile);
  free(b->next_tile);
  free(b->host);
  return status == GPUF_OK ? 0 : 1;
}

int main(int argc, char **argv) {
  bench b = {.folder = argc == 5 ? argv[2] : ""};
  const long rank_count = argc == 5 ? strtol(argv[4], NULL, 10) : 0;
  if (rank_count < 1 || rank_count > RANKS_MAX) {
    fprintf(stderr, "usage: checkpoint DEVICE FOLDER NBYTES RANKS\n");
    return 2;
  }
  if (!ranks_fork(&b.ranks, (int)rank_count)) { /* before any of them uses a device */
    fprintf(stderr, "checkpoint: fork: %s\n", strerror(errno));
    return 1;
  }
  H5open(); /* so that the linker keeps libhdf5 */
  const int outcome = run(&b, argv);
  return ranks_end(&b.ranks) ? outcome : 1;
}
