#include "hdf5/dataset.h"

#include "../../hdf5_filter/filter.h"
#include "base/arithmetic.h"
#include "base/error.h"
#include "base/text.h"
#include "codec/bitshuffle.h"
#include "hdf5/chunk_shape.h"
#include "hdf5/inflate.h"
#include "hdf5/types.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FILTERS_MAX 32
/* cd_values of bitshuffle: version, version, element size, block size, compression. */
#define BITSHUFFLE_AT_ELEMENT_NBYTES 2
#define BITSHUFFLE_AT_COMPRESSION 4
#define BITSHUFFLE_LZ4 2
#define VALUES_MAX 16

/* The filters of a pipeline, in order. */
typedef struct pipeline {
  int count;
  H5Z_filter_t ids[FILTERS_MAX];
  char names[FILTERS_MAX][64];
  /* cd_values: how many each filter has, and the first of them; those beyond the count are 0. */
  size_t value_counts[FILTERS_MAX];
  unsigned values[FILTERS_MAX][VALUES_MAX];
} pipeline;

static gpuf_status read_space(gpufi_h5_dataset *dataset, gpufi_h5_session *session,
                              gpuf_error *err) {
  const gpufi_h5_api *api = session->api;
  gpuf_status status = GPUF_OK;
  hsize_t dims[GPUF_NDIM_MAX];
  const hid_t space = api->Dget_space(dataset->id);
  const H5S_class_t class = space < 0 ? H5S_NO_CLASS : api->Sget_simple_extent_type(space);
  if (class == H5S_NULL) {
    status = gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                        "dataset '%s' has a null dataspace: it has neither shape nor elements",
                        dataset->name);
    goto done;
  }
  dataset->ndim = class == H5S_NO_CLASS ? -1 : api->Sget_simple_extent_ndims(space);
  if (dataset->ndim < 0 || dataset->ndim > GPUF_NDIM_MAX ||
      api->Sget_simple_extent_dims(space, dims, NULL) < 0) {
    status = gpufi_h5_fail(session, err, "reading the shape of dataset '%s' failed", dataset->name);
    goto done;
  }
  for (int32_t axis = 0; axis < dataset->ndim; axis++) {
    if (dims[axis] > INT64_MAX) {
      status =
          gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                     "axis %d of dataset '%s' has %" PRIu64 " elements, more than memory holds",
                     (int)axis, dataset->name, (uint64_t)dims[axis]);
      goto done;
    }
    dataset->shape[axis] = (int64_t)dims[axis];
  }
done:
  gpufi_h5_close(session, space);
  return status;
}

static gpuf_status read_type(gpufi_h5_dataset *dataset, size_t *stored_nbytes,
                             gpufi_h5_session *session, gpuf_error *err) {
  gpuf_status status;
  const hid_t type = session->api->Dget_type(dataset->id);
  if (type < 0) {
    return gpufi_h5_fail(session, err, "reading the type of dataset '%s' failed", dataset->name);
  }
  dataset->is_native_complex = (int)session->api->Tget_class(type) == GPUFI_H5T_COMPLEX;
  *stored_nbytes = session->api->Tget_size(type);
  status =
      gpufi_h5_type_match(session, type, dataset->name, &dataset->dtype, &dataset->is_native, err);
  if (status == GPUF_OK) {
    const htri_t needs_swap = gpufi_h5_type_needs_swap(session->api, type);
    dataset->needs_swap = needs_swap > 0;
    if (needs_swap < 0) {
      status =
          gpufi_h5_fail(session, err, "reading the type of dataset '%s' failed", dataset->name);
    }
  }
  gpufi_h5_close(session, type);
  return status;
}

