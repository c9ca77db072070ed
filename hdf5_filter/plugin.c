/* The two symbols by which HDF5 knows a filter plugin. HDF5 compares the id of H5PLget_plugin_info
 * with the one that it looks for, and has no way to ask for another: one library serves one id.
 * GPUFI_PLUGIN_INDEX says which of ids.h it is. */
#include "filter.h"
#include "ids.h"

#include <H5PLextern.h>

#define ONE(number) +1
_Static_assert(GPUFI_FILTER_IDS(ONE) == GPUFI_PLUGIN_COUNT, "each id of ids.h has its plugin");

H5PL_type_t H5PLget_plugin_type(void) {
  return H5PL_TYPE_FILTER;
}

const void *H5PLget_plugin_info(void) {
  return gpufi_filter_class(GPUFI_PLUGIN_INDEX);
}
