#include "comm/steps.h"

#include "comm/json.h"

#include <string.h>

void gpufi_steps_init(gpufi_steps *steps) {
  *steps = (gpufi_steps){0};
  pthread_mutex_init(&steps->writing, NULL);
}

void gpufi_steps_fini(gpufi_steps *steps) {
  pthread_mutex_destroy(&steps->writing);
}

void gpufi_steps_set(gpufi_steps *steps, int64_t step, double time) {
  uint64_t bits;
  memcpy(&bits, &time, sizeof(bits));
  pthread_mutex_lock(&steps->writing);
  atomic_fetch_add(&steps->sequence, 1);
  atomic_store(&steps->step, step);
  atomic_store(&steps->time_bits, bits);
  atomic_fetch_add(&steps->sequence, 1);
  pthread_mutex_unlock(&steps->writing);
}

bool gpufi_steps_last(const gpufi_steps *steps, int64_t *step, double *time) {
  uint64_t before, after, bits;
  do {
    before = atomic_load(&steps->sequence);
    *step = atomic_load(&steps->step);
    bits = atomic_load(&steps->time_bits);
    after = atomic_load(&steps->sequence);
  } while (before != after || before % 2 == 1);
  memcpy(time, &bits, sizeof(bits));
  return before > 0;
}

uint64_t gpufi_steps_count(const gpufi_steps *steps) {
  return atomic_load(&steps->sequence) / 2;
}

void gpufi_steps_describe(const gpufi_steps *steps, json_t **object) {
  int64_t step;
  double time;
  const bool any = gpufi_steps_last(steps, &step, &time);
  gpufi_json_put(object, "step", any ? json_integer(step) : json_null());
  gpufi_json_put(object, "time", any ? gpufi_json_f64(time) : json_null());
}
