/* The library's own file driver for HDF5, registered with the libhdf5 that the process uses. file.h
 * says what it does for the writer of a file.
 *
 *   gpufi_h5_driver_open(api, &driver, err); where it fails, the writer uses HDF5's own driver
 *   gpufi_h5_driver_fapl(driver, fapl, &file, err)
 *   H5Fcreate(path, flags, fcpl, fapl), H5Pclose(fapl)
 *   H5Dwrite_chunk and others, while gpufi_h5_driver_error(file, err) is GPUF_OK
 *   H5Fclose
 *   gpufi_h5_driver_error(file, err); if it fails, the file is to be removed
 *   gpufi_h5_driver_release(file) */
#ifndef GPUFI_HDF5_DRIVER_DRIVER_H
#define GPUFI_HDF5_DRIVER_DRIVER_H

#include "hdf5/api.h"
#include "hdf5/driver/file.h"

typedef struct gpufi_h5_driver gpufi_h5_driver;

/* The driver of a bound library, registered by the first call, and again after H5close.
 * GPUF_ERR_UNSUPPORTED for a release whose drivers look otherwise than those of 1.10, 1.12, 1.14
 * and 2.x do. `*driver` lives until the process ends. Entered. */
gpuf_status gpufi_h5_driver_open(gpufi_h5_api *api, const gpufi_h5_driver **driver,
                                 gpuf_error *err);

/* Let files that are opened with the file access list `fapl` use the driver, and fill `*file` for
 * the writer, who releases it. On failure the list and `*file` are untouched. Entered. */
gpuf_status gpufi_h5_driver_fapl(const gpufi_h5_driver *driver, hid_t fapl,
                                 gpufi_h5_driver_file **file, gpuf_error *err);

/* Whether `driver`, as H5Pget_driver gives it for a file of the library `api`, is this one. */
bool gpufi_h5_driver_is(const gpufi_h5_api *api, hid_t driver);

#endif
