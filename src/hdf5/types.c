/* bool is h5py's enumeration and complex is h5py's compound {r, i}. bfloat16 and the small floats
 * that keep IEEE's infinities and NaNs are floating-point types of their own layout, which every
 * HDF5 converts exactly. The other small floats have no infinities, or another zero: HDF5 would
 * misread them as numbers, so each is a compound of one uint8 member that bears its name. */
#include "hdf5/types.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* Longer than the names of members that are looked for, so that none that is cut equals one. */
#define NAME_NBYTES 32

typedef struct float_layout {
  gpuf_dtype dtype;
  size_t nbytes;
  size_t exponent_bits;
  size_t mantissa_bits;
  size_t bias;
} float_layout;

static const float_layout float_layouts[] = {
    {GPUF_DTYPE_FLOAT16, 2, 5, 10, 15},    {GPUF_DTYPE_BFLOAT16, 2, 8, 7, 127},
    {GPUF_DTYPE_FLOAT32, 4, 8, 23, 127},   {GPUF_DTYPE_FLOAT64, 8, 11, 52, 1023},
    {GPUF_DTYPE_FLOAT8_E3M4, 1, 3, 4, 3},  {GPUF_DTYPE_FLOAT8_E4M3, 1, 4, 3, 7},
    {GPUF_DTYPE_FLOAT8_E5M2, 1, 5, 2, 15},
};
#define FLOAT_LAYOUT_COUNT (sizeof(float_layouts) / sizeof(float_layouts[0]))

/* The index is the sign (0 for unsigned), then the binary logarithm of the size. */
#define INTEGER_SIZE_COUNT ((size_t)4)
static const gpuf_dtype integers[2][INTEGER_SIZE_COUNT] = {
    {GPUF_DTYPE_UINT8, GPUF_DTYPE_UINT16, GPUF_DTYPE_UINT32, GPUF_DTYPE_UINT64},
    {GPUF_DTYPE_INT8, GPUF_DTYPE_INT16, GPUF_DTYPE_INT32, GPUF_DTYPE_INT64},
};

static const gpuf_dtype named_bytes[] = {
    GPUF_DTYPE_FLOAT8_E4M3B11FNUZ, GPUF_DTYPE_FLOAT8_E4M3FN,  GPUF_DTYPE_FLOAT8_E4M3FNUZ,
    GPUF_DTYPE_FLOAT8_E5M2FNUZ,    GPUF_DTYPE_FLOAT8_E8M0FNU,
};
#define NAMED_BYTE_COUNT (sizeof(named_bytes) / sizeof(named_bytes[0]))

bool gpufi_h5_dtype_is_named_byte(gpuf_dtype dtype) {
  for (size_t i = 0; i < NAMED_BYTE_COUNT; i++) {
    if (named_bytes[i] == dtype) {
      return true;
    }
  }
  return false;
}

/* --- Creating ---------------------------------------------------------------- */

static const float_layout *float_layout_of(gpuf_dtype dtype) {
  for (size_t i = 0; i < FLOAT_LAYOUT_COUNT; i++) {
    if (float_layouts[i].dtype == dtype) {
      return &float_layouts[i];
    }
  }
  return NULL;
}

/* Return `type`, or close it and return none where one of the calls that complete it failed. */
static hid_t complete(const gpufi_h5_api *api, hid_t type, bool is_complete) {
  if (type >= 0 && !is_complete) {
    api->Idec_ref(type);
    return H5I_INVALID_HID;
  }
  return type;
}

static hid_t create_float(const gpufi_h5_api *api, const float_layout *layout) {
  const size_t sign = layout->nbytes * 8 - 1;
  const hid_t type = api->Tcopy(layout->nbytes == 8 ? *api->T_IEEE_F64LE : *api->T_IEEE_F32LE);
  if (type < 0 || layout->nbytes >= 4) {
    return type;
  }
  /* The fields shrink before the size does, since they must fit it at every step. */
  return complete(api, type,
                  api->Tset_fields(type, sign, layout->mantissa_bits, layout->exponent_bits, 0,
                                   layout->mantissa_bits) >= 0 &&
                      api->Tset_ebias(type, layout->bias) >= 0 &&
                      api->Tset_precision(type, sign + 1) >= 0 &&
                      api->Tset_size(type, layout->nbytes) >= 0);
}

static hid_t create_bool(const gpufi_h5_api *api) {
  const int8_t no = 0;
  const int8_t yes = 1;
  const hid_t type = api->Tenum_create(*api->T_STD_I8LE);
  return complete(api, type,
                  type >= 0 && api->Tenum_insert(type, "FALSE", &no) >= 0 &&
                      api->Tenum_insert(type, "TRUE", &yes) >= 0);
}

