#include "hdf5/hyperslab.h"

#include "base/error.h"
#include "hdf5/digest.h"
#include "hdf5/outgoing.h"
#include "hdf5/stored.h"
#include "hdf5/types.h"

#include <stdlib.h>
#include <string.h>

/* What is read or written at a time takes at most this much, or one chunk where that is more. */
#define BUFFER_NBYTES ((int64_t)32 << 20)
#define ELEMENT_NBYTES_MAX 16

/* --- One box ----------------------------------------------------------------- */

/* A space of `shape` with `count` elements along each axis selected, from `start` on. */
static hid_t create_selection(const gpufi_h5_api *api, int32_t ndim, const int64_t *shape,
                              const int64_t *start, const int64_t *count) {
  hsize_t dims[GPUF_NDIM_MAX];
  hsize_t starts[GPUF_NDIM_MAX];
  hsize_t counts[GPUF_NDIM_MAX];
  hid_t space;
  if (ndim == 0) {
    return api->Screate(H5S_SCALAR);
  }
  for (int32_t axis = 0; axis < ndim; axis++) {
    dims[axis] = (hsize_t)shape[axis];
    starts[axis] = (hsize_t)start[axis];
    counts[axis] = (hsize_t)count[axis];
  }
  space = api->Screate_simple(ndim, dims, NULL);
  if (space >= 0 && api->Sselect_hyperslab(space, H5S_SELECT_SET, starts, NULL, counts, NULL) < 0) {
    api->Idec_ref(space);
    return H5I_INVALID_HID;
  }
  return space;
}

/* The type that H5Dread and H5Dwrite convert to and from: HDF5 2.0 has no conversion between its
 * complex type and a compound of the other byte order. Booleans are not converted: what the dataset
 * has no name for would become another byte. */
static gpuf_status create_memory_type(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                      hid_t *type, gpuf_error *err) {
  if (dataset->dtype == GPUF_DTYPE_BOOL && dataset->is_native) {
    *type = session->api->Dget_type(dataset->id);
    return *type >= 0 ? GPUF_OK
                      : gpufi_h5_fail(session, err, "reading the type of dataset '%s' failed",
                                      dataset->name);
  }
  const gpuf_status status = dataset->is_native_complex && session->api->Tcomplex_create
                                 ? gpufi_h5_type_create_complex(session, dataset->dtype, type, err)
                                 : gpufi_h5_type_create(session, dataset->dtype, type, err);
  return status == GPUF_OK && dataset->needs_swap &&
                 session->api->Tset_order(*type, H5T_ORDER_BE) < 0
             ? gpufi_h5_fail(session, err, "making a big-endian type for dataset '%s' failed",
                             dataset->name)
             : status;
}

/* Fill the box at the origin of a C-contiguous buffer with a value. */
static void fill_box(const gpufi_h5_dataset *dataset, const int64_t *shape, unsigned char *buffer,
                     const int64_t *buffer_shape, const unsigned char *value) {
  size_t pitch = gpuf_dtype_nbytes(dataset->dtype); /* from one row to the next */
  size_t row_nbytes = pitch;
  int64_t row_count = 1;
  int32_t axis = dataset->ndim;             /* those from here on are of one row */
  while (axis > 0 && row_nbytes == pitch) { /* rows that touch each other are one */
    axis--;
    row_nbytes = pitch * (size_t)shape[axis];
    pitch *= (size_t)buffer_shape[axis];
  }
  for (int32_t i = 0; i < axis; i++) {
    row_count *= shape[i];
  }
  for (int64_t row = 0; row < row_count; row++) {
    size_t offset = 0;
    size_t nbytes = pitch;
    int64_t left = row;
    for (int32_t i = axis - 1; i >= 0; i--) {
      offset += nbytes * (size_t)(left % shape[i]);
      nbytes *= (size_t)buffer_shape[i];
      left /= shape[i];
    }
    gpufi_h5_repeat(buffer + offset, row_nbytes, value, gpuf_dtype_nbytes(dataset->dtype));
  }
}

/* The value, in `type`, of elements that HDF5 leaves as they are in memory. Of a virtual dataset it
 * is the fill value: HDF5 leaves out what has no source if its mappings name as many elements as it
 * has, though some of them twice. Of others it is 0, as in h5py. */
