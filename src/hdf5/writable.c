#include "hdf5/writable.h"

#include "base/error.h"

#include <string.h>

/* H5FD_FEAT_HAS_MPI, which <hdf5.h> does not define in every release. */
#define FEATURE_HAS_MPI 0x0100u

/* `what` and `name` are what was to be read or written, `result` what it "was not". */
static gpuf_status refuse(const gpufi_h5_failure *failure, const char *what, const char *name,
                          const char *result, gpuf_error *err) {
  const char *const reason =
      failure->system_error ? strerror(failure->system_error) : "HDF5 did not say why";
  return failure->was_read
             ? gpufi_fail(err, GPUF_ERR_HDF5, failure->system_error,
                          "%s '%s' was not %s: an earlier read of this file failed (%s), and HDF5 "
                          "may take something else for what it did not read; close the file and "
                          "open it again",
                          what, name, result, reason)
             : gpufi_fail(err, GPUF_ERR_HDF5, failure->system_error,
                          "%s '%s' was not %s: an earlier write to this file failed (%s), and HDF5 "
                          "loses what it could not write then; make room, close the file and write "
                          "a new one",
                          what, name, result, reason);
}

gpuf_status gpufi_h5_check_writable(gpufi_h5_session *session, hid_t id, const char *what,
                                    const char *name, gpuf_error *err) {
  unsigned intent = GPUFI_H5F_ACC_RDWR;
  const hid_t file = session->api->Iget_file_id(id);
  if (file >= 0) {
    session->api->Fget_intent(file, &intent);
    session->api->Idec_ref(file);
  }
  if (!(intent & GPUFI_H5F_ACC_RDWR)) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "%s '%s' cannot be written: the file was opened read-only; open it for "
                      "writing",
                      what, name);
  }
  gpufi_h5_use_file(session, id);
  if (!session->file.api && (session->api->Fget_fileno || session->api->Oget_info1)) {
    return gpufi_h5_fail(session, err, "looking for the file of %s '%s' failed", what, name);
  }
  const gpufi_h5_failure failure = gpufi_h5_failure_find(&session->file);
  return failure.has_failed ? refuse(&failure, what, name, "written", err) : GPUF_OK;
}

gpuf_status gpufi_h5_check_readable(gpufi_h5_session *session, const char *name, gpuf_error *err) {
  const gpufi_h5_failure failure = gpufi_h5_failure_find(&session->file);
  return failure.has_lost ? refuse(&failure, "dataset", name, "read", err) : GPUF_OK;
}

bool gpufi_h5_is_parallel(gpufi_h5_session *session, hid_t id) {
  const gpufi_h5_api *api = session->api;
  unsigned long features = 0;
  const hid_t file = api->Iget_file_id(id);
  const hid_t access = file < 0 ? H5I_INVALID_HID : api->Fget_access_plist(file);
  const hid_t driver = access < 0 ? H5I_INVALID_HID : api->Pget_driver(access);
  const bool is_known = driver >= 0 && api->FDdriver_query(driver, &features) >= 0;
  gpufi_h5_close(session, access);
  gpufi_h5_close(session, file);
  return is_known && (features & FEATURE_HAS_MPI) != 0;
}

gpuf_status gpufi_h5_refuse_parallel(const char *name, gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                    "dataset '%s' lies in a file that was opened by an MPI driver, where all "
                    "processes must write filtered chunks together: create a dataset without "
                    "filters by H5Dcreate and write each process's part with gpuf_h5_write_region, "
                    "or let each process write a file of its own",
                    name);
}
