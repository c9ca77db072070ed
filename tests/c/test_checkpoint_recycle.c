/* Checkpoints that are written over files that have expired: what they hold, which files are taken,
 * and which are not. */
#include "ended_calls.h"

#include <sys/mman.h>

#include "checkpoint_files.h"

static const int64_t shapes[][2] = {{100, 200}, {700, 900}, {300, 500}, {20, 30}, {1200, 700}};
#define SHAPES ((int64_t)(sizeof(shapes) / sizeof(shapes[0])))

/* Each step has another size than the one before. */
static gpuf_tensor state_of(int64_t step) {
  return create_cpu(GPUF_DTYPE_FLOAT32, 2, shapes[step % SHAPES], (uint64_t)step);
}

static gpuf_checkpoint_options recycling_options(void) {
  gpuf_checkpoint_options options = options_in_folder("run");
  options.keep_count = 1;
  options.recycle = true;
  options.thread_count = 3;
  options.device = test_device;
  options.state_nbytes = 8 << 20;
  return options;
}

/* One without axes is flushed by HDF5 before the others are written. */
static gpuf_tensor time_of(int64_t step) {
  return create_cpu(GPUF_DTYPE_FLOAT64, 0, NULL, (uint64_t)step);
}

/* Write a checkpoint of tensors on the CPU, and of one on the device. */
static gpuf_checkpoint_report write_step(gpuf_checkpoint *c, int64_t step) {
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  gpuf_tensor t = time_of(step), u = state_of(step), d_u = copy_to_device(&u);
  CHECK_OK(gpuf_checkpoint_begin(c, step, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "t", &t, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "u", &u, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "d_u", &d_u, NULL, &err));
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_checkpoint_wait(c, -1, &report, &err));
  DESTROY(&t, &u, &d_u);
  return report;
}

static void check_step(gpuf_restart *r, int64_t step) {
  gpuf_tensor expected = state_of(step), time = time_of(step);
  check_restarted(r, "t", &time);
  check_restarted(r, "u", &expected);
  check_restarted(r, "d_u", &expected);
  DESTROY(&expected, &time);
}

static void check_newest(int64_t step) {
  gpuf_restart *const r = open_restart("run", step);
  check_step(r, step);
  gpuf_restart_close(r);
}

static const char *file_of_step(int64_t step) {
  char name[60];
  snprintf(name, sizeof(name), "run-%012lld.h5", (long long)step);
  return path_in_folder(name);
}

static ino_t inode_of(int64_t step) {
  struct stat file;
  CHECK(stat(file_of_step(step), &file) == 0);
  return file.st_ino;
}

/* Steps 1 to 3, with `keep_count` 1: step 3 was written over step 1, and step 2 has expired. */
static gpuf_checkpoint *write_three(const gpuf_checkpoint_options *options) {
  gpuf_checkpoint *const c = open_writer(options);
  CHECK(write_step(c, 1).recycled_nbytes == 0);
  const ino_t first = inode_of(1);
  CHECK(write_step(c, 2).recycled_nbytes == 0);
  CHECK(count_files(".h5", false) == 2);
  CHECK(write_step(c, 3).recycled_nbytes > 0);
  CHECK(count_files(".h5", false) == 2 && inode_of(3) == first);
  return c;
}

static void files_are_overwritten_in_each_mode(void) {
  for (int mode = GPUF_CHECKPOINT_DEVICE_COPY; mode <= GPUF_CHECKPOINT_PINNED; mode++) {
    for (int plain = 0; plain < (mode == GPUF_CHECKPOINT_DEVICE_ENCODED ? 1 : 2); plain++) {
      make_folder();
      gpuf_checkpoint_options options = recycling_options();
      options.mode = (gpuf_checkpoint_mode)mode;
      options.uncompressed = plain;
      gpuf_checkpoint *const c = write_three(&options);
      const int64_t end = 4 + 16 / test_every();
      for (int64_t step = 4; step < end; step++) {
        const gpuf_checkpoint_report report = write_step(c, step);
        struct stat file;
        CHECK(report.recycled_nbytes > 0 && report.status == GPUF_OK && !*report.message);
        CHECK(stat(file_of_step(step), &file) == 0 && report.file_nbytes == (size_t)file.st_size);
        check_newest(step);
        CHECK(count_files(".h5", false) == 2 && count_files(".tmp", false) == 0);
      }
      CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
      remove_folder();
    }
  }
}

/* Where the kernel does not copy to the mapping, or no further, the rest is written as to any file.
 */
static void a_mapping_that_fails_costs_nothing(void) {
  static const int codes[] = {EFAULT, EPERM, ENOSYS};
  for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
    make_folder();
    const gpuf_checkpoint_options options = recycling_options();
    gpuf_checkpoint *const c = write_three(&options);
    write_step(c, 4);
    write_step(c, 5);
    atomic_store(&copy_count, 0);
    atomic_store(&failing_copy.code, codes[i]);
    atomic_store(&failing_copy.count, 1);
    CHECK(write_step(c, 6).recycled_nbytes > 0); /* over step 4, which is larger */
    CHECK(atomic_load(&failing_copy.count) < 1);
    check_newest(6);
    CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
    remove_folder();
  }
}

