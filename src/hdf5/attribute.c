/* Scalars beside a tensor: attributes of a file's root, a group or a dataset. */
#include "base/error.h"
#include "base/floating_point.h"
#include "base/text.h"
#include "hdf5/types.h"
#include "hdf5/writable.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind { INT64, FLOAT64, TEXT, KIND_COUNT } kind;

static const struct {
  H5T_class_t class;
  const char *name;
  const char *getter;
} kinds[KIND_COUNT] = {
    [INT64] = {H5T_INTEGER, "an integer", "gpuf_h5_get_attribute_int64"},
    [FLOAT64] = {H5T_FLOAT, "a floating-point number", "gpuf_h5_get_attribute_float64"},
    [TEXT] = {H5T_STRING, "text", "gpuf_h5_get_attribute_text"},
};

/* One call's attribute; the session is entered. */
typedef struct attribute {
  gpufi_h5_session session;
  hid_t location;
  const char *object_name;
  const char *name;
  /* Closed at the end; negative while there is none. */
  hid_t object; /* of an attribute that is to be set */
  hid_t id;
  hid_t type;
  hid_t space;
} attribute;

/* --- What every call does ---------------------------------------------------- */

static gpuf_status check_arguments(const char *object_name, const char *name, const void *value,
                                   gpuf_error *err) {
  if (!object_name || !*object_name) {
    return gpufi_fail(
        err, GPUF_ERR_INVALID, 0,
        "object_name is %s: name the object that has the attribute, or give \".\" for "
        "the location itself",
        object_name ? "empty" : "NULL");
  }
  if (!name || !*name) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "the attribute's name is %s",
                      name ? "empty" : "NULL");
  }
  return value ? GPUF_OK
               : gpufi_fail(err, GPUF_ERR_INVALID, 0, "the value of attribute '%s' is NULL", name);
}

/* Enters. Call attribute_fini even when this fails. */
static gpuf_status attribute_init(attribute *a, hid_t location, const char *object_name,
                                  const char *name, const void *value,
                                  const gpuf_h5_options *options, gpuf_error *err) {
  H5I_type_t type;
  gpuf_status status;
  memset(a, 0, sizeof(*a));
  a->location = location;
  a->object_name = object_name;
  a->name = name;
  a->object = a->id = a->type = a->space = H5I_INVALID_HID;
  status = check_arguments(object_name, name, value, err);
  if (status == GPUF_OK) {
    status = gpufi_h5_session_init(&a->session, options, err);
  }
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_h5_enter(&a->session);
  type = a->session.api->Iget_type(location);
  if (type != H5I_FILE && type != H5I_GROUP && type != H5I_DATASET) {
    a->session.api->Eclear2(H5E_DEFAULT);
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "identifier %" PRId64 " is not an open HDF5 file, group or dataset of the "
                      "bound library: was it closed?",
                      (int64_t)location);
  }
  gpufi_h5_use_file(&a->session, location);
  return GPUF_OK;
}

static void attribute_fini(attribute *a) {
  gpufi_h5_close(&a->session, a->id);
  gpufi_h5_close(&a->session, a->type);
  gpufi_h5_close(&a->session, a->space);
  gpufi_h5_close(&a->session, a->object);
  gpufi_h5_leave(&a->session);
}

static gpuf_status fail(attribute *a, const char *action, gpuf_error *err) {
  return gpufi_h5_fail(&a->session, err, "%s attribute '%s' of object '%s' failed", action, a->name,
                       a->object_name);
}

/* --- Setting ----------------------------------------------------------------- */

/* Text is of variable length, since h5py reads only that as a str. */
static bool create_type(attribute *a, kind what) {
  const gpufi_h5_api *api = a->session.api;
  a->type = api->Tcopy(what == INT64     ? *api->T_STD_I64LE
                       : what == FLOAT64 ? *api->T_IEEE_F64LE
                                         : *api->T_C_S1);
  return a->type >= 0 && (what != TEXT || (api->Tset_size(a->type, H5T_VARIABLE) >= 0 &&
                                           api->Tset_cset(a->type, H5T_CSET_UTF8) >= 0));
}

/* Whether the open attribute is a scalar of the type that is to be written; negative if that is not
 * known. */
