/* A program into which libhdf5 is linked; tests/python/test_hdf5_environments.py builds and runs
 * it.
 *
 *   static write|read explicit|filled FILE
 *
 * A static libhdf5 shows the plugin its functions only in a program that holds and exports all of
 * them (--whole-archive, -rdynamic): there the filter fills in the cd_values, elsewhere they are
 * given. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpufetch/hdf5.h>
#include <hdf5.h>

#define INT32 4 /* the dtype code of docs/format.md */

static const hsize_t shape[] = {60, 50}, chunk[] = {16, 50};

static void fail(const char *what) {
  fprintf(stderr, "%s failed\n", what);
  exit(1);
}

static void fill(int *values) {
  for (int i = 0; i < 60 * 50; i++) {
    values[i] = 3 * (i / 50) + i % 50;
  }
}

static void write_file(const char *path, int is_explicit) {
  const unsigned cd_values[] = {0, INT32, 16 * 50 * 4, 2, 16, 50};
  int values[60 * 50];
  const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(2, shape, NULL), plist = H5Pcreate(H5P_DATASET_CREATE);
  hid_t dataset;
  fill(values);
  if (H5Pset_chunk(plist, 2, chunk) < 0 ||
      H5Pset_filter(plist, GPUF_H5_FILTER_ID, H5Z_FLAG_MANDATORY, is_explicit ? 6 : 0, cd_values) <
          0) {
    fail("H5Pset_filter");
  }
  dataset = H5Dcreate2(file, "x", H5T_STD_I32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  if (dataset < 0 || H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0) {
    fail("writing");
  }
  H5Dclose(dataset);
  H5Pclose(plist);
  H5Sclose(space);
  if (H5Fclose(file) < 0) {
    fail("H5Fclose");
  }
}

static void read_file(const char *path) {
  int values[60 * 50] = {0}, expected[60 * 50];
  const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
  fill(expected);
  if (H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0) {
    fail("H5Dread");
  }
  if (memcmp(values, expected, sizeof(values)) != 0) {
    fail("comparing");
  }
  H5Dclose(dataset);
  H5Fclose(file);
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fail("reading the arguments");
  }
  if (!strcmp(argv[1], "write")) {
    write_file(argv[3], !strcmp(argv[2], "explicit"));
  }
  read_file(argv[3]);
  return 0;
}
