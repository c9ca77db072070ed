/* The library's own file driver: what it leaves to threads, when it waits for them, and its
 * options. The program takes the path of a libhdf5; without one it tests the system's. */
#include "base/clock.h"
#include "hdf5_driver_files.h"
#include "scarce_threads.h"

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

/* --- Waiting ------------------------------------------------------------------- */

static void *open_gate(void *arg) {
  (void)arg;
  gpufi_sleep_ns(GPUFI_NS_PER_S / 20); /* what does not wait for the threads is over by then */
  set_gate(false);
  return NULL;
}

static pthread_t opener;

static void open_gate_soon(void) {
  CHECK(pthread_create(&opener, NULL, open_gate, NULL) == 0);
}

static void close_pending(hid_t file) {
  pthread_join(opener, NULL);
  h5.Dclose(x);
  finish(file);
  CHECK(atomic_load(&done_count) == CHUNKS);
  check_file("x", sizeof(values));
}

static void chunks_are_written_while_the_caller_goes_on(void) {
  const hid_t file = create_pending();
  open_gate_soon();
  CHECK_OK(gpufi_h5_driver_drain(watched, &err));
  CHECK(atomic_load(&done_count) == CHUNKS);
  close_pending(file);
}

static void reading_waits_for_what_is_pending(void) {
  const hid_t file = create_pending();
  open_gate_soon();
  CHECK(holds(file, "x", values, sizeof(values)));
  close_pending(file);
}

/* Without waiting, the older bytes would be written last. */
static void overwriting_waits_for_what_is_pending(void) {
  static const unsigned char older[CHUNK];
  const gpufi_h5_driver_options options = {.thread_count = 2};
  const hid_t file = create_file(&options);
  const hsize_t offset = 0;
  x = create_bytes(file, "x", CHUNK, CHUNK);
  set_gate(true);
  gpufi_h5_driver_announce(watched, older, CHUNK, NULL, NULL);
  CHECK(api->Dwrite_chunk(x, H5P_DEFAULT, 0, &offset, CHUNK, older) >= 0);
  CHECK(gpufi_h5_driver_withdraw(watched));
  open_gate_soon();
  CHECK(api->Dwrite_chunk(x, H5P_DEFAULT, 0, &offset, CHUNK, values) >= 0);
  pthread_join(opener, NULL);
  h5.Dclose(x);
  finish(file);
  check_file("x", CHUNK);
}

