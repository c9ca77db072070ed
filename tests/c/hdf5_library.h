/* One libhdf5 of any release, loaded from a path that the program is given: `h5` has the functions
 * that the library under test does not bind itself, `api` those that it does. The program is not
 * linked with libhdf5, whose symbols would take the place of the loaded one's. */
#ifndef GPUFI_TEST_HDF5_LIBRARY_H
#define GPUFI_TEST_HDF5_LIBRARY_H

#include <dlfcn.h>
#include <string.h>

#include "hdf5/api.h"
#include "test.h"

/* H5F_ACC_... and others, without the calls to libhdf5 that hide in the macros. */
#define RDONLY 0u
#define RDWR 1u
#define TRUNC 2u

static gpuf_error err;

/* clang-format off */
#define LIBRARY_FUNCTIONS(F)                                                                \
  F(close) F(Fcreate) F(Fopen) F(Fclose) F(Fflush) F(Fget_obj_count) F(Dclose) F(Dset_extent) \
  F(Gcreate2) F(Pset_page_buffer_size) F(Pset_file_space_strategy)                          \
  F(Pset_file_space_page_size) F(Pset_libver_bounds) F(Pset_alignment) F(Pset_userblock)    \
  F(Pset_fclose_degree) F(Pset_cache) F(Lcreate_external) F(Pset_chunk_cache)
/* clang-format on */

static struct {
#define FIELD(name) __typeof__(H5##name) *name;
  LIBRARY_FUNCTIONS(FIELD)
#undef FIELD
  const hid_t *P_FILE_ACCESS, *P_FILE_CREATE, *P_DATASET_ACCESS;
} h5;

static gpufi_h5_api *api;
static unsigned h5_version; /* 11008 for 1.10.8 */

static void *library_handle;

static inline void *library_symbol(const char *name) {
  return dlsym(library_handle, name);
}

/* Load and bind it. `path` may be NULL for the system's. */
static inline void load_library(const char *path) {
  static const char *const system_names[] = {"libhdf5_serial.so", "libhdf5.so"};
  void *handle = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  unsigned major, minor, patch;
  for (size_t i = 0; !path && !handle && i < 2; i++) {
    handle = dlopen(system_names[i], RTLD_NOW | RTLD_LOCAL);
  }
  if (!handle) {
    printf("Bail out! %s\n", dlerror());
    exit(1);
  }
  Dl_info info;
  library_handle = handle;
  void *const h5open = dlsym(handle, "H5open");
  if (!h5open || !dladdr(h5open, &info) || gpuf_h5_bind(info.dli_fname, &err) != GPUF_OK ||
      gpufi_h5_bound(&api, &err) != GPUF_OK) {
    printf("Bail out! %s\n", err.message);
    exit(1);
  }
#define RESOLVE(name) *(void **)&h5.name = dlsym(handle, "H5" #name);
  LIBRARY_FUNCTIONS(RESOLVE)
#undef RESOLVE
  h5.P_FILE_ACCESS = dlsym(handle, "H5P_CLS_FILE_ACCESS_ID_g");
  h5.P_FILE_CREATE = dlsym(handle, "H5P_CLS_FILE_CREATE_ID_g");
  h5.P_DATASET_ACCESS = dlsym(handle, "H5P_CLS_DATASET_ACCESS_ID_g");
  api->get_libversion(&major, &minor, &patch);
  h5_version = major * 10000 + minor * 100 + patch;
  api->Eset_auto2(H5E_DEFAULT, NULL, NULL);
  printf("# HDF5 %u.%u.%u, %s\n", major, minor, patch, info.dli_fname);
}

/* An empty dataset of bytes; chunk_nbytes 0 = contiguous. Space is allocated when it is written. */
static inline hid_t create_bytes(hid_t file, const char *name, hsize_t nbytes,
                                 hsize_t chunk_nbytes) {
  const hsize_t unlimited = H5S_UNLIMITED;
  const hid_t space = api->Screate_simple(1, &nbytes, chunk_nbytes ? &unlimited : NULL);
  const hid_t plist = api->Pcreate(*api->P_CLS_DATASET_CREATE_ID);
  if (chunk_nbytes) {
    api->Pset_chunk(plist, 1, &chunk_nbytes);
  }
  const hid_t dataset =
      api->Dcreate2(file, name, *api->T_STD_U8LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  api->Idec_ref(plist);
  api->Idec_ref(space);
  return dataset;
}

/* Whether the dataset has these bytes, and no others. */
static inline bool holds(hid_t file, const char *name, const void *bytes, size_t nbytes) {
  const hid_t dataset = api->Dopen2(file, name, H5P_DEFAULT);
  bool is_equal = false;
  if (dataset >= 0) {
    const hid_t space = api->Dget_space(dataset);
    void *const found = malloc(nbytes + 1);
    memset(found, 0xa5, nbytes);
    is_equal = (size_t)api->Sget_simple_extent_npoints(space) == nbytes &&
               api->Dread(dataset, *api->T_STD_U8LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, found) >= 0 &&
               memcmp(found, bytes, nbytes) == 0;
    free(found);
    api->Idec_ref(space);
    h5.Dclose(dataset);
  }
  return is_equal;
}

#endif
