/* Writing and reading HDF5 datasets with the n-th call of a kind failing, for every n: a dataset
 * that is reported as written holds every byte, one that is reported as read too. */
#include <gpufetch/hdf5.h>
#include <hdf5.h>
#include <math.h>

#include "fault_cases.h"
#include "hdf5/driver/driver.h"

#define ROWS 64
#define COLUMNS 1000
#define COUNT ((size_t)ROWS * COLUMNS)

static float values[COUNT];
static float result[COUNT];
static gpuf_tensor d_tensor, d_target; /* filled with `values`, and poison */

static const int64_t shape[] = {ROWS, COLUMNS};
static const int64_t chunk_shape[] = {8, COLUMNS};

static gpuf_h5_options options_for(gpuf_h5_codec codec) {
  gpuf_h5_options options = GPUF_H5_OPTIONS_INIT;
  options.codec = codec;
  options.chunk_shape = chunk_shape;
  options.thread_count = 3;
  return options;
}

static hid_t file;      /* in memory: the cases are not about the disk */
static hid_t disk_file; /* open read-only */
static char folder[] = "/tmp/gpufetch-test-XXXXXX", disk_path[64], driver_path[64];

static void create_file(void) {
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  CHECK(H5Pset_fapl_core(access, 1 << 20, 0) >= 0);
  file = H5Fcreate("faults.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access);
  CHECK(file >= 0 && H5Pclose(access) >= 0);
}

/* By HDF5 itself, through the filter. */
static void store(const char *name) {
  const hsize_t dims[] = {ROWS, COLUMNS}, chunk[] = {8, COLUMNS};
  const hid_t space = H5Screate_simple(2, dims, NULL), creation = H5Pcreate(H5P_DATASET_CREATE);
  CHECK(H5Pset_chunk(creation, 2, chunk) >= 0);
  CHECK(H5Pset_filter(creation, GPUF_H5_FILTER_ID, 0, 0, NULL) >= 0);
  const hid_t dataset =
      H5Dcreate2(file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  CHECK(dataset >= 0);
  CHECK(H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  CHECK(H5Dclose(dataset) >= 0 && H5Pclose(creation) >= 0 && H5Sclose(space) >= 0);
}

static gpuf_tensor device_tensor(void) {
  gpuf_tensor tensor;
  CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_FLOAT32, 2, shape, &tensor, &err));
  return tensor;
}

static gpuf_tensor cpu_tensor(float *data) {
  gpuf_tensor tensor;
  CHECK_OK(gpuf_tensor_init(&tensor, data, cpu_device, GPUF_DTYPE_FLOAT32, 2, shape, &err));
  return tensor;
}

static void prepare(void) {
  d_tensor = device_tensor();
  d_target = device_tensor();
  access_device(d_tensor.data, values, sizeof(values), true);
  CHECK(H5Eset_auto2(H5E_DEFAULT, NULL, NULL) >= 0);
  CHECK_OK(gpuf_h5_filter_register(&err));
  disk_file = H5Fopen(disk_path, H5F_ACC_RDONLY, H5P_DEFAULT);
  CHECK(disk_file >= 0);
  create_file();
  store("stored");
  const gpuf_h5_options options = options_for(GPUF_H5_CODEC_BITSHUFFLE_LZ4);
  const gpuf_tensor src =
      cpu_tensor(values); /* by the CPU, so that the device's calls come later */
  CHECK_OK(gpuf_h5_write(file, "shuffled", &src, &options, &err));
}

/* As any HDF5 program reads it. Filter 32008 is read by the library, since no other reader is here.
 */
static bool holds_values(const char *name, gpuf_h5_codec codec) {
  memset(result, 0xa5, sizeof(result));
  if (codec == GPUF_H5_CODEC_BITSHUFFLE_LZ4) {
    const gpuf_tensor dst = cpu_tensor(result);
    CHECK_OK(gpuf_h5_read(file, name, &dst, NULL, &err));
  } else {
    const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    CHECK(dataset >= 0);
    CHECK(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, result) >= 0);
    CHECK(H5Dclose(dataset) >= 0);
  }
  return memcmp(result, values, sizeof(values)) == 0;
}

