/* Datasets that a device decodes: every dtype, box and layout, and the chunks that it does not. */
#include "hdf5_files.h"

#include "backend/host/faults.h"
#include "base/clock.h"

static uint64_t random_state = 11;

static int64_t between(int64_t least, int64_t most) {
  return least + (int64_t)random_below(&random_state, (uint64_t)(most - least + 1));
}

/* --- The same as on the CPU -------------------------------------------------------- */

/* A view of `shape` in fresh memory of `whole`, with steps, gaps and reversed axes, its axes in any
 * order in memory. */
static gpuf_tensor scattered_view(const gpuf_tensor *whole, const int64_t *step, const int32_t *at,
                                  const int64_t *shape) {
  gpuf_tensor view = *whole;
  for (int32_t axis = 0; axis < whole->ndim; axis++) {
    view.shape[axis] = whole->shape[at[axis]];
    view.strides_nbytes[axis] = whole->strides_nbytes[at[axis]];
  }
  for (int32_t axis = 0; axis < whole->ndim; axis++) {
    const int64_t last = (shape[axis] - 1) * (step[axis] < 0 ? -step[axis] : step[axis]);
    CHECK_OK(gpuf_tensor_slice(&view, axis, step[axis] < 0 ? last + 1 : 1, step[axis], shape[axis],
                               &err));
  }
  return view;
}

/* Read the box at `start` into views of the same layout on the device and on the CPU: all that lies
 * around and between their elements stays, too. */
static void check_scattered(hid_t dataset, gpuf_dtype dtype, int32_t ndim, const int64_t *start,
                            const int64_t *extent) {
  int64_t step[GPUF_NDIM_MAX], extents[GPUF_NDIM_MAX];
  int32_t at[GPUF_NDIM_MAX];
  const bool plain = between(0, 2) == 0;
  for (int32_t axis = 0; axis < ndim; axis++) {
    step[axis] = plain ? 1 : between(1, 2) * (between(0, 3) ? 1 : -1);
    at[axis] = axis;
  }
  for (int32_t axis = 0; axis < ndim && !plain; axis++) {
    const int32_t other = (int32_t)between(axis, ndim - 1), kept = at[axis];
    at[axis] = at[other];
    at[other] = kept;
  }
  for (int32_t axis = 0; axis < ndim; axis++) {
    extents[at[axis]] = extent[axis] * (step[axis] < 0 ? -step[axis] : step[axis]) + 2;
  }
  gpuf_tensor expected = create_cpu(dtype, ndim, extents, 3);
  gpuf_tensor on_device = copy_to_device(&expected);
  const gpuf_tensor view = scattered_view(&expected, step, at, extent);
  const gpuf_tensor d_view = scattered_view(&on_device, step, at, extent);
  CHECK_OK(gpuf_h5_read_region(dataset, start, &view, NULL, &err));
  CHECK_OK(gpuf_h5_read_region(dataset, start, &d_view, NULL, &err));
  check_equal(&on_device, &expected);
  destroy(&on_device);
  destroy(&expected);
}

static void check_boxes(hid_t file, gpuf_dtype dtype, int32_t ndim, const int64_t *shape) {
  const hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
  for (int box = 0; box < 4; box++) {
    int64_t start[GPUF_NDIM_MAX], extent[GPUF_NDIM_MAX];
    for (int32_t axis = 0; axis < ndim; axis++) {
      start[axis] = box ? between(0, shape[axis] - 1) : 0;
      extent[axis] = box ? between(1, shape[axis] - start[axis]) : shape[axis];
    }
    check_scattered(dataset, dtype, ndim, start, extent);
  }
  H5Dclose(dataset);
}

