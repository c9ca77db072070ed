/* Writes that the system refuses: what is reported as written is in the file once it is closed, and
 * after a failure the file takes no more writes, and says why, until it is closed and opened again.
 */
#include "hdf5_files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "hdf5/direct.h"
#include "hdf5/failures.h"

/* --- A disk that refuses writes ---------------------------------------------- */

/* Calls of one kind that fail, each with errno `failure`: number `left` from now on, the next one
 * being 1, and those after it if `later_too`. `has_failed` says whether one has. */
typedef struct refusals {
  int64_t left;
  int failure;
  bool later_too, has_failed;
} refusals;

static refusals writes = {.left = INT64_MAX}, reads = {.left = INT64_MAX};

static bool refuses(refusals *calls) {
  calls->left--;
  if (calls->left > 0 || (calls->left < 0 && !calls->later_too)) {
    return false;
  }
  calls->has_failed = true;
  errno = calls->failure;
  return true;
}

static void refuse_writes(int64_t nth, int failure, bool and_later) {
  writes = (refusals){nth, failure, and_later, false};
}

static void make_room(void) {
  writes.left = INT64_MAX;
  writes.later_too = false;
}

static void refuse_reads(int64_t nth, bool and_later) {
  reads = (refusals){nth, EIO, and_later, false};
}

/* This program's pwrite64 and pwrite stand before libc's, for libhdf5 too, which uses one of them.
 */
ssize_t pwrite64(int fd, const void *bytes, size_t nbytes, off64_t offset) {
  return refuses(&writes) ? -1 : syscall(SYS_pwrite64, fd, bytes, nbytes, offset);
}

ssize_t pread64(int fd, void *bytes, size_t nbytes, off64_t offset) {
  return refuses(&reads) ? -1 : syscall(SYS_pread64, fd, bytes, nbytes, offset);
}

/* Under names of their own, since headers may make pwrite64 of pwrite. */
ssize_t plain_pwrite(int fd, const void *bytes, size_t nbytes, off64_t offset) __asm__("pwrite");
ssize_t plain_pwrite(int fd, const void *bytes, size_t nbytes, off64_t offset) {
  return pwrite64(fd, bytes, nbytes, offset);
}

ssize_t plain_pread(int fd, void *bytes, size_t nbytes, off64_t offset) __asm__("pread");
ssize_t plain_pread(int fd, void *bytes, size_t nbytes, off64_t offset) {
  return pread64(fd, bytes, nbytes, offset);
}

/* --- Every write in turn ----------------------------------------------------- */

#define ROWS 40
#define COLUMNS 300

static const int64_t shape[] = {ROWS, COLUMNS};
static const int64_t chunk[] = {10, COLUMNS};
static float kept_values[ROWS * COLUMNS], new_values[ROWS * COLUMNS], found[ROWS * COLUMNS];

static gpuf_tensor tensor_of(float *values) {
  gpuf_tensor tensor;
  CHECK_OK(gpuf_tensor_init(&tensor, values, cpu_device, GPUF_DTYPE_FLOAT32, 2, shape, &err));
  return tensor;
}

/* HDF5 caches as little as it can, so that as many writes as possible fail within the call. */
static bool caches_are_small;

static hid_t create_access(void) {
  H5AC_cache_config_t config = {.version = H5AC__CURR_CACHE_CONFIG_VERSION};
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  if (!caches_are_small) {
    return access;
  }
  CHECK(H5Pget_mdc_config(access, &config) >= 0);
  config.set_initial_size = true;
  config.initial_size = config.min_size = config.max_size = 1024;
  config.incr_mode = H5C_incr__off;
  config.flash_incr_mode = H5C_flash_incr__off;
  config.decr_mode = H5C_decr__off;
  CHECK(H5Pset_mdc_config(access, &config) >= 0);
  CHECK(H5Pset_cache(access, 0, 0, 0, 0) >= 0);
  CHECK(H5Pset_sieve_buf_size(access, 0) >= 0);
  CHECK(H5Pset_meta_block_size(access, 0) >= 0);
  return access;
}

