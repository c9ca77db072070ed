/* Datasets, files and machines that do not fit: one clear error, and nothing half written. */
#include "hdf5_files.h"

#include "backend/host/faults.h"
#include "backend/host/memory.h"
#include "base/clock.h"
#include "scarce_threads.h"
#include "structs.h"

static void a_chunk_shape_that_does_not_fit_is_refused(void) {
  const hid_t file = create_file();
  gpuf_tensor src = create_cpu(GPUF_DTYPE_FLOAT32, 2, (int64_t[]){30, 40}, 15);
  gpuf_h5_options options = {.struct_nbytes = sizeof(options), .chunk_shape = (int64_t[]){16, 41}};
  CHECK_FAILS(gpuf_h5_write(file, "x", &src, &options, &err), GPUF_ERR_INVALID, "41 of axis 1");
  options.chunk_shape = (int64_t[]){0, 40};
  CHECK_FAILS(gpuf_h5_write(file, "x", &src, &options, &err), GPUF_ERR_INVALID, "0 of axis 0");
  options.chunk_shape = (int64_t[]){-3, 40};
  CHECK_FAILS(gpuf_h5_write(file, "x", &src, &options, &err), GPUF_ERR_INVALID, "-3 of axis 0");
  CHECK(H5Lexists(file, "x", H5P_DEFAULT) == 0);
  /* A view that repeats one element is as large as it looks. */
  src.shape[0] = (int64_t)1 << 20;
  src.shape[1] = (int64_t)1 << 11;
  src.strides_nbytes[0] = src.strides_nbytes[1] = 0;
  options.chunk_shape = src.shape;
  CHECK_FAILS(gpuf_h5_write(file, "x", &src, &options, &err), GPUF_ERR_INVALID, "4 GiB");
  destroy(&src);
  close_file(file);
}

static hid_t written_file;
static int written_count;

static gpuf_status write_some(void *given) {
  char name[32];
  gpuf_tensor src = create_cpu(GPUF_DTYPE_INT8, 1, (int64_t[]){10}, 16);
  snprintf(name, sizeof(name), "x%d", written_count++);
  const gpuf_status status = gpuf_h5_write(written_file, name, &src, given, &err);
  destroy(&src);
  return status;
}

static void structs_of_other_versions_are_taken(void) {
  const versioned options = {sizeof(gpuf_h5_options), "GPUF_H5_OPTIONS_INIT", write_some};
  written_file = create_file();
  check_versions(&options);
  close_file(written_file);
}

static void what_is_closed_or_not_there_is_refused(void) {
  const hid_t file = create_file();
  gpuf_tensor src = create_cpu(GPUF_DTYPE_INT8, 1, (int64_t[]){10}, 16);
  hid_t dataset;
  CHECK_OK(gpuf_h5_write(file, "x", &src, NULL, &err));
  dataset = H5Dopen2(file, "x", H5P_DEFAULT);
  CHECK_FAILS(gpuf_h5_write(dataset, "y", &src, NULL, &err), GPUF_ERR_INVALID, "file or group");
  CHECK_FAILS(gpuf_h5_read_dataset(file, &src, NULL, &err), GPUF_ERR_INVALID, "dataset");
  H5Dclose(dataset);
  CHECK_FAILS(gpuf_h5_read_dataset(dataset, &src, NULL, &err), GPUF_ERR_INVALID, "closed");
  CHECK_FAILS(gpuf_h5_write_dataset(dataset, &src, NULL, &err), GPUF_ERR_INVALID, "closed");
  CHECK_FAILS(gpuf_h5_describe(dataset, &src, NULL, &err), GPUF_ERR_INVALID, "closed");
  CHECK_FAILS(gpuf_h5_read(file, "y", &src, NULL, &err), GPUF_ERR_HDF5, "'y'");
  CHECK_FAILS(gpuf_h5_write(file, "x", &src, NULL, &err), GPUF_ERR_INVALID, "exists already");
  CHECK_FAILS(gpuf_h5_write(file, "", &src, NULL, &err), GPUF_ERR_INVALID, "name is empty");
  check_stored(file, "x", &src);
  close_file(file);
  CHECK_FAILS(gpuf_h5_write(file, "z", &src, NULL, &err), GPUF_ERR_INVALID, "closed");
  destroy(&src);
}

