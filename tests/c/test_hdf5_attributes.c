/* Scalars beside a tensor: what is set is what HDF5 and gpufetch read, and what does not fit is one
 * clear error. */
#include "hdf5_files.h"

#include "hdf5/api.h"

/* Attribute `name` of `object`, as HDF5 itself converts it to `type`. */
static void read_by_hdf5(hid_t file, const char *object, const char *name, hid_t type,
                         void *value) {
  const hid_t attribute = H5Aopen_by_name(file, object, name, H5P_DEFAULT, H5P_DEFAULT);
  CHECK(attribute >= 0 && H5Aread(attribute, type, value) >= 0);
  H5Aclose(attribute);
}

/* Create a scalar attribute of the root, or one of `count` elements if that is not 0. */
static void create_attribute(hid_t file, const char *name, hid_t type, hsize_t count,
                             const void *value) {
  const hid_t space = count ? H5Screate_simple(1, &count, NULL) : H5Screate(H5S_SCALAR);
  const hid_t attribute = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  CHECK(attribute >= 0 && H5Awrite(attribute, type, value) >= 0);
  H5Aclose(attribute);
  H5Sclose(space);
}

static int count_attributes(hid_t file) {
  const hid_t root = H5Gopen2(file, "/", H5P_DEFAULT);
  const int count = H5Aget_num_attrs(root);
  H5Gclose(root);
  return count;
}

static int64_t get_int64(hid_t location, const char *object, const char *name) {
  int64_t value = 0;
  CHECK_OK(gpuf_h5_get_attribute_int64(location, object, name, &value, NULL, &err));
  return value;
}

static double get_float64(hid_t location, const char *object, const char *name) {
  double value = 0;
  CHECK_OK(gpuf_h5_get_attribute_float64(location, object, name, &value, NULL, &err));
  return value;
}

static void check_text(hid_t location, const char *object, const char *name, const char *expected) {
  char text[100];
  size_t nbytes = sizeof(text);
  CHECK_OK(gpuf_h5_get_attribute_text(location, object, name, text, &nbytes, NULL, &err));
  CHECK(nbytes == strlen(expected) + 1 && !strcmp(text, expected));
}

static void the_root_groups_and_datasets_bear_what_is_set(void) {
  static const char *const objects[] = {"/", "group", "group/x"};
  const hid_t file = create_file();
  gpuf_tensor src = create_cpu(GPUF_DTYPE_INT8, 1, (int64_t[]){10}, 1);
  CHECK_OK(gpuf_h5_write(file, "group/x", &src, NULL, &err));
  const hid_t dataset = H5Dopen2(file, "group/x", H5P_DEFAULT);
  for (int i = 0; i < 3; i++) {
    CHECK_OK(gpuf_h5_set_attribute_int64(file, objects[i], "step", INT64_MIN + i, NULL, &err));
    CHECK_OK(gpuf_h5_set_attribute_float64(file, objects[i], "time", 0.1 + i, NULL, &err));
    CHECK_OK(gpuf_h5_set_attribute_text(file, objects[i], "unit", "µm / s", NULL, &err));
    CHECK(get_int64(file, objects[i], "step") == INT64_MIN + i);
    CHECK(get_float64(file, objects[i], "time") == 0.1 + i);
    check_text(file, objects[i], "unit", "µm / s");
  }
  CHECK(get_int64(file, ".", "step") == INT64_MIN);
  CHECK(get_int64(dataset, ".", "step") == INT64_MIN + 2);
  H5Dclose(dataset);
  destroy(&src);
  close_file(file);
}

