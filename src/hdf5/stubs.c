/* The HDF5 calls in a build without the HDF5 headers. */
#include "base/error.h"

#include <gpufetch/hdf5.h>

static gpuf_status unsupported(gpuf_error *err) {
  return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                    "this gpufetch was built without HDF5: build it with -Dhdf5=enabled (needs the "
                    "HDF5 headers, 1.10.3 or newer)");
}

#define STUB(name, ...)                                                                            \
  gpuf_status name(__VA_ARGS__, gpuf_error *err) {                                                 \
    return unsupported(err);                                                                       \
  }

gpuf_status gpuf_h5_filter_register(gpuf_error *err) {
  return unsupported(err);
}

STUB(gpuf_h5_bind, const char *object_path)
STUB(gpuf_h5_write, gpuf_h5_id location, const char *name, const gpuf_tensor *src,
     const gpuf_h5_options *options)
STUB(gpuf_h5_write_dataset, gpuf_h5_id dataset, const gpuf_tensor *src,
     const gpuf_h5_options *options)
STUB(gpuf_h5_write_region, gpuf_h5_id dataset, const int64_t *start, const gpuf_tensor *src,
     const gpuf_h5_options *options)
STUB(gpuf_h5_describe, gpuf_h5_id dataset, gpuf_tensor *tensor, const gpuf_h5_options *options)
STUB(gpuf_h5_read, gpuf_h5_id location, const char *name, const gpuf_tensor *dst,
     const gpuf_h5_options *options)
STUB(gpuf_h5_read_dataset, gpuf_h5_id dataset, const gpuf_tensor *dst,
     const gpuf_h5_options *options)
STUB(gpuf_h5_read_region, gpuf_h5_id dataset, const int64_t *start, const gpuf_tensor *dst,
     const gpuf_h5_options *options)
STUB(gpuf_h5_set_attribute_int64, gpuf_h5_id location, const char *object_name, const char *name,
     int64_t value, const gpuf_h5_options *options)
STUB(gpuf_h5_set_attribute_float64, gpuf_h5_id location, const char *object_name, const char *name,
     double value, const gpuf_h5_options *options)
STUB(gpuf_h5_set_attribute_text, gpuf_h5_id location, const char *object_name, const char *name,
     const char *text, const gpuf_h5_options *options)
STUB(gpuf_h5_get_attribute_int64, gpuf_h5_id location, const char *object_name, const char *name,
     int64_t *value, const gpuf_h5_options *options)
STUB(gpuf_h5_get_attribute_float64, gpuf_h5_id location, const char *object_name, const char *name,
     double *value, const gpuf_h5_options *options)
STUB(gpuf_h5_get_attribute_text, gpuf_h5_id location, const char *object_name, const char *name,
     char *text, size_t *text_nbytes, const gpuf_h5_options *options)