static hid_t create_complex(const gpufi_h5_api *api, hid_t component, size_t component_nbytes) {
  const hid_t type = api->Tcreate(H5T_COMPOUND, 2 * component_nbytes);
  return complete(api, type,
                  type >= 0 && api->Tinsert(type, "r", 0, component) >= 0 &&
                      api->Tinsert(type, "i", component_nbytes, component) >= 0);
}

static hid_t create_named_byte(const gpufi_h5_api *api, const char *name) {
  const hid_t type = api->Tcreate(H5T_COMPOUND, 1);
  return complete(api, type, type >= 0 && api->Tinsert(type, name, 0, *api->T_STD_U8LE) >= 0);
}

static hid_t create_integer(const gpufi_h5_api *api, gpuf_dtype dtype) {
  const hid_t *const ids[2][INTEGER_SIZE_COUNT] = {
      {api->T_STD_U8LE, api->T_STD_U16LE, api->T_STD_U32LE, api->T_STD_U64LE},
      {api->T_STD_I8LE, api->T_STD_I16LE, api->T_STD_I32LE, api->T_STD_I64LE},
  };
  for (size_t i = 0; i < 2 * INTEGER_SIZE_COUNT; i++) {
    if (integers[i / INTEGER_SIZE_COUNT][i % INTEGER_SIZE_COUNT] == dtype) {
      return api->Tcopy(*ids[i / INTEGER_SIZE_COUNT][i % INTEGER_SIZE_COUNT]);
    }
  }
  return H5I_INVALID_HID;
}

static hid_t create(const gpufi_h5_api *api, gpuf_dtype dtype) {
  const float_layout *layout = float_layout_of(dtype);
  switch (dtype) {
  case GPUF_DTYPE_BOOL:
    return create_bool(api);
  case GPUF_DTYPE_COMPLEX64:
    return create_complex(api, *api->T_IEEE_F32LE, 4);
  case GPUF_DTYPE_COMPLEX128:
    return create_complex(api, *api->T_IEEE_F64LE, 8);
  default:
    return layout                                ? create_float(api, layout)
           : gpufi_h5_dtype_is_named_byte(dtype) ? create_named_byte(api, gpuf_dtype_name(dtype))
                                                 : create_integer(api, dtype);
  }
}

static gpuf_status check_created(gpufi_h5_session *session, gpuf_dtype dtype, hid_t created,
                                 hid_t *type, gpuf_error *err) {
  if (created < 0) {
    return gpufi_h5_fail(session, err, "making an HDF5 type for %s failed", gpuf_dtype_name(dtype));
  }
  *type = created;
  return GPUF_OK;
}

gpuf_status gpufi_h5_type_create(gpufi_h5_session *session, gpuf_dtype dtype, hid_t *type,
                                 gpuf_error *err) {
  return check_created(session, dtype, create(session->api, dtype), type, err);
}

gpuf_status gpufi_h5_type_create_complex(gpufi_h5_session *session, gpuf_dtype dtype, hid_t *type,
                                         gpuf_error *err) {
  const gpufi_h5_api *api = session->api;
  const hid_t component = dtype == GPUF_DTYPE_COMPLEX64 ? *api->T_IEEE_F32LE : *api->T_IEEE_F64LE;
  return check_created(session, dtype, api->Tcomplex_create(component), type, err);
}

/* --- Recognising ------------------------------------------------------------- */

/* One comparison of a stored type with the dtypes. What HDF5 could not tell, as where memory runs
 * out, is kept: it must not pass for a type that no dtype stands for. */
typedef struct matcher {
  gpufi_h5_session *session;
  const gpufi_h5_api *api;
  const char *name; /* of the dataset, for messages */
  gpuf_error *err;
  gpuf_status status; /* of the first question that failed, which `err` describes */
} matcher;

/* Each match_ function returns 0 for a type that it does not know, and where a question failed. */

/* Note that the last call of HDF5 failed; `is_ok` unless it did. Returns `is_ok`. */
static bool answered(matcher *m, bool is_ok) {
  if (!is_ok && m->status == GPUF_OK) {
    m->status =
        gpufi_h5_fail(m->session, m->err, "reading the type of dataset '%s' failed", m->name);
  }
  return is_ok;
}

static bool is_native_number(matcher *m, hid_t type, size_t nbytes) {
  const H5T_order_t order = m->api->Tget_order(type);
  if (!answered(m, order != H5T_ORDER_ERROR)) {
    return false;
  }
  const size_t precision = m->api->Tget_precision(type);
  if (!answered(m, precision > 0)) {
    return false;
  }
  const int offset = m->api->Tget_offset(type);
  return answered(m, offset >= 0) && (nbytes == 1 || order == H5T_ORDER_LE) &&
         precision == nbytes * 8 && offset == 0;
}