/* The types are those that h5py reads as int64, float64 and str. */
static void hdf5_reads_scalars_of_the_types_that_are_promised(void) {
  const hid_t file = create_file();
  CHECK_OK(gpuf_h5_set_attribute_int64(file, "/", "int", -7, NULL, &err));
  CHECK_OK(gpuf_h5_set_attribute_float64(file, "/", "float", -0.5, NULL, &err));
  CHECK_OK(gpuf_h5_set_attribute_text(file, "/", "text", "Größe", NULL, &err));
  for (int i = 0; i < 3; i++) {
    const char *name = i == 0 ? "int" : i == 1 ? "float" : "text";
    const hid_t attribute = H5Aopen(file, name, H5P_DEFAULT);
    const hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    CHECK(H5Sget_simple_extent_type(space) == H5S_SCALAR);
    CHECK(i == 2 ? H5Tis_variable_str(type) > 0 && H5Tget_cset(type) == H5T_CSET_UTF8
                 : H5Tequal(type, i == 0 ? H5T_STD_I64LE : H5T_IEEE_F64LE) > 0);
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(attribute);
  }
  int value = 0;
  read_by_hdf5(file, "/", "int", H5T_NATIVE_INT, &value);
  CHECK(value == -7);
  close_file(file);
}

static void setting_overwrites_any_attribute(void) {
  const int many[] = {1, 2, 3};
  const hid_t file = create_file();
  create_attribute(file, "x", H5T_NATIVE_INT, 3, many);
  CHECK_OK(gpuf_h5_set_attribute_int64(file, "/", "x", 5, NULL, &err));
  CHECK_OK(gpuf_h5_set_attribute_int64(file, "/", "x", 6, NULL, &err));
  CHECK(get_int64(file, "/", "x") == 6);
  CHECK_OK(gpuf_h5_set_attribute_text(file, "/", "x", "six", NULL, &err));
  CHECK_OK(gpuf_h5_set_attribute_text(file, "/", "x", "", NULL, &err));
  check_text(file, "/", "x", "");
  CHECK_OK(gpuf_h5_set_attribute_float64(file, "/", "x", 6.5, NULL, &err));
  CHECK(get_float64(file, "/", "x") == 6.5);
  CHECK(count_attributes(file) == 1);
  close_file(file);
}

/* HDF5 1.10 writes no attribute that was opened by another object's name. */
static void setting_overwrites_attributes_of_datasets_and_groups(void) {
  const char *const objects[] = {"data", "group", "group/inner", "."};
  const hid_t file = create_file(), space = H5Screate(H5S_SCALAR);
  CHECK(H5Gclose(H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)) >= 0);
  for (int i = 0; i < 3; i += 2) {
    CHECK(H5Dclose(H5Dcreate2(file, objects[i], H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT,
                              H5P_DEFAULT)) >= 0);
  }
  for (int round = 0; round < 3; round++) {
    for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++) {
      const char *const text = round == 1 ? "longer than before" : "m/s";
      CHECK_OK(gpuf_h5_set_attribute_int64(file, objects[i], "step", round, NULL, &err));
      CHECK_OK(gpuf_h5_set_attribute_float64(file, objects[i], "time", round / 4.0, NULL, &err));
      CHECK_OK(gpuf_h5_set_attribute_text(file, objects[i], "unit", text, NULL, &err));
      CHECK(get_int64(file, objects[i], "step") == round);
      CHECK(get_float64(file, objects[i], "time") == round / 4.0);
      check_text(file, objects[i], "unit", text);
    }
  }
  H5Sclose(space);
  close_file(file);
}

static void numbers_and_texts_of_other_programs_are_read(void) {
  const short small = -300;
  const unsigned long long large = INT64_MAX;
  const float third = 1.0f / 3;
  const hid_t file = create_file(), fixed = H5Tcopy(H5T_C_S1), padded = H5Tcopy(H5T_FORTRAN_S1);
  H5Tset_size(fixed, 5);
  H5Tset_strpad(fixed, H5T_STR_NULLPAD);
  H5Tset_size(padded, 8);
  create_attribute(file, "small", H5T_NATIVE_SHORT, 0, &small);
  create_attribute(file, "large", H5T_NATIVE_ULLONG, 1, &large);
  create_attribute(file, "third", H5T_NATIVE_FLOAT, 0, &third);
  create_attribute(file, "fixed", fixed, 0, "five!");
  create_attribute(file, "padded", padded, 0, "m / s   ");
  CHECK(get_int64(file, "/", "small") == -300);
  CHECK(get_int64(file, "/", "large") == INT64_MAX);
  CHECK(get_float64(file, "/", "third") == (double)third);
  check_text(file, "/", "fixed", "five!");
  check_text(file, "/", "padded", "m / s");
  H5Tclose(fixed);
  H5Tclose(padded);
  close_file(file);
}

