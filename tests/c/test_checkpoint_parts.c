/* Arrays of which a program holds parts: put together in the file, whole or refused. */
#include "checkpoint_files.h"

#define PARTS_MAX 40

static const gpuf_checkpoint_mode modes[] = {GPUF_CHECKPOINT_PINNED, GPUF_CHECKPOINT_DEVICE_COPY,
                                             GPUF_CHECKPOINT_DEVICE_ENCODED};

/* The parts of one array, each a copy of its box. */
typedef struct tiling {
  gpuf_tensor whole;
  gpuf_part part[PARTS_MAX];
  gpuf_tensor tensor[PARTS_MAX];
  int count;
} tiling;

static gpuf_tensor box_of(const gpuf_tensor *whole, const int64_t *start, const int64_t *box) {
  gpuf_tensor view = *whole;
  for (int32_t axis = 0; axis < whole->ndim; axis++) {
    CHECK_OK(gpuf_tensor_slice(&view, axis, start[axis], 1, box[axis], &err));
  }
  return view;
}

static void add_part(tiling *t, const int64_t *start, const int64_t *box, bool on_device) {
  const gpuf_tensor view = box_of(&t->whole, start, box);
  gpuf_tensor packed = create_cpu(t->whole.dtype, t->whole.ndim, box, 9);
  gpuf_part *const part = &t->part[t->count];
  CHECK(t->count < PARTS_MAX);
  CHECK_OK(gpuf_copy(&packed, &view, NULL, &err));
  *part = (gpuf_part)GPUF_PART_INIT;
  memcpy(part->shape, t->whole.shape, sizeof(part->shape));
  memcpy(part->start, start, (size_t)t->whole.ndim * sizeof(*start));
  t->tensor[t->count++] = on_device ? copy_to_device(&packed) : packed;
  if (on_device) {
    destroy(&packed);
  }
}

/* Cut the box at random places until it is to be a part. */
static void cut(tiling *t, const int64_t *start, const int64_t *box, int depth, bool mixes,
                uint64_t *state) {
  const int32_t axis = (int32_t)random_below(state, (uint64_t)t->whole.ndim);
  int64_t starts[3], first[3], second[3];
  if (depth == 0 || box[axis] < 2) {
    add_part(t, start, box, !mixes || random_below(state, 2));
    return;
  }
  memcpy(starts, start, sizeof(starts));
  memcpy(first, box, sizeof(first));
  memcpy(second, box, sizeof(second));
  first[axis] = 1 + (int64_t)random_below(state, (uint64_t)box[axis] - 1);
  second[axis] -= first[axis];
  cut(t, starts, first, depth - 1, mixes, state);
  starts[axis] += first[axis];
  cut(t, starts, second, depth - 1, mixes, state);
}

static void destroy_tiling(tiling *t) {
  for (int i = 0; i < t->count; i++) {
    destroy(&t->tensor[i]);
  }
  destroy(&t->whole);
}

/* The parts may be overwritten once commit has returned. */
static void write_tiling(const gpuf_checkpoint_options *options, const tiling *t, int64_t step) {
  gpuf_checkpoint *const c = open_writer(options);
  CHECK_OK(gpuf_checkpoint_begin(c, step, NULL, &err));
  for (int i = 0; i < t->count; i++) {
    CHECK_OK(gpuf_checkpoint_add(c, i % 2 ? "/a/u" : "a/u", &t->tensor[i], &t->part[i], &err));
    if (i == 0) {
      CHECK_OK(gpuf_checkpoint_add(c, "whole", &t->whole, NULL, &err));
    }
  }
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  for (int i = 0; i < t->count; i++) {
    if (t->tensor[i].device.kind == GPUF_DEVICE_CPU) {
      memset(t->tensor[i].data, 0xee, gpuf_tensor_nbytes(&t->tensor[i]));
    }
  }
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
}

static void parts_come_back_as_one_array(void) {
  static const gpuf_dtype dtypes[] = {GPUF_DTYPE_FLOAT32, GPUF_DTYPE_UINT8, GPUF_DTYPE_FLOAT64};
  static const int64_t zeros[3] = {0};
  uint64_t state = 3;
  make_folder();
  for (int i = 0; i < 12; i++) {
    const int64_t shape[] = {1 + (int64_t)random_below(&state, 60),
                             1 + (int64_t)random_below(&state, 60),
                             1 + (int64_t)random_below(&state, 90)};
    tiling t = {.whole = create_cpu(dtypes[i % 3], 3, shape, (uint64_t)i)};
    cut(&t, zeros, shape, 1 + i % 5, i % 4 == 1, &state);
    gpuf_checkpoint_options options = options_in_folder("run");
    options.device = test_device;
    options.mode = modes[i % 3];
    options.state_nbytes = gpuf_tensor_nbytes(&t.whole) * (size_t)(1 + i % 2);
    options.uncompressed = i % 6 == 3;
    write_tiling(&options, &t, i);
    gpuf_restart *const r = open_restart("run", i);
    CHECK(strcmp(gpuf_restart_name(r, 0), "a/u") == 0 && !gpuf_restart_name(r, 2));
    check_restarted(r, "a/u", &t.whole);
    check_restarted(r, "whole", &t.whole);
    gpuf_restart_close(r);
    destroy_tiling(&t);
  }
  remove_folder();
}

