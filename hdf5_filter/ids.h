/* The numbers by which HDF5 files name the gpufetch filter: X is applied to each, first to the one
 * that datasets are written with, then to those that are read only. A further one also needs a
 * plugin of its own (meson.build), since HDF5 asks each plugin for one number. */
#ifndef GPUFI_HDF5_FILTER_IDS_H
#define GPUFI_HDF5_FILTER_IDS_H

#include <gpufetch/hdf5.h>

#ifndef GPUFI_FILTER_IDS /* tests add one */
#define GPUFI_FILTER_IDS(X) X(GPUF_H5_FILTER_ID)
#endif

#endif
