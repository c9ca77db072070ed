/* Files that are written through the library's own driver, and read by HDF5's default one. */
#ifndef GPUFI_TEST_HDF5_DRIVER_FILES_H
#define GPUFI_TEST_HDF5_DRIVER_FILES_H

#include <stdatomic.h>
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
static atomic_int done_count;

static inline void count_done(void *arg) {
  (void)arg;
  atomic_fetch_add(&done_count, 1);
}

static inline hid_t access_list(const gpufi_h5_driver_options *options) {
  const gpufi_h5_driver *driver;
  const hid_t fapl = api->Pcreate(*h5.P_FILE_ACCESS);
  CHECK_OK(gpufi_h5_driver_open(api, &driver, &err));
  CHECK_OK(gpufi_h5_driver_fapl(driver, fapl, options, &watched, &err));
  return fapl;
}

/* A new file through the driver; `watched` is its writer's end. */
static inline hid_t create_file(const gpufi_h5_driver_options *options) {
  const hid_t fapl = access_list(options);
  atomic_store(&done_count, 0);
  const hid_t file = h5.Fcreate(path, TRUNC, H5P_DEFAULT, fapl);
  CHECK(file >= 0 && api->Idec_ref(fapl) >= 0);
  return file;
}

/* Whether an I/O thread has it. */
static inline bool write_chunk(hid_t dataset, int number) {
  const hsize_t offset = (hsize_t)number * CHUNK;
  gpufi_h5_driver_announce(watched, values + offset, CHUNK, count_done, NULL);
  CHECK(api->Dwrite_chunk(dataset, H5P_DEFAULT, 0, &offset, CHUNK, values + offset) >= 0);
  return gpufi_h5_driver_withdraw(watched);
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

static hid_t x; /* the dataset that create_pending has filled; open */

/* A file whose chunks all wait in the threads. */
static inline hid_t create_pending(void) {
  const gpufi_h5_driver_options options = {.thread_count = 2};
  const hid_t file = create_file(&options);
  x = create_bytes(file, "x", sizeof(values), CHUNK);
  set_gate(true);
  for (int i = 0; i < CHUNKS; i++) {
    CHECK(write_chunk(x, i));
  }
  CHECK(watched->deferred_count == CHUNKS && atomic_load(&done_count) == 0);
  return file;
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
