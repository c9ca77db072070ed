/* Elements that were never written: the dataset's fill value, or 0 where it has none, and never
 * what memory held before. Every buffer is filled with a pattern first, malloc's and the pool's
 * too. */
#include <malloc.h>

#include "hdf5_files.h"

#define ROWS 48
#define COLUMNS 40
#define PATTERN 0xa5

static const hsize_t dims[] = {ROWS, COLUMNS};
static const hsize_t chunk_dims[] = {16, 20};

/* How the elements are stored, and how they are filled in. */
typedef struct storage {
  const char *name;
  int filter; /* PLAIN, or a filter's number */
  bool chunked;
  bool big_endian;
} storage;

#define PLAIN 0
#define BITSHUFFLE 32008

static const storage storages[] = {
    {"contiguous", PLAIN, false, false},          {"plain chunks", PLAIN, true, false},
    {"gpufetch", GPUF_H5_FILTER_ID, true, false}, {"bitshuffle", BITSHUFFLE, true, false},
    {"deflate", H5Z_FILTER_DEFLATE, true, false}, {"other byte order", PLAIN, true, true},
};

typedef struct filling {
  H5D_fill_time_t time;
  bool has_value;
  bool is_undefined;
  float expected;
} filling;

static const float fill_value = -2.5F;

static const filling fillings[] = {
    {H5D_FILL_TIME_NEVER, false, false, 0},
    {H5D_FILL_TIME_NEVER, true, false, 0}, /* as h5py reads it */
    {H5D_FILL_TIME_IFSET, false, true, 0},
    {H5D_FILL_TIME_IFSET, true, false, -2.5F},
    {H5D_FILL_TIME_ALLOC, false, false, 0},
};

static hid_t create_plist(const storage *stored, const filling *filled) {
  const unsigned bitshuffle[] = {0, 4, 4, 0, 2};
  const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
  CHECK(!stored->chunked || H5Pset_chunk(plist, 2, chunk_dims) >= 0);
  if (stored->filter == H5Z_FILTER_DEFLATE) {
    CHECK(H5Pset_deflate(plist, 1) >= 0);
  } else if (stored->filter != PLAIN) {
    CHECK(H5Pset_filter(plist, stored->filter, H5Z_FLAG_OPTIONAL,
                        stored->filter == BITSHUFFLE ? 5 : 0, bitshuffle) >= 0);
  }
  CHECK(H5Pset_fill_time(plist, filled->time) >= 0);
  if (filled->has_value || filled->is_undefined) {
    CHECK(H5Pset_fill_value(plist, H5T_NATIVE_FLOAT, filled->has_value ? &fill_value : NULL) >= 0);
  }
  return plist;
}

/* Memory of the pool has the pattern; malloc's has it by mallopt. */
static void soil(void) {
  void *pooled[8];
  for (int i = 0; i < 8; i++) {
    CHECK_OK(gpuf_pool_acquire(test_device, 1 << (12 + i), &pooled[i], &err));
    memset(pooled[i], PATTERN, (size_t)1 << (12 + i));
  }
  for (int i = 0; i < 8; i++) {
    gpuf_pool_release(pooled[i], NULL);
  }
}

static void fill_with_pattern(const gpuf_tensor *tensor) {
  gpuf_tensor pattern = create_cpu(tensor->dtype, tensor->ndim, tensor->shape, 1);
  memset(pattern.data, PATTERN, gpuf_tensor_nbytes(&pattern));
  CHECK_OK(gpuf_copy(tensor, &pattern, NULL, &err));
  destroy(&pattern);
}

