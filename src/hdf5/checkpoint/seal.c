#include "hdf5/checkpoint/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/system.h"
#include "hdf5/digest.h"
#include "hdf5/driver/io.h"

#define VERSION 1
#define MAGIC "gpufetch checkpoint seal"
#define MAGIC_NBYTES (sizeof(MAGIC) - 1)
#define SET_MAGIC "gpufetch shards"
#define PIECE_NBYTES ((size_t)1 << 20)
#define LEASE_WAITS_MAX 1000
#define LEASE_WAIT_NS (GPUFI_NS_PER_S / 1000)

typedef struct footer {
  char magic[MAGIC_NBYTES];
  uint64_t version;
  uint64_t file_nbytes;
  uint64_t range_count;
  uint64_t rest_sum;
  uint64_t sum; /* of the ranges and of the members before */
} footer;
_Static_assert(sizeof(footer) == 64, "as documented");

typedef struct set_record {
  char magic[sizeof(SET_MAGIC)];
  gpufi_checkpoint_set set;
} set_record;
_Static_assert(sizeof(set_record) == 40, "as documented");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are stored as they are");

static gpuf_status fail_memory(gpuf_error *err, const char *path, size_t nbytes) {
  return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %zu bytes of '%s'", nbytes, path);
}

/* --- The checksum ------------------------------------------------------------ */

typedef struct summing {
  int fd;
  char *piece;
  uint64_t sum;
} summing;

/* errno of a failure, or 0. */
static int sum_range(summing *s, uint64_t begin, uint64_t end) {
  while (begin < end) {
    const size_t nbytes = (size_t)(end - begin < PIECE_NBYTES ? end - begin : PIECE_NBYTES);
    const int code = gpufi_h5_io_read(s->fd, begin, s->piece, nbytes);
    if (code != 0) {
      return code;
    }
    const uint64_t link[2] = {s->sum, gpufi_h5_hash(s->piece, nbytes)};
    s->sum = gpufi_h5_hash(link, sizeof(link));
    begin += nbytes;
  }
  return 0;
}

/* Of the first `nbytes` bytes without the ranges, which are in order and lie in them. */
static gpuf_status sum_rest(int fd, const char *path, uint64_t nbytes,
                            const gpufi_h5_extent *ranges, uint64_t range_count, uint64_t *sum,
                            gpuf_error *err) {
  summing s = {fd, malloc(PIECE_NBYTES), 0};
  uint64_t begin = 0;
  int code = 0;
  if (!s.piece) {
    return fail_memory(err, path, PIECE_NBYTES);
  }
  for (uint64_t i = 0; i < range_count && code == 0; i++) {
    code = sum_range(&s, begin, ranges[i].begin);
    begin = ranges[i].end;
  }
  if (code == 0) {
    code = sum_range(&s, begin, nbytes);
  }
  free(s.piece);
  *sum = s.sum;
  return code == 0 ? GPUF_OK : gpufi_fail_system(err, "reading", path, code);
}

static uint64_t sum_of(const footer *f, const gpufi_h5_extent *ranges) {
  const uint64_t sums[2] = {gpufi_h5_hash(ranges, f->range_count * sizeof(*ranges)),
                            gpufi_h5_hash(f, offsetof(footer, sum))};
  return gpufi_h5_hash(sums, sizeof(sums));
}

/* --- Writing ----------------------------------------------------------------- */

gpuf_status gpufi_checkpoint_seal(int fd, const char *path, const gpufi_h5_extents *elements,
                                  gpuf_error *err) {
  struct stat file;
  footer f = {.version = VERSION};
  gpufi_h5_extents kept = {NULL, 0, 0};
  if (fstat(fd, &file) != 0) {
    return gpufi_fail_system(err, "looking at", path, errno);
  }
  memcpy(f.magic, MAGIC, MAGIC_NBYTES);
  const uint64_t nbytes = (uint64_t)file.st_size;
  for (size_t i = 0; i < elements->count; i++) {
    const gpufi_h5_extent *const e = &elements->ranges[i];
    if (e->end <= nbytes) {
      gpufi_h5_extents_add(&kept, e->begin, e->end);
    }
  }
  const size_t ranges_nbytes = kept.count * sizeof(*kept.ranges);
  f.range_count = kept.count;
  f.file_nbytes = nbytes + ranges_nbytes + sizeof(f);
  gpuf_status status = sum_rest(fd, path, nbytes, kept.ranges, kept.count, &f.rest_sum, err);
  if (status == GPUF_OK) {
    f.sum = sum_of(&f, kept.ranges);
    int code = gpufi_h5_io_write(fd, nbytes, kept.ranges, ranges_nbytes);
    code = code ? code : gpufi_h5_io_write(fd, nbytes + ranges_nbytes, &f, sizeof(f));
    status = code == 0 ? GPUF_OK : gpufi_fail_system(err, "writing the seal of", path, code);
  }
  gpufi_h5_extents_fini(&kept);
  return status;
}

