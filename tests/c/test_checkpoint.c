/* Checkpoints and restarts: what was committed comes back bit for bit, what the files are called,
 * which are kept, and what each call refuses. */
#include "checkpoint_files.h"

static const int64_t shape_3d[] = {40, 50, 60};

/* --- Bit for bit ------------------------------------------------------------- */

static void every_dtype_comes_back(void) {
  make_folder();
  gpuf_checkpoint_options options = options_in_folder("run");
  options.device = test_device;
  gpuf_checkpoint *const c = open_writer(&options);
  gpuf_tensor on_cpu[GPUF_DTYPE_MAX + 1], on_device[GPUF_DTYPE_MAX + 1];
  char name[40];
  CHECK_OK(gpuf_checkpoint_begin(c, 7, NULL, &err));
  for (int dtype = 1; dtype <= GPUF_DTYPE_MAX; dtype++) {
    const int64_t shape[] = {13, 17 + dtype};
    on_cpu[dtype] = create_cpu((gpuf_dtype)dtype, 2, shape, (uint64_t)dtype);
    on_device[dtype] = copy_to_device(&on_cpu[dtype]);
    snprintf(name, sizeof(name), "cpu/%s", gpuf_dtype_name((gpuf_dtype)dtype));
    CHECK_OK(gpuf_checkpoint_add(c, name, &on_cpu[dtype], NULL, &err));
    snprintf(name, sizeof(name), "device/%s", gpuf_dtype_name((gpuf_dtype)dtype));
    CHECK_OK(gpuf_checkpoint_add(c, name, &on_device[dtype], NULL, &err));
  }
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  gpuf_restart *const r = open_restart("run", 7);
  for (int dtype = 1; dtype <= GPUF_DTYPE_MAX; dtype++) {
    snprintf(name, sizeof(name), "cpu/%s", gpuf_dtype_name((gpuf_dtype)dtype));
    check_restarted(r, name, &on_cpu[dtype]);
    snprintf(name, sizeof(name), "device/%s", gpuf_dtype_name((gpuf_dtype)dtype));
    check_restarted(r, name, &on_cpu[dtype]);
    destroy(&on_cpu[dtype]);
    destroy(&on_device[dtype]);
  }
  gpuf_restart_close(r);
  remove_folder();
}

static void every_shape_comes_back(void) {
  static const struct {
    int32_t ndim;
    int64_t shape[10];
  } cases[] = {{0, {0}},
               {1, {0}},
               {1, {1}},
               {2, {3, 0}},
               {1, {1000003}},
               {3, {40, 50, 60}},
               {10, {2, 1, 3, 1, 2, 2, 1, 2, 3, 5}}};
  enum { COUNT = sizeof(cases) / sizeof(cases[0]) };
  gpuf_tensor on_cpu[COUNT], on_device[COUNT];
  char name[40];
  make_folder();
  for (int plain = 0; plain < 2; plain++) {
    gpuf_checkpoint_options options = options_in_folder("run");
    options.device = test_device;
    options.uncompressed = plain;
    gpuf_checkpoint *const c = open_writer(&options);
    CHECK_OK(gpuf_checkpoint_begin(c, plain, NULL, &err));
    for (int i = 0; i < COUNT; i++) {
      on_cpu[i] = create_cpu(GPUF_DTYPE_FLOAT32, cases[i].ndim, cases[i].shape, (uint64_t)i);
      on_device[i] = copy_to_device(&on_cpu[i]);
      snprintf(name, sizeof(name), "cpu%d", i);
      CHECK_OK(gpuf_checkpoint_add(c, name, &on_cpu[i], NULL, &err));
      snprintf(name, sizeof(name), "device%d", i);
      CHECK_OK(gpuf_checkpoint_add(c, name, &on_device[i], NULL, &err));
    }
    CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
    CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
    gpuf_restart *const r = open_restart("run", plain);
    for (int i = 0; i < COUNT; i++) {
      snprintf(name, sizeof(name), "cpu%d", i);
      check_restarted(r, name, &on_cpu[i]);
      snprintf(name, sizeof(name), "device%d", i);
      check_restarted(r, name, &on_cpu[i]);
      CHECK(strcmp(gpuf_restart_name(r, (size_t)(2 * i + 1)), name) == 0);
      destroy(&on_cpu[i]);
      destroy(&on_device[i]);
    }
    CHECK(!gpuf_restart_name(r, 2 * COUNT));
    gpuf_restart_close(r);
  }
  remove_folder();
}