/* A dataset that could not be written is not there. */
static gpuf_status write_tensor(const gpuf_tensor *src, gpuf_h5_codec codec, bool *right) {
  const gpuf_h5_options options = options_for(codec);
  const gpuf_status status = gpuf_h5_write(file, "x", src, &options, &err);
  faults_disarm();
  const bool is_there = H5Lexists(file, "x", H5P_DEFAULT) > 0;
  CHECK(is_there == (status == GPUF_OK));
  if (is_there) {
    *right = holds_values("x", codec);
    CHECK(H5Ldelete(file, "x", H5P_DEFAULT) >= 0);
  }
  return status;
}

/* A write in flight that the caller polls, and in the end waits for. */
static gpuf_status finish(gpuf_h5_future *future) {
  bool done = false;
  gpuf_status status = gpuf_h5_future_poll(future, &done, &err);
  if (status == GPUF_OK) {
    status = gpuf_h5_future_wait_copied(future, -1, &err);
  }
  if (status == GPUF_OK) {
    status = gpuf_h5_future_wait(future, -1, &err);
  }
  gpuf_h5_future_destroy(future);
  return status;
}

static gpuf_status write_async(bool *right) {
  const gpuf_h5_options options = options_for(GPUF_H5_CODEC_GPUFETCH);
  gpuf_h5_future *future;
  gpuf_status status = gpuf_h5_write_async(file, "x", &d_tensor, &options, &future, &err);
  if (status == GPUF_OK) {
    status = finish(future);
  }
  faults_disarm();
  const bool is_there = H5Lexists(file, "x", H5P_DEFAULT) > 0;
  CHECK(is_there == (status == GPUF_OK));
  if (is_there) {
    *right = holds_values("x", GPUF_H5_CODEC_GPUFETCH);
    CHECK(H5Ldelete(file, "x", H5P_DEFAULT) >= 0);
  }
  return status;
}

static gpuf_status write_device(bool *right) {
  return write_tensor(&d_tensor, GPUF_H5_CODEC_GPUFETCH, right);
}

static gpuf_status write_cpu(bool *right) {
  const gpuf_tensor src = cpu_tensor(values);
  return write_tensor(&src, GPUF_H5_CODEC_GPUFETCH, right);
}

static gpuf_status write_bitshuffle(bool *right) {
  return write_tensor(&d_tensor, GPUF_H5_CODEC_BITSHUFFLE_LZ4, right);
}

static gpuf_status write_plain(bool *right) {
  return write_tensor(&d_tensor, GPUF_H5_CODEC_NONE, right);
}

static gpuf_status read_cpu(bool *right) {
  const gpuf_h5_options options = options_for(GPUF_H5_CODEC_GPUFETCH);
  memset(result, 0xa5, sizeof(result));
  const gpuf_tensor dst = cpu_tensor(result);
  const gpuf_status status = gpuf_h5_read(file, "stored", &dst, &options, &err);
  *right = memcmp(result, values, sizeof(values)) == 0;
  return status;
}

/* Afterwards, for the next attempt, nothing right is there. */
static bool target_is_whole(void) {
  faults_disarm();
  access_device(d_target.data, result, sizeof(values), false);
  const bool is_whole = memcmp(result, values, sizeof(values)) == 0;
  memset(result, 0xa5, sizeof(result));
  access_device(d_target.data, result, sizeof(values), true);
  return is_whole;
}

static gpuf_status read_device(bool *right) {
  const gpuf_h5_options options = options_for(GPUF_H5_CODEC_GPUFETCH);
  const gpuf_status status = gpuf_h5_read(file, "stored", &d_target, &options, &err);
  *right = target_is_whole();
  return status;
}

/* --- Open datasets and regions ------------------------------------------------------- */

static hid_t open_dataset(hid_t in, const char *name) {
  const hid_t dataset = H5Dopen2(in, name, H5P_DEFAULT);
  CHECK(dataset >= 0);
  return dataset;
}

/* Dataset "stored" has other values now; what fails in the middle may leave some of both. */
static void spoil(hid_t dataset) {
  static const float zeros[COUNT];
  CHECK(H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros) >= 0);
}