static void any_box_goes_to_any_layout(void) {
  static const int64_t longest[] = {0, 3000, 60, 17, 9, 6, 4, 4, 3, 3};
  for (int round = 0; round < 4 * GPUF_DTYPE_MAX; round += test_every()) {
    const gpuf_dtype dtype = (gpuf_dtype)(1 + round % GPUF_DTYPE_MAX);
    const int32_t ndim = (int32_t)between(1, 9);
    int64_t shape[GPUF_NDIM_MAX], chunk[GPUF_NDIM_MAX];
    for (int32_t axis = 0; axis < ndim; axis++) {
      shape[axis] = between(1, longest[ndim]);
      chunk[axis] = between((shape[axis] + 3) / 4, shape[axis]);
    }
    const gpuf_h5_options options = {.struct_nbytes = sizeof(options), .chunk_shape = chunk};
    const hid_t file = create_file();
    gpuf_tensor src = create_cpu(dtype, ndim, shape, (uint64_t)round);
    CHECK_OK(gpuf_h5_write(file, "x", &src, &options, &err));
    check_boxes(file, dtype, ndim, shape);
    destroy(&src);
    close_file(file);
  }
}

/* --- What crosses the link ------------------------------------------------------------ */

/* Read, with copies that fail once they have carried so many bytes. */
static gpuf_status read_within(hid_t file, const gpuf_tensor *dst, int64_t link_nbytes) {
  gpufi_host_faults faults = GPUFI_HOST_FAULTS_NONE;
  faults.copy_fail_after_nbytes = link_nbytes;
  gpufi_host_faults_set(&faults);
  const gpuf_status status = gpuf_h5_read(file, "x", dst, NULL, &err);
  gpufi_host_faults_set(&GPUFI_HOST_FAULTS_NONE);
  return status;
}

/* How chunks of `many_chunks` are. */
typedef enum kind {
  RAMP,   /* a device decodes it */
  SHADES, /* a dictionary, which it leaves to the CPU */
  PAST,   /* stored past the filter */
  NEVER,  /* never written */
} kind;

#define CHUNK_VALUES (128 << 10) /* 512 KiB, 32 to a batch */

static void fill_kind(int32_t *values, kind what, int64_t index) {
  for (int64_t i = 0; i < CHUNK_VALUES; i++) {
    const uint32_t mixed = (uint32_t)(i + index) * 2654435761u >> 24;
    values[i] = what == NEVER    ? -5
                : what == SHADES ? (int32_t)(mixed % 7) * 1000003
                                 : (int32_t)(i * 3 + index + mixed % 3);
  }
}

/* Write chunk `index` of "x". */
static void write_chunk(hid_t file, const gpuf_tensor *src, int64_t index) {
  const int64_t start[] = {index * CHUNK_VALUES};
  const hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
  gpuf_tensor chunk = *src;
  CHECK_OK(gpuf_tensor_slice(&chunk, 0, start[0], 1, CHUNK_VALUES, &err));
  CHECK_OK(gpuf_h5_write_region(dataset, start, &chunk, NULL, &err));
  H5Dclose(dataset);
}

/* Write chunks of the kinds that `kind_of` tells, and what they hold to *expected. */
static void write_kinds(hid_t file, int64_t count, kind (*kind_of)(int64_t),
                        gpuf_tensor *expected) {
  const int32_t fill = -5;
  const hsize_t shape[] = {(hsize_t)count * CHUNK_VALUES}, chunk[] = {CHUNK_VALUES};
  const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
  CHECK_OK(gpuf_h5_filter_register(&err));
  H5Pset_chunk(plist, 1, chunk);
  H5Pset_fill_value(plist, H5T_NATIVE_INT, &fill);
  H5Pset_filter(plist, GPUF_H5_FILTER_ID, H5Z_FLAG_MANDATORY, 0, NULL);
  const hid_t dataset = create_dataset(file, "x", H5T_STD_I32LE, 1, shape, plist);
  *expected = create_cpu(GPUF_DTYPE_INT32, 1, (int64_t[]){count * CHUNK_VALUES}, 5);
  for (int64_t i = 0; i < count; i++) {
    int32_t *const values = (int32_t *)expected->data + i * CHUNK_VALUES;
    const kind what = kind_of(i);
    const hsize_t offset[] = {(hsize_t)(i * CHUNK_VALUES)};
    fill_kind(values, what, i);
    if (what == PAST) {
      CHECK(H5Dwrite_chunk(dataset, H5P_DEFAULT, 1, offset, CHUNK_VALUES * 4, values) >= 0);
    } else if (what != NEVER) {
      write_chunk(file, expected, i);
    }
  }
  H5Dclose(dataset);
}