static gpuf_status read_pipeline(const gpufi_h5_dataset *dataset, hid_t plist, pipeline *filters,
                                 gpufi_h5_session *session, gpuf_error *err) {
  const int count = session->api->Pget_nfilters(plist);
  memset(filters, 0, sizeof(*filters));
  if (count < 0 || count > FILTERS_MAX) {
    return gpufi_h5_fail(session, err, "reading the filters of dataset '%s' failed", dataset->name);
  }
  for (int i = 0; i < count; i++) {
    unsigned flags = 0;
    filters->value_counts[i] = VALUES_MAX;
    filters->ids[i] = session->api->Pget_filter2(
        plist, (unsigned)i, &flags, &filters->value_counts[i], filters->values[i],
        sizeof(filters->names[i]), filters->names[i], NULL);
    filters->names[i][sizeof(filters->names[i]) - 1] = 0;
    if (filters->ids[i] < 0) {
      return gpufi_h5_fail(session, err, "reading filter %d of dataset '%s' failed", i,
                           dataset->name);
    }
  }
  filters->count = count;
  return GPUF_OK;
}

/* A filter knows the size of a chunk from its cd_values alone. HDF5 before 2.2 takes a chunk that
 * turns out shorter than the dataset's for a whole one, and reads beyond its end. */
static gpuf_status check_cd_values(const gpufi_h5_dataset *dataset, const pipeline *filters,
                                   size_t stored_nbytes, gpuf_error *err) {
  uint64_t chunk_nbytes = stored_nbytes;
  int at = 0;
  while (at < filters->count && filters->ids[at] == H5Z_FILTER_SHUFFLE) {
    at++; /* it keeps the size */
  }
  if (!dataset->is_chunked || at == filters->count || !gpufi_filter_has_id(filters->ids[at]) ||
      filters->value_counts[at] <= GPUFI_CD_AT_RAW_NBYTES ||
      filters->values[at][GPUFI_CD_AT_VERSION] != GPUFI_CD_VERSION) {
    return GPUF_OK;
  }
  for (int32_t axis = 0; axis < dataset->ndim; axis++) {
    chunk_nbytes *= (uint64_t)dataset->chunk[axis]; /* below 4 GiB in HDF5 */
  }
  if (filters->values[at][GPUFI_CD_AT_RAW_NBYTES] != chunk_nbytes) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "dataset '%s' has chunks of %" PRIu64 " bytes, and the cd_values of its "
                      "gpufetch filter say %u: the file is damaged",
                      dataset->name, chunk_nbytes, filters->values[at][GPUFI_CD_AT_RAW_NBYTES]);
  }
  return GPUF_OK;
}

/* HDF5 itself would say that a folder cannot be opened, not that a filter is missing. `remedy` is
 * what may be done instead of installing it. */
static gpuf_status check_filters(const gpufi_h5_dataset *dataset, const pipeline *filters,
                                 const char *remedy, gpufi_h5_session *session, gpuf_error *err) {
  for (int i = 0; i < filters->count; i++) {
    if (session->api->Zfilter_avail(filters->ids[i]) <= 0) {
      const char *const name = filters->names[i]; /* as in the file, where it may be empty */
      session->api->Eclear2(H5E_DEFAULT);
      return gpufi_fail(err, GPUF_ERR_HDF5, 0,
                        "dataset '%s' is stored with HDF5 filter %d%s%s%s, which this libhdf5 "
                        "does not find: install that filter's plugin and name its folder in "
                        "HDF5_PLUGIN_PATH (in Python, import hdf5plugin)%s",
                        dataset->name, (int)filters->ids[i], *name ? " ('" : "", name,
                        *name ? "')" : "", remedy);
    }
  }
  return GPUF_OK;
}

gpuf_status gpufi_h5_dataset_check_filters(const gpufi_h5_dataset *dataset,
                                           gpufi_h5_session *session, bool writes,
                                           gpuf_error *err) {
  const bool is_coded_here = dataset->route != GPUFI_H5_ROUTE_HDF5;
  pipeline filters;
  gpuf_status status = GPUF_OK;
  const hid_t plist = session->api->Dget_create_plist(dataset->id);
  if (plist >= 0 && read_pipeline(dataset, plist, &filters, session, NULL) == GPUF_OK) {
    status = check_filters(
        dataset, &filters,
        writes && is_coded_here ? ", or write whole chunks, which gpufetch encodes itself" : "",
        session, err);
  }
  gpufi_h5_close(session, plist);
  return status;
}

