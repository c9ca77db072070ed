/* Files that are written through the library's own driver, and read by HDF5's default one. */
#ifndef GPUFI_TEST_HDF5_DRIVER_FILES_H
#define GPUFI_TEST_HDF5_DRIVER_FILES_H

#include <sys/sendfile.h>
#include <sys/stat.h>

#include "hdf5/driver/driver.h"
#include "hdf5_library.h"
#include "refused_calls.h"

#define CHUNK 65536
#define CHUNKS 12

static char path[64];
static unsigned char values[CHUNKS * CHUNK];
static gpufi_h5_driver_file *watched;

static inline hid_t access_list(void) {
  const gpufi_h5_driver *driver;
  const hid_t fapl = api->Pcreate(*h5.P_FILE_ACCESS);
  CHECK_OK(gpufi_h5_driver_open(api, &driver, &err));
  CHECK_OK(gpufi_h5_driver_fapl(driver, fapl, &watched, &err));
  return fapl;
}

/* A new file through the driver; `watched` is its writer's end. */
static inline hid_t create_file(void) {
  const hid_t fapl = access_list();
  const hid_t file = h5.Fcreate(path, TRUNC, H5P_DEFAULT, fapl);
  CHECK(file >= 0 && api->Idec_ref(fapl) >= 0);
  return file;
}

static inline void write_chunk(hid_t dataset, int number) {
  const hsize_t offset = (hsize_t)number * CHUNK;
  CHECK(api->Dwrite_chunk(dataset, H5P_DEFAULT, 0, &offset, CHUNK, values + offset) >= 0);
}

/* A new dataset of all values. */
static inline hid_t write_values(hid_t file) {
  const hid_t dataset = create_bytes(file, "x", sizeof(values), CHUNK);
  for (int i = 0; i < CHUNKS; i++) {
    write_chunk(dataset, i);
  }
  return dataset;
}

/* By HDF5's default driver, from a copy, since a file that is open for writing is locked. */
static inline void check_file(const char *name, size_t nbytes) {
  char copy_path[80];
  struct stat status;
  snprintf(copy_path, sizeof(copy_path), "%s.copy", path);
  const int from = open(path, O_RDONLY), to = open(copy_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(from >= 0 && to >= 0 && fstat(from, &status) == 0);
  for (off_t done = 0; done < status.st_size;) {
    const ssize_t count = sendfile(to, from, NULL, (size_t)(status.st_size - done));
    CHECK(count > 0 || (count < 0 && errno == EINTR));
    done += count > 0 ? count : 0;
  }
  CHECK(close(from) == 0 && close(to) == 0);
  const hid_t file = h5.Fopen(copy_path, RDONLY, H5P_DEFAULT);
  CHECK(file >= 0);
  CHECK(holds(file, name, values, nbytes));
  CHECK(h5.Fclose(file) >= 0);
  CHECK(unlink(copy_path) == 0);
}

static inline void finish(hid_t file) {
  CHECK(h5.Fclose(file) >= 0);
  CHECK_OK(gpufi_h5_driver_error(watched, &err));
  gpufi_h5_driver_release(watched);
}

/* What main does first. */
static inline void begin(const char *name, int argument_count, char **arguments) {
  load_library(argument_count > 1 ? arguments[1] : NULL);
  snprintf(path, sizeof(path), "%s_%ld.h5", name, (long)getpid());
  for (size_t i = 0; i < sizeof(values); i++) {
    values[i] = (unsigned char)(i * 31 + (i >> 9));
  }
}

#endif
