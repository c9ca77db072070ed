/* The public HDF5 calls. */
#include "base/error.h"
#include "core/channel.h"
#include "core/runtime.h"
#include "hdf5/batches.h"
#include "hdf5/create.h"
#include "hdf5/hyperslab.h"
#include "hdf5/ring.h"
#include "hdf5/writable.h"

#include <inttypes.h>
#include <string.h>

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
  const gpufi_backend *backend;
  gpuf_status status = GPUF_OK;
  if (named.device.kind != GPUF_DEVICE_CPU) {
    status = gpufi_backend_for(named.device, &backend, err);
    if (status == GPUF_OK) {
      status = gpufi_channel_name_stream(backend, named.device, &named.stream, &keeper, err);
    }
  }
  if (status == GPUF_OK) {
    status = transfer_by_threads(session, dataset, box, &named, writes, err);
  }
  gpufi_channel_release(keeper, status != GPUF_OK);
  return status;
}

/* Chunks are read whole, so a box may begin and end anywhere; those that a box covers in part are
 * written by HDF5, which keeps their other elements. */
static gpuf_status transfer_elements(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                     const int64_t *start, const gpuf_tensor *tensor, bool writes,
                                     gpuf_error *err) {
  gpufi_h5_box box;
  const gpuf_status status =
      gpufi_h5_dataset_box(dataset, start, tensor, writes ? "source" : "destination", &box, err);
  if (status != GPUF_OK || gpuf_tensor_count(tensor) == 0) {
    return status;
  }
  return dataset->route == GPUFI_H5_ROUTE_HDF5 ||
                 (writes && !gpufi_h5_dataset_is_aligned(dataset, &box))
             ? gpufi_h5_hyperslabs_transfer(session, dataset, &box, tensor, writes, err)
             : transfer_chunks(session, dataset, &box, tensor, writes, err);
}

static gpuf_status check_tensor(const gpuf_tensor *tensor, const char *role, gpuf_error *err) {
  return tensor ? gpuf_tensor_check(tensor, err)
                : gpufi_fail(err, GPUF_ERR_INVALID, 0, "%s is NULL: it must be a tensor", role);
}

/* How the dataset of a writing call may be written. HDF5 itself writes the chunks of a parallel
 * file, where they have their places already; filtered ones have none before they are encoded.
 * Entered. */
static gpuf_status check_write(gpufi_h5_session *session, gpufi_h5_dataset *dataset,
                               gpuf_error *err) {
  const gpuf_status status =
      gpufi_h5_check_writable(session, dataset->id, "dataset", dataset->name, err);
  if (status != GPUF_OK || !gpufi_h5_is_parallel(session, dataset->id)) {
    return status;
  }
  dataset->route = GPUFI_H5_ROUTE_HDF5;
  return dataset->is_filtered ? gpufi_h5_refuse_parallel(dataset->name, err) : GPUF_OK;
}

/* Inspect dataset `id`, for a call that writes to it or not. Not entered, before or after. */
static gpuf_status inspect(gpufi_h5_session *session, hid_t id, bool writes,
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

static gpuf_status transfer_region(hid_t id, const int64_t *start, const gpuf_tensor *tensor,
                                   const gpuf_h5_options *options, bool writes, gpuf_error *err) {
  gpufi_h5_session session;
  gpufi_h5_dataset dataset;
  gpuf_status status = check_tensor(tensor, writes ? "src" : "dst", err);
  if (status == GPUF_OK) {
    status = gpufi_h5_session_init(&session, options, err);
  }
  if (status == GPUF_OK) {
    status = inspect(&session, id, writes, &dataset, err);
  }
  return status == GPUF_OK ? transfer_elements(&session, &dataset, start, tensor, writes, err)
                           : status;
}

/* --- Datasets by name -------------------------------------------------------- */

/* Check the arguments and begin the session. `role` is the tensor's name, for messages. */
static gpuf_status begin_by_name(gpufi_h5_session *session, const char *name,
                                 const gpuf_tensor *tensor, const char *role,
                                 const gpuf_h5_options *options, gpuf_error *err) {
  const gpuf_status status = check_tensor(tensor, role, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (!name || !*name) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "the dataset's name is %s",
                      name ? "empty" : "NULL");
  }
  return gpufi_h5_session_init(session, options, err);
}

/* Entered. */
static gpuf_status check_location(gpufi_h5_session *session, hid_t location, gpuf_error *err) {
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

/* Create the dataset and inspect it; *id is that of a dataset also where inspecting it failed. */
static gpuf_status create(gpufi_h5_session *session, hid_t location, gpufi_h5_path *path,
                          const gpuf_tensor *src, gpufi_h5_dataset *dataset, hid_t *id,
                          gpuf_error *err) {
  gpuf_status status;
  gpufi_h5_enter(session);
  status = check_location(session, location, err);
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
    status = check_write(session, dataset, err);
  }
  gpufi_h5_leave(session);
  return status;
}

/* Close the new dataset, and unlink it and its new groups if writing failed; but not if HDF5 cannot
 * close it: HDF5 2.0 crashes in H5Ldelete then. */
static gpuf_status finish(gpufi_h5_session *session, hid_t location, gpufi_h5_path *path, hid_t id,
                          gpuf_status status, gpuf_error *err) {
  gpufi_h5_enter(session);
  if (session->api->Idec_ref(id) < 0) { /* an earlier failure keeps its place in `err` */
    const gpuf_status closed = gpufi_h5_fail(session, status == GPUF_OK ? err : NULL,
                                             "closing dataset '%s' failed", path->text);
    status = status == GPUF_OK ? closed : status;
  } else if (status != GPUF_OK) {
    gpufi_h5_path_withdraw(path, session, location);
  }
  gpufi_h5_leave(session);
  return status;
}

gpuf_status gpuf_h5_write(gpuf_h5_id location, const char *name, const gpuf_tensor *src,
                          const gpuf_h5_options *options, gpuf_error *err) {
  gpufi_h5_session session;
  gpufi_h5_dataset dataset;
  gpufi_h5_path path = {NULL, 0};
  hid_t id = H5I_INVALID_HID;
  gpuf_status status = begin_by_name(&session, name, src, "src", options, err);
  if (status == GPUF_OK) {
    status = gpufi_h5_path_init(&path, name, err);
  }
  if (status == GPUF_OK) {
    status = create(&session, location, &path, src, &dataset, &id, err);
  }
  if (status == GPUF_OK) {
    status = transfer_elements(&session, &dataset, NULL, src, true, err);
  }
  if (id >= 0) {
    status = finish(&session, location, &path, id, status, err);
  }
  gpufi_h5_path_fini(&path);
  return status;
}

gpuf_status gpuf_h5_read(gpuf_h5_id location, const char *name, const gpuf_tensor *dst,
                         const gpuf_h5_options *options, gpuf_error *err) {
  gpufi_h5_session session;
  gpufi_h5_dataset dataset;
  hid_t id = H5I_INVALID_HID;
  gpuf_status status = begin_by_name(&session, name, dst, "dst", options, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_h5_enter(&session);
  status = check_location(&session, location, err);
  if (status == GPUF_OK && (id = session.api->Dopen2(location, name, H5P_DEFAULT)) < 0) {
    status = gpufi_h5_fail(&session, err, "opening dataset '%s' failed", name);
  }
  gpufi_h5_leave(&session);
  if (status == GPUF_OK) {
    status = inspect(&session, id, false, &dataset, err);
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
    status = inspect(&session, id, false, &dataset, err);
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
