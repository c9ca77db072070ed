#include "hdf5/create.h"

#include <errno.h>

#include "base/error.h"
#include "codec/bitshuffle.h"
#include "hdf5/chunk_shape.h"
#include "hdf5/failures.h"
#include "hdf5/types.h"
#include "hdf5/writable.h"

static gpuf_status check_new_name(gpufi_h5_session *session, hid_t location, const char *name,
                                  gpuf_error *err) {
  const gpufi_h5_api *api = session->api;
  const gpuf_status status = gpufi_h5_check_writable(session, location, "dataset", name, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (gpufi_h5_is_parallel(session, location)) {
    return gpufi_h5_refuse_parallel(name, err);
  }
  /* This fails where a group on the way to the name does not exist yet. */
  if (api->Lexists(location, name, H5P_DEFAULT) > 0) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "'%s' exists already: choose another name, or delete it first", name);
  }
  return gpufi_h5_fail_if_refused(session, err, "looking for '%s' failed", name);
}

/* A plugin for filter 32008 fills in the first three cd_values itself. Where there is none, all
 * five are given, and the filter is optional, so that HDF5 creates the dataset without it. */
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

/* The dataset is chunked unless the tensor is 0-d or empty. One element is stored with the
 * dataset's description: apart from it, HDF5 would write it when the dataset is closed, and where
 * that fails, as on a full disk, HDF5 frees the dataset, keeps its identifier, and ends the process
 * by a signal when the next link is moved or deleted. */
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
  if (src->ndim == 0) {
    return api->Pset_layout(*plist, H5D_COMPACT) >= 0
               ? GPUF_OK
               : gpufi_h5_fail(session, err, "setting the layout of one element failed");
  }
  if (gpuf_tensor_count(src) == 0) {
    return GPUF_OK;
  }
  if (!chunk) {
    gpufi_h5_chunk_shape_default(src, chosen);
    chunk = chosen;
  }
  status = gpufi_h5_chunk_shape_check(src, chunk, err);
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

static gpuf_status create_dataset(gpufi_h5_session *session, hid_t location, const char *name,
                                  const gpuf_tensor *src, hid_t plist, hid_t *id, gpuf_error *err) {
  const gpufi_h5_api *api = session->api;
  hid_t type = H5I_INVALID_HID;
  hid_t space = H5I_INVALID_HID;
  hid_t links = H5I_INVALID_HID;
  gpuf_status status = gpufi_h5_type_create(session, src->dtype, &type, err);
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
  gpufi_h5_close(session, links);
  gpufi_h5_close(session, space);
  gpufi_h5_close(session, type);
  return status;
}

/* HDF5 1.10 may lose count of what is open where it gets no memory, and close the file later
 * without writing what it holds: what was written before is flushed now, and nothing is written
 * after. */
static void give_up_file(gpufi_h5_session *session, hid_t location) {
  if (session->api->Fflush(location, H5F_SCOPE_LOCAL) < 0) {
    gpufi_h5_discard_errors(session);
  }
  gpufi_h5_failure_note(&session->file,
                        (gpufi_h5_failure){.has_failed = true, .system_error = ENOMEM});
}

gpuf_status gpufi_h5_create_as(gpufi_h5_session *session, hid_t location, gpufi_h5_path *path,
                               const gpuf_tensor *src, hid_t plist, hid_t *id, gpuf_error *err) {
  gpuf_status status = check_new_name(session, location, path->text, err);
  if (status != GPUF_OK) {
    return status;
  }
  status = gpufi_h5_path_look(path, session, location, err);
  if (status != GPUF_OK) {
    return status;
  }
  status = create_dataset(session, location, path->text, src, plist, id, err);
  if (status != GPUF_OK) {
    gpufi_h5_path_withdraw(path, session, location);
  }
  if (status == GPUF_ERR_NO_MEMORY) {
    give_up_file(session, location);
  }
  return status;
}

gpuf_status gpufi_h5_create(gpufi_h5_session *session, hid_t location, gpufi_h5_path *path,
                            const gpuf_tensor *src, hid_t *id, gpuf_error *err) {
  hid_t plist = H5I_INVALID_HID;
  gpuf_status status = create_plist(session, src, &plist, err);
  if (status == GPUF_OK) {
    status = gpufi_h5_create_as(session, location, path, src, plist, id, err);
  }
  gpufi_h5_close(session, plist);
  return status;
}
