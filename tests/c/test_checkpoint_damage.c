/* Restarts from damaged and foreign files, and while the system refuses calls: they give what was
 * written, or say what is wrong. */
#include "ended_calls.h"

#include <sys/file.h>
#include <sys/wait.h>

#include "checkpoint_steps.h"
#include "codec/format.h"
#include "hdf5/checkpoint/library.h"
#include "hdf5/checkpoint/seal.h"
#include "hdf5/digest.h"

/* Change one byte, or cut the file there. */
static void damage(const char *name, int64_t offset, bool cuts) {
  unsigned char byte;
  const int fd = open(path_in_folder(name), O_RDWR);
  CHECK(fd >= 0);
  if (cuts) {
    CHECK(ftruncate(fd, offset) == 0);
  } else {
    CHECK(pread(fd, &byte, 1, offset) == 1);
    byte ^= 0x10;
    CHECK(pwrite(fd, &byte, 1, offset) == 1);
  }
  close(fd);
}

static int64_t size_of(const char *name) {
  struct stat file;
  CHECK(stat(path_in_folder(name), &file) == 0);
  return file.st_size;
}

/* Whatever byte changes is noticed: a restart gives the values of the checkpoint before. */
static void a_damaged_checkpoint_is_skipped(void) {
  static const char name[] = "run-000000000002.h5";
  for (int plain = 0; plain < 2; plain++) {
    make_folder();
    gpuf_checkpoint_options options = options_in_folder("run");
    options.uncompressed = plain;
    gpuf_checkpoint *const c = open_writer(&options);
    write_step(c, 1);
    write_step(c, 2);
    CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
    const int64_t nbytes = size_of(name);
    int skipped_count = 0;
    const int count = 150;
    for (int i = 0; i < count; i++) {
      const int64_t offset = nbytes * i / count;
      gpuf_restart *r = NULL;
      gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
      damage(name, offset, false);
      CHECK_OK(gpuf_restart_open(folder, "run", -1, &r, &report, &err));
      CHECK(r && (report.step == 1 || report.step == 2));
      CHECK(report.skipped_count == (report.step == 1) && (report.step == 1) == !!*report.message);
      CHECK(report.skipped_step == (report.step == 1 ? 2 : -1));
      skipped_count += report.step == 1;
      gpuf_tensor expected = state_of(report.step);
      check_restarted(r, "u", &expected);
      destroy(&expected);
      gpuf_restart_close(r);
      damage(name, offset, false);
    }
    CHECK(skipped_count == count);
    check_newest("run", 2);
    damage(name, nbytes - 100, true);
    check_newest("run", 1);
    damage("run-000000000001.h5", 10, true);
    gpuf_restart *none = NULL;
    gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
    CHECK_FAILS(gpuf_restart_open(folder, "run", -1, &none, &report, &err), GPUF_ERR_CORRUPT,
                "none of the 2 checkpoints");
    CHECK(!none && report.step == -1 && report.skipped_count == 2 && report.skipped_step == 2);
    CHECK(strstr(report.message, "step 2: ") && strstr(report.message, "step 1: "));
    remove_folder();
  }
}

/* Read the file, which the caller frees. */
static char *read_whole(const char *name, size_t *nbytes) {
  *nbytes = (size_t)size_of(name);
  char *const bytes = malloc(*nbytes);
  const int fd = open(path_in_folder(name), O_RDONLY);
  CHECK(bytes && fd >= 0 && read(fd, bytes, *nbytes) == (ssize_t)*nbytes);
  close(fd);
  return bytes;
}

static void check_changed(gpuf_status expected, const char *why) {
  gpuf_restart *r = NULL;
  CHECK_FAILS(gpuf_restart_open(folder, "run", -1, &r, NULL, &err), expected, why);
  CHECK(!r);
}

static void put(const char *name, int64_t offset, const void *bytes, size_t nbytes) {
  const int fd = open(path_in_folder(name), O_WRONLY);
  CHECK(fd >= 0 && pwrite(fd, bytes, nbytes, offset) == (ssize_t)nbytes);
  close(fd);
}

