/* Import of tensors from DLPack capsules. */
#include "dlpack_in.h"

#include "devices.h"
#include "dlpack_abi.h"
#include "dlpack_capsule.h"

static void taken_destroy(PyObject *capsule) {
  gpufi_py_dlpack_run_deleter(capsule, GPUFI_DL_NAME_USED, GPUFI_DL_NAME_VERSIONED_USED);
}

/* Name of a DLPack type code, for messages. */
static const char *code_name(uint8_t code) {
  static const char *const names[] = {"int",           "uint",         "float",  "opaque handle",
                                      "bfloat",        "complex",      "bool",   "float8_e3m4",
                                      "float8_e4m3",   "float8",       "float8", "float8",
                                      "float8_e5m2",   "float8",       "float8", "float6_e2m3fn",
                                      "float6_e3m2fn", "float4_e2m1fn"};
  return code < sizeof(names) / sizeof(names[0]) ? names[code] : "unknown code";
}

static int refuse_dtype(gpufi_dl_dtype dtype) {
  const char *remedy = "convert it to a supported dtype with the producer's own cast first";
  if (dtype.bits < 8 || dtype.code >= GPUFI_DL_FLOAT6_E2M3FN) {
    remedy = "elements smaller than a byte have no NumPy counterpart: view the memory as uint8, "
             "or cast it to float8 or wider first";
  } else if (dtype.lanes != 1) {
    remedy = "view it as its scalar type with one more axis first";
  } else if (dtype.code == GPUFI_DL_COMPLEX) {
    remedy = "complex32 has no NumPy counterpart: cast it to complex64, or view it as pairs of "
             "float16 (torch.view_as_real) first";
  }
  PyErr_Format(PyExc_TypeError,
               "DLPack dtype %s (code %d) of %d bits, %d lanes is not supported: %s",
               code_name(dtype.code), (int)dtype.code, (int)dtype.bits, (int)dtype.lanes, remedy);
  return -1;
}

/* The integer type of `bits` bits in a row that starts with the 8-bit one, or 0. */
static int integer_dtype(int first, uint8_t bits) {
  return bits == 8    ? first
         : bits == 16 ? first + 1
         : bits == 32 ? first + 2
         : bits == 64 ? first + 3
                      : 0;
}

static int dtype_from_dlpack(gpufi_dl_dtype dtype, gpuf_dtype *result) {
  int found = 0;
  if (dtype.lanes == 1) {
    switch (dtype.code) {
    case GPUFI_DL_INT:
      found = integer_dtype(GPUF_DTYPE_INT8, dtype.bits);
      break;
    case GPUFI_DL_UINT:
      found = integer_dtype(GPUF_DTYPE_UINT8, dtype.bits);
      break;
    case GPUFI_DL_FLOAT:
      found = dtype.bits == 16   ? GPUF_DTYPE_FLOAT16
              : dtype.bits == 32 ? GPUF_DTYPE_FLOAT32
              : dtype.bits == 64 ? GPUF_DTYPE_FLOAT64
                                 : 0;
      break;
    case GPUFI_DL_BFLOAT:
      found = dtype.bits == 16 ? GPUF_DTYPE_BFLOAT16 : 0;
      break;
    case GPUFI_DL_COMPLEX:
      found = dtype.bits == 64    ? GPUF_DTYPE_COMPLEX64
              : dtype.bits == 128 ? GPUF_DTYPE_COMPLEX128
                                  : 0;
      break;
    case GPUFI_DL_BOOL:
      found = dtype.bits == 8 ? GPUF_DTYPE_BOOL : 0;
      break;
    default:
      if (dtype.code >= GPUFI_DL_FLOAT8_E3M4 && dtype.code <= GPUFI_DL_FLOAT8_E8M0FNU &&
          dtype.bits == 8) {
        found = GPUF_DTYPE_FLOAT8_E3M4 + (dtype.code - GPUFI_DL_FLOAT8_E3M4);
      }
    }
  }
  if (!found) {
    return refuse_dtype(dtype);
  }
  *result = (gpuf_dtype)found;
  return 0;
}

static int device_from_dlpack(gpufi_dl_device device, gpuf_device *result) {
  static const char *const names[] = {
      "0",         "kDLCPU",      "kDLCUDA",   "kDLCUDAHost",    "kDLOpenCL",
      "5",         "6",           "kDLVulkan", "kDLMetal",       "kDLVPI",
      "kDLROCM",   "kDLROCMHost", "kDLExtDev", "kDLCUDAManaged", "kDLOneAPI",
      "kDLWebGPU", "kDLHexagon",  "kDLMAIA",   "kDLTrn"};
  switch (device.type) {
  case GPUFI_DL_CPU:
  case GPUFI_DL_CUDA_HOST:
    *result = (gpuf_device){GPUF_DEVICE_CPU, 0};
    return 0;
  case GPUFI_DL_CUDA:
  case GPUFI_DL_CUDA_MANAGED:
    *result = (gpuf_device){GPUF_DEVICE_CUDA, device.id};
    return 0;
  case GPUFI_DL_EXT_DEV:
    *result = (gpuf_device){GPUF_DEVICE_HOST, device.id};
    return 0;
  default:
    PyErr_Format(PyExc_TypeError,
                 "a tensor on DLPack device %s (type %d) is not supported: copy it to the CPU or "
                 "a CUDA device first",
                 device.type > 0 && (size_t)device.type < sizeof(names) / sizeof(names[0])
                     ? names[device.type]
                     : "unknown",
                 (int)device.type);
    return -1;
  }
}

/* A stride in bytes. CuPy divides its byte strides as unsigned numbers, so that a negative one
 * arrives as 2^64 / size - k: modulo 2^64 the product is right again. */