static kind all_ramps(int64_t index) {
  return RAMP;
}
/* At most 4 in a batch of 32 are for the CPU. */
static kind few_for_the_cpu(int64_t index) {
  return index % 29 == 3 ? SHADES : index % 31 == 7 ? PAST : index % 30 == 9 ? NEVER : RAMP;
}
/* From the second batch on, every other one. */
static kind later_every_other(int64_t index) {
  return index < 40 || index % 2 ? RAMP : (kind)(1 + index / 2 % 3);
}
static kind none_for_the_device(int64_t index) {
  return (kind)(1 + index % 3);
}

/* A fourth batch uses memory of the first again. */
static void check_kinds(kind (*kind_of)(int64_t), int64_t count, int64_t link_nbytes) {
  const hid_t file = create_file();
  gpuf_tensor expected;
  write_kinds(file, count, kind_of, &expected);
  gpuf_tensor dst = create_on_device(&expected);
  CHECK_OK(test_device.kind == GPUF_DEVICE_HOST ? read_within(file, &dst, link_nbytes)
                                                : gpuf_h5_read(file, "x", &dst, NULL, &err));
  check_equal(&dst, &expected);
  destroy(&dst);
  destroy(&expected);
  close_file(file);
}

static void chunks_cross_the_link_encoded(void) {
  check_kinds(all_ramps, 128, 8 << 20);
}

static void a_few_chunks_for_the_cpu_leave_the_others_to_the_device(void) {
  check_kinds(few_for_the_cpu, 128, 16 << 20);
}

static void many_chunks_for_the_cpu_are_read_by_its_workers(void) {
  check_kinds(later_every_other, 110, -1);
  check_kinds(none_for_the_device, 33, -1);
}

/* H5Dwrite knows a bool as its integers, so the chunk says that it holds those. */
static void chunks_of_plain_bytes_are_read_as_what_the_dataset_says(void) {
  const hsize_t shape[] = {50, 40}, chunk[] = {16, 16};
  const int8_t no = 0, yes = 1;
  const hid_t file = create_file(), type = H5Tenum_create(H5T_NATIVE_INT8);
  gpuf_tensor expected = create_cpu(GPUF_DTYPE_BOOL, 2, (int64_t[]){50, 40}, 6);
  H5Tenum_insert(type, "FALSE", &no);
  H5Tenum_insert(type, "TRUE", &yes);
  CHECK_OK(gpuf_h5_filter_register(&err));
  const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(plist, 2, chunk);
  H5Pset_filter(plist, GPUF_H5_FILTER_ID, H5Z_FLAG_MANDATORY, 0, NULL);
  const hid_t dataset = create_dataset(file, "x", type, 2, shape, plist);
  CHECK(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, expected.data) >= 0);
  H5Dclose(dataset);
  H5Tclose(type);
  check_stored(file, "x", &expected);
  destroy(&expected);
  close_file(file);
}

/* --- Bad files, and little memory ------------------------------------------------------- */

/* Exchange chunk `index` of "x" for its first `keep` bytes with bit 4 of one of them flipped,
 * stored past the filter or not. */
static void damage(hid_t file, int64_t index, size_t keep, size_t flip_at, uint32_t mask) {
  const hsize_t offset[] = {(hsize_t)(index * CHUNK_VALUES)};
  const hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
  hsize_t nbytes = 0;
  uint32_t stored_mask = 0;
  CHECK(H5Dget_chunk_storage_size(dataset, offset, &nbytes) >= 0);
  unsigned char *bytes = malloc(nbytes);
  CHECK(H5Dread_chunk(dataset, H5P_DEFAULT, offset, &stored_mask, bytes) >= 0);
  bytes[flip_at % nbytes] ^= 0x10;
  CHECK(H5Dwrite_chunk(dataset, H5P_DEFAULT, mask, offset, keep < nbytes ? keep : nbytes, bytes) >=
        0);
  free(bytes);
  H5Dclose(dataset);
}

