/* Checkpoints that several processes write together: what comes back, on any number of processes,
 * and what is refused on all of them. */
#include <fcntl.h>
#include <sys/file.h>

#include "checkpoint_ranks.h"

static const int64_t u_shape[] = {45, 40, 160};
static const int64_t v_shape[] = {700, 300};
static const int64_t few_shape[] = {3, 5};
static const int64_t empty_shape[] = {0, 4};

typedef struct arrays {
  gpuf_tensor u, v, few, empty, whole, scalar;
} arrays;

/* The same on every rank. */
static arrays arrays_of(int64_t step) {
  const uint64_t seed = (uint64_t)step * 10;
  return (arrays){create_cpu(GPUF_DTYPE_FLOAT32, 3, u_shape, seed + 1),
                  create_cpu(GPUF_DTYPE_INT16, 2, v_shape, seed + 2),
                  create_cpu(GPUF_DTYPE_FLOAT64, 2, few_shape, seed + 3),
                  create_cpu(GPUF_DTYPE_INT32, 2, empty_shape, seed + 4),
                  create_cpu(GPUF_DTYPE_COMPLEX64, 1, v_shape, seed + 5),
                  create_cpu(GPUF_DTYPE_FLOAT64, 0, NULL, seed + 6)};
}

static void destroy_arrays(arrays *a) {
  DESTROY(&a->u, &a->v, &a->few, &a->empty, &a->whole, &a->scalar);
}

/* --- Decompositions ------------------------------------------------------------- */

typedef enum division { ROWS, COLUMNS, BLOCKS, CYCLIC, ON_LAST, DIVISION_COUNT } division;

typedef struct scenario {
  division division;
  size_t shard_count;
  bool on_device, uncompressed;
  gpuf_checkpoint_mode mode;
  int64_t step;
} scenario;

static scenario now;

static gpuf_tensor copies[100];
static int copy_count;

static void put(gpuf_checkpoint *c, const char *name, const gpuf_tensor *whole,
                const int64_t *start, const int64_t *shape) {
  CHECK(copy_count < 100);
  add_box(c, name, whole, start, shape, now.on_device ? &copies[copy_count++] : NULL);
}

/* From `first` to `end` of `parts` along an axis, and all of the others. */
static void put_range(gpuf_checkpoint *c, const char *name, const gpuf_tensor *whole, int32_t axis,
                      int64_t first, int64_t end, int64_t parts) {
  int64_t start[GPUF_NDIM_MAX] = {0}, shape[GPUF_NDIM_MAX];
  memcpy(shape, whole->shape, sizeof(shape));
  start[axis] = first * whole->shape[axis] / parts;
  shape[axis] = end * whole->shape[axis] / parts - start[axis];
  put(c, name, whole, start, shape);
}

static void put_block(gpuf_checkpoint *c, const char *name, const gpuf_tensor *whole) {
  const int64_t grid[2] = {rank_count == 4 ? 2 : 1, rank_count == 4 ? 2 : rank_count};
  const int64_t place[2] = {this_rank / grid[1], this_rank % grid[1]};
  int64_t start[GPUF_NDIM_MAX] = {0}, shape[GPUF_NDIM_MAX];
  memcpy(shape, whole->shape, sizeof(shape));
  for (int axis = 0; axis < 2; axis++) {
    start[axis] = place[axis] * whole->shape[axis] / grid[axis];
    shape[axis] = (place[axis] + 1) * whole->shape[axis] / grid[axis] - start[axis];
  }
  put(c, name, whole, start, shape);
}

static void put_array(gpuf_checkpoint *c, const char *name, const gpuf_tensor *whole) {
  const int64_t n = rank_count, r = this_rank;
  switch (now.division) {
  case ROWS:
    put_range(c, name, whole, 0, r, r + 1, n);
    break;
  case COLUMNS:
    put_range(c, name, whole, whole->ndim - 1, n - 1 - r, n - r, n);
    break;
  case BLOCKS:
    put_block(c, name, whole);
    break;
  case CYCLIC: /* several boxes of each rank */
    for (int64_t turn = 0; turn < 3; turn++) {
      put_range(c, name, whole, 0, turn * n + r, turn * n + r + 1, 3 * n);
    }
    break;
  case ON_LAST: /* and nothing on the others */
    put_range(c, name, whole, 0, 0, r == n - 1, 1);
    break;
  default:
    break;
  }
}