/* Whether the filters are such steps, and a library inflates those of deflate. */
static bool steps_of(const pipeline *filters, gpufi_h5_steps *steps) {
  memset(steps, 0, sizeof(*steps));
  for (int i = 0; i < filters->count && i < GPUFI_H5_STEPS_MAX; i++) {
    gpufi_h5_step *const step = &steps->step[i];
    step->element_nbytes = filters->values[i][0];
    switch (filters->ids[i]) {
    case H5Z_FILTER_SHUFFLE:
      step->kind = GPUFI_H5_STEP_SHUFFLE;
      steps->count += step->element_nbytes > 0;
      break;
    case H5Z_FILTER_DEFLATE:
      step->kind = GPUFI_H5_STEP_DEFLATE;
      steps->count += gpufi_inflate_name() != NULL;
      break;
    case H5Z_FILTER_FLETCHER32:
      step->kind = GPUFI_H5_STEP_FLETCHER32;
      steps->count++;
      break;
    default:
      return false;
    }
  }
  return steps->count == filters->count;
}

/* The route for chunks of this pipeline, which is HDF5's unless gpufetch codes them itself. */
static gpufi_h5_route route_of(const pipeline *filters, gpuf_dtype dtype, gpufi_h5_steps *steps) {
  if (filters->count == 0) {
    return GPUFI_H5_ROUTE_PLAIN;
  }
  if (filters->count == 1 && gpufi_filter_has_id(filters->ids[0])) {
    return GPUFI_H5_ROUTE_GPUFETCH;
  }
  if (filters->count == 1 && filters->ids[0] == GPUFI_BITSHUFFLE_FILTER_ID &&
      filters->values[0][BITSHUFFLE_AT_ELEMENT_NBYTES] == gpuf_dtype_nbytes(dtype) &&
      filters->values[0][BITSHUFFLE_AT_COMPRESSION] == BITSHUFFLE_LZ4) {
    return GPUFI_H5_ROUTE_BITSHUFFLE;
  }
  return steps_of(filters, steps) ? GPUFI_H5_ROUTE_STEPS : GPUFI_H5_ROUTE_HDF5;
}

/* Chunks that are read and written whole bypass HDF5's filters, so this takes a pipeline that
 * gpufetch runs itself. */
static void choose_route(gpufi_h5_dataset *dataset, hid_t plist, const pipeline *filters,
                         const gpufi_h5_session *session) {
  unsigned edge_options = 0;
  dataset->route = GPUFI_H5_ROUTE_HDF5;
  if (!dataset->is_native || !dataset->is_chunked ||
      session->api->Pget_chunk_opts(plist, &edge_options) < 0 || edge_options != 0 ||
      gpufi_h5_chunk_shape_fold(dataset->dtype, dataset->ndim, dataset->chunk,
                                &dataset->chunk_shape, &dataset->chunk_nbytes, NULL) != GPUF_OK) {
    return;
  }
  dataset->route = route_of(filters, dataset->dtype, &dataset->steps);
}

static gpuf_status read_layout(gpufi_h5_dataset *dataset, hid_t plist, gpufi_h5_session *session,
                               gpuf_error *err) {
  const gpufi_h5_api *api = session->api;
  const H5D_layout_t layout = api->Pget_layout(plist);
  H5D_fill_time_t fill_time = H5D_FILL_TIME_NEVER;
  H5D_fill_value_t fill_value = H5D_FILL_VALUE_UNDEFINED;
  hsize_t chunk[GPUF_NDIM_MAX];
  dataset->is_chunked = layout == H5D_CHUNKED;
  dataset->is_virtual = layout == H5D_VIRTUAL;
  dataset->has_gaps =
      (layout != H5D_CHUNKED && layout != H5D_CONTIGUOUS && layout != H5D_COMPACT) ||
      api->Pget_fill_time(plist, &fill_time) < 0 || fill_time == H5D_FILL_TIME_NEVER ||
      api->Pfill_value_defined(plist, &fill_value) < 0 || fill_value == H5D_FILL_VALUE_UNDEFINED;
  if (dataset->is_chunked && api->Pget_chunk(plist, GPUF_NDIM_MAX, chunk) != dataset->ndim) {
    return gpufi_h5_fail(session, err, "reading the chunk shape of dataset '%s' failed",
                         dataset->name);
  }
  for (int32_t axis = 0; axis < dataset->ndim; axis++) {
    dataset->chunk[axis] = dataset->is_chunked ? (int64_t)chunk[axis] : 1;
    if (dataset->chunk[axis] < 1) {
      return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                        "the chunks of dataset '%s' have length %" PRIu64 " along axis %d: the "
                        "file is damaged",
                        dataset->name, (uint64_t)chunk[axis], (int)axis);
    }
  }
  return GPUF_OK;
}

