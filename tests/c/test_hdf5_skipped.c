/* Datasets of a filter that HDF5 did not know when they were created: their first chunks are stored
 * past the filter. */
#include "hdf5_files.h"

#define VALUES 12
#define NBYTES (VALUES * sizeof(double))
#define CHUNKS 3
#define BITSHUFFLE 32008

static const unsigned gpufetch_values[] = {0, 11, NBYTES, 1, VALUES};
static const unsigned bitshuffle_values[] = {0, 4, 8, 0, 2};

/* Space is allocated, and filled, at once. */
static hid_t create_skipped(hid_t file, const char *name, int filter, hsize_t length) {
  const hsize_t chunk = VALUES;
  const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
  CHECK(H5Pset_chunk(plist, 1, &chunk) >= 0);
  CHECK(H5Pset_filter(plist, filter, H5Z_FLAG_OPTIONAL, 5,
                      filter == BITSHUFFLE ? bitshuffle_values : gpufetch_values) >= 0);
  CHECK(H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY) >= 0);
  return create_dataset(file, name, H5T_IEEE_F64LE, 1, &length, plist);
}

/* The first `zero_nbytes` bytes of each chunk are 0, and noise of 1 to 8 bits a byte follows, so
 * that encodings have many sizes, smaller and larger than the elements'. */
static gpuf_tensor create_values(int64_t length, size_t zero_nbytes) {
  gpuf_tensor values = create_cpu(GPUF_DTYPE_FLOAT64, 1, &length, zero_nbytes);
  unsigned char *const bytes = values.data;
  for (size_t i = 0; i < (size_t)length * sizeof(double); i++) {
    bytes[i] &= i % NBYTES < zero_nbytes ? 0 : (unsigned char)(0xff >> (zero_nbytes % 8));
  }
  return values;
}

static hsize_t stored_nbytes(hid_t dataset) {
  const hsize_t offset = 0;
  hsize_t nbytes = 0;
  CHECK(H5Dget_chunk_storage_size(dataset, &offset, &nbytes) >= 0);
  return nbytes;
}

/* Whether the encoding takes as many bytes as the elements. */
static bool is_equal_in_size(hid_t file, int filter, const gpuf_tensor *values) {
  const hsize_t length = VALUES;
  const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
  gpuf_tensor one = *values;
  CHECK_OK(gpuf_tensor_slice(&one, 0, 0, 1, VALUES, &err));
  CHECK(H5Pset_chunk(plist, 1, &length) >= 0);
  CHECK(H5Pset_filter(plist, filter, H5Z_FLAG_OPTIONAL, 5,
                      filter == BITSHUFFLE ? bitshuffle_values : gpufetch_values) >= 0);
  const hid_t dataset = create_dataset(file, "probe", H5T_IEEE_F64LE, 1, &length, plist);
  CHECK_OK(gpuf_h5_write_dataset(dataset, &one, NULL, &err));
  const bool is_equal = stored_nbytes(dataset) == NBYTES;
  H5Dclose(dataset);
  CHECK(H5Ldelete(file, "probe", H5P_DEFAULT) >= 0);
  return is_equal;
}

static void write_at_once(hid_t dataset, const gpuf_tensor *src) {
  CHECK_OK(gpuf_h5_write_dataset(dataset, src, NULL, &err));
}

static void write_later(hid_t dataset, const gpuf_tensor *src) {
  gpuf_h5_future *future;
  CHECK_OK(gpuf_h5_write_region_async(dataset, NULL, src, NULL, &future, &err));
  CHECK_OK(gpuf_h5_future_wait(future, -1, &err));
  gpuf_h5_future_destroy(future);
}

/* Read by the identifier that was written by, which HDF5 may answer from memory. */
static void check_read(hid_t dataset, const gpuf_tensor *expected) {
  gpuf_tensor found = create_cpu(GPUF_DTYPE_FLOAT64, 1, expected->shape, 77);
  CHECK_OK(gpuf_h5_read_dataset(dataset, &found, NULL, &err));
  CHECK(!memcmp(found.data, expected->data, gpuf_tensor_nbytes(expected)));
  memset(found.data, 0xa5, gpuf_tensor_nbytes(expected));
  CHECK(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, found.data) >= 0);
  CHECK(!memcmp(found.data, expected->data, gpuf_tensor_nbytes(expected)));
  destroy(&found);
}