static kind two_are_shades(int64_t index) {
  return index % 20 == 1 ? SHADES : RAMP;
}

static void the_error_is_the_cpus(void) {
  /* Chunk 1 and 21 have dictionaries. */
  static const struct {
    int64_t index;
    size_t keep, flip_at;
    uint32_t mask;
  } cases[] = {
      {30, SIZE_MAX, 2000, 0}, {30, SIZE_MAX, 0, 0}, {30, SIZE_MAX, 5, 0}, {30, SIZE_MAX, 6, 0},
      {30, SIZE_MAX, 33, 0},   {30, 1, 0, 0},        {30, 96, 90, 0},      {30, 1008, 500, 0},
      {30, SIZE_MAX, 100, 1},  {1, SIZE_MAX, 6, 0},  {1, SIZE_MAX, 80, 0}, {21, 4000, 3000, 0},
  };
  const hid_t file = create_file();
  gpuf_tensor src;
  write_kinds(file, 34, two_are_shades, &src);
  gpuf_tensor on_cpu = create_cpu(src.dtype, src.ndim, src.shape, 8);
  gpuf_tensor on_device = create_on_device(&src);
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    gpuf_error expected;
    damage(file, cases[i].index, cases[i].keep, cases[i].flip_at, cases[i].mask);
    const gpuf_status status = gpuf_h5_read(file, "x", &on_cpu, NULL, &expected);
    CHECK(status != GPUF_OK);
    CHECK_FAILS(gpuf_h5_read(file, "x", &on_device, NULL, &err), status, expected.message);
    CHECK(strlen(err.message) == strlen(expected.message));
    write_chunk(file, &src, cases[i].index);
  }
  check_stored(file, "x", &src);
  destroy(&src);
  destroy(&on_cpu);
  destroy(&on_device);
  close_file(file);
}

static void a_destination_that_repeats_an_element_is_refused(void) {
  const hid_t file = create_file();
  gpuf_tensor src;
  write_kinds(file, 6, all_ramps, &src);
  gpuf_tensor dst = create_on_device(&src);
  dst.strides_nbytes[0] = 0;
  CHECK_FAILS(gpuf_h5_read(file, "x", &dst, NULL, &err), GPUF_ERR_INVALID, "repeats one element");
  destroy(&src);
  destroy(&dst);
  close_file(file);
}

/* --- In place ----------------------------------------------------------------------- */

#define PLACE_COLUMNS 256
#define PLACE_CHUNK_ROWS 16

/* Rows of a tensor on the device that has others before and behind them. */
static gpuf_tensor rows_of(const gpuf_tensor *whole, int64_t first, int64_t count) {
  gpuf_tensor rows = *whole;
  CHECK_OK(gpuf_tensor_slice(&rows, 0, first, 1, count, &err));
  return rows;
}

/* Chunks that lie in the tensor as the device takes them are encoded and decoded there, those of a
 * batch with a part of a chunk, or at an odd address, are not: the bytes are the same, and the rows
 * around them stay. */
