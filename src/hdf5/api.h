/* The functions and identifiers of the caller's libhdf5, found at run time.
 *
 * <hdf5.h> is included for its types and constants only: no H5 function is ever called by its own
 * name, and libhdf5 is never linked. A field has the function's name without its "H5". */
#ifndef GPUFI_HDF5_API_H
#define GPUFI_HDF5_API_H

#include <gpufetch/hdf5.h>
#include <hdf5.h>

/* H5T_COMPLEX of HDF5 2.0, which older headers lack. */
#define GPUFI_H5T_COMPLEX 11
#define GPUFI_H5_INFO_NBYTES 1024
/* H5F_ACC_RDONLY, H5F_ACC_RDWR and H5F_ACC_TRUNC without the calls of libhdf5 that hide in the
 * macros. */
#define GPUFI_H5F_ACC_RDONLY 0x0000u
#define GPUFI_H5F_ACC_RDWR 0x0001u
#define GPUFI_H5F_ACC_TRUNC 0x0002u
#define GPUFI_H5O_INFO_BASIC 0x0001u

/* clang-format off */

/* Functions whose name and signature are the same in every libhdf5 from 1.10.3 to 2.x. */
#define GPUFI_H5_FUNCTIONS(F)                                                               \
  F(open) F(get_libversion) F(is_library_threadsafe) F(free_memory)                                                  \
  F(Oopen) F(Aexists_by_name) F(Aopen_by_name) F(Acreate_by_name) F(Adelete_by_name)                 \
  F(Aget_type) F(Aget_space) F(Aread) F(Awrite)                                             \
  F(Dcreate2) F(Dopen2) F(Dget_space) F(Dget_type) F(Dget_create_plist) F(Dread) F(Dwrite)  \
  F(Dwrite_chunk) F(Dget_chunk_storage_size)                                                \
  F(Eget_auto2) F(Eset_auto2) F(Ewalk2) F(Eclear2) F(Epush2) F(Aiterate2) F(FDdriver_query) \
  F(Fcreate) F(Fopen) F(Fclose) F(Fflush) F(Fget_obj_count) F(Fget_obj_ids)                 \
  F(Fget_intent) F(Fget_access_plist) F(Fget_create_plist) F(Fget_vfd_handle)               \
  F(Gopen2) F(Gget_info) F(Lexists) F(Ldelete)                                              \
  F(Iget_file_id) F(Iinc_ref) F(Iget_type) F(Iget_name) F(Idec_ref) F(Pget_driver) F(Pget_userblock)    \
  F(Pset_driver) F(Pget_driver_info) F(Pset_fapl_core)                                      \
  F(Pcreate) F(Pset_layout) F(Pset_chunk) F(Pget_chunk) F(Pset_filter) F(Pget_nfilters) F(Pget_filter2)    \
  F(Pset_fill_time) F(Pget_fill_time) F(Pset_fill_value) F(Pget_fill_value)                   \
  F(Pfill_value_defined) F(Pget_layout) F(Pset_virtual)                                     \
  F(Pget_chunk_opts) F(Pset_create_intermediate_group) F(Pset_char_encoding)                \
  F(Pset_obj_track_times)                                                                   \
  F(Screate) F(Screate_simple) F(Sget_simple_extent_ndims) F(Sget_simple_extent_dims)       \
  F(Sget_simple_extent_npoints) F(Sget_simple_extent_type) F(Sselect_hyperslab)             \
  F(Tcopy) F(Tequal) F(Tcreate) F(Tinsert) F(Tenum_create) F(Tenum_insert) F(Tset_fields)   \
  F(Tset_size) F(Tset_order) F(Tset_precision) F(Tset_ebias) F(Tset_cset) F(Tset_strpad)                  \
  F(Tis_variable_str) F(Tget_class) F(Tget_size) F(Tget_order)                              \
  F(Tget_sign) F(Tget_precision) F(Tget_offset) F(Tget_fields) F(Tget_ebias) F(Tget_norm)   \
  F(Tget_super) F(Tget_nmembers) F(Tget_member_name) F(Tget_member_type)                    \
  F(Tget_member_offset) F(Tget_member_value)                                                \
  F(Zregister) F(Zfilter_avail)

/* Variables that macros such as H5T_IEEE_F32LE and H5P_DATASET_CREATE read. */
#define GPUFI_H5_IDS(F)                                                                     \
  F(P_CLS_DATASET_CREATE_ID) F(P_CLS_LINK_CREATE_ID) F(P_CLS_FILE_ACCESS_ID)                \
  F(E_IO) F(E_WRITEERROR) F(E_READERROR) F(E_SEEKERROR)                                     \
  F(E_RESOURCE) F(E_NOSPACE) F(E_CANTALLOC)                                                 \
  F(E_ERR_CLS) F(E_FILE) F(E_CANTOPENFILE) F(E_CANTCLOSEFILE)                               \
  F(T_STD_I8LE) F(T_STD_I16LE) F(T_STD_I32LE) F(T_STD_I64LE)                                \
  F(T_STD_U8LE) F(T_STD_U16LE) F(T_STD_U32LE) F(T_STD_U64LE)                                \
  F(T_IEEE_F32LE) F(T_IEEE_F64LE) F(T_C_S1)