/* Each bit of the seal, whatever it then says, and each length of the file but its own. */
static void the_seal_is_the_end_of_the_file(void) {
  static const char name[] = "run-000000000001.h5";
  const uint64_t later = 2;
  size_t nbytes;
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *const c = open_writer(&options);
  write_step(c, 1);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  unsigned char *const bytes = (unsigned char *)read_whole(name, &nbytes);
  for (size_t i = nbytes - 100; i < nbytes; i++) {
    for (int bit = 0; bit < 8; bit++) {
      const unsigned char changed = bytes[i] ^ (unsigned char)(1 << bit);
      gpuf_restart *r = NULL;
      put(name, (int64_t)i, &changed, 1);
      const gpuf_status status = gpuf_restart_open(folder, "run", -1, &r, NULL, &err);
      CHECK(status == GPUF_ERR_CORRUPT && !r);
    }
    put(name, (int64_t)i, &bytes[i], 1);
  }
  check_newest("run", 1);
  put(name, (int64_t)nbytes - 40, &later, sizeof(later));
  check_changed(GPUF_ERR_CORRUPT, "version 2");
  put(name, (int64_t)nbytes - 40, bytes + nbytes - 40, sizeof(later));
  put(name, (int64_t)nbytes, "", 1);
  check_changed(GPUF_ERR_CORRUPT, "no seal");
  put(name, (int64_t)nbytes, bytes + nbytes - 64, 64);
  check_changed(GPUF_ERR_CORRUPT, "length");
  for (size_t left = nbytes - 1; left > 0; left /= 2) {
    CHECK(truncate(path_in_folder(name), (off_t)left) == 0);
    check_changed(GPUF_ERR_CORRUPT, "no seal");
  }
  free(bytes);
  remove_folder();
}

