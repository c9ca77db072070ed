/* The public HDF5 calls. */
#include "base/error.h"
#include "hdf5/internal.h"

#include <inttypes.h>
#include <string.h>

/* H5F_ACC_RDWR without the calls to libhdf5 that hide in the macro. */
#define INTENT_WRITE 0x0001u

/* --- Moving elements ------------------------------------------------------- */

static gpuf_status write_elements(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                  const int64_t *start, const gpuf_tensor *src, gpuf_error *err) {
  gpufi_h5_region region;
  const gpuf_status status = gpufi_h5_dataset_region(dataset, start, src, "source", &region, err);
  if (status != GPUF_OK || gpuf_tensor_count(src) == 0) {
    return status;
  }
  return dataset->route == GPUFI_H5_ROUTE_SLABS || !gpufi_h5_dataset_is_aligned(dataset, &region)
             ? gpufi_h5_write_slabs(session, dataset, &region, src, err)
             : gpufi_h5_write_chunks(session, dataset, &region, src, err);
}

static gpuf_status read_elements(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                 const int64_t *start, const gpuf_tensor *dst, gpuf_error *err) {
  gpufi_h5_region region;
  const gpuf_status status =
      gpufi_h5_dataset_region(dataset, start, dst, "destination", &region, err);
  if (status != GPUF_OK || gpuf_tensor_count(dst) == 0) {
    return status;
  }
  return dataset->route == GPUFI_H5_ROUTE_SLABS
             ? gpufi_h5_read_slabs(session, dataset, &region, dst, err)
             : gpufi_h5_read_chunks(session, dataset, &region, dst, err);
}

/* Inspect dataset `id`; leaves the lock. */
static gpuf_status open_dataset(gpufi_h5_dataset *dataset, gpufi_h5_session *session, hid_t id,
                                gpuf_error *err) {
  gpuf_status status;
  gpufi_h5_enter(session);
  status = gpufi_h5_register(session, err);
  if (status == GPUF_OK) {
    status = gpufi_h5_dataset_init(dataset, session, id, err);
  }
  gpufi_h5_leave(session);
  return status;
}

/* --- Creating ---------------------------------------------------------------- */

static gpuf_status check_location(gpufi_h5_session *session, hid_t location, const char *name,
                                  gpuf_error *err) {
  const H5I_type_t type = session->api->Iget_type(location);
  if (type != H5I_FILE && type != H5I_GROUP) {
    session->api->Eclear2(H5E_DEFAULT);
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "identifier %" PRId64 " is not an open HDF5 file or group of the bound "
                      "library: was it closed?",
                      (int64_t)location);
  }
  if (!name || !*name) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "the dataset's name is empty");
  }
  return GPUF_OK;
}

static gpuf_status check_new_name(gpufi_h5_session *session, hid_t location, const char *name,
                                  gpuf_error *err) {
  const gpufi_h5_api *api = session->api;
  unsigned intent = INTENT_WRITE;
  const hid_t file = api->Iget_file_id(location);
  if (file >= 0) {
    api->Fget_intent(file, &intent);
    api->Idec_ref(file);
  }
  if (!(intent & INTENT_WRITE)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "dataset '%s' cannot be written: the file was opened read-only; open it for "
                      "writing",
                      name);
  }
  /* An error means that a group on the way is not there yet. */
  if (api->Lexists(location, name, H5P_DEFAULT) > 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "'%s' exists already: choose another name, or delete it first", name);
  }
  api->Eclear2(H5E_DEFAULT);
  return GPUF_OK;
}

/* Where no plugin for 32008 is to be found, the filter is optional and described by its whole
 * cd_values; where there is one, it fills in the first three. */
static herr_t set_bitshuffle(const gpufi_h5_api *api, hid_t plist, const gpuf_tensor *src) {
  const unsigned values[] = {0, 4, (unsigned)gpuf_dtype_nbytes(src->dtype), 0, 2};
  const bool fills_in = api->Zfilter_avail(GPUFI_BITSHUFFLE_FILTER_ID) > 0;
  const size_t skipped = fills_in ? 3 : 0;
  return api->Pset_filter(plist, GPUFI_BITSHUFFLE_FILTER_ID, H5Z_FLAG_OPTIONAL, 5 - skipped,
                          values + skipped);
}

static herr_t set_filter(const gpufi_h5_session *session, hid_t plist, const gpuf_tensor *src) {
  switch (session->options.codec) {
  case GPUF_H5_CODEC_GPUFETCH:
    return session->api->Pset_filter(plist, GPUF_H5_FILTER_ID, H5Z_FLAG_MANDATORY, 0, NULL);
  case GPUF_H5_CODEC_BITSHUFFLE_LZ4:
    return set_bitshuffle(session->api, plist, src);
  default:
    return 0;
  }
}

