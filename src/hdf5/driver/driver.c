#include "hdf5/driver/driver.h"

#include <stddef.h>

#include "base/error.h"
#include "hdf5/driver/callbacks.h"

#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

#define DRIVER_NAME "gpufetch"
/* From the range for trying new drivers. A program finds the driver by its identifier only. */
#define DRIVER_VALUE 511
#define CLASS_VERSION 1
#define CLOSE_WEAK 1
#define SUPER H5FD_MEM_SUPER
#define DRAW H5FD_MEM_DRAW

/* --- What HDF5 calls a driver --------------------------------------------------- */

/* H5FD_class_t of 1.10 and 1.12, and that of 1.14 and 2.x: whatever the headers are that this is
 * compiled with, either may be needed. Types that differ between headers are plain ones. */
#define FIRST_MEMBERS                                                                              \
  const char *name;                                                                                \
  haddr_t maxaddr;                                                                                 \
  int fc_degree;                                                                                   \
  herr_t (*terminate)(void);                                                                       \
  void *sb_size, *sb_encode, *sb_decode;                                                           \
  size_t fapl_size;                                                                                \
  void *(*fapl_get)(void *opened);                                                                 \
  void *(*fapl_copy)(const void *info);                                                            \
  herr_t (*fapl_free)(void *info);                                                                 \
  size_t dxpl_size;                                                                                \
  void *dxpl_copy, *dxpl_free;                                                                     \
  void *(*open)(const char *path, unsigned flags, hid_t fapl, haddr_t address_max);                \
  herr_t (*close)(void *opened);                                                                   \
  int (*cmp)(const void *opened, const void *other);                                               \
  herr_t (*query)(const void *opened, unsigned long *features);                                    \
  void *get_type_map, *alloc, *free;                                                               \
  haddr_t (*get_eoa)(const void *opened, int kind);                                                \
  herr_t (*set_eoa)(void *opened, int kind, haddr_t address);                                      \
  haddr_t (*get_eof)(const void *opened, int kind);                                                \
  herr_t (*get_handle)(void *opened, hid_t fapl, void **handle);                                   \
  herr_t (*read)(void *opened, int kind, hid_t dxpl, haddr_t offset, size_t nbytes, void *bytes);  \
  herr_t (*write)(void *opened, int kind, hid_t dxpl, haddr_t offset, size_t nbytes,               \
                  const void *bytes);
#define LATER_MEMBERS                                                                              \
  herr_t (*flush)(void *opened, hid_t dxpl, bool is_closing);                                      \
  herr_t (*truncate)(void *opened, hid_t dxpl, bool is_closing);                                   \
  herr_t (*lock)(void *opened, bool for_writing);                                                  \
  herr_t (*unlock)(void *opened);

typedef struct class_1_10 {
  FIRST_MEMBERS
  LATER_MEMBERS
  int fl_map[H5FD_MEM_NTYPES];
} class_1_10;

typedef struct class_1_14 {
  unsigned version;
  int value;
  FIRST_MEMBERS
  void *read_vector, *write_vector, *read_selection, *write_selection;
  LATER_MEMBERS
  herr_t (*del)(const char *path, hid_t fapl);
  void *ctl;
  int fl_map[H5FD_MEM_NTYPES];
} class_1_14;

#if H5_VERSION_GE(1, 13, 0)
typedef class_1_14 class_of_headers;
#else
typedef class_1_10 class_of_headers;
#endif
_Static_assert(sizeof(class_of_headers) == sizeof(H5FD_class_t) &&
                   offsetof(class_of_headers, write) == offsetof(H5FD_class_t, write) &&
                   offsetof(class_of_headers, fl_map) == offsetof(H5FD_class_t, fl_map),
               "the class of drivers is that of the headers");

/* Members as in sec2, where nothing else is said. HDF5 compares access lists by the first fapl_size
 * bytes of their driver information. */
#define FIRST_VALUES(i)                                                                            \
  .name = DRIVER_NAME, .maxaddr = GPUFI_H5_ADDRESS_MAX, .fc_degree = CLOSE_WEAK,                   \
  .terminate = terminate_##i, .fapl_size = sizeof(uint64_t),                                       \
  .fapl_get = gpufi_h5_driver_on_get_info, .fapl_copy = gpufi_h5_driver_on_copy_info,              \
  .fapl_free = gpufi_h5_driver_on_free_info, .open = open_##i, .close = gpufi_h5_driver_on_close,  \
  .cmp = gpufi_h5_driver_on_compare, .query = gpufi_h5_driver_on_query,                            \
  .get_eoa = gpufi_h5_driver_on_get_eoa, .set_eoa = gpufi_h5_driver_on_set_eoa,                    \
  .get_eof = gpufi_h5_driver_on_get_eof, .get_handle = gpufi_h5_driver_on_get_handle,              \
  .read = gpufi_h5_driver_on_read, .write = gpufi_h5_driver_on_write
#define LATER_VALUES                                                                               \
  .flush = gpufi_h5_driver_on_flush, .truncate = gpufi_h5_driver_on_truncate,                      \
  .lock = gpufi_h5_driver_on_lock, .unlock = gpufi_h5_driver_on_unlock,                            \
  .fl_map = {SUPER, SUPER, SUPER, DRAW, DRAW, SUPER, SUPER}

