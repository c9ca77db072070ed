/* The plugin as HDF5 meets it: loaded with dlopen, called through its class, and used by the
 * system's libhdf5. TEST_PLUGIN is the plugin's file; HDF5_PLUGIN_PATH names its folder. */
#include "../../hdf5_filter/filter.h"
#include "codec/codec.h"
#include "environments.h"
#include "guarded.h"
#include "test.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <math.h>
#include <sys/resource.h>

#include <hdf5.h>

static const H5Z_class2_t *filter;
static char file_name[] = "/tmp/gpufetch-test-filter-XXXXXX";

static void *load_plugin(void) {
  void *plugin = dlopen(TEST_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  if (plugin != NULL) {
    const void *(*get_info)(void);
    void *symbol = dlsym(plugin, "H5PLget_plugin_info");
    memcpy(&get_info, &symbol, sizeof(get_info));
    filter = get_info();
  }
  return plugin;
}

/* --- without libhdf5 --- */

static void the_plugin_shows_hdf5_what_it_is(void) {
  void *plugin = load_plugin();
  CHECK(plugin != NULL);
  H5PL_type_t (*get_type)(void);
  void *symbol = dlsym(plugin, "H5PLget_plugin_type");
  memcpy(&get_type, &symbol, sizeof(get_type));
  CHECK(get_type() == H5PL_TYPE_FILTER);
  CHECK(filter->version == H5Z_CLASS_T_VERS && filter->id == GPUF_H5_FILTER_ID);
  CHECK(filter->encoder_present && filter->decoder_present);
  CHECK(strcmp(filter->name, "gpufetch; pip install hdf5-gpufetch") == 0);
}

static void the_plugin_needs_no_hdf5_and_exports_nothing_else(void) {
  void *plugin = load_plugin();
  struct link_map *map = NULL;
  const char *strings = NULL;
  CHECK(plugin != NULL && dlinfo(plugin, RTLD_DI_LINKMAP, &map) == 0);
  for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
    if (entry->d_tag == DT_STRTAB) {
      strings = (const char *)entry->d_un.d_ptr;
    }
  }
  CHECK(strings != NULL);
  for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
    if (entry->d_tag == DT_NEEDED) {
      CHECK(strstr(strings + entry->d_un.d_val, "hdf5") == NULL);
      CHECK(strstr(strings + entry->d_un.d_val, "cuda") == NULL);
    }
  }
  CHECK(dlsym(plugin, "gpufi_codec_decode") == NULL);
  CHECK(dlsym(plugin, "gpufi_filter_class") == NULL);
  CHECK(dlsym(plugin, "gpuf_status_name") == NULL);
}

static const gpufi_chunk_shape small_shape = {GPUF_DTYPE_INT32, 2, {30, 41}};
static const unsigned int small_cd_values[] = {0, GPUF_DTYPE_INT32, 4920, 2, 30, 41};

static void fill_small(int32_t *values) {
  for (int i = 0; i < 30 * 41; i++) {
    values[i] = 7 * (i / 41) + i % 41 * i % 41;
  }
}

/* Encode the small chunk through the filter; the buffer is longer than the chunk. */
static void *encode_small(size_t *nbytes, size_t *capacity) {
  void *buffer = malloc(10000);
  *capacity = 10000;
  memset(buffer, 0xee, 10000);
  fill_small(buffer);
  *nbytes = filter->filter(0, 6, small_cd_values, 4920, capacity, &buffer);
  return buffer;
}

static void explicit_cd_values_are_enough(void) {
  CHECK(load_plugin() != NULL);
  size_t nbytes, capacity;
  int32_t expected[30 * 41];
  void *buffer = encode_small(&nbytes, &capacity);
  CHECK(nbytes > 96 && nbytes < 4920 && capacity >= nbytes);
  nbytes = filter->filter(H5Z_FLAG_REVERSE, 6, small_cd_values, nbytes, &capacity, &buffer);
  fill_small(expected);
  CHECK(nbytes == 4920 && capacity == 4920);
  CHECK(memcmp(buffer, expected, 4920) == 0);
  free(buffer);
}

