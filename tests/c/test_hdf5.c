/* Datasets through the C API and the libhdf5 that this program links. */
#include "hdf5_files.h"

static void a_device_tensor_comes_back_bit_for_bit(void) {
  const int64_t shape[] = {70, 33, 129};
  const int64_t chunk[] = {32, 16, 64}; /* edge chunks on every axis */
  const gpuf_h5_options options = {
      .struct_nbytes = sizeof(options), .chunk_shape = chunk, .thread_count = 3};
  const hid_t file = create_file();
  gpuf_tensor expected = create_cpu(GPUF_DTYPE_FLOAT32, 3, shape, 1);
  check_written(file, "group/x", &expected, &options);
  check_stored_by_hdf5(file, "group/x", &expected);
  destroy(&expected);
  close_file(file);
}

static void every_dtype_keeps_its_bits_and_its_name(void) {
  const int64_t shape[] = {37, 53};
  const int64_t chunk[] = {20, 53};
  for (int codec = 0; codec < 2; codec++) {
    const gpuf_h5_options options = {
        .struct_nbytes = sizeof(options), .codec = (gpuf_h5_codec)codec, .chunk_shape = chunk};
    const hid_t file = create_file();
    for (gpuf_dtype dtype = GPUF_DTYPE_BOOL; dtype <= GPUF_DTYPE_MAX; dtype++) {
      const char *name = gpuf_dtype_name(dtype);
      gpuf_tensor described = {0};
      gpuf_tensor expected = create_cpu(dtype, 2, shape, (uint64_t)dtype);
      gpuf_tensor src = copy_to_device(&expected);
      hid_t dataset;
      CHECK_OK(gpuf_h5_write(file, name, &src, &options, &err));
      dataset = H5Dopen2(file, name, H5P_DEFAULT);
      CHECK_OK(gpuf_h5_describe(dataset, &described, NULL, &err));
      H5Dclose(dataset);
      CHECK(described.dtype == dtype && described.ndim == 2);
      CHECK(described.shape[0] == 37 && described.shape[1] == 53);
      check_stored(file, name, &expected);
      check_stored_by_hdf5(file, name, &expected);
      destroy(&src);
      destroy(&expected);
    }
    close_file(file);
  }
}

/* More than the device encodes ahead, with edge chunks among them. */
static void a_long_tensor_is_written_in_its_order(void) {
  const int64_t shape[] = {1900, 10000};
  const int64_t chunk[] = {256, 1024};
  const gpuf_h5_options options = {.struct_nbytes = sizeof(options), .chunk_shape = chunk};
  const hid_t file = create_file();
  gpuf_tensor expected = create_cpu(GPUF_DTYPE_FLOAT32, 2, shape, 11);
  check_written(file, "x", &expected, &options);
  destroy(&expected);
  close_file(file);
}

/* bfloat16 noise about 0 is ranked; an image of few shades has a dictionary, which a device leaves
 * to the CPU. */
static void forms_without_prediction_are_written_too(void) {
  const int64_t shape[] = {700, 2048};
  const int64_t chunk[] = {64, 1024};
  const gpuf_h5_options options = {.struct_nbytes = sizeof(options), .chunk_shape = chunk};
  const hid_t file = create_file();
  gpuf_tensor ranked = create_cpu(GPUF_DTYPE_BFLOAT16, 2, shape, 12);
  gpuf_tensor shades = create_cpu(GPUF_DTYPE_INT32, 2, shape, 13);
  uint16_t *const weights = ranked.data;
  int32_t *const image = shades.data;
  for (int64_t i = 0; i < shape[0] * shape[1]; i++) {
    const uint16_t bits = weights[i];
    weights[i] = (uint16_t)((bits & 0x807f) | (0x3f80 - (__builtin_ctz(bits | 0x80) << 7)));
    image[i] = image[i] % 7 * 1000003;
  }
  check_written(file, "ranked", &ranked, &options);
  check_written(file, "shades", &shades, &options);
  destroy(&ranked);
  destroy(&shades);
  close_file(file);
}