/* Step 2 has expired: whoever reads it goes on reading it. */
static void a_file_that_is_read_is_left_alone(void) {
  gpuf_restart *r = NULL;
  make_folder();
  const gpuf_checkpoint_options options = recycling_options();
  gpuf_checkpoint *const c = write_three(&options);
  CHECK_OK(gpuf_restart_open(folder, "run", 2, &r, NULL, &err));
  CHECK(write_step(c, 4).recycled_nbytes == 0);
  CHECK(count_files(".h5", false) == 2); /* 3 and 4 */
  check_step(r, 2);
  CHECK(write_step(c, 5).recycled_nbytes > 0); /* over step 3 */
  check_step(r, 2);
  gpuf_restart_close(r);
  const int fd = open(file_of_step(4), O_RDONLY);
  struct stat file;
  CHECK(fd >= 0 && fstat(fd, &file) == 0);
  void *const mapped = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_SHARED, fd, 0);
  CHECK(mapped != MAP_FAILED && close(fd) == 0);
  CHECK(write_step(c, 6).recycled_nbytes == 0);
  munmap(mapped, (size_t)file.st_size);
  check_newest(6);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  remove_folder();
}

static void a_file_with_another_name_is_left_alone(void) {
  char path[400];
  make_folder();
  const gpuf_checkpoint_options options = recycling_options();
  gpuf_checkpoint *const c = write_three(&options);
  snprintf(path, sizeof(path), "%s", path_in_folder("kept-000000000002.h5"));
  CHECK(link(file_of_step(2), path) == 0);
  CHECK(write_step(c, 4).recycled_nbytes == 0);
  CHECK(write_step(c, 5).recycled_nbytes > 0);
  CHECK(access(file_of_step(2), F_OK) != 0);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  CHECK(rename(path, file_of_step(9)) == 0);
  gpuf_restart *r = NULL;
  gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
  CHECK_OK(gpuf_restart_open(folder, "run", -1, &r, &report, &err));
  CHECK(report.step == 5 && strstr(report.message, "it was renamed")); /* and whole but for that */
  gpuf_restart_close(r);
  remove_folder();
}

/* A run that began again at an earlier step promises that one, and takes no file before it has
 * finished a checkpoint of its own; a step that is replaced stays until the new one is whole. */
static void what_is_promised_is_not_taken(void) {
  make_folder();
  gpuf_checkpoint_options options = recycling_options();
  options.keep_count = 2;
  options.replace = true;
  gpuf_checkpoint *c = open_writer(&options);
  for (int64_t step = 10; step <= 50; step += 10) {
    write_step(c, step);
  }
  CHECK(count_files(".h5", false) == 3); /* 30, 40 and 50 */
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  c = open_writer(&options);
  CHECK(write_step(c, 35).recycled_nbytes == 0);
  CHECK(write_step(c, 36).recycled_nbytes == 0); /* 35 and 30 are promised */
  CHECK(write_step(c, 30).recycled_nbytes == 0); /* 30 has expired, and is the one to replace */
  check_newest(50);
  CHECK(count_files(".h5", false) == 5);
  CHECK(access(file_of_step(36), F_OK) == 0 && access(file_of_step(40), F_OK) == 0);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  options.keep_count = 0;
  CHECK_FAILS(gpuf_checkpoint_open(&options, &c, NULL, &err), GPUF_ERR_INVALID, "keep_count");
  remove_folder();
}

/* A failure while the file is overwritten costs that checkpoint. */
static void a_failure_costs_one_checkpoint(void) {
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  make_folder();
  const gpuf_checkpoint_options options = recycling_options();
  gpuf_checkpoint *c = write_three(&options);
  gpuf_tensor u = state_of(4);
  CHECK_OK(gpuf_checkpoint_begin(c, 4, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "u", &u, NULL, &err));
  const int fd = creat(file_of_step(4), 0666); /* its name is taken */
  CHECK(fd >= 0 && close(fd) == 0);
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_FAILS(gpuf_checkpoint_wait(c, -1, &report, &err), GPUF_ERR_IO, "File exists");
  destroy(&u);
  CHECK(unlink(file_of_step(4)) == 0);
  CHECK(count_files(".tmp", false) == 0 && count_files(".h5", false) == 1);
  check_newest(3);
  CHECK(write_step(c, 5).recycled_nbytes == 0);
  CHECK(write_step(c, 6).recycled_nbytes > 0);
  check_newest(6);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  remove_folder();
}

int main(void) {
  test_device = host_device;
  TEST(files_are_overwritten_in_each_mode);
  TEST(a_mapping_that_fails_costs_nothing);
  TEST(a_file_that_is_read_is_left_alone);
  TEST(a_file_with_another_name_is_left_alone);
  TEST(what_is_promised_is_not_taken);
  TEST(a_failure_costs_one_checkpoint);
  return test_finish();
}
