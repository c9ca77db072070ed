#include "hdf5/direct.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hdf5/driver/driver.h"

/* For fewer chunks than this it does not pay to visit all chunks of the dataset. */
#define CHUNKS_MIN 4
/* The table has at most this many places, which take 256 MiB. */
#define CHUNKS_MAX ((int64_t)1 << 24)

typedef struct table {
  const gpufi_h5_grid *grid;
  gpufi_h5_place *places;
} table;

/* A place that no file can have is not noted: HDF5 reads that chunk, and says what is wrong with
 * it. */
static void set_place(const table *t, int64_t index, uint64_t address, uint64_t nbytes,
                      uint32_t filter_mask) {
  if (nbytes <= UINT32_MAX && address <= INT64_MAX - nbytes) {
    t->places[index] = (gpufi_h5_place){(int64_t)address, (uint32_t)nbytes, filter_mask};
  }
}

/* Called by HDF5 for each chunk of the dataset. Chunks outside the grid are skipped. */
static int note_place(const hsize_t *offset, unsigned filter_mask, haddr_t address, hsize_t nbytes,
                      void *arg) {
  const table *t = arg;
  int64_t index = 0;
  for (int32_t axis = 0; axis < t->grid->ndim; axis++) {
    const int64_t first = t->grid->first[axis];
    const int64_t tile = t->grid->tile[axis];
    if (offset[axis] > INT64_MAX || (int64_t)offset[axis] < first ||
        ((int64_t)offset[axis] - first) % tile != 0 ||
        ((int64_t)offset[axis] - first) / tile >= t->grid->counts[axis]) {
      return 0;
    }
    index = index * t->grid->counts[axis] + ((int64_t)offset[axis] - first) / tile;
  }
  set_place(t, index, address, nbytes, (uint32_t)filter_mask);
  return 0;
}

/* Whether the file's bytes are what HDF5 would read: it was opened read-only, by a driver of
 * plain files, and its addresses count from its start. */
static bool is_plain(const gpufi_h5_api *api, hid_t file) {
  unsigned intent = 0;
  hsize_t userblock = 1;
  hid_t driver = H5I_INVALID_HID;
  const hid_t sec2 = api->FD_SEC2_id     ? *api->FD_SEC2_id
                     : api->FD_sec2_init ? api->FD_sec2_init()
                                         : H5I_INVALID_HID;
  const hid_t access = api->Fget_access_plist(file);
  const hid_t create = api->Fget_create_plist(file);
  const bool known = api->Fget_intent(file, &intent) >= 0 && access >= 0 && create >= 0 &&
                     (driver = api->Pget_driver(access)) >= 0 &&
                     api->Pget_userblock(create, &userblock) >= 0;
  if (access >= 0) {
    api->Idec_ref(access);
  }
  if (create >= 0) {
    api->Idec_ref(create);
  }
  return known && intent == 0 && userblock == 0 &&
         (driver == sec2 || gpufi_h5_driver_is(api, driver));
}

/* Whether HDF5 visits the dataset's chunks at their own offsets. With an extensible array (files of
 * HDF5 1.10 and newer, one unlimited axis) the chunks lie in the array with that axis first, and
 * HDF5 up to 2.0 counts offsets as if they lay in the axes' own order. */
static bool has_known_offsets(const gpufi_h5_api *api, hid_t dataset) {
  H5D_chunk_index_t index;
  hsize_t max_shape[GPUF_NDIM_MAX];
  int unlimited_count = 0;
  bool is_known;
  if (api->Dget_chunk_index_type && api->Dget_chunk_index_type(dataset, &index) >= 0 &&
      index != H5D_CHUNK_IDX_EARRAY) {
    return true;
  }
  const hid_t space = api->Dget_space(dataset);
  const int ndim = space < 0 ? -1 : api->Sget_simple_extent_dims(space, NULL, max_shape);
  for (int axis = 0; axis < ndim; axis++) {
    unlimited_count += max_shape[axis] == H5S_UNLIMITED;
  }
  is_known = ndim > 0 && (unlimited_count != 1 || max_shape[0] == H5S_UNLIMITED);
  if (space >= 0) {
    api->Idec_ref(space);
  }
  return is_known;
}

