#include "hdf5/access.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "core/channel.h"
#include "hdf5/batches.h"
#include "hdf5/create.h"
#include "hdf5/hyperslab.h"
#include "hdf5/object.h"
#include "hdf5/register.h"
#include "hdf5/ring.h"
#include "hdf5/stored.h"
#include "hdf5/writable.h"

/* --- Elements ---------------------------------------------------------------- */

/* By the device as far as it codes chunks, then by workers. The tensor's stream has a name that
 * holds in every thread. */
static gpuf_status transfer_by_threads(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                       const gpufi_h5_box *box, const gpuf_tensor *tensor,
                                       bool writes, gpuf_error *err) {
  gpufi_h5_transfer transfer;
  int64_t done;
  gpuf_status status;
  gpuf_error error = {0}; /* of a device that leaves chunks to the workers, the caller sees none */
  gpufi_h5_transfer_init(&transfer, session, dataset, box, tensor, writes);
  status = writes ? gpufi_h5_batches_write(session, &transfer, &done, &error)
                  : gpufi_h5_batches_read(session, &transfer, &done, &error);
  if (status != GPUF_OK && err) {
    *err = error;
  }
  if (status == GPUF_OK && done < transfer.grid.total) {
    status = gpufi_h5_ring_transfer(session, &transfer, done, err);
  }
  gpufi_h5_transfer_fini(&transfer);
  return status;
}

/* The tensor's stream may be GPUF_STREAM_PER_THREAD, which is another stream in each worker. */
static gpuf_status transfer_chunks(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                   const gpufi_h5_box *box, const gpuf_tensor *tensor, bool writes,
                                   gpuf_error *err) {
  gpuf_tensor named = *tensor;
  gpufi_channel *keeper = NULL;
  gpuf_status status = gpufi_channel_name_stream_of(&named, &keeper, err);
  if (status == GPUF_OK) {
    status = transfer_by_threads(session, dataset, box, &named, writes, err);
  }
  gpufi_channel_release(keeper, status != GPUF_OK);
  return status;
}

static gpuf_status flush(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                         gpuf_error *err) {
  gpufi_h5_enter(session);
  const gpuf_status status = gpufi_h5_stored_flush(session, dataset, err);
  gpufi_h5_leave(session);
  return status;
}

gpuf_status gpufi_h5_box_transfer(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                  const gpufi_h5_box *box, const gpuf_tensor *tensor, bool writes,
                                  gpuf_error *err) {
  if (gpuf_tensor_count(tensor) == 0) {
    return GPUF_OK;
  }
  const gpuf_status status = writes ? GPUF_OK : flush(session, dataset, err);
  if (status != GPUF_OK) {
    return status;
  }
  return dataset->route == GPUFI_H5_ROUTE_HDF5 ||
                 (writes && !gpufi_h5_dataset_is_aligned(dataset, box))
             ? gpufi_h5_hyperslabs_transfer(session, dataset, box, tensor, writes, err)
             : transfer_chunks(session, dataset, box, tensor, writes, err);
}

/* --- Datasets ---------------------------------------------------------------- */

/* How the dataset of a writing call may be written. HDF5 itself writes the chunks of a parallel
 * file, where they have their places already; filtered ones have none before they are encoded.
 * Entered. */
static gpuf_status check_write(gpufi_h5_session *session, gpufi_h5_dataset *dataset,
                               gpuf_error *err) {
  const gpuf_status status =
      gpufi_h5_check_writable(session, dataset->id, "dataset", dataset->name, err);
  if (status == GPUF_OK && dataset->is_virtual && !dataset->is_native) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "dataset '%s' is virtual and its type, as its byte order, is not the CPU's: "
                      "HDF5 writes wrong values through it; write to its sources",
                      dataset->name);
  }
  if (dataset->route == GPUFI_H5_ROUTE_STEPS ||
      (status == GPUF_OK && gpufi_h5_stored_mask_is_mistaken(session, dataset))) {
    dataset->route = GPUFI_H5_ROUTE_HDF5;
  }
  if (status != GPUF_OK || !gpufi_h5_is_parallel(session, dataset->id)) {
    return status;
  }
  dataset->route = GPUFI_H5_ROUTE_HDF5;
  return dataset->is_filtered ? gpufi_h5_refuse_parallel(dataset->name, err) : GPUF_OK;
}

