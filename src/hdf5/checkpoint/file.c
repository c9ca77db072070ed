#include "hdf5/checkpoint/file.h"

#include "base/error.h"

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
    return gpufi_h5_driver_fapl(driver, *access, &file->driven, err);
  }
  return status == GPUF_ERR_UNSUPPORTED ? GPUF_OK : status;
}

gpuf_status gpufi_checkpoint_file_error(const gpufi_checkpoint_file *file, gpuf_error *err) {
  return file->driven ? gpufi_h5_driver_error(file->driven, err) : GPUF_OK;
}

void gpufi_checkpoint_file_note_elements(gpufi_checkpoint_file *file, bool notes_elements) {
  if (file->driven) {
    gpufi_h5_driver_note_elements(file->driven, notes_elements);
  }
}

/* Entered. */
static bool is_open(const gpufi_checkpoint_file *file, const gpufi_h5_session *session) {
  return file->driven ? gpufi_h5_driver_is_open(file->driven)
                      : session->api->Iget_type(file->id) == H5I_FILE;
}

static gpuf_status fail_lost(gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_STATE, 0,
                    "HDF5 was closed (H5close) while a file of the checkpoint was open: begin "
                    "again, and let nobody call H5close meanwhile");
}

gpuf_status gpufi_checkpoint_file_check_open(const gpufi_checkpoint_file *file,
                                             gpufi_h5_session *session, gpuf_error *err) {
  gpufi_h5_enter(session);
  const bool is_lost = !is_open(file, session);
  gpufi_h5_leave(session);
  return is_lost ? fail_lost(err) : GPUF_OK;
}

/* Whether a failure is none of the file's: HDF5 did not come to it. Entered. */
static bool is_before(const gpufi_checkpoint_file *file, const gpufi_h5_session *session,
                      hid_t access) {
  return file->driven ? !file->driven->path[0] : session->api->Iget_type(access) != H5I_GENPROP_LST;
}

static gpuf_status fail_before(const char *path, gpuf_error *err) {
  const gpuf_error why = err ? *err : (gpuf_error){.message = {0}};
  return gpufi_fail(err, GPUF_ERR_STATE, 0,
                    "HDF5 failed before it came to the file '%s', as it does beside H5close: try "
                    "again, and let nobody call H5close meanwhile (%s)",
                    path, why.message);
}

/* What the driver remembers says more than HDF5. */
static gpuf_status fail_open(gpufi_checkpoint_file *file, gpuf_status status, gpuf_error *err) {
  if (file->driven) {
    const gpuf_status cause = gpufi_checkpoint_file_error(file, err);
    gpufi_h5_driver_release(file->driven);
    file->driven = NULL;
    return cause == GPUF_OK ? status : cause;
  }
  return status;
}

static gpuf_status open_file(gpufi_checkpoint_file *file, gpufi_h5_session *session,
                             const char *path, bool creates, bool recycles, gpuf_error *err) {
  const gpufi_h5_api *const api = session->api;
  hid_t access;
  file->driven = NULL;
  file->id = H5I_INVALID_HID;
  gpufi_h5_enter(session);
  gpuf_status status = create_access(file, session, &access, err);
  if (status == GPUF_OK && file->driven && !creates) {
    gpufi_h5_driver_set_finished(file->driven);
  }
  if (status == GPUF_OK && file->driven && recycles) {
    gpufi_h5_driver_set_recycled(file->driven, gpufi_h5_session_thread_count(session));
  }
  if (status == GPUF_OK) {
    file->id = creates ? api->Fcreate(path, GPUFI_H5F_ACC_TRUNC, H5P_DEFAULT, access)
                       : api->Fopen(path, GPUFI_H5F_ACC_RDONLY, access);
    if (file->id < 0) {
      status = gpufi_h5_fail(session, err, "%s the file '%s' failed",
                             creates ? "making" : "opening", path);
    }
  }
  if (status == GPUF_ERR_HDF5 && is_before(file, session, access)) {
    status = fail_before(path, err);
  }
  gpufi_h5_close(session, access);
  gpufi_h5_leave(session);
  return status == GPUF_OK ? GPUF_OK : fail_open(file, status, err);
}

gpuf_status gpufi_checkpoint_file_create(gpufi_checkpoint_file *file, gpufi_h5_session *session,
                                         const char *path, bool recycles, gpuf_error *err) {
  return open_file(file, session, path, true, recycles, err);
}

gpuf_status gpufi_checkpoint_file_open(gpufi_checkpoint_file *file, gpufi_h5_session *session,
                                       const char *path, gpuf_error *err) {
  return open_file(file, session, path, false, false, err);
}

gpuf_status gpufi_checkpoint_file_finish(gpufi_checkpoint_file *file, gpufi_h5_session *session,
                                         const char *path, gpufi_h5_extents *elements,
                                         gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  *elements = (gpufi_h5_extents){NULL, 0, 0};
  file->mapping = (gpufi_h5_mapping){NULL, 0};
  gpufi_h5_enter(session);
  if (!is_open(file, session)) {
    status = fail_lost(err);
  } else if (session->api->Fclose(file->id) < 0) {
    status = gpufi_h5_fail(session, err, "closing the file '%s' failed", path);
  }
  gpufi_h5_leave(session);
  const gpuf_status cause = gpufi_checkpoint_file_error(file, err);
  if (file->driven) {
    *elements = file->driven->elements;
    file->driven->elements = (gpufi_h5_extents){NULL, 0, 0};
    file->mapping = gpufi_h5_driver_take_mapping(file->driven);
    gpufi_h5_driver_release(file->driven);
  }
  file->id = H5I_INVALID_HID;
  file->driven = NULL;
  return cause == GPUF_OK ? status : cause;
}

gpuf_status gpufi_checkpoint_file_close(gpufi_checkpoint_file *file, gpufi_h5_session *session,
                                        const char *path, gpuf_error *err) {
  gpufi_h5_extents elements;
  const gpuf_status status = gpufi_checkpoint_file_finish(file, session, path, &elements, err);
  gpufi_h5_extents_fini(&elements);
  gpufi_h5_io_unmap(&file->mapping);
  return status;
}
