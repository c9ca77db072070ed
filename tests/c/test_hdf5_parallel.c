/* Files that several MPI processes have opened together, by a stand-in for HDF5's MPI drivers: it
 * says of itself what they say, and keeps the file in memory. tests/hdf5/parallel.c has the real
 * one. */
#include "hdf5_files.h"

#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h>
#endif

/* --- The driver -------------------------------------------------------------- */

typedef struct memory_file {
  H5FD_t base; /* HDF5's */
  unsigned char *bytes;
  haddr_t eoa, eof;
} memory_file;

#define FILE_NBYTES_MAX ((size_t)1 << 20)

static H5FD_t *memory_open(const char *name, unsigned flags, hid_t access, haddr_t maxaddr) {
  memory_file *file = calloc(1, sizeof(*file));
  file->bytes = calloc(1, FILE_NBYTES_MAX);
  return &file->base;
}
static herr_t memory_close(H5FD_t *base) {
  memory_file *file = (memory_file *)base;
  free(file->bytes);
  free(file);
  return 0;
}
/* HDF5 asks about the driver without a file, and about a file to choose how to use it. */
static herr_t memory_query(const H5FD_t *file, unsigned long *flags) {
  *flags = file ? 0 : H5FD_FEAT_HAS_MPI;
  return 0;
}
static haddr_t memory_get_eoa(const H5FD_t *file, H5FD_mem_t type) {
  return ((const memory_file *)file)->eoa;
}
static herr_t memory_set_eoa(H5FD_t *file, H5FD_mem_t type, haddr_t eoa) {
  ((memory_file *)file)->eoa = eoa;
  return eoa <= FILE_NBYTES_MAX ? 0 : -1;
}
static haddr_t memory_get_eof(const H5FD_t *file, H5FD_mem_t type) {
  return ((const memory_file *)file)->eof;
}
static herr_t memory_read(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t at, size_t nbytes,
                          void *buffer) {
  memcpy(buffer, ((memory_file *)base)->bytes + at, nbytes);
  return 0;
}
static herr_t memory_write(H5FD_t *base, H5FD_mem_t type, hid_t transfer, haddr_t at, size_t nbytes,
                           const void *buffer) {
  memory_file *file = (memory_file *)base;
  memcpy(file->bytes + at, buffer, nbytes);
  file->eof = file->eof > at + nbytes ? file->eof : at + nbytes;
  return 0;
}

static hid_t register_driver(void) {
  static const H5FD_class_t driver = {
#ifdef H5FD_CLASS_VERSION
      .version = H5FD_CLASS_VERSION,
      .value = (H5FD_class_value_t)600,
#endif
      .name = "mpio stand-in",
      .maxaddr = FILE_NBYTES_MAX,
      .fc_degree = H5F_CLOSE_WEAK,
      .open = memory_open,
      .close = memory_close,
      .query = memory_query,
      .get_eoa = memory_get_eoa,
      .set_eoa = memory_set_eoa,
      .get_eof = memory_get_eof,
      .read = memory_read,
      .write = memory_write,
      .fl_map = H5FD_FLMAP_DEFAULT,
  };
  return H5FDregister(&driver);
}

/* --- Tests ------------------------------------------------------------------- */

static const hsize_t dims[] = {64, 40};

static hid_t create_parallel_file(void) {
  const hid_t driver = register_driver(), access = H5Pcreate(H5P_FILE_ACCESS);
  CHECK(driver >= 0 && H5Pset_driver(access, driver, NULL) >= 0);
  const hid_t file = H5Fcreate("parallel", H5F_ACC_TRUNC, H5P_DEFAULT, access);
  CHECK(file >= 0 && H5Pclose(access) >= 0 && H5FDunregister(driver) >= 0);
  return file;
}

static hid_t create_plist(bool is_chunked, H5Z_filter_t filter) {
  const hsize_t chunk[] = {16, 40};
  const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
  CHECK(!is_chunked || H5Pset_chunk(plist, 2, chunk) >= 0);
  CHECK(filter == 0 || H5Pset_filter(plist, filter, H5Z_FLAG_MANDATORY, 0, NULL) >= 0);
  return plist;
}