static int stride_nbytes(int64_t stride, int64_t element_nbytes, int64_t *result) {
  const int64_t wrapped = (int64_t)((uint64_t)stride * (uint64_t)element_nbytes);
  if (__builtin_mul_overflow(stride, element_nbytes, result) && (stride < 0 || wrapped >= 0)) {
    return -1;
  }
  *result = wrapped;
  return 0;
}

/* Shape and strides; both must fit 64 bits in bytes. */
static int layout_from_dlpack(const gpufi_dl_tensor *source, gpuf_tensor *tensor) {
  const int64_t element_nbytes = (int64_t)gpuf_dtype_nbytes(tensor->dtype);
  if (source->ndim < 0 || source->ndim > GPUF_NDIM_MAX) {
    PyErr_Format(PyExc_ValueError,
                 "a tensor of %d dimensions is not supported: the limit is %d; reshape it first",
                 (int)source->ndim, GPUF_NDIM_MAX);
    return -1;
  }
  if (source->ndim > 0 && !source->shape) {
    PyErr_SetString(PyExc_ValueError, "the DLPack tensor has dimensions but no shape");
    return -1;
  }
  int64_t packed = element_nbytes;
  tensor->ndim = source->ndim;
  for (int32_t i = source->ndim - 1; i >= 0; i--) {
    const int64_t extent = source->shape[i];
    int64_t stride = packed;
    if (extent < 0) {
      PyErr_Format(PyExc_ValueError, "the DLPack tensor's shape[%d] is %lld: negative", (int)i,
                   (long long)extent);
      return -1;
    }
    /* Along an axis of one element the stride means nothing, whatever it is. */
    const bool strides = source->strides && extent > 1;
    if ((strides && stride_nbytes(source->strides[i], element_nbytes, &stride) < 0) ||
        __builtin_mul_overflow(packed, extent > 0 ? extent : 1, &packed)) {
      PyErr_Format(PyExc_ValueError, "the DLPack tensor's extent overflows at axis %d", (int)i);
      return -1;
    }
    tensor->shape[i] = extent;
    tensor->strides_nbytes[i] = stride;
  }
  return 0;
}

static int tensor_from_dlpack(const gpufi_dl_tensor *source, gpuf_tensor *tensor) {
  if (dtype_from_dlpack(source->dtype, &tensor->dtype) < 0 ||
      device_from_dlpack(source->device, &tensor->device) < 0 ||
      layout_from_dlpack(source, tensor) < 0) {
    return -1;
  }
  uintptr_t address;
  if (source->byte_offset > PTRDIFF_MAX ||
      __builtin_add_overflow((uintptr_t)source->data, source->byte_offset, &address)) {
    PyErr_Format(PyExc_ValueError,
                 "the DLPack tensor's byte_offset is %llu, which reaches beyond memory",
                 (unsigned long long)source->byte_offset);
    return -1;
  }
  tensor->data = source->data ? (void *)address : NULL;
  /* __dlpack__ was called so that the legacy default stream waits for the producer's work. */
  tensor->stream = gpufi_py_device_stream(tensor->device);
  return 0;
}

/* Make the capsule the owner of the tensor, as a consumer is: it is renamed, so that the producer's
 * destructor would leave it alone, and has our destructor in place of that. */
static void *take(PyObject *capsule, const char *name, const char *used_name) {
  void *managed = PyCapsule_GetPointer(capsule, name);
  if (!managed || PyCapsule_SetName(capsule, used_name) != 0 ||
      PyCapsule_SetDestructor(capsule, taken_destroy) != 0) {
    return NULL;
  }
  return managed;
}

static const gpufi_dl_tensor *take_versioned(PyObject *capsule, uint64_t *flags) {
  const gpufi_dl_managed_versioned *managed =
      take(capsule, GPUFI_DL_NAME_VERSIONED, GPUFI_DL_NAME_VERSIONED_USED);
  if (!managed) {
    return NULL;
  }
  if (managed->major != GPUFI_DLPACK_MAJOR) {
    PyErr_Format(PyExc_BufferError, "DLPack version %u.%u is not supported: %d.x is",
                 (unsigned)managed->major, (unsigned)managed->minor, GPUFI_DLPACK_MAJOR);
    return NULL;
  }
  *flags = managed->flags;
  return &managed->tensor;
}

static const gpufi_dl_tensor *take_legacy(PyObject *capsule) {
  const gpufi_dl_managed *managed = take(capsule, GPUFI_DL_NAME, GPUFI_DL_NAME_USED);
  return managed ? &managed->tensor : NULL;
}

int gpufi_py_dlpack_take(PyObject *capsule, gpufi_py_import *import) {
  const gpufi_dl_tensor *tensor = NULL;
  uint64_t flags = 0;
  if (PyCapsule_IsValid(capsule, GPUFI_DL_NAME_VERSIONED)) {
    tensor = take_versioned(capsule, &flags);
  } else if (PyCapsule_IsValid(capsule, GPUFI_DL_NAME)) {
    tensor = take_legacy(capsule);
  } else {
    PyErr_Format(PyExc_TypeError,
                 "__dlpack__ gave %R, not an unconsumed DLPack capsule: a capsule can be used "
                 "once only",
                 capsule);
  }
  if (!tensor || tensor_from_dlpack(tensor, &import->tensor) < 0) {
    return -1;
  }
  import->readonly = (flags & GPUFI_DL_FLAG_READ_ONLY) != 0;
  if (flags & GPUFI_DL_FLAG_IS_COPIED) {
    import->copied = "its __dlpack__ gives a copy: pass a tensor that it can share";
  }
  import->keepalive = Py_NewRef(capsule);
  return 0;
}