static int open_again(const gpufi_h5_api *api, hid_t file) {
  void *handle = NULL;
  if (is_plain(api, file) && api->Fget_vfd_handle(file, H5P_DEFAULT, &handle) >= 0 && handle) {
    return fcntl(*(const int *)handle, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  }
  return -1;
}

/* --- Places ------------------------------------------------------------------ */

/* The file that the library's own driver has opened; NULL for one of another driver. It is there as
 * long as the file is open. */
static gpufi_h5_driver_file *driven_file(const gpufi_h5_api *api, hid_t file) {
  const void *driven = NULL;
  const hid_t access = api->Fget_access_plist(file);
  if (access >= 0) {
    if (gpufi_h5_driver_is(api, api->Pget_driver(access))) {
      driven = api->Pget_driver_info(access);
    }
    api->Idec_ref(access);
  }
  return (gpufi_h5_driver_file *)driven;
}

/* Where HDF5 reads a chunk from, which the driver notes instead of reading it. Empty after a
 * failure.
 */
static gpufi_h5_extent probe_chunk(const gpufi_h5_api *api, hid_t dataset,
                                   gpufi_h5_driver_file *file, const gpufi_h5_grid *grid,
                                   int64_t index, uint32_t *filter_mask) {
  static char probe;
  int64_t origin[GPUF_NDIM_MAX];
  hsize_t offset[GPUF_NDIM_MAX];
  gpufi_h5_grid_origin(grid, index, origin);
  for (int32_t axis = 0; axis < grid->ndim; axis++) {
    offset[axis] = (hsize_t)origin[axis];
  }
  *filter_mask = 0;
  gpufi_h5_driver_probe(file, &probe);
  const herr_t code = api->Dread_chunk1(dataset, H5P_DEFAULT, offset, filter_mask, &probe);
  const gpufi_h5_extent found = gpufi_h5_driver_probed(file);
  return code < 0 ? (gpufi_h5_extent){0, 0} : found;
}

/* For releases without H5Dchunk_iter: their H5Dget_chunk_info_by_coord visits all chunks before the
 * one that it is asked for. False if a chunk is missing or cannot be found: HDF5 says why. */
static bool probe_places(const gpufi_h5_api *api, hid_t dataset, gpufi_h5_driver_file *file,
                         const table *t) {
  int64_t i = 0;
  while (file && api->Dread_chunk1 && i < t->grid->total) {
    uint32_t filter_mask;
    const gpufi_h5_extent e = probe_chunk(api, dataset, file, t->grid, i, &filter_mask);
    if (e.begin == e.end) {
      break;
    }
    set_place(t, i++, e.begin, e.end - e.begin, filter_mask);
  }
  return i == t->grid->total;
}

static bool find_places(const gpufi_h5_api *api, hid_t dataset, hid_t file, table *t) {
  return api->Dchunk_iter ? has_known_offsets(api, dataset) &&
                                api->Dchunk_iter(dataset, H5P_DEFAULT, note_place, t) >= 0
                          : probe_places(api, dataset, driven_file(api, file), t);
}

void gpufi_h5_direct_init(gpufi_h5_direct *direct, gpufi_h5_session *session,
                          const gpufi_h5_dataset *dataset, const gpufi_h5_grid *grid) {
  const gpufi_h5_api *api = session->api;
  table t = {grid, NULL};
  direct->places = NULL;
  direct->fd = -1;
  if (grid->total < CHUNKS_MIN || grid->total > CHUNKS_MAX) {
    return;
  }
  const hid_t file = api->Iget_file_id(dataset->id);
  direct->fd = file < 0 ? -1 : open_again(api, file);
  if (direct->fd >= 0) {
    t.places = calloc((size_t)grid->total, sizeof(*t.places));
  }
  if (t.places && !find_places(api, dataset->id, file, &t)) {
    free(t.places);
    t.places = NULL;
  }
  if (file >= 0) {
    api->Idec_ref(file);
  }
  api->Eclear2(H5E_DEFAULT);
  direct->places = t.places;
  if (!t.places) {
    gpufi_h5_direct_fini(direct);
  }
}

void gpufi_h5_direct_fini(gpufi_h5_direct *direct) {
  if (direct->fd >= 0) {
    close(direct->fd);
  }
  free(direct->places);
  direct->places = NULL;
  direct->fd = -1;
}

gpuf_status gpufi_h5_direct_read(int fd, int64_t offset, void *bytes, size_t nbytes,
                                 gpuf_error *err) {
  size_t done = 0;
  while (done < nbytes) {
    const ssize_t count =
        pread(fd, (char *)bytes + done, nbytes - done, (off_t)(offset + (int64_t)done));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return gpufi_fail(err, GPUF_ERR_IO, errno, "reading %zu bytes at %" PRId64 " failed: %s",
                        nbytes, offset, strerror(errno));
    }
    if (count == 0) {
      return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                        "the file ends before its %zu bytes at %" PRId64 ": it was cut short",
                        nbytes, offset);
    }
    done += (size_t)count;
  }
  return GPUF_OK;
}