static void restore(hid_t dataset) {
  faults_disarm();
  CHECK(H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  CHECK(H5Dclose(dataset) >= 0);
}

static gpuf_status overwrite_async(bool *right) {
  gpuf_h5_options options = options_for(GPUF_H5_CODEC_GPUFETCH);
  const gpuf_tensor src = cpu_tensor(values);
  const hid_t dataset = open_dataset(file, "stored");
  gpuf_h5_future *future;
  options.async_max_nbytes = 1;
  gpuf_status status = gpuf_h5_write_region_async(dataset, NULL, &src, &options, &future, &err);
  if (status == GPUF_OK) {
    status = finish(future);
  }
  faults_disarm();
  *right = status == GPUF_OK && holds_values("stored", GPUF_H5_CODEC_GPUFETCH);
  restore(dataset);
  return status;
}

static gpuf_status overwrite(const gpuf_tensor *src, bool *right) {
  const gpuf_h5_options options = options_for(GPUF_H5_CODEC_GPUFETCH);
  const hid_t dataset = open_dataset(file, "stored");
  const gpuf_status status = gpuf_h5_write_dataset(dataset, src, &options, &err);
  faults_disarm();
  *right = status == GPUF_OK && holds_values("stored", GPUF_H5_CODEC_GPUFETCH);
  restore(dataset);
  return status;
}

static gpuf_status overwrite_by_device(bool *right) {
  return overwrite(&d_tensor, right);
}

static gpuf_status overwrite_by_cpu(bool *right) {
  const gpuf_tensor src = cpu_tensor(values);
  return overwrite(&src, right);
}

/* Rows `first` to first + count - 1 of `tensor`. */
static gpuf_tensor some_rows(gpuf_tensor tensor, int64_t first, int64_t count) {
  CHECK_OK(gpuf_tensor_slice(&tensor, 0, first, 1, count, &err));
  return tensor;
}

static gpuf_status write_rows(const gpuf_tensor *from, int64_t first, int64_t count, bool *right) {
  const gpuf_h5_options options = options_for(GPUF_H5_CODEC_GPUFETCH);
  const int64_t start[] = {first, 0};
  const gpuf_tensor src = some_rows(*from, first, count);
  const hid_t dataset = open_dataset(file, "stored");
  spoil(dataset);
  const gpuf_status status = gpuf_h5_write_region(dataset, start, &src, &options, &err);
  faults_disarm();
  memset(result, 0xa5, sizeof(result));
  CHECK(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, result) >= 0);
  *right = true;
  for (int64_t i = 0; i < (int64_t)COUNT; i++) {
    const bool is_written = i / COLUMNS >= first && i / COLUMNS < first + count;
    *right = *right && result[i] == (is_written ? values[i] : 0);
  }
  restore(dataset);
  return status;
}

static gpuf_status write_whole_chunks(bool *right) {
  return write_rows(&d_tensor, 8, 32, right);
}

/* Chunks that the region covers in part are HDF5's to write. */
static gpuf_status write_across_chunks(bool *right) {
  return write_rows(&d_tensor, 5, 30, right);
}

static gpuf_status read_rows(hid_t in, const char *name, bool *right) {
  const gpuf_h5_options options = options_for(GPUF_H5_CODEC_GPUFETCH);
  const int64_t start[] = {3, 0};
  memset(result, 0xa5, sizeof(result));
  const gpuf_tensor dst = some_rows(cpu_tensor(result), 3, 45);
  const hid_t dataset = open_dataset(in, name);
  const gpuf_status status = gpuf_h5_read_region(dataset, start, &dst, &options, &err);
  const size_t begin = 3 * COLUMNS, count = (size_t)45 * COLUMNS;
  *right = memcmp(result + begin, values + begin, count * sizeof(*values)) == 0;
  CHECK(H5Dclose(dataset) >= 0);
  return status;
}

static gpuf_status read_across_chunks(bool *right) {
  return read_rows(file, "stored", right);
}

/* Chunks of the file on disk, which workers read themselves. */
static gpuf_status read_plain_file(bool *right) {
  return read_rows(disk_file, "stored", right);
}

