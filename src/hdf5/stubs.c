/* The HDF5 calls in a build without the HDF5 headers. */
#include "base/error.h"

#include <gpufetch/checkpoint.h>
#include <gpufetch/hdf5.h>

#include "hdf5/checkpoint/seal.h"

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
STUB(gpuf_h5_write_async, gpuf_h5_id location, const char *name, const gpuf_tensor *src,
     const gpuf_h5_options *options, gpuf_h5_future **future)
STUB(gpuf_h5_write_region_async, gpuf_h5_id dataset, const int64_t *start, const gpuf_tensor *src,
     const gpuf_h5_options *options, gpuf_h5_future **future)
STUB(gpuf_h5_future_poll, gpuf_h5_future *future, bool *done)
STUB(gpuf_h5_future_wait, gpuf_h5_future *future, int64_t timeout_ns)
STUB(gpuf_h5_future_wait_copied, gpuf_h5_future *future, int64_t timeout_ns)
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

STUB(gpuf_checkpoint_open, const gpuf_checkpoint_options *options, gpuf_checkpoint **checkpoint,
     gpuf_checkpoint_report *report)
STUB(gpuf_checkpoint_begin, gpuf_checkpoint *checkpoint, int64_t step,
     gpuf_checkpoint_report *report)
STUB(gpuf_checkpoint_add, gpuf_checkpoint *checkpoint, const char *name, const gpuf_tensor *tensor,
     const gpuf_part *part)
STUB(gpuf_checkpoint_add_int64, gpuf_checkpoint *checkpoint, const char *name, int64_t value)
STUB(gpuf_checkpoint_add_float64, gpuf_checkpoint *checkpoint, const char *name, double value)
STUB(gpuf_checkpoint_add_text, gpuf_checkpoint *checkpoint, const char *name, const char *text)
STUB(gpuf_checkpoint_commit, gpuf_checkpoint *checkpoint, gpuf_stream stream)
STUB(gpuf_checkpoint_abort, gpuf_checkpoint *checkpoint)
STUB(gpuf_checkpoint_wait, gpuf_checkpoint *checkpoint, int64_t timeout_ns,
     gpuf_checkpoint_report *report)
STUB(gpuf_restart_open, const char *directory, const char *prefix, int64_t step_max,
     gpuf_restart **restart, gpuf_restart_report *report)
STUB(gpuf_restart_read, gpuf_restart *restart, const char *name, const gpuf_tensor *tensor,
     const gpuf_part *part)
STUB(gpuf_restart_describe, gpuf_restart *restart, const char *name, gpuf_tensor *tensor)
STUB(gpuf_restart_get_int64, gpuf_restart *restart, const char *name, int64_t *value)
STUB(gpuf_restart_get_float64, gpuf_restart *restart, const char *name, double *value)
STUB(gpuf_restart_get_text, gpuf_restart *restart, const char *name, const char **text)

/* For the Python extension. */
STUB(gpufi_checkpoint_check_files, const char *path)

bool gpufi_checkpoint_has_seal(const char *path) {
  return false;
}

/* There is none that could be closed or have names. */
gpuf_status gpuf_checkpoint_close(gpuf_checkpoint *checkpoint, gpuf_checkpoint_report *report,
                                  gpuf_error *err) {
  return checkpoint ? unsupported(err) : GPUF_OK;
}

void gpuf_restart_close(gpuf_restart *restart) {}

const char *gpuf_restart_name(const gpuf_restart *restart, size_t index) {
  return NULL;
}

void gpuf_h5_future_destroy(gpuf_h5_future *future) {}