static void rows_come_and_go_in_place(void) {
  static const int64_t counts[] = {PLACE_CHUNK_ROWS, 4 * PLACE_CHUNK_ROWS,
                                   3 * PLACE_CHUNK_ROWS + 5};
  const int64_t shape[] = {8 * PLACE_CHUNK_ROWS, PLACE_COLUMNS};
  const int64_t chunk[] = {PLACE_CHUNK_ROWS, PLACE_COLUMNS};
  const gpuf_h5_options options = {.struct_nbytes = sizeof(options), .chunk_shape = chunk};
  for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
    for (int64_t first = 1; first < 3; first++) {
      const hid_t file = create_file();
      gpuf_tensor src = create_cpu(GPUF_DTYPE_FLOAT32, 2, shape, 5);
      gpuf_tensor expected = create_cpu(GPUF_DTYPE_FLOAT32, 2, shape, 9);
      gpuf_tensor d_src = copy_to_device(&src), d_dst = copy_to_device(&expected);
      const gpuf_tensor from = rows_of(&src, first, counts[i]);
      const gpuf_tensor to = rows_of(&expected, first + 2, counts[i]);
      const gpuf_tensor d_from = rows_of(&d_src, first, counts[i]);
      const gpuf_tensor d_to = rows_of(&d_dst, first + 2, counts[i]);
      CHECK_OK(gpuf_h5_write(file, "x", &d_from, &options, &err));
      CHECK_OK(gpuf_h5_read(file, "x", &d_to, NULL, &err));
      CHECK_OK(gpuf_copy(&to, &from, NULL, &err));
      check_equal(&d_dst, &expected);
      check_equal(&d_src, &src);
      CHECK_OK(gpuf_h5_read(file, "x", &to, NULL, &err));
      check_equal(&d_dst, &expected);
      destroy(&src);
      destroy(&expected);
      destroy(&d_src);
      destroy(&d_dst);
      close_file(file);
    }
  }
}

static void a_failed_copy_to_the_device_is_an_error(void) {
  const hid_t file = create_file();
  gpuf_tensor expected;
  write_kinds(file, 70, few_for_the_cpu, &expected);
  gpuf_tensor dst = create_on_device(&expected);
  for (int64_t nbytes = 0; nbytes < 5 << 20; nbytes += 900000) {
    CHECK_FAILS(read_within(file, &dst, nbytes), GPUF_ERR_DEVICE, "injected");
  }
  CHECK_OK(gpuf_h5_read(file, "x", &dst, NULL, &err));
  check_equal(&dst, &expected);
  destroy(&dst);
  destroy(&expected);
  close_file(file);
}

static void without_device_memory_the_cpu_decodes(void) {
  gpufi_host_faults faults = GPUFI_HOST_FAULTS_NONE;
  const hid_t file = create_file();
  gpuf_pool_stats before = GPUF_POOL_STATS_INIT, after = GPUF_POOL_STATS_INIT;
  gpuf_tensor expected;
  /* A device that no other test has used keeps no memory yet. */
  test_device = (gpuf_device){GPUF_DEVICE_HOST, 1};
  write_kinds(file, 40, few_for_the_cpu, &expected);
  gpuf_tensor dst = create_on_device(&expected);
  gpuf_pool_get_stats(&before, NULL);
  for (faults.alloc_fail_after = 0; faults.alloc_fail_after < 5; faults.alloc_fail_after++) {
    gpufi_host_faults_set(&faults);
    const gpuf_status status = gpuf_h5_read(file, "x", &dst, NULL, &err);
    gpufi_host_faults_set(&GPUFI_HOST_FAULTS_NONE);
    CHECK(status == GPUF_OK);
    check_equal(&dst, &expected);
    CHECK(H5Fget_obj_count(file, H5F_OBJ_ALL) == 1);
  }
  gpuf_pool_get_stats(&after, NULL);
  CHECK(after.used_nbytes == before.used_nbytes);
  destroy(&dst);
  destroy(&expected);
  close_file(file);
  test_device = host_device;
}

static void a_full_pool_leaves_it_to_the_cpu(void) {
  gpuf_pool_stats stats = GPUF_POOL_STATS_INIT;
  const hid_t file = create_file();
  gpuf_tensor expected;
  write_kinds(file, 40, few_for_the_cpu, &expected);
  gpuf_tensor dst = create_on_device(&expected);
  gpuf_pool_get_stats(&stats, NULL);
  gpuf_pool_trim(0);
  gpuf_pool_set_cap(1 << 20);
  const gpuf_status status = gpuf_h5_read(file, "x", &dst, NULL, &err);
  gpuf_pool_set_cap(stats.cap_nbytes);
  CHECK_OK(status);
  check_equal(&dst, &expected);
  destroy(&dst);
  destroy(&expected);
  close_file(file);
}

