#include "hdf5/checkpoint/file.h"

/* A file access list with the driver, if HDF5 takes it. Entered. */
static gpuf_status create_access(gpufi_checkpoint_file *file, gpufi_h5_session *session,
                                 hid_t *access, gpuf_error *err) {
  const gpufi_h5_driver *driver;
  *access = session->api->Pcreate(*session->api->P_CLS_FILE_ACCESS_ID);
  if (*access < 0) {
    return gpufi_h5_fail(session, err, "making a file access property list failed");
  }
  const gpuf_status status = gpufi_h5_driver_open(session->api, &driver, err);
  if (status == GPUF_OK) {
    return gpufi_h5_driver_fapl(driver, *access, &file->written, err);
  }
  return status == GPUF_ERR_UNSUPPORTED ? GPUF_OK : status;
}

/* What the driver remembers says more than HDF5. */
static gpuf_status driver_error(const gpufi_checkpoint_file *file, gpuf_error *err) {
  return file->written ? gpufi_h5_driver_error(file->written, err) : GPUF_OK;
}

gpuf_status gpufi_checkpoint_file_create(gpufi_checkpoint_file *file, gpufi_h5_session *session,
                                         const char *path, gpuf_error *err) {
  hid_t access;
  file->written = NULL;
  file->id = H5I_INVALID_HID;
  gpufi_h5_enter(session);
  gpuf_status status = create_access(file, session, &access, err);
  if (status == GPUF_OK) {
    file->id = session->api->Fcreate(path, GPUFI_H5F_ACC_TRUNC, H5P_DEFAULT, access);
    if (file->id < 0) {
      status = gpufi_h5_fail(session, err, "making the file '%s' failed", path);
    }
  }
  gpufi_h5_close(session, access);
  gpufi_h5_leave(session);
  if (file->id < 0 && file->written) {
    const gpuf_status cause = driver_error(file, err);
    status = cause == GPUF_OK ? status : cause;
    gpufi_h5_driver_release(file->written);
    file->written = NULL;
  }
  return status;
}

gpuf_status gpufi_checkpoint_file_close(gpufi_checkpoint_file *file, gpufi_h5_session *session,
                                        const char *path, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  gpufi_h5_enter(session);
  if (session->api->Fclose(file->id) < 0) {
    status = gpufi_h5_fail(session, err, "closing the file '%s' failed", path);
  }
  gpufi_h5_leave(session);
  const gpuf_status cause = driver_error(file, err);
  if (file->written) {
    gpufi_h5_driver_release(file->written);
  }
  file->id = H5I_INVALID_HID;
  file->written = NULL;
  return cause == GPUF_OK ? status : cause;
}