static void strided_views_are_written_and_filled(void) {
  const int64_t shape[] = {24, 40, 31};
  const int64_t chunk[] = {5, 8, 16};
  const gpuf_h5_options options = {
      .struct_nbytes = sizeof(options), .chunk_shape = chunk, .thread_count = 2};
  const hid_t file = create_file();
  gpuf_tensor whole = create_cpu(GPUF_DTYPE_INT16, 3, shape, 4);
  gpuf_tensor d_whole = copy_to_device(&whole);
  gpuf_tensor view = d_whole;
  gpuf_tensor expected;
  gpuf_tensor packed;
  CHECK_OK(gpuf_tensor_slice(&view, 0, 23, -2, 12, &err));
  CHECK_OK(gpuf_tensor_slice(&view, 1, 3, 3, 11, &err));
  CHECK_OK(gpuf_tensor_slice(&view, 2, 1, 1, 30, &err));
  packed = create_cpu(GPUF_DTYPE_INT16, 3, view.shape, 5);
  expected = packed;
  CHECK_OK(gpuf_copy(&packed, &view, NULL, &err));
  CHECK_OK(gpuf_h5_write(file, "view", &view, &options, &err));
  check_stored(file, "view", &expected);

  /* Read into a view: what lies between its elements stays. */
  gpuf_tensor target = create_cpu(GPUF_DTYPE_INT16, 3, shape, 6);
  gpuf_tensor d_target = copy_to_device(&target);
  gpuf_tensor target_view = target;
  gpuf_tensor d_view = d_target;
  for (int32_t axis = 0; axis < 3; axis++) {
    const int64_t start[] = {23, 3, 1};
    const int64_t step[] = {-2, 3, 1};
    CHECK_OK(gpuf_tensor_slice(&d_view, axis, start[axis], step[axis], view.shape[axis], &err));
    CHECK_OK(
        gpuf_tensor_slice(&target_view, axis, start[axis], step[axis], view.shape[axis], &err));
  }
  CHECK_OK(gpuf_h5_read(file, "view", &d_view, NULL, &err));
  CHECK_OK(gpuf_copy(&target_view, &packed, NULL, &err));
  check_equal(&d_target, &target);
  destroy(&d_target);
  destroy(&target);
  destroy(&packed);
  destroy(&d_whole);
  destroy(&whole);
  close_file(file);
}

static void scalars_and_empty_tensors_keep_their_shape(void) {
  const int64_t empty_shape[] = {3, 0, 5};
  const hid_t file = create_file();
  gpuf_tensor scalar = create_cpu(GPUF_DTYPE_FLOAT64, 0, NULL, 7);
  gpuf_tensor empty = create_cpu(GPUF_DTYPE_FLOAT32, 3, empty_shape, 8);
  gpuf_tensor described = {0};
  hid_t dataset;
  check_written(file, "scalar", &scalar, NULL);
  CHECK_OK(gpuf_h5_write(file, "empty", &empty, NULL, &err));
  dataset = H5Dopen2(file, "empty", H5P_DEFAULT);
  CHECK_OK(gpuf_h5_describe(dataset, &described, NULL, &err));
  CHECK(described.ndim == 3 && described.shape[0] == 3 && described.shape[1] == 0);
  CHECK_OK(gpuf_h5_read_dataset(dataset, &empty, NULL, &err));
  H5Dclose(dataset);
  destroy(&scalar);
  destroy(&empty);
  close_file(file);
}

static void nine_axes_fit_the_codecs_eight(void) {
  const int64_t shape[] = {2, 3, 2, 1, 2, 3, 2, 2, 5};
  const int64_t chunk[] = {2, 2, 2, 1, 1, 3, 2, 2, 3};
  const gpuf_h5_options options = {.struct_nbytes = sizeof(options), .chunk_shape = chunk};
  const hid_t file = create_file();
  gpuf_tensor expected = create_cpu(GPUF_DTYPE_UINT32, 9, shape, 9);
  CHECK_OK(gpuf_h5_write(file, "x", &expected, &options, &err));
  check_stored(file, "x", &expected);
  check_stored_by_hdf5(file, "x", &expected);
  destroy(&expected);
  close_file(file);
}

