/* The DLPack 1.x binary interface: struct layouts and codes, as far as gpufetch needs them.
 * https://dmlc.github.io/dlpack/latest/c_api.html */
#ifndef GPUFI_PY_DLPACK_ABI_H
#define GPUFI_PY_DLPACK_ABI_H

#include <stdint.h>

#define GPUFI_DLPACK_MAJOR 1
#define GPUFI_DLPACK_MINOR 1

/* Capsule names; a consumer renames a capsule to the `used_` form when it takes the tensor. */
#define GPUFI_DL_NAME "dltensor"
#define GPUFI_DL_NAME_USED "used_dltensor"
#define GPUFI_DL_NAME_VERSIONED "dltensor_versioned"
#define GPUFI_DL_NAME_VERSIONED_USED "used_dltensor_versioned"

enum {
  GPUFI_DL_CPU = 1,
  GPUFI_DL_CUDA = 2,
  GPUFI_DL_CUDA_HOST = 3,
  GPUFI_DL_EXT_DEV = 12,
  GPUFI_DL_CUDA_MANAGED = 13,
};

enum {
  GPUFI_DL_INT = 0,
  GPUFI_DL_UINT = 1,
  GPUFI_DL_FLOAT = 2,
  GPUFI_DL_OPAQUE = 3,
  GPUFI_DL_BFLOAT = 4,
  GPUFI_DL_COMPLEX = 5,
  GPUFI_DL_BOOL = 6,
  GPUFI_DL_FLOAT8_E3M4 = 7, /* 7 .. 14: the fp8 types, in the order of gpuf_dtype */
  GPUFI_DL_FLOAT8_E8M0FNU = 14,
  GPUFI_DL_FLOAT6_E2M3FN = 15,
  GPUFI_DL_FLOAT6_E3M2FN = 16,
  GPUFI_DL_FLOAT4_E2M1FN = 17,
};

#define GPUFI_DL_FLAG_READ_ONLY (UINT64_C(1) << 0)
#define GPUFI_DL_FLAG_IS_COPIED (UINT64_C(1) << 1)

typedef struct gpufi_dl_dtype {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} gpufi_dl_dtype;

typedef struct gpufi_dl_device {
  int32_t type;
  int32_t id;
} gpufi_dl_device;

typedef struct gpufi_dl_tensor {
  void *data;
  gpufi_dl_device device;
  int32_t ndim;
  gpufi_dl_dtype dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; NULL = C order (not since 1.2) */
  uint64_t byte_offset;
} gpufi_dl_tensor;

typedef struct gpufi_dl_managed {
  gpufi_dl_tensor tensor;
  void *manager_ctx;
  void (*deleter)(struct gpufi_dl_managed *self);
} gpufi_dl_managed;

typedef struct gpufi_dl_managed_versioned {
  uint32_t major;
  uint32_t minor;
  void *manager_ctx;
  void (*deleter)(struct gpufi_dl_managed_versioned *self);
  uint64_t flags;
  gpufi_dl_tensor tensor;
} gpufi_dl_managed_versioned;

/* The C exchange API: function pointers on a producer's type, in a capsule of this name, since
 * DLPack 1.3. None of them synchronises. Each returns 0, or -1 with a Python exception set. */
#define GPUFI_DL_EXCHANGE_ATTRIBUTE "__dlpack_c_exchange_api__"
#define GPUFI_DL_NAME_EXCHANGE "dlpack_exchange_api"

typedef struct gpufi_dl_exchange {
  uint32_t major;
  uint32_t minor;
  struct gpufi_dl_exchange *previous; /* of an older major version, or NULL */
  void *allocate;
  int (*managed_from_object)(void *object, gpufi_dl_managed_versioned **managed);
  void *object_from_managed;
  void *tensor_from_object; /* optional */
  int (*current_work_stream)(int32_t device_type, int32_t device_id, void **stream);
} gpufi_dl_exchange;

#endif