static hid_t open_with(const char *path, bool is_new) {
  const hid_t access = create_access();
  const hid_t file = is_new ? H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access)
                            : H5Fopen(path, H5F_ACC_RDWR, access);
  H5Pclose(access);
  return file;
}

/* Writes new_values, or an attribute; `holds` says whether the file has them. Where HDF5 is given
 * elements, not chunks, it may lose those of others with them. */
typedef struct operation {
  const char *name;
  gpuf_status (*run)(hid_t file);
  bool (*holds)(hid_t file);
  bool may_lose;
} operation;

static bool dataset_holds(hid_t file, const char *name, const void *expected) {
  const gpuf_tensor dst = tensor_of(found);
  const void *const bytes = found;
  memset(found, 0xa5, sizeof(found));
  CHECK_OK(gpuf_h5_read(file, name, &dst, NULL, &err));
  return !memcmp(bytes, expected, sizeof(found));
}

static gpuf_status write_new(hid_t file, gpuf_h5_codec codec, bool from_device) {
  gpuf_h5_options options = GPUF_H5_OPTIONS_INIT;
  gpuf_tensor src = tensor_of(new_values);
  options.codec = codec;
  options.chunk_shape = chunk;
  options.thread_count = 2;
  if (from_device) {
    src = copy_to_device(&src);
  }
  return gpuf_h5_write(file, "g1/g2/new", &src, &options, &err);
}

static gpuf_status write_gpufetch(hid_t file) {
  return write_new(file, GPUF_H5_CODEC_GPUFETCH, false);
}
static gpuf_status write_from_device(hid_t file) {
  return write_new(file, GPUF_H5_CODEC_GPUFETCH, true);
}
static gpuf_status write_bitshuffle(hid_t file) {
  return write_new(file, GPUF_H5_CODEC_BITSHUFFLE_LZ4, false);
}
static gpuf_status write_plain(hid_t file) {
  return write_new(file, GPUF_H5_CODEC_NONE, false);
}
static bool holds_new(hid_t file) {
  return dataset_holds(file, "g1/g2/new", new_values);
}

/* HDF5 has told this program, in H5Dclose, that it could not write what it had been given. */
static bool hdf5_reported;

static gpuf_status write_rows(hid_t file, const char *name, int64_t first, int64_t count) {
  const int64_t start[] = {first, 0};
  gpuf_tensor src = tensor_of(new_values);
  const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
  CHECK_OK(gpuf_tensor_slice(&src, 0, first, 1, count, &err));
  const gpuf_status status = gpuf_h5_write_region(dataset, start, &src, NULL, &err);
  hdf5_reported = H5Dclose(dataset) < 0;
  return status;
}
static bool holds_rows(hid_t file, const char *name, int64_t first, int64_t count) {
  static float expected[ROWS * COLUMNS];
  memcpy(expected, kept_values, sizeof(expected));
  memcpy(expected + first * COLUMNS, new_values + first * COLUMNS,
         (size_t)count * COLUMNS * sizeof(*expected));
  return dataset_holds(file, name, expected);
}

static gpuf_status write_within_chunks(hid_t file) {
  return write_rows(file, "chunked", 5, 30);
}
static bool holds_within_chunks(hid_t file) {
  return holds_rows(file, "chunked", 5, 30);
}
static gpuf_status write_whole_chunks(hid_t file) {
  return write_rows(file, "chunked", 10, 20);
}
static bool holds_whole_chunks(hid_t file) {
  return holds_rows(file, "chunked", 10, 20);
}
static gpuf_status write_contiguous(hid_t file) {
  return write_rows(file, "contiguous", 3, 30);
}
static bool holds_contiguous(hid_t file) {
  return holds_rows(file, "contiguous", 3, 30);
}

#define LONG_TEXT_NBYTES 2000

static void fill_text(char *text, int index) {
  memset(text, 'a' + index % 26, LONG_TEXT_NBYTES - 1);
  text[LONG_TEXT_NBYTES - 1] = '\0';
}