static void a_box_is_read_from_any_place(void) {
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_tensor whole = create_cpu(GPUF_DTYPE_FLOAT32, 3, shape_3d, 1);
  gpuf_checkpoint *const c = open_writer(&options);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "/u", &whole, NULL, &err));
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  gpuf_restart *const r = open_restart("run", 1);
  gpuf_part part = GPUF_PART_INIT;
  gpuf_tensor described = whole;
  CHECK_OK(gpuf_restart_describe(r, "u", &described, &err));
  CHECK(described.ndim == 3 && memcmp(described.shape, shape_3d, sizeof(shape_3d)) == 0);
  memcpy(part.shape, shape_3d, sizeof(shape_3d));
  for (uint64_t state = 0; state < 40;) {
    gpuf_tensor expected = whole;
    for (int32_t axis = 0; axis < 3; axis++) {
      part.start[axis] = (int64_t)random_below(&state, (uint64_t)shape_3d[axis]);
      const int64_t count =
          1 + (int64_t)random_below(&state, (uint64_t)(shape_3d[axis] - part.start[axis]));
      CHECK_OK(gpuf_tensor_slice(&expected, axis, part.start[axis], 1, count, &err));
    }
    gpuf_tensor packed = create_cpu(GPUF_DTYPE_FLOAT32, 3, expected.shape, 2);
    gpuf_tensor found = create_cpu(GPUF_DTYPE_FLOAT32, 3, expected.shape, 3);
    gpuf_tensor d_found = create_on_device(&found);
    CHECK_OK(gpuf_copy(&packed, &expected, NULL, &err));
    CHECK_OK(gpuf_restart_read(r, "u", &d_found, &part, &err));
    CHECK_OK(gpuf_copy(&found, &d_found, NULL, &err));
    CHECK(memcmp(found.data, packed.data, gpuf_tensor_nbytes(&packed)) == 0);
    DESTROY(&packed, &found);
    destroy(&d_found);
  }
  part.shape[2]++;
  CHECK_FAILS(gpuf_restart_read(r, "u", &whole, &part, &err), GPUF_ERR_INVALID, "part->shape[2]");
  CHECK_FAILS(gpuf_restart_read(r, "v", &whole, NULL, &err), GPUF_ERR_INVALID, "no tensor 'v'");
  gpuf_restart_close(r);
  destroy(&whole);
  remove_folder();
}