/* Particles over three domains, of which some have none. */
static void parts_without_elements_stand_beside_the_others(void) {
  static const int64_t splits[][3] = {
      {600, 0, 400}, {1000, 0, 0}, {0, 1000, 0}, {0, 0, 1000}, {0, 0, 0}};
  const int64_t longest[] = {1000};
  make_folder();
  for (size_t i = 0; i < sizeof(splits) / sizeof(*splits); i++) {
    const int64_t count = splits[i][0] + splits[i][1] + splits[i][2];
    tiling t = {.whole = create_cpu(GPUF_DTYPE_FLOAT64, 1, longest, i)};
    t.whole.shape[0] = count;
    int64_t start[1] = {0};
    for (int k = 0; k < 3; k++) {
      add_part(&t, start, &splits[i][k], i % 2);
      start[0] += splits[i][k];
    }
    gpuf_checkpoint_options options = options_in_folder("run");
    options.device = test_device;
    write_tiling(&options, &t, (int64_t)i);
    gpuf_restart *const r = open_restart("run", (int64_t)i);
    check_restarted(r, "a/u", &t.whole);
    gpuf_restart_close(r);
    destroy_tiling(&t);
  }
  remove_folder();
}

/* --- What is refused ------------------------------------------------------------ */

static const int64_t shape[] = {8, 6};

static gpuf_part part_at(int64_t row, int64_t column) {
  gpuf_part part = GPUF_PART_INIT;
  memcpy(part.shape, shape, sizeof(shape));
  part.start[0] = row;
  part.start[1] = column;
  return part;
}

static void parts_that_overlap_or_differ_are_refused(void) {
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *const c = open_writer(&options);
  gpuf_tensor upper = create_cpu(GPUF_DTYPE_FLOAT32, 2, (const int64_t[]){4, 6}, 1);
  gpuf_tensor other = upper;
  gpuf_part top = part_at(0, 0), bottom = part_at(4, 0), middle = part_at(3, 0);
  gpuf_part outside = part_at(5, 0), longer = part_at(4, 0), before = part_at(-1, 0);
  longer.shape[0]++;
  other.dtype = GPUF_DTYPE_INT32;
  CHECK_OK(gpuf_checkpoint_begin(c, 1, NULL, &err));
  CHECK_FAILS(gpuf_checkpoint_add(c, "", &upper, &top, &err), GPUF_ERR_INVALID, "name");
  CHECK_OK(gpuf_checkpoint_add(c, "u", &upper, &top, &err));
  CHECK_FAILS(gpuf_checkpoint_add(c, "u", &upper, &top, &err), GPUF_ERR_INVALID, "overlap");
  CHECK_FAILS(gpuf_checkpoint_add(c, "u", &upper, &middle, &err), GPUF_ERR_INVALID, "(3, 0)");
  CHECK_FAILS(gpuf_checkpoint_add(c, "u", &upper, &outside, &err), GPUF_ERR_INVALID, "axis 0");
  CHECK_FAILS(gpuf_checkpoint_add(c, "u", &upper, &before, &err), GPUF_ERR_INVALID, "axis 0");
  CHECK_FAILS(gpuf_checkpoint_add(c, "u", &upper, &longer, &err), GPUF_ERR_INVALID, "(9, 6)");
  CHECK_FAILS(gpuf_checkpoint_add(c, "u", &other, &bottom, &err), GPUF_ERR_INVALID, "int32");
  CHECK_FAILS(gpuf_checkpoint_add(c, "u", &upper, NULL, &err), GPUF_ERR_INVALID, "before");
  CHECK_FAILS(gpuf_checkpoint_add(c, "u/v", &upper, &top, &err), GPUF_ERR_INVALID, "dataset");
  CHECK_OK(gpuf_checkpoint_add(c, "whole", &upper, NULL, &err));
  CHECK_FAILS(gpuf_checkpoint_add(c, "whole", &upper, &top, &err), GPUF_ERR_INVALID, "whole");
  CHECK_OK(gpuf_checkpoint_add(c, "u", &upper, &bottom, &err));
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  gpuf_restart_close(open_restart("run", 1));
  destroy(&upper);
  remove_folder();
}

static void a_gap_costs_that_checkpoint(void) {
  make_folder();
  const gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_checkpoint *const c = open_writer(&options);
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  gpuf_tensor corner = create_cpu(GPUF_DTYPE_FLOAT32, 2, (const int64_t[]){4, 3}, 1);
  for (int64_t step = 1; step <= 2; step++) {
    CHECK_OK(gpuf_checkpoint_begin(c, step, &report, &err));
    for (int i = 0; i < (step == 1 ? 3 : 4); i++) {
      const gpuf_part part = part_at(i / 2 * 4, i % 2 * 3);
      CHECK_OK(gpuf_checkpoint_add(c, "u", &corner, &part, &err));
    }
    if (step == 1) {
      CHECK_FAILS(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err), GPUF_ERR_INVALID, "36 of");
      CHECK_FAILS(gpuf_checkpoint_wait(c, -1, NULL, &err), GPUF_ERR_INVALID, "36 of its 48");
    } else {
      CHECK(report.step == 1 && report.status == GPUF_ERR_INVALID);
      CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
    }
  }
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  gpuf_restart_close(open_restart("run", 2));
  CHECK(count_files(".h5", false) == 1);
  destroy(&corner);
  remove_folder();
}

int main(void) {
  TEST_ON_DEVICES(parts_come_back_as_one_array);
  TEST_ON_DEVICES(parts_without_elements_stand_beside_the_others);
  TEST(parts_that_overlap_or_differ_are_refused);
  TEST(a_gap_costs_that_checkpoint);
  return test_finish();
}