uint64_t gpufi_checkpoint_add_mark(uint64_t sum, const gpufi_checkpoint_seal_mark *mark) {
  const uint64_t words[] = {sum, mark->nbytes, mark->sum};
  return gpufi_h5_hash(words, sizeof(words));
}

gpuf_status gpufi_checkpoint_note_set(int fd, const char *path, const gpufi_checkpoint_set *set,
                                      gpuf_error *err) {
  struct stat file;
  const set_record record = {.magic = SET_MAGIC, .set = *set};
  if (fstat(fd, &file) != 0) {
    return gpufi_fail_system(err, "looking at", path, errno);
  }
  const int code = gpufi_h5_io_write(fd, (uint64_t)file.st_size, &record, sizeof(record));
  return code == 0 ? GPUF_OK : gpufi_fail_system(err, "writing the set of", path, code);
}

/* --- Checking ---------------------------------------------------------------- */

/* Open a file for reading, but wait for no writer of a pipe. A writer that recycles has a lease of
 * an expired file for a moment, in which the system refuses to open it without waiting. */
static int open_to_read(const char *path, int flags) {
  int fd = gpufi_open(path, O_RDONLY | O_NONBLOCK | flags, 0);
  for (int waits = 0; fd < 0 && errno == EWOULDBLOCK && waits < LEASE_WAITS_MAX; waits++) {
    gpufi_sleep_ns(LEASE_WAIT_NS);
    fd = gpufi_open(path, O_RDONLY | O_NONBLOCK | flags, 0);
  }
  return fd;
}

static gpuf_status damaged(const char *path, const char *why, gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_CORRUPT, 0, "'%s' %s", path, why);
}

/* Read the last bytes, and check what they say of themselves. */
static gpuf_status read_footer(int fd, const char *path, uint64_t nbytes, footer *f,
                               gpuf_error *err) {
  if (nbytes < sizeof(*f)) {
    return damaged(path, "has no seal: it was cut, or is no checkpoint", err);
  }
  const int code = gpufi_h5_io_read(fd, nbytes - sizeof(*f), f, sizeof(*f));
  if (code != 0) {
    return gpufi_fail_system(err, "reading", path, code);
  }
  if (memcmp(f->magic, MAGIC, MAGIC_NBYTES) != 0) {
    return damaged(
        path, "has no seal: it was cut, or changed since it was written, or is no checkpoint", err);
  }
  if (f->version > VERSION) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "the seal of '%s' has version %" PRIu64
                      ", and libgpufetch %s reads up to %d: install a newer one",
                      path, f->version, gpuf_version(), VERSION);
  }
  if (f->file_nbytes != nbytes ||
      f->range_count > (nbytes - sizeof(*f)) / sizeof(gpufi_h5_extent)) {
    return damaged(path, "has another length than its seal says", err);
  }
  return GPUF_OK;
}

/* Whether the ranges are in order and lie in the first `nbytes` bytes. */
static bool are_in_order(const gpufi_h5_extent *ranges, uint64_t count, uint64_t nbytes) {
  uint64_t last = 0;
  for (uint64_t i = 0; i < count; i++) {
    if (ranges[i].begin < last || ranges[i].end <= ranges[i].begin || ranges[i].end > nbytes) {
      return false;
    }
    last = ranges[i].end;
  }
  return true;
}

