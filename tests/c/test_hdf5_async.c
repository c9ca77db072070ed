/* Asynchronous writes: what is written is right whoever uses the dataset meanwhile, and a failure
 * is that of the synchronous call. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "hdf5_files.h"

#define ROWS 100
#define COLUMNS 5000

static const int64_t shape[] = {ROWS, COLUMNS};
static const int64_t chunk_shape[] = {16, COLUMNS};

static gpuf_h5_options options_for(gpuf_h5_codec codec) {
  gpuf_h5_options options = GPUF_H5_OPTIONS_INIT;
  options.codec = codec;
  options.chunk_shape = chunk_shape;
  options.thread_count = 3;
  options.lock = lock;
  options.unlock = unlock;
  return options;
}

static gpuf_tensor field(uint64_t seed) {
  return create_cpu(GPUF_DTYPE_FLOAT32, 2, shape, seed);
}

/* Poll until the write is finished. */
static void poll_until_done(gpuf_h5_future *future) {
  bool done = false;
  while (!done) {
    CHECK_OK(gpuf_h5_future_poll(future, &done, &err));
  }
}

/* A dataset of `rows` rows that may grow, in chunks of `chunk_rows`. */
static hid_t create_growing(hid_t file, const char *name, hsize_t rows, hsize_t chunk_rows,
                            bool encodes) {
  const hsize_t dims[] = {rows, COLUMNS}, most[] = {H5S_UNLIMITED, COLUMNS};
  const hsize_t chunk[] = {chunk_rows, COLUMNS};
  const hid_t space = H5Screate_simple(2, dims, most), plist = H5Pcreate(H5P_DATASET_CREATE);
  CHECK_OK(gpuf_h5_filter_register(&err));
  CHECK(H5Pset_chunk(plist, 2, chunk) >= 0);
  CHECK(!encodes || H5Pset_filter(plist, GPUF_H5_FILTER_ID, 0, 0, NULL) >= 0);
  const hid_t dataset =
      H5Dcreate2(file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  CHECK(dataset >= 0 && H5Sclose(space) >= 0 && H5Pclose(plist) >= 0);
  return dataset;
}

static void resize(hid_t dataset, hsize_t rows) {
  const hsize_t dims[] = {rows, COLUMNS};
  CHECK(H5Dset_extent(dataset, dims) >= 0);
}

/* --- What is written -------------------------------------------------------------- */

static void a_write_is_that_of_the_synchronous_call(void) {
  const hid_t file = create_file();
  gpuf_tensor expected = field(1), d_src = copy_to_device(&expected);
  for (int codec = GPUF_H5_CODEC_GPUFETCH; codec <= GPUF_H5_CODEC_BITSHUFFLE_LZ4; codec++) {
    const gpuf_h5_options options = options_for((gpuf_h5_codec)codec);
    for (int on_device = 0; on_device < 2; on_device++) {
      for (int polls = 0; polls < 2; polls++) {
        gpuf_h5_future *future;
        CHECK_OK(gpuf_h5_write_async(file, "group/x", on_device ? &d_src : &expected, &options,
                                     &future, &err));
        if (polls) {
          poll_until_done(future);
        }
        CHECK_OK(gpuf_h5_future_wait(future, -1, &err));
        CHECK_OK(gpuf_h5_future_wait(future, 0, &err));
        gpuf_h5_future_destroy(future);
        CHECK(lock_depth == 0);
        check_stored(file, "group/x", &expected);
        CHECK(H5Ldelete(file, "group", H5P_DEFAULT) >= 0);
      }
    }
  }
  destroy(&d_src);
  destroy(&expected);
  close_file(file);
}

/* Scalars and empty tensors have no chunks. */
static void tensors_of_any_shape_are_written(void) {
  const hid_t file = create_file();
  static const int64_t shapes[][3] = {{0}, {0, 3, 2}, {7, 1, 3}, {1, 1, 1}};
  for (int32_t i = 0; i < 4; i++) {
    gpuf_h5_future *future;
    gpuf_tensor expected = create_cpu(GPUF_DTYPE_INT16, i == 0 ? 0 : 3, shapes[i], 5);
    gpuf_tensor src = copy_to_device(&expected);
    CHECK_OK(gpuf_h5_write_async(file, "x", &src, NULL, &future, &err));
    poll_until_done(future);
    gpuf_h5_future_destroy(future);
    check_stored(file, "x", &expected);
    CHECK(H5Ldelete(file, "x", H5P_DEFAULT) >= 0);
    destroy(&src);
    destroy(&expected);
  }
  close_file(file);
}

/* Any region, of datasets that the filter, no filter and HDF5 alone write. */
static void regions_are_written(void) {
  static const int64_t regions[][2] = {{0, ROWS}, {16, 32}, {5, 30}, {96, 4}, {99, 1}, {0, 0}};
  const hid_t file = create_file();
  const gpuf_h5_options options = options_for(GPUF_H5_CODEC_GPUFETCH);
  gpuf_tensor old = field(1), values = field(2);
  for (int kind = 0; kind < 3; kind++) {
    for (size_t i = 0; i < sizeof(regions) / sizeof(regions[0]); i++) {
      const int64_t start[] = {regions[i][0], 0};
      gpuf_tensor expected = field(1), d_values = copy_to_device(&values);
      gpuf_tensor src = d_values, into = expected;
      gpuf_h5_future *future;
      const hsize_t dims[] = {ROWS, COLUMNS};
      const hid_t dataset = kind < 2 ? create_growing(file, "x", ROWS, 16, kind == 0)
                                     : create_dataset(file, "x", H5T_IEEE_F32BE, 2, dims,
                                                      H5Pcreate(H5P_DATASET_CREATE));
      CHECK_OK(gpuf_h5_write_dataset(dataset, &old, NULL, &err));
      CHECK_OK(gpuf_tensor_slice(&src, 0, regions[i][0], 1, regions[i][1], &err));
      CHECK_OK(gpuf_tensor_slice(&into, 0, regions[i][0], 1, regions[i][1], &err));
      CHECK_OK(gpuf_copy(&into, &src, NULL, &err));
      CHECK_OK(gpuf_h5_write_region_async(dataset, start, &src, &options, &future, &err));
      CHECK(H5Dclose(dataset) >= 0); /* the future holds it */
      CHECK_OK(gpuf_h5_future_wait(future, -1, &err));
      gpuf_h5_future_destroy(future);
      check_stored(file, "x", &expected);
      CHECK(H5Ldelete(file, "x", H5P_DEFAULT) >= 0);
      destroy(&d_values);
      destroy(&expected);
    }
  }
  destroy(&old);
  destroy(&values);
  close_file(file);
}

/* Encoded chunks take one chunk's memory here, and the tensor is free once it was copied. */
static void a_tensor_may_be_overwritten_once_it_was_copied(void) {
  const hid_t file = create_file();
  gpuf_h5_options options = options_for(GPUF_H5_CODEC_GPUFETCH);
  for (int is_small = 0; is_small < 2; is_small++) {
    gpuf_tensor expected = field(1), other = field(2), src = copy_to_device(&expected);
    gpuf_h5_future *future;
    options.async_max_nbytes = is_small;
    CHECK_OK(gpuf_h5_write_async(file, "x", &src, &options, &future, &err));
    CHECK_OK(gpuf_h5_future_wait_copied(future, -1, &err));
    CHECK_OK(gpuf_copy(&src, &other, NULL, &err));
    CHECK_OK(gpuf_h5_future_wait_copied(future, 0, &err));
    CHECK_OK(gpuf_h5_future_wait(future, -1, &err));
    CHECK_OK(gpuf_h5_future_wait_copied(future, -1, &err));
    gpuf_h5_future_destroy(future);
    check_stored(file, "x", &expected);
    CHECK(H5Ldelete(file, "x", H5P_DEFAULT) >= 0);
    destroy(&src);
    destroy(&expected);
    destroy(&other);
  }
  close_file(file);
}

typedef struct held {
  volatile bool *is_held;
} held;

static void hold_kernel(const void *arg) {
  const held *const h = arg;
  while (__atomic_load_n(h->is_held, __ATOMIC_ACQUIRE)) {
    usleep(100);
  }
}

/* Write `src` behind a kernel, on a stream of its own, which src->stream then is. */
static gpuf_h5_future *begin_behind(void (*kernel)(const void *), const void *args,
                                    size_t args_nbytes, hid_t file, gpuf_tensor *src) {
  gpuf_h5_future *future;
  CHECK_OK(gpuf_stream_create(host_device, &src->stream, &err));
  CHECK_OK(gpuf_host_launch(host_device, src->stream, kernel, args, args_nbytes, &err));
  CHECK_OK(gpuf_h5_write_async(file, "x", src, NULL, &future, &err));
  return future;
}

/* The write waits for the work that was pending when it began; a call with a timeout comes back. */
static void a_call_ends_at_its_timeout(void) {
  static volatile bool is_held = true;
  const held args = {&is_held};
  const hid_t file = create_file();
  gpuf_tensor expected = field(1), src;
  gpuf_h5_future *future;
  bool done = true;
  test_device = host_device;
  src = copy_to_device(&expected);
  future = begin_behind(hold_kernel, &args, sizeof(args), file, &src);
  CHECK_OK(gpuf_h5_future_poll(future, &done, &err));
  CHECK(!done);
  CHECK_FAILS(gpuf_h5_future_wait(future, 0, &err), GPUF_ERR_TIMEOUT, "not finished");
  CHECK_FAILS(gpuf_h5_future_wait(future, 1000000, &err), GPUF_ERR_TIMEOUT, "not finished");
  CHECK_FAILS(gpuf_h5_future_wait_copied(future, 1000000, &err), GPUF_ERR_TIMEOUT, "not finished");
  __atomic_store_n(&is_held, false, __ATOMIC_RELEASE);
  CHECK_OK(gpuf_h5_future_wait(future, INT64_MAX, &err));
  gpuf_h5_future_destroy(future);
  check_stored(file, "x", &expected);
  CHECK_OK(gpuf_stream_destroy(host_device, src.stream, &err));
  destroy(&src);
  destroy(&expected);
  close_file(file);
}

typedef struct tried_waits {
  gpuf_h5_future *_Atomic future;
  gpuf_status statuses[2];
  gpuf_error errors[2];
} tried_waits;

static void waiting_kernel(const void *arg) {
  tried_waits *const tried = *(tried_waits *const *)arg;
  gpuf_h5_future *future = NULL;
  while (!future) {
    usleep(100);
    future = tried->future;
  }
  tried->statuses[0] = gpuf_h5_future_wait(future, -1, &tried->errors[0]);
  tried->statuses[1] = gpuf_h5_future_wait_copied(future, -1, &tried->errors[1]);
  gpuf_h5_future_destroy(future);
}

/* The write comes after the kernel, which would wait for itself. */
static void a_kernel_waits_for_no_write(void) {
  const hid_t file = create_file();
  tried_waits tried = {0}, *const args = &tried;
  gpuf_tensor expected = field(1), src;
  gpuf_h5_future *future;
  test_device = host_device;
  src = copy_to_device(&expected);
  future = begin_behind(waiting_kernel, &args, sizeof(args), file, &src);
  tried.future = future;
  alarm(60);
  CHECK_OK(gpuf_h5_future_wait(future, -1, &err));
  alarm(0);
  for (int i = 0; i < 2; i++) {
    CHECK(tried.statuses[i] == GPUF_ERR_STATE && strstr(tried.errors[i].message, "kernel"));
  }
  gpuf_h5_future_destroy(future);
  check_stored(file, "x", &expected);
  CHECK_OK(gpuf_stream_destroy(host_device, src.stream, &err));
  destroy(&src);
  destroy(&expected);
  close_file(file);
}

/* --- Others use the dataset -------------------------------------------------------- */

/* Steps are appended, some rows each, while the writes of earlier ones are in flight; a chunk has
 * rows of several steps. The futures end in the order of `order`. */
static void append(int64_t chunk_rows, int64_t step_rows, bool encodes, int order) {
  enum { STEPS = 8 };
  const hid_t file = create_file();
  const hid_t dataset = create_growing(file, "x", 0, (hsize_t)chunk_rows, encodes);
  const int64_t all_shape[] = {STEPS * step_rows, COLUMNS};
  gpuf_tensor expected = create_cpu(GPUF_DTYPE_FLOAT32, 2, all_shape, 3);
  gpuf_tensor src = copy_to_device(&expected);
  gpuf_h5_future *futures[STEPS];
  for (int64_t step = 0; step < STEPS; step++) {
    const int64_t start[] = {step * step_rows, 0};
    gpuf_tensor part = src;
    CHECK_OK(gpuf_tensor_slice(&part, 0, start[0], 1, step_rows, &err));
    resize(dataset, (hsize_t)start[0] + (hsize_t)step_rows);
    CHECK_OK(gpuf_h5_write_region_async(dataset, start, &part, NULL, &futures[step], &err));
  }
  for (int i = 0; i < STEPS; i++) {
    const int step = order == 0 ? i : order == 1 ? STEPS - 1 - i : (i * 3) % STEPS;
    CHECK_OK(gpuf_h5_future_wait(futures[step], -1, &err));
    gpuf_h5_future_destroy(futures[step]);
  }
  CHECK(H5Dclose(dataset) >= 0);
  check_stored(file, "x", &expected);
  check_stored_by_hdf5(file, "x", &expected);
  destroy(&src);
  destroy(&expected);
  close_file(file);
}

static void steps_are_appended_while_earlier_ones_are_written(void) {
  for (int order = 0; order < 3; order++) {
    for (int encodes = 0; encodes < 2; encodes++) {
      append(1, 1, encodes, order);
      append(8, 3, encodes, order);
      append(4, 9, encodes, order);
    }
  }
}

static void a_dataset_that_shrinks_is_told(void) {
  const hid_t file = create_file();
  const hid_t dataset = create_growing(file, "x", ROWS, 16, true);
  gpuf_tensor src = field(1);
  gpuf_h5_future *future;
  CHECK_OK(gpuf_h5_write_region_async(dataset, NULL, &src, NULL, &future, &err));
  resize(dataset, 50);
  CHECK_FAILS(gpuf_h5_future_wait(future, -1, &err), GPUF_ERR_INVALID,
              "axis 0 has 50 elements, and the write needs 100");
  CHECK_FAILS(gpuf_h5_future_wait(future, -1, &err), GPUF_ERR_INVALID, "made smaller");
  gpuf_h5_future_destroy(future);
  resize(dataset, ROWS);
  CHECK_OK(gpuf_h5_write_dataset(dataset, &src, NULL, &err));
  CHECK(H5Dclose(dataset) >= 0);
  check_stored(file, "x", &src);
  destroy(&src);
  close_file(file);
}

/* Of writes that overlap, the elements of the one that ends last stay. */
static void two_writes_of_one_dataset_are_in_flight(void) {
  const hid_t file = create_file();
  const hid_t dataset = create_growing(file, "x", ROWS, 16, true);
  gpuf_tensor one = field(1), other = field(2);
  gpuf_h5_future *first, *second;
  CHECK_OK(gpuf_h5_write_region_async(dataset, NULL, &one, NULL, &first, &err));
  CHECK_OK(gpuf_h5_write_region_async(dataset, NULL, &other, NULL, &second, &err));
  CHECK_OK(gpuf_h5_future_wait(second, -1, &err));
  CHECK_OK(gpuf_h5_future_wait(first, -1, &err));
  gpuf_h5_future_destroy(first);
  gpuf_h5_future_destroy(second);
  CHECK(H5Dclose(dataset) >= 0);
  check_stored(file, "x", &one);
  destroy(&one);
  destroy(&other);
  close_file(file);
}

/* --- Ends ------------------------------------------------------------------------- */

static void a_write_that_is_dropped_leaves_nothing(void) {
  const hid_t file = create_file();
  gpuf_h5_options options = options_for(GPUF_H5_CODEC_GPUFETCH);
  gpuf_tensor values = field(1), src = copy_to_device(&values);
  options.async_max_nbytes = 1; /* the producer waits for memory then */
  for (int polls = 0; polls < 3; polls++) {
    gpuf_h5_future *future;
    bool done;
    CHECK_OK(gpuf_h5_write_async(file, "group/x", &src, &options, &future, &err));
    for (int i = 0; i < polls; i++) {
      CHECK_OK(gpuf_h5_future_poll(future, &done, &err));
    }
    gpuf_h5_future_destroy(future);
    CHECK(H5Lexists(file, "group", H5P_DEFAULT) == 0);
  }
  gpuf_h5_future_destroy(NULL);
  destroy(&src);
  destroy(&values);
  close_file(file);
}

/* `kind`: how another dataset came to have the name of the one that is being written. */
static void put_another(hid_t file, const char *name, const gpuf_tensor *other, int kind) {
  if (kind == 0) {
    CHECK(H5Ldelete(file, name, H5P_DEFAULT) >= 0);
  } else {
    CHECK(H5Lmove(file, name, file, "moved", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  }
  if (kind < 2) {
    CHECK_OK(gpuf_h5_write(file, name, other, NULL, &err));
  } else { /* a link of another's to the write's own dataset */
    CHECK(H5Lcreate_soft("/moved", file, name, H5P_DEFAULT, H5P_DEFAULT) >= 0);
  }
}

/* The address of what was deleted is another's as soon as the write has closed it. */
static void what_others_put_under_the_name_stays(void) {
  const hid_t file = create_file();
  gpuf_h5_options options = options_for(GPUF_H5_CODEC_GPUFETCH);
  gpuf_tensor values = field(1), other = field(2), src = copy_to_device(&values);
  options.async_max_nbytes = 1;
  for (int kind = 0; kind < 3; kind++) {
    for (int in_group = 0; in_group < 2; in_group++) {
      const char *const name = in_group ? "group/x" : "x";
      gpuf_h5_future *future;
      CHECK_OK(gpuf_h5_write_async(file, name, &src, &options, &future, &err));
      put_another(file, name, &other, kind);
      gpuf_h5_future_destroy(future);
      if (kind < 2) {
        check_stored(file, name, &other);
      }
      CHECK(H5Lexists(file, "moved", H5P_DEFAULT) == (kind > 0));
      CHECK(H5Ldelete(file, name, H5P_DEFAULT) >= 0); /* it is there */
      CHECK(kind == 0 || H5Ldelete(file, "moved", H5P_DEFAULT) >= 0);
      CHECK(!in_group || H5Ldelete(file, "group", H5P_DEFAULT) >= 0);
    }
  }
  destroy(&src);
  destroy(&values);
  destroy(&other);
  close_file(file);
}

static void a_dataset_that_was_deleted_is_told(void) {
  const hid_t file = create_file();
  gpuf_tensor values = field(1), other = field(2), src = copy_to_device(&values);
  for (int is_replaced = 0; is_replaced < 2; is_replaced++) {
    gpuf_h5_future *future;
    CHECK_OK(gpuf_h5_write_async(file, "x", &src, NULL, &future, &err));
    CHECK(H5Ldelete(file, "x", H5P_DEFAULT) >= 0);
    if (is_replaced) {
      CHECK_OK(gpuf_h5_write(file, "x", &other, NULL, &err));
    }
    CHECK_FAILS(gpuf_h5_future_wait(future, -1, &err), GPUF_ERR_STATE,
                "dataset 'x' was deleted while it was written");
    gpuf_h5_future_destroy(future);
    CHECK(H5Lexists(file, "x", H5P_DEFAULT) == is_replaced);
  }
  check_stored(file, "x", &other);
  destroy(&src);
  destroy(&values);
  destroy(&other);
  close_file(file);
}

/* With HDF5's usual close degree, the file is closed once the write is finished. */
static void a_file_may_be_closed_before_the_write_is_finished(void) {
  hid_t file = create_file();
  gpuf_tensor expected = field(1), src = copy_to_device(&expected);
  gpuf_h5_future *future;
  CHECK_OK(gpuf_h5_write_async(file, "x", &src, NULL, &future, &err));
  CHECK(H5Fclose(file) >= 0);
  CHECK_OK(gpuf_h5_future_wait(future, -1, &err));
  gpuf_h5_future_destroy(future);
  file = H5Fopen(file_path, H5F_ACC_RDWR, H5P_DEFAULT);
  CHECK(file >= 0);
  check_stored(file, "x", &expected);
  destroy(&src);
  destroy(&expected);
  close_file(file);
}

static void a_dataset_that_is_closed_with_its_file_is_told(void) {
  gpuf_tensor expected = field(1), src = copy_to_device(&expected);
  for (int is_waited_for = 0; is_waited_for < 2; is_waited_for++) {
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    gpuf_h5_future *future;
    CHECK(H5Fclose(create_file()) >= 0);
    CHECK(H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0);
    const hid_t file = H5Fopen(file_path, H5F_ACC_RDWR, access);
    CHECK(file >= 0);
    CHECK_OK(gpuf_h5_write_async(file, "x", &src, NULL, &future, &err));
    CHECK(H5Fclose(file) >= 0 && H5Pclose(access) >= 0);
    if (is_waited_for) {
      CHECK_FAILS(gpuf_h5_future_wait(future, -1, &err), GPUF_ERR_STATE,
                  "dataset '/x' was closed before its write was finished");
    }
    gpuf_h5_future_destroy(future);
    CHECK(unlink(file_path) == 0);
  }
  destroy(&src);
  destroy(&expected);
}

static void arguments_are_checked_at_once(void) {
  const hid_t file = create_file();
  const hid_t dataset = create_growing(file, "x", ROWS, 16, true);
  const int64_t start[] = {1, 0};
  gpuf_tensor src = field(1);
  gpuf_h5_options options = GPUF_H5_OPTIONS_INIT;
  gpuf_h5_future *future = (gpuf_h5_future *)&src;
  bool done;
  CHECK_FAILS(gpuf_h5_write_async(file, "x", &src, NULL, &future, &err), GPUF_ERR_INVALID,
              "exists already");
  CHECK(!future);
  CHECK_FAILS(gpuf_h5_write_async(file, "", &src, NULL, &future, &err), GPUF_ERR_INVALID, "empty");
  CHECK_FAILS(gpuf_h5_write_async(file, "a//b", &src, NULL, &future, &err), GPUF_ERR_INVALID,
              "a//b");
  CHECK_FAILS(gpuf_h5_write_async(-1, "y", &src, NULL, &future, &err), GPUF_ERR_INVALID,
              "not an open HDF5 file");
  CHECK_FAILS(gpuf_h5_write_async(file, "y", NULL, NULL, &future, &err), GPUF_ERR_INVALID, "src");
  CHECK_FAILS(gpuf_h5_write_async(file, "y", &src, NULL, NULL, &err), GPUF_ERR_INVALID, "future");
  CHECK_FAILS(gpuf_h5_write_region_async(dataset, start, &src, NULL, &future, &err),
              GPUF_ERR_INVALID, "do not lie in axis 0");
  CHECK_FAILS(gpuf_h5_write_region_async(file, NULL, &src, NULL, &future, &err), GPUF_ERR_INVALID,
              "not an open");
  options.thread_count = -1;
  CHECK_FAILS(gpuf_h5_write_async(file, "y", &src, &options, &future, &err), GPUF_ERR_INVALID,
              "thread_count");
  CHECK_FAILS(gpuf_h5_future_wait(NULL, 0, &err), GPUF_ERR_INVALID, "NULL");
  CHECK_FAILS(gpuf_h5_future_poll(NULL, &done, &err), GPUF_ERR_INVALID, "NULL");
  CHECK(H5Lexists(file, "y", H5P_DEFAULT) == 0 && H5Dclose(dataset) >= 0);
  destroy(&src);
  close_file(file);
}

/* A child has its parent's future and not its thread. */
static void a_forked_child_is_refused(void) {
  const hid_t file = create_file();
  gpuf_tensor expected = field(1), src = copy_to_device(&expected);
  gpuf_h5_future *future;
  int wait_status;
  CHECK_OK(gpuf_h5_write_async(file, "x", &src, NULL, &future, &err));
  const pid_t child = fork();
  if (child == 0) {
    bool done = false;
    const bool is_refused = gpuf_h5_future_wait(future, -1, &err) == GPUF_ERR_STATE &&
                            gpuf_h5_future_poll(future, &done, &err) == GPUF_ERR_STATE && done;
    gpuf_h5_future_destroy(future);
    _exit(is_refused ? 0 : 1);
  }
  CHECK(child > 0 && TEMP_FAILURE_RETRY(waitpid(child, &wait_status, 0)) == child);
  CHECK(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
  CHECK_OK(gpuf_h5_future_wait(future, -1, &err));
  gpuf_h5_future_destroy(future);
  check_stored(file, "x", &expected);
  destroy(&src);
  destroy(&expected);
  close_file(file);
}

static void write_under_limit(void) {
  const struct rlimit limit = {100000, RLIM_INFINITY};
  const hid_t file = create_file();
  gpuf_tensor src = field(1);
  gpuf_h5_future *first, *second;
  const gpuf_h5_options options = options_for(GPUF_H5_CODEC_NONE);
  signal(SIGXFSZ, SIG_IGN);
  CHECK(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0 && setrlimit(RLIMIT_FSIZE, &limit) == 0);
  CHECK_OK(gpuf_h5_write_async(file, "first", &src, &options, &first, &err));
  CHECK_OK(gpuf_h5_write_async(file, "second", &src, &options, &second, &err));
  CHECK_FAILS(gpuf_h5_future_wait(first, -1, &err), GPUF_ERR_HDF5, "File too large");
  CHECK(err.native_code == EFBIG);
  CHECK_FAILS(gpuf_h5_future_wait(second, -1, &err), GPUF_ERR_HDF5, "an earlier write");
  CHECK(err.native_code == EFBIG);
  gpuf_h5_future_destroy(first);
  gpuf_h5_future_destroy(second);
  CHECK_FAILS(gpuf_h5_write_async(file, "third", &src, &options, &first, &err), GPUF_ERR_HDF5,
              "an earlier write");
  CHECK(err.native_code == EFBIG);
  unlink(file_path);
}

/* In a process of its own, since HDF5 cannot close such a file. */
static void a_full_disk_is_remembered_for_the_file(void) {
  int wait_status;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    _exit(setjmp(test_exit) == 0 ? (write_under_limit(), 0) : 1);
  }
  CHECK(child > 0 && TEMP_FAILURE_RETRY(waitpid(child, &wait_status, 0)) == child);
  CHECK(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
}

int main(void) {
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  TEST(a_full_disk_is_remembered_for_the_file); /* before there are threads, which a child lacks */
  TEST_ON_DEVICES(a_write_is_that_of_the_synchronous_call);
  TEST_ON_DEVICES(tensors_of_any_shape_are_written);
  TEST_ON_DEVICES(regions_are_written);
  TEST_ON_DEVICES(a_tensor_may_be_overwritten_once_it_was_copied);
  TEST(a_call_ends_at_its_timeout);
  TEST(a_kernel_waits_for_no_write);
  TEST_ON_DEVICES(steps_are_appended_while_earlier_ones_are_written);
  test_device = host_device;
  TEST(a_dataset_that_shrinks_is_told);
  TEST(two_writes_of_one_dataset_are_in_flight);
  TEST_ON_DEVICES(a_write_that_is_dropped_leaves_nothing);
  TEST_ON_DEVICES(what_others_put_under_the_name_stays);
  TEST_ON_DEVICES(a_dataset_that_was_deleted_is_told);
  test_device = host_device;
  TEST(a_file_may_be_closed_before_the_write_is_finished);
  TEST(a_dataset_that_is_closed_with_its_file_is_told);
  TEST(arguments_are_checked_at_once);
  TEST(a_forked_child_is_refused);
  return test_finish();
}