static htri_t can_hold(const attribute *a) {
  const gpufi_h5_api *api = a->session.api;
  const hid_t type = api->Aget_type(a->id);
  const hid_t space = api->Aget_space(a->id);
  htri_t can = type < 0 || space < 0 ? -1 : api->Tequal(type, a->type);
  if (can > 0) {
    can = api->Sget_simple_extent_type(space) == H5S_SCALAR;
  }
  if (type >= 0) {
    api->Idec_ref(type);
  }
  if (space >= 0) {
    api->Idec_ref(space);
  }
  return can;
}

/* Open the object itself. It may lie in another file than the location: an external link leads
 * there. And HDF5 1.10 cannot write an attribute that was opened by the name of another object than
 * the location ("can't locate open attribute?"). */
static gpuf_status open_object(attribute *a, gpuf_error *err) {
  a->object = a->session.api->Oopen(a->location, a->object_name, H5P_DEFAULT);
  return a->object < 0 ? fail(a, "writing", err)
                       : gpufi_h5_check_writable(&a->session, a->object, "attribute", a->name, err);
}

/* Open the attribute if it can hold the value, which leaves the old one where writing fails; else
 * delete it, if there is one, and create it. */
static bool open_to_set(attribute *a) {
  const gpufi_h5_api *api = a->session.api;
  const htri_t exists = api->Aexists_by_name(a->object, ".", a->name, H5P_DEFAULT);
  if (exists > 0) {
    a->id = api->Aopen_by_name(a->object, ".", a->name, H5P_DEFAULT, H5P_DEFAULT);
    const htri_t can = a->id < 0 ? -1 : can_hold(a);
    if (can != 0) {
      return can > 0;
    }
    api->Idec_ref(a->id);
    a->id = H5I_INVALID_HID;
  }
  if (exists < 0 ||
      (exists > 0 && api->Adelete_by_name(a->object, ".", a->name, H5P_DEFAULT) < 0) ||
      (a->space = api->Screate(H5S_SCALAR)) < 0) {
    return false;
  }
  a->id = api->Acreate_by_name(a->object, ".", a->name, a->type, a->space, H5P_DEFAULT, H5P_DEFAULT,
                               H5P_DEFAULT);
  return a->id >= 0;
}

/* After a failure: an attribute that was created for the value must not stay without it. */
static void withdraw_new(attribute *a) {
  if (a->id >= 0 && a->space >= 0) {
    a->session.api->Idec_ref(a->id);
    a->id = H5I_INVALID_HID;
    a->session.api->Adelete_by_name(a->object, ".", a->name, H5P_DEFAULT);
    gpufi_h5_discard_errors(&a->session);
  }
}

static gpuf_status check_text(const char *name, const char *text, const char *what,
                              gpuf_error *err) {
  return !text || gpufi_text_is_utf8(text)
             ? GPUF_OK
             : gpufi_fail(err, GPUF_ERR_INVALID, 0,
                          "the %s of attribute '%s' is not UTF-8: '%.100s'; convert it first", what,
                          name, text);
}

/* `value` is what H5Awrite takes. */
static gpuf_status set(hid_t location, const char *object_name, const char *name, kind what,
                       const void *value, const gpuf_h5_options *options, gpuf_error *err) {
  attribute a;
  gpuf_status status = check_text(name, name, "name", err);
  if (status != GPUF_OK) {
    return status;
  }
  status = attribute_init(&a, location, object_name, name, value, options, err);
  if (status == GPUF_OK) {
    status = open_object(&a, err);
  }
  if (status == GPUF_OK && (!create_type(&a, what) || !open_to_set(&a) ||
                            a.session.api->Awrite(a.id, a.type, value) < 0)) {
    status = fail(&a, "writing", err);
    withdraw_new(&a);
  }
  attribute_fini(&a);
  return status;
}

gpuf_status gpuf_h5_set_attribute_int64(gpuf_h5_id location, const char *object_name,
                                        const char *name, int64_t value,
                                        const gpuf_h5_options *options, gpuf_error *err) {
  return set(location, object_name, name, INT64, &value, options, err);
}

gpuf_status gpuf_h5_set_attribute_float64(gpuf_h5_id location, const char *object_name,
                                          const char *name, double value,
                                          const gpuf_h5_options *options, gpuf_error *err) {
  return set(location, object_name, name, FLOAT64, &value, options, err);
}

