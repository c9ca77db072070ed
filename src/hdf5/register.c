#include "hdf5/register.h"

#include <stdlib.h>

#include "../../hdf5_filter/filter.h"
#include "hdf5/writable.h"

static void flush_file(gpufi_h5_session *session, hid_t file) {
  const gpufi_h5_api *const api = session->api;
  unsigned intent = 0;
  if (api->Fget_intent(file, &intent) < 0 || !(intent & GPUFI_H5F_ACC_RDWR) ||
      gpufi_h5_is_parallel(session, file)) {
    return;
  }
  gpufi_h5_use_file(session, file);
  if (api->Fflush(file, H5F_SCOPE_LOCAL) < 0) {
    gpufi_h5_discard_errors(session); /* noted for that file */
  }
}

/* HDF5 up to 2.0 gives a dataset's filter no name while it does not know the filter, and sizes the
 * dataset's header for that. If it learns of the filter before it has written the header, it writes
 * the name as well, beyond the header's end, and the dataset cannot be opened any more. */
static void flush_files(gpufi_h5_session *session) {
  const gpufi_h5_api *const api = session->api;
  const gpufi_h5_file file = session->file;
  const bool uses_chunk_cache = session->uses_chunk_cache;
  const ssize_t count = api->Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_FILE);
  hid_t *const files = count > 0 ? malloc((size_t)count * sizeof(*files)) : NULL;
  const ssize_t found =
      files ? api->Fget_obj_ids((hid_t)H5F_OBJ_ALL, H5F_OBJ_FILE, (size_t)count, files) : 0;
  session->uses_chunk_cache = true;
  for (ssize_t i = 0; i < found; i++) {
    flush_file(session, files[i]);
  }
  api->Eclear2(H5E_DEFAULT);
  free(files);
  session->file = file;
  session->uses_chunk_cache = uses_chunk_cache;
}

gpuf_status gpufi_h5_register(gpufi_h5_session *session, gpuf_error *err) {
  gpufi_h5_api *api = session->api;
  /* H5close forgets filters. */
  if (__atomic_load_n(&api->filter_registered, __ATOMIC_ACQUIRE) &&
      api->Zfilter_avail(GPUF_H5_FILTER_ID) > 0) {
    return GPUF_OK;
  }
  if (!session->context) { /* a checkpoint's library has the checkpoint's file alone */
    flush_files(session);
  }
  const H5Z_class2_t *filter_class;
  for (size_t i = 0; (filter_class = gpufi_filter_class(i)) != NULL; i++) {
    if (api->Zregister(filter_class) < 0) {
      return gpufi_h5_fail(session, err, "registering HDF5 filter %d failed",
                           (int)filter_class->id);
    }
  }
  __atomic_store_n(&api->filter_registered, true, __ATOMIC_RELEASE);
  return GPUF_OK;
}
