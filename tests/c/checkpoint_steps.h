/* What tests of a prefix's checkpoints share: steps whose elements tell their number. */
#ifndef GPUFI_TEST_CHECKPOINT_STEPS_H
#define GPUFI_TEST_CHECKPOINT_STEPS_H

#include "checkpoint_files.h"

static const int64_t shape[] = {100, 200};

/* Write a checkpoint of one tensor, whose elements tell the step. */
static inline gpuf_tensor state_of(int64_t step) {
  return create_cpu(GPUF_DTYPE_FLOAT32, 2, shape, (uint64_t)step);
}

static inline void commit_step(gpuf_checkpoint *c, int64_t step) {
  gpuf_tensor u = state_of(step);
  CHECK_OK(gpuf_checkpoint_begin(c, step, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "u", &u, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add_int64(c, "step", step, &err));
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  destroy(&u);
}

static inline void write_step(gpuf_checkpoint *c, int64_t step) {
  commit_step(c, step);
  CHECK_OK(gpuf_checkpoint_wait(c, -1, NULL, &err));
}

static inline void check_newest(const char *prefix, int64_t step) {
  gpuf_tensor expected = state_of(step);
  gpuf_restart *const r = open_restart(prefix, step);
  int64_t value = -1;
  check_restarted(r, "u", &expected);
  CHECK_OK(gpuf_restart_get_int64(r, "step", &value, &err));
  CHECK(value == step);
  gpuf_restart_close(r);
  destroy(&expected);
}

#endif