static void values_come_back_and_are_attributes(void) {
  static char long_text[70000];
  double found_double = 0;
  int64_t found_int64 = 0;
  const char *text = NULL;
  memset(long_text, 'x', sizeof(long_text) - 1);
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *const c = open_writer(&options);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add_int64(c, "least", INT64_MIN, &err));
  CHECK_OK(gpuf_checkpoint_add_float64(c, "time of\nthe day", -0.0, &err));
  CHECK_OK(gpuf_checkpoint_add_float64(c, "nan", (double)NAN, &err));
  CHECK_OK(gpuf_checkpoint_add_text(c, "Größe", "two lines\nand \"ünïcode\"", &err));
  CHECK_OK(gpuf_checkpoint_add_text(c, "empty", "", &err));
  CHECK_OK(gpuf_checkpoint_add_text(c, "long", long_text, &err));
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  gpuf_restart *const r = open_restart("run", 1);
  CHECK_OK(gpuf_restart_get_int64(r, "least", &found_int64, &err));
  CHECK(found_int64 == INT64_MIN);
  CHECK_OK(gpuf_restart_get_float64(r, "time of\nthe day", &found_double, &err));
  CHECK(found_double == 0 && signbit(found_double));
  CHECK_OK(gpuf_restart_get_float64(r, "nan", &found_double, &err));
  CHECK(isnan(found_double));
  CHECK_OK(gpuf_restart_get_text(r, "Größe", &text, &err));
  CHECK(strcmp(text, "two lines\nand \"ünïcode\"") == 0);
  CHECK_OK(gpuf_restart_get_text(r, "empty", &text, &err));
  CHECK(*text == '\0');
  CHECK_OK(gpuf_restart_get_text(r, "long", &text, &err));
  CHECK(strcmp(text, long_text) == 0);
  CHECK_FAILS(gpuf_restart_get_int64(r, "nan", &found_int64, &err), GPUF_ERR_INVALID,
              "is a float64, not an int64");
  CHECK_FAILS(gpuf_restart_get_text(r, "more", &text, &err), GPUF_ERR_INVALID, "no value 'more'");
  gpuf_restart_close(r);
  const hid_t file = H5Fopen(path_in_folder("run-000000000001.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
  CHECK(file >= 0);
  found_int64 = 0;
  CHECK_OK(gpuf_h5_get_attribute_int64(file, "/", "least", &found_int64, NULL, &err));
  CHECK(found_int64 == INT64_MIN);
  CHECK(H5Fclose(file) >= 0);
  remove_folder();
}

/* One that was begun and aborted leaves nothing of it behind. */
static void write_with(const char *application, int64_t step) {
  gpuf_checkpoint_options options = options_in_folder("run");
  options.application = application;
  gpuf_checkpoint *const c = open_writer(&options);
  CHECK_FAILS(gpuf_checkpoint_begin(c, -1, NULL, &err), GPUF_ERR_INVALID, "negative");
  for (int begun = 0; begun < 2; begun++) {
    CHECK_OK(gpuf_checkpoint_begin(c, step, NULL, &err));
    if (application) {
      CHECK_FAILS(gpuf_checkpoint_add_text(c, "gpufetch_application", "another", &err),
                  GPUF_ERR_INVALID, "gpufetch_application");
    }
    if (!begun) {
      CHECK_OK(gpuf_checkpoint_abort(c, &err));
    }
  }
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
}

static void check_application(int64_t step, const char *application) {
  gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
  gpuf_restart *r = NULL;
  CHECK_OK(gpuf_restart_open(folder, "run", step, &r, &report, &err));
  CHECK(r && report.step == step && strcmp(report.application, application) == 0);
  gpuf_restart_close(r);
  /* A program that was compiled before there was the member. */
  memset(report.application, 7, sizeof(report.application));
  report.struct_nbytes = offsetof(gpuf_restart_report, application);
  CHECK_OK(gpuf_restart_open(folder, "run", step, &r, &report, &err));
  CHECK(r && report.application[0] == 7);
  gpuf_restart_close(r);
}

static void a_restart_says_which_application_wrote(void) {
  static char long_name[257];
  gpuf_checkpoint *c = NULL;
  make_folder();
  gpuf_checkpoint_options options = options_in_folder("run");
  memset(long_name, 'n', 256);
  options.application = long_name;
  CHECK_FAILS(gpuf_checkpoint_open(&options, &c, NULL, &err), GPUF_ERR_INVALID,
              "at most 255 bytes");
  options.application = "\xff";
  CHECK_FAILS(gpuf_checkpoint_open(&options, &c, NULL, &err), GPUF_ERR_INVALID, "must be UTF-8");
  long_name[255] = '\0';
  write_with(NULL, 1);
  write_with("waves 1.2 ü", 2);
  write_with(long_name, 3);
  check_application(1, "");
  check_application(2, "waves 1.2 ü");
  check_application(3, long_name);
  const hid_t file = H5Fopen(path_in_folder("run-000000000002.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
  CHECK(file >= 0 && H5Aexists(file, "gpufetch_application") > 0);
  CHECK(H5Fclose(file) >= 0);
  remove_folder();
}

int main(void) {
  TEST_ON_DEVICES(every_dtype_comes_back);
  TEST_ON_DEVICES(every_shape_comes_back);
  TEST_ON_DEVICES(a_box_is_read_from_any_place);
  TEST(values_come_back_and_are_attributes);
  TEST(a_restart_says_which_application_wrote);
  return test_finish();
}
