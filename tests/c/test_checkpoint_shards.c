/* Checkpoints that are spread over several files: what comes back, what any HDF5 reads, and which
 * files are refused. */
#include "checkpoint_states.h"
#include "portion.h"

static const gpuf_checkpoint_mode modes[] = {GPUF_CHECKPOINT_AUTO, GPUF_CHECKPOINT_DEVICE_COPY,
                                             GPUF_CHECKPOINT_DEVICE_ENCODED,
                                             GPUF_CHECKPOINT_PINNED};

/* The master alone is opened; HDF5 finds the shards. */
static void check_by_hdf5(const char *name, const state *s) {
  const hid_t file = H5Fopen(path_in_folder(name), H5F_ACC_RDONLY, H5P_DEFAULT);
  CHECK(file >= 0);
  for (int i = 0; i < s->count; i++) {
    check_stored_by_hdf5(file, s->names[i], &s->tensors[i]);
  }
  CHECK(H5Fclose(file) >= 0);
}

static void any_state_comes_back_from_any_number_of_shards(void) {
  static const size_t counts[] = {2, 3, 8};
  CHECK_OK(gpuf_h5_filter_register(&err));
  const portion p = portion_of_cases(0);
  for (long i = p.first - 1; i < 12; i += p.step * test_every()) {
    state states[] = {mixed_state(), i % 2 ? huge_state() : small_state()};
    for (int k = 0; k < 2; k++) {
      make_folder();
      gpuf_checkpoint_options options = options_in_folder("run%b");
      options.mode = modes[i % 4];
      options.device = i % 4 ? host_device : cpu_device;
      options.state_nbytes = i % 4 ? (size_t)30 << 20 : 0;
      options.host_max_nbytes = (size_t)64 << 20;
      options.uncompressed = i % 4 != 2 && i % 3 == 2;
      options.thread_count = i % 2 ? 4 : 0;
      options.shard_count = counts[i / 4];
      write_state(&options, &states[k], 7);
      CHECK(count_shards("run%b", 7) == (int)options.shard_count);
      check_state("run%b", &states[k], 7);
      check_by_hdf5("run%b-000000000007.h5", &states[k]);
      destroy_state(&states[k]);
      remove_folder();
    }
  }
}

static void late_fill_kernel(const void *arg) {
  const gpuf_tensor *const t = *(const gpuf_tensor *const *)arg;
  usleep(50000);
  memset(gpuf_host_pointer(t->data), 0xee, gpuf_tensor_nbytes(t));
}

/* Several threads read the shards, and each has another stream of that name. */
static void a_tensor_on_its_threads_stream_is_filled_behind_what_is_pending(void) {
  state s = huge_state();
  for (int plain = 0; plain < 2; plain++) {
    make_folder();
    gpuf_checkpoint_options options = options_in_folder("run");
    options.shard_count = 4;
    options.uncompressed = plain;
    write_state(&options, &s, 1);
    gpuf_restart *const r = open_restart("run", 1);
    gpuf_tensor d_found = create_on_device(&s.tensors[0]);
    const gpuf_tensor *const filled = &d_found;
    CHECK_OK(gpuf_host_launch(host_device, GPUF_STREAM_PER_THREAD, late_fill_kernel, &filled,
                              sizeof(filled), &err));
    d_found.stream = GPUF_STREAM_PER_THREAD;
    CHECK_OK(gpuf_restart_read(r, "u", &d_found, NULL, &err));
    CHECK_OK(gpuf_stream_synchronize(host_device, GPUF_STREAM_PER_THREAD, &err));
    d_found.stream = GPUF_STREAM_NONE;
    check_equal(&d_found, &s.tensors[0]);
    destroy(&d_found);
    gpuf_restart_close(r);
    remove_folder();
  }
  destroy_state(&s);
}

static off_t size_of(const char *name) {
  struct stat file;
  CHECK(stat(path_in_folder(name), &file) == 0);
  return file.st_size;
}

/* Plain files, whose sizes are those of the elements and a little; a shard has up to one layer of
 * chunks more than its share. */
static void shards_are_of_one_size(void) {
  static const off_t layers[] = {18 * 100 * 300 * 4, 1 << 20, 20000};
  state states[] = {mixed_state(), huge_state(), small_state()};
  for (int k = 0; k < 3; k++) {
    const portion p = portion_of_cases(k);
    for (long count = p.first + 1; count < 8; count += p.step * test_every()) {
      off_t total = 0, largest = 0;
      make_folder();
      gpuf_checkpoint_options options = options_in_folder("run");
      options.uncompressed = true;
      options.shard_count = (size_t)count;
      write_state(&options, &states[k], 1);
      for (int i = 0; i < count; i++) {
        const off_t nbytes = size_of(shard_name("run", 1, i));
        total += nbytes;
        largest = nbytes > largest ? nbytes : largest;
      }
      CHECK(largest < total / count + layers[k] + 100000);
      CHECK(size_of("run-000000000001.h5") < 100000);
      remove_folder();
    }
    destroy_state(&states[k]);
  }
}