/* As many as do not fit HDF5's cache; of a failure the last one is at fault. */
static gpuf_status set_attributes(hid_t file) {
  char text[LONG_TEXT_NBYTES];
  gpuf_status status = GPUF_OK;
  for (int i = 0; i < 6 && status == GPUF_OK; i++) {
    const char name[] = {'n', (char)('0' + i), '\0'};
    const char text_name[] = {'t', (char)('0' + i), '\0'};
    fill_text(text, i);
    status = gpuf_h5_set_attribute_int64(file, "kept", name, i, NULL, &err);
    if (status == GPUF_OK) {
      status = gpuf_h5_set_attribute_text(file, "kept", text_name, text, NULL, &err);
    }
  }
  return status;
}
static bool holds_attributes(hid_t file) {
  char text[LONG_TEXT_NBYTES], expected[LONG_TEXT_NBYTES];
  int64_t value;
  bool right = true;
  for (int i = 0; i < 6; i++) {
    const char name[] = {'n', (char)('0' + i), '\0'};
    const char text_name[] = {'t', (char)('0' + i), '\0'};
    size_t nbytes = sizeof(text);
    fill_text(expected, i);
    CHECK_OK(gpuf_h5_get_attribute_int64(file, "kept", name, &value, NULL, &err));
    CHECK_OK(gpuf_h5_get_attribute_text(file, "kept", text_name, text, &nbytes, NULL, &err));
    right = right && value == i && !strcmp(text, expected);
  }
  return right;
}

static const operation operations[] = {
    {"write, gpufetch", write_gpufetch, holds_new, false},
    {"write, gpufetch, from the device", write_from_device, holds_new, false},
    {"write, bitshuffle", write_bitshuffle, holds_new, false},
    {"write, plain chunks", write_plain, holds_new, false},
    {"write_region of whole chunks", write_whole_chunks, holds_whole_chunks, false},
    {"write_region within chunks", write_within_chunks, holds_within_chunks, true},
    {"write_region, contiguous", write_contiguous, holds_contiguous, true},
    {"attributes", set_attributes, holds_attributes, false},
};

static hid_t begin_case(const char *path) {
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    kept_values[i] = sinf((float)i);
    new_values[i] = cosf((float)i * 0.1F);
  }
  const hsize_t dims[] = {ROWS, COLUMNS};
  const hid_t file = open_with(path, true);
  const gpuf_tensor kept = tensor_of(kept_values);
  gpuf_h5_options options = GPUF_H5_OPTIONS_INIT;
  options.chunk_shape = chunk;
  CHECK_OK(gpuf_h5_write(file, "kept", &kept, &options, &err));
  CHECK_OK(gpuf_h5_write(file, "chunked", &kept, &options, &err));
  const hid_t contiguous =
      create_dataset(file, "contiguous", H5T_IEEE_F32LE, 2, dims, H5Pcreate(H5P_DATASET_CREATE));
  CHECK_OK(gpuf_h5_write_dataset(contiguous, &kept, NULL, &err));
  H5Dclose(contiguous);
  CHECK(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
  memset(&err, 0, sizeof(err));
  return file;
}

static const operation *current;

static void check_read_after_failure(hid_t file, int failure) {
  const gpuf_tensor dst = tensor_of(found);
  if (!current->may_lose) {
    CHECK(dataset_holds(file, "kept", kept_values));
    return;
  }
  CHECK_FAILS(gpuf_h5_read(file, "kept", &dst, NULL, &err), GPUF_ERR_HDF5, "was not read");
  CHECK(err.native_code == failure && strstr(err.message, strerror(failure)));
}

