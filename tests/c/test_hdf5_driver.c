/* Files of the library's own driver, in HDF5's layouts. The program takes the path of a libhdf5;
 * without one it tests the system's. */
#include "hdf5_driver_files.h"

static void a_file_is_read_back_before_and_after_it_is_closed(void) {
  const hid_t file = create_file();
  const hid_t dataset = write_values(file);
  CHECK(holds(file, "x", values, sizeof(values)));
  CHECK_OK(gpufi_h5_driver_error(watched, &err));
  h5.Dclose(dataset);
  finish(file);
  check_file("x", sizeof(values));
}

static void a_flush_brings_all_of_it_to_the_file(void) {
  const hid_t file = create_file();
  const hid_t dataset = write_values(file);
  CHECK(h5.Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
  check_file("x", sizeof(values));
  h5.Dclose(dataset);
  finish(file);
}

static void a_chunk_is_overwritten(void) {
  static const unsigned char older[CHUNK];
  const hsize_t offset = CHUNK;
  const hid_t file = create_file();
  const hid_t dataset = write_values(file);
  CHECK(api->Dwrite_chunk(dataset, H5P_DEFAULT, 0, &offset, CHUNK, older) >= 0);
  CHECK(!holds(file, "x", values, sizeof(values)));
  write_chunk(dataset, 1);
  h5.Dclose(dataset);
  finish(file);
  check_file("x", sizeof(values));
}

/* A file in pages, with a page buffer, which copies chunks that are smaller than a page. */
static void write_with_page_buffer(size_t page_nbytes) {
  const hid_t fapl = access_list();
  const hid_t fcpl = api->Pcreate(*h5.P_FILE_CREATE);
  CHECK(h5.Pset_file_space_strategy(fcpl, H5F_FSPACE_STRATEGY_PAGE, 0, 1) >= 0);
  CHECK(h5.Pset_file_space_page_size(fcpl, page_nbytes) >= 0);
  CHECK(h5.Pset_page_buffer_size(fapl, 16 * page_nbytes, 0, 0) >= 0);
  const hid_t file = h5.Fcreate(path, TRUNC, fcpl, fapl);
  CHECK(file >= 0);
  const hid_t dataset = write_values(file);
  CHECK(holds(file, "x", values, sizeof(values)));
  h5.Dclose(dataset);
  api->Idec_ref(fapl);
  api->Idec_ref(fcpl);
  finish(file);
  check_file("x", sizeof(values));
}

static void chunks_pass_a_page_buffer(void) {
  write_with_page_buffer((size_t)4 * CHUNK);
  write_with_page_buffer(CHUNK / 4);
}

int main(int count, char **arguments) {
  begin("test_hdf5_driver", count, arguments);
  TEST(a_file_is_read_back_before_and_after_it_is_closed);
  TEST(a_flush_brings_all_of_it_to_the_file);
  TEST(a_chunk_is_overwritten);
  TEST(chunks_pass_a_page_buffer);
  unlink(path);
  return test_finish();
}