static void put_all(gpuf_checkpoint *c, const arrays *a) {
  char name[20];
  put_array(c, "group/u", &a->u);
  if (this_rank % 2 == 0) { /* other ranks add in another order */
    put_array(c, "v", &a->v);
    put_array(c, "few", &a->few);
  } else {
    put_array(c, "few", &a->few);
    put_array(c, "/v", &a->v);
  }
  CHECK_OK(gpuf_checkpoint_add(c, "empty", &a->empty, NULL, &err));
  if (this_rank == rank_count - 1) {
    CHECK_OK(gpuf_checkpoint_add(c, "whole", &a->whole, NULL, &err));
  }
  if (this_rank == 0) {
    CHECK_OK(gpuf_checkpoint_add(c, "scalar", &a->scalar, NULL, &err));
  }
  CHECK_OK(gpuf_checkpoint_add_int64(c, "step", now.step, &err));
  CHECK_OK(gpuf_checkpoint_add_float64(c, "nan", NAN, &err));
  snprintf(name, sizeof(name), "of rank %d", this_rank);
  CHECK_OK(gpuf_checkpoint_add_text(c, name, "ü", &err));
}

static void write_now(void) {
  gpuf_checkpoint_options options = options_of_rank();
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  arrays a = arrays_of(now.step);
  test_device = host_device;
  options.shard_count = now.shard_count;
  options.uncompressed = now.uncompressed;
  options.mode = now.mode;
  options.device = now.on_device ? host_device : cpu_device;
  options.state_nbytes = now.on_device ? (size_t)8 << 20 : 0;
  options.host_max_nbytes = (size_t)64 << 20;
  options.unsynced = now.step % 2;
  options.application = this_rank == 0 ? "of the first" : "of another";
  gpuf_checkpoint *const c = open_writer(&options);
  CHECK_OK(gpuf_checkpoint_begin(c, now.step, NULL, &err));
  put_all(c, &a);
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_checkpoint_wait(c, -1, &report, &err));
  CHECK(report.status == GPUF_OK && report.step == now.step && !*report.message);
  CHECK(report.file_nbytes > 0 && access(report.path, F_OK) == 0);
  CHECK_OK(gpuf_checkpoint_close(c, &report, &err));
  CHECK(report.status == GPUF_OK);
}

static void check_values(gpuf_restart *r, int count) {
  int64_t step = -1;
  double nan = 0;
  const char *text;
  CHECK_OK(gpuf_restart_get_int64(r, "step", &step, &err));
  CHECK_OK(gpuf_restart_get_float64(r, "nan", &nan, &err));
  CHECK(step == now.step && isnan(nan));
  for (int rank = 0; rank < count; rank++) {
    char name[20];
    snprintf(name, sizeof(name), "of rank %d", rank);
    CHECK_OK(gpuf_restart_get_text(r, name, &text, &err));
    CHECK(strcmp(text, "ü") == 0);
  }
  CHECK_OK(gpuf_restart_get_text(r, "gpufetch_application", &text, &err));
  CHECK(strcmp(text, "of the first") == 0);
}

static int written_by; /* ranks */

