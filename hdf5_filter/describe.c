#include "describe.h"
#include "base/error.h"

#include <string.h>

/* H5T_COMPLEX of HDF5 2.0, which older headers do not name. */
#define CLASS_COMPLEX 11
#define NESTING_MAX 32

/* An element as `count` scalars of `dtype`, in one byte order. */
typedef struct element {
  gpuf_dtype dtype;
  size_t count;
  bool big_endian;
} element;

/* Whether the type, or one nested in it, keeps its values elsewhere. */
static gpuf_status check_nested(const gpufi_caller *caller, hid_t type, int depth,
                                gpuf_error *err) {
  const int class = (int)caller->type_class(type);
  gpuf_status status = GPUF_OK;
  if (class < 0 || depth > NESTING_MAX) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0, "the datatype cannot be examined");
  }
  if (class == H5T_VLEN || class == H5T_REFERENCE ||
      (class == H5T_STRING && caller->type_is_variable_str(type) != 0)) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "variable-length and reference types keep their values outside the chunk, "
                      "so the gpufetch filter does nothing for them; create this dataset without "
                      "it");
  }
  if (class == H5T_ARRAY) {
    const hid_t base = caller->type_super(type);
    status = check_nested(caller, base, depth + 1, err);
    caller->type_close(base);
  } else if (class == H5T_COMPOUND) {
    const int count = caller->type_nmembers(type);
    for (int i = 0; i < count && status == GPUF_OK; i++) {
      const hid_t member = caller->type_member(type, (unsigned)i);
      status = check_nested(caller, member, depth + 1, err);
      caller->type_close(member);
    }
  }
  return status;
}

gpuf_status gpufi_describe_check(const gpufi_caller *caller, hid_t type, gpuf_error *err) {
  return check_nested(caller, type, 0, err);
}

/* Any other element: bytes. */
static element bytes(size_t nbytes) {
  return (element){GPUF_DTYPE_UINT8, nbytes, false};
}

static element describe_integer(const gpufi_caller *caller, hid_t type, size_t nbytes) {
  static const gpuf_dtype by_size[2][9] = {
      {[1] = GPUF_DTYPE_UINT8,
       [2] = GPUF_DTYPE_UINT16,
       [4] = GPUF_DTYPE_UINT32,
       [8] = GPUF_DTYPE_UINT64},
      {[1] = GPUF_DTYPE_INT8,
       [2] = GPUF_DTYPE_INT16,
       [4] = GPUF_DTYPE_INT32,
       [8] = GPUF_DTYPE_INT64},
  };
  const bool is_signed = caller->type_sign(type) == H5T_SGN_2;
  const gpuf_dtype dtype = nbytes <= 8 ? by_size[is_signed][nbytes] : 0;
  if (dtype == 0) {
    return bytes(nbytes);
  }
  return (element){dtype, 1, nbytes > 1 && caller->type_order(type) == H5T_ORDER_BE};
}

/* The floats that are not taken as bytes. */
static const struct {
  uint8_t nbytes, exponent_bits, mantissa_bits;
  gpuf_dtype dtype;
} floats[] = {
    {1, 3, 4, GPUF_DTYPE_FLOAT8_E3M4}, {1, 4, 3, GPUF_DTYPE_FLOAT8_E4M3},
    {1, 5, 2, GPUF_DTYPE_FLOAT8_E5M2}, {2, 5, 10, GPUF_DTYPE_FLOAT16},
    {2, 8, 7, GPUF_DTYPE_BFLOAT16},    {4, 8, 23, GPUF_DTYPE_FLOAT32},
    {8, 11, 52, GPUF_DTYPE_FLOAT64},
};

static element describe_float(const gpufi_caller *caller, hid_t type, size_t nbytes) {
  size_t sign_at, exponent_at, exponent_bits, mantissa_at, mantissa_bits;
  const bool big_endian = nbytes > 1 && caller->type_order(type) == H5T_ORDER_BE;
  if (caller->type_fields(type, &sign_at, &exponent_at, &exponent_bits, &mantissa_at,
                          &mantissa_bits) < 0) {
    return bytes(nbytes);
  }
  for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++) {
    if (nbytes == floats[i].nbytes && exponent_bits == floats[i].exponent_bits &&
        mantissa_bits == floats[i].mantissa_bits) {
      return (element){floats[i].dtype, 1, big_endian};
    }
  }
  return bytes(nbytes);
}

static element describe_element(const gpufi_caller *caller, hid_t type);