/* Every call that writes fails and says why, by whichever identifier the file is named. */
static void check_refused(hid_t file, const char *path, int failure) {
  const gpuf_tensor src = tensor_of(new_values);
  const hid_t same[] = {file, H5Freopen(file), open_with(path, false)};
  for (int i = 0; i < 3; i++) {
    const hid_t dataset = H5Dopen2(same[i], "kept", H5P_DEFAULT);
    CHECK(same[i] >= 0 && dataset >= 0);
    CHECK_FAILS(gpuf_h5_write(same[i], "later", &src, NULL, &err), GPUF_ERR_HDF5, "earlier write");
    CHECK(err.native_code == failure && strstr(err.message, strerror(failure)));
    CHECK_FAILS(gpuf_h5_write_dataset(dataset, &src, NULL, &err), GPUF_ERR_HDF5, "earlier write");
    CHECK_FAILS(gpuf_h5_set_attribute_int64(dataset, ".", "later", 1, NULL, &err), GPUF_ERR_HDF5,
                "earlier write");
    CHECK(err.native_code == failure);
    check_read_after_failure(same[i], failure);
    H5Dclose(dataset);
    if (i > 0) {
      H5Fclose(same[i]);
    }
  }
}

/* No two open files have the same one. */
static unsigned long file_number_of(hid_t file) {
  H5O_info_t info;
  CHECK(H5Oget_info1(file, &info) >= 0);
  return info.fileno;
}

/* After a failure in its own caches, HDF5 may keep a file open whose last identifier it has closed:
 * then it is the file that failed. */
static void check_writable_again(const char *path, unsigned long old_number, bool must_be_new) {
  const hid_t file = open_with(path, false);
  const gpuf_tensor src = tensor_of(new_values);
  CHECK(file >= 0);
  if (file_number_of(file) == old_number) {
    CHECK(!must_be_new);
    CHECK_FAILS(gpuf_h5_write(file, "again", &src, NULL, &err), GPUF_ERR_HDF5, "earlier write");
    return;
  }
  CHECK(dataset_holds(file, "kept", kept_values));
  CHECK_OK(gpuf_h5_write(file, "again", &src, NULL, &err));
  CHECK_OK(gpuf_h5_set_attribute_int64(file, "again", "step", 1, NULL, &err));
  CHECK(H5Fclose(file) >= 0);
}

typedef struct fault {
  int64_t nth;
  int failure;
  bool and_later;
} fault;

/* Whether the n-th write was reached. */
static bool check_case(const fault *f, const char *path) {
  hid_t file = begin_case(path);
  refuse_writes(f->nth, f->failure, f->and_later);
  const gpuf_status status = current->run(file);
  const bool reached = writes.has_failed;
  make_room();
  if (status != GPUF_OK) {
    CHECK(reached && status == GPUF_ERR_HDF5 && err.native_code == f->failure);
    CHECK(strstr(err.message, strerror(f->failure)));
    if (!caches_are_small || !f->and_later) { /* else HDF5 had to write to unlink something */
      CHECK(H5Lexists(file, "g1", H5P_DEFAULT) == 0); /* neither the dataset nor its groups */
    }
    check_refused(file, path, f->failure);
  } else {
    CHECK(err.status == GPUF_OK && !err.message[0]);
  }
  /* There is room again, so the file can be closed; what was reported as written is in it. */
  CHECK(H5Fget_obj_count(file, H5F_OBJ_ALL) == 1);
  const unsigned long number = file_number_of(file);
  const bool is_closed = H5Fclose(file) >= 0;
  const bool is_good = status == GPUF_OK && !hdf5_reported;
  CHECK(is_closed || !is_good);
  if (is_closed) {
    const hid_t access = create_access();
    file = H5Fopen(path, H5F_ACC_RDONLY, access);
    CHECK(file >= 0 && (!is_good || current->holds(file)));
    CHECK(H5Fclose(file) >= 0 && H5Pclose(access) >= 0);
    check_writable_again(path, number, is_good || !caches_are_small);
  }
  return reached;
}

enum { CASE_GOOD, CASE_NOT_REACHED, CASE_BAD };