/* Read the box of `whole` at `start` to `dst`, which has its shape and any layout. */
static void check_box(hid_t dataset, const gpuf_tensor *whole, const int64_t *start,
                      const gpuf_tensor *dst) {
  gpuf_tensor view = *whole;
  gpuf_tensor expected = create_cpu(whole->dtype, 2, dst->shape, 1);
  for (int32_t axis = 0; axis < 2; axis++) {
    CHECK_OK(gpuf_tensor_slice(&view, axis, start[axis], 1, dst->shape[axis], &err));
  }
  CHECK_OK(gpuf_copy(&expected, &view, NULL, &err));
  fill_with_pattern(dst);
  CHECK_OK(gpuf_h5_read_region(dataset, start, dst, NULL, &err));
  check_equal(dst, &expected);
  destroy(&expected);
}

static void check_all_boxes(hid_t dataset, const gpuf_tensor *whole) {
  static const int64_t boxes[][2][2] = {
      {{0, 0}, {ROWS, COLUMNS}}, {{32, 20}, {16, 20}}, {{17, 3}, {20, 30}}, {{40, 39}, {1, 1}}};
  for (size_t i = 0; i < sizeof(boxes) / sizeof(boxes[0]); i++) {
    const int64_t *shape = boxes[i][1];
    gpuf_tensor packed = create_cpu(whole->dtype, 2, shape, 2);
    gpuf_tensor wide = create_cpu(whole->dtype, 2, (int64_t[]){shape[0], 3 * shape[1]}, 2);
    gpuf_tensor strided = wide;
    gpuf_tensor on_device = create_on_device(&packed);
    CHECK_OK(gpuf_tensor_slice(&strided, 1, 3 * shape[1] - 1, -3, shape[1], &err));
    check_box(dataset, whole, boxes[i][0], &packed);
    check_box(dataset, whole, boxes[i][0], &strided);
    check_box(dataset, whole, boxes[i][0], &on_device);
    destroy(&packed);
    destroy(&wide);
    destroy(&on_device);
  }
}

/* A tensor of the fill value, but for the box at (16, 0) of 16 x 20 elements, if that is written.
 */
static gpuf_tensor expect(float filled, bool has_box) {
  gpuf_tensor whole = create_cpu(GPUF_DTYPE_FLOAT32, 2, (int64_t[]){ROWS, COLUMNS}, 3);
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    const int row = i / COLUMNS, column = i % COLUMNS;
    const bool is_written = has_box && row >= 16 && row < 32 && column < 20;
    ((float *)whole.data)[i] = is_written ? (float)i : filled;
  }
  return whole;
}

static void write_box(hid_t dataset, const gpuf_tensor *whole) {
  const int64_t start[] = {16, 0};
  gpuf_tensor view = *whole;
  CHECK_OK(gpuf_tensor_slice(&view, 0, 16, 1, 16, &err));
  CHECK_OK(gpuf_tensor_slice(&view, 1, 0, 1, 20, &err));
  CHECK_OK(gpuf_h5_write_region(dataset, start, &view, NULL, &err));
}

static void check_storage(const storage *stored, const filling *filled, bool has_box) {
  hid_t file = create_file();
  const hid_t type = stored->big_endian ? H5T_IEEE_F32BE : H5T_IEEE_F32LE;
  hid_t dataset = create_dataset(file, "x", type, 2, dims, create_plist(stored, filled));
  gpuf_tensor whole = expect(filled->expected, has_box);
  if (has_box) {
    write_box(dataset, &whole);
  }
  for (int turn = 0; turn < 2; turn++) { /* open for writing, then for reading only */
    check_all_boxes(dataset, &whole);
    H5Dclose(dataset);
    if (turn == 0) {
      H5Fclose(file);
      file = H5Fopen(file_path, H5F_ACC_RDONLY, H5P_DEFAULT);
      dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    }
  }
  destroy(&whole);
  close_file(file);
}

static void chunks_never_written_are_no_stale_memory(void) {
  CHECK_OK(gpuf_h5_filter_register(&err));
  soil();
  for (size_t s = 0; s < sizeof(storages) / sizeof(storages[0]); s++) {
    for (size_t f = 0; f < sizeof(fillings) / sizeof(fillings[0]); f++) {
      if (fillings[f].time == H5D_FILL_TIME_ALLOC && storages[s].filter == BITSHUFFLE) {
        continue; /* HDF5 itself would have to run the filter, which is not here */
      }
      if (!fillings[f].is_undefined) { /* HDF5 refuses to read what has neither space nor value */
        check_storage(&storages[s], &fillings[f], false);
      }
      if (storages[s].chunked) {
        check_storage(&storages[s], &fillings[f], true);
      }
    }
  }
}