/* --- One driver for each library ------------------------------------------------- */

struct gpufi_h5_driver {
  gpufi_h5_api *api; /* atomic: NULL while the place is free; then it stays */
  hid_t id;          /* 0: not registered. Used under the library's lock, or the caller's own. */
};

/* HDF5 does not tell its drivers which library calls: each has functions of its own. */
#define DRIVERS_MAX 4
static gpufi_h5_driver drivers[DRIVERS_MAX];

#define FUNCTIONS(i)                                                                               \
  static void *open_##i(const char *path, unsigned flags, hid_t fapl, haddr_t address_max) {       \
    return gpufi_h5_driver_on_open(drivers[i].api, path, flags, fapl, address_max);                \
  }                                                                                                \
  /* The library ends, or is closed by H5close, which takes its identifiers with it. */            \
  static herr_t terminate_##i(void) {                                                              \
    drivers[i].id = 0;                                                                             \
    return 0;                                                                                      \
  }
FUNCTIONS(0)
FUNCTIONS(1)
FUNCTIONS(2)
FUNCTIONS(3)

#define CLASS_1_10(i) {FIRST_VALUES(i), LATER_VALUES}
#define CLASS_1_14(i)                                                                              \
  {.version = CLASS_VERSION,                                                                       \
   .value = DRIVER_VALUE,                                                                          \
   FIRST_VALUES(i),                                                                                \
   LATER_VALUES,                                                                                   \
   .del = gpufi_h5_driver_on_delete}
static const class_1_10 classes_1_10[DRIVERS_MAX] = {CLASS_1_10(0), CLASS_1_10(1), CLASS_1_10(2),
                                                     CLASS_1_10(3)};
static const class_1_14 classes_1_14[DRIVERS_MAX] = {CLASS_1_14(0), CLASS_1_14(1), CLASS_1_14(2),
                                                     CLASS_1_14(3)};

/* The class for a release of HDF5, in the place `i`; NULL for one whose drivers are not known. */
static const void *class_for(unsigned major, unsigned minor, int i) {
  if (major == 1 && (minor == 10 || minor == 12)) {
    return &classes_1_10[i];
  }
  if ((major == 1 && minor == 14) || major == 2) {
    return &classes_1_14[i];
  }
  return NULL;
}

/* The library's place; DRIVERS_MAX if there is none left. */
static int place_of(gpufi_h5_api *api) {
  int i = 0;
  for (; i < DRIVERS_MAX; i++) {
    gpufi_h5_api *owner = NULL;
    if (__atomic_compare_exchange_n(&drivers[i].api, &owner, api, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE) ||
        owner == api) {
      break;
    }
  }
  return i;
}

gpuf_status gpufi_h5_driver_open(gpufi_h5_api *api, const gpufi_h5_driver **driver,
                                 gpuf_error *err) {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned patch = 0;
  api->get_libversion(&major, &minor, &patch);
  if (!api->FDregister || !class_for(major, minor, 0)) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "the file drivers of HDF5 %u.%u.%u are not those of 1.10, 1.12, 1.14 or 2.x: "
                      "use HDF5's own driver",
                      major, minor, patch);
  }
  const int i = place_of(api);
  if (i == DRIVERS_MAX) {
    return gpufi_fail(err, GPUF_ERR_UNSUPPORTED, 0,
                      "%d HDF5 libraries have the driver already: use HDF5's own driver here",
                      DRIVERS_MAX);
  }
  if (drivers[i].id == 0) {
    const hid_t id = api->FDregister(class_for(major, minor, i));
    if (id < 0) {
      api->Eclear2(H5E_DEFAULT);
      return gpufi_fail(err, GPUF_ERR_HDF5, 0,
                        "HDF5 %u.%u.%u does not register the file driver (H5FDregister): use "
                        "HDF5's own driver",
                        major, minor, patch);
    }
    drivers[i].id = id;
  }
  *driver = &drivers[i];
  return GPUF_OK;
}

gpuf_status gpufi_h5_driver_fapl(const gpufi_h5_driver *driver, hid_t fapl,
                                 gpufi_h5_driver_file **file, gpuf_error *err) {
  gpufi_h5_driver_file *const created = gpufi_h5_driver_file_create();
  if (!created) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %zu bytes", sizeof(*created));
  }
  if (driver->api->Pset_driver(fapl, driver->id, created) < 0) {
    const bool is_list = driver->api->Pget_driver(fapl) >= 0; /* then it is one of file access */
    driver->api->Eclear2(H5E_DEFAULT);
    gpufi_h5_driver_release(created);
    if (is_list) {
      return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "HDF5 has no memory for the driver of a file");
    }
    return gpufi_fail(err, GPUF_ERR_HDF5, 0,
                      "H5Pset_driver refuses identifier %lld, which should be a file access list",
                      (long long)fapl);
  }
  *file = created;
  return GPUF_OK;
}

bool gpufi_h5_driver_is(const gpufi_h5_api *api, hid_t driver) {
  for (int i = 0; i < DRIVERS_MAX; i++) {
    if (__atomic_load_n(&drivers[i].api, __ATOMIC_ACQUIRE) == api) {
      return drivers[i].id != 0 && drivers[i].id == driver;
    }
  }
  return false;
}
