/* What libhdf5 calls of the library's own driver: HDF5's default driver, sec2, in what is on the
 * disk and in how files are locked, and what file.h says. HDF5 makes the calls for one file one at
 * a time. Types are the oldest headers' and, where headers differ, plain integers. */
#ifndef GPUFI_HDF5_DRIVER_CALLBACKS_H
#define GPUFI_HDF5_DRIVER_CALLBACKS_H

#include "hdf5/api.h"
#include "hdf5/driver/file.h"

/* The greatest address that an off_t has. */
#define GPUFI_H5_ADDRESS_MAX ((haddr_t)INT64_MAX)

/* `api` is the library that calls. */
void *gpufi_h5_driver_on_open(const gpufi_h5_api *api, const char *path, unsigned flags, hid_t fapl,
                              haddr_t address_max);
herr_t gpufi_h5_driver_on_close(void *opened);
int gpufi_h5_driver_on_compare(const void *opened, const void *other);
herr_t gpufi_h5_driver_on_query(const void *opened, unsigned long *features);
haddr_t gpufi_h5_driver_on_get_eoa(const void *opened, int kind);
herr_t gpufi_h5_driver_on_set_eoa(void *opened, int kind, haddr_t address);
haddr_t gpufi_h5_driver_on_get_eof(const void *opened, int kind);
herr_t gpufi_h5_driver_on_get_handle(void *opened, hid_t fapl, void **handle);
herr_t gpufi_h5_driver_on_read(void *opened, int kind, hid_t dxpl, haddr_t offset, size_t nbytes,
                               void *bytes);
herr_t gpufi_h5_driver_on_write(void *opened, int kind, hid_t dxpl, haddr_t offset, size_t nbytes,
                                const void *bytes);
herr_t gpufi_h5_driver_on_flush(void *opened, hid_t dxpl, bool is_closing);
herr_t gpufi_h5_driver_on_truncate(void *opened, hid_t dxpl, bool is_closing);
herr_t gpufi_h5_driver_on_lock(void *opened, bool for_writing);
herr_t gpufi_h5_driver_on_unlock(void *opened);
herr_t gpufi_h5_driver_on_delete(const char *path, hid_t fapl);
/* Driver information of an access list is a gpufi_h5_driver_file, and each list has a reference. */
void *gpufi_h5_driver_on_get_info(void *opened);
void *gpufi_h5_driver_on_copy_info(const void *file);
herr_t gpufi_h5_driver_on_free_info(void *file);

#endif