static gpuf_status value_of_gaps(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                 hid_t type, unsigned char *value, gpuf_error *err) {
  const gpufi_h5_api *api = session->api;
  H5D_fill_value_t defined = H5D_FILL_VALUE_UNDEFINED;
  memset(value, 0, ELEMENT_NBYTES_MAX);
  if (!dataset->is_virtual) {
    return GPUF_OK;
  }
  const hid_t plist = api->Dget_create_plist(dataset->id);
  const bool is_known =
      plist >= 0 && api->Pfill_value_defined(plist, &defined) >= 0 &&
      (defined == H5D_FILL_VALUE_UNDEFINED || api->Pget_fill_value(plist, type, value) >= 0);
  const gpuf_status status =
      is_known ? GPUF_OK
               : gpufi_h5_fail(session, err, "reading the fill value of dataset '%s' failed",
                               dataset->name);
  gpufi_h5_close(session, plist);
  return status;
}

gpuf_status gpufi_h5_hyperslab_transfer(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                        const gpufi_h5_box *box, void *buffer,
                                        const int64_t *buffer_shape, bool writes, gpuf_error *err) {
  static const int64_t origin[GPUF_NDIM_MAX];
  const gpufi_h5_api *api = session->api;
  hid_t in_file = H5I_INVALID_HID;
  hid_t in_memory = H5I_INVALID_HID;
  hid_t type = H5I_INVALID_HID;
  herr_t result = -1;
  unsigned char value[ELEMENT_NBYTES_MAX];
  gpuf_status status = create_memory_type(session, dataset, &type, err);
  if (status != GPUF_OK) {
    goto done;
  }
  in_file = create_selection(api, dataset->ndim, dataset->shape, box->start, box->shape);
  in_memory = in_file < 0 ? H5I_INVALID_HID
                          : create_selection(api, dataset->ndim, buffer_shape, origin, box->shape);
  if (in_memory >= 0 && !writes && dataset->has_gaps) {
    status = value_of_gaps(session, dataset, type, value, err);
    if (status != GPUF_OK) {
      goto done;
    }
    fill_box(dataset, box->shape, buffer, buffer_shape, value);
  }
  if (!writes) {
    status = gpufi_h5_stored_check(session, dataset, box, err);
    if (status != GPUF_OK) {
      goto done;
    }
  }
  if (in_memory >= 0) {
    session->uses_chunk_cache = true;
    result = writes ? api->Dwrite(dataset->id, type, in_memory, in_file, H5P_DEFAULT, buffer)
                    : api->Dread(dataset->id, type, in_memory, in_file, H5P_DEFAULT, buffer);
  }
  if (result < 0) {
    status = gpufi_h5_fail(session, err, "%s dataset '%s' failed", writes ? "writing" : "reading",
                           dataset->name);
    if (status == GPUF_ERR_HDF5) {
      gpufi_h5_dataset_check_filters(dataset, session, writes, err);
    }
  }
  if (status == GPUF_OK && writes && session->context && session->context->digest &&
      dataset->ndim == 0) {
    gpufi_h5_digest_add(session->context->digest, dataset, 0, buffer,
                        gpuf_dtype_nbytes(dataset->dtype), true);
  }
done:
  gpufi_h5_close(session, in_memory);
  gpufi_h5_close(session, in_file);
  gpufi_h5_close(session, type);
  return status;
}

/* --- As many as it takes ----------------------------------------------------- */

typedef struct hyperslabs {
  gpufi_h5_session *session;
  const gpufi_h5_dataset *dataset;
  const gpuf_tensor *tensor;
  bool writes;
  gpufi_h5_grid grid; /* a tile is read or written at a time */
  bool in_place;      /* HDF5 itself reads or writes the tensor: it is packed, on the CPU */
  void *buffer;       /* the elements of a tile, else NULL */
  bool is_pooled;
} hyperslabs;

