/* Files of the library's own driver, in HDF5's layouts. The program takes the path of a libhdf5;
 * without one it tests the system's. */
#include "devices.h"
#include "hdf5/direct.h"
#include "hdf5/session.h"
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

/* --- Where chunks lie ------------------------------------------------------------ */

static hid_t open_finished(void) {
  const hid_t fapl = access_list();
  gpufi_h5_driver_set_finished(watched);
  const hid_t file = h5.Fopen(path, RDONLY, fapl);
  CHECK(file >= 0 && api->Idec_ref(fapl) >= 0);
  return file;
}

/* Several threads read them then, with every release of HDF5. */
static void chunks_of_a_finished_file_are_found(void) {
  const gpufi_h5_context context = {.api = api};
  const gpufi_h5_box box = {{0}, {sizeof(values)}};
  gpufi_h5_session session;
  gpufi_h5_dataset dataset;
  gpufi_h5_grid grid;
  gpufi_h5_direct direct;
  static unsigned char bytes[CHUNK];
  hid_t file = create_file();
  h5.Dclose(write_values(file));
  finish(file);
  file = open_finished();
  gpufi_h5_context_set(&context);
  CHECK_OK(gpufi_h5_session_init(&session, NULL, &err));
  const hid_t id = api->Dopen2(file, "x", H5P_DEFAULT);
  CHECK_OK(gpufi_h5_dataset_init(&dataset, &session, id, &err));
  gpufi_h5_grid_init(&grid, 1, &box, dataset.chunk, dataset.chunk);
  gpufi_h5_direct_init(&direct, &session, &dataset, &grid);
  CHECK(direct.places != NULL && grid.total == CHUNKS);
  for (int i = 0; i < CHUNKS; i++) {
    const gpufi_h5_place *const place = &direct.places[i];
    CHECK(place->nbytes == CHUNK && place->filter_mask == 0);
    CHECK_OK(gpufi_h5_direct_read(direct.fd, place->offset, bytes, CHUNK, &err));
    CHECK(memcmp(bytes, values + i * CHUNK, CHUNK) == 0);
  }
  gpufi_h5_direct_fini(&direct);
  CHECK(holds(file, "x", values, sizeof(values)));
  gpufi_h5_context_set(NULL);
  api->Idec_ref(id);
  finish(file);
}

/* --- Where the elements lie ------------------------------------------------------ */

#define BYTE_COUNT 400

/* The ranges are the marked bytes, in order, and none touches the next one. */
static void check_extents(const gpufi_h5_extents *extents, const bool *is_marked) {
  uint64_t at = 0;
  for (size_t i = 0; i < extents->count; i++) {
    const gpufi_h5_extent *const e = &extents->ranges[i];
    CHECK((i == 0 || e->begin > at) && e->begin < e->end && e->end <= BYTE_COUNT);
    for (; at < e->end; at++) {
      CHECK(is_marked[at] == (at >= e->begin));
    }
  }
  for (; at < BYTE_COUNT; at++) {
    CHECK(!is_marked[at]);
  }
}

static void extents_are_sets_of_bytes(void) {
  uint64_t state = 1;
  gpufi_h5_extents extents = {NULL, 0, 0};
  bool is_marked[BYTE_COUNT] = {false};
  for (int i = 0; i < 20000; i++) {
    const uint64_t begin = random_below(&state, BYTE_COUNT - 40);
    const uint64_t end = begin + 1 + random_below(&state, i % 100 < 50 ? 5 : 40);
    const bool adds = random_below(&state, 2);
    memset(is_marked + begin, adds, end - begin);
    if (adds) {
      gpufi_h5_extents_add(&extents, begin, end);
    } else {
      gpufi_h5_extents_remove(&extents, begin, end);
    }
    check_extents(&extents, is_marked);
  }
  gpufi_h5_extents_remove(&extents, 0, BYTE_COUNT);
  CHECK(extents.count == 0);
  gpufi_h5_extents_fini(&extents);
}

/* So that a failure is not laid to a library that has lacked memory. */
static void the_library_is_seen_to_work(void) {
  gpufi_h5_session session = {.api = api};
  gpufi_h5_enter(&session);
  for (int i = 0; i < 3; i++) {
    CHECK(gpufi_h5_works(&session));
  }
  gpufi_h5_leave(&session);
  const hid_t file = create_file();
  CHECK(h5.Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL) == 1);
  finish(file);
  unlink(path);
}

int main(int count, char **arguments) {
  begin("test_hdf5_driver", count, arguments);
  TEST(a_file_is_read_back_before_and_after_it_is_closed);
  TEST(a_flush_brings_all_of_it_to_the_file);
  TEST(a_chunk_is_overwritten);
  TEST(chunks_pass_a_page_buffer);
  TEST(chunks_of_a_finished_file_are_found);
  TEST(extents_are_sets_of_bytes);
  TEST(the_library_is_seen_to_work);
  unlink(path);
  return test_finish();
}