static gpuf_dtype match_integer(matcher *m, hid_t type, bool *is_native) {
  const size_t nbytes = m->api->Tget_size(type);
  if (!answered(m, nbytes > 0)) {
    return 0;
  }
  const H5T_sign_t sign = m->api->Tget_sign(type);
  if (!answered(m, sign != H5T_SGN_ERROR)) {
    return 0;
  }
  *is_native = is_native_number(m, type, nbytes);
  for (size_t i = 0; i < INTEGER_SIZE_COUNT; i++) {
    if (nbytes == (size_t)1 << i) {
      return integers[sign == H5T_SGN_2][i];
    }
  }
  return 0;
}

static gpuf_dtype match_float(matcher *m, hid_t type, bool *is_native) {
  const gpufi_h5_api *api = m->api;
  const size_t nbytes = api->Tget_size(type);
  size_t sign = 0;
  size_t exponent = 0;
  size_t exponent_bits = 0;
  size_t mantissa = 0;
  size_t mantissa_bits = 0;
  H5T_norm_t norm;
  if (!answered(m, nbytes > 0) ||
      !answered(m, api->Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa,
                                    &mantissa_bits) >= 0) ||
      !answered(m, (norm = api->Tget_norm(type)) != H5T_NORM_ERROR) || norm != H5T_NORM_IMPLIED ||
      mantissa != 0) {
    return 0;
  }
  *is_native = is_native_number(m, type, nbytes);
  for (size_t i = 0; i < FLOAT_LAYOUT_COUNT; i++) {
    const float_layout *layout = &float_layouts[i];
    if (layout->nbytes == nbytes && layout->exponent_bits == exponent_bits &&
        layout->mantissa_bits == mantissa_bits && exponent == mantissa_bits &&
        sign == nbytes * 8 - 1 && api->Tget_ebias(type) == layout->bias) {
      return layout->dtype;
    }
  }
  return 0;
}

/* Copy the start of the name of member `index`, which there is: the names looked for are short. */
static bool read_member_name(matcher *m, hid_t type, unsigned index, char name[NAME_NBYTES]) {
  char *stored = m->api->Tget_member_name(type, index);
  if (!answered(m, stored != NULL)) {
    return false;
  }
  snprintf(name, NAME_NBYTES, "%s", stored);
  m->api->free_memory(stored);
  return true;
}

static bool member_is(matcher *m, hid_t type, unsigned index, const char *name) {
  char stored[NAME_NBYTES];
  return read_member_name(m, type, index, stored) && !strcmp(stored, name);
}

static gpuf_dtype match_enum(matcher *m, hid_t type, bool *is_native) {
  const gpufi_h5_api *api = m->api;
  int8_t no = -1;
  int8_t yes = -1;
  const hid_t base = api->Tget_super(type);
  if (!answered(m, base >= 0)) {
    return 0;
  }
  const gpuf_dtype dtype = match_integer(m, base, is_native);
  api->Idec_ref(base);
  const int count = api->Tget_nmembers(type);
  if (answered(m, count >= 0) && gpuf_dtype_nbytes(dtype) == 1 && count == 2 &&
      member_is(m, type, 0, "FALSE") && member_is(m, type, 1, "TRUE") &&
      answered(m, api->Tget_member_value(type, 0, &no) >= 0) &&
      answered(m, api->Tget_member_value(type, 1, &yes) >= 0) && no == 0 && yes == 1) {
    return GPUF_DTYPE_BOOL;
  }
  return dtype; /* the names of the values are dropped */
}

static gpuf_dtype complex_of(gpuf_dtype component) {
  return component == GPUF_DTYPE_FLOAT32   ? GPUF_DTYPE_COMPLEX64
         : component == GPUF_DTYPE_FLOAT64 ? GPUF_DTYPE_COMPLEX128
                                           : 0;
}

/* The dtype of member `index` of a compound if it is a float or an integer, else 0. */
static gpuf_dtype match_member(matcher *m, hid_t type, unsigned index, bool *is_native) {
  const hid_t member = m->api->Tget_member_type(type, index);
  if (!answered(m, member >= 0)) {
    return 0;
  }
  const H5T_class_t class = m->api->Tget_class(member);
  gpuf_dtype dtype = 0;
  if (answered(m, class != H5T_NO_CLASS)) {
    dtype = class == H5T_FLOAT     ? match_float(m, member, is_native)
            : class == H5T_INTEGER ? match_integer(m, member, is_native)
                                   : 0;
  }
  m->api->Idec_ref(member);
  return dtype;
}

static gpuf_dtype match_named_byte(matcher *m, hid_t type) {
  char name[NAME_NBYTES];
  if (read_member_name(m, type, 0, name)) {
    for (size_t i = 0; i < NAMED_BYTE_COUNT; i++) {
      if (!strcmp(name, gpuf_dtype_name(named_bytes[i]))) {
        return named_bytes[i];
      }
    }
  }
  return 0;
}