/* clang-format on */

typedef int (*gpufi_h5_chunk_visitor)(const hsize_t *offset, unsigned filter_mask, haddr_t address,
                                      hsize_t nbytes, void *arg);

/* Thread-safety: constant once gpufi_h5_bound has returned it, except for filter_registered,
 * which is atomic. Lives until the process ends. */
typedef struct gpufi_h5_api {
#define GPUFI_FIELD(name) __typeof__(H5##name) *name;
  GPUFI_H5_FUNCTIONS(GPUFI_FIELD)
#undef GPUFI_FIELD
#define GPUFI_FIELD(name) const hid_t *name;
  GPUFI_H5_IDS(GPUFI_FIELD)
#undef GPUFI_FIELD
  /* H5Dread_chunk of 1.10 to 1.14, which is H5Dread_chunk1 in 2.0. It is not told the buffer's
   * size. NULL where there is Dread_chunk2. */
  herr_t (*Dread_chunk1)(hid_t dataset, hid_t dxpl, const hsize_t *offset, uint32_t *filter_mask,
                         void *buffer);
  /* 2.0 and newer, else NULL. */
  herr_t (*Dread_chunk2)(hid_t dataset, hid_t dxpl, const hsize_t *offset, uint32_t *filter_mask,
                         void *buffer, size_t *buffer_nbytes);
  /* The number of the open file, which no other one of the process gets, also when it is closed and
   * opened again. Fget_fileno is NULL in older releases, which have Oget_info1 and, from 1.10.3 on,
   * Oget_info2, which reads less of the file: `info` begins with that number, and takes less than
   * GPUFI_H5_INFO_NBYTES. */
  herr_t (*Fget_fileno)(hid_t file, unsigned long *number);
  herr_t (*Oget_info1)(hid_t object, void *info);
  herr_t (*Oget_info2)(hid_t object, void *info, unsigned fields);
  /* 1.12 and newer, else NULL. */
  herr_t (*Oget_info3)(hid_t object, void *info, unsigned fields);
  /* H5Lget_info, or what 1.12 and newer have instead: `info` begins with the link's type in each of
   * them. */
  herr_t (*Lget_info)(hid_t location, const char *name, void *info, hid_t lapl);
  /* 2.0 and newer, else NULL. */
  hid_t (*Tcomplex_create)(hid_t component);
  /* 1.14 and newer, else NULL: older ones lack it, or count the offset in chunks. */
  herr_t (*Dchunk_iter)(hid_t dataset, hid_t dxpl, gpufi_h5_chunk_visitor visit, void *arg);
  /* NULL where the library has none. */
  herr_t (*Dget_chunk_index_type)(hid_t dataset, H5D_chunk_index_t *index);
  /* 1.10.5 and newer, else NULL. */
  herr_t (*Dget_chunk_info_by_coord)(hid_t dataset, const hsize_t *offset, unsigned *filter_mask,
                                     haddr_t *address, hsize_t *nbytes);
  /* Before 1.10.9 and 1.12.2 HDF5 believes, until the dataset is closed everywhere, that the one
   * chunk of a dataset with the index "single chunk" skipped every filter when H5Dwrite_chunk wrote
   * it first. */
  bool mistakes_single_chunks;
  /* The driver of plain files: a variable from 2.0 on, a function before. One of them is NULL. */
  const hid_t *FD_SEC2_id;
  hid_t (*FD_sec2_init)(void);
  /* Takes an H5FD_class_t, of which older and newer headers declare different ones. NULL where the
   * library has none. */
  hid_t (*FDregister)(const void *driver_class);
  /* 1.10.7, 1.12.1 and newer, else NULL. */
  herr_t (*Pget_file_locking)(hid_t fapl, bool *use_file_locking, bool *ignore_when_disabled);
  void *h5open;              /* the address of H5open, which tells one libhdf5 from another */
  struct gpufi_h5_api *next; /* the other libraries bound so far */
  bool filter_registered;
} gpufi_h5_api;

/* The bound library; NULL where none is. Calls nothing of HDF5. */
gpufi_h5_api *gpufi_h5_bound_already(void);
/* The bound library; binds as gpuf_h5_bind(NULL) does where none is. */
gpuf_status gpufi_h5_bound(gpufi_h5_api **api, gpuf_error *err);
/* The library that `handle`, of dlopen, leads to; the bound one stays what it is. Takes over the
 * handle. */
gpuf_status gpufi_h5_adopt(void *handle, gpufi_h5_api **api, gpuf_error *err);

#endif