/* Of a dataset whose elements lie in the file as they do in memory. */
static gpuf_status read_fill(gpufi_h5_dataset *dataset, hid_t plist, gpufi_h5_session *session,
                             gpuf_error *err) {
  static const unsigned char zeros[GPUFI_H5_FILL_NBYTES];
  const gpufi_h5_api *api = session->api;
  H5D_fill_value_t defined = H5D_FILL_VALUE_DEFAULT;
  if (dataset->has_gaps || api->Pfill_value_defined(plist, &defined) < 0 ||
      defined != H5D_FILL_VALUE_USER_DEFINED) {
    return GPUF_OK;
  }
  const hid_t type = api->Dget_type(dataset->id);
  if (type < 0 || api->Tget_size(type) > sizeof(dataset->fill) ||
      api->Pget_fill_value(plist, type, dataset->fill) < 0) {
    const gpuf_status status =
        gpufi_h5_fail(session, err, "reading the fill value of dataset '%s' failed", dataset->name);
    gpufi_h5_close(session, type);
    return status;
  }
  gpufi_h5_close(session, type);
  dataset->has_fill = memcmp(dataset->fill, zeros, sizeof(zeros)) != 0;
  return GPUF_OK;
}

static void note_filters(gpufi_h5_dataset *dataset, const pipeline *filters) {
  dataset->is_filtered = filters->count > 0;
  dataset->filter_count = filters->count;
  for (int i = 0; i < filters->count; i++) {
    dataset->fletcher32_mask |= (uint32_t)(filters->ids[i] == H5Z_FILTER_FLETCHER32) << i;
  }
}

static gpuf_status read_storage(gpufi_h5_dataset *dataset, size_t stored_nbytes,
                                gpufi_h5_session *session, gpuf_error *err) {
  const gpufi_h5_api *api = session->api;
  pipeline filters;
  const hid_t plist = api->Dget_create_plist(dataset->id);
  if (plist < 0) {
    return gpufi_h5_fail(session, err, "reading the layout of dataset '%s' failed", dataset->name);
  }
  gpuf_status status = read_layout(dataset, plist, session, err);
  if (status == GPUF_OK) {
    status = read_pipeline(dataset, plist, &filters, session, err);
  }
  if (status == GPUF_OK) {
    note_filters(dataset, &filters);
    status = check_cd_values(dataset, &filters, stored_nbytes, err);
  }
  if (status == GPUF_OK) {
    choose_route(dataset, plist, &filters, session);
  }
  if (status == GPUF_OK && dataset->route == GPUFI_H5_ROUTE_HDF5) {
    status = check_filters(dataset, &filters, "", session, err);
  } else if (status == GPUF_OK) {
    status = read_fill(dataset, plist, session, err);
  }
  gpufi_h5_close(session, plist);
  return status;
}

/* The shape comes from the file and is untrusted: check that a tensor can have it. */
static gpuf_status check_size(const gpufi_h5_dataset *dataset, gpuf_error *err) {
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  gpuf_tensor probe;
  if (gpuf_tensor_init(&probe, &probe, cpu, dataset->dtype, dataset->ndim, dataset->shape, NULL) ==
      GPUF_OK) {
    return GPUF_OK;
  }
  return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                    "dataset '%s' of shape (%s) is larger than memory can be: read regions of it "
                    "with HDF5 itself",
                    dataset->name, gpufi_h5_list_of(dataset->ndim, dataset->shape).text);
}

