/* What the operations of the fault tests work on: a matrix of floats on a device. */
#ifndef GPUFI_TEST_FAULT_TENSORS_H
#define GPUFI_TEST_FAULT_TENSORS_H

#include <math.h>

#include "fault_cases.h"

#define ROWS 96
#define COLUMNS 1000
#define COUNT ((size_t)ROWS * COLUMNS)

static float values[COUNT]; /* what d_source holds */
static float result[COUNT];
static gpuf_tensor d_source, d_target;

static inline gpuf_tensor tensor_of(const void *data, gpuf_device device, int64_t rows,
                                    int64_t columns) {
  const int64_t shape[] = {rows, columns};
  gpuf_tensor tensor;
  CHECK_OK(gpuf_tensor_init(&tensor, data, device, GPUF_DTYPE_FLOAT32, 2, shape, &err));
  return tensor;
}

static inline gpuf_tensor device_tensor(const float *from) {
  const int64_t shape[] = {ROWS, COLUMNS};
  gpuf_tensor tensor;
  CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_FLOAT32, 2, shape, &tensor, &err));
  if (from) {
    access_device(tensor.data, (void *)from, sizeof(values), true);
  }
  return tensor;
}

static inline void fill_values(void) {
  for (size_t i = 0; i < COUNT; i++) {
    values[i] = sinf((float)(i % COLUMNS) / 50.0F) + (float)(i / COLUMNS);
  }
}

static inline void prepare_tensors(void) {
  d_source = device_tensor(values);
  d_target = device_tensor(NULL);
}

static inline bool is_whole(const float *got) {
  return memcmp(got, values, sizeof(values)) == 0;
}

/* Memory on the CPU without anything right in it. */
static inline gpuf_tensor fresh_result(int64_t rows, int64_t columns) {
  memset(result, 0xa5, sizeof(result));
  return tensor_of(result, cpu_device, rows, columns);
}

static inline gpuf_tensor every_second_column(gpuf_tensor tensor) {
  CHECK_OK(gpuf_tensor_slice(&tensor, 1, 0, 2, tensor.shape[1] / 2, &err));
  return tensor;
}

static inline bool has_every_second_column(const float *got) {
  for (size_t i = 0; i < COUNT / 2; i++) {
    if (got[i] != values[2 * i]) {
      return false;
    }
  }
  return true;
}

/* What the target's memory on the device holds, which is poisoned for the next attempt. */
static inline const float *take_target(void) {
  faults_disarm();
  access_device(d_target.data, result, sizeof(result), false);
  static float poison[COUNT];
  memset(poison, 0xff, sizeof(poison));
  access_device(d_target.data, poison, sizeof(poison), true);
  return result;
}

#endif