static void check_existing(hid_t file, hid_t dataset, const char *name, gpuf_dtype dtype) {
  const int64_t shape[] = {100, 60};
  gpuf_tensor expected = create_cpu(dtype, 2, shape, 10);
  gpuf_tensor src = copy_to_device(&expected);
  CHECK_OK(gpuf_h5_write_dataset(dataset, &src, NULL, &err));
  H5Dclose(dataset);
  check_stored(file, name, &expected);
  destroy(&src);
  destroy(&expected);
}

static void other_layouts_types_and_filters_go_through_hdf5(void) {
  const hsize_t shape[] = {100, 60};
  const hsize_t chunk[] = {32, 32};
  const hid_t file = create_file();
  hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
  check_existing(file, create_dataset(file, "flat", H5T_IEEE_F32LE, 2, shape, plist), "flat",
                 GPUF_DTYPE_FLOAT32);
  plist = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(plist, 2, chunk);
  H5Pset_shuffle(plist);
  H5Pset_deflate(plist, 1);
  check_existing(file, create_dataset(file, "deflate", H5T_STD_I32LE, 2, shape, plist), "deflate",
                 GPUF_DTYPE_INT32);
  plist = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_layout(plist, H5D_COMPACT);
  check_existing(file, create_dataset(file, "compact", H5T_STD_U8LE, 2, shape, plist), "compact",
                 GPUF_DTYPE_UINT8);
  plist = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(plist, 2, chunk);
  H5Pset_shuffle(plist);
  H5Pset_filter(plist, GPUF_H5_FILTER_ID, H5Z_FLAG_MANDATORY, 0, NULL);
  check_existing(file, create_dataset(file, "after shuffle", H5T_STD_U8LE, 2, shape, plist),
                 "after shuffle", GPUF_DTYPE_UINT8);
  close_file(file);
}

static void big_endian_elements_are_converted(void) {
  const hsize_t shape[] = {100, 60};
  const hsize_t chunk[] = {32, 32};
  const hid_t file = create_file();
  double stored[6000];
  gpuf_tensor expected = create_cpu(GPUF_DTYPE_FLOAT64, 2, (int64_t[]){100, 60}, 11);
  hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
  hid_t dataset;
  for (int i = 0; i < 6000; i++) {
    ((double *)expected.data)[i] = i * 0.37 - 8;
  }
  H5Pset_chunk(plist, 2, chunk);
  H5Pset_filter(plist, GPUF_H5_FILTER_ID, H5Z_FLAG_MANDATORY, 0, NULL);
  dataset = create_dataset(file, "be", H5T_IEEE_F64BE, 2, shape, plist);
  gpuf_tensor src = copy_to_device(&expected);
  CHECK_OK(gpuf_h5_write_dataset(dataset, &src, NULL, &err));
  CHECK(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, stored) >= 0);
  CHECK(!memcmp(stored, expected.data, sizeof(stored)));
  H5Dclose(dataset);
  check_stored(file, "be", &expected);
  destroy(&src);
  destroy(&expected);
  close_file(file);
}

static void an_existing_dataset_of_ours_is_overwritten(void) {
  const hid_t file = create_file();
  gpuf_tensor first = create_cpu(GPUF_DTYPE_FLOAT32, 2, (int64_t[]){300, 70}, 12);
  gpuf_tensor second = create_cpu(GPUF_DTYPE_FLOAT32, 2, (int64_t[]){300, 70}, 13);
  hid_t dataset;
  CHECK_OK(gpuf_h5_write(file, "x", &first, NULL, &err));
  dataset = H5Dopen2(file, "x", H5P_DEFAULT);
  CHECK_OK(gpuf_h5_write_dataset(dataset, &second, NULL, &err));
  H5Dclose(dataset);
  check_stored(file, "x", &second);
  destroy(&first);
  destroy(&second);
  close_file(file);
}

