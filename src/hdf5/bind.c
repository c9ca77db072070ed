/* Finding the caller's libhdf5 among the objects that are loaded. */
#include "base/error.h"
#include "base/fork.h"
#include "hdf5/api.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARIES_MAX 16

_Static_assert(sizeof(hid_t) == sizeof(gpuf_h5_id), "hid_t is 64 bits wide from HDF5 1.10 on");

/* Guards the list and `bound`. An entry is never removed: a call in another thread may use it. Held
 * across a fork, so that the child can bind whatever other threads did then. */
static pthread_mutex_t bind_mutex = PTHREAD_MUTEX_INITIALIZER;
static gpufi_h5_api *libraries;
static gpufi_h5_api *bound;

typedef struct found_libraries {
  int count;
  void *handles[LIBRARIES_MAX];
  void *h5open[LIBRARIES_MAX]; /* the address of each one's H5open */
  int name_count;
  char *names[LIBRARIES_MAX];
} found_libraries;

static const char *library_path(void *h5open) {
  Dl_info info;
  return dladdr(h5open, &info) && info.dli_fname ? info.dli_fname : "an unnamed object";
}

/* Fill the table. Where a program names one of the variables, the linker may put the only live copy
 * of it into the program (a copy relocation), and the library uses that one. So the variables of a
 * library that the program sees by default are looked up by default. */
static gpuf_status resolve(gpufi_h5_api *api, void *handle, gpuf_error *err) {
  const bool is_default = dlsym(RTLD_DEFAULT, "H5open") == api->h5open;
  void *scope = is_default ? RTLD_DEFAULT : handle;
  const char *missing = NULL;
#define GPUFI_RESOLVE(name)                                                                        \
  if (!(*(void **)&api->name = dlsym(handle, "H5" #name))) {                                       \
    missing = "H5" #name;                                                                          \
  }
  GPUFI_H5_FUNCTIONS(GPUFI_RESOLVE)
#undef GPUFI_RESOLVE
#define GPUFI_RESOLVE(name)                                                                        \
  if (!(api->name = (const hid_t *)dlsym(scope, "H5" #name "_g"))) {                               \
    missing = "H5" #name "_g";                                                                     \
  }
  GPUFI_H5_IDS(GPUFI_RESOLVE)
#undef GPUFI_RESOLVE
  *(void **)&api->Tcomplex_create = dlsym(handle, "H5Tcomplex_create");
  *(void **)&api->Fget_fileno = dlsym(handle, "H5Fget_fileno");
  *(void **)&api->Oget_info1 = dlsym(handle, "H5Oget_info1");
  *(void **)&api->Oget_info2 = dlsym(handle, "H5Oget_info2");
  *(void **)&api->Oget_info3 = dlsym(handle, "H5Oget_info3");
  *(void **)&api->Lget_info = dlsym(handle, "H5Lget_info2");
  if (!api->Lget_info) {
    *(void **)&api->Lget_info = dlsym(handle, "H5Lget_info");
  }
  *(void **)&api->Dchunk_iter = dlsym(handle, "H5Dchunk_iter");
  *(void **)&api->Dget_chunk_index_type = dlsym(handle, "H5Dget_chunk_index_type");
  *(void **)&api->Dget_chunk_info_by_coord = dlsym(handle, "H5Dget_chunk_info_by_coord");
  *(void **)&api->FD_sec2_init = dlsym(handle, "H5FD_sec2_init");
  *(void **)&api->FDregister = dlsym(handle, "H5FDregister");
  *(void **)&api->Pget_file_locking = dlsym(handle, "H5Pget_file_locking");
  api->FD_SEC2_id = dlsym(scope, "H5FD_SEC2_id_g");
  *(void **)&api->Dread_chunk2 = dlsym(handle, "H5Dread_chunk2");
  if (!api->Dread_chunk2 && !(*(void **)&api->Dread_chunk1 = dlsym(handle, "H5Dread_chunk"))) {
    missing = "H5Dread_chunk";
  }
  if (missing) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "%s has no symbol %s: gpufetch needs HDF5 1.10.3 or newer",
                      library_path(api->h5open), missing);
  }
  return GPUF_OK;
}

static gpuf_status initialise(gpufi_h5_api *api, gpuf_error *err) {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned patch = 0;
  if (api->open() < 0 || api->get_libversion(&major, &minor, &patch) < 0) {
    return gpufi_fail(err, GPUF_ERR_HDF5, 0, "%s failed to initialise (H5open)",
                      library_path(api->h5open));
  }
  if (major < 1 || (major == 1 && (minor < 10 || (minor == 10 && patch < 3)))) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "%s is HDF5 %u.%u.%u: gpufetch needs 1.10.3 or newer",
                      library_path(api->h5open), major, minor, patch);
  }
  if (major == 1 && minor < 14) {
    api->Dchunk_iter = NULL;
  }
  api->mistakes_single_chunks =
      major == 1 && ((minor == 10 && patch < 9) || (minor == 12 && patch < 2));
  if (api->Iget_type(*api->T_IEEE_F32LE) != H5I_DATATYPE) {
    return gpufi_fail(err, GPUF_ERR_STATE, 0,
                      "the symbols of %s are mixed up with those of another libhdf5 in this "
                      "process: load only one, or load each with RTLD_LOCAL",
                      library_path(api->h5open));
  }
  return GPUF_OK;
}

