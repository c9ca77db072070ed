/* Random files through the library's own driver: whole chunks among all else that HDF5 writes, with
 * random access lists, and system calls that are interrupted and do less than they were asked to.
 * Every byte is right when it is read back, and the file has the very bytes of the one that HDF5's
 * default driver leaves after the same calls.
 *
 * The program takes the path of a libhdf5, which may be empty for the system's; a folder, in which
 * it leaves one more file, file.h5, with the bytes of each dataset beside it, for a reader of
 * another release; and the first seed. */
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>

#include "devices.h"
#include "hdf5/driver/driver.h"
#include "hdf5/driver/io.h"
#include "hdf5_library.h"
#include "refused_calls.h"

#define FILES 25
#define OPERATIONS 250
#define DATASETS_MAX 12
#define DATASET_NBYTES_MAX 300000
#define CHUNK_NBYTES_MAX 40000
#define DEFLATE 1

typedef struct dataset {
  hid_t id; /* -1: there is none */
  char name[16];
  hsize_t chunk_nbytes; /* 0 = contiguous */
  bool is_deflated; /* chunks of all sizes, which HDF5 alone writes: it mixes them up with others */
  size_t nbytes;
  unsigned char *bytes; /* what it holds, DATASET_NBYTES_MAX */
} dataset;

static uint64_t state;
static char path[512];
static hid_t file, fapl, fcpl;
static gpufi_h5_driver_file *watched;
static dataset datasets[DATASETS_MAX];
static int64_t next_name;
static bool uses_driver;
/* Between what it writes to files of pages HDF5 leaves memory that it has not set: no two of them
 * are alike. They are without HDF5's page buffer here, which reads and writes memory that is not
 * its own, with any driver. */
static bool is_paged;

static uint64_t below(uint64_t count) {
  return random_below(&state, count);
}

/* HDF5 too has the time of day from here: some of its metadata holds it. */
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  *now = (struct timeval){1000000000, 0};
  return 0;
}

time_t time(time_t *now) {
  if (now) {
    *now = 1000000000;
  }
  return 1000000000;
}

/* --- Operations ------------------------------------------------------------------- */