static void check_by_hdf5(const arrays *a) {
  const hid_t file = H5Fopen(path_in_folder("run-000000000004.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
  CHECK(file >= 0);
  check_stored_by_hdf5(file, "group/u", &a->u);
  check_stored_by_hdf5(file, "v", &a->v);
  check_stored_by_hdf5(file, "few", &a->few);
  check_stored_by_hdf5(file, "whole", &a->whole);
  CHECK(H5Fclose(file) >= 0);
}

/* By one process. */
static void check_now(void) {
  arrays a = arrays_of(now.step);
  test_device = host_device;
  gpuf_restart *const r = open_restart("run", now.step);
  check_restarted(r, "group/u", &a.u);
  check_restarted(r, "v", &a.v);
  check_restarted(r, "few", &a.few);
  check_restarted(r, "empty", &a.empty);
  check_restarted(r, "whole", &a.whole);
  check_restarted(r, "scalar", &a.scalar);
  CHECK(gpuf_restart_name(r, 5) && !gpuf_restart_name(r, 6));
  check_values(r, written_by);
  gpuf_restart_close(r);
  if (now.step == 4) {
    CHECK_OK(gpuf_h5_filter_register(&err));
    check_by_hdf5(&a);
  }
  destroy_arrays(&a);
}

/* --- Parts without elements -------------------------------------------------------- */

static const int64_t thin_shape[] = {6, 0};

/* Of arrays that have none, and of one that the last rank holds, at its begin and behind its end.
 */
static void write_empty_parts(void) {
  gpuf_checkpoint_options options = options_of_rank();
  arrays a = arrays_of(4);
  gpuf_tensor thin = create_cpu(GPUF_DTYPE_INT8, 2, thin_shape, 1);
  const int64_t begin[2] = {0}, end[2] = {few_shape[0], 0}, no_rows[] = {0, few_shape[1]};
  options.shard_count = 2;
  gpuf_checkpoint *const c = open_writer(&options);
  CHECK_OK(gpuf_checkpoint_begin(c, 4, NULL, &err));
  add_box(c, "empty", &a.empty, begin, empty_shape, NULL);
  add_rows(c, "thin", &thin);
  if (this_rank == rank_count - 1) {
    add_box(c, "few", &a.few, begin, few_shape, NULL);
  } else {
    add_box(c, "few", &a.few, this_rank == 0 ? end : begin, no_rows, NULL);
  }
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  destroy(&thin);
  destroy_arrays(&a);
}

static void check_empty_parts(void) {
  arrays a = arrays_of(4);
  gpuf_tensor thin = create_cpu(GPUF_DTYPE_INT8, 2, thin_shape, 1);
  test_device = host_device;
  gpuf_restart *const r = open_restart("run", 4);
  check_restarted(r, "few", &a.few);
  check_restarted(r, "empty", &a.empty);
  check_restarted(r, "thin", &thin);
  CHECK(gpuf_restart_name(r, 2) && !gpuf_restart_name(r, 3));
  gpuf_restart_close(r);
  destroy(&thin);
  destroy_arrays(&a);
}

static void parts_without_elements_come_back(void) {
  make_folder();
  run_ranks(3, write_empty_parts, NULL);
  run_alone(check_empty_parts);
  remove_folder();
}

static void any_division_comes_back(void) {
  static const gpuf_checkpoint_mode modes[] = {
      GPUF_CHECKPOINT_DEVICE_COPY, GPUF_CHECKPOINT_DEVICE_ENCODED, GPUF_CHECKPOINT_PINNED};
  for (int i = 0; i < 3 * DIVISION_COUNT; i++) {
    written_by = 2 + i % 3;
    now = (scenario){.division = (division)(i % DIVISION_COUNT),
                     .shard_count = i % 2 ? 3 : 0,
                     .on_device = i / DIVISION_COUNT > 0,
                     .uncompressed = i == 3,
                     .mode = i / DIVISION_COUNT > 0 ? modes[i % 3] : GPUF_CHECKPOINT_AUTO,
                     .step = i % 4 == 3 ? 5 : 4};
    make_folder();
    run_ranks(written_by, write_now, NULL);
    CHECK(count_shards("run", now.step) == written_by * (now.shard_count ? 3 : 1));
    CHECK(count_files(".part", false) == 0 && count_files(".tmp", false) == 0);
    run_alone(check_now);
    remove_folder();
  }
}

/* --- Other numbers of ranks ------------------------------------------------------ */

/* Read one's own box, which is another one than was written. */
static void go_on(void) {
  gpuf_part part = GPUF_PART_INIT;
  arrays a = arrays_of(4);
  gpuf_checkpoint_options options = options_of_rank();
  const int64_t first = this_rank * v_shape[0] / rank_count;
  const int64_t shape[] = {(this_rank + 1) * v_shape[0] / rank_count - first, v_shape[1]};
  gpuf_tensor found = create_cpu(GPUF_DTYPE_INT16, 2, shape, 7), expected = a.v;
  gpuf_restart *const r = open_restart("run", now.step - 1);
  memcpy(part.shape, v_shape, sizeof(v_shape));
  part.start[0] = first;
  CHECK_OK(gpuf_restart_read(r, "v", &found, &part, &err));
  gpuf_restart_close(r);
  CHECK_OK(gpuf_tensor_slice(&expected, 0, first, 1, shape[0], &err));
  CHECK(memcmp(found.data, expected.data, gpuf_tensor_nbytes(&found)) == 0);
  gpuf_checkpoint *const c = open_writer(&options);
  CHECK_OK(gpuf_checkpoint_begin(c, now.step, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "v", &found, &part, &err));
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
}

/* 4 ranks by blocks, 3, 1 that is alone, and 2 again. */
static void a_restart_on_another_number_of_ranks_goes_on(void) {
  static const int counts[] = {3, 1, 2};
  make_folder();
  now = (scenario){.division = BLOCKS, .shard_count = 2, .step = 4};
  run_ranks(4, write_now, NULL);
  for (int i = 0; i < 3; i++) {
    now.step++;
    run_ranks(counts[i], go_on, NULL);
    CHECK(count_shards("run", now.step) == (counts[i] > 1 ? counts[i] : 0));
  }
  remove_folder();
}

/* --- What is kept ---------------------------------------------------------------- */

static void write_rows(gpuf_checkpoint *c, int64_t step) {
  arrays a = arrays_of(step);
  CHECK_OK(gpuf_checkpoint_begin(c, step, NULL, &err));
  add_rows(c, "v", &a.v);
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  destroy_arrays(&a);
}

static void check_rows(int64_t step) {
  arrays a = arrays_of(step);
  test_device = host_device;
  gpuf_restart *const r = open_restart("run", step);
  check_restarted(r, "v", &a.v);
  gpuf_restart_close(r);
  destroy_arrays(&a);
}

/* --- Many shards ------------------------------------------------------------------- */

#define MANY 65 /* tensors, and shards, of each of 4 ranks: more than one rank may have */

static const int64_t small_shape[] = {3, 50};

static gpuf_tensor small_of(int rank, int index) {
  return create_cpu(GPUF_DTYPE_FLOAT32, 2, small_shape, (uint64_t)(rank * MANY + index));
}

static void write_many(void) {
  gpuf_checkpoint_options options = options_of_rank();
  gpuf_tensor tensors[MANY];
  options.shard_count = MANY;
  gpuf_checkpoint *const c = open_writer(&options);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  for (int i = 0; i < MANY; i++) {
    char name[40];
    snprintf(name, sizeof(name), "of %d/%d", this_rank, i);
    tensors[i] = small_of(this_rank, i);
    CHECK_OK(gpuf_checkpoint_add(c, name, &tensors[i], NULL, &err));
  }
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_checkpoint_wait(c, -1, NULL, &err));
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  for (int i = 0; i < MANY; i++) {
    destroy(&tensors[i]);
  }
}

static void check_many(void) {
  test_device = host_device;
  gpuf_restart *const r = open_restart("run", 1);
  for (int i = 0; i < 4 * MANY; i++) {
    char name[40];
    gpuf_tensor expected = small_of(i / MANY, i % MANY);
    snprintf(name, sizeof(name), "of %d/%d", i / MANY, i % MANY);
    check_restarted(r, name, &expected);
    destroy(&expected);
  }
  gpuf_restart_close(r);
}

static void ranks_have_more_shards_together_than_one_may_have(void) {
  make_folder();
  run_ranks(4, write_many, NULL);
  CHECK(count_files("run-000000000001.", false) == 4 * MANY + 1); /* the master, too */
  run_alone(check_many);
  remove_folder();
}

/* Each begin finishes the one before. */
static void keep_two(void) {
  gpuf_checkpoint_options options = options_of_rank();
  options.keep_count = 2;
  gpuf_checkpoint *const c = open_writer(&options);
  for (int64_t step = 1; step < 6; step++) {
    gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
    write_rows(c, step);
    CHECK_OK(gpuf_checkpoint_wait(c, -1, &report, &err));
    CHECK(report.status == GPUF_OK && report.step == step);
    meet();
    CHECK(count_files("run-", false) == (step > 1 ? 6 : 3));
    meet();
  }
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
}

static void replace_last(void) {
  gpuf_checkpoint_options options = options_of_rank();
  options.replace = true;
  options.shard_count = 2;
  gpuf_checkpoint *const c = open_writer(&options);
  write_rows(c, 5);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
}

static void check_fifth(void) {
  check_rows(5);
}

static void older_ones_expire_and_a_step_is_replaced(void) {
  make_folder();
  run_ranks(2, keep_two, NULL);
  CHECK(count_shards("run", 5) == 2 && count_shards("run", 3) == 0);
  run_alone(check_fifth);
  run_ranks(3, replace_last, NULL);
  CHECK(count_shards("run", 5) == 6 && count_shards("run", 4) == 2);
  run_alone(check_fifth);
  remove_folder();
}

/* --- What the ranks say of different things --------------------------------------- */

/* How the checkpoint that is being written must end: on rank 0 with one message, on others with
 * another. */
static void check_refused(gpuf_checkpoint *c, gpuf_status status, const char *first,
                          const char *other) {
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  const gpuf_status found = gpuf_checkpoint_wait(c, -1, &report, &err);
  CHECK(found == (this_rank == 0 ? status : GPUF_ERR_STATE) && report.status == found);
  CHECK(strstr(err.message, this_rank == 0 ? first : other));
}

#define OF_RANK_0 "rank 0 failed, or gave up"

static void say_different_things(void) {
  gpuf_checkpoint_options options = options_of_rank();
  arrays a = arrays_of(1);
  gpuf_checkpoint *const c = open_writer(&options);
  const int64_t start[] = {this_rank ? 400 : 0, 0}, half[] = {400, 300}, part[] = {200, 300};
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  add_box(c, "v", &a.v, this_rank ? (const int64_t[]){300, 0} : start, half, NULL);
  check_refused(c, GPUF_ERR_INVALID,
                "the parts of tensor 'v' that begin at (0, 0), of rank 0, and at (300, 0), of rank "
                "1, overlap",
                OF_RANK_0);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  add_box(c, "v", &a.v, start, part, NULL);
  check_refused(c, GPUF_ERR_INVALID, "hold 120000 of its 210000 elements", OF_RANK_0);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "v", &a.v, NULL, &err));
  check_refused(c, GPUF_ERR_INVALID, "overlap", OF_RANK_0);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  add_rows(c, "v", this_rank ? &a.few : &a.v);
  check_refused(c, GPUF_ERR_INVALID,
                "tensor 'v' is float64 of shape (3, 5) on rank 1, and int16 of (700, 300)",
                OF_RANK_0);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, this_rank ? "a/b" : "a", &a.few, NULL, &err));
  check_refused(c, GPUF_ERR_INVALID, "cannot lie in 'a'", OF_RANK_0);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add_int64(c, "n", this_rank, &err));
  check_refused(c, GPUF_ERR_INVALID, "value 'n' of rank 1 is another", OF_RANK_0);
  meet();
  CHECK(count_files("run-", false) == 0);
  if (this_rank == 1) {
    CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
    CHECK_FAILS(gpuf_checkpoint_add(c, "s", &a.scalar, NULL, &err), GPUF_ERR_INVALID,
                "has no axes, and this is rank 1: add it on rank 0");
  } else {
    CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  }
  CHECK_OK(gpuf_checkpoint_abort(c, &err));
  write_rows(c, 1); /* its begin settles what all have aborted */
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
}