static void chunks_never_written_read_as_the_fill_value(void) {
  const hsize_t shape[] = {64, 64};
  const hsize_t chunk[] = {32, 32};
  const hsize_t offset[] = {32, 0};
  const float fill = -2.5f;
  const hid_t file = create_file();
  gpuf_tensor expected = create_cpu(GPUF_DTYPE_FLOAT32, 2, (int64_t[]){64, 64}, 14);
  hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
  hid_t dataset;
  float bytes[32 * 32];
  for (int i = 0; i < 64 * 64; i++) {
    ((float *)expected.data)[i] = fill;
  }
  for (int i = 0; i < 32 * 32; i++) {
    bytes[i] = (float)i;
    ((float *)expected.data)[(32 + i / 32) * 64 + i % 32] = (float)i;
  }
  CHECK_OK(gpuf_h5_filter_register(&err));
  H5Pset_chunk(plist, 2, chunk);
  H5Pset_fill_value(plist, H5T_NATIVE_FLOAT, &fill);
  H5Pset_filter(plist, GPUF_H5_FILTER_ID, H5Z_FLAG_OPTIONAL, 0, NULL);
  dataset = create_dataset(file, "x", H5T_IEEE_F32LE, 2, shape, plist);
  /* One chunk is there, stored past the filter. */
  CHECK(H5Dwrite_chunk(dataset, H5P_DEFAULT, 1, offset, sizeof(bytes), bytes) >= 0);
  H5Dclose(dataset);
  check_stored(file, "x", &expected);
  destroy(&expected);
  close_file(file);
}

static const gpuf_h5_codec all_codecs[] = {GPUF_H5_CODEC_GPUFETCH, GPUF_H5_CODEC_NONE,
                                           GPUF_H5_CODEC_BITSHUFFLE_LZ4};

/* Read the box of `whole` at `start` into device memory, and compare. */
static void check_region(hid_t dataset, const gpuf_tensor *whole, const int64_t *start,
                         const int64_t *extent) {
  gpuf_tensor view = *whole;
  gpuf_tensor expected = create_cpu(whole->dtype, whole->ndim, extent, 1);
  gpuf_tensor region = create_on_device(&expected);
  for (int32_t axis = 0; axis < whole->ndim; axis++) {
    CHECK_OK(gpuf_tensor_slice(&view, axis, start[axis], 1, extent[axis], &err));
  }
  CHECK_OK(gpuf_copy(&expected, &view, NULL, &err));
  CHECK_OK(gpuf_h5_read_region(dataset, start, &region, NULL, &err));
  check_equal(&region, &expected);
  destroy(&region);
  destroy(&expected);
}

/* Both with the file open for writing, when HDF5 reads the chunks, and for reading. */
static void regions_of_a_dataset_are_read(void) {
  static const int64_t boxes[][2][2] = {
      {{0, 0}, {70, 50}}, {{16, 20}, {16, 20}}, {{17, 3}, {1, 1}},   {{69, 49}, {1, 1}},
      {{15, 0}, {40, 7}}, {{3, 39}, {66, 11}},  {{64, 40}, {6, 10}}, {{5, 5}, {0, 9}},
  };
  gpuf_tensor src = create_cpu(GPUF_DTYPE_FLOAT32, 2, (int64_t[]){70, 50}, 31);
  for (size_t c = 0; c < 3; c++) {
    const gpuf_h5_options options = {.struct_nbytes = sizeof(options),
                                     .codec = all_codecs[c],
                                     .chunk_shape = (int64_t[]){16, 20}};
    hid_t file = create_file();
    CHECK_OK(gpuf_h5_write(file, "x", &src, &options, &err));
    for (int turn = 0; turn < 2; turn++) {
      const hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
      for (size_t i = 0; i < sizeof(boxes) / sizeof(boxes[0]); i++) {
        check_region(dataset, &src, boxes[i][0], boxes[i][1]);
      }
      H5Dclose(dataset);
      if (turn == 0) {
        H5Fclose(file);
        file = H5Fopen(file_path, H5F_ACC_RDONLY, H5P_DEFAULT);
      }
    }
    close_file(file);
  }
  destroy(&src);
}