static gpuf_status read_plain_file_onto_device(bool *right) {
  const gpuf_h5_options options = options_for(GPUF_H5_CODEC_GPUFETCH);
  const hid_t dataset = open_dataset(disk_file, "stored");
  const gpuf_status status = gpuf_h5_read_dataset(dataset, &d_target, &options, &err);
  CHECK(H5Dclose(dataset) >= 0);
  *right = target_is_whole();
  return status;
}

static gpuf_status read_bitshuffle(bool *right) {
  const gpuf_h5_options options = options_for(GPUF_H5_CODEC_BITSHUFFLE_LZ4);
  memset(result, 0xa5, sizeof(result));
  const gpuf_tensor dst = cpu_tensor(result);
  const gpuf_status status = gpuf_h5_read(file, "shuffled", &dst, &options, &err);
  *right = memcmp(result, values, sizeof(values)) == 0;
  return status;
}

/* Every second column, which lies between elements that stay as they are. */
static gpuf_status read_into_strided_view(bool *right) {
  const gpuf_h5_options options = options_for(GPUF_H5_CODEC_GPUFETCH);
  static float wide[2 * COUNT];
  gpuf_tensor dst = cpu_tensor(wide);
  memset(wide, 0, sizeof(wide));
  dst.strides_nbytes[0] = (int64_t)sizeof(*wide) * 2 * COLUMNS;
  dst.strides_nbytes[1] = (int64_t)sizeof(*wide) * 2;
  const gpuf_status status = gpuf_h5_read(file, "stored", &dst, &options, &err);
  *right = true;
  for (size_t i = 0; i < COUNT; i++) {
    *right = *right && wide[2 * i] == values[i] && wide[2 * i + 1] == 0;
  }
  return status;
}

/* --- Descriptions and attributes ------------------------------------------------------- */

static gpuf_status describe(bool *right) {
  gpuf_tensor described = cpu_tensor(result);
  const hid_t dataset = open_dataset(file, "stored");
  const gpuf_status status = gpuf_h5_describe(dataset, &described, NULL, &err);
  CHECK(H5Dclose(dataset) >= 0);
  *right = described.dtype == GPUF_DTYPE_FLOAT32 && described.ndim == 2 &&
           described.shape[0] == ROWS && described.shape[1] == COLUMNS;
  return status;
}

static gpuf_status attributes(bool *right) {
  int64_t step = 0;
  double time = 0;
  char text[32] = "";
  size_t nbytes = sizeof(text);
  gpuf_status status = gpuf_h5_set_attribute_int64(file, "stored", "step", 77, NULL, &err);
  if (status == GPUF_OK) {
    status = gpuf_h5_set_attribute_float64(file, "stored", "time", 0.25, NULL, &err);
  }
  if (status == GPUF_OK) {
    status = gpuf_h5_set_attribute_text(file, "stored", "unit", "m/s", NULL, &err);
  }
  if (status == GPUF_OK) {
    status = gpuf_h5_get_attribute_int64(file, "stored", "step", &step, NULL, &err);
  }
  if (status == GPUF_OK) {
    status = gpuf_h5_get_attribute_float64(file, "stored", "time", &time, NULL, &err);
  }
  if (status == GPUF_OK) {
    status = gpuf_h5_get_attribute_text(file, "stored", "unit", text, &nbytes, NULL, &err);
  }
  *right = step == 77 && time == 0.25 && strcmp(text, "m/s") == 0;
  return status;
}

/* --- The file driver ----------------------------------------------------------------- */