static void check_first(void) {
  check_rows(1);
}

static void what_does_not_fit_together_is_refused_on_all(void) {
  make_folder();
  run_ranks(2, say_different_things, NULL);
  run_alone(check_first);
  remove_folder();
}

/* --- Calls that differ ------------------------------------------------------------ */

static void begin_differently(void) {
  gpuf_checkpoint_options options = options_of_rank();
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  arrays a = arrays_of(1);
  gpuf_checkpoint *const c = open_writer(&options);
  CHECK_FAILS(gpuf_checkpoint_begin(c, 10 + this_rank, NULL, &err), GPUF_ERR_INVALID,
              "the ranks begin different steps, of which 10 is the lowest");
  if (this_rank == 2) {
    CHECK_FAILS(gpuf_checkpoint_begin(c, -1, NULL, &err), GPUF_ERR_INVALID, "is negative");
  } else {
    CHECK_FAILS(gpuf_checkpoint_begin(c, 1, NULL, &err), GPUF_ERR_STATE,
                "rank 2 could not begin its checkpoint");
  }
  CHECK_OK(gpuf_checkpoint_wait(c, -1, &report, &err));
  CHECK(report.step == -1);
  /* One rank has not committed. */
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  add_rows(c, "v", &a.v);
  if (this_rank != 1) {
    CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
    CHECK_FAILS(gpuf_checkpoint_wait(c, -1, NULL, &err), GPUF_ERR_TIMEOUT, "by another rank");
    CHECK_FAILS(gpuf_checkpoint_begin(c, 9, NULL, &err), GPUF_ERR_TIMEOUT, "step 9 is skipped");
  } else {
    CHECK_OK(gpuf_checkpoint_wait(c, -1, NULL, &err));
    CHECK_FAILS(gpuf_checkpoint_begin(c, 9, NULL, &err), GPUF_ERR_STATE, "of step 1 was begun");
    CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  }
  CHECK_OK(gpuf_checkpoint_wait(c, -1, &report, &err));
  CHECK(report.step == 1);
  /* A step that is there. */
  CHECK_FAILS(gpuf_checkpoint_begin(c, 1, NULL, &err),
              this_rank ? GPUF_ERR_STATE : GPUF_ERR_INVALID,
              this_rank ? "rank 0 could not begin" : "of step 1 already");
  /* One rank gives up, and the others learn which. */
  CHECK_OK(gpuf_checkpoint_begin(c, 2, NULL, &err));
  if (this_rank == 1) {
    CHECK_OK(gpuf_checkpoint_abort(c, &err));
    CHECK_OK(gpuf_checkpoint_wait(c, -1, &report, &err));
    CHECK(report.step == 1); /* as if it had not been */
  } else {
    add_rows(c, "v", &a.v);
    CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
    CHECK_FAILS(gpuf_checkpoint_wait(c, -1, &report, &err), GPUF_ERR_STATE,
                "rank 1 failed, or gave up, the checkpoint of step 2");
    CHECK(report.step == 2);
  }
  /* With a failure of one's own, at its commit. */
  CHECK_OK(gpuf_checkpoint_begin(c, 2, NULL, &err));
  if (this_rank == 1) {
    const gpuf_stream stream = (gpuf_stream)1; /* of no device */
    gpuf_tensor d_u = a.few;
    d_u.device = host_device;
    CHECK_OK(gpuf_checkpoint_add(c, "few", &d_u, NULL, &err));
    CHECK_FAILS(gpuf_checkpoint_commit(c, stream, &err), GPUF_ERR_INVALID, "options.device");
    CHECK_FAILS(gpuf_checkpoint_wait(c, -1, NULL, &err), GPUF_ERR_INVALID, "options.device");
  } else {
    CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
    CHECK_FAILS(gpuf_checkpoint_wait(c, -1, NULL, &err), GPUF_ERR_STATE, "rank 1 failed");
  }
  write_rows(c, 3);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
}

