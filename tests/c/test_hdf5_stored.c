/* Chunks that a dataset holds already when a call reads or replaces them: in HDF5's memory, in a
 * file of the latest format, and past their filter. What HDF5 reads by itself must be right, too.
 */
#include "hdf5_files.h"

#include "../../hdf5_filter/filter.h"

#define COUNT 256
#define NBYTES (COUNT * sizeof(float))
#define BITSHUFFLE 32008

static const hsize_t dims[] = {COUNT};

static hid_t create_with(H5F_libver_t low) {
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  CHECK(H5Pset_libver_bounds(access, low, H5F_LIBVER_LATEST) >= 0);
  snprintf(file_path, sizeof(file_path), "test_hdf5_%ld.h5", (long)getpid());
  const hid_t file = H5Fcreate(file_path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
  CHECK(file >= 0 && H5Pclose(access) >= 0);
  return file;
}

/* Dataset "x" of float32 in chunks of `chunk` elements. */
static hid_t create_chunked(hid_t file, hsize_t chunk, int filter, H5D_alloc_time_t allocation) {
  const unsigned bitshuffle[] = {0, 4, 4, 0, 2};
  const hid_t space = H5Screate_simple(1, dims, NULL), plist = H5Pcreate(H5P_DATASET_CREATE);
  CHECK(H5Pset_chunk(plist, 1, &chunk) >= 0 && H5Pset_alloc_time(plist, allocation) >= 0);
  if (filter == H5Z_FILTER_DEFLATE) {
    CHECK(H5Pset_deflate(plist, 1) >= 0);
  } else if (filter) {
    CHECK(H5Pset_filter(plist, filter, H5Z_FLAG_OPTIONAL, filter == BITSHUFFLE ? 5 : 0,
                        bitshuffle) >= 0);
  }
  const hid_t dataset =
      H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  CHECK(dataset >= 0 && H5Sclose(space) >= 0 && H5Pclose(plist) >= 0);
  return dataset;
}

static gpuf_tensor tensor_of(float *values, int64_t count) {
  gpuf_tensor tensor;
  CHECK_OK(gpuf_tensor_init(&tensor, values, cpu_device, GPUF_DTYPE_FLOAT32, 1, &count, &err));
  return tensor;
}

/* Noise of 8 bits, which takes about as many bytes as its encoding where `range` is large. */
static void draw(float *values, uint64_t seed) {
  unsigned char bytes[COUNT];
  fill_random(bytes, sizeof(bytes), seed);
  for (size_t i = 0; i < COUNT; i++) {
    values[i] = (float)(bytes[i] % (1 + seed % 100));
  }
}

static void check_values(const float *got, const float *values, const char *who) {
  if (memcmp(got, values, NBYTES) != 0) {
    printf("# %s read other values\n", who);
  }
  CHECK(memcmp(got, values, NBYTES) == 0);
}

/* By gpufetch, and by HDF5 where it has the filter. */
static void check_dataset(hid_t dataset, const float *values, bool hdf5_reads) {
  float got[COUNT];
  gpuf_tensor dst = tensor_of(got, COUNT);
  memset(got, 0xa5, sizeof(got));
  CHECK_OK(gpuf_h5_read_dataset(dataset, &dst, NULL, &err));
  check_values(got, values, "gpufetch");
  if (hdf5_reads) {
    memset(got, 0xa5, sizeof(got));
    CHECK(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, got) >= 0);
    check_values(got, values, "HDF5");
  }
}

static void write_by_hdf5(hid_t dataset, const float *values, hsize_t start, hsize_t count) {
  const hid_t space = H5Screate_simple(1, dims, NULL);
  CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL) >= 0);
  CHECK(H5Dwrite(dataset, H5T_NATIVE_FLOAT, space, space, H5P_DEFAULT, values) >= 0);
  CHECK(H5Sclose(space) >= 0);
}