/* Chunked unless the tensor is 0-d or empty, which HDF5 stores in one piece. */
static gpuf_status create_plist(gpufi_h5_session *session, const gpuf_tensor *src, hid_t *plist,
                                gpuf_error *err) {
  const gpufi_h5_api *api = session->api;
  int64_t chosen[GPUF_NDIM_MAX];
  const int64_t *chunk = session->options.chunk_shape;
  hsize_t dims[GPUF_NDIM_MAX];
  gpuf_status status;
  *plist = api->Pcreate(*api->P_CLS_DATASET_CREATE_ID);
  if (*plist < 0 || api->Pset_obj_track_times(*plist, false) < 0) {
    return gpufi_h5_fail(session, err, "making a dataset creation property list failed");
  }
  if (src->ndim == 0 || gpuf_tensor_count(src) == 0) {
    return GPUF_OK;
  }
  if (!chunk) {
    gpufi_h5_chunk_default(src, chosen);
    chunk = chosen;
  }
  status = gpufi_h5_chunk_check(src, chunk, err);
  if (status != GPUF_OK) {
    return status;
  }
  for (int32_t axis = 0; axis < src->ndim; axis++) {
    dims[axis] = (hsize_t)chunk[axis];
  }
  if (api->Pset_chunk(*plist, src->ndim, dims) < 0 ||
      api->Pset_fill_time(*plist, H5D_FILL_TIME_NEVER) < 0 ||
      set_filter(session, *plist, src) < 0) {
    return gpufi_h5_fail(session, err, "setting the chunk shape and filter failed");
  }
  return GPUF_OK;
}

static hid_t create_link_plist(const gpufi_h5_api *api) {
  const hid_t plist = api->Pcreate(*api->P_CLS_LINK_CREATE_ID);
  if (plist >= 0 && (api->Pset_create_intermediate_group(plist, 1) < 0 ||
                     api->Pset_char_encoding(plist, H5T_CSET_UTF8) < 0)) {
    api->Idec_ref(plist);
    return H5I_INVALID_HID;
  }
  return plist;
}

static hid_t create_space(const gpufi_h5_api *api, const gpuf_tensor *src) {
  hsize_t dims[GPUF_NDIM_MAX];
  for (int32_t axis = 0; axis < src->ndim; axis++) {
    dims[axis] = (hsize_t)src->shape[axis];
  }
  return src->ndim ? api->Screate_simple(src->ndim, dims, NULL) : api->Screate(H5S_SCALAR);
}

/* Entered. */
static gpuf_status create_dataset(gpufi_h5_session *session, hid_t location, const char *name,
                                  const gpuf_tensor *src, hid_t *id, gpuf_error *err) {
  const gpufi_h5_api *api = session->api;
  hid_t type = H5I_INVALID_HID;
  hid_t space = H5I_INVALID_HID;
  hid_t links = H5I_INVALID_HID;
  hid_t plist = H5I_INVALID_HID;
  gpuf_status status = gpufi_h5_type_create(session, src->dtype, &type, err);
  if (status == GPUF_OK) {
    status = create_plist(session, src, &plist, err);
  }
  if (status != GPUF_OK) {
    goto done;
  }
  space = create_space(api, src);
  links = space < 0 ? H5I_INVALID_HID : create_link_plist(api);
  *id = links < 0 ? H5I_INVALID_HID
                  : api->Dcreate2(location, name, type, space, links, plist, H5P_DEFAULT);
  if (*id < 0) {
    status = gpufi_h5_fail(session, err, "creating dataset '%s' failed", name);
  }
done:
  gpufi_h5_close(session, plist);
  gpufi_h5_close(session, links);
  gpufi_h5_close(session, space);
  gpufi_h5_close(session, type);
  return status;
}

/* Close the new dataset, and unlink it if writing failed. Leaves the lock. */
static gpuf_status finish_dataset(gpufi_h5_session *session, hid_t location, const char *name,
                                  hid_t id, gpuf_status status, gpuf_error *err) {
  gpufi_h5_enter(session);
  if (session->api->Idec_ref(id) < 0 && status == GPUF_OK) {
    status = gpufi_h5_fail(session, err, "closing dataset '%s' failed", name);
  }
  if (status != GPUF_OK) {
    session->api->Ldelete(location, name, H5P_DEFAULT);
    session->api->Eclear2(H5E_DEFAULT);
  }
  gpufi_h5_leave(session);
  return status;
}