static void regions_of_a_dataset_are_written(void) {
  /* Whole chunks, up to the edge, and a box that no chunk begins or ends with. */
  static const int64_t boxes[][2][2] = {
      {{16, 20}, {32, 20}}, {{64, 40}, {6, 10}}, {{0, 0}, {70, 20}}, {{5, 7}, {30, 29}}};
  for (size_t c = 0; c < 2; c++) {
    const gpuf_h5_options options = {.struct_nbytes = sizeof(options),
                                     .codec = all_codecs[c],
                                     .chunk_shape = (int64_t[]){16, 20}};
    gpuf_tensor whole = create_cpu(GPUF_DTYPE_INT16, 2, (int64_t[]){70, 50}, 32);
    const hid_t file = create_file();
    CHECK_OK(gpuf_h5_write(file, "x", &whole, &options, &err));
    const hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    for (size_t i = 0; i < sizeof(boxes) / sizeof(boxes[0]); i++) {
      gpuf_tensor region = create_cpu(GPUF_DTYPE_INT16, 2, boxes[i][1], 40 + i);
      gpuf_tensor on_device = copy_to_device(&region);
      gpuf_tensor view = whole;
      CHECK_OK(gpuf_h5_write_region(dataset, boxes[i][0], &on_device, NULL, &err));
      for (int32_t axis = 0; axis < 2; axis++) {
        CHECK_OK(gpuf_tensor_slice(&view, axis, boxes[i][0][axis], 1, boxes[i][1][axis], &err));
      }
      CHECK_OK(gpuf_copy(&view, &region, NULL, &err));
      check_stored(file, "x", &whole);
      destroy(&on_device);
      destroy(&region);
    }
    H5Dclose(dataset);
    destroy(&whole);
    close_file(file);
  }
}

static void a_region_outside_the_dataset_is_refused(void) {
  const hid_t file = create_file();
  gpuf_tensor src = create_cpu(GPUF_DTYPE_INT8, 2, (int64_t[]){10, 6}, 33);
  gpuf_tensor region = create_cpu(GPUF_DTYPE_INT8, 2, (int64_t[]){4, 6}, 34);
  CHECK_OK(gpuf_h5_write(file, "x", &src, NULL, &err));
  const hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
  CHECK_FAILS(gpuf_h5_read_region(dataset, (int64_t[]){7, 0}, &region, NULL, &err),
              GPUF_ERR_INVALID, "4 elements from 7 on do not lie in axis 0");
  CHECK_FAILS(gpuf_h5_write_region(dataset, (int64_t[]){0, -1}, &region, NULL, &err),
              GPUF_ERR_INVALID, "6 elements from -1 on");
  CHECK_FAILS(gpuf_h5_read_region(dataset, (int64_t[]){INT64_MAX, 0}, &region, NULL, &err),
              GPUF_ERR_INVALID, "do not lie in axis 0");
  CHECK_FAILS(gpuf_h5_read_region(dataset, NULL, &region, NULL, &err), GPUF_ERR_INVALID, "(10, 6)");
  check_stored(file, "x", &src);
  H5Dclose(dataset);
  destroy(&src);
  destroy(&region);
  close_file(file);
}

