/* Files of the library's own driver that others share: forked children, other processes that lock
 * them, a second file of the same access list; and the libraries that it is registered with. The
 * program takes the path of a libhdf5; without one it tests the system's. With a second argument it
 * is run by one of its own tests. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "hdf5/driver/overlay.h"
#include "hdf5_driver_files.h"

#define CHILD_SECONDS_MAX 30

static const char *library_argument; /* the path of the libhdf5, or NULL */

/* Run it in a child, which ends as programs do, HDF5 included. Returns the exit status. */
static int run_in_child(void (*function)(void)) {
  int outcome;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(CHILD_SECONDS_MAX);
    const int failed = setjmp(test_exit);
    if (!failed) {
      function();
    }
    exit(failed);
  }
  CHECK(TEMP_FAILURE_RETRY(waitpid(child, &outcome, 0)) == child);
  if (WIFSIGNALED(outcome)) {
    printf("# %s\n", strsignal(WTERMSIG(outcome)));
  }
  return WIFEXITED(outcome) ? WEXITSTATUS(outcome) : -1;
}

/* --- Forks ---------------------------------------------------------------------- */

static hid_t parents_file, x;

/* In a child: nothing reaches the parent's file. */
static void use_parents_file(void) {
  unsigned char other[100] = {1};
  char name[16];
  const hsize_t offset = 0;
  const hid_t dataset = create_bytes(parents_file, "child's", sizeof(other), 0);
  CHECK(api->Dwrite(dataset, *api->T_STD_U8LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, other) >= 0);
  for (int i = 0; i < 100; i++) {
    snprintf(name, sizeof(name), "group %d", i);
    const hid_t group = h5.Gcreate2(parents_file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    CHECK(group >= 0 && api->Idec_ref(group) >= 0);
  }
  CHECK(api->Lexists(parents_file, "group 50", H5P_DEFAULT) > 0);
  CHECK(api->Dwrite_chunk(x, H5P_DEFAULT, 0, &offset, sizeof(other), other) >= 0);
  h5.Dclose(dataset);
  CHECK(h5.Fflush(parents_file, H5F_SCOPE_GLOBAL) >= 0);
  CHECK_FAILS(gpufi_h5_driver_error(watched, &err), GPUF_ERR_STATE, "fork");
}

static void use_and_close_parents_file(void) {
  use_parents_file();
  h5.Dclose(x);
  CHECK(h5.Fclose(parents_file) >= 0);
  gpufi_h5_driver_release(watched);
}

/* A child writes files of its own as any process does. */
static void write_own_file(void) {
  gpufi_h5_driver_file *const parents_watched = watched;
  char parents_path[64];
  memcpy(parents_path, path, sizeof(path));
  snprintf(path, sizeof(path), "%.40s.child.h5", parents_path);
  const hid_t file = create_file();
  const hid_t dataset = write_values(file);
  h5.Dclose(dataset);
  finish(file);
  check_file("x", sizeof(values));
  unlink(path);
  watched = parents_watched;
}

static void only_end(void) {}

static void a_forked_child_leaves_its_parents_file_alone(void) {
  static void (*const uses[])(void) = {only_end, use_parents_file, use_and_close_parents_file,
                                       write_own_file};
  for (size_t i = 0; i < sizeof(uses) / sizeof(uses[0]); i++) {
    parents_file = create_file();
    x = write_values(parents_file);
    CHECK(run_in_child(uses[i]) == 0);
    /* The lock is still the parent's. */
    const int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK);
    close(fd);
    CHECK_OK(gpufi_h5_driver_error(watched, &err));
    h5.Dclose(x);
    CHECK(api->Lexists(parents_file, "group 50", H5P_DEFAULT) == 0);
    finish(parents_file);
    check_file("x", sizeof(values));
  }
}

/* --- Locks ---------------------------------------------------------------------- */