/* In a child, since HDF5 may crash at exit after a failed write; the child does not get there. */
static int run_in_child(const fault *f) {
  char path[64];
  int outcome;
  snprintf(path, sizeof(path), "test_hdf5_disk_%ld.h5", (long)getpid());
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    int result = CASE_BAD;
    if (setjmp(test_exit) == 0) {
      result = check_case(f, path) ? CASE_GOOD : CASE_NOT_REACHED;
    }
    fflush(stdout);
    _exit(result);
  }
  CHECK(waitpid(child, &outcome, 0) == child);
  unlink(path);
  return WIFSIGNALED(outcome) ? CASE_BAD : WEXITSTATUS(outcome);
}

static int fail_each_write(fault f) {
  int bad_count = 0;
  int outcome = CASE_GOOD;
  for (f.nth = 1; outcome != CASE_NOT_REACHED; f.nth++) {
    CHECK(f.nth < 200);
    outcome = run_in_child(&f);
    if (outcome == CASE_BAD) {
      printf("# %s, write %d%s: bad\n", current->name, (int)f.nth, f.and_later ? " and later" : "");
      bad_count++;
    }
  }
  printf("# %s: %d writes\n", current->name, (int)f.nth - 2);
  return bad_count;
}

static void what_is_reported_as_written_is_in_the_file(void) {
  int bad_count = 0;
  for (int small = 0; small < 2; small++) {
    caches_are_small = small;
    bad_count += fail_each_write((fault){.failure = ENOSPC, .and_later = true});
    bad_count += fail_each_write((fault){.failure = EIO});
  }
  CHECK(bad_count == 0);
}

/* --- One failure ------------------------------------------------------------- */

static void a_full_disk_leaves_no_dataset(void) {
  const rlim_t most = 3 << 20;
  struct rlimit old;
  struct rlimit limit;
  const hid_t file = create_file();
  gpuf_tensor kept = create_cpu(GPUF_DTYPE_FLOAT32, 1, (int64_t[]){1000}, 22);
  gpuf_tensor src = create_cpu(GPUF_DTYPE_UINT8, 1, (int64_t[]){16 << 20}, 23);
  gpuf_status status;
  CHECK_OK(gpuf_h5_write(file, "kept", &kept, NULL, &err));
  signal(SIGXFSZ, SIG_IGN);
  getrlimit(RLIMIT_FSIZE, &old);
  limit = old;
  limit.rlim_cur = most;
  setrlimit(RLIMIT_FSIZE, &limit);
  status = gpuf_h5_write(file, "x", &src, NULL, &err);
  setrlimit(RLIMIT_FSIZE, &old);
  CHECK(status == GPUF_ERR_HDF5 && strstr(err.message, "File too large"));
  CHECK(err.native_code == EFBIG);
  CHECK(H5Lexists(file, "x", H5P_DEFAULT) == 0);
  check_stored(file, "kept", &kept);
  destroy(&kept);
  destroy(&src);
  close_file(file);
}

/* A dataset "x" of kept_values that is read as chunks, or by HDF5 alone, which decodes its filter
 * and has a cache of two chunks. */