/* HDF5 reads the file as any other; a program that changes it breaks the seal. */
static void a_file_that_a_program_changes_is_noticed(void) {
  static const char name[] = "run-000000000001.h5";
  int32_t ndim = 0;
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *const c = open_writer(&options);
  write_step(c, 1);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  const int64_t nbytes = size_of(name);
  hid_t file = H5Fopen(path_in_folder(name), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t dataset = H5Dopen2(file, "u", H5P_DEFAULT), space = H5Dget_space(dataset);
  ndim = H5Sget_simple_extent_ndims(space);
  CHECK(file >= 0 && ndim == 2 && H5Sclose(space) >= 0 && H5Dclose(dataset) >= 0);
  CHECK(H5Fclose(file) >= 0 && size_of(name) == nbytes);
  check_newest("run", 1);
  file = H5Fopen(path_in_folder(name), H5F_ACC_RDWR, H5P_DEFAULT);
  CHECK(file >= 0 && H5Gclose(H5Gcreate2(file, "new", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)) >= 0);
  CHECK(H5Fclose(file) >= 0);
  check_changed(GPUF_ERR_CORRUPT, "changed since it was written");
  remove_folder();
}

/* A chunk's checksum lies in its header: damage there makes it unreadable, as damage elsewhere. */
static void a_damaged_checksum_of_a_chunk_is_noticed(void) {
  static const char name[] = "run-000000000002.h5";
  size_t nbytes;
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *const c = open_writer(&options);
  write_step(c, 1);
  write_step(c, 2);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  char *const bytes = read_whole(name, &nbytes);
  const char *const chunk = memmem(bytes, nbytes, "GPFC", 4);
  CHECK(chunk);
  for (int64_t i = 0; i < 16; i++) {
    const int64_t offset = chunk - bytes + GPUFI_AT_CHECKSUM + i;
    damage(name, offset, false);
    check_newest("run", 1);
    damage(name, offset, false);
  }
  check_newest("run", 2);
  free(bytes);
  remove_folder();
}

/* Seal a file that was changed, as if it had been written so. */
static void seal(const char *name) {
  const gpufi_h5_extents none = {NULL, 0, 0};
  const int fd = open(path_in_folder(name), O_RDWR);
  CHECK(fd >= 0);
  CHECK_OK(gpufi_checkpoint_seal(fd, name, &none, &err));
  close(fd);
}

/* Put `words` in place of the manifest's words from `at` on, of the same length, and make its
 * checksum right. */
static void forge_manifest(const char *name, const char *before, const char *words) {
  char last[22];
  size_t nbytes;
  char *const bytes = read_whole(name, &nbytes);
  char *const manifest = memmem(bytes, nbytes, "gpufetch checkpoint 1", 21);
  CHECK(manifest);
  char *const at = memmem(manifest, nbytes - (size_t)(manifest - bytes), before, strlen(before));
  CHECK(at);
  memcpy(at + strlen(before), words, strlen(words));
  char *const end = memmem(at, nbytes - (size_t)(at - bytes), "\nend ", 5);
  CHECK(end);
  snprintf(last, sizeof(last), "end %016llx\n",
           (unsigned long long)gpufi_h5_hash(manifest, (size_t)(end + 1 - manifest)));
  memcpy(end + 1, last, strlen(last));
  const int fd = open(path_in_folder(name), O_WRONLY);
  CHECK(fd >= 0 && write(fd, bytes, nbytes) == (ssize_t)nbytes);
  close(fd);
  free(bytes);
  seal(name);
}

/* A manifest that says what no file holds is refused before memory is taken for it. */
static void a_manifest_cannot_claim_more_than_the_file_holds(void) {
  static const struct {
    const char *before, *words, *why;
  } forged[] = {
      {"u float32 2 100 200 1 ", "99999", "and the file has"},
      {"u float32 2 100 200 1 ", "-001", "damaged"},
      {"u float32 2 100 200 ", "2", "other chunks"},
  };
  for (size_t i = 0; i < sizeof(forged) / sizeof(forged[0]); i++) {
    gpuf_restart *r = NULL;
    make_folder();
    const gpuf_checkpoint_options options = options_in_folder("run");
    gpuf_checkpoint *const c = open_writer(&options);
    write_step(c, 2);
    CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
    forge_manifest("run-000000000002.h5", forged[i].before, forged[i].words);
    CHECK_FAILS(gpuf_restart_open(folder, "run", -1, &r, NULL, &err), GPUF_ERR_CORRUPT,
                forged[i].why);
    CHECK(!r);
    remove_folder();
  }
}

/* A checkpoint of a later format is left to a later library. */
static void a_newer_format_is_skipped(void) {
  static const char mark[] = "gpufetch checkpoint 1";
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *const c = open_writer(&options);
  write_step(c, 1);
  write_step(c, 2);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  size_t nbytes;
  char *const bytes = read_whole("run-000000000002.h5", &nbytes);
  const int fd = open(path_in_folder("run-000000000002.h5"), O_RDWR);
  const char *const found = memmem(bytes, nbytes, mark, sizeof(mark) - 1);
  CHECK(fd >= 0 && found && pwrite(fd, "3", 1, found - bytes + (off_t)sizeof(mark) - 2) == 1);
  close(fd);
  seal("run-000000000002.h5");
  free(bytes);
  gpuf_restart *r = NULL;
  gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
  CHECK_OK(gpuf_restart_open(folder, "run", -1, &r, &report, &err));
  CHECK(r && report.step == 1 && report.skipped_step == 2 && strstr(report.message, "format 3"));
  gpuf_restart_close(r);
  remove_folder();
}

static void other_files_of_the_name_are_skipped(void) {
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *const c = open_writer(&options);
  write_step(c, 1);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  CHECK(close(creat(path_in_folder("run-000000000002.h5"), 0666)) == 0); /* empty */
  CHECK(mkfifo(path_in_folder("run-000000000003.h5"), 0666) == 0);
  const hid_t file = H5Fcreate(path_in_folder("run-000000000004.h5"), H5F_ACC_TRUNC, H5P_DEFAULT,
                               H5P_DEFAULT); /* of another program */
  CHECK(file >= 0 && H5Fclose(file) >= 0);
  CHECK(symlink("run-000000000001.h5", path_in_folder("run-000000000005.h5")) == 0);
  gpuf_restart *r = NULL;
  gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
  CHECK_OK(gpuf_restart_open(folder, "run", -1, &r, &report, &err));
  CHECK(r && report.step == 1 && report.skipped_count == 4 && report.skipped_step == 5);
  CHECK(strstr(report.message, "it was renamed") && strstr(report.message, "not a regular file"));
  CHECK(strstr(report.message, "has no seal"));
  gpuf_restart_close(r);
  seal("run-000000000004.h5");
  CHECK_OK(gpuf_restart_open(folder, "run", -1, &r, &report, &err));
  CHECK(strstr(report.message, "gpufetch_checkpoint"));
  gpuf_restart_close(r);
  remove_folder();
}

/* --- The system --------------------------------------------------------------- */

static gpuf_status open_while(failing *call, int code, int count, gpuf_restart_report *report) {
  gpuf_restart *r = NULL;
  atomic_store(&call->code, code);
  atomic_store(&call->count, count);
  const gpuf_status status = gpuf_restart_open(folder, "run", -1, &r, report, &err);
  atomic_store(&call->count, 0);
  CHECK((status == GPUF_OK) == !!r);
  gpuf_restart_close(r);
  return status;
}

static void write_two_steps(void) {
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *const c = open_writer(&options);
  write_step(c, 1);
  write_step(c, 2);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
}

/* What cannot be opened or read for another reason than its bytes is not called damaged. */
static void a_refusal_of_the_system_is_no_damage(void) {
  static const int codes[] = {EACCES, EMFILE, ENOMEM, ESTALE};
  gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
  failing *const calls[] = {&failing_open, &failing_read};
  write_two_steps();
  for (int i = 0; i < 2; i++) {
    for (size_t j = 0; j < sizeof(codes) / sizeof(*codes); j++) {
      CHECK(open_while(calls[i], codes[j], 1, &report) == GPUF_ERR_IO);
      CHECK(err.native_code == codes[j] && strstr(err.message, strerror(codes[j])));
      CHECK(strstr(err.message, "run-000000000002.h5") && report.skipped_count == 0);
    }
    CHECK_OK(open_while(calls[i], EINTR, 3, &report));
    CHECK(report.step == 2 && report.skipped_count == 0);
    CHECK_OK(open_while(calls[i], EIO, 1, &report));
    CHECK(report.step == 1 && report.skipped_step == 2 && strstr(report.message, strerror(EIO)));
    CHECK(open_while(calls[i], EIO, 1000, &report) == GPUF_ERR_IO);
    CHECK(report.skipped_count == 2 && err.native_code == EIO);
  }
  gpuf_restart *const r = open_restart("run", 2);
  gpuf_tensor u = state_of(-1);
  atomic_store(&failing_read.count, 1);
  CHECK_FAILS(gpuf_restart_read(r, "u", &u, NULL, &err), GPUF_ERR_IO, "run-000000000002.h5");
  CHECK(err.native_code == EIO);
  gpuf_restart_close(r);
  destroy(&u);
  remove_folder();
}

static atomic_int pause_count; /* which do not last */

HIDDEN int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until,
                           struct timespec *left) {
  (void)clock, (void)flags, (void)until, (void)left;
  atomic_fetch_add(&pause_count, 1);
  return 0;
}

