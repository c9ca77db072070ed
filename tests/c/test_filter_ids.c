/* The filter under a second id, as it will be once one is registered and files of the first are
 * there: this program has a copy of hdf5_filter/filter.c whose list ends with SECOND_ID. No plugin
 * is in its HDF5_PLUGIN_PATH. */
#include "../../hdf5_filter/filter.h"
#include "hdf5_files.h"

#define SECOND_ID 511 /* HDF5 leaves 256 to 511 to tests */

static const int64_t shape[] = {70, 129};
static const hsize_t stored_shape[] = {70, 129}, chunk[] = {32, 64};

static hid_t create_with(hid_t file, const char *name, H5Z_filter_t id) {
  const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(plist, 2, chunk);
  H5Pset_filter(plist, id, H5Z_FLAG_MANDATORY, 0, NULL);
  return create_dataset(file, name, H5T_IEEE_F32LE, 2, stored_shape, plist);
}

/* The id and the cd_values of the dataset's only filter. */
static H5Z_filter_t filter_of(hid_t file, const char *name, size_t *count, unsigned *cd_values) {
  const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
  const hid_t plist = H5Dget_create_plist(dataset);
  unsigned flags;
  CHECK(H5Pget_nfilters(plist) == 1);
  const H5Z_filter_t id = H5Pget_filter2(plist, 0, &flags, count, cd_values, 0, NULL, NULL);
  H5Pclose(plist);
  H5Dclose(dataset);
  return id;
}

static void one_registration_is_of_all_ids(void) {
  H5E_BEGIN_TRY {
    CHECK(H5Zfilter_avail(SECOND_ID) <= 0);
  }
  H5E_END_TRY
  CHECK_OK(gpuf_h5_filter_register(&err));
  CHECK(H5Zfilter_avail(GPUF_H5_FILTER_ID) > 0 && H5Zfilter_avail(SECOND_ID) > 0);
}

static void each_class_has_its_own_id(void) {
  const H5Z_class2_t *first = gpufi_filter_class(0), *second = gpufi_filter_class(1);
  CHECK(first->id == GPUF_H5_FILTER_ID && second->id == SECOND_ID);
  CHECK(gpufi_filter_class(2) == NULL);
  CHECK(gpufi_filter_has_id(GPUF_H5_FILTER_ID) && gpufi_filter_has_id(SECOND_ID));
  CHECK(!gpufi_filter_has_id(SECOND_ID - 1) && !gpufi_filter_has_id(0));
}

static void new_datasets_have_the_first_id(void) {
  const hid_t file = create_file();
  unsigned cd_values[GPUFI_CD_COUNT_MAX];
  size_t count = GPUFI_CD_COUNT_MAX;
  gpuf_tensor expected = create_cpu(GPUF_DTYPE_FLOAT32, 2, shape, 1);
  check_written(file, "x", &expected, NULL);
  CHECK(filter_of(file, "x", &count, cd_values) == GPUF_H5_FILTER_ID);
  destroy(&expected);
  close_file(file);
}

static void hdf5_writes_and_reads_through_either_id(void) {
  const H5Z_filter_t ids[] = {GPUF_H5_FILTER_ID, SECOND_ID};
  const hid_t file = create_file();
  gpuf_tensor expected = create_cpu(GPUF_DTYPE_FLOAT32, 2, shape, 2);
  CHECK_OK(gpuf_h5_filter_register(&err));
  for (int i = 0; i < 2; i++) {
    const char *name = i == 0 ? "first" : "second";
    unsigned cd_values[GPUFI_CD_COUNT_MAX] = {0};
    size_t count = GPUFI_CD_COUNT_MAX;
    const hid_t dataset = create_with(file, name, ids[i]);
    CHECK(H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, expected.data) >= 0);
    H5Dclose(dataset);
    CHECK(filter_of(file, name, &count, cd_values) == ids[i]);
    CHECK(count == 6 && cd_values[GPUFI_CD_AT_RAW_NBYTES] == 32 * 64 * 4);
    CHECK(cd_values[GPUFI_CD_AT_DIMS] == 32 && cd_values[GPUFI_CD_AT_DIMS + 1] == 64);
    check_stored(file, name, &expected);
    check_stored_by_hdf5(file, name, &expected);
  }
  destroy(&expected);
  close_file(file);
}

/* Where the route were HDF5's, it would say that it does not find the filter. */
static void the_second_id_is_coded_here_and_not_by_hdf5(void) {
  const hid_t file = create_file();
  gpuf_tensor expected = create_cpu(GPUF_DTYPE_FLOAT32, 2, shape, 3);
  gpuf_tensor src = copy_to_device(&expected);
  CHECK_OK(gpuf_h5_filter_register(&err));
  hid_t dataset = create_with(file, "x", SECOND_ID);
  CHECK_OK(gpuf_h5_write_dataset(dataset, &src, NULL, &err));
  H5Dclose(dataset);
  check_stored_by_hdf5(file, "x", &expected);
  CHECK(H5Zunregister(SECOND_ID) >= 0);
  check_stored(file, "x", &expected);
  CHECK(H5Zregister(gpufi_filter_class(1)) >= 0);
  destroy(&src);
  destroy(&expected);
  close_file(file);
}

static void damaged_cd_values_are_found_under_the_second_id(void) {
  const hid_t file = create_file();
  gpuf_tensor on_device = {0};
  gpuf_tensor expected = create_cpu(GPUF_DTYPE_FLOAT32, 2, shape, 4);
  const unsigned wrong[] = {0, GPUF_DTYPE_FLOAT32, 4, 2, 1, 1};
  CHECK_OK(gpuf_h5_filter_register(&err));
  /* Without the filter, HDF5 stores what it is given. */
  CHECK(H5Zunregister(SECOND_ID) >= 0);
  const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(plist, 2, chunk);
  H5Pset_filter(plist, SECOND_ID, H5Z_FLAG_OPTIONAL, 6, wrong);
  H5Dclose(create_dataset(file, "x", H5T_IEEE_F32LE, 2, stored_shape, plist));
  on_device = create_on_device(&expected);
  CHECK_FAILS(gpuf_h5_read(file, "x", &on_device, NULL, &err), GPUF_ERR_CORRUPT,
              "cd_values of its gpufetch filter say 4");
  CHECK(H5Zregister(gpufi_filter_class(1)) >= 0);
  destroy(&on_device);
  destroy(&expected);
  close_file(file);
}

int main(void) {
  test_device = host_device;
  TEST(one_registration_is_of_all_ids);
  TEST(each_class_has_its_own_id);
  TEST(new_datasets_have_the_first_id);
  TEST(hdf5_writes_and_reads_through_either_id);
  TEST(damaged_cd_values_are_found_under_the_second_id);
  TEST_ON_DEVICES(the_second_id_is_coded_here_and_not_by_hdf5);
  return test_finish();
}