static void a_file_that_another_has_locked_is_not_opened(void) {
  const hid_t first = create_file();
  gpufi_h5_driver_file *const first_watched = watched;
  CHECK(h5.Fclose(first) >= 0);
  const int fd = open(path, O_RDWR);
  CHECK(fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0);
  const hid_t fapl = access_list();
  CHECK(h5.Fopen(path, RDWR, fapl) < 0);
  CHECK_FAILS(gpufi_h5_driver_error(watched, &err), GPUF_ERR_IO, path);
  CHECK(err.native_code == EWOULDBLOCK);
  const hid_t reader = h5.Fopen(path, RDONLY, fapl); /* may share the lock */
  CHECK(reader >= 0);
  CHECK_OK(gpufi_h5_driver_error(watched, &err));
  CHECK(h5.Fclose(reader) >= 0);
  close(fd);
  const hid_t writer = h5.Fopen(path, RDWR, fapl);
  CHECK(writer >= 0 && api->Idec_ref(fapl) >= 0);
  finish(writer);
  gpufi_h5_driver_release(first_watched);
}

/* On a file system without locks. Returns whether the file could be opened. */
static bool opens_without_locks(hid_t fapl) {
  refuse_calls(CALL_FLOCK, 1, ENOSYS, true);
  const hid_t file = h5.Fcreate(path, TRUNC, H5P_DEFAULT, fapl);
  if (file < 0) {
    CHECK_FAILS(gpufi_h5_driver_error(watched, &err), GPUF_ERR_IO, strerror(ENOSYS));
  } else {
    CHECK_OK(gpufi_h5_driver_error(watched, &err));
    CHECK(h5.Fclose(file) >= 0);
  }
  return file >= 0;
}

/* In a program of its own, since HDF5 reads the variable once. Exits with 1 if it is locked, with 2
 * besides if it opens where there are no locks. */
static int report_locking(void) {
  const hid_t fapl = access_list();
  const bool opens = opens_without_locks(fapl);
  const bool locks = atomic_load(&call_counts[CALL_FLOCK]) > 0;
  api->Idec_ref(fapl);
  gpufi_h5_driver_release(watched);
  unlink(path);
  return (locks ? 1 : 0) + (opens ? 2 : 0);
}

static const char *locking_value;

static void report_locking_elsewhere(void) {
  setenv("HDF5_USE_FILE_LOCKING", locking_value, 1);
  execl("/proc/self/exe", "test", library_argument ? library_argument : "", "locking", NULL);
  _exit(99);
}

static void the_environment_decides_about_locks(void) {
  static const struct {
    const char *value;
    int report;
  } cases[] = {{"TRUE", 1}, {"1", 1}, {"BEST_EFFORT", 3}, {"FALSE", 2}, {"0", 2}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    locking_value = cases[i].value;
    CHECK(run_in_child(report_locking_elsewhere) == cases[i].report);
  }
}

static void the_access_list_decides_about_locks(void) {
  herr_t (*set)(hid_t fapl, bool uses_locks, bool ignores_disabled);
  *(void **)&set = library_symbol("H5Pset_file_locking");
  if (!set || getenv("HDF5_USE_FILE_LOCKING")) {
    SKIP("HDF5 has no such property, or the environment counts");
  }
  for (int way = 0; way < 4; way++) {
    const bool uses_locks = way & 1, ignores_disabled = way & 2;
    const hid_t fapl = access_list();
    CHECK(set(fapl, uses_locks, ignores_disabled) >= 0);
    CHECK(opens_without_locks(fapl) == (!uses_locks || ignores_disabled));
    CHECK((atomic_load(&call_counts[CALL_FLOCK]) > 0) == uses_locks);
    api->Idec_ref(fapl);
    gpufi_h5_driver_release(watched);
  }
  refuse_none();
}

/* --- Failures that HDF5 is told ------------------------------------------------- */

static int told_errno;

static herr_t find_errno(unsigned n, const H5E_error2_t *entry, void *arg) {
  const char *found = n == 0 && entry->desc ? strstr(entry->desc, "errno = ") : NULL;
  told_errno = found ? atoi(found + strlen("errno = ")) : told_errno;
  return 0;
}