static void check_third(void) {
  check_rows(3);
}

static void a_call_that_differs_is_refused_on_all(void) {
  make_folder();
  run_ranks(3, begin_differently, NULL);
  CHECK(count_files("run-000000000002", false) == 0 && count_orphans() == 0);
  run_alone(check_third);
  remove_folder();
}

static void open_differently(void) {
  gpuf_checkpoint *c = NULL;
  gpuf_checkpoint_options options = options_of_rank();
  options.shard_count = this_rank ? 2 : 3;
  CHECK_FAILS(gpuf_checkpoint_open(&options, &c, NULL, &err), GPUF_ERR_INVALID,
              "the options of the ranks differ");
  options.shard_count = 2;
  options.uncompressed = this_rank == 1;
  CHECK_FAILS(gpuf_checkpoint_open(&options, &c, NULL, &err), GPUF_ERR_INVALID,
              "unsynced and uncompressed must be the same");
  options.uncompressed = false;
  options.directory = this_rank ? "nowhere" : folder;
  CHECK_FAILS(gpuf_checkpoint_open(&options, &c, NULL, &err),
              this_rank ? GPUF_ERR_IO : GPUF_ERR_STATE,
              this_rank ? "nowhere" : "rank 1 could not open its writer");
  options.directory = folder;
  options.recycle = true;
  options.keep_count = 1;
  CHECK_FAILS(gpuf_checkpoint_open(&options, &c, NULL, &err), GPUF_ERR_UNSUPPORTED,
              "leave options.recycle out");
  options.recycle = false;
  options.shard_count = 256;
  options.rank_count = 17;
  if (this_rank == 0) {
    rank_count = 1; /* nobody else makes the calls that follow */
    CHECK_FAILS(gpuf_checkpoint_open(&options, &c, NULL, &err), GPUF_ERR_INVALID, "are more than");
    options.agree = NULL;
    CHECK_FAILS(gpuf_checkpoint_open(&options, &c, NULL, &err), GPUF_ERR_INVALID,
                "options.agree is NULL");
    options.rank = 17;
    CHECK_FAILS(gpuf_checkpoint_open(&options, &c, NULL, &err), GPUF_ERR_INVALID,
                "ranks count from 0");
  }
}