static gpuf_status check_rest(int fd, const char *path, const footer *f,
                              const gpufi_h5_extent *ranges, uint64_t nbytes, gpuf_error *err) {
  uint64_t sum = 0;
  if (sum_of(f, ranges) != f->sum || !are_in_order(ranges, f->range_count, nbytes)) {
    return damaged(path, "is damaged: its seal is", err);
  }
  const gpuf_status status = sum_rest(fd, path, nbytes, ranges, f->range_count, &sum, err);
  return status == GPUF_OK && sum != f->rest_sum
             ? damaged(path, "is damaged: its bytes are not those that were sealed", err)
             : status;
}

gpuf_status gpufi_checkpoint_check_seal(int fd, const char *path, int64_t nbytes, gpuf_error *err) {
  footer f = {.version = 0};
  gpuf_status status = read_footer(fd, path, (uint64_t)nbytes, &f, err);
  if (status != GPUF_OK) {
    return status;
  }
  const size_t ranges_nbytes = f.range_count * sizeof(gpufi_h5_extent);
  const uint64_t before = (uint64_t)nbytes - sizeof(f) - ranges_nbytes;
  gpufi_h5_extent *const ranges = malloc(ranges_nbytes + 1);
  if (!ranges) {
    return fail_memory(err, path, ranges_nbytes);
  }
  const int code = gpufi_h5_io_read(fd, before, ranges, ranges_nbytes);
  status = code == 0 ? check_rest(fd, path, &f, ranges, before, err)
                     : gpufi_fail_system(err, "reading", path, code);
  free(ranges);
  return status;
}

static gpuf_status check_open_file(int fd, const char *path, gpufi_checkpoint_seal_mark *mark,
                                   gpuf_error *err) {
  struct stat file;
  if (fstat(fd, &file) != 0) {
    return gpufi_fail_system(err, "opening", path, errno);
  }
  if (!S_ISREG(file.st_mode)) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0, "'%s' is not a regular file", path);
  }
  const gpuf_status status = gpufi_checkpoint_check_seal(fd, path, file.st_size, err);
  return status == GPUF_OK ? gpufi_checkpoint_read_mark(fd, path, mark, err) : status;
}

gpuf_status gpufi_checkpoint_check_file(const char *path, gpufi_checkpoint_seal_mark *mark,
                                        gpuf_error *err) {
  const int fd = open_to_read(path, 0);
  if (fd < 0) {
    return gpufi_fail_system(err, "opening", path, errno);
  }
  const gpuf_status status = check_open_file(fd, path, mark, err);
  gpufi_close(fd);
  return status;
}

/* --- What a seal says -------------------------------------------------------- */

gpuf_status gpufi_checkpoint_read_mark(int fd, const char *path, gpufi_checkpoint_seal_mark *mark,
                                       gpuf_error *err) {
  struct stat file;
  footer f;
  if (fstat(fd, &file) != 0) {
    return gpufi_fail_system(err, "looking at", path, errno);
  }
  const gpuf_status status = read_footer(fd, path, (uint64_t)file.st_size, &f, err);
  if (status == GPUF_OK) {
    *mark = (gpufi_checkpoint_seal_mark){f.file_nbytes, f.sum};
  }
  return status;
}

static int open_regular(const char *path, struct stat *file) {
  const int fd = open_to_read(path, O_NOFOLLOW);
  if (fd >= 0 && (fstat(fd, file) != 0 || !S_ISREG(file->st_mode))) {
    gpufi_close(fd);
    return -1;
  }
  return fd;
}

bool gpufi_checkpoint_has_seal(const char *path) {
  struct stat file;
  footer f;
  const int fd = open_regular(path, &file);
  if (fd < 0) {
    return false;
  }
  const bool has_seal =
      file.st_size >= (off_t)sizeof(f) &&
      gpufi_h5_io_read(fd, (uint64_t)file.st_size - sizeof(f), &f, sizeof(f)) == 0 &&
      memcmp(f.magic, MAGIC, MAGIC_NBYTES) == 0;
  gpufi_close(fd);
  return has_seal;
}

/* The record lies before the ranges, if there is one. */
static bool read_set(int fd, uint64_t nbytes, gpufi_checkpoint_set *set) {
  footer f = {.version = 0};
  set_record record;
  if (read_footer(fd, "", nbytes, &f, NULL) != GPUF_OK) {
    return false;
  }
  const uint64_t behind_nbytes = sizeof(f) + f.range_count * sizeof(gpufi_h5_extent);
  *set = (gpufi_checkpoint_set){0, 0, 0};
  if (nbytes - behind_nbytes < sizeof(record)) {
    return true;
  }
  if (gpufi_h5_io_read(fd, nbytes - behind_nbytes - sizeof(record), &record, sizeof(record)) != 0) {
    return false;
  }
  if (memcmp(record.magic, SET_MAGIC, sizeof(record.magic)) == 0) {
    *set = record.set;
  }
  return true;
}

