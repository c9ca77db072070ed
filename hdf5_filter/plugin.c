/* The two symbols by which HDF5 knows a filter plugin. HDF5 compares the id of H5PLget_plugin_info
 * with the one that it looks for, and has no way to ask for another: one library serves one id.
 * GPUFI_PLUGIN_INDEX says which of ids.h it is. */
#include "filter.h"
#include "hdf5_types.h"
#include "ids.h"

#define ONE(number) +1
_Static_assert(GPUFI_FILTER_IDS(ONE) == GPUFI_PLUGIN_COUNT, "each id of ids.h has its plugin");

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

EXPORTED H5PL_type_t H5PLget_plugin_type(void);
EXPORTED const void *H5PLget_plugin_info(void);

H5PL_type_t H5PLget_plugin_type(void) {
  return H5PL_TYPE_FILTER;
}

const void *H5PLget_plugin_info(void) {
  return gpufi_filter_class(GPUFI_PLUGIN_INDEX);
}