gpuf_status gpufi_h5_dataset_init(gpufi_h5_dataset *dataset, gpufi_h5_session *session, hid_t id,
                                  gpuf_error *err) {
  gpuf_status status;
  size_t stored_nbytes = 0; /* of an element */
  memset(dataset, 0, sizeof(*dataset));
  dataset->id = id;
  if (session->api->Iget_type(id) != H5I_DATASET) {
    session->api->Eclear2(H5E_DEFAULT);
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "identifier %" PRId64 " is not an open HDF5 dataset of the bound library: "
                      "was it closed, or its file?",
                      (int64_t)id);
  }
  gpufi_h5_use_file(session, id);
  if (session->api->Iget_name(id, dataset->name, sizeof(dataset->name)) <= 0) {
    snprintf(dataset->name, sizeof(dataset->name), "(anonymous)");
  }
  gpufi_text_make_utf8(dataset->name); /* HDF5 cuts a long name anywhere */
  status = read_space(dataset, session, err);
  if (status == GPUF_OK) {
    status = read_type(dataset, &stored_nbytes, session, err);
  }
  if (status == GPUF_OK) {
    status = check_size(dataset, err);
  }
  if (status == GPUF_OK) {
    status = read_storage(dataset, stored_nbytes, session, err);
  }
  return status;
}

static gpuf_status check_match(const gpufi_h5_dataset *dataset, const gpuf_tensor *tensor,
                               const char *role, gpuf_error *err) {
  bool same = dataset->ndim == tensor->ndim;
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    same = same && dataset->shape[axis] == tensor->shape[axis];
  }
  if (!same) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "dataset '%s' has shape (%s) and the %s (%s): they must be equal",
                      dataset->name, gpufi_h5_list_of(dataset->ndim, dataset->shape).text, role,
                      gpufi_h5_list_of(tensor->ndim, tensor->shape).text);
  }
  if (dataset->dtype != tensor->dtype) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "dataset '%s' holds %s and the %s %s: they must be equal", dataset->name,
                      gpuf_dtype_name(dataset->dtype), role, gpuf_dtype_name(tensor->dtype));
  }
  return GPUF_OK;
}

gpuf_status gpufi_h5_dataset_box(const gpufi_h5_dataset *dataset, const int64_t *start,
                                 const gpuf_tensor *tensor, const char *role, gpufi_h5_box *box,
                                 gpuf_error *err) {
  gpufi_h5_dataset expected = *dataset;
  memset(box, 0, sizeof(*box));
  memcpy(box->shape, dataset->shape, sizeof(box->shape));
  for (int32_t axis = 0; start && axis < dataset->ndim && dataset->ndim == tensor->ndim; axis++) {
    if (start[axis] < 0 || tensor->shape[axis] > dataset->shape[axis] ||
        start[axis] > dataset->shape[axis] - tensor->shape[axis]) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                        "%" PRId64 " elements from %" PRId64 " on do not lie in axis %d of dataset "
                        "'%s', which has %" PRId64,
                        tensor->shape[axis], start[axis], (int)axis, dataset->name,
                        dataset->shape[axis]);
    }
    box->start[axis] = start[axis];
    box->shape[axis] = expected.shape[axis] = tensor->shape[axis];
  }
  return check_match(&expected, tensor, role, err);
}

bool gpufi_h5_dataset_is_aligned(const gpufi_h5_dataset *dataset, const gpufi_h5_box *box) {
  for (int32_t axis = 0; axis < dataset->ndim; axis++) {
    const int64_t end = box->start[axis] + box->shape[axis];
    if (box->start[axis] % dataset->chunk[axis] != 0 ||
        (end % dataset->chunk[axis] != 0 && end != dataset->shape[axis])) {
      return false;
    }
  }
  return true;
}

void gpufi_h5_repeat(void *to, size_t nbytes, const void *value, size_t value_nbytes) {
  unsigned char *const bytes = to;
  size_t done = gpufi_min_nbytes(nbytes, value_nbytes);
  memcpy(bytes, value, done);
  while (done < nbytes) { /* twice as many each time */
    const size_t count = gpufi_min_nbytes(done, nbytes - done);
    memcpy(bytes + done, bytes, count);
    done += count;
  }
}

void gpufi_h5_dataset_fill_chunk(const gpufi_h5_dataset *dataset, void *raw) {
  if (dataset->has_fill) {
    gpufi_h5_repeat(raw, dataset->chunk_nbytes, dataset->fill, gpuf_dtype_nbytes(dataset->dtype));
  } else {
    memset(raw, 0, dataset->chunk_nbytes);
  }
}
