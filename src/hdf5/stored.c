#include "hdf5/stored.h"

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

/* The index "single chunk" is that of a dataset of one chunk which cannot grow. */
bool gpufi_h5_stored_mask_is_mistaken(const gpufi_h5_session *session,
                                      const gpufi_h5_dataset *dataset) {
  const gpufi_h5_api *api = session->api;
  H5D_chunk_index_t index;
  return api->mistakes_single_chunks && dataset->is_filtered && api->Dget_chunk_index_type &&
         api->Dget_chunk_index_type(dataset->id, &index) >= 0 && index == H5D_CHUNK_IDX_SINGLE;
}