static void other_options_are_refused_on_all(void) {
  make_folder();
  run_ranks(2, open_differently, NULL);
  remove_folder();
}

/* A report that was not initialised, on one rank. */
static void report_wrongly(void) {
  gpuf_checkpoint_options options = options_of_rank();
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  gpuf_checkpoint *c = NULL;
  const bool is_wrong = this_rank == 1;
  const gpuf_status expected = is_wrong ? GPUF_ERR_INVALID : GPUF_ERR_STATE;
  report.struct_nbytes = is_wrong ? 0 : sizeof(report);
  CHECK_FAILS(gpuf_checkpoint_open(&options, &c, &report, &err), expected,
              is_wrong ? "GPUF_CHECKPOINT_REPORT_INIT" : "rank 1 could not open its writer");
  CHECK_FAILS(gpuf_checkpoint_open(&options, is_wrong ? NULL : &c, NULL, &err), expected,
              is_wrong ? "checkpoint is NULL" : "rank 1 could not open its writer");
  c = open_writer(&options);
  CHECK_FAILS(gpuf_checkpoint_begin(c, 2, &report, &err), expected,
              is_wrong ? "GPUF_CHECKPOINT_REPORT_INIT" : "rank 1 could not begin its checkpoint");
  write_rows(c, 2);
  if (is_wrong) {
    CHECK_FAILS(gpuf_checkpoint_wait(c, -1, &report, &err), GPUF_ERR_INVALID,
                "GPUF_CHECKPOINT_REPORT_INIT");
  } else {
    CHECK_OK(gpuf_checkpoint_wait(c, -1, &report, &err));
    CHECK(report.step == 2);
  }
  write_rows(c, 3);
  CHECK_OK(gpuf_checkpoint_wait(c, -1, NULL, &err));
  CHECK_OK(gpuf_checkpoint_close(c, &report, &err));
  CHECK(report.step == (is_wrong ? 0 : 3));
}