/* The elements of a virtual dataset lie in another one, whose gaps are its gaps. */
static void gaps_of_a_virtual_datasets_source_are_no_stale_memory(void) {
  static const storage plain = {"plain chunks", PLAIN, true, false};
  static const filling never = {H5D_FILL_TIME_NEVER, false, false, 0};
  const hid_t file = create_file();
  const hid_t source =
      create_dataset(file, "x", H5T_IEEE_F32LE, 2, dims, create_plist(&plain, &never));
  const hid_t plist = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(2, dims, NULL);
  gpuf_tensor whole = expect(0, true);
  soil();
  write_box(source, &whole);
  CHECK(H5Pset_virtual(plist, space, ".", "x", space) >= 0);
  const hid_t dataset = create_dataset(file, "v", H5T_IEEE_F32LE, 2, dims, plist);
  check_all_boxes(dataset, &whole);
  H5Dclose(dataset);
  H5Sclose(space);
  H5Dclose(source);
  destroy(&whole);
  close_file(file);
}

/* Two mappings of the same box name as many elements as the dataset has, and leave some out. */
static void gaps_beside_mappings_that_overlap_have_the_fill_value(void) {
  const hid_t file = create_file();
  const hsize_t start[] = {16, 0}, count[] = {ROWS / 2, COLUMNS};
  const hid_t plist = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(2, dims, NULL);
  const hid_t half = H5Screate_simple(2, count, NULL);
  gpuf_tensor whole = expect(fill_value, false);
  float *const values = whole.data;
  soil();
  H5Dclose(create_dataset(file, "x", H5T_IEEE_F32LE, 2, count, H5Pcreate(H5P_DATASET_CREATE)));
  memset(values + start[0] * COLUMNS, 0, count[0] * COLUMNS * sizeof(*values));
  CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0);
  CHECK(H5Pset_fill_value(plist, H5T_NATIVE_FLOAT, &fill_value) >= 0);
  CHECK(H5Pset_virtual(plist, space, ".", "x", half) >= 0);
  CHECK(H5Pset_virtual(plist, space, ".", "x", half) >= 0);
  const hid_t dataset = create_dataset(file, "v", H5T_IEEE_F32LE, 2, dims, plist);
  check_all_boxes(dataset, &whole);
  H5Dclose(dataset);
  H5Sclose(half);
  H5Sclose(space);
  destroy(&whole);
  close_file(file);
}

/* --- Datasets that grow -------------------------------------------------------------- */

#define ROWS_BEFORE 21
#define COLUMNS_BEFORE 33

typedef enum writer { BY_CPU, BY_DEVICE, BY_REGIONS, BY_FUTURE, WRITER_COUNT } writer;

static void write_before(hid_t dataset, const gpuf_tensor *before, writer by) {
  gpuf_tensor src = *before;
  gpuf_h5_future *future = NULL;
  int64_t start[] = {0, 0};
  if (by == BY_DEVICE) {
    src = copy_to_device(before);
  }
  if (by == BY_FUTURE) {
    CHECK_OK(gpuf_h5_write_region_async(dataset, start, &src, NULL, &future, &err));
    CHECK_OK(gpuf_h5_future_wait(future, -1, &err));
    gpuf_h5_future_destroy(future);
    return;
  }
  CHECK_OK(gpuf_h5_write_dataset(dataset, &src, NULL, &err));
  if (by == BY_DEVICE) {
    destroy(&src);
  }
  if (by == BY_REGIONS) { /* whole chunks, at the edge too, and parts of others */
    start[1] = 20;
    CHECK_OK(gpuf_tensor_slice(&src, 1, 20, 1, COLUMNS_BEFORE - 20, &err));
    CHECK_OK(gpuf_h5_write_region(dataset, start, &src, NULL, &err));
    start[0] = 17;
    CHECK_OK(gpuf_tensor_slice(&src, 0, 17, 1, ROWS_BEFORE - 17, &err));
    CHECK_OK(gpuf_h5_write_region(dataset, start, &src, NULL, &err));
  }
}