/* A writer that recycles has a lease of the file for a moment. */
static void a_lease_is_waited_for(void) {
  gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
  write_two_steps();
  atomic_store(&pause_count, 0);
  CHECK_OK(open_while(&failing_open, EWOULDBLOCK, 3, &report));
  CHECK(report.step == 2 && report.skipped_count == 0 && atomic_load(&pause_count) == 3);
  CHECK(open_while(&failing_open, EWOULDBLOCK, 100000, &report) == GPUF_ERR_IO);
  CHECK(err.native_code == EWOULDBLOCK && strstr(err.message, "run-000000000002.h5"));
  CHECK(report.skipped_count == 0 && atomic_load(&pause_count) == 1003);
  remove_folder();
}

/* Somebody holds the lock that HDF5 takes: a finished file does not change, and is read. */
static void a_locked_file_is_read(void) {
  write_two_steps();
  const int fd = open(path_in_folder("run-000000000002.h5"), O_RDWR);
  CHECK(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
  check_newest("run", 2);
  CHECK(close(fd) == 0);
  remove_folder();
}

/* What a writer does while the folder is read: a newer file, and the older one is removed. */
static void replace_the_newest(const char *path) {
  static char kept[400];
  if (strstr(path, "run-000000000002.h5")) {
    before_open = NULL;
    CHECK(unlink(path) == 0);
    snprintf(kept, sizeof(kept), "%s", path_in_folder("kept"));
    CHECK(rename(kept, path_in_folder("run-000000000003.h5")) == 0);
  }
}

/* Step 2 is in the folder, and step 3 under another name. */
static void write_two_steps_and_keep_a_third(void) {
  char path[400];
  write_two_steps();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *const c = open_writer(&options);
  write_step(c, 3);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  CHECK(unlink(path_in_folder("run-000000000001.h5")) == 0);
  snprintf(path, sizeof(path), "%s", path_in_folder("run-000000000003.h5"));
  CHECK(rename(path, path_in_folder("kept")) == 0);
}

static void a_file_that_vanishes_after_it_was_listed_has_a_newer_one(void) {
  write_two_steps_and_keep_a_third();
  before_open = replace_the_newest;
  check_newest("run", 3);
  CHECK(!before_open);
  remove_folder();
}

static atomic_int reads_left; /* before the newest is replaced */

static void replace_at_a_read(void) {
  if (atomic_fetch_sub(&reads_left, 1) == 1) {
    replace_the_newest(path_in_folder("run-000000000002.h5"));
  }
}

/* Step 2, or step 3, which takes its place while it is opened. */
static int64_t open_while_replaced(void) {
  gpuf_restart *r = NULL;
  gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
  before_read = replace_at_a_read;
  CHECK_OK(gpuf_restart_open(folder, "run", -1, &r, &report, &err));
  before_read = NULL;
  CHECK(r && report.skipped_count == 0);
  gpuf_tensor expected = state_of(report.step);
  check_restarted(r, "u", &expected);
  destroy(&expected);
  gpuf_restart_close(r);
  return report.step;
}

/* At whichever read of step 2 its writer removes it: no step is called damaged. */
static void a_file_that_vanishes_while_it_is_opened_has_a_newer_one(void) {
  int64_t step = 0;
  int newer_count = 0;
  for (int at = 1; atomic_load(&reads_left) <= 0; at++) {
    write_two_steps_and_keep_a_third();
    atomic_store(&reads_left, at);
    step = open_while_replaced();
    newer_count += step == 3;
    remove_folder();
  }
  CHECK(newer_count > 0 && step == 2); /* all of it was read before it went */
}

/* A file that is no checkpoint takes the place of step 2. */
static void replace_by_another(const char *path) {
  static const char text[200] = "another";
  char other[400];
  if (strstr(path, "run-000000000002.h5")) {
    snprintf(other, sizeof(other), "%s", path_in_folder("another"));
    const int fd = creat(other, 0666);
    CHECK(fd >= 0 && write(fd, text, sizeof(text)) == (ssize_t)sizeof(text) && close(fd) == 0);
    CHECK(rename(other, path) == 0);
  }
}

static char *kept_bytes;
static size_t kept_nbytes;

/* Before the other file is read, a third takes its place, which is whole. */
static void replace_by_a_whole_one(void) {
  char third[400];
  before_read = NULL;
  snprintf(third, sizeof(third), "%s", path_in_folder("third"));
  const int fd = creat(third, 0666);
  CHECK(fd >= 0 && write(fd, kept_bytes, kept_nbytes) == (ssize_t)kept_nbytes && close(fd) == 0);
  CHECK(rename(third, path_in_folder("run-000000000002.h5")) == 0);
}

static void replace_twice(const char *path) {
  before_open = NULL;
  replace_by_another(path);
  before_read = replace_by_a_whole_one;
}

/* Where the system has the choice, the third file has the inode of the first. */
static void a_file_that_is_replaced_twice_while_it_is_opened_is_no_damage(void) {
  write_two_steps();
  kept_bytes = read_whole("run-000000000002.h5", &kept_nbytes);
  before_open = replace_twice;
  check_newest("run", 2);
  CHECK(!before_open && !before_read);
  free(kept_bytes);
  remove_folder();
}

/* The last attempt's failure says nothing about the folder. */
static void a_writer_that_is_always_faster_is_named(void) {
  gpuf_restart *r = NULL;
  gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
  write_two_steps();
  before_open = replace_by_another;
  CHECK_FAILS(gpuf_restart_open(folder, "run", -1, &r, &report, &err), GPUF_ERR_IO,
              "before they could be opened: try again");
  before_open = NULL;
  CHECK(err.native_code == ESTALE && !r && report.step == -1);
  remove_folder();
}

/* --- Older checkpoints ------------------------------------------------------------ */

static void make_file(const char *name, const char *text) {
  FILE *const out = fopen(path_in_folder(name), "wb");
  CHECK(out && fputs(text, out) >= 0 && fclose(out) == 0);
}

/* Files that have a checkpoint's name and no seal are not the library's to remove, and take no
 * place among those to keep. */
static void files_of_others_are_kept(void) {
  static const char *const theirs[] = {"run-000000000000.h5", "run-000000000002.h5"};
  make_folder();
  gpuf_checkpoint_options options = options_in_folder("run");
  options.keep_count = 2;
  make_file(theirs[0], "theirs");
  gpuf_checkpoint *const c = open_writer(&options);
  write_step(c, 1);
  make_file(theirs[1], "a longer text, of as many bytes as a seal has, and of some more of them");
  CHECK(symlink("run-000000000001.h5", path_in_folder("run-000000000003.h5")) == 0);
  write_step(c, 4);
  CHECK(count_files(".h5", false) == 5); /* 1 and 4 are kept */
  write_step(c, 5);
  write_step(c, 6);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  CHECK(access(path_in_folder("run-000000000001.h5"), F_OK) != 0);
  for (size_t i = 0; i < 2; i++) {
    CHECK(access(path_in_folder(theirs[i]), F_OK) == 0);
  }
  CHECK(count_files(".h5", false) == 5);
  check_newest("run", 6);
  remove_folder();
}

static void an_older_one_that_cannot_be_removed_is_reported(void) {
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  make_folder();
  gpuf_checkpoint_options options = options_in_folder("run");
  options.keep_count = 1;
  gpuf_checkpoint *const c = open_writer(&options);
  write_step(c, 1);
  commit_step(c, 2);
  CHECK_OK(gpuf_checkpoint_wait(c, -1, &report, &err));
  CHECK(report.status == GPUF_OK && report.system_error == 0 && !*report.message);
  commit_step(c, 3);
  CHECK_OK(gpuf_checkpoint_wait(c, -1, NULL, &err));
  atomic_store(&failing_unlink.code, EPERM);
  CHECK_OK(gpuf_checkpoint_begin(c, 4, NULL, &err));
  gpuf_tensor u = state_of(4);
  CHECK_OK(gpuf_checkpoint_add(c, "u", &u, NULL, &err));
  atomic_store(&failing_unlink.count, 2); /* of a temporary, which is not there, and of step 3 */
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_checkpoint_wait(c, -1, &report, &err));
  destroy(&u);
  CHECK(report.status == GPUF_OK && report.system_error == EPERM);
  CHECK(strstr(report.message, "run-000000000003.h5") && strstr(report.message, "not permitted"));
  CHECK(count_files(".h5", false) == 2);
  write_step(c, 5); /* which removes both */
  CHECK(count_files(".h5", false) == 1);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  remove_folder();
}