static void a_report_that_is_wrong_on_one_rank_leaves_no_rank_behind(void) {
  make_folder();
  run_ranks(3, report_wrongly, NULL);
  run_alone(check_third);
  remove_folder();
}

/* --- An agree that calls its own checkpoint ------------------------------------------ */

static gpuf_checkpoint *of_agree; /* that it calls; NULL: none */

static int64_t agree_and_call(void *arg, int64_t value) {
  gpuf_checkpoint *const c = of_agree;
  const gpuf_error before = err;
  if (c) {
    static const char text[] = "calls the checkpoint that it agrees for";
    const int64_t shape[] = {3};
    gpuf_tensor x = create_cpu(GPUF_DTYPE_INT32, 1, shape, 1);
    CHECK_FAILS(gpuf_checkpoint_begin(c, 9, NULL, &err), GPUF_ERR_STATE, text);
    CHECK_FAILS(gpuf_checkpoint_add(c, "x", &x, NULL, &err), GPUF_ERR_STATE, text);
    CHECK_FAILS(gpuf_checkpoint_add_int64(c, "n", 1, &err), GPUF_ERR_STATE, text);
    CHECK_FAILS(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err), GPUF_ERR_STATE, text);
    CHECK_FAILS(gpuf_checkpoint_abort(c, &err), GPUF_ERR_STATE, text);
    CHECK_FAILS(gpuf_checkpoint_wait(c, 0, NULL, &err), GPUF_ERR_STATE, text);
    CHECK_FAILS(gpuf_checkpoint_close(c, NULL, &err), GPUF_ERR_STATE, text);
    destroy(&x);
  }
  err = before;
  return agree(arg, value);
}

static void write_with_calls(void) {
  gpuf_checkpoint_options options = options_of_rank();
  options.agree = agree_and_call;
  gpuf_checkpoint *const c = open_writer(&options);
  of_agree = this_rank < 2 ? c : NULL;
  write_rows(c, 2);
  CHECK_OK(gpuf_checkpoint_wait(c, -1, NULL, &err));
  write_rows(c, 3);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
}