bool gpufi_checkpoint_read_set(const char *path, gpufi_checkpoint_set *set) {
  struct stat file;
  const int fd = open_regular(path, &file);
  const bool is_read = fd >= 0 && read_set(fd, (uint64_t)file.st_size, set);
  if (fd >= 0) {
    gpufi_close(fd);
  }
  return is_read;
}

/* --- Shards ------------------------------------------------------------------ */

static gpuf_status fail_missing(const char *path, gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_CORRUPT, ENOENT,
                    "its shard '%s' is missing: bring it back, as all files of a checkpoint must "
                    "lie in one folder under their own names",
                    path);
}

gpuf_status gpufi_checkpoint_check_shard(const char *path, gpufi_checkpoint_seal_mark *mark,
                                         gpuf_error *err) {
  gpuf_error why = {0};
  const gpuf_status status = gpufi_checkpoint_check_file(path, mark, &why);
  if (status == GPUF_ERR_IO && why.native_code == ENOENT) {
    return fail_missing(path, err);
  }
  return status == GPUF_OK ? GPUF_OK
                           : gpufi_fail(err, status, why.native_code, "its shard %s", why.message);
}

/* Looks at one shard and fills in its mark. */
typedef gpuf_status (*look)(const char *path, gpufi_checkpoint_seal_mark *mark, gpuf_error *err);

/* Look at the shards of the master at `path`; with `compares` they must be those that were written
 * with it. What is no master has none. */
static gpuf_status check_shards(const char *path, look look_at, bool compares, gpuf_error *err) {
  static const char suffix[] = ".h5";
  const size_t stem_nbytes = strlen(path) - (sizeof(suffix) - 1);
  gpufi_checkpoint_set set;
  gpuf_status status = GPUF_OK;
  uint64_t sum = 0;
  if (!gpufi_checkpoint_read_set(path, &set) || set.count == 0 || strlen(path) < sizeof(suffix) ||
      strcmp(path + stem_nbytes, suffix) != 0) {
    return GPUF_OK;
  }
  for (uint64_t i = 0; i < set.count && status == GPUF_OK; i++) {
    gpufi_checkpoint_seal_mark mark = {0, 0};
    char *shard = NULL;
    if (asprintf(&shard, "%.*s.%016" PRIx64 ".%" PRIu64 "%s", (int)stem_nbytes, path, set.number, i,
                 suffix) < 0) {
      return fail_memory(err, path, strlen(path));
    }
    status = look_at(shard, &mark, err);
    sum = gpufi_checkpoint_add_mark(sum, &mark);
    free(shard);
  }
  return status != GPUF_OK || !compares || sum == set.marks_sum
             ? status
             : gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                          "a shard of '%s' is another file than the one that was written with it: "
                          "`gpufetch verify` names it; bring back the one that was",
                          path);
}

gpuf_status gpufi_checkpoint_check_files(const char *path, gpuf_error *err) {
  gpufi_checkpoint_seal_mark mark;
  const gpuf_status status = gpufi_checkpoint_check_file(path, &mark, err);
  return status == GPUF_OK ? check_shards(path, gpufi_checkpoint_check_shard, false, err) : status;
}

static gpuf_status read_shard_mark(const char *path, gpufi_checkpoint_seal_mark *mark,
                                   gpuf_error *err) {
  const int fd = open_to_read(path, 0);
  if (fd < 0) {
    return gpufi_fail_system(err, "opening", path, errno);
  }
  const gpuf_status status = gpufi_checkpoint_read_mark(fd, path, mark, err);
  gpufi_close(fd);
  return status;
}

gpuf_status gpufi_checkpoint_check_marks(const char *path, gpuf_error *err) {
  gpuf_error why = {0};
  const gpuf_status status = check_shards(path, read_shard_mark, true, &why);
  if (status == GPUF_OK || status == GPUF_ERR_IO) {
    return GPUF_OK;
  }
  if (err) {
    *err = why;
  }
  return status;
}