static hid_t create_x(hid_t file, bool by_hdf5) {
  const hsize_t dims[] = {ROWS, COLUMNS}, chunk_dims[] = {10, COLUMNS};
  const hid_t plist = H5Pcreate(H5P_DATASET_CREATE), access = H5Pcreate(H5P_DATASET_ACCESS);
  const gpuf_tensor src = tensor_of(kept_values);
  gpuf_h5_options options = GPUF_H5_OPTIONS_INIT;
  options.chunk_shape = chunk;
  H5Pset_chunk(plist, 2, chunk_dims);
  H5Pset_shuffle(plist);
  H5Pset_chunk_cache(access, 101, 2 * sizeof(kept_values) / 4, 0.75);
  if (by_hdf5) {
    H5Dclose(create_dataset(file, "x", H5T_IEEE_F32LE, 2, dims, plist));
  } else {
    CHECK_OK(gpuf_h5_write(file, "x", &src, &options, &err));
    H5Pclose(plist);
  }
  const hid_t dataset = H5Dopen2(file, "x", by_hdf5 ? access : H5P_DEFAULT);
  CHECK_OK(gpuf_h5_write_dataset(dataset, &src, NULL, &err));
  CHECK(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
  H5Pclose(access);
  return dataset;
}

/* HDF5 writes chunks from its cache when it is asked how they are stored, and when it needs their
 * place for others, and loses those that it cannot write: a read is right, or it fails, and so do
 * those after it. `nth` is the write that is refused. Returns whether there was one. */
static bool read_beside_a_full_disk(int64_t nth, bool and_later, bool by_hdf5) {
  static float expected[ROWS * COLUMNS];
  const int64_t start[] = {3, 5};
  const hid_t file = create_file();
  const hid_t dataset = create_x(file, by_hdf5);
  gpuf_tensor src = tensor_of(new_values);
  CHECK_OK(gpuf_tensor_slice(&src, 0, 3, 1, ROWS - 5, &err));
  CHECK_OK(gpuf_tensor_slice(&src, 1, 5, 1, COLUMNS - 9, &err));
  CHECK_OK(gpuf_h5_write_region(dataset, start, &src, NULL, &err));
  memcpy(expected, kept_values, sizeof(expected));
  for (int row = 3; row < ROWS - 2; row++) {
    memcpy(expected + row * COLUMNS + 5, new_values + row * COLUMNS + 5,
           (COLUMNS - 9) * sizeof(*expected));
  }
  refuse_writes(nth, ENOSPC, and_later);
  for (int i = 0; i < 3; i++) {
    const gpuf_tensor dst = tensor_of(found);
    memset(found, 0xa5, sizeof(found));
    const gpuf_status status = gpuf_h5_read(file, "x", &dst, NULL, &err);
    CHECK(status == GPUF_OK ? !writes.has_failed && !memcmp(found, expected, sizeof(found))
                            : writes.has_failed && err.native_code == ENOSPC);
  }
  make_room();
  H5Dclose(dataset);
  H5Fclose(file);
  return writes.has_failed;
}

static void a_read_beside_a_full_disk_is_right_or_fails(void) {
  int counts[2] = {0};
  for (int i = 0; i < 4; i++) {
    for (int64_t nth = 1; read_beside_a_full_disk(nth, i % 2, i / 2); nth++) {
      counts[i / 2]++;
    }
  }
  CHECK(counts[0] >= 2 * ROWS / 10 && counts[1] >= 2);
}

/* --- Reads that the system refuses --------------------------------------------- */

static const char *const layouts[] = {"contiguous", "number", "plain chunks", "shuffled",
                                      "gpufetch"};
enum { LAYOUT_COUNT = sizeof(layouts) / sizeof(*layouts) };

static gpuf_tensor number_of(float *value) {
  gpuf_tensor tensor;
  CHECK_OK(gpuf_tensor_init(&tensor, value, cpu_device, GPUF_DTYPE_FLOAT32, 0, NULL, &err));
  return tensor;
}

/* A file with a dataset of kept_values, or their first one, in each layout. */
static void write_layouts(void) {
  const hid_t file = create_file();
  const hsize_t dims[] = {ROWS, COLUMNS}, chunk_dims[] = {10, COLUMNS};
  const gpuf_tensor all = tensor_of(kept_values), first = number_of(kept_values);
  gpuf_h5_options options = GPUF_H5_OPTIONS_INIT;
  for (int i = 0; i < LAYOUT_COUNT; i++) {
    const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    if (i > 1) {
      H5Pset_chunk(plist, 2, chunk_dims);
    }
    if (i == 3) {
      H5Pset_shuffle(plist);
    }
    if (i == 4) {
      options.chunk_shape = chunk;
      H5Pclose(plist);
      CHECK_OK(gpuf_h5_write(file, layouts[i], &all, &options, &err));
      continue;
    }
    const hid_t dataset =
        create_dataset(file, layouts[i], H5T_IEEE_F32LE, i == 1 ? 0 : 2, dims, plist);
    CHECK_OK(gpuf_h5_write_dataset(dataset, i == 1 ? &first : &all, NULL, &err));
    H5Dclose(dataset);
  }
  CHECK(H5Fclose(file) >= 0);
}

/* What HDF5 could not read it may take for read: a read is right, or it fails, and so does what
 * comes after it. Returns whether there was an n-th read. */
static bool read_where_reads_fail(int layout, int64_t nth, bool and_later) {
  const hid_t file = H5Fopen(file_path, H5F_ACC_RDWR, H5P_DEFAULT);
  /* HDF5 forgets what it has read when the last identifier is closed. */
  const hid_t dataset = nth % 2 ? H5Dopen2(file, layouts[layout], H5P_DEFAULT) : H5I_INVALID_HID;
  const size_t nbytes = layout == 1 ? sizeof(*found) : sizeof(found);
  refuse_reads(nth, and_later);
  for (int i = 0; i < 3; i++) {
    const gpuf_tensor dst = layout == 1 ? number_of(found) : tensor_of(found);
    const bool had_failed = reads.has_failed;
    memset(found, 0xa5, sizeof(found));
    const gpuf_status status = gpuf_h5_read(file, layouts[layout], &dst, NULL, &err);
    CHECK(status == GPUF_OK ? !memcmp(found, kept_values, nbytes)
                            : reads.has_failed && err.native_code == EIO);
    CHECK(!had_failed || status == GPUF_ERR_HDF5 || status == GPUF_ERR_IO || layout > 1);
  }
  const bool has_failed_in_hdf5 = reads.has_failed && err.status == GPUF_ERR_HDF5;
  refuse_reads(INT64_MAX, false);
  const gpuf_status status = gpuf_h5_set_attribute_int64(file, ".", "step", nth, NULL, &err);
  CHECK(status == (has_failed_in_hdf5 ? GPUF_ERR_HDF5 : GPUF_OK));
  CHECK(status == GPUF_OK || strstr(err.message, "an earlier read of this file failed"));
  if (dataset >= 0) {
    H5Dclose(dataset);
  }
  CHECK(H5Fclose(file) >= 0);
  return nth <= 20;
}

static void a_read_that_fails_makes_no_later_one_wrong(void) {
  write_layouts();
  for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
    for (int64_t nth = 1; read_where_reads_fail(layout, nth, false); nth++) {
      read_where_reads_fail(layout, nth, true);
    }
  }
  CHECK(unlink(file_path) == 0);
}