static void check_growth(const storage *stored, const filling *filled, writer by) {
  static const hsize_t before_dims[] = {ROWS_BEFORE, COLUMNS_BEFORE};
  static const hsize_t unlimited[] = {H5S_UNLIMITED, H5S_UNLIMITED};
  static float found[ROWS * COLUMNS];
  const hid_t file = create_file(), plist = create_plist(stored, filled);
  const hid_t space = H5Screate_simple(2, before_dims, unlimited);
  const hid_t dataset = H5Dcreate2(file, "x", stored->big_endian ? H5T_IEEE_F32BE : H5T_IEEE_F32LE,
                                   space, H5P_DEFAULT, plist, H5P_DEFAULT);
  gpuf_tensor whole = create_cpu(GPUF_DTYPE_FLOAT32, 2, (int64_t[]){ROWS, COLUMNS}, 5);
  gpuf_tensor before =
      create_cpu(GPUF_DTYPE_FLOAT32, 2, (int64_t[]){ROWS_BEFORE, COLUMNS_BEFORE}, 6);
  gpuf_tensor view = whole;
  CHECK(dataset >= 0 && H5Pclose(plist) >= 0 && H5Sclose(space) >= 0);
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    ((float *)whole.data)[i] = filled->expected;
  }
  CHECK_OK(gpuf_tensor_slice(&view, 0, 0, 1, ROWS_BEFORE, &err));
  CHECK_OK(gpuf_tensor_slice(&view, 1, 0, 1, COLUMNS_BEFORE, &err));
  CHECK_OK(gpuf_copy(&view, &before, NULL, &err));
  write_before(dataset, &before, by);
  CHECK(H5Dset_extent(dataset, dims) >= 0);
  check_all_boxes(dataset, &whole);
  if (stored->filter != BITSHUFFLE) { /* which is not here for HDF5 */
    memset(found, 0, sizeof(found));
    CHECK(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, found) >= 0);
    CHECK(!memcmp(found, whole.data, sizeof(found)));
  }
  CHECK(H5Dclose(dataset) >= 0);
  destroy(&before);
  destroy(&whole);
  close_file(file);
}

/* What lies beyond the edge in its last chunks are elements then, as HDF5 would have left them. */
static void elements_of_a_dataset_that_has_grown_have_its_fill_value(void) {
  CHECK_OK(gpuf_h5_filter_register(&err));
  for (size_t s = 0; s < sizeof(storages) / sizeof(storages[0]); s++) {
    for (size_t f = 0; f < sizeof(fillings) / sizeof(fillings[0]); f++) {
      const bool needs_filter = storages[s].filter == BITSHUFFLE;
      for (writer by = 0; by < WRITER_COUNT && storages[s].chunked; by++) {
        if (needs_filter && (fillings[f].time == H5D_FILL_TIME_ALLOC || by == BY_REGIONS)) {
          continue;
        }
        check_growth(&storages[s], &fillings[f], by);
      }
    }
  }
}

int main(void) {
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  mallopt(M_PERTURB, (unsigned char)~PATTERN); /* NOLINT(concurrency-mt-unsafe): no threads yet */
  TEST_ON_DEVICES(chunks_never_written_are_no_stale_memory);
  TEST_ON_DEVICES(gaps_of_a_virtual_datasets_source_are_no_stale_memory);
  TEST_ON_DEVICES(gaps_beside_mappings_that_overlap_have_the_fill_value);
  TEST_ON_DEVICES(elements_of_a_dataset_that_has_grown_have_its_fill_value);
  return test_finish();
}