static void a_flush_waits_for_what_is_pending(void) {
  const hid_t file = create_pending();
  open_gate_soon();
  CHECK(h5.Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
  CHECK(atomic_load(&done_count) == CHUNKS);
  check_file("x", sizeof(values));
  close_pending(file);
}

static void closing_waits_for_what_is_pending(void) {
  const hid_t file = create_pending();
  open_gate_soon();
  h5.Dclose(x);
  CHECK(h5.Fclose(file) >= 0);
  CHECK(atomic_load(&done_count) == CHUNKS);
  CHECK_OK(gpufi_h5_driver_error(watched, &err));
  gpufi_h5_driver_release(watched);
  pthread_join(opener, NULL);
  check_file("x", sizeof(values));
}

/* No more than the driver has places for: the caller writes the rest. */
static void any_number_of_chunks_can_be_pending(void) {
  const gpufi_h5_driver_options options = {.thread_count = 2};
  const hid_t file = create_file(&options);
  const int count = GPUFI_H5_PENDING_MAX + 20, small = 64;
  const hid_t dataset = create_bytes(file, "x", (hsize_t)count * small, small);
  set_gate(true);
  int deferred_count = 0;
  for (int i = 0; i < count; i++) {
    const hsize_t offset = (hsize_t)i * small;
    gpufi_h5_driver_announce(watched, values + offset, small, count_done, NULL);
    CHECK(api->Dwrite_chunk(dataset, H5P_DEFAULT, 0, &offset, small, values + offset) >= 0);
    deferred_count += gpufi_h5_driver_withdraw(watched);
  }
  CHECK(deferred_count == GPUFI_H5_PENDING_MAX && watched->deferred_count == deferred_count);
  CHECK(atomic_load(&done_count) == count - deferred_count);
  set_gate(false);
  h5.Dclose(dataset);
  finish(file);
  CHECK(atomic_load(&done_count) == count);
  check_file("x", (size_t)count * small);
}

static void without_threads_the_caller_writes(void) {
  for (int left = 0; left < 2; left++) {
    const gpufi_h5_driver_options options = {.thread_count = 3};
    const hid_t file = create_file(&options);
    const hid_t dataset = create_bytes(file, "x", sizeof(values), CHUNK);
    atomic_store(&threads_left, left);
    for (int i = 0; i < CHUNKS; i++) {
      write_chunk(dataset, i);
    }
    atomic_store(&threads_left, INT_MAX);
    h5.Dclose(dataset);
    finish(file);
    CHECK(atomic_load(&done_count) == CHUNKS);
    check_file("x", sizeof(values));
  }
}

/* --- What is not announced ------------------------------------------------------ */

/* A file in pages, with a page buffer. Whether I/O threads get its chunks. */
static void write_with_page_buffer(size_t page_nbytes, bool expected) {
  const hid_t fapl = access_list(&(gpufi_h5_driver_options){.thread_count = 2});
  const hid_t fcpl = api->Pcreate(*h5.P_FILE_CREATE);
  CHECK(h5.Pset_file_space_strategy(fcpl, H5F_FSPACE_STRATEGY_PAGE, 0, 1) >= 0);
  CHECK(h5.Pset_file_space_page_size(fcpl, page_nbytes) >= 0);
  CHECK(h5.Pset_page_buffer_size(fapl, 16 * page_nbytes, 0, 0) >= 0);
  const hid_t file = h5.Fcreate(path, TRUNC, fcpl, fapl);
  CHECK(file >= 0);
  const hid_t dataset = create_bytes(file, "x", sizeof(values), CHUNK);
  atomic_store(&done_count, 0);
  for (int i = 0; i < CHUNKS; i++) {
    CHECK(write_chunk(dataset, i) == expected);
    CHECK(expected || atomic_load(&done_count) == i + 1);
  }
  CHECK(watched->deferred_count == (expected ? CHUNKS : 0));
  CHECK(holds(file, "x", values, sizeof(values)));
  h5.Dclose(dataset);
  api->Idec_ref(fapl);
  api->Idec_ref(fcpl);
  finish(file);
  CHECK(atomic_load(&done_count) == CHUNKS);
  check_file("x", sizeof(values));
}

/* The page buffer copies a chunk that is smaller than a page. */
static void a_chunk_that_hdf5_copies_is_given_back_at_once(void) {
  write_with_page_buffer(4 * CHUNK, false);
}

static void a_chunk_past_the_page_buffer_is_deferred(void) {
  write_with_page_buffer(CHUNK / 4, true);
}

static void only_the_announced_bytes_are_deferred(void) {
  const gpufi_h5_driver_options options = {.thread_count = 2};
  const hid_t file = create_file(&options);
  const hid_t dataset = create_bytes(file, "x", sizeof(values), CHUNK);
  const hsize_t second = CHUNK;
  gpufi_h5_driver_announce(watched, values, CHUNK, count_done, NULL);
  CHECK(api->Dwrite_chunk(dataset, H5P_DEFAULT, 0, &second, CHUNK, values + CHUNK) >= 0);
  CHECK(watched->deferred_count == 0 && atomic_load(&done_count) == 0);
  CHECK(!gpufi_h5_driver_withdraw(watched) && atomic_load(&done_count) == 1);
  /* The next one takes the place of one that nobody withdrew; nobody needs to be told. */
  gpufi_h5_driver_announce(watched, values, CHUNK, count_done, NULL);
  gpufi_h5_driver_announce(watched, values, CHUNK, NULL, NULL);
  CHECK(atomic_load(&done_count) == 2);
  CHECK(!gpufi_h5_driver_withdraw(watched));
  for (int i = 0; i < CHUNKS; i++) {
    write_chunk(dataset, i);
  }
  h5.Dclose(dataset);
  finish(file);
  check_file("x", sizeof(values));
}

/* --- Options -------------------------------------------------------------------- */

static void fsync_is_called_when_asked_for_alone(void) {
  for (int way = 0; way < 4; way++) {
    const gpufi_h5_driver_options options = {.sync_on_flush = way & 1, .sync_on_close = way & 2};
    const hid_t file = create_file(&options);
    refuse_none();
    CHECK(h5.Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
    CHECK(atomic_load(&call_counts[CALL_FSYNC]) == (way & 1));
    finish(file);
    CHECK(atomic_load(&call_counts[CALL_FSYNC]) == (way & 1) + (way >> 1));
  }
}

static void reserved_space_is_taken_and_given_back(void) {
  const gpufi_h5_driver_options options = {.reserve_nbytes = 8 << 20};
  const hid_t file = create_file(&options);
  const hid_t dataset = create_bytes(file, "x", sizeof(values), CHUNK);
  struct stat status;
  write_chunk(dataset, 0);
  CHECK(stat(path, &status) == 0 && status.st_size < (1 << 20));
  const bool is_offered = status.st_blocks * 512 >= options.reserve_nbytes;
  h5.Dclose(dataset);
  finish(file);
  CHECK(stat(path, &status) == 0 && status.st_blocks * 512 < (1 << 20));
  if (!is_offered) {
    SKIP("the file system reserves no space");
  }
}

int main(int count, char **arguments) {
  begin("test_hdf5_driver", count, arguments);
  TEST(an_announced_chunk_is_written_by_a_thread_and_read_back);
  TEST(chunks_are_written_while_the_caller_goes_on);
  TEST(reading_waits_for_what_is_pending);
  TEST(overwriting_waits_for_what_is_pending);
  TEST(a_flush_waits_for_what_is_pending);
  TEST(closing_waits_for_what_is_pending);
  TEST(any_number_of_chunks_can_be_pending);
  TEST(without_threads_the_caller_writes);
  TEST(a_chunk_that_hdf5_copies_is_given_back_at_once);
  TEST(a_chunk_past_the_page_buffer_is_deferred);
  TEST(only_the_announced_bytes_are_deferred);
  TEST(fsync_is_called_when_asked_for_alone);
  TEST(reserved_space_is_taken_and_given_back);
  unlink(path);
  return test_finish();
}