/* Find the library that `handle` leads to, and take over the handle. Called under bind_mutex. */
static gpuf_status find_library(void *handle, gpufi_h5_api **found, gpuf_error *err) {
  gpuf_status status;
  gpufi_h5_api *api;
  void *h5open = dlsym(handle, "H5open");
  for (api = libraries; api; api = api->next) {
    if (api->h5open == h5open) {
      *found = api;
      dlclose(handle);
      return GPUF_OK;
    }
  }
  api = calloc(1, sizeof(*api));
  if (!api) {
    dlclose(handle);
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %zu bytes", sizeof(*api));
  }
  api->h5open = h5open;
  status = resolve(api, handle, err);
  if (status == GPUF_OK) {
    status = initialise(api, err);
  }
  if (status != GPUF_OK) {
    dlclose(handle);
    free(api);
    return status;
  }
  /* The handle stays open, so that the library outlives every pointer into it. */
  api->next = libraries;
  libraries = api;
  *found = api;
  return GPUF_OK;
}

static gpuf_status bind_handle(void *handle, gpuf_error *err) {
  return find_library(handle, &bound, err);
}

static int note_name(struct dl_phdr_info *info, size_t info_nbytes, void *arg) {
  found_libraries *found = arg;
  const char *slash = strrchr(info->dlpi_name, '/');
  const char *base = slash ? slash + 1 : info->dlpi_name;
  if (!strncmp(base, "libhdf5", 7) && found->name_count < LIBRARIES_MAX) {
    char *copy = strdup(info->dlpi_name);
    if (copy) {
      found->names[found->name_count++] = copy;
    }
  }
  return 0;
}

/* Open each libhdf5 once: libhdf5_hl and its like lead to the libhdf5 that they use. */
static void find_libraries(found_libraries *found) {
  memset(found, 0, sizeof(*found));
  dl_iterate_phdr(note_name, found);
  for (int i = 0; i < found->name_count; i++) {
    void *handle = dlopen(found->names[i], RTLD_NOLOAD | RTLD_LAZY);
    void *h5open = handle ? dlsym(handle, "H5open") : NULL;
    bool known = !h5open;
    for (int k = 0; k < found->count; k++) {
      known = known || found->h5open[k] == h5open;
    }
    if (!known) {
      found->handles[found->count] = handle;
      found->h5open[found->count++] = h5open;
    } else if (handle) {
      dlclose(handle);
    }
    free(found->names[i]);
  }
}

static gpuf_status bind_only_library(gpuf_error *err) {
  char names[600] = "";
  found_libraries found;
  find_libraries(&found);
  if (found.count == 1) {
    return bind_handle(found.handles[0], err);
  }
  for (int i = 0; i < found.count; i++) {
    const size_t used = strlen(names);
    snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "",
             library_path(found.h5open[i]));
    dlclose(found.handles[i]);
  }
  if (found.count == 0) {
    return gpufi_fail(err, GPUF_ERR_STATE, 0,
                      "no libhdf5 is loaded in this process: link it and call H5open, so that the "
                      "linker keeps it, or import h5py, before HDF5 is used through gpufetch");
  }
  return gpufi_fail(err, GPUF_ERR_STATE, 0,
                    "%d HDF5 libraries are loaded (%s): choose one by gpuf_h5_bind(path)",
                    found.count, names);
}

static gpuf_status bind_locked(const char *object_path, gpuf_error *err) {
  void *handle;
  if (!object_path) {
    /* RTLD_DEFAULT itself is no handle that may be closed; the owner of the symbol is one. */
    void *h5open = dlsym(RTLD_DEFAULT, "H5open");
    Dl_info info;
    handle = h5open && dladdr(h5open, &info) && info.dli_fname
                 ? dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY)
                 : NULL;
    if (!handle && h5open) {
      handle = dlopen(NULL, RTLD_LAZY); /* libhdf5 is linked into the program itself */
    }
    return handle && dlsym(handle, "H5open") == h5open ? bind_handle(handle, err)
                                                       : bind_only_library(err);
  }
  handle = dlopen(object_path, RTLD_NOLOAD | RTLD_LAZY);
  if (!handle) {
    return gpufi_fail(err, GPUF_ERR_STATE, 0, "'%s' is not loaded in this process", object_path);
  }
  if (!dlsym(handle, "H5open")) {
    dlclose(handle);
    return gpufi_fail(err, GPUF_ERR_STATE, 0,
                      "'%s' uses no shared libhdf5 (or one that hides its symbols)", object_path);
  }
  return bind_handle(handle, err);
}

GPUFI_HOLD_AT_FORK(GPUFI_FORK_LEAF, &bind_mutex);

gpuf_status gpuf_h5_bind(const char *object_path, gpuf_error *err) {
  gpuf_status status;
  if (object_path && !*object_path) { /* to dlopen, that is the program */
    return gpufi_fail(err, GPUF_ERR_INVALID, 0,
                      "object_path is empty: it must name a loaded library, or be NULL for the one "
                      "that the program uses");
  }
  pthread_mutex_lock(&bind_mutex);
  status = bind_locked(object_path, err);
  pthread_mutex_unlock(&bind_mutex);
  return status;
}

gpuf_status gpufi_h5_adopt(void *handle, gpufi_h5_api **api, gpuf_error *err) {
  gpuf_status status;
  pthread_mutex_lock(&bind_mutex);
  status = find_library(handle, api, err);
  pthread_mutex_unlock(&bind_mutex);
  return status;
}

gpufi_h5_api *gpufi_h5_bound_already(void) {
  gpufi_h5_api *api;
  pthread_mutex_lock(&bind_mutex);
  api = bound;
  pthread_mutex_unlock(&bind_mutex);
  return api;
}

gpuf_status gpufi_h5_bound(gpufi_h5_api **api, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  pthread_mutex_lock(&bind_mutex);
  if (!bound) {
    status = bind_locked(NULL, err);
  }
  *api = bound;
  pthread_mutex_unlock(&bind_mutex);
  return status;
}
