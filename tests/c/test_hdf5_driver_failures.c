/* The library's own file driver while system calls fail: each one in turn, once and from there on.
 * HDF5 closes the file without an error and the process ends in good order, the writer is told
 * errno, and where nothing failed every byte is right. The program takes the path of a libhdf5;
 * without one it tests the system's. */
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>

#include "hdf5/driver/driver.h"
#include "hdf5_library.h"
#include "portion.h"
#include "refused_calls.h"

#define CHUNK 20000
#define CHUNKS 12
#define CALLS_MAX 400
#define CASE_SECONDS_MAX 60

static char path[64];
static unsigned char values[CHUNKS * CHUNK];

enum { CASE_GOOD = 0, CASE_NOT_REACHED = 40, CASE_BAD };

/* What fails, and how files are written meanwhile. */
typedef struct failure {
  call_kind kind;
  long nth;
  int code;
  bool and_later;
  bool is_latest; /* the newest format that the library has */
} failure;

static int count_descriptors(void) {
  DIR *const listing = opendir("/proc/self/fd");
  int count = 0;
  CHECK(listing);
  while (readdir(listing)) {
    count++;
  }
  closedir(listing);
  return count;
}

/* Chunks of two datasets, a contiguous one, groups, a flush, and reading what was written. Calls of
 * HDF5's may fail. */
