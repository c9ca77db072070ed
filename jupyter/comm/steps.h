/* The last time step that the program has completed. One thread sets it, any thread reads it,
 * without locks. */
#ifndef GPUFI_COMM_STEPS_H
#define GPUFI_COMM_STEPS_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A sequence lock with one writer. All zero: there was no step yet. */
typedef struct gpufi_steps {
  atomic_uint_least64_t sequence; /* odd while the rest changes, 0 before the first step */
  atomic_int_least64_t step;
  atomic_uint_least64_t time_bits;
} gpufi_steps;

void gpufi_steps_set(gpufi_steps *steps, int64_t step, double time);
/* False before the first step. */
bool gpufi_steps_last(const gpufi_steps *steps, int64_t *step, double *time);
/* How many steps there were. */
uint64_t gpufi_steps_count(const gpufi_steps *steps);
/* Set the members `step` and `time` of a reply; null before the first step. */
void gpufi_steps_describe(const gpufi_steps *steps, json_t **object);

#endif