static atomic_bool closes_hdf5;

/* LeakSanitizer asks. HDF5 that is closed while another thread is in it loses memory of its own. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
  return "leak:libhdf5";
}

/* By this call the library takes the descriptor of a file of which it reads chunks itself, between
 * two calls of HDF5's. There, another thread of the program may call H5close. */
HIDDEN int fcntl64(int fd, int command, ...) {
  va_list args;
  va_start(args, command);
  const long argument = va_arg(args, long);
  va_end(args);
  if (command == F_DUPFD_CLOEXEC && atomic_exchange(&closes_hdf5, false)) {
    CHECK(H5close() >= 0);
  }
  return (int)syscall(SYS_fcntl, fd, command, argument);
}

static void write_large(gpuf_checkpoint *c, int64_t step) {
  const int64_t large[] = {8, 512, 512};
  gpuf_tensor u = create_cpu(GPUF_DTYPE_FLOAT32, 3, large, (uint64_t)step);
  CHECK_OK(gpuf_checkpoint_begin(c, step, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "u", &u, NULL, &err));
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_checkpoint_wait(c, -1, NULL, &err));
  destroy(&u);
}

/* H5close leaves the second copy of libhdf5 alone, where the library uses one. */
static void hdf5_that_is_closed_meanwhile_is_no_damage(void) {
  for (int shard_count = 0; shard_count < 3; shard_count += 2) {
    make_folder();
    gpuf_checkpoint_options options = options_in_folder("run");
    options.shard_count = shard_count;
    gpuf_checkpoint *const c = open_writer(&options);
    write_large(c, 1);
    write_large(c, 2);
    CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
    gpuf_restart *r = NULL;
    gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
    atomic_store(&closes_hdf5, true);
    if (gpuf_restart_open(folder, "run", -1, &r, &report, &err) != GPUF_OK) {
      CHECK(err.status == GPUF_ERR_STATE && strstr(err.message, "H5close") && !r);
    }
    CHECK(!atomic_load(&closes_hdf5) && report.skipped_count == 0);
    gpuf_restart_close(r);
    r = open_restart("run", 2);
    gpuf_restart_close(r);
    remove_folder();
  }
}