/* This program is not a libhdf5, so what calls from here finds none of its functions. */
static void a_caller_without_hdf5_symbols_keeps_its_cd_values(void) {
  CHECK(load_plugin() != NULL);
  CHECK(filter->can_apply(H5P_DEFAULT, H5T_NATIVE_INT, H5S_ALL) == 1);
  const hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
  const unsigned int given[] = {0, GPUF_DTYPE_INT32, 4920, 2, 30, 41};
  const hsize_t chunk[] = {5, 5};
  unsigned int kept[8], flags;
  size_t count = 8;
  CHECK(H5Pset_chunk(dcpl, 2, chunk) >= 0);
  CHECK(H5Pset_filter(dcpl, GPUF_H5_FILTER_ID, H5Z_FLAG_MANDATORY, 6, given) >= 0);
  CHECK(filter->set_local(dcpl, H5T_NATIVE_INT, H5S_ALL) == 0);
  CHECK(H5Pget_filter_by_id2(dcpl, GPUF_H5_FILTER_ID, &flags, &count, kept, 0, NULL, NULL) >= 0);
  CHECK(count == 6 && memcmp(given, kept, sizeof(given)) == 0);
  H5Pclose(dcpl);
}

static void false_cd_values_are_refused_without_reading_past_them(void) {
  static const unsigned int good[] = {0, GPUF_DTYPE_INT32, 4920, 2, 30, 41};
  CHECK(load_plugin() != NULL);
  void *buffer = malloc(4920), *const before = buffer;
  size_t capacity = 4920;
  fill_small(buffer);
  for (size_t count = 0; count < 6; count++) {
    guarded cd = guarded_alloc(count * sizeof(unsigned int), 1);
    memcpy(cd.data, good, count * sizeof(unsigned int));
    CHECK(filter->filter(0, count, (unsigned int *)(void *)cd.data, 4920, &capacity, &buffer) == 0);
    guarded_free(&cd);
  }
  for (size_t i = 0; i < 6; i++) {
    for (unsigned int wrong = 0; wrong < 64; wrong++) {
      guarded cd = guarded_alloc(sizeof(good), 1);
      unsigned int *values = (unsigned int *)(void *)cd.data;
      memcpy(values, good, sizeof(good));
      values[i] = wrong < 32 ? 1u << wrong : ~(1u << (wrong - 32));
      const bool other_type = i == 1; /* another type of 4 bytes, either byte order */
      if (!(other_type && (values[1] & 0xff) == GPUF_DTYPE_UINT32) &&
          !(other_type && (values[1] & 0xff) == GPUF_DTYPE_FLOAT32)) {
        if (values[i] != good[i]) {
          CHECK(filter->filter(0, 6, values, 4920, &capacity, &buffer) == 0);
        }
      }
      guarded_free(&cd);
    }
  }
  CHECK(buffer == before && capacity == 4920);
  free(buffer);
}

static void a_chunk_of_another_size_is_refused_and_the_buffer_kept(void) {
  CHECK(load_plugin() != NULL);
  const unsigned int other[] = {0, GPUF_DTYPE_INT32, 4924, 1, 1231};
  size_t nbytes, capacity;
  void *buffer = encode_small(&nbytes, &capacity), *const before = buffer;
  const size_t capacity_before = capacity;
  CHECK(filter->filter(H5Z_FLAG_REVERSE, 5, other, nbytes, &capacity, &buffer) == 0);
  CHECK(filter->filter(H5Z_FLAG_REVERSE, 6, small_cd_values, nbytes - 1, &capacity, &buffer) == 0);
  CHECK(filter->filter(H5Z_FLAG_REVERSE, 6, small_cd_values, nbytes + 16, &capacity, &buffer) == 0);
  CHECK(filter->filter(0, 5, other, nbytes, &capacity, &buffer) == 0);
  CHECK(buffer == before && capacity == capacity_before);
  free(buffer);
}