/* Chunks, and more metadata than HDF5 keeps to itself. */
static void write_chunks(hid_t out) {
  const hsize_t dims[] = {ROWS, COLUMNS}, chunk[] = {8, COLUMNS};
  const hid_t space = H5Screate_simple(2, dims, NULL), creation = H5Pcreate(H5P_DATASET_CREATE);
  CHECK(H5Pset_chunk(creation, 2, chunk) >= 0);
  const hid_t dataset =
      H5Dcreate2(out, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  CHECK(dataset >= 0);
  for (hsize_t row = 0; row < ROWS; row += 8) {
    const hsize_t offset[] = {row, 0};
    const float *const bytes = values + row * COLUMNS;
    char name[16];
    snprintf(name, sizeof(name), "group %d", (int)row);
    CHECK(H5Gclose(H5Gcreate2(out, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)) >= 0);
    CHECK(H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, offset, 8 * COLUMNS * 4, bytes) >= 0);
  }
  CHECK(H5Fflush(out, H5F_SCOPE_GLOBAL) >= 0);
  CHECK(H5Dclose(dataset) >= 0 && H5Pclose(creation) >= 0 && H5Sclose(space) >= 0);
}

/* HDF5 closes the file whatever fails. */
static gpuf_status write_file(gpufi_h5_driver_file *watched, hid_t access) {
  const hid_t out = H5Fcreate(driver_path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
  if (out >= 0) {
    write_chunks(out);
    CHECK(H5Fclose(out) >= 0);
  }
  const gpuf_status status = gpufi_h5_driver_error(watched, &err);
  CHECK(out >= 0 || status != GPUF_OK);
  return status;
}

static gpuf_status write_by_driver(bool *right) {
  const gpufi_h5_driver *driver;
  gpufi_h5_driver_file *watched = NULL;
  gpufi_h5_api *api;
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  CHECK_OK(gpufi_h5_bound(&api, &err));
  CHECK_OK(gpufi_h5_driver_open(api, &driver, &err));
  gpuf_status status = gpufi_h5_driver_fapl(driver, access, &watched, &err);
  if (status == GPUF_OK) {
    status = write_file(watched, access);
  }
  faults_disarm();
  gpufi_h5_driver_release(watched);
  CHECK(H5Pclose(access) >= 0);
  if (status == GPUF_OK) {
    const hid_t kept = file;
    file = H5Fopen(driver_path, H5F_ACC_RDONLY, H5P_DEFAULT);
    *right = file >= 0 && holds_values("x", GPUF_H5_CODEC_NONE) && H5Fclose(file) >= 0;
    file = kept;
  }
  return status;
}

static const operation operations[] = {
    {"write from the device", write_device, false},
    {"write from the CPU", write_cpu, false},
    {"write as bitshuffle", write_bitshuffle, false},
    {"write without a filter", write_plain, true},
    {"write asynchronously", write_async, false},
    {"overwrite asynchronously", overwrite_async, false},
    {"overwrite by the device", overwrite_by_device, true},
    {"overwrite by the CPU", overwrite_by_cpu, false},
    {"write a region of whole chunks", write_whole_chunks, false},
    {"write a region across chunks", write_across_chunks, false},
    {"read onto the CPU", read_cpu, false},
    {"read onto the device", read_device, false},
    {"read a region", read_across_chunks, false},
    {"read a plain file", read_plain_file, false},
    {"read a plain file onto the device", read_plain_file_onto_device, false},
    {"read bitshuffle", read_bitshuffle, false},
    {"read into a strided view", read_into_strided_view, true},
    {"describe", describe, false},
    {"attributes", attributes, false},
    {"write by the file driver", write_by_driver, false},
};

/* A file that HDF5's own driver reads, so that it may be opened read-only. */
static void create_disk_file(void) {
  CHECK(mkdtemp(folder));
  snprintf(disk_path, sizeof(disk_path), "%s/plain.h5", folder);
  snprintf(driver_path, sizeof(driver_path), "%s/driver.h5", folder);
  CHECK_OK(gpuf_h5_filter_register(&err));
  file = H5Fcreate(disk_path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  CHECK(file >= 0);
  store("stored");
  CHECK(H5Fclose(file) >= 0);
}

int main(void) {
  for (size_t i = 0; i < COUNT; i++) {
    values[i] = sinf((float)(i % COLUMNS) / 50.0F) + (float)(i / COLUMNS);
  }
  test_run("a plain file is made", create_disk_file);
  const int failed =
      run_operations(operations, sizeof(operations) / sizeof(operations[0]), prepare);
  unlink(disk_path);
  unlink(driver_path);
  rmdir(folder);
  return failed;
}