/* HDF5 itself drops the sign: it swaps the bytes, and forgets that some bits are padding. */
static void integers_of_reduced_precision_keep_their_sign(void) {
  const hid_t types[] = {H5T_STD_I64BE, H5T_STD_I64LE, H5T_STD_I32BE};
  const long long value = -4;
  const hid_t file = create_file(), space = H5Screate(H5S_SCALAR);
  for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
    const char name[] = {(char)('a' + i), 0};
    const hid_t type = H5Tcopy(types[i]), whole = H5Tcopy(types[i]);
    H5Tset_precision(type, 20);
    const hid_t attribute = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    long long stored = value;
    CHECK(H5Tconvert(H5T_NATIVE_LLONG, whole, 1, &stored, NULL, H5P_DEFAULT) >= 0);
    CHECK(H5Awrite(attribute, whole, &stored) >= 0);
    CHECK(get_int64(file, "/", name) == value);
    H5Aclose(attribute);
    H5Tclose(whole);
    H5Tclose(type);
  }
  H5Sclose(space);
  close_file(file);
}

static void what_an_attribute_is_stands_in_the_message(void) {
  const unsigned long long above = (unsigned long long)INT64_MAX + 1;
  const int many[] = {1, 2, 3};
  const long double wide = 1;
  const hid_t file = create_file();
  int64_t integer = 77;
  double number = 77;
  char text[8] = "before";
  size_t nbytes = sizeof(text);
  CHECK_OK(gpuf_h5_set_attribute_int64(file, "/", "int", 1, NULL, &err));
  CHECK_OK(gpuf_h5_set_attribute_float64(file, "/", "float", 1, NULL, &err));
  CHECK_OK(gpuf_h5_set_attribute_text(file, "/", "text", "longer than 8", NULL, &err));
  create_attribute(file, "above", H5T_NATIVE_ULLONG, 0, &above);
  create_attribute(file, "many", H5T_NATIVE_INT, 3, many);
  create_attribute(file, "wide", H5T_NATIVE_LDOUBLE, 0, &wide);
  CHECK_FAILS(gpuf_h5_get_attribute_int64(file, "/", "none", &integer, NULL, &err),
              GPUF_ERR_INVALID, "object '/' has no attribute 'none'");
  CHECK_FAILS(gpuf_h5_get_attribute_int64(file, "/", "float", &integer, NULL, &err),
              GPUF_ERR_INVALID, "is a floating-point number, not an integer");
  CHECK_FAILS(gpuf_h5_get_attribute_int64(file, "/", "text", &integer, NULL, &err),
              GPUF_ERR_INVALID, "gpuf_h5_get_attribute_text");
  CHECK_FAILS(gpuf_h5_get_attribute_int64(file, "/", "above", &integer, NULL, &err),
              GPUF_ERR_INVALID, "9223372036854775808");
  CHECK_FAILS(gpuf_h5_get_attribute_int64(file, "/", "many", &integer, NULL, &err),
              GPUF_ERR_INVALID, "has 3 elements");
  CHECK_FAILS(gpuf_h5_get_attribute_float64(file, "/", "int", &number, NULL, &err),
              GPUF_ERR_INVALID, "is an integer, not a floating-point number");
  CHECK_FAILS(gpuf_h5_get_attribute_float64(file, "/", "wide", &number, NULL, &err),
              GPUF_ERR_INVALID, "floating-point type of 16 bytes");
  CHECK_FAILS(gpuf_h5_get_attribute_text(file, "/", "int", text, &nbytes, NULL, &err),
              GPUF_ERR_INVALID, "is an integer, not text");
  CHECK_FAILS(gpuf_h5_get_attribute_text(file, "/", "text", text, &nbytes, NULL, &err),
              GPUF_ERR_INVALID, "takes 14 bytes");
  CHECK(nbytes == 14 && integer == 77 && number == 77 && !strcmp(text, "before"));
  nbytes = 0;
  CHECK_FAILS(gpuf_h5_get_attribute_text(file, "/", "text", NULL, &nbytes, NULL, &err),
              GPUF_ERR_INVALID, "takes 14 bytes");
  CHECK(nbytes == 14);
  close_file(file);
}

