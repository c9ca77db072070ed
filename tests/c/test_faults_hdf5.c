/* Writing and reading HDF5 datasets with the n-th call of a kind failing, for every n: a dataset
 * that is reported as written holds every byte, one that is reported as read too. */
#include <gpufetch/hdf5.h>
#include <hdf5.h>
#include <math.h>

#include "fault_cases.h"

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

static hid_t file;

/* A file in memory: no case is about the disk. */
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

static void prepare(void) {
  for (size_t i = 0; i < COUNT; i++) {
    values[i] = sinf((float)(i % COLUMNS) / 50.0F) + (float)(i / COLUMNS);
  }
  d_tensor = device_tensor();
  d_target = device_tensor();
  access_device(d_tensor.data, values, sizeof(values), true);
  CHECK(H5Eset_auto2(H5E_DEFAULT, NULL, NULL) >= 0);
  CHECK_OK(gpuf_h5_filter_register(&err));
  create_file();
  store("stored");
}

static gpuf_tensor cpu_tensor(float *data) {
  gpuf_tensor tensor;
  CHECK_OK(gpuf_tensor_init(&tensor, data, cpu_device, GPUF_DTYPE_FLOAT32, 2, shape, &err));
  return tensor;
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

static gpuf_status read_device(bool *right) {
  const gpuf_h5_options options = options_for(GPUF_H5_CODEC_GPUFETCH);
  const gpuf_status status = gpuf_h5_read(file, "stored", &d_target, &options, &err);
  faults_disarm();
  access_device(d_target.data, result, sizeof(values), false);
  *right = memcmp(result, values, sizeof(values)) == 0;
  memset(result, 0xa5, sizeof(result));
  access_device(d_target.data, result, sizeof(values),
                true); /* for the next attempt, nothing right is there */
  return status;
}

static const operation operations[] = {
    {"write from the device", write_device},   {"write from the CPU", write_cpu},
    {"write as bitshuffle", write_bitshuffle}, {"write without a filter", write_plain},
    {"read onto the CPU", read_cpu},           {"read onto the device", read_device},
};

int main(void) {
  return run_operations(operations, sizeof(operations) / sizeof(operations[0]), prepare);
}
