/* What a writer gives back once its checkpoint is reported on: when, to whom, and that all of it
 * is.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "checkpoint_files.h"

#define HIDDEN __attribute__((visibility("hidden")))
#define SECONDS_MAX 60

static const int64_t shape[] = {600, 1000};

/* Files of the folder that have no name any more, and are open. */
static int count_nameless(void) {
  char path[400], target[4096];
  const struct dirent *entry;
  int count = 0;
  DIR *const entries = opendir("/proc/self/fd");
  CHECK(entries);
  while ((entry = readdir(entries)) != NULL) {
    snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
    const ssize_t nbytes = readlink(path, target, sizeof(target) - 1);
    target[nbytes > 0 ? nbytes : 0] = '\0';
    count += strstr(target, folder) && strstr(target, " (deleted)");
  }
  closedir(entries);
  return count;
}

static int count_mappings(void) {
  char line[5000];
  int count = 0;
  FILE *const maps = fopen("/proc/self/maps", "r");
  CHECK(maps);
  while (fgets(line, sizeof(line), maps)) {
    count += strstr(line, folder) != NULL;
  }
  fclose(maps);
  return count;
}

/* --- The calls -------------------------------------------------------------------- */

static atomic_bool holds; /* files without names stay open */
static atomic_int held_count;
static atomic_bool forks;          /* once a file has lost its name */
static atomic_int kept_count = -1; /* by the child */

static bool is_nameless(int fd) {
  struct stat file;
  return fstat(fd, &file) == 0 && file.st_nlink == 0;
}

HIDDEN int close(int fd) {
  const int flags = (int)syscall(SYS_fcntl, fd, F_GETFL);
  if (flags >= 0 && flags & O_PATH && atomic_load(&holds) && is_nameless(fd)) {
    atomic_fetch_add(&held_count, 1);
    while (atomic_load(&holds)) {
      usleep(1000);
    }
  }
  return (int)syscall(SYS_close, fd);
}

HIDDEN int unlink(const char *path) {
  const int code = (int)syscall(SYS_unlink, path);
  int status;
  if (code == 0 && strstr(path, ".h5") && atomic_exchange(&forks, false)) {
    const pid_t child = fork();
    if (child == 0) {
      _exit(count_nameless());
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    atomic_store(&kept_count, WEXITSTATUS(status));
  }
  return code;
}

/* --- Tests ------------------------------------------------------------------------ */

static void write_step(gpuf_checkpoint *c, int64_t step) {
  gpuf_tensor u = create_cpu(GPUF_DTYPE_FLOAT32, 2, shape, (uint64_t)step);
  CHECK_OK(gpuf_checkpoint_begin(c, step, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "u", &u, NULL, &err));
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_checkpoint_wait(c, -1, NULL, &err));
  destroy(&u);
}

static gpuf_checkpoint *open_with(size_t shard_count, bool recycle) {
  gpuf_checkpoint_options options = options_in_folder("run");
  options.keep_count = 1;
  options.recycle = recycle;
  options.shard_count = shard_count;
  options.thread_count = 2 * (int32_t)(shard_count + 1); /* for a mapping */
  return open_writer(&options);
}

static void check_step(int64_t step) {
  gpuf_tensor u = create_cpu(GPUF_DTYPE_FLOAT32, 2, shape, (uint64_t)step);
  gpuf_restart *const r = open_restart("run", step);
  check_restarted(r, "u", &u);
  gpuf_restart_close(r);
  destroy(&u);
}

static bool comes_to(atomic_int *count, int expected) {
  for (int times = 0; times < SECONDS_MAX * 1000 && atomic_load(count) < expected; times++) {
    usleep(1000);
  }
  return atomic_load(count) >= expected;
}

/* The wait returns, and the folder has the newest one alone, while the older one's files are still
 * to be given back. */
static void a_program_does_not_wait_for_what_has_expired(void) {
  for (size_t shard_count = 0; shard_count < 4; shard_count += 3) {
    const int files = (int)(shard_count ? shard_count + 1 : 1);
    make_folder();
    gpuf_checkpoint *const c = open_with(shard_count, false);
    write_step(c, 1);
    atomic_store(&held_count, 0);
    atomic_store(&holds, true);
    write_step(c, 2);
    CHECK(count_files(".h5", false) == files && comes_to(&held_count, 1));
    CHECK(count_nameless() == files);
    check_step(2);
    atomic_store(&holds, false);
    write_step(c, 3);
    CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
    CHECK(count_nameless() == 0);
    check_step(3);
    remove_folder();
  }
}

static void a_forked_child_keeps_no_file_that_has_expired(void) {
  for (size_t shard_count = 0; shard_count < 4; shard_count += 3) {
    make_folder();
    gpuf_checkpoint *const c = open_with(shard_count, false);
    write_step(c, 1);
    atomic_store(&kept_count, -1);
    atomic_store(&forks, true);
    write_step(c, 2);
    CHECK(!atomic_load(&forks) && atomic_load(&kept_count) == 0);
    CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
    remove_folder();
  }
}

static void all_is_given_back_in_the_end(void) {
  for (size_t shard_count = 0; shard_count < 4; shard_count += 3) {
    for (int recycle = 0; recycle < 2; recycle++) {
      make_folder();
      gpuf_checkpoint *const c = open_with(shard_count, recycle);
      for (int64_t step = 1; step < 6; step++) {
        write_step(c, step);
      }
      CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
      CHECK(count_nameless() == 0 && count_mappings() == 0);
      check_step(5);
      remove_folder();
    }
  }
}

int main(void) {
  test_device = host_device;
  TEST(a_program_does_not_wait_for_what_has_expired);
  TEST(a_forked_child_keeps_no_file_that_has_expired);
  TEST(all_is_given_back_in_the_end);
  return test_finish();
}