/* HDF5's error stack names errno, in the words that gpufi_h5_fail looks for. */
static void check_that_hdf5_is_told(hid_t dataset) {
  const hsize_t offset = 0;
  refuse_calls(CALL_PWRITE, 1, ENOSPC, false);
  CHECK(api->Dwrite_chunk(dataset, H5P_DEFAULT, 0, &offset, CHUNK, values) < 0);
  told_errno = 0;
  CHECK(api->Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, find_errno, NULL) >= 0);
  CHECK(told_errno == ENOSPC);
  refuse_none();
  CHECK(api->Dwrite_chunk(dataset, H5P_DEFAULT, 0, &offset, CHUNK, values) >= 0);
}

/* As an external link may open one. Nobody could ask for its failures. */
static void a_second_file_of_a_list_is_as_with_the_default_driver(void) {
  const hid_t fapl = access_list();
  char second_path[80];
  snprintf(second_path, sizeof(second_path), "%s.second", path);
  const hid_t first = h5.Fcreate(path, TRUNC, H5P_DEFAULT, fapl);
  const hid_t second = h5.Fcreate(second_path, TRUNC, H5P_DEFAULT, fapl);
  CHECK(first >= 0 && second >= 0);
  const hid_t dataset = create_bytes(second, "x", CHUNK, CHUNK);
  write_chunk(dataset, 0);
  check_that_hdf5_is_told(dataset);
  CHECK_OK(gpufi_h5_driver_error(watched, &err));
  h5.Dclose(dataset);
  CHECK(h5.Fclose(first) >= 0 && h5.Fclose(second) >= 0);
  CHECK(unlink(second_path) == 0);
  /* The writer's is the next one again. */
  const hid_t third = h5.Fopen(path, RDWR, fapl);
  h5.Dclose(write_values(third));
  api->Idec_ref(fapl);
  finish(third);
  check_file("x", sizeof(values));
}

static void a_file_whose_writer_is_gone_is_as_with_the_default_driver(void) {
  const hid_t file = create_file();
  const hid_t dataset = write_values(file);
  CHECK_OK(gpufi_h5_driver_error(watched, &err));
  gpufi_h5_driver_release(watched);
  check_that_hdf5_is_told(dataset);
  h5.Dclose(dataset);
  CHECK(h5.Fclose(file) >= 0);
  check_file("x", sizeof(values));
}

static bool writer_hears;

/* A write fails, and the writer goes, with or without having asked. */
static void leave_after_a_failure(void) {
  const hid_t file = create_file();
  x = create_bytes(file, "x", sizeof(values), CHUNK);
  refuse_calls(CALL_PWRITE, 1, EDQUOT, false);
  write_chunk(x, 0);
  if (writer_hears) {
    CHECK(gpufi_h5_driver_error(watched, &err) == GPUF_ERR_IO && err.native_code == EDQUOT);
  }
  gpufi_h5_driver_release(watched);
  CHECK((h5.Fflush(file, H5F_SCOPE_GLOBAL) >= 0) == writer_hears);
  if (writer_hears) {
    h5.Dclose(x);
    CHECK(h5.Fclose(file) >= 0);
  } else {
    _exit(0); /* HDF5 cannot close a file that the system refuses */
  }
}

static void a_failure_is_heard_by_the_writer_or_by_hdf5(void) {
  for (int hears = 0; hears < 2; hears++) {
    writer_hears = hears;
    CHECK(run_in_child(leave_after_a_failure) == 0);
  }
}

/* HDF5 has the list of an open file, and closes what it opens twice. */
static void the_list_of_an_open_file_opens_it_again(void) {
  const hid_t file = create_file();
  const hid_t fapl = api->Fget_access_plist(file);
  CHECK(fapl >= 0 && api->Pget_driver_info(fapl) == watched);
  const hid_t again = h5.Fopen(path, RDWR, fapl);
  CHECK(again >= 0);
  x = create_bytes(again, "x", sizeof(values), CHUNK);
  CHECK(h5.Fclose(again) >= 0);
  for (int i = 0; i < CHUNKS; i++) {
    write_chunk(x, i);
  }
  h5.Dclose(x);
  CHECK(api->Idec_ref(fapl) >= 0);
  finish(file);
  check_file("x", sizeof(values));
}

/* --- A full disk ---------------------------------------------------------------- */