static int64_t lesser(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Where tiles go instead of to HDF5; NULL for most calls. */
static gpufi_h5_outgoing *outgoing_of(const hyperslabs *all) {
  return all->session->context ? all->session->context->outgoing : NULL;
}

/* Whole chunks, as many as fit the buffer, the last axis first: no chunk is decoded twice. */
static void choose_tile(const gpufi_h5_dataset *dataset, const gpufi_h5_box *box, int64_t *tile) {
  int64_t nbytes = (int64_t)gpuf_dtype_nbytes(dataset->dtype);
  for (int32_t axis = 0; axis < dataset->ndim; axis++) {
    tile[axis] = lesser(dataset->chunk[axis], dataset->shape[axis]);
    nbytes *= lesser(tile[axis], box->shape[axis]);
  }
  for (int32_t axis = dataset->ndim - 1; axis >= 0; axis--) {
    const int64_t chunk = tile[axis];
    const int64_t before = box->start[axis] % chunk;
    const int64_t needed = (before + box->shape[axis] - 1) / chunk + 1;
    const int64_t fit = BUFFER_NBYTES / nbytes;
    const int64_t count = fit < 1 ? 1 : lesser(fit, needed);
    nbytes *= count;
    tile[axis] = chunk * count;
  }
}

static gpuf_status hyperslabs_init(hyperslabs *all, const gpufi_h5_box *box, gpuf_error *err) {
  const gpufi_h5_dataset *dataset = all->dataset;
  const gpuf_device device = all->tensor->device;
  size_t nbytes = gpuf_dtype_nbytes(dataset->dtype);
  int64_t tile[GPUF_NDIM_MAX];
  choose_tile(dataset, box, tile);
  gpufi_h5_grid_init(&all->grid, dataset->ndim, box, dataset->chunk, tile);
  for (int32_t axis = 0; axis < dataset->ndim; axis++) { /* at most the tensor's size */
    nbytes *= (size_t)lesser(tile[axis], box->shape[axis]);
  }
  all->in_place = device.kind == GPUF_DEVICE_CPU && gpuf_tensor_is_contiguous(all->tensor) &&
                  !dataset->needs_swap && !outgoing_of(all);
  if (all->in_place) {
    return GPUF_OK;
  }
  all->is_pooled = device.kind != GPUF_DEVICE_CPU &&
                   gpuf_pool_acquire(device, nbytes, &all->buffer, NULL) == GPUF_OK;
  if (!all->is_pooled && !(all->buffer = malloc(nbytes))) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for a buffer of %zu bytes", nbytes);
  }
  return GPUF_OK;
}

static void hyperslabs_fini(hyperslabs *all) {
  if (all->is_pooled) {
    gpuf_pool_release(all->buffer, NULL);
  } else {
    free(all->buffer);
  }
}

/* Between the bytes of the tensor's elements and what HDF5 gives and takes. */
static void swap_tile(const hyperslabs *all, const gpuf_tensor *in_buffer) {
  if (all->dataset->needs_swap) {
    gpufi_h5_swap(in_buffer->data, (size_t)gpuf_tensor_count(in_buffer),
                  gpuf_dtype_nbytes(in_buffer->dtype));
  }
}

static gpuf_status transfer_tile(const hyperslabs *all, int64_t index, gpuf_error *err) {
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  const gpufi_h5_dataset *dataset = all->dataset;
  const gpufi_h5_box tile = gpufi_h5_grid_tile(&all->grid, index);
  gpuf_tensor in_tensor = *all->tensor;
  gpuf_tensor in_buffer;
  void *data = all->buffer;
  const int64_t *shape = tile.shape;
  gpuf_status status = gpufi_h5_narrow(&in_tensor, &tile, all->grid.box.start, err);
  if (all->in_place) {
    data = in_tensor.data;
    shape = all->tensor->shape;
  } else if (status == GPUF_OK) {
    status = gpuf_tensor_init(&in_buffer, data, cpu, dataset->dtype, dataset->ndim, shape, err);
  }
  if (status == GPUF_OK && !all->in_place && all->writes) {
    status = gpuf_copy(&in_buffer, &in_tensor, NULL, err);
    swap_tile(all, &in_buffer);
  }
  if (status == GPUF_OK && outgoing_of(all)) {
    return gpufi_h5_outgoing_put_box(outgoing_of(all), &tile, data, gpuf_tensor_nbytes(&in_buffer),
                                     err);
  }
  if (status == GPUF_OK) {
    gpufi_h5_enter(all->session);
    status =
        gpufi_h5_hyperslab_transfer(all->session, dataset, &tile, data, shape, all->writes, err);
    gpufi_h5_leave(all->session);
  }
  if (status == GPUF_OK && !all->in_place && !all->writes) {
    swap_tile(all, &in_buffer);
    status = gpuf_copy(&in_tensor, &in_buffer, NULL, err);
  }
  return status;
}

gpuf_status gpufi_h5_hyperslabs_transfer(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                         const gpufi_h5_box *box, const gpuf_tensor *tensor,
                                         bool writes, gpuf_error *err) {
  hyperslabs all = {.session = session, .dataset = dataset, .tensor = tensor, .writes = writes};
  gpuf_status status = hyperslabs_init(&all, box, err);
  for (int64_t index = 0; status == GPUF_OK && index < all.grid.total; index++) {
    status = transfer_tile(&all, index, err);
  }
  hyperslabs_fini(&all);
  return status;
}