static void filtered_datasets_are_refused(void) {
  static const H5Z_filter_t filters[] = {GPUF_H5_FILTER_ID, H5Z_FILTER_SHUFFLE,
                                         H5Z_FILTER_FLETCHER32};
  const hid_t file = create_parallel_file();
  gpuf_tensor src = create_cpu(GPUF_DTYPE_FLOAT32, 2, (int64_t[]){64, 40}, 1);
  gpuf_tensor rows = create_cpu(GPUF_DTYPE_FLOAT32, 2, (int64_t[]){5, 40}, 2);
  CHECK_OK(gpuf_h5_filter_register(&err));
  for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
    const char name[] = {'x', (char)('0' + i), '\0'};
    const hid_t dataset =
        create_dataset(file, name, H5T_IEEE_F32LE, 2, dims, create_plist(true, filters[i]));
    CHECK_FAILS(gpuf_h5_write_dataset(dataset, &src, NULL, &err), GPUF_ERR_UNSUPPORTED,
                "gpuf_h5_write_region");
    CHECK(strstr(err.message, name));
    CHECK_FAILS(gpuf_h5_write_region(dataset, (int64_t[]){3, 0}, &rows, NULL, &err),
                GPUF_ERR_UNSUPPORTED, "MPI");
    CHECK(H5Dget_storage_size(dataset) == 0);
    H5Dclose(dataset);
  }
  destroy(&rows);
  destroy(&src);
  CHECK(H5Fclose(file) >= 0);
}

static void new_datasets_are_refused_and_leave_nothing(void) {
  const hid_t file = create_parallel_file();
  gpuf_tensor src = create_cpu(GPUF_DTYPE_FLOAT32, 2, (int64_t[]){64, 40}, 1);
  for (int codec = 0; codec < 3; codec++) {
    const gpuf_h5_options options = {.struct_nbytes = sizeof(options),
                                     .codec = (gpuf_h5_codec)codec};
    CHECK_FAILS(gpuf_h5_write(file, "g/x", &src, &options, &err), GPUF_ERR_UNSUPPORTED,
                "by H5Dcreate");
  }
  CHECK(H5Lexists(file, "g", H5P_DEFAULT) == 0);
  destroy(&src);
  CHECK(H5Fclose(file) >= 0);
}

/* Whole chunks too go through H5Dwrite, which knows how; H5Dwrite_chunk does not. */
static void unfiltered_regions_are_written(void) {
  const hid_t file = create_parallel_file();
  gpuf_tensor whole = create_cpu(GPUF_DTYPE_FLOAT32, 2, (int64_t[]){64, 40}, 3);
  for (int is_chunked = 0; is_chunked < 2; is_chunked++) {
    const hid_t dataset = create_dataset(file, is_chunked ? "chunked" : "contiguous",
                                         H5T_IEEE_F32LE, 2, dims, create_plist(is_chunked, 0));
    for (int64_t first = 0; first < 64; first += 32) {
      gpuf_tensor part = whole;
      CHECK_OK(gpuf_tensor_slice(&part, 0, first, 1, 32, &err));
      gpuf_tensor on_device = copy_to_device(&part);
      const int64_t start[] = {first, 0};
      CHECK_OK(gpuf_h5_write_region(dataset, start, first ? &on_device : &part, NULL, &err));
      destroy(&on_device);
    }
    CHECK_OK(gpuf_h5_set_attribute_int64(dataset, ".", "step", 7, NULL, &err));
    H5Dclose(dataset);
    check_stored(file, is_chunked ? "chunked" : "contiguous", &whole);
  }
  destroy(&whole);
  CHECK(H5Fclose(file) >= 0);
}

int main(void) {
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  test_device = host_device;
  TEST(filtered_datasets_are_refused);
  TEST(new_datasets_are_refused_and_leave_nothing);
  TEST(unfiltered_regions_are_written);
  return test_finish();
}
