#include "hdf5/stored.h"

#include <string.h>

#include "base/error.h"
#include "hdf5/grid.h"

#define CHECKSUM_NBYTES 4 /* of fletcher32 */

/* For H5Dchunk_iter: no chunk is wanted. */
static int stop(const hsize_t *offset, unsigned filter_mask, haddr_t address, hsize_t nbytes,
                void *arg) {
  return 1;
}

static bool is_writable(const gpufi_h5_api *api, hid_t id) {
  unsigned intent = GPUFI_H5F_ACC_RDWR;
  const hid_t file = api->Iget_file_id(id);
  if (file >= 0) {
    api->Fget_intent(file, &intent);
    api->Idec_ref(file);
  }
  return (intent & GPUFI_H5F_ACC_RDWR) != 0;
}

/* Both calls begin by writing what is in memory, and keep it there. The second one then looks for
 * the first chunk from the beginning. */
gpuf_status gpufi_h5_stored_flush(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                  gpuf_error *err) {
  static const hsize_t first[GPUF_NDIM_MAX];
  const gpufi_h5_api *api = session->api;
  unsigned filter_mask;
  haddr_t address;
  hsize_t nbytes;
  herr_t result = 0;
  if (!dataset->is_chunked || !is_writable(api, dataset->id)) {
    return GPUF_OK;
  }
  session->uses_chunk_cache = true;
  if (api->Dchunk_iter) {
    result = api->Dchunk_iter(dataset->id, H5P_DEFAULT, stop, NULL);
  } else if (api->Dget_chunk_info_by_coord) {
    result = api->Dget_chunk_info_by_coord(dataset->id, first, &filter_mask, &address, &nbytes);
  }
  return result < 0 ? gpufi_h5_fail(session, err,
                                    "reading dataset '%s' failed: HDF5 could not write chunks of "
                                    "it that it has in memory",
                                    dataset->name)
                    : GPUF_OK;
}

/* Whether the filter that a chunk went through last is fletcher32; no filter was skipped where the
 * library does not say which. */
static bool ends_in_checksum(const gpufi_h5_api *api, const gpufi_h5_dataset *dataset,
                             const hsize_t *offset) {
  unsigned filter_mask = 0;
  haddr_t address;
  hsize_t nbytes;
  if (api->Dget_chunk_info_by_coord) {
    api->Dget_chunk_info_by_coord(dataset->id, offset, &filter_mask, &address, &nbytes);
  }
  int32_t last = dataset->filter_count - 1;
  while (last >= 0 && filter_mask >> last & 1) {
    last--;
  }
  return last >= 0 && dataset->fletcher32_mask >> last & 1;
}

gpuf_status gpufi_h5_stored_check(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                  const gpufi_h5_box *box, gpuf_error *err) {
  const gpufi_h5_api *api = session->api;
  gpufi_h5_grid grid = {.total = 0};
  int64_t start[GPUF_NDIM_MAX];
  hsize_t offset[GPUF_NDIM_MAX];
  if (dataset->is_chunked && dataset->fletcher32_mask != 0) {
    gpufi_h5_grid_init(&grid, dataset->ndim, box, dataset->chunk, dataset->chunk);
  }
  for (int64_t i = 0; i < grid.total; i++) {
    hsize_t nbytes = 0;
    gpufi_h5_grid_origin(&grid, i, start);
    for (int32_t axis = 0; axis < dataset->ndim; axis++) {
      offset[axis] = (hsize_t)start[axis];
    }
    session->uses_chunk_cache = true;
    if (api->Dget_chunk_storage_size(dataset->id, offset, &nbytes) >= 0 && nbytes > 0 &&
        nbytes < CHECKSUM_NBYTES && ends_in_checksum(api, dataset, offset)) {
      return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                        "chunk at (%s) of dataset '%s' takes %d bytes in the file, and its "
                        "fletcher32 checksum alone takes %d: the file is damaged",
                        gpufi_h5_list_of(dataset->ndim, start).text, dataset->name, (int)nbytes,
                        CHECKSUM_NBYTES);
    }
  }
  return GPUF_OK;
}

/* The index "single chunk" is that of a dataset of one chunk which cannot grow. */
bool gpufi_h5_stored_mask_is_mistaken(const gpufi_h5_session *session,
                                      const gpufi_h5_dataset *dataset) {
  const gpufi_h5_api *api = session->api;
  H5D_chunk_index_t index;
  return api->mistakes_single_chunks && dataset->is_filtered && api->Dget_chunk_index_type &&
         api->Dget_chunk_index_type(dataset->id, &index) >= 0 && index == H5D_CHUNK_IDX_SINGLE;
}

/* Of a chunk that has no place HDF5 says that it has 0 bytes. */
gpuf_status gpufi_h5_stored_missing(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                    bool *is_missing, int64_t *start, gpuf_error *err) {
  gpufi_h5_box all = {{0}, {0}};
  gpufi_h5_grid grid;
  hsize_t offset[GPUF_NDIM_MAX];
  memcpy(all.shape, dataset->shape, sizeof(all.shape));
  gpufi_h5_grid_init(&grid, dataset->ndim, &all, dataset->chunk, dataset->chunk);
  *is_missing = false;
  session->uses_chunk_cache = true;
  for (int64_t i = 0; dataset->is_chunked && !*is_missing && i < grid.total; i++) {
    hsize_t nbytes = 0;
    gpufi_h5_grid_origin(&grid, i, start);
    for (int32_t axis = 0; axis < dataset->ndim; axis++) {
      offset[axis] = (hsize_t)start[axis];
    }
    if (session->api->Dget_chunk_storage_size(dataset->id, offset, &nbytes) < 0) {
      return gpufi_h5_fail(session, err, "looking for a chunk of dataset '%s' failed",
                           dataset->name);
    }
    *is_missing = nbytes == 0;
  }
  return GPUF_OK;
}
