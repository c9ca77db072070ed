/* Reading and writing through H5Dread and H5Dwrite, a bounded slab at a time: for layouts, types
 * and filters that only HDF5 itself handles. */
#include "base/error.h"
#include "hdf5/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A slab takes at most this much, or one chunk where that is more. */
#define SLAB_NBYTES ((int64_t)32 << 20)

typedef struct slabs {
  gpufi_h5_grid grid;
  bool in_place; /* HDF5 itself reads or writes the tensor: it is packed, on the CPU */
  void *buffer;  /* one slab, else NULL */
  bool pooled;
} slabs;

/* Whole chunks, as many as fit, the last axis first: no chunk is decoded twice. */
static void choose_slab(const gpufi_h5_dataset *dataset, const gpufi_h5_region *region,
                        int64_t *slab) {
  int64_t nbytes = (int64_t)gpuf_dtype_nbytes(dataset->dtype);
  for (int32_t axis = 0; axis < dataset->ndim; axis++) {
    slab[axis] =
        dataset->chunk[axis] < dataset->shape[axis] ? dataset->chunk[axis] : dataset->shape[axis];
    nbytes *= slab[axis] < region->shape[axis] ? slab[axis] : region->shape[axis];
  }
  for (int32_t axis = dataset->ndim - 1; axis >= 0; axis--) {
    const int64_t chunk = slab[axis];
    const int64_t before = region->start[axis] % chunk;
    const int64_t needed = (before + region->shape[axis] - 1) / chunk + 1;
    const int64_t fit = SLAB_NBYTES / nbytes;
    const int64_t count = fit < 1 ? 1 : fit < needed ? fit : needed;
    nbytes *= count;
    slab[axis] = chunk * count;
  }
}

static gpuf_status slabs_init(slabs *all, const gpufi_h5_dataset *dataset,
                              const gpufi_h5_region *region, const gpuf_tensor *tensor,
                              gpuf_error *err) {
  int64_t slab[GPUF_NDIM_MAX];
  size_t nbytes = gpuf_dtype_nbytes(dataset->dtype);
  memset(all, 0, sizeof(*all));
  choose_slab(dataset, region, slab);
  gpufi_h5_grid_init(&all->grid, dataset->ndim, region, dataset->chunk, slab);
  for (int32_t axis = 0; axis < dataset->ndim; axis++) { /* at most the tensor's size */
    nbytes *= (size_t)(slab[axis] < region->shape[axis] ? slab[axis] : region->shape[axis]);
  }
  all->in_place = tensor->device.kind == GPUF_DEVICE_CPU && gpuf_tensor_is_contiguous(tensor);
  if (all->in_place) {
    return GPUF_OK;
  }
  all->pooled = tensor->device.kind != GPUF_DEVICE_CPU &&
                gpuf_pool_acquire(tensor->device, nbytes, &all->buffer, NULL) == GPUF_OK;
  if (!all->pooled && !(all->buffer = malloc(nbytes))) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for a slab of %zu bytes", nbytes);
  }
  return GPUF_OK;
}

static void slabs_fini(slabs *all) {
  if (all->pooled) {
    gpuf_pool_release(all->buffer);
  } else {
    free(all->buffer);
  }
}

/* A space of `shape` with the box at `start` selected. */
static hid_t create_selection(const gpufi_h5_api *api, int32_t ndim, const int64_t *shape,
                              const int64_t *start, const int64_t *extent) {
  hsize_t dims[GPUF_NDIM_MAX];
  hsize_t offset[GPUF_NDIM_MAX];
  hsize_t count[GPUF_NDIM_MAX];
  hid_t space;
  if (ndim == 0) {
    return api->Screate(H5S_SCALAR);
  }
  for (int32_t axis = 0; axis < ndim; axis++) {
    dims[axis] = (hsize_t)shape[axis];
    offset[axis] = (hsize_t)start[axis];
    count[axis] = (hsize_t)extent[axis];
  }
  space = api->Screate_simple(ndim, dims, NULL);
  if (space >= 0 && api->Sselect_hyperslab(space, H5S_SELECT_SET, offset, NULL, count, NULL) < 0) {
    api->Idec_ref(space);
    return H5I_INVALID_HID;
  }
  return space;
}