static gpuf_dtype match_compound(matcher *m, hid_t type, bool *is_native) {
  const size_t nbytes = m->api->Tget_size(type);
  if (!answered(m, nbytes > 0)) {
    return 0;
  }
  const int count = m->api->Tget_nmembers(type);
  bool is_second_native = false;
  if (!answered(m, count >= 0) || count < 1 || count > 2) {
    return 0;
  }
  const gpuf_dtype first = match_member(m, type, 0, is_native);
  if (count == 1) {
    return nbytes == 1 && first == GPUF_DTYPE_UINT8 ? match_named_byte(m, type) : 0;
  }
  if (!member_is(m, type, 0, "r") || !member_is(m, type, 1, "i") || !first ||
      match_member(m, type, 1, &is_second_native) != first) {
    return 0;
  }
  *is_native = *is_native && is_second_native && nbytes == 2 * gpuf_dtype_nbytes(first) &&
               m->api->Tget_member_offset(type, 0) == 0 &&
               m->api->Tget_member_offset(type, 1) == nbytes / 2;
  return complex_of(first);
}

/* HDF5 2.0's own complex type: two floats, the real component first. */
static gpuf_dtype match_native_complex(matcher *m, hid_t type, bool *is_native) {
  const hid_t component = m->api->Tget_super(type);
  gpuf_dtype dtype = 0;
  if (answered(m, component >= 0)) {
    dtype = complex_of(match_float(m, component, is_native));
    m->api->Idec_ref(component);
  }
  return dtype;
}

static gpuf_dtype match(matcher *m, int class, hid_t type, bool *is_native) {
  switch (class) {
  case H5T_INTEGER:
    return match_integer(m, type, is_native);
  case H5T_FLOAT:
    return match_float(m, type, is_native);
  case H5T_ENUM:
    return match_enum(m, type, is_native);
  case H5T_COMPOUND:
    return match_compound(m, type, is_native);
  case GPUFI_H5T_COMPLEX:
    return match_native_complex(m, type, is_native);
  default:
    answered(m, class != H5T_NO_CLASS);
    return 0;
  }
}

static htri_t integer_needs_swap(const gpufi_h5_api *api, hid_t type) {
  const H5T_order_t order = api->Tget_order(type);
  const size_t precision = api->Tget_precision(type);
  const size_t nbytes = api->Tget_size(type);
  return order == H5T_ORDER_ERROR || precision == 0 || nbytes == 0
             ? -1
             : order == H5T_ORDER_BE && precision < nbytes * 8;
}

htri_t gpufi_h5_type_needs_swap(const gpufi_h5_api *api, hid_t type) {
  const H5T_class_t class = api->Tget_class(type);
  if (class == H5T_INTEGER) {
    return integer_needs_swap(api, type);
  }
  if (class != H5T_ENUM) {
    return class == H5T_NO_CLASS ? -1 : 0;
  }
  const hid_t base = api->Tget_super(type);
  const htri_t needs = base < 0 ? -1 : integer_needs_swap(api, base);
  if (base >= 0) {
    api->Idec_ref(base);
  }
  return needs;
}

void gpufi_h5_swap(void *elements, size_t count, size_t nbytes) {
  unsigned char *bytes = elements;
  for (size_t i = 0; i < count; i++, bytes += nbytes) {
    for (size_t k = 0; k < nbytes / 2; k++) {
      const unsigned char kept = bytes[k];
      bytes[k] = bytes[nbytes - 1 - k];
      bytes[nbytes - 1 - k] = kept;
    }
  }
}

const char *gpufi_h5_class_name(int type_class) {
  static const char *const names[] = {"integer",     "floating-point",  "time",     "string",
                                      "bit field",   "opaque",          "compound", "reference",
                                      "enumeration", "variable-length", "array",    "complex"};
  const int count = (int)(sizeof(names) / sizeof(names[0]));
  return type_class >= 0 && type_class < count ? names[type_class] : "unknown";
}

gpuf_status gpufi_h5_type_match(gpufi_h5_session *session, hid_t type, const char *name,
                                gpuf_dtype *dtype, bool *is_native, gpuf_error *err) {
  matcher m = {session, session->api, name, err, GPUF_OK};
  const int class = (int)m.api->Tget_class(type);
  *dtype = match(&m, class, type, is_native);
  if (m.status != GPUF_OK || *dtype) {
    return m.status;
  }
  const char *want =
      class == H5T_COMPOUND
          ? " (only complex numbers {r, i} and gpufetch's named bytes are element types)"
          : "";
  return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                    "dataset '%s' holds elements of an HDF5 %s type of %zu bytes that no gpufetch "
                    "dtype stands for%s: read it with HDF5 itself and convert it",
                    name, gpufi_h5_class_name(class), m.api->Tget_size(type), want);
}
