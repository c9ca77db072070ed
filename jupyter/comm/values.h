/* Values beside the tensors, by name: integers, numbers, text. Thread-safety: any thread. */
#ifndef GPUFI_COMM_VALUES_H
#define GPUFI_COMM_VALUES_H

#include "comm/protocol.h"

#include <gpufetch/gpufetch.h>
#include <jansson.h>
#include <pthread.h>

typedef struct gpufi_value {
  struct gpufi_value *next;
  json_t *json; /* never changed; its references are counted under the lock */
  char name[GPUFI_TENSOR_NAME_MAX_NBYTES + 1];
} gpufi_value;

typedef struct gpufi_values {
  int32_t max;
  pthread_mutex_t lock; /* guards what follows */
  gpufi_value *first;   /* by name */
} gpufi_values;

void gpufi_values_init(gpufi_values *values, int32_t max);
void gpufi_values_fini(gpufi_values *values);

/* Publish a value, in place of one that has the name. Takes over `json`; NULL is an allocation that
 * failed. */
gpuf_status gpufi_values_put(gpufi_values *values, const char *name, json_t *json, gpuf_error *err);
/* False if there is none of that name. */
bool gpufi_values_remove(gpufi_values *values, const char *name);

#endif