static void an_agree_that_calls_its_own_checkpoint_is_refused(void) {
  make_folder();
  run_ranks(3, write_with_calls, NULL);
  run_alone(check_third);
  remove_folder();
}

/* --- Two jobs ---------------------------------------------------------------------- */

/* The first two ranks are one job, and the other two another, which begins once the first has
 * its prefix, and ends before that ends. */
static void be_two_jobs(void) {
  int between[2] = {links[2][0], links[2][1]};
  gpuf_checkpoint_options options = options_of_rank();
  gpuf_checkpoint *c = NULL;
  int64_t word = 1;
  if (this_rank < 2) {
    rank_count = 2;
    options.rank_count = 2;
    c = open_writer(&options);
    write_rows(c, 1);
    if (this_rank == 0) {
      CHECK(give(between[0], word) && take(between[0], &word));
      CHECK(give(links[3][0], word) && take(links[3][0], &word));
    }
    CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
    return;
  }
  const int to_first = this_rank == 2 ? between[1] : links[3][1];
  CHECK(take(to_first, &word)); /* rank 3 of them comes second: it is alone */
  options.rank = 0;
  options.rank_count = 0;
  CHECK_FAILS(gpuf_checkpoint_open(&options, &c, NULL, &err), GPUF_ERR_STATE,
              "are being written by process");
  CHECK(give(to_first, word));
}

static void a_second_job_is_refused(void) {
  make_folder();
  run_ranks(4, be_two_jobs, NULL);
  CHECK(count_shards("run", 1) == 2);
  run_alone(check_first);
  remove_folder();
}

/* A rank 0 that is refused refuses all of its job. */
static void be_second_job(void) {
  gpuf_checkpoint_options options = options_of_rank();
  gpuf_checkpoint *c = NULL;
  CHECK_FAILS(gpuf_checkpoint_open(&options, &c, NULL, &err), GPUF_ERR_STATE,
              this_rank ? "rank 0 could not open its writer" : "are being written by");
}

/* The lock is held as a writer holds it, by a process that has no threads. */
static void all_ranks_of_a_second_job_are_refused(void) {
  make_folder();
  const int fd = open(path_in_folder(".run.lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  CHECK(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
  run_ranks(3, be_second_job, NULL);
  CHECK(close(fd) == 0);
  remove_folder();
}

/* --- Folders that are not the same --------------------------------------------------- */

static void write_to_other_folders(void) {
  gpuf_checkpoint_options options = options_of_rank();
  arrays a = arrays_of(1);
  char own[100];
  snprintf(own, sizeof(own), "%s/rank%d", folder, this_rank);
  CHECK(mkdir(own, 0777) == 0);
  options.directory = own;
  gpuf_checkpoint *const c = open_writer(&options);
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  add_rows(c, "v", &a.v);
  check_refused(c, GPUF_ERR_IO, "give all ranks the same folder", OF_RANK_0);
  gpuf_checkpoint_close(c, NULL, &err);
  char lock[120];
  snprintf(lock, sizeof(lock), "%s/.run.lock", own);
  CHECK((unlink(lock) == 0) == (this_rank == 0));
  CHECK(rmdir(own) == 0); /* nothing else is left */
}

static void other_folders_are_noticed(void) {
  make_folder();
  run_ranks(2, write_to_other_folders, NULL);
  remove_folder();
}

int main(void) {
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  TEST(parts_without_elements_come_back);
  TEST(any_division_comes_back);
  TEST(a_restart_on_another_number_of_ranks_goes_on);
  TEST(ranks_have_more_shards_together_than_one_may_have);
  TEST(older_ones_expire_and_a_step_is_replaced);
  TEST(what_does_not_fit_together_is_refused_on_all);
  TEST(a_call_that_differs_is_refused_on_all);
  TEST(a_report_that_is_wrong_on_one_rank_leaves_no_rank_behind);
  TEST(an_agree_that_calls_its_own_checkpoint_is_refused);
  TEST(other_options_are_refused_on_all);
  TEST(a_second_job_is_refused);
  TEST(all_ranks_of_a_second_job_are_refused);
  TEST(other_folders_are_noticed);
  return test_finish();
}