gpuf_status gpufi_h5_transfer(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                              const int64_t *start, const int64_t *extent, void *buffer,
                              const int64_t *buffer_shape, bool writes, gpuf_error *err) {
  static const int64_t origin[GPUF_NDIM_MAX];
  const gpufi_h5_api *api = session->api;
  hid_t in_file = H5I_INVALID_HID;
  hid_t in_memory = H5I_INVALID_HID;
  hid_t type = H5I_INVALID_HID;
  herr_t failed = -1;
  gpuf_status status = gpufi_h5_type_create_memory(session, dataset, &type, err);
  if (status != GPUF_OK) {
    return status;
  }
  in_file = create_selection(api, dataset->ndim, dataset->shape, start, extent);
  in_memory = in_file < 0 ? H5I_INVALID_HID
                          : create_selection(api, dataset->ndim, buffer_shape, origin, extent);
  if (in_memory >= 0) {
    failed = writes ? api->Dwrite(dataset->id, type, in_memory, in_file, H5P_DEFAULT, buffer)
                    : api->Dread(dataset->id, type, in_memory, in_file, H5P_DEFAULT, buffer);
  }
  if (failed < 0) {
    status = gpufi_h5_fail(session, err, "%s dataset '%s' failed", writes ? "writing" : "reading",
                           dataset->name);
  }
  gpufi_h5_close(session, in_memory);
  gpufi_h5_close(session, in_file);
  gpufi_h5_close(session, type);
  return status;
}

/* Between the file and a buffer of `buffer_shape`. */
static gpuf_status transfer_slab(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                 const int64_t *start, const int64_t *extent, void *buffer,
                                 const int64_t *buffer_shape, bool writes, gpuf_error *err) {
  gpufi_h5_enter(session);
  const gpuf_status status =
      gpufi_h5_transfer(session, dataset, start, extent, buffer, buffer_shape, writes, err);
  gpufi_h5_leave(session);
  return status;
}

static gpuf_status move_slab(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                             const slabs *all, int64_t index, const gpuf_tensor *tensor,
                             bool writes, gpuf_error *err) {
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  int64_t start[GPUF_NDIM_MAX];
  int64_t extent[GPUF_NDIM_MAX];
  int64_t in_tensor[GPUF_NDIM_MAX];
  gpuf_tensor slab;
  gpuf_tensor view = *tensor;
  gpuf_status status;
  gpufi_h5_grid_box(&all->grid, index, start, extent);
  for (int32_t axis = 0; axis < dataset->ndim; axis++) {
    in_tensor[axis] = start[axis] - all->grid.region.start[axis];
  }
  status = gpufi_h5_narrow(&view, in_tensor, extent, err);
  if (status == GPUF_OK && all->in_place) {
    return transfer_slab(session, dataset, start, extent, view.data, tensor->shape, writes, err);
  }
  if (status == GPUF_OK) {
    status = gpuf_tensor_init(&slab, all->buffer, cpu, dataset->dtype, dataset->ndim, extent, err);
  }
  if (status == GPUF_OK && writes) {
    status = gpuf_copy(&slab, &view, NULL, err);
  }
  if (status == GPUF_OK) {
    status = transfer_slab(session, dataset, start, extent, all->buffer, extent, writes, err);
  }
  if (status == GPUF_OK && !writes) {
    status = gpuf_copy(&view, &slab, NULL, err);
  }
  return status;
}

static gpuf_status move_slabs(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                              const gpufi_h5_region *region, const gpuf_tensor *tensor, bool writes,
                              gpuf_error *err) {
  slabs all;
  gpuf_status status = slabs_init(&all, dataset, region, tensor, err);
  for (int64_t index = 0; status == GPUF_OK && index < all.grid.total; index++) {
    status = move_slab(session, dataset, &all, index, tensor, writes, err);
  }
  slabs_fini(&all);
  return status;
}

gpuf_status gpufi_h5_write_slabs(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                 const gpufi_h5_region *region, const gpuf_tensor *src,
                                 gpuf_error *err) {
  return move_slabs(session, dataset, region, src, true, err);
}

gpuf_status gpufi_h5_read_slabs(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                const gpufi_h5_region *region, const gpuf_tensor *dst,
                                gpuf_error *err) {
  return move_slabs(session, dataset, region, dst, false, err);
}
