/* What the tests of reductions share: the element types, and memory on the test's device. */
#ifndef GPUFI_TEST_REDUCTIONS_H
#define GPUFI_TEST_REDUCTIONS_H

#include "devices.h"

static gpuf_error err;

static const gpuf_dtype real_dtypes[] = {
    GPUF_DTYPE_BOOL,           GPUF_DTYPE_INT8,
    GPUF_DTYPE_INT16,          GPUF_DTYPE_INT32,
    GPUF_DTYPE_INT64,          GPUF_DTYPE_UINT8,
    GPUF_DTYPE_UINT16,         GPUF_DTYPE_UINT32,
    GPUF_DTYPE_UINT64,         GPUF_DTYPE_FLOAT16,
    GPUF_DTYPE_BFLOAT16,       GPUF_DTYPE_FLOAT32,
    GPUF_DTYPE_FLOAT64,        GPUF_DTYPE_FLOAT8_E3M4,
    GPUF_DTYPE_FLOAT8_E4M3,    GPUF_DTYPE_FLOAT8_E4M3B11FNUZ,
    GPUF_DTYPE_FLOAT8_E4M3FN,  GPUF_DTYPE_FLOAT8_E4M3FNUZ,
    GPUF_DTYPE_FLOAT8_E5M2,    GPUF_DTYPE_FLOAT8_E5M2FNUZ,
    GPUF_DTYPE_FLOAT8_E8M0FNU,
};
enum { REAL_DTYPE_COUNT = sizeof(real_dtypes) / sizeof(real_dtypes[0]) };

static inline void *device_alloc(size_t nbytes) {
  void *d_ptr;
  CHECK_OK(gpuf_alloc(test_device, nbytes, &d_ptr, &err));
  return d_ptr;
}

static inline void upload(void *d_ptr, const void *bytes, size_t nbytes) {
  const int64_t shape[1] = {(int64_t)nbytes};
  gpuf_tensor dst, src;
  CHECK_OK(gpuf_tensor_init(&dst, d_ptr, test_device, GPUF_DTYPE_UINT8, 1, shape, &err));
  CHECK_OK(gpuf_tensor_init(&src, (void *)bytes, cpu_device, GPUF_DTYPE_UINT8, 1, shape, &err));
  CHECK_OK(gpuf_copy(&dst, &src, NULL, &err));
}

#endif