static void fill_disk(void) {
  const struct rlimit limit = {3 * CHUNK, 3 * CHUNK};
  const hid_t file = create_file();
  const hid_t dataset = create_bytes(file, "x", sizeof(values), CHUNK);
  signal(SIGXFSZ, SIG_IGN);
  CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  for (int i = 0; i < CHUNKS; i++) {
    write_chunk(dataset, i);
  }
  CHECK_FAILS(gpufi_h5_driver_error(watched, &err), GPUF_ERR_IO, "File too large");
  CHECK(err.native_code == EFBIG);
  h5.Dclose(dataset);
  CHECK(h5.Fclose(file) >= 0);
  CHECK(gpufi_h5_driver_error(watched, &err) == GPUF_ERR_IO && err.native_code == EFBIG);
  gpufi_h5_driver_release(watched);
}

static void a_full_disk_is_told_and_the_process_goes_on(void) {
  CHECK(run_in_child(fill_disk) == 0);
}

/* Data is dropped, and cannot be read; metadata is there. */
static void fail_at_once(void) {
  char name[16];
  const hid_t file = create_file();
  const hid_t dataset = create_bytes(file, "x", sizeof(values), CHUNK);
  refuse_calls(CALL_PWRITE, 1, EIO, false);
  for (int i = 0; i < CHUNKS; i++) {
    write_chunk(dataset, i);
  }
  CHECK(gpufi_h5_driver_error(watched, &err) == GPUF_ERR_IO);
  const hsize_t offset = 0;
  CHECK(api->Dwrite_chunk(dataset, H5P_DEFAULT, 0, &offset, CHUNK, values) >= 0);
  CHECK(api->Dread(dataset, *api->T_STD_U8LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0);
  h5.Dclose(dataset);
  for (int i = 0; i < 2000; i++) {
    snprintf(name, sizeof(name), "group %d", i);
    const hid_t group = h5.Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    CHECK(group >= 0 && api->Idec_ref(group) >= 0);
  }
  CHECK(h5.Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
  for (int i = 0; i < 2000; i++) {
    snprintf(name, sizeof(name), "group %d", i);
    CHECK(api->Lexists(file, name, H5P_DEFAULT) > 0);
  }
  CHECK(h5.Fclose(file) >= 0);
  gpufi_h5_driver_release(watched);
}

static void hdf5_finds_its_metadata_after_a_failure(void) {
  CHECK(run_in_child(fail_at_once) == 0);
}

static void what_could_not_be_written_is_read_from_memory(void) {
  enum { SIZE = 200000, ROUNDS = 3000 };
  unsigned char *const expected = calloc(1, SIZE), *const found = malloc(SIZE);
  gpufi_h5_overlay overlay = {.nbytes = 0};
  uint64_t state = 5;
  const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(fd >= 0 && expected && found);
  memcpy(expected, values, SIZE / 2); /* the file is as long as that */
  CHECK(pwrite(fd, values, SIZE / 2, 0) == SIZE / 2);
  for (int round = 0; round < ROUNDS; round++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const size_t offset = (size_t)(state >> 33) % SIZE;
    const size_t most = (state >> 20) % 4 ? 300 : 20000;
    const size_t nbytes = (size_t)(state >> 13) % (SIZE - offset < most ? SIZE - offset : most);
    memset(found, round, nbytes);
    CHECK(gpufi_h5_overlay_put(&overlay, 2 * SIZE, fd, offset, found, nbytes));
    memcpy(expected + offset, found, nbytes);
    memset(found, 0, SIZE);
    CHECK(pread(fd, found, SIZE, 0) == SIZE / 2);
    gpufi_h5_overlay_apply(&overlay, 0, found, SIZE);
    CHECK(memcmp(found, expected, SIZE) == 0);
    memcpy(found, values, sizeof(values) < SIZE ? sizeof(values) : SIZE);
  }
  CHECK(!gpufi_h5_overlay_put(&overlay, overlay.nbytes, fd, 10 * SIZE, values, 1));
  gpufi_h5_overlay_fini(&overlay);
  CHECK(overlay.nbytes == 0);
  close(fd);
  free(expected);
  free(found);
}

/* --- Libraries ------------------------------------------------------------------ */

static unsigned pretended[2];

static herr_t pretend_version(unsigned *major, unsigned *minor, unsigned *patch) {
  *major = pretended[0];
  *minor = pretended[1];
  *patch = 0;
  return 0;
}

static void a_release_with_unknown_drivers_is_refused(void) {
  static const unsigned versions[][2] = {{1, 8}, {1, 11}, {1, 13}, {1, 16}, {3, 0}};
  const gpufi_h5_driver *driver = NULL;
  gpufi_h5_api other = *api;
  other.get_libversion = pretend_version;
  for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
    memcpy(pretended, versions[i], sizeof(pretended));
    CHECK_FAILS(gpufi_h5_driver_open(&other, &driver, &err), GPUF_ERR_UNSUPPORTED, "own driver");
  }
  other = *api;
  other.FDregister = NULL;
  CHECK_FAILS(gpufi_h5_driver_open(&other, &driver, &err), GPUF_ERR_UNSUPPORTED, "own driver");
  CHECK(!driver);
}

static void a_list_of_another_kind_is_refused(void) {
  const gpufi_h5_driver *driver;
  gpufi_h5_driver_file *file = NULL;
  const hid_t plist = api->Pcreate(*api->P_CLS_DATASET_CREATE_ID);
  CHECK_OK(gpufi_h5_driver_open(api, &driver, &err));
  CHECK_FAILS(gpufi_h5_driver_fapl(driver, plist, &file, &err), GPUF_ERR_HDF5, "access list");
  CHECK(!file);
  api->Idec_ref(plist);
}

/* With H5close its identifiers end. */
static void the_driver_is_registered_again_after_h5close(void) {
  for (int i = 0; i < 3; i++) {
    const hid_t file = create_file();
    x = create_bytes(file, "x", CHUNK, CHUNK);
    write_chunk(x, 0);
    h5.Dclose(x);
    finish(file);
    check_file("x", CHUNK);
    CHECK(h5.close() >= 0 && api->open() >= 0);
    api->Eset_auto2(H5E_DEFAULT, NULL, NULL);
  }
}

/* Each has a driver, as far as they go: identifiers are of one library. */
static void several_libraries_have_a_driver_each(void) {
  static gpufi_h5_api others[5];
  const gpufi_h5_driver *first, *found[5];
  int count = 0;
  CHECK_OK(gpufi_h5_driver_open(api, &first, &err));
  for (; count < 5; count++) {
    others[count] = *api;
    if (gpufi_h5_driver_open(&others[count], &found[count], &err) != GPUF_OK) {
      break;
    }
    CHECK(found[count] != first && (count == 0 || found[count] != found[count - 1]));
  }
  CHECK(count == 3 && err.status == GPUF_ERR_UNSUPPORTED && strstr(err.message, "own driver"));
  CHECK_OK(gpufi_h5_driver_open(api, &found[0], &err));
  CHECK(found[0] == first);
}

int main(int count, char **arguments) {
  library_argument = count > 1 && arguments[1][0] ? arguments[1] : NULL;
  begin("test_hdf5_driver_shared", library_argument ? 2 : 1, arguments);
  if (count > 2) {
    return setjmp(test_exit) ? 99 : report_locking();
  }
  TEST(a_forked_child_leaves_its_parents_file_alone);
  TEST(a_file_that_another_has_locked_is_not_opened);
  TEST(the_environment_decides_about_locks);
  TEST(the_access_list_decides_about_locks);
  TEST(a_second_file_of_a_list_is_as_with_the_default_driver);
  TEST(a_file_whose_writer_is_gone_is_as_with_the_default_driver);
  TEST(a_failure_is_heard_by_the_writer_or_by_hdf5);
  TEST(the_list_of_an_open_file_opens_it_again);
  TEST(a_full_disk_is_told_and_the_process_goes_on);
  TEST(hdf5_finds_its_metadata_after_a_failure);
  TEST(what_could_not_be_written_is_read_from_memory);
  TEST(a_release_with_unknown_drivers_is_refused);
  TEST(a_list_of_another_kind_is_refused);
  TEST(the_driver_is_registered_again_after_h5close);
  TEST(several_libraries_have_a_driver_each);
  unlink(path);
  return test_finish();
}