static void bitshuffle_is_written_and_read_without_its_plugin(void) {
  const gpuf_h5_options options = {.struct_nbytes = sizeof(options),
                                   .codec = GPUF_H5_CODEC_BITSHUFFLE_LZ4,
                                   .chunk_shape = (int64_t[]){33, 50}};
  unsigned cd_values[8] = {0}, flags = 0;
  size_t count = 8;
  const hid_t file = create_file();
  gpuf_tensor src = create_cpu(GPUF_DTYPE_FLOAT32, 2, (int64_t[]){70, 50}, 35);
  check_written(file, "x", &src, &options);
  const hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
  const hid_t plist = H5Dget_create_plist(dataset);
  CHECK(H5Pget_filter_by_id2(plist, 32008, &flags, &count, cd_values, 0, NULL, NULL) >= 0);
  CHECK(count == 5 && cd_values[2] == 4 && cd_values[3] == 0 && cd_values[4] == 2);
  if (H5Zfilter_avail(32008) <= 0) { /* HDF5 decodes chunks of which a part is written */
    gpuf_tensor part = create_cpu(GPUF_DTYPE_FLOAT32, 2, (int64_t[]){2, 3}, 36);
    CHECK_FAILS(gpuf_h5_write_region(dataset, (int64_t[]){1, 1}, &part, NULL, &err), GPUF_ERR_HDF5,
                "filter 32008, which");
    CHECK(strstr(err.message, "HDF5_PLUGIN_PATH") && strstr(err.message, "write whole chunks"));
    destroy(&part);
  }
  H5Pclose(plist);
  H5Dclose(dataset);
  destroy(&src);
  close_file(file);
}

static void the_callers_lock_is_taken_and_released(void) {
  const gpuf_h5_options options = {.struct_nbytes = sizeof(options),
                                   .chunk_shape = (int64_t[]){16, 300},
                                   .lock = lock,
                                   .unlock = unlock};
  gpuf_h5_options half = options;
  const hid_t file = create_file();
  gpuf_tensor src = create_cpu(GPUF_DTYPE_FLOAT32, 2, (int64_t[]){500, 300}, 27);
  CHECK_OK(gpuf_h5_write(file, "x", &src, &options, &err));
  CHECK(lock_depth == 0 && lock_count >= 2);
  CHECK_FAILS(gpuf_h5_write(file, "x", &src, &options, &err), GPUF_ERR_INVALID, "exists");
  CHECK(lock_depth == 0);
  CHECK_OK(gpuf_h5_read(file, "x", &src, &options, &err));
  CHECK(lock_depth == 0);
  half.unlock = NULL;
  CHECK_FAILS(gpuf_h5_read(file, "x", &src, &half, &err), GPUF_ERR_INVALID, "unlock");
  destroy(&src);
  close_file(file);
}

int main(void) {
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  TEST_ON_DEVICES(a_device_tensor_comes_back_bit_for_bit);
  TEST_ON_DEVICES(every_dtype_keeps_its_bits_and_its_name);
  TEST_ON_DEVICES(a_long_tensor_is_written_in_its_order);
  TEST_ON_DEVICES(forms_without_prediction_are_written_too);
  TEST_ON_DEVICES(strided_views_are_written_and_filled);
  TEST_ON_DEVICES(scalars_and_empty_tensors_keep_their_shape);
  TEST_ON_DEVICES(nine_axes_fit_the_codecs_eight);
  TEST_ON_DEVICES(other_layouts_types_and_filters_go_through_hdf5);
  TEST_ON_DEVICES(big_endian_elements_are_converted);
  TEST_ON_DEVICES(an_existing_dataset_of_ours_is_overwritten);
  TEST_ON_DEVICES(chunks_never_written_read_as_the_fill_value);
  TEST_ON_DEVICES(regions_of_a_dataset_are_read);
  TEST_ON_DEVICES(regions_of_a_dataset_are_written);
  TEST_ON_DEVICES(bitshuffle_is_written_and_read_without_its_plugin);
  test_device = host_device;
  TEST(a_region_outside_the_dataset_is_refused);
  TEST(the_callers_lock_is_taken_and_released);
  return test_finish();
}