static __typeof__(H5Eget_auto2) *get_printing;
static atomic_int entries_left;

/* The library makes this call first whenever it is about to enter HDF5. There, another thread of
 * the program may call H5close. */
static herr_t close_and_get_printing(hid_t stack, H5E_auto2_t *print, void **arg) {
  if (atomic_fetch_sub(&entries_left, 1) == 1) {
    CHECK(H5close() >= 0);
  }
  return get_printing(stack, print, arg);
}

/* Whether HDF5 was entered so often that it was closed. */
static bool read_and_close_at(int entry) {
  const int64_t large[] = {8, 512, 512};
  gpuf_tensor u = create_cpu(GPUF_DTYPE_FLOAT32, 3, large, 0);
  gpuf_tensor expected = create_cpu(GPUF_DTYPE_FLOAT32, 3, large, 2);
  gpuf_restart *const r = open_restart("run", 2);
  gpufi_h5_api *api;
  CHECK_OK(gpufi_checkpoint_library(&api, &err));
  get_printing = api->Eget_auto2;
  atomic_store(&entries_left, entry);
  api->Eget_auto2 = close_and_get_printing;
  const gpuf_status status = gpuf_restart_read(r, "u", &u, NULL, &err);
  api->Eget_auto2 = get_printing;
  CHECK(status == GPUF_OK ? !memcmp(u.data, expected.data, gpuf_tensor_nbytes(&u))
                          : status == GPUF_ERR_STATE && strstr(err.message, "H5close"));
  gpuf_restart_close(r);
  H5Eclear2(H5E_DEFAULT);
  destroy(&u);
  destroy(&expected);
  return atomic_load(&entries_left) <= 0;
}