/* An object in another file, behind an external link, is refused as one of that file. */
static void what_a_link_leads_to_belongs_to_its_own_file(void) {
  char path[64];
  snprintf(path, sizeof(path), "test_hdf5_disk_linked_%ld.h5", (long)getpid());
  const hid_t linked = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t file = create_file();
  gpuf_tensor src = create_cpu(GPUF_DTYPE_UINT8, 2, (int64_t[]){1000, 1000}, 29);
  CHECK(H5Gclose(H5Gcreate2(linked, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)) >= 0);
  CHECK(H5Lcreate_external(path, "g", file, "link", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  CHECK_OK(gpuf_h5_set_attribute_int64(file, "link", "step", 1, NULL, &err));
  refuse_writes(1, ENOSPC, true);
  CHECK(gpuf_h5_write(linked, "x", &src, NULL, &err) == GPUF_ERR_HDF5);
  make_room();
  CHECK_FAILS(gpuf_h5_set_attribute_int64(file, "link", "step", 2, NULL, &err), GPUF_ERR_HDF5,
              "earlier write");
  CHECK(err.native_code == ENOSPC);
  CHECK_OK(gpuf_h5_set_attribute_int64(file, ".", "step", 2, NULL, &err));
  H5Fclose(linked);
  H5Fclose(file);
  unlink(path);
  unlink(file_path);
  destroy(&src);
}

/* --- What is remembered -------------------------------------------------------- */

/* Any number of files may fail; each says its own reason, until it is closed. */
static void the_errno_of_a_failed_write_is_the_native_code(void) {
  static const int failures[] = {ENOSPC, EIO, EDQUOT};
  gpuf_tensor src = create_cpu(GPUF_DTYPE_UINT8, 2, (int64_t[]){1000, 1000}, 29);
  for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
    hid_t file = create_file();
    CHECK_OK(gpuf_h5_write(file, "x", &src, NULL, &err));
    hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    refuse_writes(1, failures[i], true);
    const gpuf_status status = gpuf_h5_write_dataset(dataset, &src, NULL, &err);
    make_room();
    CHECK(status == GPUF_ERR_HDF5 && err.native_code == failures[i]);
    CHECK(strstr(err.message, strerror(failures[i])));
    CHECK_FAILS(gpuf_h5_write_dataset(dataset, &src, NULL, &err), GPUF_ERR_HDF5, "earlier write");
    CHECK(err.native_code == failures[i]);
    /* HDF5's own refusals have none. */
    CHECK_FAILS(gpuf_h5_read(file, "none", &src, NULL, &err), GPUF_ERR_HDF5, "none");
    CHECK(err.native_code == 0);
    H5Dclose(dataset);
    CHECK(H5Fclose(file) >= 0);
    file = H5Fopen(file_path, H5F_ACC_RDWR, H5P_DEFAULT);
    dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    CHECK_OK(gpuf_h5_write_dataset(dataset, &src, NULL, &err));
    H5Dclose(dataset);
    check_stored(file, "x", &src);
    close_file(file);
  }
  destroy(&src);
}

/* The newest thousand are remembered; each keeps its first failure. */
static void any_number_of_failures_takes_bounded_memory(void) {
  gpufi_h5_api *api;
  CHECK_OK(gpufi_h5_bound(&api, &err));
  const gpufi_h5_file unknown = {NULL, 7};
  gpufi_h5_failure_note(&unknown, (gpufi_h5_failure){true, false, true, EIO});
  CHECK(!gpufi_h5_failure_find(&unknown).has_failed);
  for (unsigned long i = 0; i < 5000; i++) {
    const gpufi_h5_file file = {api, (1UL << 40) + i};
    gpufi_h5_failure_note(&file, (gpufi_h5_failure){true, false, false, ENOSPC});
    CHECK(!gpufi_h5_failure_find(&file).has_lost);
    gpufi_h5_failure_note(&file, (gpufi_h5_failure){true, false, true, EIO});
    const gpufi_h5_failure found_failure = gpufi_h5_failure_find(&file);
    CHECK(found_failure.has_failed && found_failure.has_lost);
    CHECK(found_failure.system_error == ENOSPC);
  }
  const gpufi_h5_file early = {api, 1UL << 40}, late = {api, (1UL << 40) + 4000};
  CHECK(!gpufi_h5_failure_find(&early).has_failed);
  CHECK(gpufi_h5_failure_find(&late).has_failed);
}

static void a_file_that_cannot_be_read_is_an_io_error_with_its_errno(void) {
  char bytes[8];
  const int fd = open("/dev/null", O_WRONLY);
  CHECK(fd >= 0);
  CHECK_FAILS(gpufi_h5_direct_read(fd, 0, bytes, sizeof(bytes), &err), GPUF_ERR_IO, "at 0 failed");
  CHECK(err.native_code == EBADF);
  close(fd);
}

int main(void) {
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  test_device = host_device;
  for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
    char name[100];
    current = &operations[i];
    snprintf(name, sizeof(name), "what is reported as written is in the file: %s", current->name);
    test_run(name, what_is_reported_as_written_is_in_the_file);
  }
  TEST(a_full_disk_leaves_no_dataset);
  TEST(a_read_beside_a_full_disk_is_right_or_fails);
  TEST(a_read_that_fails_makes_no_later_one_wrong);
  TEST(what_a_link_leads_to_belongs_to_its_own_file);
  TEST(the_errno_of_a_failed_write_is_the_native_code);
  TEST(any_number_of_failures_takes_bounded_memory);
  TEST(a_file_that_cannot_be_read_is_an_io_error_with_its_errno);
  return test_finish();
}
