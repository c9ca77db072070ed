/* Reads datasets through a libhdf5 of any platform, which finds the plugin by HDF5_PLUGIN_PATH, and
 * writes each again through the filter:
 *
 *   reader LIBHDF5 FILE COPY LIST FILTER-ID
 *
 * LIST has a line for each dataset: bytes, the FNV-1a hash of the stored elements as 16
 * hexadecimal digits, and name. Ends with 0 and "N datasets" if every dataset is as listed, in FILE
 * and in COPY, and if a damaged chunk is an error. Compiled by tests/python/test_reader_wheels.py.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#endif

#define NAME_NBYTES 256
#define FILTER_FLAG_MANDATORY 0u
#define ACC_RDONLY 0u
#define ACC_RDWR 1u
#define ACC_TRUNC 2u

typedef int64_t id;

static struct {
  int (*open)(void);
  id (*file_open)(const char *, unsigned, id);
  id (*file_create)(const char *, unsigned, id, id);
  int (*file_close)(id);
  id (*dataset_open)(id, const char *, id);
  id (*dataset_create)(id, const char *, id, id, id, id, id);
  id (*dataset_type)(id);
  id (*dataset_space)(id);
  id (*dataset_properties)(id);
  int (*dataset_read)(id, id, id, id, id, void *);
  int (*dataset_write)(id, id, id, id, id, const void *);
  int (*dataset_close)(id);
  int (*modify_filter)(id, int, unsigned, size_t, const unsigned *);
  int (*write_chunk)(id, id, uint32_t, const unsigned long long *, size_t, const void *);
  int (*set_auto)(id, void *, void *);
} h5;

static void fail(const char *what, const char *name) {
  printf("%s: %s\n", name, what);
  exit(1);
}

static void *symbol(void *library, const char *name) {
#ifdef _WIN32
  const FARPROC found = GetProcAddress((HMODULE)library, name);
#else
  void *found = dlsym(library, name);
#endif
  void *address;
  memcpy(&address, &found, sizeof(address));
  if (!address) {
    fail("not in the library", name);
  }
  return address;
}

static void load(const char *path) {
#ifdef _WIN32
  void *library = LoadLibraryExA(path, NULL, LOAD_WITH_ALTERED_SEARCH_PATH);
  const char *const reason = "cannot be loaded";
#else
  void *library = dlopen(path, RTLD_NOW);
  const char *const reason = library ? NULL : dlerror();
#endif
  if (!library) {
    fail(reason, path);
  }
  const struct {
    const char *name;
    void *pointer;
  } wanted[] = {
      {"H5open", &h5.open},
      {"H5Fopen", &h5.file_open},
      {"H5Fcreate", &h5.file_create},
      {"H5Fclose", &h5.file_close},
      {"H5Dopen2", &h5.dataset_open},
      {"H5Dcreate2", &h5.dataset_create},
      {"H5Dget_type", &h5.dataset_type},
      {"H5Dget_space", &h5.dataset_space},
      {"H5Dget_create_plist", &h5.dataset_properties},
      {"H5Dread", &h5.dataset_read},
      {"H5Dwrite", &h5.dataset_write},
      {"H5Dclose", &h5.dataset_close},
      {"H5Pmodify_filter", &h5.modify_filter},
      {"H5Dwrite_chunk", &h5.write_chunk},
      {"H5Eset_auto2", &h5.set_auto},
  };
  for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
    void *address = symbol(library, wanted[i].name);
    memcpy(wanted[i].pointer, &address, sizeof(address));
  }
}

static uint64_t hash(const uint8_t *bytes, size_t nbytes) {
  uint64_t h = 0xcbf29ce484222325u;
  for (size_t i = 0; i < nbytes; i++) {
    h = (h ^ bytes[i]) * 0x100000001b3u;
  }
  return h;
}

static void check(id file, const char *name, void *bytes, size_t nbytes, uint64_t expected) {
  const id dataset = h5.dataset_open(file, name, 0);
  if (dataset < 0) {
    fail("cannot be opened", name);
  }
  memset(bytes, 0, nbytes);
  if (h5.dataset_read(dataset, h5.dataset_type(dataset), 0, 0, 0, bytes) < 0) {
    fail("cannot be read", name);
  }
  if (hash(bytes, nbytes) != expected) {
    fail("other bits", name);
  }
  h5.dataset_close(dataset);
}

/* The filter's parameters are taken away, so that the plugin must fill them in. */
static void write_again(id file, id copy, int filter_id, const char *name, const void *bytes) {
  const id dataset = h5.dataset_open(file, name, 0);
  const id type = h5.dataset_type(dataset);
  const id properties = h5.dataset_properties(dataset);
  if (h5.modify_filter(properties, filter_id, FILTER_FLAG_MANDATORY, 0, NULL) < 0) {
    fail("has another filter", name);
  }
  const id made = h5.dataset_create(copy, name, type, h5.dataset_space(dataset), 0, properties, 0);
  if (made < 0 || h5.dataset_write(made, type, 0, 0, 0, bytes) < 0) {
    fail("cannot be written", name);
  }
  h5.dataset_close(made);
  h5.dataset_close(dataset);
}

/* A chunk of zeros is none that the filter wrote. */
static void check_damage(id copy, const char *name, void *bytes) {
  static const uint8_t zeros[128];
  static const unsigned long long at[32];
  const id dataset = h5.dataset_open(copy, name, 0);
  h5.set_auto(0, NULL, NULL);
  if (h5.write_chunk(dataset, 0, 0, at, sizeof(zeros), zeros) < 0) {
    fail("a damaged chunk cannot be stored", name);
  }
  if (h5.dataset_read(dataset, h5.dataset_type(dataset), 0, 0, 0, bytes) >= 0) {
    fail("a damaged chunk was read", name);
  }
  h5.dataset_close(dataset);
}

int main(int argc, char **argv) {
  char name[NAME_NBYTES] = "";
  size_t nbytes;
  uint64_t expected;
  int count = 0;
  if (argc != 6) {
    fail("LIBHDF5 FILE COPY LIST FILTER-ID", "usage");
  }
  load(argv[1]);
  h5.open();
  const id file = h5.file_open(argv[2], ACC_RDONLY, 0);
  id copy = h5.file_create(argv[3], ACC_TRUNC, 0, 0);
  FILE *list = fopen(argv[4], "r");
  if (file < 0 || copy < 0 || !list) {
    fail("cannot be opened", argv[2]);
  }
  void *bytes = malloc(1u << 24);
  while (bytes && fscanf(list, "%zu %" SCNx64 " %255[^\n]", &nbytes, &expected, name) == 3) {
    check(file, name, bytes, nbytes, expected);
    write_again(file, copy, atoi(argv[5]), name, bytes);
    count++;
  }
  h5.file_close(copy);
  copy = h5.file_open(argv[3], ACC_RDWR, 0);
  rewind(list);
  while (bytes && fscanf(list, "%zu %" SCNx64 " %255[^\n]", &nbytes, &expected, name) == 3) {
    check(copy, name, bytes, nbytes, expected);
  }
  check_damage(copy, name, bytes);
  h5.file_close(copy);
  h5.file_close(file);
  fclose(list);
  free(bytes);
  printf("%d datasets\n", count);
  return 0;
}
