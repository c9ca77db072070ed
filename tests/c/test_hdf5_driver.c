/* The library's own file driver: what it leaves to threads and when it waits for them, what it
 * remembers, forks, locks. The program takes the path of a libhdf5; without one it tests the
 * system's. */
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "hdf5/driver/driver.h"
#include "hdf5_library.h"
#include "refused_calls.h"

#define CHUNK 65536
#define CHUNKS 12

static char path[64];
static unsigned char values[CHUNKS * CHUNK];
static gpufi_h5_driver_file *watched;
static atomic_int done_count;

static void count_done(void *arg) {
  (void)arg;
  atomic_fetch_add(&done_count, 1);
}

static hid_t access_list(const gpufi_h5_driver_options *options) {
  const gpufi_h5_driver *driver;
  const hid_t fapl = api->Pcreate(*h5.P_FILE_ACCESS);
  CHECK_OK(gpufi_h5_driver_open(api, &driver, &err));
  CHECK_OK(gpufi_h5_driver_fapl(driver, fapl, options, &watched, &err));
  return fapl;
}

/* A new file through the driver; `watched` is its writer's end. */
static hid_t create_file(const gpufi_h5_driver_options *options) {
  const hid_t fapl = access_list(options);
  atomic_store(&done_count, 0);
  const hid_t file = h5.Fcreate(path, TRUNC, H5P_DEFAULT, fapl);
  CHECK(file >= 0 && api->Idec_ref(fapl) >= 0);
  return file;
}

/* Whether an I/O thread has it. */
static bool write_chunk(hid_t dataset, int number) {
  const hsize_t offset = (hsize_t)number * CHUNK;
  gpufi_h5_driver_announce(watched, values + offset, CHUNK, count_done, NULL);
  CHECK(api->Dwrite_chunk(dataset, H5P_DEFAULT, 0, &offset, CHUNK, values + offset) >= 0);
  return gpufi_h5_driver_withdraw(watched);
}

/* By HDF5's default driver. */
static void check_file(const char *name, size_t nbytes) {
  const hid_t file = h5.Fopen(path, RDONLY, H5P_DEFAULT);
  CHECK(file >= 0);
  CHECK(holds(file, name, values, nbytes));
  CHECK(h5.Fclose(file) >= 0);
}

static void finish(hid_t file) {
  CHECK(h5.Fclose(file) >= 0);
  CHECK_OK(gpufi_h5_driver_error(watched, &err));
  gpufi_h5_driver_release(watched);
}

static void an_announced_chunk_is_written_by_a_thread_and_read_back(void) {
  const gpufi_h5_driver_options options = {.thread_count = 3};
  const hid_t file = create_file(&options);
  const hid_t dataset = create_bytes(file, "x", sizeof(values), CHUNK);
  for (int i = 0; i < CHUNKS; i++) {
    CHECK(write_chunk(dataset, i));
  }
  CHECK(watched->deferred_count == CHUNKS);
  CHECK(holds(file, "x", values, sizeof(values)));
  CHECK_OK(gpufi_h5_driver_drain(watched, &err));
  CHECK(atomic_load(&done_count) == CHUNKS);
  h5.Dclose(dataset);
  finish(file);
  check_file("x", sizeof(values));
}

int main(int count, char **arguments) {
  load_library(count > 1 ? arguments[1] : NULL);
  snprintf(path, sizeof(path), "test_hdf5_driver_%ld.h5", (long)getpid());
  for (size_t i = 0; i < sizeof(values); i++) {
    values[i] = (unsigned char)(i * 31 + (i >> 9));
  }
  TEST(an_announced_chunk_is_written_by_a_thread_and_read_back);
  unlink(path);
  return test_finish();
}
