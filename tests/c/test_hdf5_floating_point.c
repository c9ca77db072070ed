/* Files and checkpoints do not depend on the floating-point environment of the program that writes
 * them, nor of the one that reads them, and the program keeps its own. */
#include "checkpoint_files.h"
#include "environments.h"

enum { TENSOR_COUNT = 4, ROWS = 120, COLUMNS = 300 };

/* Decimals and multiples of a step, which the codec takes for integers, some of them NaN. */
static gpuf_tensor create_numbers(int which) {
  const int64_t shape[2] = {ROWS, COLUMNS};
  const gpuf_dtype dtype = which % 2 == 0 ? GPUF_DTYPE_FLOAT32 : GPUF_DTYPE_FLOAT64;
  const gpuf_tensor tensor = create_cpu(dtype, 2, shape, 5);
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    const double number = which < 2 ? (i * 7919LL % 20000 - 10000) * 0.01
                                    : (double)(i * 7919LL % 65536) * 0.0015259021896696 + 1.5;
    const double value = which == 1 && i % 50 == 0 ? (double)NAN : number;
    const float narrow = (float)value;
    memcpy((char *)tensor.data + (size_t)i * gpuf_dtype_nbytes(dtype),
           dtype == GPUF_DTYPE_FLOAT32 ? (const void *)&narrow : (const void *)&value,
           gpuf_dtype_nbytes(dtype));
  }
  return tensor;
}

/* The same names for each environment, in order, in the folder. */
static const char *name_of(const char *format, ptrdiff_t index) {
  static char name[64];
  snprintf(name, sizeof(name), format, (int)index);
  return name;
}

/* A number that HDF5 converts: a subnormal float32. */
static void write_subnormal(hid_t file) {
  const float value = 1e-40F;
  const hid_t space = H5Screate(H5S_SCALAR);
  const hid_t attribute =
      H5Acreate2(file, "small", H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT);
  CHECK(attribute >= 0 && H5Awrite(attribute, H5T_IEEE_F32LE, &value) >= 0);
  H5Aclose(attribute);
  H5Sclose(space);
}

/* Each tensor from the CPU and from a device. */
static void write_datasets(hid_t file, const gpuf_tensor *tensors, const gpuf_tensor *d_tensors,
                           const environment *e) {
  for (int i = 0; i < TENSOR_COUNT; i++) {
    const environment_state state = enter_environment(e);
    CHECK_OK(gpuf_h5_write(file, name_of("cpu %d", i), &tensors[i], NULL, &err));
    CHECK_OK(gpuf_h5_write(file, name_of("device %d", i), &d_tensors[i], NULL, &err));
    CHECK_ENVIRONMENT_BUT_FLAGS(state);
    leave_environment();
    const hid_t dataset = H5Dopen2(file, name_of("device %d", i), H5P_DEFAULT);
    const hsize_t nbytes = H5Dget_storage_size(dataset);
    CHECK(nbytes < gpuf_tensor_nbytes(&tensors[i]));
    record("storage", &nbytes, sizeof(nbytes));
    H5Dclose(dataset);
  }
}

static void write_checkpoint(const gpuf_tensor *tensors, const gpuf_tensor *d_tensors,
                             const environment *e) {
  char prefix[16];
  snprintf(prefix, sizeof(prefix), "in%d", (int)(e - environments));
  gpuf_checkpoint_options options = options_in_folder(prefix);
  options.device = test_device;
  const environment_state state = enter_environment(e);
  gpuf_checkpoint *const c = open_writer(&options);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  for (int i = 0; i < TENSOR_COUNT; i++) {
    CHECK_OK(gpuf_checkpoint_add(c, name_of("cpu%d", i), &tensors[i], NULL, &err));
    CHECK_OK(gpuf_checkpoint_add(c, name_of("device%d", i), &d_tensors[i], NULL, &err));
  }
  CHECK_OK(gpuf_checkpoint_add_float64(c, "none", NAN, &err));
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_LEGACY, &err));
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  CHECK_ENVIRONMENT_BUT_FLAGS(state);
  leave_environment();
}

static void write_all(const environment *e) {
  gpuf_tensor tensors[TENSOR_COUNT], d_tensors[TENSOR_COUNT];
  test_device = host_device;
  CHECK(H5open() >= 0);
  const hid_t file = H5Fcreate(path_in_folder(name_of("written%d.h5", e - environments)),
                               H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  CHECK(file >= 0);
  write_subnormal(file);
  enter_environment(e); /* the first calls of the library, too, are made in it */
  for (int i = 0; i < TENSOR_COUNT; i++) {
    fesetenv(FE_DFL_ENV);
    tensors[i] = create_numbers(i);
    enter_environment(e);
    d_tensors[i] = copy_to_device(&tensors[i]);
  }
  write_datasets(file, tensors, d_tensors, e);
  write_checkpoint(tensors, d_tensors, e);
  CHECK(H5Fclose(file) >= 0);
}

/* --- Reading --------------------------------------------------------------------- */

static void read_datasets(int written_in, const environment *e) {
  const char *const path = path_in_folder(name_of("written%d.h5", written_in));
  const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  double small = 0;
  CHECK(file >= 0);
  for (int i = 0; i < TENSOR_COUNT; i++) {
    const gpuf_tensor expected = create_numbers(i);
    const environment_state state = enter_environment(e);
    check_stored(file, name_of("cpu %d", i), &expected);
    check_stored(file, name_of("device %d", i), &expected);
    CHECK_OK(gpuf_h5_get_attribute_float64(file, "/", "small", &small, NULL, &err));
    CHECK_ENVIRONMENT_BUT_FLAGS(state);
    leave_environment();
    CHECK(small == (double)1e-40F);
    free(expected.data);
  }
  CHECK(H5Fclose(file) >= 0);
}

static void read_checkpoint(int written_in, const environment *e) {
  double none = 0;
  const environment_state state = enter_environment(e);
  gpuf_restart *const r = open_restart(name_of("in%d", written_in), 1);
  for (int i = 0; i < TENSOR_COUNT; i++) {
    leave_environment();
    const gpuf_tensor expected = create_numbers(i);
    enter_environment(e);
    check_restarted(r, name_of("cpu%d", i), &expected);
    check_restarted(r, name_of("device%d", i), &expected);
    free(expected.data);
  }
  CHECK_OK(gpuf_restart_get_float64(r, "none", &none, &err));
  gpuf_restart_close(r);
  CHECK_ENVIRONMENT_BUT_FLAGS(state);
  leave_environment();
  CHECK(isnan(none));
}

/* What was written in the same environment and in the default one, or what was in any. */
static void read_all(const environment *e) {
  test_device = host_device;
  CHECK(H5open() >= 0);
  for (int i = 0; i < ENVIRONMENT_COUNT; i++) {
    if (i == 0 || e == &environments[0] || e == &environments[i]) {
      read_datasets(i, e);
      read_checkpoint(i, e);
    }
  }
  record("read", "", 0);
}

static void files_are_the_same_in_any_environment(void) {
  strcpy(folder, "environments-XXXXXX");
  CHECK(mkdtemp(folder));
  run_in_environments(write_all);
  run_in_environments(read_all);
  remove_folder();
}

int main(void) {
  TEST(files_are_the_same_in_any_environment);
  return test_finish();
}
