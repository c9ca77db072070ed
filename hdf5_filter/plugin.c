/* The two symbols by which HDF5 knows a filter plugin. */
#include "filter.h"

#include <H5PLextern.h>

H5PL_type_t H5PLget_plugin_type(void) {
  return H5PL_TYPE_FILTER;
}

const void *H5PLget_plugin_info(void) {
  return gpufi_filter_class();
}