typedef struct late_fill {
  void *d_ptr;
  const void *bytes;
  size_t nbytes;
} late_fill;

static void late_fill_kernel(const void *arg) {
  const late_fill *const a = arg;
  gpufi_sleep_ns(50000000);
  memcpy(gpuf_host_pointer(a->d_ptr), a->bytes, a->nbytes);
}

/* Workers have a per-thread stream of their own: it is the caller's that has the pending work. */
static void writing_waits_for_the_callers_own_default_stream(void) {
  const gpuf_h5_codec codecs[] = {GPUF_H5_CODEC_GPUFETCH, GPUF_H5_CODEC_NONE};
  const int64_t shape[] = {64, 1000};
  for (int i = 0; i < 2; i++) {
    gpuf_h5_options options = GPUF_H5_OPTIONS_INIT;
    const hid_t file = create_file();
    gpuf_tensor expected = create_cpu(GPUF_DTYPE_FLOAT32, 2, shape, 5);
    gpuf_tensor src = create_on_device(&expected);
    gpuf_tensor read = expected;
    const late_fill args = {src.data, expected.data, gpuf_tensor_nbytes(&src)};
    options.codec = codecs[i];
    CHECK_OK(gpuf_host_launch(host_device, GPUF_STREAM_PER_THREAD, late_fill_kernel, &args,
                              sizeof(args), &err));
    src.stream = GPUF_STREAM_PER_THREAD;
    CHECK_OK(gpuf_h5_write(file, "x", &src, &options, &err));
    read.data = calloc(1, args.nbytes);
    CHECK_OK(gpuf_h5_read(file, "x", &read, NULL, &err));
    CHECK(memcmp(read.data, expected.data, args.nbytes) == 0);
    CHECK_OK(gpuf_free(host_device, src.data, &err));
    free(read.data);
    free(expected.data);
    close_file(file);
  }
}

static void the_lock_is_released(void) {
  const gpuf_h5_options options = {
      .struct_nbytes = sizeof(options), .lock = lock, .unlock = unlock};
  const hid_t file = create_file();
  gpuf_tensor expected;
  write_kinds(file, 70, few_for_the_cpu, &expected);
  gpuf_tensor dst = create_on_device(&expected);
  CHECK_OK(gpuf_h5_read(file, "x", &dst, &options, &err));
  CHECK(lock_depth == 0);
  damage(file, 30, SIZE_MAX, 1000, 0);
  CHECK_FAILS(gpuf_h5_read(file, "x", &dst, &options, &err), GPUF_ERR_CORRUPT, "checksum");
  CHECK(lock_depth == 0);
  damage(file, 40, SIZE_MAX, 0, 1);
  CHECK(gpuf_h5_read(file, "x", &dst, &options, &err) != GPUF_OK && lock_depth == 0);
  destroy(&dst);
  destroy(&expected);
  close_file(file);
}

int main(void) {
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  TEST_ON_DEVICES(any_box_goes_to_any_layout);
  TEST_ON_DEVICES(chunks_cross_the_link_encoded);
  TEST_ON_DEVICES(a_few_chunks_for_the_cpu_leave_the_others_to_the_device);
  TEST_ON_DEVICES(many_chunks_for_the_cpu_are_read_by_its_workers);
  TEST_ON_DEVICES(chunks_of_plain_bytes_are_read_as_what_the_dataset_says);
  TEST_ON_DEVICES(the_error_is_the_cpus);
  TEST_ON_DEVICES(a_destination_that_repeats_an_element_is_refused);
  TEST_ON_DEVICES(a_full_pool_leaves_it_to_the_cpu);
  TEST_ON_DEVICES(rows_come_and_go_in_place);
  test_device = host_device;
  TEST(a_failed_copy_to_the_device_is_an_error);
  TEST(without_device_memory_the_cpu_decodes);
  TEST(writing_waits_for_the_callers_own_default_stream);
  TEST(the_lock_is_released);
  return test_finish();
}