static void a_state_without_chunks_is_one_file(void) {
  state s = {.count = 0};
  put(&s, "scalar", GPUF_DTYPE_FLOAT64, 0, NULL);
  put(&s, "empty", GPUF_DTYPE_INT32, 2, (const int64_t[]){0, 7});
  make_folder();
  gpuf_checkpoint_options options = options_in_folder("run");
  options.shard_count = 4;
  write_state(&options, &s, 1);
  CHECK(count_shards("run", 1) == 0);
  check_state("run", &s, 1);
  put(&s, "small", GPUF_DTYPE_INT32, 1, (const int64_t[]){7}); /* one chunk: one shard */
  write_state(&options, &s, 2);
  CHECK(count_shards("run", 2) == 1);
  check_state("run", &s, 2);
  destroy_state(&s);
  options.shard_count = 257;
  gpuf_checkpoint *c = NULL;
  CHECK_FAILS(gpuf_checkpoint_open(&options, &c, NULL, &err), GPUF_ERR_INVALID, "at most 256");
  remove_folder();
}

/* --- Refusals ------------------------------------------------------------------ */

static char damaged[400]; /* path of the shard that is not what it was */

static void copy_file(const char *from, const char *to) {
  char bytes[4096];
  FILE *const in = fopen(from, "rb");
  FILE *const out = fopen(to, "wb");
  CHECK(in && out);
  for (size_t nbytes; (nbytes = fread(bytes, 1, sizeof(bytes), in)) > 0;) {
    CHECK(fwrite(bytes, 1, nbytes, out) == nbytes);
  }
  CHECK(fclose(in) == 0 && fclose(out) == 0);
}

static void lose(void) {
  CHECK(unlink(damaged) == 0);
}

static void cut(void) {
  CHECK(truncate(damaged, 5000) == 0);
}

static void lengthen(void) {
  FILE *const out = fopen(damaged, "ab");
  CHECK(out && fputc(0, out) == 0 && fclose(out) == 0);
}

static void take_another_step(void) {
  copy_file(path_in_folder(shard_name("run", 1, 1)), damaged);
}

static void take_another_shard(void) {
  copy_file(path_in_folder(shard_name("run", 2, 0)), damaged);
}

