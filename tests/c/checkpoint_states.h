/* States of tensors, large and small, that tests of sharded checkpoints write and compare. */
#ifndef GPUFI_TEST_CHECKPOINT_STATES_H
#define GPUFI_TEST_CHECKPOINT_STATES_H

#include "checkpoint_shards.h"

#define TENSORS_MAX 64

typedef struct state {
  gpuf_tensor tensors[TENSORS_MAX];
  char names[TENSORS_MAX][40];
  int count;
} state;

static inline void put(state *s, const char *name, gpuf_dtype dtype, int32_t ndim,
                       const int64_t *shape) {
  CHECK(s->count < TENSORS_MAX);
  snprintf(s->names[s->count], sizeof(s->names[0]), "%s", name);
  s->tensors[s->count] = create_cpu(dtype, ndim, shape, (uint64_t)s->count + 1);
  s->count++;
}

/* One that is larger than all others together, several of some chunks, many small ones, and some
 * that have no chunks. */
static inline state mixed_state(void) {
  state s = {.count = 0};
  put(&s, "scalar", GPUF_DTYPE_FLOAT64, 0, NULL);
  put(&s, "a/large", GPUF_DTYPE_FLOAT32, 3, (const int64_t[]){35, 100, 300});
  put(&s, "empty", GPUF_DTYPE_INT32, 2, (const int64_t[]){0, 7});
  put(&s, "flat", GPUF_DTYPE_UINT8, 2, (const int64_t[]){1, 3000001});
  for (int i = 0; i < 30; i++) {
    char name[40];
    snprintf(name, sizeof(name), "small/100%%b %d", i);
    put(&s, name, i % 2 ? GPUF_DTYPE_INT16 : GPUF_DTYPE_BFLOAT16, 1, (const int64_t[]){1000 + i});
  }
  put(&s, "c", GPUF_DTYPE_COMPLEX64, 2, (const int64_t[]){600, 500});
  return s;
}

static inline state huge_state(void) {
  state s = {.count = 0};
  put(&s, "u", GPUF_DTYPE_FLOAT32, 2, (const int64_t[]){2000, 1000});
  return s;
}

static inline state small_state(void) {
  state s = {.count = 0};
  for (int i = 0; i < TENSORS_MAX; i++) {
    char name[40];
    snprintf(name, sizeof(name), "t%d", i);
    put(&s, name, GPUF_DTYPE_FLOAT32, 1, (const int64_t[]){5000});
  }
  return s;
}

static inline void destroy_state(state *s) {
  for (int i = 0; i < s->count; i++) {
    destroy(&s->tensors[i]);
  }
}

/* Written from the device where the mode is one of a device. What is on the CPU may change once
 * commit has returned. */
static inline void write_state(const gpuf_checkpoint_options *options, state *s, int64_t step) {
  const bool on_device = options->device.kind != GPUF_DEVICE_CPU;
  gpuf_tensor copies[TENSORS_MAX];
  gpuf_checkpoint_report report = GPUF_CHECKPOINT_REPORT_INIT;
  gpuf_checkpoint *const c = open_writer(options);
  CHECK_OK(gpuf_checkpoint_begin(c, step, NULL, &err));
  for (int i = 0; i < s->count; i++) {
    if (on_device) {
      copies[i] = copy_to_device(&s->tensors[i]);
    } else {
      copies[i] = create_cpu(s->tensors[i].dtype, s->tensors[i].ndim, s->tensors[i].shape, 9);
      CHECK_OK(gpuf_copy(&copies[i], &s->tensors[i], NULL, &err));
    }
    CHECK_OK(gpuf_checkpoint_add(c, s->names[i], &copies[i], NULL, &err));
  }
  CHECK_OK(gpuf_checkpoint_add_int64(c, "step", step, &err));
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  for (int i = 0; i < s->count; i++) {
    if (!on_device) {
      memset(copies[i].data, 0xee, gpuf_tensor_nbytes(&copies[i]));
    }
    destroy(&copies[i]);
  }
  CHECK_OK(gpuf_checkpoint_wait(c, -1, &report, &err));
  CHECK(report.status == GPUF_OK && !*report.message && report.file_nbytes > 0);
  CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
}

/* A box at random, from a restart and from the expected tensor. */
static inline void check_box(gpuf_restart *r, const char *name, const gpuf_tensor *expected,
                             uint64_t *random) {
  gpuf_part part = GPUF_PART_INIT;
  int64_t shape[GPUF_NDIM_MAX];
  gpuf_tensor view = *expected;
  for (int32_t axis = 0; axis < expected->ndim; axis++) {
    const int64_t whole = expected->shape[axis];
    part.shape[axis] = whole;
    part.start[axis] = (int64_t)random_below(random, (uint64_t)whole);
    shape[axis] = 1 + (int64_t)random_below(random, (uint64_t)(whole - part.start[axis]));
    CHECK_OK(gpuf_tensor_slice(&view, axis, part.start[axis], 1, shape[axis], &err));
  }
  gpuf_tensor packed = create_cpu(expected->dtype, expected->ndim, shape, 5);
  gpuf_tensor found = create_cpu(expected->dtype, expected->ndim, shape, 6);
  CHECK_OK(gpuf_copy(&packed, &view, NULL, &err));
  CHECK_OK(gpuf_restart_read(r, name, &found, &part, &err));
  check_equal(&found, &packed);
  gpuf_tensor d_found = create_on_device(&packed);
  CHECK_OK(gpuf_restart_read(r, name, &d_found, &part, &err));
  check_equal(&d_found, &packed);
  DESTROY(&packed, &found, &d_found);
}

static inline void check_state(const char *prefix, const state *s, int64_t step) {
  uint64_t random = 3;
  int64_t value = 0;
  gpuf_restart *const r = open_restart(prefix, step);
  for (int i = 0; i < s->count; i++) {
    CHECK(strcmp(gpuf_restart_name(r, (size_t)i), s->names[i]) == 0);
    check_restarted(r, s->names[i], &s->tensors[i]);
    for (int k = 0; k < 3 && gpuf_tensor_count(&s->tensors[i]) > 0; k++) {
      check_box(r, s->names[i], &s->tensors[i], &random);
    }
  }
  CHECK_OK(gpuf_restart_get_int64(r, "step", &value, &err));
  CHECK(value == step);
  gpuf_restart_close(r);
}

static inline state two_steps(const gpuf_checkpoint_options *options) {
  state s = huge_state();
  gpuf_checkpoint_options plain = *options;
  plain.uncompressed = true;
  write_state(options, &s, 1);
  write_state(&plain, &s, 2);
  return s;
}

#endif