gpuf_status gpufi_h5_inspect(gpufi_h5_session *session, hid_t id, bool writes,
                             gpufi_h5_dataset *dataset, gpuf_error *err) {
  gpuf_status status;
  gpufi_h5_enter(session);
  status = gpufi_h5_register(session, err);
  if (status == GPUF_OK) {
    status = gpufi_h5_dataset_init(dataset, session, id, err);
  }
  if (status == GPUF_OK) {
    status = writes ? check_write(session, dataset, err)
                    : gpufi_h5_check_readable(session, dataset->name, err);
  }
  gpufi_h5_leave(session);
  return status;
}

gpuf_status gpufi_h5_check_tensor(const gpuf_tensor *tensor, const char *role, gpuf_error *err) {
  return tensor ? gpuf_tensor_check(tensor, err)
                : gpufi_fail(err, GPUF_ERR_INVALID, 0, "%s is NULL: it must be a tensor", role);
}

gpuf_status gpufi_h5_check_name(const char *name, gpuf_error *err) {
  return name && *name ? GPUF_OK
                       : gpufi_fail(err, GPUF_ERR_INVALID, 0, "the dataset's name is %s",
                                    name ? "empty" : "NULL");
}

gpuf_status gpufi_h5_begin_by_name(gpufi_h5_session *session, const char *name,
                                   const gpuf_tensor *tensor, const char *role,
                                   const gpuf_h5_options *options, gpuf_error *err) {
  gpuf_status status = gpufi_h5_check_tensor(tensor, role, err);
  if (status == GPUF_OK) {
    status = gpufi_h5_check_name(name, err);
  }
  return status == GPUF_OK ? gpufi_h5_session_init(session, options, err) : status;
}

gpuf_status gpufi_h5_check_location(gpufi_h5_session *session, hid_t location, gpuf_error *err) {
  const H5I_type_t type = session->api->Iget_type(location);
  if (type != H5I_FILE && type != H5I_GROUP) {
    session->api->Eclear2(H5E_DEFAULT);
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "identifier %" PRId64 " is not an open HDF5 file or group of the bound "
                      "library: was it closed?",
                      (int64_t)location);
  }
  gpufi_h5_use_file(session, location);
  return GPUF_OK;
}

gpuf_status gpufi_h5_create_and_inspect(gpufi_h5_session *session, hid_t location,
                                        gpufi_h5_path *path, const gpuf_tensor *src,
                                        gpufi_h5_dataset *dataset, hid_t *id, gpuf_error *err) {
  gpuf_status status;
  gpufi_h5_enter(session);
  status = gpufi_h5_check_location(session, location, err);
  if (status == GPUF_OK) {
    status = gpufi_h5_register(session, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_h5_create(session, location, path, src, id, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_h5_dataset_init(dataset, session, *id, err);
  }
  if (status == GPUF_OK) { /* an external link may have led to another file */
    dataset->is_new = true;
    status = check_write(session, dataset, err);
  }
  gpufi_h5_leave(session);
  return status;
}

gpuf_status gpufi_h5_finish_dataset(gpufi_h5_session *session, hid_t location, gpufi_h5_path *path,
                                    hid_t id, bool is_number, gpuf_status status, gpuf_error *err) {
  gpufi_h5_enter(session);
  if (status == GPUF_OK && gpufi_h5_object_link_count(session, id) == 0) {
    status = gpufi_fail(err, GPUF_ERR_STATE, 0,
                        "dataset '%s' was deleted while it was written: nothing of it is in the "
                        "file",
                        path->text);
  }
  const bool is_its_own =
      status != GPUF_OK && gpufi_h5_object_is_at(session, id, location, path->text);
  if (status == GPUF_OK && is_number && session->api->Fflush(id, H5F_SCOPE_LOCAL) < 0) {
    status = gpufi_h5_fail(session, err, "writing dataset '%s' to the file failed", path->text);
  }
  if (session->api->Idec_ref(id) < 0) { /* an earlier failure keeps its place in `err` */
    const gpuf_status closed = gpufi_h5_fail(session, status == GPUF_OK ? err : NULL,
                                             "closing dataset '%s' failed", path->text);
    status = status == GPUF_OK ? closed : status;
  } else if (is_its_own) {
    gpufi_h5_path_withdraw(path, session, location);
  }
  gpufi_h5_leave(session);
  return status;
}