static void write_all(hid_t file) {
  const hid_t first = create_bytes(file, "first", sizeof(values), CHUNK);
  const hid_t flat = create_bytes(file, "flat", sizeof(values), 0);
  const hid_t second = create_bytes(file, "second", sizeof(values), CHUNK);
  char name[16];
  for (int i = 0; i < CHUNKS; i++) {
    const hsize_t offset = (hsize_t)i * CHUNK;
    api->Dwrite_chunk(first, H5P_DEFAULT, 0, &offset, CHUNK, values + offset);
    api->Dwrite_chunk(second, H5P_DEFAULT, 0, &offset, CHUNK, values + offset);
    snprintf(name, sizeof(name), "group %d", i);
    api->Idec_ref(h5.Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    if (i == CHUNKS / 2) {
      h5.Fflush(file, H5F_SCOPE_GLOBAL);
    }
  }
  api->Dwrite(flat, *api->T_STD_U8LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
  holds(file, "first", values, sizeof(values));
  api->Idec_ref(first);
  api->Idec_ref(flat);
  api->Idec_ref(second);
}

/* A file that is there already: metadata has to be read. */
static void write_again(hid_t file) {
  const hid_t first = api->Dopen2(file, "first", H5P_DEFAULT);
  holds(file, "second", values, sizeof(values));
  for (int i = 0; i < CHUNKS; i += 2) {
    const hsize_t offset = (hsize_t)i * CHUNK;
    api->Dwrite_chunk(first, H5P_DEFAULT, 0, &offset, CHUNK, values + offset);
  }
  api->Ldelete(file, "group 3", H5P_DEFAULT);
  api->Idec_ref(first);
}

static void check_whole(void) {
  const hid_t file = h5.Fopen(path, RDONLY, H5P_DEFAULT);
  CHECK(file >= 0);
  CHECK(holds(file, "first", values, sizeof(values)));
  CHECK(holds(file, "second", values, sizeof(values)));
  CHECK(holds(file, "flat", values, sizeof(values)));
  CHECK(h5.Fclose(file) >= 0);
}

static hid_t access_list(const failure *f, gpufi_h5_driver_file **watched) {
  const gpufi_h5_driver *driver;
  const hid_t fapl = api->Pcreate(*h5.P_FILE_ACCESS);
  CHECK_OK(gpufi_h5_driver_open(api, &driver, &err));
  CHECK_OK(gpufi_h5_driver_fapl(driver, fapl, watched, &err));
  if (f->is_latest) {
    CHECK(h5.Pset_libver_bounds(fapl, H5F_LIBVER_V18, H5F_LIBVER_LATEST) >= 0);
  }
  return fapl;
}

/* Write by `write`, or fail to open the file, and close it. */
static void write_file(hid_t file, gpufi_h5_driver_file *watched, const failure *f,
                       void (*write)(hid_t file)) {
  if (file < 0) {
    CHECK(gpufi_h5_driver_error(watched, &err) == GPUF_ERR_IO);
    return;
  }
  write(file);
  /* Metadata that cannot be read may be what HDF5 needs to close a file. */
  CHECK(h5.Fclose(file) >= 0 || f->kind == CALL_PREAD);
}

/* The outcome that the writer is told is the one that was brought about. */
static void check_told(const failure *f, gpufi_h5_driver_file *watched, hid_t fapl) {
  const gpuf_status status = gpufi_h5_driver_error(watched, &err);
  if (status == GPUF_OK) {
    /* HDF5 opens a file twice to see whether it is there. A lock that cannot be released goes with
     * the descriptor. */
    CHECK(!atomic_load(&was_refused[f->kind]) || f->kind == CALL_OPEN || f->kind == CALL_FLOCK);
    check_whole();
    return;
  }
  CHECK(status == GPUF_ERR_IO && atomic_load(&was_refused[f->kind]));
  CHECK(err.native_code == f->code);
  CHECK(strstr(err.message, strerror(f->code)) && strstr(err.message, path));
  refuse_none();
  const hid_t file = h5.Fcreate(path, TRUNC, H5P_DEFAULT, fapl);
  if (f->kind == CALL_OPEN || f->kind == CALL_FLOCK) {
    CHECK(h5.Fclose(file) >= 0);
    CHECK_OK(gpufi_h5_driver_error(watched, &err));
  } else { /* a file that cannot be whole is not begun */
    CHECK(file < 0);
    CHECK(gpufi_h5_driver_error(watched, &err) == GPUF_ERR_IO && err.native_code == f->code);
  }
}

static int write_files(const failure *f) {
  gpufi_h5_driver_file *watched = NULL;
  const hid_t fapl = access_list(f, &watched);
  unlink(path);
  refuse_calls(f->kind, f->nth, f->code, f->and_later);
  write_file(h5.Fcreate(path, TRUNC, H5P_DEFAULT, fapl), watched, f, write_all);
  if (gpufi_h5_driver_error(watched, &err) == GPUF_OK) {
    write_file(h5.Fopen(path, RDWR, fapl), watched, f, write_again);
  }
  const bool hit = atomic_load(&was_refused[f->kind]);
  check_told(f, watched, fapl);
  api->Idec_ref(fapl);
  gpufi_h5_driver_release(watched);
  return hit ? CASE_GOOD : CASE_NOT_REACHED;
}

/* In a child. What failed has no consequence for the next file. */
static int run_case(const failure *f) {
  const int descriptor_count = count_descriptors();
  const int outcome = write_files(f);
  refuse_none();
  CHECK(count_descriptors() == descriptor_count);
  CHECK(write_files(&(failure){.is_latest = f->is_latest}) == CASE_NOT_REACHED);
  return outcome;
}

static int run_in_child(const failure *f) {
  int outcome;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(CASE_SECONDS_MAX);
    const int failed = setjmp(test_exit);
    exit(failed ? CASE_BAD : run_case(f)); /* and HDF5 ends too */
  }
  CHECK(TEMP_FAILURE_RETRY(waitpid(child, &outcome, 0)) == child);
  outcome = WIFSIGNALED(outcome) ? -WTERMSIG(outcome) : WEXITSTATUS(outcome);
  if (outcome != CASE_GOOD && outcome != CASE_NOT_REACHED) {
    printf("# %s number %ld%s fails with %s%s: %s (%d)\n", call_names[f->kind], f->nth,
           f->and_later ? " and all later" : "", strerror(f->code),
           f->is_latest ? ", latest format" : "", outcome < 0 ? strsignal(-outcome) : "see above",
           outcome);
  }
  return outcome;
}

static call_kind current;

static void every_failure_is_told_and_the_file_closes(void) {
  static const int codes[] = {ENOSPC, EIO, EDQUOT};
  const bool has_many_calls = current == CALL_PWRITE || current == CALL_PREAD;
  int bad_count = 0;
  int reached_count = 0;
  for (int way = 0; way < 4; way++) {
    int outcome = CASE_GOOD;
    failure f = {.kind = current, .and_later = way & 1, .is_latest = way & 2};
    const portion p = has_many_calls ? portion_of_cases(way) : (portion){1, 1};
    for (f.nth = p.first; outcome != CASE_NOT_REACHED && bad_count < 5; f.nth += p.step) {
      CHECK(f.nth < CALLS_MAX);
      f.code = codes[f.nth % 3];
      outcome = run_in_child(&f);
      reached_count += outcome == CASE_GOOD;
      bad_count += outcome != CASE_GOOD && outcome != CASE_NOT_REACHED;
    }
  }
  printf("# %d failures of %s\n", reached_count, call_names[current]);
  CHECK(bad_count == 0 && reached_count > 0);
}

int main(int count, char **arguments) {
  load_library(count > 1 ? arguments[1] : NULL);
  snprintf(path, sizeof(path), "test_hdf5_driver_failures_%ld.h5", (long)getpid());
  for (size_t i = 0; i < sizeof(values); i++) {
    values[i] = (unsigned char)(i * 31 + (i >> 9));
  }
  for (int kind = 0; kind < CALL_KIND_COUNT; kind++) {
    char name[100];
    current = (call_kind)kind;
    snprintf(name, sizeof(name), "every failure is told and the file closes: %s", call_names[kind]);
    test_run(name, every_failure_is_told_and_the_file_closes);
  }
  unlink(path);
  return test_finish();
}