/* Without the size of the dataset's chunks, or with one in a layout that is not known, a chunk may
 * be too short for what HDF5 reads from it. */
static void a_chunk_whose_size_nothing_vouches_for_is_refused(void) {
  CHECK(load_plugin() != NULL);
  const unsigned int unknown[] = {1, GPUF_DTYPE_INT32, 4920, 2, 30, 41};
  size_t nbytes, capacity;
  void *buffer = encode_small(&nbytes, &capacity), *const before = buffer;
  CHECK(filter->filter(H5Z_FLAG_REVERSE, 0, NULL, nbytes, &capacity, &buffer) == 0);
  CHECK(filter->filter(H5Z_FLAG_REVERSE, 2, small_cd_values, nbytes, &capacity, &buffer) == 0);
  CHECK(filter->filter(H5Z_FLAG_REVERSE, 6, unknown, nbytes, &capacity, &buffer) == 0);
  CHECK(buffer == before);
  CHECK(filter->filter(H5Z_FLAG_REVERSE, 3, small_cd_values, nbytes, &capacity, &buffer) == 4920);
  free(buffer);
}

/* --- through libhdf5 --- */

static herr_t append_description(unsigned n, const H5E_error2_t *entry, void *text) {
  if (entry->desc != NULL) {
    strncat(text, entry->desc, 4000 - strlen(text));
  }
  return 0;
}

/* The descriptions on HDF5's error stack; the next call of HDF5 clears the stack. */
static char error_text[4096];

static bool error_stack_has(const char *wanted) {
  error_text[0] = 0;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, append_description, error_text);
  return strstr(error_text, wanted) != NULL;
}

static hid_t create(hid_t file, const char *name, hid_t type, int ndim, const hsize_t *dims,
                    const hsize_t *chunk) {
  const hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(ndim, dims, NULL);
  hid_t dataset = -1;
  if (H5Pset_chunk(dcpl, ndim, chunk) >= 0 &&
      H5Pset_filter(dcpl, GPUF_H5_FILTER_ID, H5Z_FLAG_MANDATORY, 0, NULL) >= 0) {
    dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    error_stack_has(""); /* keeps the text for the caller */
  }
  H5Sclose(space);
  H5Pclose(dcpl);
  return dataset;
}