static void create_one(dataset *d) {
  const hid_t plist = api->Pcreate(*api->P_CLS_DATASET_CREATE_ID);
  const hsize_t most = H5S_UNLIMITED;
  CHECK(api->Pset_obj_track_times(plist, false) >= 0);
  CHECK(api->Pset_fill_time(plist, H5D_FILL_TIME_ALLOC) >= 0); /* zeros, not what was there */
  d->nbytes = 1 + below(DATASET_NBYTES_MAX);
  d->is_deflated = false;
  d->chunk_nbytes = below(4) ? 1 + below(below(2) ? CHUNK_NBYTES_MAX : 2000) : 0;
  if (d->chunk_nbytes) {
    /* Not too many, which take long. */
    d->nbytes = d->nbytes / d->chunk_nbytes > 60 ? d->chunk_nbytes * 60 : d->nbytes;
    CHECK(api->Pset_chunk(plist, 1, &d->chunk_nbytes) >= 0);
    d->is_deflated = below(3) == 0 && api->Zfilter_avail(DEFLATE) > 0;
    if (d->is_deflated) {
      CHECK(api->Pset_filter(plist, DEFLATE, 0, 1, (unsigned[]){1}) >= 0);
    }
  }
  const hsize_t nbytes = d->nbytes;
  const hid_t space = api->Screate_simple(1, &nbytes, d->chunk_nbytes ? &most : NULL);
  snprintf(d->name, sizeof(d->name), "d%lld", (long long)next_name++);
  d->id = api->Dcreate2(file, d->name, *api->T_STD_U8LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  CHECK(d->id >= 0);
  memset(d->bytes, 0, DATASET_NBYTES_MAX);
  api->Idec_ref(space);
  api->Idec_ref(plist);
}

/* A whole chunk, past HDF5's cache. */
static void write_chunk(dataset *d) {
  const size_t offset = d->nbytes ? below(d->nbytes) / d->chunk_nbytes * d->chunk_nbytes : 0;
  const size_t chunk_nbytes = d->chunk_nbytes;
  const hsize_t at = offset;
  unsigned char bytes[CHUNK_NBYTES_MAX];
  fill_random(bytes, chunk_nbytes, state);
  CHECK(api->Dwrite_chunk(d->id, H5P_DEFAULT, 0, &at, chunk_nbytes, bytes) >= 0);
  const size_t inside = d->nbytes - offset < chunk_nbytes ? d->nbytes - offset : chunk_nbytes;
  memcpy(d->bytes + offset, bytes, inside);
}

/* Some bytes, through HDF5's caches and filters. */
static void write_part(dataset *d) {
  const hsize_t start = below(d->nbytes), count = 1 + below(d->nbytes - start);
  const hid_t all = api->Dget_space(d->id), memory = api->Screate_simple(1, &count, NULL);
  unsigned char *const bytes = malloc(count);
  fill_random(bytes, count, state);
  CHECK(api->Sselect_hyperslab(all, H5S_SELECT_SET, &start, NULL, &count, NULL) >= 0);
  CHECK(api->Dwrite(d->id, *api->T_STD_U8LE, memory, all, H5P_DEFAULT, bytes) >= 0);
  memcpy(d->bytes + start, bytes, count);
  free(bytes);
  api->Idec_ref(all);
  api->Idec_ref(memory);
}

/* What comes in is zeros, which HDF5 fills in. */
static void extend(dataset *d) {
  const size_t more = below(3 * d->chunk_nbytes);
  const hsize_t nbytes = d->nbytes + more;
  if (nbytes > DATASET_NBYTES_MAX || d->nbytes % d->chunk_nbytes) {
    return; /* a chunk that was written whole has bytes behind the end */
  }
  CHECK(h5.Dset_extent(d->id, &nbytes) >= 0);
  memset(d->bytes + d->nbytes, 0, more);
  d->nbytes = nbytes;
}

static void check_one(const dataset *d) {
  unsigned char *const found = malloc(d->nbytes);
  const bool is_read =
      api->Dread(d->id, *api->T_STD_U8LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, found) >= 0;
  CHECK(is_read && memcmp(found, d->bytes, d->nbytes) == 0);
  free(found);
}

static void delete_one(dataset *d) {
  h5.Dclose(d->id);
  CHECK(api->Ldelete(file, d->name, H5P_DEFAULT) >= 0);
  d->id = -1;
}

static void close_all(void) {
  for (int i = 0; i < DATASETS_MAX; i++) {
    CHECK(datasets[i].id < 0 || h5.Dclose(datasets[i].id) >= 0);
  }
  CHECK(h5.Fclose(file) >= 0);
  if (uses_driver) {
    CHECK_OK(gpufi_h5_driver_error(watched, &err));
  }
}

/* Open the file, by the list, and all datasets. */
static void open_all(unsigned flags, hid_t list) {
  file = h5.Fopen(path, flags, list);
  CHECK(file >= 0);
  for (int i = 0; i < DATASETS_MAX; i++) {
    if (datasets[i].id >= 0) {
      datasets[i].id = api->Dopen2(file, datasets[i].name, H5P_DEFAULT);
      CHECK(datasets[i].id >= 0);
    }
  }
}

static void operate(void) {
  dataset *const d = &datasets[below(DATASETS_MAX)];
  const uint64_t what = below(40);
  if (d->id < 0) {
    create_one(d);
  } else if (what == 0) {
    close_all();
    open_all(RDWR, fapl);
  } else if (what < 3) {
    CHECK(h5.Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
  } else if (what < 5) {
    delete_one(d);
  } else if (what < 9) {
    check_one(d);
  } else if (what < 15 || !d->chunk_nbytes || (d->is_deflated && what >= 18)) {
    write_part(d);
  } else if (what < 18) {
    extend(d);
  } else {
    write_chunk(d);
  }
}

/* --- Files ------------------------------------------------------------------------ */

/* Random lists. */
static void begin_file(void) {
  const gpufi_h5_driver *driver;
  fapl = api->Pcreate(*h5.P_FILE_ACCESS);
  fcpl = api->Pcreate(*h5.P_FILE_CREATE);
  CHECK(api->Pset_obj_track_times(fcpl, false) >= 0);
  if (uses_driver) {
    CHECK_OK(gpufi_h5_driver_open(api, &driver, &err));
    CHECK_OK(gpufi_h5_driver_fapl(driver, fapl, &watched, &err));
  }
  if (below(2)) {
    CHECK(h5.Pset_libver_bounds(fapl, H5F_LIBVER_V18, H5F_LIBVER_LATEST) >= 0);
  }
  const uint64_t layout = below(4); /* these do not go together */
  is_paged = layout == 3;
  if (layout == 1) {
    CHECK(h5.Pset_alignment(fapl, 1 + below(5000), 1 + below(5000)) >= 0);
  } else if (layout == 2) {
    CHECK(h5.Pset_userblock(fcpl, 512u << below(3)) >= 0);
  } else if (is_paged) {
    const size_t page_nbytes = (size_t)4096 << below(4);
    CHECK(h5.Pset_file_space_strategy(fcpl, H5F_FSPACE_STRATEGY_PAGE, below(2), 1) >= 0);
    CHECK(h5.Pset_file_space_page_size(fcpl, page_nbytes) >= 0);
  }
  atomic_store(&calls_are_cut, below(2));
  file = h5.Fcreate(path, TRUNC, fcpl, fapl);
  CHECK(file >= 0);
}

static void check_all(hid_t list) {
  open_all(RDONLY, list);
  for (int i = 0; i < DATASETS_MAX; i++) {
    if (datasets[i].id >= 0) {
      check_one(&datasets[i]);
      h5.Dclose(datasets[i].id);
    }
  }
  CHECK(h5.Fclose(file) >= 0);
}

static void forget_datasets(void) {
  for (int i = 0; i < DATASETS_MAX; i++) {
    datasets[i].id = -1;
  }
  next_name = 0;
}

static void write_random_file(uint64_t seed, bool by_driver) {
  state = seed;
  uses_driver = by_driver;
  watched = NULL;
  forget_datasets();
  begin_file();
  for (int i = 0; i < OPERATIONS; i++) {
    operate();
  }
  close_all();
  check_all(fapl);
  api->Idec_ref(fapl);
  api->Idec_ref(fcpl);
  gpufi_h5_driver_release(watched);
  check_all(H5P_DEFAULT);
}

/* To be freed. */
static unsigned char *contents(size_t *nbytes) {
  struct stat status;
  atomic_store(&calls_are_cut, false);
  const int fd = open(path, O_RDONLY);
  CHECK(fd >= 0 && fstat(fd, &status) == 0);
  *nbytes = (size_t)status.st_size;
  unsigned char *const bytes = malloc(*nbytes + 1);
  CHECK(bytes && gpufi_h5_io_read(fd, 0, bytes, *nbytes) == 0 && close(fd) == 0);
  return bytes;
}

static void compare_drivers(uint64_t seed) {
  size_t expected_nbytes, nbytes;
  write_random_file(seed, false);
  unsigned char *const expected = contents(&expected_nbytes);
  write_random_file(seed, true);
  unsigned char *const found = contents(&nbytes);
  CHECK(is_paged || (nbytes == expected_nbytes && memcmp(found, expected, nbytes) == 0));
  free(expected);
  free(found);
}

static uint64_t first_seed, seed;

static void every_byte_is_the_default_drivers(void) {
  for (seed = first_seed; seed < first_seed + FILES; seed++) {
    compare_drivers(seed);
  }
}

/* --- For another reader ------------------------------------------------------------- */

static const char *folder;

static void a_file_is_left_for_another_reader(void) {
  snprintf(path, sizeof(path), "%s/file.h5", folder);
  seed = first_seed;
  write_random_file(first_seed, true);
  for (int i = 0; i < DATASETS_MAX; i++) {
    const dataset *const d = &datasets[i];
    char bytes_path[600];
    snprintf(bytes_path, sizeof(bytes_path), "%s/%s.bin", folder, d->name);
    FILE *const out = d->id >= 0 ? fopen(bytes_path, "wb") : NULL;
    if (out) {
      CHECK(fwrite(d->bytes, 1, d->nbytes, out) == d->nbytes && fclose(out) == 0);
    }
  }
}

int main(int count, char **arguments) {
  load_library(count > 1 && arguments[1][0] ? arguments[1] : NULL);
  snprintf(path, sizeof(path), "test_hdf5_driver_random_%ld.h5", (long)getpid());
  folder = count > 2 ? arguments[2] : NULL;
  first_seed = count > 3 ? strtoull(arguments[3], NULL, 10) : 1;
  for (int i = 0; i < DATASETS_MAX; i++) {
    datasets[i].bytes = malloc(DATASET_NBYTES_MAX);
  }
  TEST(every_byte_is_the_default_drivers);
  unlink(path);
  if (folder && !test_failed_count) {
    TEST(a_file_is_left_for_another_reader);
  }
  if (test_failed_count) {
    printf("# seed %llu\n", (unsigned long long)seed);
  }
  for (int i = 0; i < DATASETS_MAX; i++) {
    free(datasets[i].bytes);
  }
  return test_finish();
}