/* Writes and reads of one open dataset, in any order, by HDF5 and by gpufetch. */
static void use_dataset(hid_t dataset, uint64_t *state) {
  float values[COUNT] = {0}, fresh[COUNT];
  for (int step = 0; step < 6; step++) {
    const bool is_whole = random_below(state, 3) == 0;
    const int64_t start = is_whole ? 0 : (int64_t)random_below(state, COUNT);
    const int64_t count =
        is_whole ? COUNT : 1 + (int64_t)random_below(state, (uint64_t)(COUNT - start));
    draw(fresh, random_below(state, 1 << 20));
    memcpy(values + start, fresh + start, (size_t)count * sizeof(*values));
    if (random_below(state, 2)) {
      write_by_hdf5(dataset, values, (hsize_t)start, (hsize_t)count);
    } else {
      const gpuf_tensor src = tensor_of(values + start, count);
      CHECK_OK(gpuf_h5_write_region(dataset, &start, &src, NULL, &err));
    }
    if (random_below(state, 2)) {
      check_dataset(dataset, values, random_below(state, 2) == 0);
    }
  }
  check_dataset(dataset, values, true);
}

/* Nothing is flushed in between: HDF5 before 1.10.9 and 1.12.2 mistakes the filter mask of the
 * index "single chunk", and before 2.0 its size while the chunk is in memory. */
static void a_dataset_of_one_chunk_is_read_as_it_was_written(void) {
  static const H5D_alloc_time_t times[] = {H5D_ALLOC_TIME_INCR, H5D_ALLOC_TIME_LATE,
                                           H5D_ALLOC_TIME_EARLY};
  static const int filters[] = {0, GPUF_H5_FILTER_ID, H5Z_FILTER_DEFLATE};
  uint64_t state = 3;
  CHECK_OK(gpuf_h5_filter_register(&err));
  for (int i = 0; i < 540; i++) {
    const hid_t file = create_with(i % 2 ? H5F_LIBVER_LATEST : H5F_LIBVER_EARLIEST);
    const hid_t dataset =
        create_chunked(file, i % 4 < 2 ? COUNT : COUNT / 4, filters[i % 3], times[i / 3 % 3]);
    use_dataset(dataset, &state);
    CHECK(H5Dclose(dataset) >= 0);
    close_file(file);
  }
}

/* `gpuf_h5_write` too, whose dataset is opened again by name. */
static void a_new_dataset_of_one_chunk_is_right_at_once(void) {
  float values[COUNT], got[COUNT];
  for (uint64_t seed = 1; seed < 200; seed++) {
    const hid_t file = create_with(H5F_LIBVER_LATEST);
    draw(values, seed);
    const gpuf_tensor src = tensor_of(values, COUNT), dst = tensor_of(got, COUNT);
    CHECK_OK(gpuf_h5_write(file, "x", &src, NULL, &err));
    CHECK_OK(gpuf_h5_read(file, "x", &dst, NULL, &err));
    check_values(got, values, "gpufetch");
    const hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    write_by_hdf5(dataset, values, 3, 5);
    check_dataset(dataset, values, true);
    CHECK(H5Dclose(dataset) >= 0);
    close_file(file);
  }
}

/* HDF5 keeps the mask of the chunk that is replaced: until the dataset is closed, and for good
 * where the new chunk takes as many bytes. */