static hid_t open_file(void) {
  CHECK(H5Zfilter_avail(GPUF_H5_FILTER_ID) > 0);
  const hid_t file = H5Fcreate(file_name, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  CHECK(file >= 0);
  return file;
}

/* Write and read 50 x 37 elements in chunks of 20 x 16, and check dtype word and rank. */
static void check_type(hid_t type, unsigned int dtype_word, unsigned int ndim, unsigned int last) {
  const hsize_t dims[] = {50, 37}, chunk[] = {20, 16};
  const size_t nbytes = H5Tget_size(type) * 50 * 37;
  uint8_t *data = malloc(nbytes), *back = calloc(1, nbytes);
  unsigned int cd_values[GPUFI_CD_COUNT_MAX] = {0}, flags;
  size_t count = GPUFI_CD_COUNT_MAX;
  for (size_t i = 0; i < nbytes; i++) {
    data[i] = (uint8_t)(i * i / 50 % 251);
  }
  hid_t file = open_file();
  hid_t dataset = create(file, "x", type, 2, dims, chunk);
  CHECK(dataset >= 0);
  CHECK(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
  const hid_t dcpl = H5Dget_create_plist(dataset);
  CHECK(H5Pget_filter_by_id2(dcpl, GPUF_H5_FILTER_ID, &flags, &count, cd_values, 0, NULL, NULL) >=
        0);
  CHECK(flags == H5Z_FLAG_MANDATORY);
  CHECK(cd_values[0] == 0 && cd_values[1] == dtype_word && cd_values[3] == ndim);
  CHECK(cd_values[2] == H5Tget_size(type) * 20 * 16);
  CHECK(cd_values[4] == 20 && cd_values[5] == 16 && count == 4 + ndim);
  CHECK(ndim < 3 || cd_values[6] == last);
  H5Pclose(dcpl);
  H5Dclose(dataset);
  H5Fclose(file);
  file = H5Fopen(file_name, H5F_ACC_RDONLY, H5P_DEFAULT);
  dataset = H5Dopen2(file, "x", H5P_DEFAULT);
  CHECK(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, back) >= 0);
  CHECK(memcmp(data, back, nbytes) == 0);
  H5Dclose(dataset);
  H5Fclose(file);
  free(data);
  free(back);
}

static void numbers_keep_their_type_and_bits(void) {
  check_type(H5T_STD_I8LE, GPUF_DTYPE_INT8, 2, 0);
  check_type(H5T_STD_I16LE, GPUF_DTYPE_INT16, 2, 0);
  check_type(H5T_STD_I32LE, GPUF_DTYPE_INT32, 2, 0);
  check_type(H5T_STD_I64LE, GPUF_DTYPE_INT64, 2, 0);
  check_type(H5T_STD_U8LE, GPUF_DTYPE_UINT8, 2, 0);
  check_type(H5T_STD_U16LE, GPUF_DTYPE_UINT16, 2, 0);
  check_type(H5T_STD_U32LE, GPUF_DTYPE_UINT32, 2, 0);
  check_type(H5T_STD_U64LE, GPUF_DTYPE_UINT64, 2, 0);
  check_type(H5T_IEEE_F32LE, GPUF_DTYPE_FLOAT32, 2, 0);
  check_type(H5T_IEEE_F64LE, GPUF_DTYPE_FLOAT64, 2, 0);
  check_type(H5T_STD_B32LE, GPUF_DTYPE_UINT32, 2, 0);
  check_type(H5T_STD_I32BE, GPUF_DTYPE_INT32 | 256, 2, 0);
  check_type(H5T_IEEE_F64BE, GPUF_DTYPE_FLOAT64 | 256, 2, 0);
}

static void short_floats_keep_their_type_and_bits(void) {
  const hid_t half = H5Tcopy(H5T_IEEE_F32LE), brain = H5Tcopy(H5T_IEEE_F32LE);
  CHECK(H5Tset_fields(half, 15, 10, 5, 0, 10) >= 0 && H5Tset_size(half, 2) >= 0);
  CHECK(H5Tset_fields(brain, 15, 7, 8, 0, 7) >= 0 && H5Tset_size(brain, 2) >= 0);
  check_type(half, GPUF_DTYPE_FLOAT16, 2, 0);
  check_type(brain, GPUF_DTYPE_BFLOAT16, 2, 0);
  H5Tclose(half);
  H5Tclose(brain);
}

static hid_t complex_type(hid_t part, size_t gap) {
  const size_t nbytes = H5Tget_size(part);
  const hid_t type = H5Tcreate(H5T_COMPOUND, 2 * nbytes + gap);
  CHECK(H5Tinsert(type, "r", 0, part) >= 0 && H5Tinsert(type, "i", nbytes + gap, part) >= 0);
  return type;
}

static void complex_bool_and_array_types_keep_their_bits(void) {
  const signed char no = 0, yes = 1;
  const hsize_t three = 3;
  const hid_t c8 = complex_type(H5T_IEEE_F32LE, 0), c16 = complex_type(H5T_IEEE_F64BE, 0);
  const hid_t boolean = H5Tenum_create(H5T_STD_I8LE);
  const hid_t vector = H5Tarray_create2(H5T_IEEE_F32BE, 1, &three);
  CHECK(H5Tenum_insert(boolean, "FALSE", &no) >= 0 && H5Tenum_insert(boolean, "TRUE", &yes) >= 0);
  check_type(c8, GPUF_DTYPE_COMPLEX64, 2, 0);
  check_type(c16, GPUF_DTYPE_COMPLEX128 | 256, 2, 0);
  check_type(boolean, GPUF_DTYPE_INT8, 2, 0);
  check_type(vector, GPUF_DTYPE_FLOAT32 | 256, 3, 3);
  H5Tclose(c8);
  H5Tclose(c16);
  H5Tclose(boolean);
  H5Tclose(vector);
}

static void other_types_go_as_bytes(void) {
  const hid_t opaque = H5Tcreate(H5T_OPAQUE, 5), text = H5Tcopy(H5T_C_S1);
  const hid_t mixed = H5Tcreate(H5T_COMPOUND, 12);
  CHECK(H5Tset_size(text, 7) >= 0 && H5Tset_strpad(text, H5T_STR_NULLPAD) >= 0);
  CHECK(H5Tinsert(mixed, "a", 0, H5T_STD_I32LE) >= 0);
  CHECK(H5Tinsert(mixed, "b", 4, H5T_IEEE_F64LE) >= 0);
  check_type(opaque, GPUF_DTYPE_UINT8, 3, 5);
  check_type(text, GPUF_DTYPE_UINT8, 3, 7);
  check_type(mixed, GPUF_DTYPE_UINT8, 3, 12);
  H5Tclose(opaque);
  H5Tclose(text);
  H5Tclose(mixed);
}

static void more_than_eight_axes_are_folded(void) {
  const hsize_t dims[10] = {2, 3, 2, 2, 1, 2, 2, 3, 2, 5},
                chunk[10] = {2, 3, 2, 2, 1, 2, 2, 3, 2, 5};
  int data[2880], back[2880];
  for (int i = 0; i < 2880; i++) {
    data[i] = i * i;
  }
  const hid_t file = open_file(), dataset = create(file, "x", H5T_NATIVE_INT, 10, dims, chunk);
  CHECK(dataset >= 0);
  CHECK(H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
  CHECK(H5Fflush(file, H5F_SCOPE_LOCAL) >= 0);
  CHECK(H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, back) >= 0);
  CHECK(memcmp(data, back, sizeof(data)) == 0);
  H5Dclose(dataset);
  H5Fclose(file);
}

static void types_whose_values_are_elsewhere_are_refused(void) {
  const hsize_t dims[] = {20}, chunk[] = {10};
  const hid_t text = H5Tcopy(H5T_C_S1), holder = H5Tcreate(H5T_COMPOUND, 16);
  CHECK(H5Tset_size(text, H5T_VARIABLE) >= 0 && H5Tinsert(holder, "s", 8, text) >= 0);
  const hid_t file = open_file();
  CHECK(create(file, "a", text, 1, dims, chunk) < 0);
  CHECK(create(file, "b", holder, 1, dims, chunk) < 0);
  CHECK(create(file, "c", H5T_STD_REF_OBJ, 1, dims, chunk) < 0);
  CHECK(strstr(error_text, "create this dataset without it"));
  H5Tclose(text);
  H5Tclose(holder);
  H5Fclose(file);
}

/* A dataset whose chunks pass the filter `first` and then the filter `second`. */
static hid_t create_with_two(hid_t file, const char *name, H5Z_filter_t first,
                             H5Z_filter_t second) {
  const hsize_t dims[] = {20}, chunk[] = {10};
  const hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, dims, NULL);
  CHECK(H5Pset_chunk(dcpl, 1, chunk) >= 0);
  CHECK(H5Pset_filter(dcpl, first, H5Z_FLAG_OPTIONAL, 0, NULL) >= 0);
  CHECK(H5Pset_filter(dcpl, second, H5Z_FLAG_MANDATORY, 0, NULL) >= 0);
  const hid_t dataset =
      H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
  error_stack_has(""); /* keeps the text for the caller */
  H5Sclose(space);
  H5Pclose(dcpl);
  return dataset;
}

