#include "hdf5/checkpoint/virtual.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "hdf5/create.h"
#include "hdf5/types.h"

/* --- Fill values ------------------------------------------------------------- */

/* The bits of a NaN of each type that has one, and of how many bytes it is. */
typedef struct nan_bits {
  gpuf_dtype dtype;
  uint64_t bits;
  size_t nbytes;
} nan_bits;

static const nan_bits nans[] = {
    {GPUF_DTYPE_FLOAT16, 0x7e00, 2},
    {GPUF_DTYPE_BFLOAT16, 0x7fc0, 2},
    {GPUF_DTYPE_FLOAT32, 0x7fc00000, 4},
    {GPUF_DTYPE_FLOAT64, UINT64_C(0x7ff8000000000000), 8},
    {GPUF_DTYPE_COMPLEX64, 0x7fc00000, 4},
    {GPUF_DTYPE_COMPLEX128, UINT64_C(0x7ff8000000000000), 8},
    {GPUF_DTYPE_FLOAT8_E3M4, 0x78, 1},
    {GPUF_DTYPE_FLOAT8_E4M3, 0x7c, 1},
    {GPUF_DTYPE_FLOAT8_E4M3B11FNUZ, 0x80, 1},
    {GPUF_DTYPE_FLOAT8_E4M3FN, 0x7f, 1},
    {GPUF_DTYPE_FLOAT8_E4M3FNUZ, 0x80, 1},
    {GPUF_DTYPE_FLOAT8_E5M2, 0x7e, 1},
    {GPUF_DTYPE_FLOAT8_E5M2FNUZ, 0x80, 1},
    {GPUF_DTYPE_FLOAT8_E8M0FNU, 0xff, 1},
};

static herr_t set_fill(const gpufi_h5_api *api, hid_t plist, gpuf_dtype dtype, hid_t type) {
  unsigned char element[16];
  for (size_t i = 0; i < sizeof(nans) / sizeof(nans[0]); i++) {
    if (nans[i].dtype == dtype) {
      for (size_t at = 0; at < gpuf_dtype_nbytes(dtype); at += nans[i].nbytes) {
        memcpy(element + at, &nans[i].bits, nans[i].nbytes);
      }
      return api->Pset_fill_value(plist, type, element);
    }
  }
  return 0;
}

/* --- Mappings ---------------------------------------------------------------- */

/* A copy in which HDF5 finds no patterns, which begin with a percent sign; the caller frees it. */
static char *escape(const char *text) {
  char *const copy = malloc(2 * strlen(text) + 1);
  char *to = copy;
  for (; copy && *text; text++) {
    *to++ = *text;
    if (*text == '%') {
      *to++ = '%';
    }
  }
  if (copy) {
    *to = '\0';
  }
  return copy;
}

static hid_t create_space(const gpufi_h5_api *api, int32_t ndim, const int64_t *shape,
                          hsize_t *dims) {
  for (int32_t axis = 0; axis < ndim; axis++) {
    dims[axis] = (hsize_t)shape[axis];
  }
  return api->Screate_simple(ndim, dims, NULL);
}

/* Entered. */
static herr_t map_part(const gpufi_h5_session *session, hid_t plist, hid_t space, int32_t ndim,
                       const gpufi_checkpoint_shard_part *part, const char *file,
                       const char *dataset) {
  const gpufi_h5_api *const api = session->api;
  hsize_t start[GPUF_NDIM_MAX], dims[GPUF_NDIM_MAX];
  const hid_t source = create_space(api, ndim, part->shape, dims);
  for (int32_t axis = 0; axis < ndim; axis++) {
    start[axis] = (hsize_t)part->start[axis];
  }
  const bool is_mapped =
      source >= 0 && api->Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, dims, NULL) >= 0 &&
      api->Pset_virtual(plist, space, file, dataset, source) >= 0;
  if (source >= 0) {
    api->Idec_ref(source);
  }
  return is_mapped ? 0 : -1;
}

static gpuf_status map_parts(gpufi_h5_session *session, hid_t plist,
                             const gpufi_checkpoint_contents *contents,
                             const gpufi_checkpoint_tensor *t, gpuf_error *err) {
  hsize_t dims[GPUF_NDIM_MAX];
  gpuf_status status = GPUF_OK;
  const hid_t space = create_space(session->api, t->tensor.ndim, t->tensor.shape, dims);
  for (size_t i = 0; i < t->shard_part_count && status == GPUF_OK; i++) {
    const gpufi_checkpoint_shard_part *const part = &t->shard_parts[i];
    char *const file = escape(contents->shards[part->shard].name);
    char *const dataset = escape(part->dataset);
    if (!file || !dataset) {
      status = gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory to map tensor '%s'", t->name);
    } else if (space < 0 ||
               map_part(session, plist, space, t->tensor.ndim, part, file, dataset) < 0) {
      status = gpufi_h5_fail(session, err, "mapping tensor '%s' to its shards failed", t->name);
    }
    free(file);
    free(dataset);
  }
  gpufi_h5_close(session, space);
  return status;
}

/* Entered. */
static gpuf_status create(gpufi_h5_session *session, hid_t file,
                          const gpufi_checkpoint_contents *contents,
                          const gpufi_checkpoint_tensor *t, gpufi_h5_path *path, gpuf_error *err) {
  const gpufi_h5_api *const api = session->api;
  hid_t type = H5I_INVALID_HID;
  hid_t id = H5I_INVALID_HID;
  const hid_t plist = api->Pcreate(*api->P_CLS_DATASET_CREATE_ID);
  gpuf_status status = gpufi_h5_type_create(session, t->tensor.dtype, &type, err);
  if (status == GPUF_OK && (plist < 0 || api->Pset_obj_track_times(plist, false) < 0 ||
                            set_fill(api, plist, t->tensor.dtype, type) < 0)) {
    status = gpufi_h5_fail(session, err, "making a dataset creation property list failed");
  }
  if (status == GPUF_OK) {
    status = map_parts(session, plist, contents, t, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_h5_create_as(session, file, path, &t->tensor, plist, &id, err);
  }
  if (id >= 0 && api->Idec_ref(id) < 0) {
    status = gpufi_h5_fail(session, err, "closing dataset '%s' failed", t->name);
  }
  gpufi_h5_close(session, type);
  gpufi_h5_close(session, plist);
  return status;
}

gpuf_status gpufi_checkpoint_create_virtual(gpufi_h5_session *session, hid_t file,
                                            const gpufi_checkpoint_contents *contents,
                                            const gpufi_checkpoint_tensor *t, gpuf_error *err) {
  gpufi_h5_path path;
  gpuf_status status = gpufi_h5_path_init(&path, t->name, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_h5_enter(session);
  status = create(session, file, contents, t, &path, err);
  gpufi_h5_leave(session);
  gpufi_h5_path_fini(&path);
  return status;
}