static void a_chunk_that_skipped_its_filter_is_replaced(void) {
  static const int filters[] = {GPUF_H5_FILTER_ID, BITSHUFFLE};
  float values[COUNT], old[COUNT];
  for (int i = 0; i < 16; i++) {
    const bool is_ours = i % 2 == 0;
    const hsize_t chunk = i & 2 ? COUNT : COUNT / 2, first = 0;
    hid_t file = create_with(i & 4 ? H5F_LIBVER_LATEST : H5F_LIBVER_EARLIEST);
    hid_t dataset = create_chunked(file, chunk, filters[i % 2], H5D_ALLOC_TIME_INCR);
    draw(old, 50);
    draw(values, 2 + (uint64_t)i);
    CHECK(H5Dwrite_chunk(dataset, H5P_DEFAULT, 1, &first, chunk * sizeof(float), old) >= 0);
    if (i & 8) {
      CHECK(H5Dclose(dataset) >= 0 && H5Fclose(file) >= 0);
      file = H5Fopen(file_path, H5F_ACC_RDWR, H5P_DEFAULT);
      dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    }
    const gpuf_tensor src = tensor_of(values, COUNT);
    CHECK_OK(gpuf_h5_write_dataset(dataset, &src, NULL, &err));
    check_dataset(dataset, values, is_ours);
    CHECK(H5Dclose(dataset) >= 0 && H5Fclose(file) >= 0);
    file = H5Fopen(file_path, H5F_ACC_RDONLY, H5P_DEFAULT);
    dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    check_dataset(dataset, values, is_ours);
    CHECK(H5Dclose(dataset) >= 0);
    close_file(file);
  }
}

/* --- Chunks that HDF5 cannot write -------------------------------------------------- */

static bool encoding_fails;

static const H5Z_class2_t *filter_class(void) {
  return gpufi_filter_class(0);
}

static size_t filter_or_fail(unsigned flags, size_t value_count, const unsigned *values,
                             size_t nbytes, size_t *buffer_nbytes, void **buffer) {
  return encoding_fails && !(flags & H5Z_FLAG_REVERSE)
             ? 0
             : filter_class()->filter(flags, value_count, values, nbytes, buffer_nbytes, buffer);
}

/* As where memory runs out for a moment. */
static void register_failing_filter(void) {
  H5Z_class2_t failing = *filter_class();
  failing.filter = filter_or_fail;
  CHECK_OK(gpuf_h5_filter_register(&err));
  CHECK(H5Zregister(&failing) >= 0);
}

static void check_refused(hid_t dataset, int64_t start, int64_t count) {
  float got[COUNT];
  const gpuf_tensor dst = tensor_of(got, count);
  encoding_fails = true;
  CHECK_FAILS(gpuf_h5_read_region(dataset, &start, &dst, NULL, &err), GPUF_ERR_HDF5,
              "could not write chunks");
  encoding_fails = false;
}

static void a_chunk_that_hdf5_cannot_write_is_neither_read_as_zeros_nor_lost(void) {
  float values[COUNT];
  register_failing_filter();
  for (int i = 0; i < 16; i++) {
    const hid_t file = create_with(i & 1 ? H5F_LIBVER_LATEST : H5F_LIBVER_EARLIEST);
    const hid_t plist = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, dims, NULL);
    const hsize_t chunk = i & 2 ? COUNT : COUNT / 4;
    CHECK(H5Pset_chunk(plist, 1, &chunk) >= 0);
    CHECK(H5Pset_filter(plist, GPUF_H5_FILTER_ID, H5Z_FLAG_MANDATORY, 0, NULL) >= 0);
    if (i & 8) { /* a route that is HDF5's own */
      CHECK(H5Pset_fletcher32(plist) >= 0);
    }
    const hid_t dataset =
        H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    CHECK(dataset >= 0 && H5Pclose(plist) >= 0 && H5Sclose(space) >= 0);
    draw(values, 40 + (uint64_t)i);
    write_by_hdf5(dataset, values, 0, COUNT);
    check_refused(dataset, i & 4 ? 100 : 0, i & 4 ? 60 : COUNT);
    check_dataset(dataset, values, true);
    CHECK(H5Dclose(dataset) >= 0);
    close_file(file);
  }
}

int main(void) {
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  TEST(a_dataset_of_one_chunk_is_read_as_it_was_written);
  TEST(a_new_dataset_of_one_chunk_is_right_at_once);
  TEST(a_chunk_that_skipped_its_filter_is_replaced);
  TEST(a_chunk_that_hdf5_cannot_write_is_neither_read_as_zeros_nor_lost);
  return test_finish();
}
