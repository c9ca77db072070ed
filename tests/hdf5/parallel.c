/* Writes to one file from several MPI processes: filtered datasets are refused, and the parts of
 * unfiltered ones arrive. Compiled by h5pcc, and run by mpirun.
 *
 *     mpirun -n 3 parallel FILE */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include <gpufetch/hdf5.h>
#include <hdf5.h>

#define ROWS 64
#define COLUMNS 64
#define COUNT (ROWS * COLUMNS)

static int rank, rank_count;
static gpuf_error err;

static void require(int holds, const char *what) {
  if (!holds) {
    fprintf(stderr, "process %d of %d: %s: %s\n", rank, rank_count, what, err.message);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}
#define REQUIRE(condition) require((condition), #condition)

static hid_t create(hid_t file, const char *name, int is_chunked, int is_filtered) {
  const hsize_t dims[] = {(hsize_t)ROWS * rank_count, COLUMNS}, chunk[] = {ROWS, COLUMNS};
  const hid_t space = H5Screate_simple(2, dims, NULL), plist = H5Pcreate(H5P_DATASET_CREATE);
  REQUIRE(!is_chunked || H5Pset_chunk(plist, 2, chunk) >= 0);
  REQUIRE(!is_filtered || H5Pset_filter(plist, GPUF_H5_FILTER_ID, 0, 0, NULL) >= 0);
  const hid_t dataset =
      H5Dcreate2(file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  REQUIRE(dataset >= 0);
  H5Pclose(plist);
  H5Sclose(space);
  return dataset;
}

static void write_parts(hid_t file, const gpuf_tensor *part) {
  const int64_t start[] = {(int64_t)ROWS * rank, 0};
  const hid_t contiguous = create(file, "contiguous", 0, 0),
              chunked = create(file, "chunked", 1, 0), filtered = create(file, "filtered", 1, 1);
  REQUIRE(gpuf_h5_write(file, "x", part, NULL, &err) == GPUF_ERR_UNSUPPORTED);
  REQUIRE(gpuf_h5_write_region(contiguous, start, part, NULL, &err) == GPUF_OK);
  REQUIRE(gpuf_h5_write_region(chunked, start, part, NULL, &err) == GPUF_OK);
  REQUIRE(gpuf_h5_write_region(filtered, start, part, NULL, &err) == GPUF_ERR_UNSUPPORTED);
  REQUIRE(H5Dclose(contiguous) >= 0 && H5Dclose(chunked) >= 0 && H5Dclose(filtered) >= 0);
}

static void check(hid_t file, const char *name) {
  float *values = malloc(sizeof(*values) * (size_t)(COUNT * rank_count));
  const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
  REQUIRE(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  for (int i = 0; i < COUNT * rank_count; i++) {
    REQUIRE(values[i] == (float)i);
  }
  H5Dclose(dataset);
  free(values);
}

int main(int count, char **arguments) {
  static float values[COUNT];
  static const int64_t shape[] = {ROWS, COLUMNS};
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  gpuf_tensor part;
  MPI_Init(&count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
  for (int i = 0; i < COUNT; i++) {
    values[i] = (float)(i + COUNT * rank);
  }
  REQUIRE(gpuf_tensor_init(&part, values, cpu, GPUF_DTYPE_FLOAT32, 2, shape, &err) == GPUF_OK);
  REQUIRE(gpuf_h5_filter_register(&err) == GPUF_OK);
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  REQUIRE(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL) >= 0);
  hid_t file = H5Fcreate(arguments[1], H5F_ACC_TRUNC, H5P_DEFAULT, access);
  REQUIRE(file >= 0);
  write_parts(file, &part);
  REQUIRE(H5Fclose(file) >= 0);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    file = H5Fopen(arguments[1], H5F_ACC_RDONLY, H5P_DEFAULT);
    check(file, "contiguous");
    check(file, "chunked");
    H5Fclose(file);
    puts("every part arrived");
  }
  H5Pclose(access);
  MPI_Finalize();
  return 0;
}