/* In a child, because HDF5 1.10 crashes now and then, in its own errors, once it has been closed
 * and opened some ten times. */
static bool child_reads_and_closes_at(int entry) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    int code = 1; /* where a failed CHECK leaves it */
    if (setjmp(test_exit) == 0) {
      code = read_and_close_at(entry) ? 0 : 2;
    }
    fflush(stdout);
    _exit(code);
  }
  int outcome = 1;
  CHECK(TEMP_FAILURE_RETRY(waitpid(child, &outcome, 0)) == child && WIFEXITED(outcome));
  CHECK(WEXITSTATUS(outcome) != 1);
  return WEXITSTATUS(outcome) == 0;
}

static void a_read_beside_h5close_is_never_called_a_wrong_one(void) {
#ifdef __SANITIZE_ADDRESS__
  printf("# not under ASan, beside which HDF5 1.10 may crash while it closes itself\n");
  return;
#endif
  for (int shard_count = 0; shard_count < 3; shard_count += 2) {
    int entry = 1;
    make_folder();
    gpuf_checkpoint_options options = options_in_folder("run");
    options.shard_count = shard_count;
    gpuf_checkpoint *const c = open_writer(&options);
    write_large(c, 2);
    CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
    while (child_reads_and_closes_at(entry)) {
      entry++;
    }
    CHECK(entry > 3);
    printf("# %d entries of HDF5\n", entry - 1);
    remove_folder();
  }
}