/* As a program does that changes a value, and as h5repack does. */
static void open_for_writing(void) {
  const hid_t file = H5Fopen(damaged, H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t group = H5Gcreate2(file, "new", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  CHECK(file >= 0 && group >= 0 && H5Gclose(group) >= 0 && H5Fclose(file) >= 0);
}

static void convert(void) {
  char copy[410];
  snprintf(copy, sizeof(copy), "%s.new", damaged);
  const hid_t from = H5Fopen(damaged, H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t to = H5Fcreate(copy, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  CHECK(from >= 0 && to >= 0);
  CHECK(H5Ocopy(from, "u", to, "u", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  CHECK(H5Ocopy(from, "gpufetch_checkpoint", to, "gpufetch_checkpoint", H5P_DEFAULT, H5P_DEFAULT) >=
        0);
  CHECK(H5Fclose(from) >= 0 && H5Fclose(to) >= 0 && rename(copy, damaged) == 0);
}

static void change_a_bit(void) {
  unsigned char byte;
  FILE *const file = fopen(damaged, "r+b");
  CHECK(file && fseek(file, 40000, SEEK_SET) == 0 && fread(&byte, 1, 1, file) == 1);
  byte ^= 4;
  CHECK(fseek(file, 40000, SEEK_SET) == 0 && fwrite(&byte, 1, 1, file) == 1 && fclose(file) == 0);
}

typedef struct refusal {
  void (*damage)(void);
  const char *why;
} refusal;

static const refusal refusals[] = {
    {lose, "is missing: bring it back"},
    {cut, "has no seal"},
    {lengthen, "has no seal"},
    {take_another_step, "when it was written"},
    {take_another_shard, "no shard of this checkpoint"},
    {open_for_writing, "has no seal"},
    {convert, "has no seal"},
    {change_a_bit, "damaged"},
};

/* A checkpoint one of whose shards is not what it was is skipped, and the message names the file.
 */
static void a_shard_that_is_not_what_it_was_is_refused(void) {
  for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
    gpuf_restart *r = NULL;
    gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
    make_folder();
    gpuf_checkpoint_options options = options_in_folder("run");
    options.shard_count = 4; /* of one size */
    state s = two_steps(&options);
    snprintf(damaged, sizeof(damaged), "%s", path_in_folder(shard_name("run", 2, 1)));
    refusals[i].damage();
    CHECK_OK(gpuf_restart_open(folder, "run", -1, &r, &report, &err));
    CHECK(r && report.step == 1 && report.skipped_count == 1 && report.skipped_step == 2);
    if (!strstr(report.message, refusals[i].why) ||
        !strstr(report.message, strrchr(damaged, '/'))) {
      printf("# %zu: %s\n", i, report.message);
      CHECK(false);
    }
    gpuf_restart_close(r);
    check_state("run", &s, 1);
    /* No older one is as good. */
    count_files("run-000000000001", true);
    CHECK_FAILS(gpuf_restart_open(folder, "run", -1, &r, &report, &err), GPUF_ERR_CORRUPT,
                refusals[i].why);
    /* The next writer removes nothing of it, as its master is there. */
    const int count = count_files("run-000000000002", false);
    CHECK_OK(gpuf_checkpoint_close(open_writer(&options), NULL, &err));
    CHECK(count_files("run-000000000002", false) == count);
    destroy_state(&s);
    remove_folder();
  }
}

/* A shard of the same step and of the same size, from before the step was replaced. */
static void an_older_shard_of_the_step_is_refused(void) {
  char kept[400];
  gpuf_restart *r = NULL;
  make_folder();
  gpuf_checkpoint_options options = options_in_folder("run");
  options.shard_count = 2;
  options.uncompressed = options.replace = true;
  state s = huge_state();
  write_state(&options, &s, 1);
  snprintf(kept, sizeof(kept), "%s/kept", folder);
  copy_file(path_in_folder(shard_name("run", 1, 1)), kept);
  write_state(&options, &s, 1);
  CHECK(count_shards("run", 1) == 2);
  check_state("run", &s, 1);
  CHECK(rename(kept, path_in_folder(shard_name("run", 1, 1))) == 0);
  CHECK_FAILS(gpuf_restart_open(folder, "run", -1, &r, NULL, &err), GPUF_ERR_CORRUPT,
              "bring back the one whose UUID is");
  destroy_state(&s);
  remove_folder();
}

/* A master that was moved alone, and a shard under a checkpoint's name. */
static void files_under_other_names_are_refused(void) {
  gpuf_restart *r = NULL;
  gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
  char from[400], to[400];
  make_folder();
  gpuf_checkpoint_options options = options_in_folder("run");
  options.shard_count = 2;
  state s = two_steps(&options);
  snprintf(from, sizeof(from), "%s", path_in_folder("run-000000000002.h5"));
  snprintf(to, sizeof(to), "%s", path_in_folder("run-000000000003.h5"));
  CHECK(rename(from, to) == 0);
  CHECK_OK(gpuf_restart_open(folder, "run", -1, &r, &report, &err));
  CHECK(r && report.step == 1 && strstr(report.message, "it was renamed"));
  gpuf_restart_close(r);
  snprintf(from, sizeof(from), "%s", path_in_folder(shard_name("run", 2, 0)));
  CHECK(rename(from, to) == 0);
  CHECK_OK(gpuf_restart_open(folder, "run", -1, &r, &report, &err));
  CHECK(r && report.step == 1 && strstr(report.message, "a shard of step 2"));
  gpuf_restart_close(r);
  destroy_state(&s);
  remove_folder();
}

/* HDF5 itself does not say so, but shows no number. */
static void a_missing_shard_reads_as_nan(void) {
  float *const found = malloc((size_t)2000 * 1000 * sizeof(*found));
  make_folder();
  gpuf_checkpoint_options options = options_in_folder("run");
  options.shard_count = 2;
  options.uncompressed = true;
  state s = huge_state();
  write_state(&options, &s, 1);
  CHECK(unlink(path_in_folder(shard_name("run", 1, 1))) == 0);
  const hid_t file = H5Fopen(path_in_folder("run-000000000001.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t u = H5Dopen2(file, "u", H5P_DEFAULT);
  CHECK(H5Dread(u, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, found) >= 0);
  CHECK(H5Dclose(u) >= 0 && H5Fclose(file) >= 0);
  CHECK(memcmp(found, s.tensors[0].data, 1000 * sizeof(*found)) == 0);
  for (size_t i = 1500 * 1000; i < 2000 * 1000; i++) {
    CHECK(isnan(found[i]));
  }
  free(found);
  destroy_state(&s);
  remove_folder();
}

int main(void) {
  test_device = host_device;
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  TEST(any_state_comes_back_from_any_number_of_shards);
  TEST(a_tensor_on_its_threads_stream_is_filled_behind_what_is_pending);
  TEST(shards_are_of_one_size);
  TEST(a_state_without_chunks_is_one_file);
  TEST(a_shard_that_is_not_what_it_was_is_refused);
  TEST(an_older_shard_of_the_step_is_refused);
  TEST(files_under_other_names_are_refused);
  TEST(a_missing_shard_reads_as_nan);
  return test_finish();
}
