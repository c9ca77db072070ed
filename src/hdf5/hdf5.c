/* The public HDF5 calls. */
#include "base/error.h"
#include "hdf5/access.h"
#include "hdf5/register.h"

#include <string.h>

static gpuf_status transfer_elements(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                     const int64_t *start, const gpuf_tensor *tensor, bool writes,
                                     gpuf_error *err) {
  gpufi_h5_box box;
  const gpuf_status status =
      gpufi_h5_dataset_box(dataset, start, tensor, writes ? "source" : "destination", &box, err);
  return status == GPUF_OK ? gpufi_h5_box_transfer(session, dataset, &box, tensor, writes, err)
                           : status;
}

static gpuf_status transfer_region(hid_t id, const int64_t *start, const gpuf_tensor *tensor,
                                   const gpuf_h5_options *options, bool writes, gpuf_error *err) {
  gpufi_h5_session session;
  gpufi_h5_dataset dataset;
  gpuf_status status = gpufi_h5_check_tensor(tensor, writes ? "src" : "dst", err);
  if (status == GPUF_OK) {
    status = gpufi_h5_session_init(&session, options, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_h5_inspect(&session, id, writes, &dataset, err);
  }
  return status == GPUF_OK ? transfer_elements(&session, &dataset, start, tensor, writes, err)
                           : status;
}

/* --- Datasets by name -------------------------------------------------------- */

gpuf_status gpuf_h5_write(gpuf_h5_id location, const char *name, const gpuf_tensor *src,
                          const gpuf_h5_options *options, gpuf_error *err) {
  gpufi_h5_session session;
  gpufi_h5_dataset dataset;
  gpufi_h5_path path = {NULL, 0};
  hid_t id = H5I_INVALID_HID;
  gpuf_status status = gpufi_h5_begin_by_name(&session, name, src, "src", options, err);
  if (status == GPUF_OK) {
    status = gpufi_h5_path_init(&path, name, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_h5_create_and_inspect(&session, location, &path, src, &dataset, &id, err);
  }
  if (status == GPUF_OK) {
    status = transfer_elements(&session, &dataset, NULL, src, true, err);
  }
  if (id >= 0) {
    status = gpufi_h5_finish_dataset(&session, location, &path, id, src->ndim == 0, status, err);
  }
  gpufi_h5_path_fini(&path);
  return status;
}

gpuf_status gpuf_h5_read(gpuf_h5_id location, const char *name, const gpuf_tensor *dst,
                         const gpuf_h5_options *options, gpuf_error *err) {
  gpufi_h5_session session;
  gpufi_h5_dataset dataset;
  hid_t id = H5I_INVALID_HID;
  gpuf_status status = gpufi_h5_begin_by_name(&session, name, dst, "dst", options, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_h5_enter(&session);
  status = gpufi_h5_check_location(&session, location, err);
  if (status == GPUF_OK && (id = session.api->Dopen2(location, name, H5P_DEFAULT)) < 0) {
    status = gpufi_h5_fail(&session, err, "opening dataset '%s' failed", name);
  }
  gpufi_h5_leave(&session);
  if (status == GPUF_OK) {
    status = gpufi_h5_inspect(&session, id, false, &dataset, err);
  }
  if (status == GPUF_OK) {
    status = transfer_elements(&session, &dataset, NULL, dst, false, err);
  }
  gpufi_h5_enter(&session);
  gpufi_h5_close(&session, id);
  gpufi_h5_leave(&session);
  return status;
}

/* --- Open datasets ----------------------------------------------------------- */

gpuf_status gpuf_h5_write_dataset(gpuf_h5_id id, const gpuf_tensor *src,
                                  const gpuf_h5_options *options, gpuf_error *err) {
  return transfer_region(id, NULL, src, options, true, err);
}

gpuf_status gpuf_h5_write_region(gpuf_h5_id id, const int64_t *start, const gpuf_tensor *src,
                                 const gpuf_h5_options *options, gpuf_error *err) {
  return transfer_region(id, start, src, options, true, err);
}

gpuf_status gpuf_h5_read_dataset(gpuf_h5_id id, const gpuf_tensor *dst,
                                 const gpuf_h5_options *options, gpuf_error *err) {
  return transfer_region(id, NULL, dst, options, false, err);
}

gpuf_status gpuf_h5_read_region(gpuf_h5_id id, const int64_t *start, const gpuf_tensor *dst,
                                const gpuf_h5_options *options, gpuf_error *err) {
  return transfer_region(id, start, dst, options, false, err);
}

gpuf_status gpuf_h5_describe(gpuf_h5_id id, gpuf_tensor *tensor, const gpuf_h5_options *options,
                             gpuf_error *err) {
  gpufi_h5_session session;
  gpufi_h5_dataset dataset;
  gpuf_status status;
  if (!tensor) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "tensor is NULL: it must be one to fill");
  }
  status = gpufi_h5_session_init(&session, options, err);
  if (status == GPUF_OK) {
    status = gpufi_h5_inspect(&session, id, false, &dataset, err);
  }
  if (status != GPUF_OK) {
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