static void objects_that_are_not_there_are_refused(void) {
  hid_t file = create_file();
  int64_t value;
  CHECK_FAILS(gpuf_h5_set_attribute_int64(file, "none", "x", 1, NULL, &err), GPUF_ERR_HDF5,
              "writing attribute 'x' of object 'none' failed");
  CHECK_FAILS(gpuf_h5_get_attribute_int64(file, "none", "x", &value, NULL, &err), GPUF_ERR_HDF5,
              "opening attribute 'x' of object 'none' failed");
  CHECK_OK(gpuf_h5_set_attribute_int64(file, "/", "x", 1, NULL, &err));
  H5Fclose(file);
  CHECK_FAILS(gpuf_h5_set_attribute_int64(file, "/", "x", 1, NULL, &err), GPUF_ERR_INVALID,
              "was it closed?");
  file = H5Fopen(file_path, H5F_ACC_RDONLY, H5P_DEFAULT);
  CHECK_FAILS(gpuf_h5_set_attribute_int64(file, "/", "x", 2, NULL, &err), GPUF_ERR_INVALID,
              "read-only");
  CHECK_FAILS(gpuf_h5_set_attribute_text(file, "/", "x", "2", NULL, &err), GPUF_ERR_INVALID,
              "read-only");
  CHECK(get_int64(file, "/", "x") == 1);
  close_file(file);
}

static void null_and_empty_arguments_are_refused(void) {
  const hid_t file = create_file();
  char text[8];
  size_t nbytes = sizeof(text);
  CHECK_FAILS(gpuf_h5_set_attribute_int64(file, NULL, "x", 1, NULL, &err), GPUF_ERR_INVALID,
              "object_name is NULL");
  CHECK_FAILS(gpuf_h5_set_attribute_int64(file, "", "x", 1, NULL, &err), GPUF_ERR_INVALID,
              "object_name is empty");
  CHECK_FAILS(gpuf_h5_set_attribute_float64(file, "/", NULL, 1, NULL, &err), GPUF_ERR_INVALID,
              "name is NULL");
  CHECK_FAILS(gpuf_h5_set_attribute_float64(file, "/", "", 1, NULL, &err), GPUF_ERR_INVALID,
              "name is empty");
  CHECK_FAILS(gpuf_h5_set_attribute_text(file, "/", "x", NULL, NULL, &err), GPUF_ERR_INVALID,
              "value of attribute 'x' is NULL");
  CHECK_FAILS(gpuf_h5_get_attribute_int64(file, "/", "x", NULL, NULL, &err), GPUF_ERR_INVALID,
              "is NULL");
  CHECK_FAILS(gpuf_h5_get_attribute_float64(file, "/", "x", NULL, NULL, &err), GPUF_ERR_INVALID,
              "is NULL");
  CHECK_FAILS(gpuf_h5_get_attribute_text(file, "/", "x", NULL, &nbytes, NULL, &err),
              GPUF_ERR_INVALID, "is NULL");
  CHECK_FAILS(gpuf_h5_get_attribute_text(file, "/", "x", text, NULL, NULL, &err), GPUF_ERR_INVALID,
              "is NULL");
  CHECK(count_attributes(file) == 0);
  close_file(file);
}

static void the_callers_lock_is_held_and_released(void) {
  gpuf_h5_options options = GPUF_H5_OPTIONS_INIT;
  const hid_t file = create_file();
  int64_t value;
  options.lock = lock;
  options.unlock = unlock;
  CHECK_OK(gpuf_h5_set_attribute_int64(file, "/", "x", 3, &options, &err));
  CHECK_OK(gpuf_h5_get_attribute_int64(file, "/", "x", &value, &options, &err));
  CHECK_FAILS(gpuf_h5_get_attribute_int64(file, "/", "y", &value, &options, &err), GPUF_ERR_INVALID,
              "no attribute");
  CHECK(lock_depth == 0 && value == 3);
  close_file(file);
}