gpuf_status gpuf_h5_write(gpuf_h5_id location, const char *name, const gpuf_tensor *src,
                          const gpuf_h5_options *options, gpuf_error *err) {
  gpufi_h5_session session;
  gpufi_h5_dataset dataset;
  hid_t id = H5I_INVALID_HID;
  gpuf_status status = gpuf_tensor_check(src, err);
  if (status != GPUF_OK || (status = gpufi_h5_session_init(&session, options, err)) != GPUF_OK) {
    return status;
  }
  gpufi_h5_enter(&session);
  status = check_location(&session, location, name, err);
  if (status == GPUF_OK) {
    status = check_new_name(&session, location, name, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_h5_register(&session, err);
  }
  if (status == GPUF_OK) {
    status = create_dataset(&session, location, name, src, &id, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_h5_dataset_init(&dataset, &session, id, err);
  }
  gpufi_h5_leave(&session);
  if (id < 0) {
    return status;
  }
  if (status == GPUF_OK) {
    status = write_elements(&session, &dataset, NULL, src, err);
  }
  return finish_dataset(&session, location, name, id, status, err);
}

/* --- The other calls ----------------------------------------------------------- */

gpuf_status gpuf_h5_write_dataset(gpuf_h5_id id, const gpuf_tensor *src,
                                  const gpuf_h5_options *options, gpuf_error *err) {
  return gpuf_h5_write_region(id, NULL, src, options, err);
}

gpuf_status gpuf_h5_write_region(gpuf_h5_id id, const int64_t *start, const gpuf_tensor *src,
                                 const gpuf_h5_options *options, gpuf_error *err) {
  gpufi_h5_session session;
  gpufi_h5_dataset dataset;
  gpuf_status status = gpuf_tensor_check(src, err);
  if (status != GPUF_OK || (status = gpufi_h5_session_init(&session, options, err)) != GPUF_OK ||
      (status = open_dataset(&dataset, &session, id, err)) != GPUF_OK) {
    return status;
  }
  return write_elements(&session, &dataset, start, src, err);
}

gpuf_status gpuf_h5_read_dataset(gpuf_h5_id id, const gpuf_tensor *dst,
                                 const gpuf_h5_options *options, gpuf_error *err) {
  return gpuf_h5_read_region(id, NULL, dst, options, err);
}

gpuf_status gpuf_h5_read_region(gpuf_h5_id id, const int64_t *start, const gpuf_tensor *dst,
                                const gpuf_h5_options *options, gpuf_error *err) {
  gpufi_h5_session session;
  gpufi_h5_dataset dataset;
  gpuf_status status = gpuf_tensor_check(dst, err);
  if (status != GPUF_OK || (status = gpufi_h5_session_init(&session, options, err)) != GPUF_OK ||
      (status = open_dataset(&dataset, &session, id, err)) != GPUF_OK) {
    return status;
  }
  return read_elements(&session, &dataset, start, dst, err);
}

gpuf_status gpuf_h5_read(gpuf_h5_id location, const char *name, const gpuf_tensor *dst,
                         const gpuf_h5_options *options, gpuf_error *err) {
  gpufi_h5_session session;
  hid_t id = H5I_INVALID_HID;
  gpuf_status status = gpufi_h5_session_init(&session, options, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_h5_enter(&session);
  status = check_location(&session, location, name, err);
  if (status == GPUF_OK && (id = session.api->Dopen2(location, name, H5P_DEFAULT)) < 0) {
    status = gpufi_h5_fail(&session, err, "opening dataset '%s' failed", name);
  }
  gpufi_h5_leave(&session);
  if (status == GPUF_OK) {
    status = gpuf_h5_read_dataset(id, dst, options, err);
    gpufi_h5_enter(&session);
    gpufi_h5_close(&session, id);
    gpufi_h5_leave(&session);
  }
  return status;
}

gpuf_status gpuf_h5_describe(gpuf_h5_id id, gpuf_tensor *tensor, gpuf_error *err) {
  gpufi_h5_session session;
  gpufi_h5_dataset dataset;
  gpuf_status status = gpufi_h5_session_init(&session, NULL, err);
  if (status != GPUF_OK || (status = open_dataset(&dataset, &session, id, err)) != GPUF_OK) {
    return status;
  }
  tensor->dtype = dataset.dtype;
  tensor->ndim = dataset.ndim;
  memcpy(tensor->shape, dataset.shape, sizeof(tensor->shape));
  return GPUF_OK;
}

gpuf_status gpuf_h5_filter_register(gpuf_error *err) {
  gpufi_h5_session session;
  gpuf_status status = gpufi_h5_session_init(&session, NULL, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_h5_enter(&session);
  status = gpufi_h5_register(&session, err);
  gpufi_h5_leave(&session);
  return status;
}