/* First, since the filter must not be registered yet. */
static void headers_survive_the_filters_registration(void) {
  char name[16];
  hid_t file = create_file();
  for (int i = 0; i < 100; i++) {
    snprintf(name, sizeof(name), "x%d", i);
    H5Dclose(create_skipped(file, name, GPUF_H5_FILTER_ID, VALUES));
  }
  CHECK(H5Zfilter_avail(GPUF_H5_FILTER_ID) <= 0);
  CHECK_OK(gpuf_h5_filter_register(&err));
  H5Fclose(file);
  file = H5Fopen(file_path, H5F_ACC_RDONLY, H5P_DEFAULT);
  for (int i = 0; i < 100; i++) {
    snprintf(name, sizeof(name), "x%d", i);
    const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    CHECK(dataset >= 0);
    H5Dclose(dataset);
  }
  close_file(file);
}

/* Without the filter, HDF5 stores what was given past it. */
static hid_t create_without_filter(hid_t file, int filter, hsize_t length) {
  CHECK(filter == BITSHUFFLE || H5Zunregister(GPUF_H5_FILTER_ID) >= 0);
  const hid_t dataset = create_skipped(file, "x", filter, length);
  CHECK(H5Fflush(file, H5F_SCOPE_LOCAL) >= 0);
  CHECK_OK(gpuf_h5_filter_register(&err));
  CHECK(stored_nbytes(dataset) == NBYTES);
  return dataset;
}

typedef void (*writer)(hid_t dataset, const gpuf_tensor *src);

/* What is read after the dataset was closed, and before that by HDF5's memory of it. */
static void check_write(hid_t file, hid_t *dataset, int filter, const gpuf_tensor *values,
                        writer write) {
  gpuf_tensor on_device = copy_to_device(values);
  write(*dataset, &on_device);
  if (filter != BITSHUFFLE) { /* which HDF5 does not have here */
    check_read(*dataset, values);
  }
  H5Dclose(*dataset);
  *dataset = H5Dopen2(file, "x", H5P_DEFAULT);
  gpuf_tensor found = create_cpu(GPUF_DTYPE_FLOAT64, 1, values->shape, 78);
  CHECK_OK(gpuf_h5_read_dataset(*dataset, &found, NULL, &err));
  CHECK(!memcmp(found.data, values->data, gpuf_tensor_nbytes(values)));
  destroy(&found);
  destroy(&on_device);
}

/* Two writes, so that the second one meets what the first has left. */
static void check_case(hid_t file, int filter, hsize_t length, size_t zero_nbytes, writer write) {
  hid_t dataset = create_without_filter(file, filter, length);
  gpuf_tensor values = create_values((int64_t)length, zero_nbytes);
  gpuf_tensor others = create_values((int64_t)length, NBYTES - zero_nbytes);
  check_write(file, &dataset, filter, &values, write);
  check_write(file, &dataset, filter, &others, write);
  H5Dclose(dataset);
  CHECK(H5Ldelete(file, "x", H5P_DEFAULT) >= 0);
  destroy(&others);
  destroy(&values);
}

static void chunks_stored_past_the_filter_are_written(int filter) {
  int equal_count = 0;
  const hid_t file = create_file();
  for (size_t zero_nbytes = 0; zero_nbytes <= NBYTES; zero_nbytes++) {
    gpuf_tensor values = create_values(VALUES, zero_nbytes);
    equal_count += is_equal_in_size(file, filter, &values);
    destroy(&values);
    check_case(file, filter, VALUES, zero_nbytes, write_at_once);
    check_case(file, filter, VALUES, zero_nbytes, write_later);
    check_case(file, filter, CHUNKS * VALUES, zero_nbytes, write_at_once);
    check_case(file, filter, CHUNKS * VALUES, zero_nbytes, write_later);
  }
  CHECK(equal_count > 0); /* the case that must be among them */
  close_file(file);
}

static void chunks_stored_past_the_gpufetch_filter_are_written(void) {
  chunks_stored_past_the_filter_are_written(GPUF_H5_FILTER_ID);
}

static void chunks_stored_past_bitshuffle_are_written(void) {
  chunks_stored_past_the_filter_are_written(BITSHUFFLE);
}

int main(void) {
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  TEST(headers_survive_the_filters_registration);
  TEST_ON_DEVICES(chunks_stored_past_the_gpufetch_filter_are_written);
  TEST_ON_DEVICES(chunks_stored_past_bitshuffle_are_written);
  return test_finish();
}