/* Complex elements whose real and imaginary components are like `component`. */
static element complex_of(element component, size_t nbytes) {
  if (component.count == 1 && component.dtype == GPUF_DTYPE_FLOAT32 && nbytes == 8) {
    return (element){GPUF_DTYPE_COMPLEX64, 1, component.big_endian};
  }
  if (component.count == 1 && component.dtype == GPUF_DTYPE_FLOAT64 && nbytes == 16) {
    return (element){GPUF_DTYPE_COMPLEX128, 1, component.big_endian};
  }
  return bytes(nbytes);
}

/* A compound of two like floats side by side is how complex numbers are stored. */
static element describe_compound(const gpufi_caller *caller, hid_t type, size_t nbytes) {
  if (caller->type_nmembers(type) != 2) {
    return bytes(nbytes);
  }
  const hid_t first = caller->type_member(type, 0), second = caller->type_member(type, 1);
  const bool nested =
      caller->type_class(first) != H5T_FLOAT || caller->type_class(second) != H5T_FLOAT;
  const bool side_by_side =
      caller->type_member_offset(type, 0) == 0 && caller->type_member_offset(type, 1) == nbytes / 2;
  element found = bytes(nbytes);
  if (!nested && side_by_side) {
    const element real = describe_element(caller, first);
    const element imaginary = describe_element(caller, second);
    if (real.dtype == imaginary.dtype && real.big_endian == imaginary.big_endian) {
      found = complex_of(real, nbytes);
    }
  }
  caller->type_close(first);
  caller->type_close(second);
  return found;
}

/* An array of numbers, or an enumeration of integers. */
static element describe_derived(const gpufi_caller *caller, hid_t type, size_t nbytes, int class) {
  const hid_t base = caller->type_super(type);
  const size_t base_nbytes = caller->type_size(base);
  element found = bytes(nbytes);
  if (base_nbytes != 0 && nbytes % base_nbytes == 0) {
    found = describe_element(caller, base);
    if (class == CLASS_COMPLEX) {
      found = complex_of(found, nbytes);
    } else {
      found.count *= nbytes / base_nbytes;
    }
  }
  caller->type_close(base);
  return found;
}

static element describe_element(const gpufi_caller *caller, hid_t type) {
  const size_t nbytes = caller->type_size(type);
  const int class = (int)caller->type_class(type);
  switch (class) {
  case H5T_INTEGER:
  case H5T_BITFIELD:
  case H5T_TIME:
    return describe_integer(caller, type, nbytes);
  case H5T_FLOAT:
    return describe_float(caller, type, nbytes);
  case H5T_COMPOUND:
    return describe_compound(caller, type, nbytes);
  case H5T_ENUM:
  case H5T_ARRAY:
  case CLASS_COMPLEX:
    return describe_derived(caller, type, nbytes, class);
  default:
    return bytes(nbytes);
  }
}

/* Fold the two slowest axes into one until `ndim` fits. False if an axis gets too long. */
static bool fold_axes(uint64_t *dims, int *ndim) {
  while (*ndim > GPUFI_CODEC_NDIM_MAX) {
    if (dims[0] == 0 || dims[1] > UINT32_MAX / dims[0]) {
      return false;
    }
    dims[1] *= dims[0];
    memmove(dims, dims + 1, (size_t)(*ndim - 1) * sizeof(dims[0]));
    (*ndim)--;
  }
  return true;
}

gpuf_status gpufi_describe_chunk(const gpufi_caller *caller, hid_t dcpl, hid_t type,
                                 gpufi_chunk_shape *shape, bool *big_endian, gpuf_error *err) {
  hsize_t chunk[H5S_MAX_RANK];
  uint64_t dims[H5S_MAX_RANK + 1];
  size_t raw_nbytes;
  const element what = describe_element(caller, type);
  int ndim = caller->get_chunk(dcpl, H5S_MAX_RANK, chunk);
  if (ndim < 1 || ndim > H5S_MAX_RANK) {
    return gpufi_fail(err, GPUF_ERR_HDF5, 0, "the dataset's chunk shape cannot be read (rank %d)",
                      ndim);
  }
  for (int a = 0; a < ndim; a++) {
    dims[a] = chunk[a];
  }
  if (what.count != 1) {
    dims[ndim++] = what.count;
  }
  bool fits = fold_axes(dims, &ndim);
  memset(shape, 0, sizeof(*shape));
  shape->dtype = what.dtype;
  shape->ndim = ndim;
  for (int a = 0; a < ndim && fits; a++) {
    fits = dims[a] <= UINT32_MAX;
    shape->dims[a] = (uint32_t)dims[a];
  }
  if (!fits) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "the chunk has 4 GiB or more; choose smaller chunk dimensions");
  }
  *big_endian = what.big_endian;
  return gpufi_chunk_raw_nbytes(shape, &raw_nbytes, err);
}