/* The same with gpufetch as the second one. */
static hid_t create_behind(hid_t file, const char *name, H5Z_filter_t before) {
  return create_with_two(file, name, before, GPUF_H5_FILTER_ID);
}

static size_t pass_on(unsigned flags, size_t cd_count, const unsigned *cd_values, size_t nbytes,
                      size_t *buf_size, void **buf) {
  return nbytes;
}

static const H5Z_class2_t unknown_filter = {H5Z_CLASS_T_VERS, 400,  1,    1,
                                            "unknown",        NULL, NULL, pass_on};

static void a_filter_before_this_one_that_changes_the_size_is_refused(void) {
  const hid_t file = open_file();
  CHECK(create_behind(file, "sums", H5Z_FILTER_FLETCHER32) < 0);
  CHECK(strstr(error_text, "filter 3 stands before gpufetch"));
  CHECK(strstr(error_text, "must be the first filter"));
  CHECK(H5Zregister(&unknown_filter) >= 0);
  CHECK(create_behind(file, "unknown", unknown_filter.id) < 0);
  CHECK(strstr(error_text, "filter 400 stands before gpufetch"));
  CHECK(H5Zunregister(unknown_filter.id) >= 0);
  CHECK(create_behind(file, "twice", GPUF_H5_FILTER_ID) < 0);
  CHECK(strstr(error_text, "leave one of them out"));
  const hid_t shuffled = create_behind(file, "shuffled", H5Z_FILTER_SHUFFLE);
  int data[20], back[20];
  for (int i = 0; i < 20; i++) {
    data[i] = i * i;
  }
  CHECK(H5Dwrite(shuffled, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
  CHECK(H5Fflush(file, H5F_SCOPE_LOCAL) >= 0);
  H5Dclose(shuffled);
  const hid_t again = H5Dopen2(file, "shuffled", H5P_DEFAULT);
  CHECK(H5Dread(again, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, back) >= 0);
  CHECK(memcmp(data, back, sizeof(data)) == 0);
  H5Dclose(again);
  H5Fclose(file);
}

/* They cut what they take for elements of the dataset's type. */
static void a_filter_behind_this_one_that_cuts_elements_is_refused(void) {
  const hid_t file = open_file();
  CHECK(create_with_two(file, "bits", GPUF_H5_FILTER_ID, H5Z_FILTER_NBIT) < 0);
  CHECK(strstr(error_text, "filter 5 stands behind gpufetch"));
  CHECK(create_with_two(file, "scaled", GPUF_H5_FILTER_ID, H5Z_FILTER_SCALEOFFSET) < 0);
  CHECK(strstr(error_text, "filter 6 stands behind gpufetch"));
  CHECK(strstr(error_text, "leave one of them out"));
  const hid_t summed = create_with_two(file, "sums", GPUF_H5_FILTER_ID, H5Z_FILTER_FLETCHER32);
  CHECK(summed >= 0);
  H5Dclose(summed);
  H5Fclose(file);
}

static void a_damaged_chunk_is_an_error_with_its_offset(void) {
  const hsize_t dims[] = {30, 41}, origin[] = {0, 0};
  int32_t data[30 * 41], back[30 * 41];
  uint8_t chunk[6000];
  uint32_t mask;
  hsize_t nbytes;
  fill_small(data);
  const hid_t file = open_file(), dataset = create(file, "x", H5T_STD_I32LE, 2, dims, dims);
  CHECK(H5Dwrite(dataset, H5T_STD_I32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
  CHECK(H5Fflush(file, H5F_SCOPE_LOCAL) >= 0);
  CHECK(H5Dget_chunk_storage_size(dataset, origin, &nbytes) >= 0 && nbytes <= sizeof(chunk));
  CHECK(H5Dread_chunk(dataset, H5P_DEFAULT, origin, &mask, chunk) >= 0);
  chunk[nbytes / 2] ^= 4;
  CHECK(H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, origin, nbytes, chunk) >= 0);
  CHECK(H5Dread(dataset, H5T_STD_I32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, back) < 0);
  CHECK(error_stack_has("gpufetch: corrupt chunk at byte 80"));
  chunk[nbytes / 2] ^= 4;
  CHECK(H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, origin, nbytes - 7, chunk) >= 0);
  CHECK(H5Dread(dataset, H5T_STD_I32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, back) < 0);
  CHECK(error_stack_has("corrupt chunk at byte 24"));
  H5Dclose(dataset);
  H5Fclose(file);
}

static void a_chunk_of_another_dataset_is_refused(void) {
  const hsize_t dims[] = {30, 40}, origin[] = {0, 0};
  const gpufi_chunk_shape shape = small_shape;
  int32_t data[30 * 41], back[30 * 41];
  uint8_t chunk[6000];
  size_t nbytes;
  gpuf_error err;
  void *scratch = aligned_alloc(64, (gpufi_codec_scratch_nbytes(&shape) + 63) & ~(size_t)63);
  fill_small(data);
  CHECK_OK(gpufi_codec_encode(&shape, data, chunk, sizeof(chunk), &nbytes, scratch, &err));
  free(scratch);
  const hid_t file = open_file(), dataset = create(file, "x", H5T_STD_I32LE, 2, dims, dims);
  CHECK(H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, origin, nbytes, chunk) >= 0);
  CHECK(H5Dread(dataset, H5T_STD_I32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, back) < 0);
  CHECK(error_stack_has("decodes to 4920 bytes, but the dataset's chunks have 4800"));
  H5Dclose(dataset);
  H5Fclose(file);
}

/* Floats of two decimals, some of them NaN: the codec takes them for integers by a scale. */
static void fill_decimals(double *values, size_t count) {
  for (size_t i = 0; i < count; i++) {
    values[i] = i % 50 == 0 ? NAN : ((double)(i * 7919 % 20000) - 10000) * 0.01;
  }
}

static void the_filter_works_in_any_environment_and_keeps_it(void) {
  enum { SIDE = 50, COUNT = SIDE * SIDE };
  static double values[COUNT];
  static unsigned char first[sizeof(values)];
  static const unsigned int cd_values[] = {0, GPUF_DTYPE_FLOAT64, sizeof(values), 2, SIDE, SIDE};
  const void *const raw = values;
  size_t first_nbytes = 0;
  CHECK(load_plugin() != NULL);
  fill_decimals(values, COUNT);
  for (int i = 0; i < ENVIRONMENT_COUNT; i++) {
    size_t capacity = sizeof(values);
    void *buffer = malloc(capacity);
    memcpy(buffer, raw, capacity);
    const environment_state state = enter_environment(&environments[i]);
    const size_t nbytes = filter->filter(0, 6, cd_values, sizeof(values), &capacity, &buffer);
    CHECK_ENVIRONMENT(state);
    CHECK(nbytes > 0 && nbytes < sizeof(values) / 2);
    first_nbytes = i == 0 ? nbytes : first_nbytes;
    memcpy(first, i == 0 ? buffer : first, first_nbytes);
    CHECK(nbytes == first_nbytes && memcmp(buffer, first, nbytes) == 0);
    CHECK(filter->filter(H5Z_FLAG_REVERSE, 6, cd_values, nbytes, &capacity, &buffer) ==
          sizeof(values));
    CHECK_ENVIRONMENT(state);
    leave_environment();
    CHECK(memcmp(buffer, raw, sizeof(values)) == 0);
    free(buffer);
  }
}

static long page_faults(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

/* Of two pieces of memory as long as the chunk, the encoded bytes' alone is new each time, of which
 * malloc may touch all (MALLOC_PERTURB_). */
static void a_chunk_gets_the_scratch_of_the_one_before(void) {
  enum { COUNT = 1 << 18 };
  static double values[COUNT];
  static const unsigned int cd_values[] = {0, GPUF_DTYPE_FLOAT64, sizeof(values), 1, COUNT};
  const long pages = (long)sizeof(values) / sysconf(_SC_PAGESIZE);
  const void *const raw = values;
  long faults = LONG_MAX;
  CHECK(load_plugin() != NULL);
  fill_decimals(values, COUNT);
  for (int i = 0; i < 4; i++) {
    size_t capacity = sizeof(values);
    void *buffer = malloc(capacity);
    memcpy(buffer, raw, capacity);
    const long before = page_faults();
    const size_t nbytes = filter->filter(0, 5, cd_values, sizeof(values), &capacity, &buffer);
    faults = page_faults() - before;
    CHECK(nbytes > 0 && nbytes < sizeof(values) / 2);
    free(buffer);
  }
  CHECK(faults < 3 * pages / 2);
}

static void datasets_are_the_same_in_any_environment(void) {
  enum { ROWS = 100, COLUMNS = 70, COUNT = ROWS * COLUMNS };
  static double values[COUNT], back[COUNT];
  const hsize_t dims[] = {ROWS, COLUMNS}, chunk[] = {40, 33};
  char name[] = "in a";
  const void *const expected = values, *const found = back;
  hsize_t stored_nbytes = 0;
  fill_decimals(values, COUNT);
  const hid_t file = open_file();
  for (int i = 0; i < ENVIRONMENT_COUNT; i++) {
    name[3] = (char)('a' + i);
    const hid_t dataset = create(file, name, H5T_IEEE_F64LE, 2, dims, chunk);
    CHECK(dataset >= 0);
    const environment_state state = enter_environment(&environments[i]);
    CHECK(H5Dwrite(dataset, H5T_IEEE_F64LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    CHECK(H5Dflush(dataset) >= 0);
    CHECK_ENVIRONMENT_BUT_FLAGS(state);
    leave_environment();
    stored_nbytes = i == 0 ? H5Dget_storage_size(dataset) : stored_nbytes;
    CHECK(stored_nbytes > 0 && H5Dget_storage_size(dataset) == stored_nbytes);
    H5Dclose(dataset);
  }
  for (int i = 0; i < ENVIRONMENT_COUNT * ENVIRONMENT_COUNT; i++) { /* of each, in each */
    name[3] = (char)('a' + i % ENVIRONMENT_COUNT);
    const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    const environment_state state = enter_environment(&environments[i / ENVIRONMENT_COUNT]);
    CHECK(H5Dread(dataset, H5T_IEEE_F64LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, back) >= 0);
    CHECK_ENVIRONMENT_BUT_FLAGS(state);
    leave_environment();
    CHECK(memcmp(found, expected, sizeof(values)) == 0);
    H5Dclose(dataset);
  }
  H5Fclose(file);
}

int main(void) {
  const int descriptor = mkstemp(file_name);
  if (descriptor < 0) {
    return 1;
  }
  close(descriptor);
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  TEST(the_plugin_shows_hdf5_what_it_is);
  TEST(the_plugin_needs_no_hdf5_and_exports_nothing_else);
  TEST(explicit_cd_values_are_enough);
  TEST(a_chunk_whose_size_nothing_vouches_for_is_refused);
  TEST(a_caller_without_hdf5_symbols_keeps_its_cd_values);
  TEST(false_cd_values_are_refused_without_reading_past_them);
  TEST(a_chunk_of_another_size_is_refused_and_the_buffer_kept);
  TEST(numbers_keep_their_type_and_bits);
  TEST(short_floats_keep_their_type_and_bits);
  TEST(complex_bool_and_array_types_keep_their_bits);
  TEST(other_types_go_as_bytes);
  TEST(more_than_eight_axes_are_folded);
  TEST(types_whose_values_are_elsewhere_are_refused);
  TEST(a_filter_before_this_one_that_changes_the_size_is_refused);
  TEST(a_filter_behind_this_one_that_cuts_elements_is_refused);
  TEST(a_damaged_chunk_is_an_error_with_its_offset);
  TEST(a_chunk_of_another_dataset_is_refused);
  TEST(a_chunk_gets_the_scratch_of_the_one_before);
  TEST(the_filter_works_in_any_environment_and_keeps_it);
  TEST(datasets_are_the_same_in_any_environment);
  unlink(file_name);
  return test_finish();
}