gpuf_status gpuf_h5_set_attribute_text(gpuf_h5_id location, const char *object_name,
                                       const char *name, const char *text,
                                       const gpuf_h5_options *options, gpuf_error *err) {
  const gpuf_status status = check_text(name ? name : "", text, "text", err);
  return status == GPUF_OK
             ? set(location, object_name, name, TEXT, text ? &text : NULL, options, err)
             : status;
}

/* --- Getting ----------------------------------------------------------------- */

static gpuf_status refuse_kind(const attribute *a, kind wanted, H5T_class_t class,
                               gpuf_error *err) {
  const size_t nbytes = a->session.api->Tget_size(a->type);
  for (int i = 0; i < KIND_COUNT; i++) {
    if (kinds[i].class == class && (kind)i != wanted) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "attribute '%s' of object '%s' is %s, not %s: read it with %s", a->name,
                        a->object_name, kinds[i].name, kinds[wanted].name, kinds[i].getter);
    }
  }
  return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                    "attribute '%s' of object '%s' is of an HDF5 %s type of %zu bytes, which %s "
                    "does not read: read it with H5Aread",
                    a->name, a->object_name, gpufi_h5_class_name((int)class), nbytes,
                    kinds[wanted].getter);
}

/* Open the attribute, its type and its space, and check that it is a scalar of the kind. */
static gpuf_status open_to_get(attribute *a, kind wanted, gpuf_error *err) {
  const gpufi_h5_api *api = a->session.api;
  const htri_t exists = api->Aexists_by_name(a->location, a->object_name, a->name, H5P_DEFAULT);
  H5T_class_t class;
  if (exists == 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "object '%s' has no attribute '%s'", a->object_name,
                      a->name);
  }
  if (exists < 0 ||
      (a->id = api->Aopen_by_name(a->location, a->object_name, a->name, H5P_DEFAULT, H5P_DEFAULT)) <
          0 ||
      (a->type = api->Aget_type(a->id)) < 0 || (a->space = api->Aget_space(a->id)) < 0) {
    return fail(a, "opening", err);
  }
  class = api->Tget_class(a->type);
  if (class != kinds[wanted].class || (wanted != TEXT && api->Tget_size(a->type) > 8)) {
    return refuse_kind(a, wanted, class, err);
  }
  if (api->Sget_simple_extent_npoints(a->space) != 1) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "attribute '%s' of object '%s' has %" PRId64 " elements, not one: read it "
                      "with H5Aread",
                      a->name, a->object_name, (int64_t)api->Sget_simple_extent_npoints(a->space));
  }
  return GPUF_OK;
}

/* Each read_ function reads the open attribute to what the caller gave for it. */

/* Unsigned integers are read as such: HDF5 would turn what int64 does not hold into its largest. */
static gpuf_status read_int64(attribute *a, void *value, gpuf_error *err) {
  const gpufi_h5_api *api = a->session.api;
  const bool is_unsigned = api->Tget_sign(a->type) == H5T_SGN_NONE;
  const htri_t needs_swap = gpufi_h5_type_needs_swap(api, a->type);
  uint64_t bits = 0;
  const hid_t type = api->Tcopy(is_unsigned ? *api->T_STD_U64LE : *api->T_STD_I64LE);
  const bool is_read = type >= 0 && needs_swap >= 0 &&
                       (!needs_swap || api->Tset_order(type, H5T_ORDER_BE) >= 0) &&
                       api->Aread(a->id, type, &bits) >= 0;
  const gpuf_status status = is_read ? GPUF_OK : fail(a, "reading", err);
  gpufi_h5_close(&a->session, type);
  if (status != GPUF_OK) {
    return status;
  }
  if (needs_swap) {
    gpufi_h5_swap(&bits, 1, sizeof(bits));
  }
  if (is_unsigned && bits > INT64_MAX) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "attribute '%s' of object '%s' is %" PRIu64 ", more than int64 holds: read "
                      "it with H5Aread",
                      a->name, a->object_name, bits);
  }
  memcpy(value, &bits, sizeof(bits));
  return GPUF_OK;
}

/* HDF5 converts numbers of other types with the processor's arithmetic. */
static gpuf_status read_float64(attribute *a, void *value, gpuf_error *err) {
  double number = 0;
  const gpufi_floating_point callers = gpufi_floating_point_begin();
  const herr_t result = a->session.api->Aread(a->id, *a->session.api->T_IEEE_F64LE, &number);
  gpufi_floating_point_end(callers);
  if (result < 0) {
    return fail(a, "reading", err);
  }
  memcpy(value, &number, sizeof(number));
  return GPUF_OK;
}

