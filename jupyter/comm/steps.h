/* The last time step that the program has completed. Any thread sets it; readers take no lock. */
#ifndef GPUFI_COMM_STEPS_H
#define GPUFI_COMM_STEPS_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A sequence lock, whose writers take turns. */
typedef struct gpufi_steps {
  pthread_mutex_t writing;
  atomic_uint_least64_t sequence; /* odd while the rest changes, 0 before the first step */
  atomic_int_least64_t step;
  atomic_uint_least64_t time_bits;
} gpufi_steps;

/* There was no step yet. */
void gpufi_steps_init(gpufi_steps *steps);
void gpufi_steps_fini(gpufi_steps *steps);

void gpufi_steps_set(gpufi_steps *steps, int64_t step, double time);
/* False before the first step. */
bool gpufi_steps_last(const gpufi_steps *steps, int64_t *step, double *time);
/* How many steps there were. */
uint64_t gpufi_steps_count(const gpufi_steps *steps);
/* Set the members `step` and `time` of a reply; null before the first step. */
void gpufi_steps_describe(const gpufi_steps *steps, json_t **object);

#endif