/* The identifiers of the program's next files are those that the restart's had. */
static void a_restart_whose_hdf5_was_closed_reads_no_other_file(void) {
  write_two_steps();
  gpuf_restart *const r = open_restart("run", 2);
  gpuf_tensor u = state_of(-1), expected = state_of(2);
  CHECK(H5close() >= 0);
  const hid_t older = H5Fopen(path_in_folder("run-000000000001.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
  const gpuf_status status = gpuf_restart_read(r, "u", &u, NULL, &err);
  CHECK(status == GPUF_OK ? !memcmp(u.data, expected.data, gpuf_tensor_nbytes(&u))
                          : status == GPUF_ERR_STATE && strstr(err.message, "H5close"));
  gpuf_restart_close(r);
  CHECK(H5Iget_type(older) == H5I_FILE && H5Fclose(older) >= 0);
  destroy(&u);
  destroy(&expected);
  remove_folder();
}

int main(void) {
  test_device = host_device;
  TEST(a_damaged_checkpoint_is_skipped);
  TEST(the_seal_is_the_end_of_the_file);
  TEST(a_file_that_a_program_changes_is_noticed);
  TEST(a_damaged_checksum_of_a_chunk_is_noticed);
  TEST(a_manifest_cannot_claim_more_than_the_file_holds);
  TEST(a_newer_format_is_skipped);
  TEST(other_files_of_the_name_are_skipped);
  TEST(a_refusal_of_the_system_is_no_damage);
  TEST(a_lease_is_waited_for);
  TEST(a_locked_file_is_read);
  TEST(a_file_that_vanishes_after_it_was_listed_has_a_newer_one);
  TEST(a_file_that_vanishes_while_it_is_opened_has_a_newer_one);
  TEST(a_file_that_is_replaced_twice_while_it_is_opened_is_no_damage);
  TEST(a_writer_that_is_always_faster_is_named);
  TEST(hdf5_that_is_closed_meanwhile_is_no_damage);
  TEST(a_read_beside_h5close_is_never_called_a_wrong_one);
  TEST(a_restart_whose_hdf5_was_closed_reads_no_other_file);
  TEST(files_of_others_are_kept);
  TEST(an_older_one_that_cannot_be_removed_is_reported);
  return test_finish();
}