static herr_t refuse_write(hid_t attribute, hid_t type, const void *value) {
  H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_ATTR, H5E_WRITEERROR,
           "refused");
  return -1;
}

static void an_attribute_that_cannot_be_written_keeps_its_value_or_is_withdrawn(void) {
  const hid_t file = create_file();
  gpufi_h5_api *api;
  CHECK_OK(gpufi_h5_bound(&api, &err));
  CHECK_OK(gpuf_h5_set_attribute_int64(file, "/", "old", 1, NULL, &err));
  herr_t (*const write)(hid_t, hid_t, const void *) = api->Awrite;
  api->Awrite = refuse_write;
  const gpuf_status old = gpuf_h5_set_attribute_int64(file, "/", "old", 2, NULL, &err);
  const gpuf_status new_number = gpuf_h5_set_attribute_float64(file, "/", "new", 2, NULL, &err);
  const gpuf_status new_text = gpuf_h5_set_attribute_text(file, "/", "text", "2", NULL, &err);
  api->Awrite = write;
  CHECK(old == GPUF_ERR_HDF5 && new_number == GPUF_ERR_HDF5 && new_text == GPUF_ERR_HDF5);
  CHECK(count_attributes(file) == 1 && get_int64(file, "/", "old") == 1);
  CHECK_OK(gpuf_h5_set_attribute_text(file, "/", "text", "2", NULL, &err));
  check_text(file, "/", "text", "2");
  close_file(file);
}

static void names_and_text_that_are_not_utf8_are_refused(void) {
  static const char *const bad[] = {"\xff\xfe", "caf\xe9", "\xc3", "\xed\xa0\x80", "\xc0\xaf"};
  const hid_t file = create_file();
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    CHECK_FAILS(gpuf_h5_set_attribute_text(file, "/", "x", bad[i], NULL, &err), GPUF_ERR_INVALID,
                "the text of attribute 'x' is not UTF-8");
    CHECK_FAILS(gpuf_h5_set_attribute_int64(file, "/", bad[i], 1, NULL, &err), GPUF_ERR_INVALID,
                "the name of attribute");
  }
  CHECK(count_attributes(file) == 0);
  CHECK_OK(gpuf_h5_set_attribute_text(file, "/", "é", "\xf0\x9f\x98\x80", NULL, &err));
  check_text(file, "/", "é", "\xf0\x9f\x98\x80");
  close_file(file);
}

/* Binding calls HDF5 too. */
static void check_unbound(void *arg) {
  CHECK(lock_depth++ == 0);
  CHECK(lock_count++ > 0 || gpufi_h5_bound_already() == NULL);
}

static void the_first_call_binds_under_the_callers_lock(void) {
  gpuf_h5_options options = GPUF_H5_OPTIONS_INIT;
  gpuf_tensor described = {0};
  options.lock = check_unbound;
  options.unlock = unlock;
  CHECK(gpufi_h5_bound_already() == NULL);
  CHECK_FAILS(gpuf_h5_describe(-1, &described, &options, &err), GPUF_ERR_INVALID, "-1");
  CHECK(gpufi_h5_bound_already() != NULL && lock_count > 1 && lock_depth == 0);
}

int main(void) {
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  TEST(the_first_call_binds_under_the_callers_lock); /* while nothing is bound */
  TEST(the_root_groups_and_datasets_bear_what_is_set);
  TEST(hdf5_reads_scalars_of_the_types_that_are_promised);
  TEST(setting_overwrites_any_attribute);
  TEST(setting_overwrites_attributes_of_datasets_and_groups);
  TEST(numbers_and_texts_of_other_programs_are_read);
  TEST(integers_of_reduced_precision_keep_their_sign);
  TEST(what_an_attribute_is_stands_in_the_message);
  TEST(objects_that_are_not_there_are_refused);
  TEST(null_and_empty_arguments_are_refused);
  TEST(the_callers_lock_is_held_and_released);
  TEST(an_attribute_that_cannot_be_written_keeps_its_value_or_is_withdrawn);
  TEST(names_and_text_that_are_not_utf8_are_refused);
  return test_finish();
}