typedef struct text_buffer {
  char *text;
  size_t *nbytes;
} text_buffer;

static gpuf_status store_text(const attribute *a, const char *stored, const text_buffer *buffer,
                              gpuf_error *err) {
  const size_t needed = strlen(stored) + 1;
  const size_t given = *buffer->nbytes;
  *buffer->nbytes = needed;
  if (needed > given) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "attribute '%s' of object '%s' takes %zu bytes with its NUL, and the buffer "
                      "has %zu",
                      a->name, a->object_name, needed, given);
  }
  memcpy(buffer->text, stored, needed);
  return GPUF_OK;
}

static gpuf_status read_variable_text(attribute *a, const text_buffer *buffer, gpuf_error *err) {
  const gpufi_h5_api *api = a->session.api;
  char *stored = NULL;
  gpuf_status status;
  if (api->Aread(a->id, a->type, &stored) < 0) {
    return fail(a, "reading", err);
  }
  status = store_text(a, stored ? stored : "", buffer, err);
  api->free_memory(stored);
  return status;
}

/* With a byte more than is stored, HDF5 turns any padding, NULs or spaces, into a NUL. */
static gpuf_status read_fixed_text(attribute *a, const text_buffer *buffer, gpuf_error *err) {
  const gpufi_h5_api *api = a->session.api;
  const size_t nbytes = api->Tget_size(a->type) + 1;
  const hid_t type = api->Tcopy(a->type);
  char *stored = calloc(1, nbytes);
  gpuf_status status;
  if (!stored) {
    status = gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0,
                        "no memory for the %zu bytes of attribute '%s' of object '%s'", nbytes,
                        a->name, a->object_name);
  } else if (type < 0 || api->Tset_size(type, nbytes) < 0 ||
             api->Tset_strpad(type, H5T_STR_NULLTERM) < 0 || api->Aread(a->id, type, stored) < 0) {
    status = fail(a, "reading", err);
  } else {
    status = store_text(a, stored, buffer, err);
  }
  gpufi_h5_close(&a->session, type);
  free(stored);
  return status;
}

static gpuf_status read_text(attribute *a, void *value, gpuf_error *err) {
  return a->session.api->Tis_variable_str(a->type) > 0 ? read_variable_text(a, value, err)
                                                       : read_fixed_text(a, value, err);
}

static gpuf_status get(hid_t location, const char *object_name, const char *name, kind wanted,
                       gpuf_status (*read)(attribute *a, void *value, gpuf_error *err), void *value,
                       const gpuf_h5_options *options, gpuf_error *err) {
  attribute a;
  gpuf_status status = attribute_init(&a, location, object_name, name, value, options, err);
  if (status == GPUF_OK) {
    status = open_to_get(&a, wanted, err);
  }
  if (status == GPUF_OK) {
    status = read(&a, value, err);
  }
  attribute_fini(&a);
  return status;
}

gpuf_status gpuf_h5_get_attribute_int64(gpuf_h5_id location, const char *object_name,
                                        const char *name, int64_t *value,
                                        const gpuf_h5_options *options, gpuf_error *err) {
  return get(location, object_name, name, INT64, read_int64, value, options, err);
}

gpuf_status gpuf_h5_get_attribute_float64(gpuf_h5_id location, const char *object_name,
                                          const char *name, double *value,
                                          const gpuf_h5_options *options, gpuf_error *err) {
  return get(location, object_name, name, FLOAT64, read_float64, value, options, err);
}

gpuf_status gpuf_h5_get_attribute_text(gpuf_h5_id location, const char *object_name,
                                       const char *name, char *text, size_t *text_nbytes,
                                       const gpuf_h5_options *options, gpuf_error *err) {
  text_buffer buffer = {text, text_nbytes};
  if (!text_nbytes || (!text && *text_nbytes > 0)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "%s is NULL: it must be %s",
                      text_nbytes ? "text" : "text_nbytes",
                      text_nbytes ? "a buffer of *text_nbytes bytes" : "the size of the buffer");
  }
  return get(location, object_name, name, TEXT, read_text, &buffer, options, err);
}