static void a_name_inside_what_is_no_group_is_refused_by_name(void) {
  const hid_t file = create_file();
  gpuf_tensor src = create_cpu(GPUF_DTYPE_INT8, 1, (int64_t[]){10}, 16);
  CHECK_OK(gpuf_h5_write(file, "g/x", &src, NULL, &err));
  CHECK(H5Lcreate_soft("/nowhere", file, "lost", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  CHECK(H5Lcreate_soft("/g", file, "found", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  CHECK_FAILS(gpuf_h5_write(file, "g/x/y", &src, NULL, &err), GPUF_ERR_INVALID,
              "'g/x' in the name 'g/x/y' is a dataset, not a group");
  CHECK_FAILS(gpuf_h5_write(file, "/g/x/new/y", &src, NULL, &err), GPUF_ERR_INVALID,
              "'/g/x' in the name '/g/x/new/y' is a dataset");
  CHECK_FAILS(gpuf_h5_write(file, "lost/y", &src, NULL, &err), GPUF_ERR_INVALID,
              "'lost' in the name 'lost/y' is a link to nothing");
  check_stored(file, "g/x", &src);
  CHECK_OK(gpuf_h5_write(file, "found/y", &src, NULL, &err));
  check_stored(file, "g/y", &src);
  close_file(file);
  destroy(&src);
}

static void names_that_are_no_path_are_refused(void) {
  static const char *const bad[][2] = {
      {".", "'.'"},          {"..", "'..'"},
      {"a/../x", "'..'"},    {"./x", "'.'"},
      {"a/.", "'.'"},        {"x/", "empty"},
      {"a//x", "empty"},     {"//x", "empty"},
      {"/", "empty"},        {"a/x/", "empty"},
      {"\xff", "not UTF-8"}, {"a/caf\xe9", "not UTF-8"},
      {"\xc3", "not UTF-8"}, {"a\xe2\x82/x", "not UTF-8"},
  };
  static const char *const good[] = {"...", "/g/x", "g/.x", "Größe/ü", "g/x y", "a.b", "g/..x"};
  const hid_t file = create_file();
  H5G_info_t info;
  gpuf_tensor src = create_cpu(GPUF_DTYPE_INT8, 1, (int64_t[]){10}, 16);
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    CHECK_FAILS(gpuf_h5_write(file, bad[i][0], &src, NULL, &err), GPUF_ERR_INVALID, bad[i][1]);
    CHECK(strstr(err.message, "the dataset's name"));
  }
  CHECK(H5Gget_info(file, &info) >= 0 && info.nlinks == 0);
  for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
    CHECK_OK(gpuf_h5_write(file, good[i], &src, NULL, &err));
    check_stored(file, good[i], &src);
  }
  destroy(&src);
  close_file(file);
}

/* What was there stays, whatever the failed write's name leads through. */
static void a_failed_write_removes_the_groups_that_it_made(void) {
  static const char *const names[] = {"old/new/deep/x", "/old/new/x", "new/x", "/x", "old/x"};
  const hid_t file = create_file();
  gpufi_host_faults faults = GPUFI_HOST_FAULTS_NONE;
  const hid_t old = H5Gcreate2(file, "old", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const gpuf_h5_options options = {.struct_nbytes = sizeof(options),
                                   .chunk_shape = (int64_t[]){0, 1}};
  gpuf_tensor src = create_cpu(GPUF_DTYPE_INT32, 2, (int64_t[]){100, 60}, 24);
  gpuf_tensor on_device = copy_to_device(&src);
  H5G_info_t info;
  faults.copy_fail_after_nbytes = 0;
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    CHECK_FAILS(gpuf_h5_write(file, names[i], &src, &options, &err), GPUF_ERR_INVALID, "0 of axis");
    gpufi_host_faults_set(&faults);
    const gpuf_status status = gpuf_h5_write(file, names[i], &on_device, NULL, &err);
    gpufi_host_faults_set(&GPUFI_HOST_FAULTS_NONE);
    CHECK(status == GPUF_ERR_DEVICE);
    CHECK(H5Gget_info(file, &info) >= 0 && info.nlinks == 1);
    CHECK(H5Gget_info(old, &info) >= 0 && info.nlinks == 0);
  }
  CHECK_OK(gpuf_h5_write(file, "old/new/deep/x", &src, NULL, &err));
  CHECK_FAILS(gpuf_h5_write(file, "old/new/deep/x", &src, NULL, &err), GPUF_ERR_INVALID, "exists");
  CHECK_FAILS(gpuf_h5_write(file, "old/new/deep/x/y", &src, NULL, &err), GPUF_ERR_INVALID,
              "is a dataset");
  check_stored(file, "old/new/deep/x", &src);
  H5Gclose(old);
  destroy(&src);
  destroy(&on_device);
  close_file(file);
}

static void a_tensor_that_does_not_match_is_refused(void) {
  const hid_t file = create_file();
  gpuf_tensor src = create_cpu(GPUF_DTYPE_INT32, 2, (int64_t[]){10, 6}, 17);
  gpuf_tensor other = create_cpu(GPUF_DTYPE_INT32, 2, (int64_t[]){6, 10}, 17);
  CHECK_OK(gpuf_h5_write(file, "x", &src, NULL, &err));
  CHECK_FAILS(gpuf_h5_read(file, "x", &other, NULL, &err), GPUF_ERR_INVALID, "(10, 6)");
  src.dtype = GPUF_DTYPE_UINT32;
  CHECK_FAILS(gpuf_h5_read(file, "x", &src, NULL, &err), GPUF_ERR_INVALID, "int32");
  destroy(&src);
  destroy(&other);
  close_file(file);
}

static void a_read_only_file_is_refused(void) {
  hid_t file = create_file();
  gpuf_tensor src = create_cpu(GPUF_DTYPE_INT8, 1, (int64_t[]){10}, 18);
  CHECK_OK(gpuf_h5_write(file, "x", &src, NULL, &err));
  H5Fclose(file);
  file = H5Fopen(file_path, H5F_ACC_RDONLY, H5P_DEFAULT);
  CHECK_FAILS(gpuf_h5_write(file, "y", &src, NULL, &err), GPUF_ERR_INVALID, "read-only");
  const hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
  CHECK_FAILS(gpuf_h5_write_dataset(dataset, &src, NULL, &err), GPUF_ERR_INVALID, "read-only");
  H5Dclose(dataset);
  check_stored(file, "x", &src);
  destroy(&src);
  close_file(file);
}

static void types_and_shapes_of_no_tensor_are_refused(void) {
  const hsize_t shape[] = {4};
  const hid_t file = create_file();
  gpuf_tensor tensor = {0};
  const hid_t text = H5Tcopy(H5T_C_S1);
  hid_t dataset;
  H5Tset_size(text, 9);
  dataset = create_dataset(file, "text", text, 1, shape, H5Pcreate(H5P_DATASET_CREATE));
  CHECK_FAILS(gpuf_h5_describe(dataset, &tensor, NULL, &err), GPUF_ERR_UNSUPPORTED, "string");
  H5Dclose(dataset);
  dataset =
      create_dataset(file, "long", H5T_NATIVE_LDOUBLE, 1, shape, H5Pcreate(H5P_DATASET_CREATE));
  CHECK_FAILS(gpuf_h5_describe(dataset, &tensor, NULL, &err), GPUF_ERR_UNSUPPORTED, "16 bytes");
  H5Dclose(dataset);
  H5Tclose(text);
  const hsize_t huge[] = {(hsize_t)1 << 40, (hsize_t)1 << 40};
  const hsize_t chunk[] = {16, 16};
  const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(plist, 2, chunk);
  dataset = create_dataset(file, "huge", H5T_IEEE_F32LE, 2, huge, plist);
  CHECK_FAILS(gpuf_h5_describe(dataset, &tensor, NULL, &err), GPUF_ERR_UNSUPPORTED,
              "1099511627776");
  H5Dclose(dataset);
  close_file(file);
}

static void truncate_chunk(hid_t file, size_t keep, size_t flip_at) {
  const hsize_t offset[] = {0, 0};
  const hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
  hsize_t nbytes = 0;
  uint32_t mask = 0;
  unsigned char *bytes;
  CHECK(H5Dget_chunk_storage_size(dataset, offset, &nbytes) >= 0);
  bytes = malloc(nbytes);
  CHECK(H5Dread_chunk(dataset, H5P_DEFAULT, offset, &mask, bytes) >= 0);
  bytes[flip_at % nbytes] ^= 0x10;
  CHECK(H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, offset, keep < nbytes ? keep : nbytes, bytes) >= 0);
  free(bytes);
  H5Dclose(dataset);
}

static void a_truncated_or_altered_chunk_is_refused(void) {
  const int64_t chunk[] = {32, 32};
  const size_t keeps[] = {1, 15, 40, 200, 100000, 100000};
  const size_t flips[] = {0, 0, 0, 0, 3, 500};
  for (int i = 0; i < 6; i++) {
    const gpuf_h5_options options = {.struct_nbytes = sizeof(options), .chunk_shape = chunk};
    const hid_t file = create_file();
    gpuf_tensor src = create_cpu(GPUF_DTYPE_FLOAT32, 2, (int64_t[]){64, 64}, 19);
    gpuf_tensor dst = create_on_device(&src);
    CHECK_OK(gpuf_h5_write(file, "x", &src, &options, &err));
    truncate_chunk(file, keeps[i], flips[i]);
    CHECK_FAILS(gpuf_h5_read(file, "x", &dst, NULL, &err), GPUF_ERR_CORRUPT, "(0, 0)");
    CHECK(strstr(err.message, "'/x'"));
    destroy(&src);
    destroy(&dst);
    close_file(file);
  }
}

static void a_chunk_of_another_dataset_is_refused(void) {
  const hsize_t offset[] = {0, 0};
  const int64_t shape[] = {64, 64};
  const hid_t file = create_file();
  gpuf_tensor small = create_cpu(GPUF_DTYPE_FLOAT32, 2, shape, 20);
  gpuf_tensor other = create_cpu(GPUF_DTYPE_INT32, 2, shape, 21);
  gpuf_h5_options options = {.struct_nbytes = sizeof(options), .chunk_shape = (int64_t[]){32, 64}};
  unsigned char bytes[32 * 64 * 4 * 2];
  hsize_t nbytes = 0;
  uint32_t mask;
  CHECK_OK(gpuf_h5_write(file, "x", &small, &options, &err));
  CHECK_OK(gpuf_h5_write(file, "int", &other, &options, &err));
  options.chunk_shape = (int64_t[]){64, 32};
  CHECK_OK(gpuf_h5_write(file, "tall", &small, &options, &err));
  for (int i = 0; i < 2; i++) {
    const hid_t from = H5Dopen2(file, i ? "int" : "tall", H5P_DEFAULT);
    const hid_t to = H5Dopen2(file, "x", H5P_DEFAULT);
    CHECK(H5Dget_chunk_storage_size(from, offset, &nbytes) >= 0 && nbytes <= sizeof(bytes));
    CHECK(H5Dread_chunk(from, H5P_DEFAULT, offset, &mask, bytes) >= 0);
    CHECK(H5Dwrite_chunk(to, H5P_DEFAULT, 0, offset, nbytes, bytes) >= 0);
    H5Dclose(from);
    CHECK_FAILS(gpuf_h5_read_dataset(to, &small, NULL, &err), GPUF_ERR_CORRUPT, "another shape");
    H5Dclose(to);
  }
  destroy(&small);
  destroy(&other);
  close_file(file);
}

static void null_arguments_are_refused(void) {
  const hid_t file = create_file();
  gpuf_tensor src = create_cpu(GPUF_DTYPE_INT8, 1, (int64_t[]){10}, 30);
  CHECK_OK(gpuf_h5_write(file, "x", &src, NULL, NULL));
  const hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
  CHECK_FAILS(gpuf_h5_write(file, "y", NULL, NULL, &err), GPUF_ERR_INVALID, "src is NULL");
  CHECK_FAILS(gpuf_h5_write(file, NULL, &src, NULL, &err), GPUF_ERR_INVALID, "name is NULL");
  CHECK_FAILS(gpuf_h5_write_dataset(dataset, NULL, NULL, &err), GPUF_ERR_INVALID, "src is NULL");
  CHECK_FAILS(gpuf_h5_write_region(dataset, NULL, NULL, NULL, &err), GPUF_ERR_INVALID,
              "src is NULL");
  CHECK_FAILS(gpuf_h5_read(file, "x", NULL, NULL, &err), GPUF_ERR_INVALID, "dst is NULL");
  CHECK_FAILS(gpuf_h5_read(file, NULL, &src, NULL, &err), GPUF_ERR_INVALID, "name is NULL");
  CHECK_FAILS(gpuf_h5_read_dataset(dataset, NULL, NULL, &err), GPUF_ERR_INVALID, "dst is NULL");
  CHECK_FAILS(gpuf_h5_read_region(dataset, NULL, NULL, NULL, &err), GPUF_ERR_INVALID,
              "dst is NULL");
  CHECK_FAILS(gpuf_h5_describe(dataset, NULL, NULL, &err), GPUF_ERR_INVALID, "tensor is NULL");
  CHECK(gpuf_h5_describe(dataset, NULL, NULL, NULL) == GPUF_ERR_INVALID);
  H5Dclose(dataset);
  check_stored(file, "x", &src);
  destroy(&src);
  close_file(file);
}

/* Write and read by HDF5's lock alone and past it, with each codec, from the device and from the
 * CPU. */
static void check_every_way(const gpuf_tensor *expected, const gpuf_tensor *on_device,
                            const gpuf_tensor *dst) {
  const int64_t chunk[] = {20, 150};
  for (int i = 0; i < 6; i++) {
    const gpuf_h5_options options = {.struct_nbytes = sizeof(options),
                                     .codec = (gpuf_h5_codec)(i / 2),
                                     .chunk_shape = chunk,
                                     .thread_count = 5};
    hid_t file = create_file();
    CHECK_OK(gpuf_h5_write(file, "x", i % 2 ? on_device : expected, &options, &err));
    for (int turn = 0; turn < 2; turn++) {
      CHECK_OK(gpuf_h5_read(file, "x", dst, &options, &err));
      check_equal(dst, expected);
      H5Fclose(file);
      file = H5Fopen(file_path, H5F_ACC_RDONLY, H5P_DEFAULT);
    }
    close_file(file);
  }
}

static void without_threads_the_caller_does_the_work(void) {
  gpuf_tensor expected = create_cpu(GPUF_DTYPE_FLOAT32, 2, (int64_t[]){600, 300}, 31);
  gpuf_tensor on_device = copy_to_device(&expected);
  gpuf_tensor dst = create_on_device(&expected);
  check_every_way(&expected, &on_device, &dst); /* the device's streams have their threads then */
  gpufi_sleep_ns(1200000000);                   /* and parked workers have ended */
  for (int left = 0; left < 3; left++) {
    threads_left = left;
    check_every_way(&expected, &on_device, &dst);
    threads_left = INT_MAX;
  }
  destroy(&expected);
  destroy(&on_device);
  destroy(&dst);
}

static void a_failed_device_copy_leaves_no_dataset(void) {
  gpufi_host_faults faults = GPUFI_HOST_FAULTS_NONE;
  const hid_t file = create_file();
  /* Noise: as many bytes cross the link encoded. */
  gpuf_tensor expected = create_cpu(GPUF_DTYPE_INT32, 2, (int64_t[]){512, 1024}, 24);
  gpuf_tensor src;
  test_device = host_device;
  src = copy_to_device(&expected);
  for (int64_t nbytes = 0; nbytes < 2 << 20; nbytes += 300000) {
    gpuf_status status;
    faults.copy_fail_after_nbytes = nbytes;
    gpufi_host_faults_set(&faults);
    status = gpuf_h5_write(file, "x", &src, NULL, &err);
    gpufi_host_faults_set(&GPUFI_HOST_FAULTS_NONE);
    CHECK(status == GPUF_ERR_DEVICE);
    CHECK(H5Lexists(file, "x", H5P_DEFAULT) == 0);
  }
  CHECK_OK(gpuf_h5_write(file, "x", &src, NULL, &err));
  check_stored(file, "x", &expected);
  destroy(&src);
  destroy(&expected);
  close_file(file);
}

static int64_t write_with_scarce_memory(hid_t file, const gpuf_tensor *view) {
  gpufi_host_faults faults = GPUFI_HOST_FAULTS_NONE;
  gpuf_status status = GPUF_ERR_NO_DEVICE_MEMORY;
  while (status != GPUF_OK) {
    CHECK(++faults.alloc_fail_after < 100);
    gpufi_host_faults_set(&faults);
    memset(&err, 0, sizeof(err));
    status = gpuf_h5_write(file, "x", view, NULL, &err);
    gpufi_host_faults_set(&GPUFI_HOST_FAULTS_NONE);
    CHECK(status == GPUF_OK || status == GPUF_ERR_NO_DEVICE_MEMORY);
    CHECK(err.status == status && !err.message[0] == (status == GPUF_OK));
    CHECK(H5Lexists(file, "x", H5P_DEFAULT) == (status == GPUF_OK));
    CHECK(H5Fget_obj_count(file, H5F_OBJ_ALL) == 1);
  }
  CHECK(H5Ldelete(file, "x", H5P_DEFAULT) >= 0);
  return faults.alloc_fail_after;
}

static void device_memory_running_out_at_any_point_loses_nothing(void) {
  const hid_t file = create_file();
  gpuf_pool_stats before = GPUF_POOL_STATS_INIT;
  gpuf_pool_stats after = GPUF_POOL_STATS_INIT;
  size_t allocated;
  gpuf_tensor whole = create_cpu(GPUF_DTYPE_FLOAT32, 2, (int64_t[]){400, 700}, 25);
  gpuf_tensor src;
  gpuf_tensor view;
  /* A device that no other test has used holds no scratch yet, so that it must be allocated. */
  test_device = (gpuf_device){GPUF_DEVICE_HOST, 1};
  src = view = copy_to_device(&whole);
  CHECK_OK(gpuf_tensor_slice(&view, 1, 699, -2, 350, &err)); /* packed through device scratch */
  gpuf_pool_get_stats(&before, NULL);
  CHECK(write_with_scarce_memory(file, &view) > 0);
  allocated = gpufi_host_allocated_nbytes(1);
  write_with_scarce_memory(file, &view);
  gpuf_pool_get_stats(&after, NULL);
  CHECK(after.used_nbytes == before.used_nbytes);
  CHECK(gpufi_host_allocated_nbytes(1) == allocated);
  destroy(&src);
  destroy(&whole);
  close_file(file);
}

/* The threads do the work, and the caller sees nothing of what the device lacked. */
static void a_device_without_memory_leaves_no_error_behind(void) {
  gpufi_host_faults faults = GPUFI_HOST_FAULTS_NONE;
  const gpuf_h5_options options = {.struct_nbytes = sizeof(options),
                                   .chunk_shape = (int64_t[]){40, 700}};
  const hid_t file = create_file();
  gpuf_tensor expected = create_cpu(GPUF_DTYPE_FLOAT32, 2, (int64_t[]){400, 700}, 27);
  gpuf_tensor src = copy_to_device(&expected);
  memset(&err, 0, sizeof(err));
  faults.alloc_fail_after = 0;
  gpuf_device_trim();
  gpufi_host_faults_set(&faults);
  const gpuf_status written = gpuf_h5_write(file, "x", &src, &options, &err);
  const gpuf_status read = gpuf_h5_read(file, "x", &src, NULL, &err);
  gpufi_host_faults_set(&GPUFI_HOST_FAULTS_NONE);
  CHECK(written == GPUF_OK && read == GPUF_OK);
  CHECK(err.status == GPUF_OK && !err.message[0]);
  check_equal(&src, &expected);
  destroy(&src);
  destroy(&expected);
  close_file(file);
}

static void a_full_pool_still_writes_and_reads(void) {
  gpuf_pool_stats stats = GPUF_POOL_STATS_INIT;
  const hid_t file = create_file();
  gpuf_tensor expected = create_cpu(GPUF_DTYPE_FLOAT32, 2, (int64_t[]){700, 900}, 26);
  gpuf_tensor src = copy_to_device(&expected);
  gpuf_pool_get_stats(&stats, NULL);
  gpuf_pool_set_cap(1 << 16);
  const gpuf_status status = gpuf_h5_write(file, "x", &src, NULL, &err);
  gpuf_pool_set_cap(stats.cap_nbytes);
  CHECK(status == GPUF_OK);
  check_stored(file, "x", &expected);
  destroy(&src);
  destroy(&expected);
  close_file(file);
}

static herr_t count_print(hid_t stack, void *arg) {
  ++*(int *)arg;
  return 0;
}

static void the_programs_error_printing_is_left_alone(void) {
  int printed = 0;
  H5E_auto2_t print;
  void *arg;
  const hid_t file = create_file();
  gpuf_tensor src = create_cpu(GPUF_DTYPE_INT8, 1, (int64_t[]){10}, 28);
  H5Eset_auto2(H5E_DEFAULT, count_print, &printed);
  CHECK_FAILS(gpuf_h5_read(file, "nothing", &src, NULL, &err), GPUF_ERR_HDF5, "nothing");
  CHECK(printed == 0);
  H5Eget_auto2(H5E_DEFAULT, &print, &arg);
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  CHECK(print == count_print && arg == &printed);
  destroy(&src);
  close_file(file);
}

static void a_library_that_is_not_loaded_cannot_be_bound(void) {
  CHECK_FAILS(gpuf_h5_bind("/nowhere/libhdf5.so", &err), GPUF_ERR_STATE, "not loaded");
  CHECK_FAILS(gpuf_h5_bind("", &err), GPUF_ERR_INVALID, "object_path is empty");
  CHECK_FAILS(gpuf_h5_bind("libm.so.6", &err), GPUF_ERR_STATE, "no shared libhdf5");
  CHECK_OK(gpuf_h5_bind(NULL, &err));
}

int main(void) {
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  TEST(a_library_that_is_not_loaded_cannot_be_bound);
  TEST_ON_DEVICES(a_truncated_or_altered_chunk_is_refused);
  TEST_ON_DEVICES(a_full_pool_still_writes_and_reads);
  test_device = host_device;
  TEST(a_chunk_shape_that_does_not_fit_is_refused);
  TEST(structs_of_other_versions_are_taken);
  TEST(what_is_closed_or_not_there_is_refused);
  TEST(a_name_inside_what_is_no_group_is_refused_by_name);
  TEST(names_that_are_no_path_are_refused);
  TEST(a_failed_write_removes_the_groups_that_it_made);
  TEST(a_tensor_that_does_not_match_is_refused);
  TEST(a_read_only_file_is_refused);
  TEST(types_and_shapes_of_no_tensor_are_refused);
  TEST(a_chunk_of_another_dataset_is_refused);
  TEST(null_arguments_are_refused);
  TEST(without_threads_the_caller_does_the_work);
  TEST(a_failed_device_copy_leaves_no_dataset);
  TEST(device_memory_running_out_at_any_point_loses_nothing);
  TEST(a_device_without_memory_leaves_no_error_behind);
  TEST(the_programs_error_printing_is_left_alone);
  return test_finish();
}
