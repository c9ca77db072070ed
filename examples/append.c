/* A time series in one dataset: each step is appended along an unlimited axis while the program
 * computes the next one. A step is copied and encoded by threads of gpufetch; HDF5 is entered by
 * this program's own thread, when it polls or waits for the write.
 *
 * usage: append FILE [STEPS]
 *
 * Compile it against an installed gpufetch:
 *   cc -O2 append.c -o append $(pkg-config --cflags --libs gpufetch hdf5)
 */
#include <gpufetch/gpufetch.h>
#include <gpufetch/hdf5.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>

enum { NX = 256, NY = 256 };

static gpuf_error error; /* of the latest gpufetch call; this program has one thread */

static void fatal(const char *message) {
  fprintf(stderr, "append: %s\n", message);
  exit(1); /* NOLINT(concurrency-mt-unsafe): this program has one thread */
}

/* A gpufetch call whose last argument is &error, and one of HDF5. */
#define CHECK(call) ((call) == GPUF_OK ? (void)0 : fatal(error.message))
#define CHECK_H5(call) ((call) >= 0 ? (void)0 : fatal("HDF5 failed: " #call))

/* What a simulation computes. A kernel of CUDA would be here. */
typedef struct advance_args {
  float *u;
  int step;
} advance_args;

static void advance(const void *arg) {
  const advance_args *const a = arg;
  float *const u = gpuf_host_pointer(a->u);
  for (int i = 0; i < NX * NY; i++) {
    u[i] = (float)(a->step * 1000 + i % NY);
  }
}

/* A dataset without steps, in chunks of one step that the gpufetch filter encodes. */
static hid_t create_series(hid_t file) {
  const hsize_t dims[] = {0, NX, NY}, most[] = {H5S_UNLIMITED, NX, NY}, chunk[] = {1, NX, NY};
  const hid_t space = H5Screate_simple(3, dims, most), plist = H5Pcreate(H5P_DATASET_CREATE);
  CHECK(gpuf_h5_filter_register(&error));
  CHECK_H5(H5Pset_chunk(plist, 3, chunk));
  CHECK_H5(H5Pset_filter(plist, GPUF_H5_FILTER_ID, H5Z_FLAG_MANDATORY, 0, NULL));
  const hid_t series =
      H5Dcreate2(file, "u", H5T_IEEE_F32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  CHECK_H5(series);
  CHECK_H5(H5Pclose(plist));
  CHECK_H5(H5Sclose(space));
  return series;
}

/* Begin to append `u`, which has one step. */
static gpuf_h5_future *append(hid_t series, int step, const gpuf_tensor *u) {
  const hsize_t dims[] = {(hsize_t)step + 1, NX, NY};
  const int64_t start[] = {step, 0, 0};
  gpuf_h5_future *future;
  CHECK_H5(H5Dset_extent(series, dims));
  CHECK(gpuf_h5_write_region_async(series, start, u, NULL, &future, &error));
  return future;
}

int main(int argc, char **argv) {
  const int64_t shape[] = {1, NX, NY};
  const int steps = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 10;
  gpuf_device device;
  gpuf_stream stream;
  gpuf_tensor u;
  gpuf_h5_future *future = NULL;
  if (argc < 2) {
    fatal("usage: append FILE [STEPS]");
  }
  CHECK(gpuf_device_default(&device, &error));
  if (device.kind != GPUF_DEVICE_HOST) {
    fatal("its kernel is of the host backend: set GPUFETCH_BACKEND=host");
  }
  CHECK(gpuf_stream_create(device, &stream, &error));
  CHECK(gpuf_tensor_alloc(device, GPUF_DTYPE_FLOAT32, 3, shape, &u, &error));
  u.stream = stream; /* the write waits for the kernel */
  const hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  CHECK_H5(file);
  const hid_t series = create_series(file);
  for (int step = 0; step < steps; step++) {
    const advance_args args = {u.data, step};
    if (future) {
      CHECK(gpuf_h5_future_wait_copied(future, -1, &error)); /* u may be overwritten now */
    }
    CHECK(gpuf_host_launch(device, stream, advance, &args, sizeof args, &error));
    if (future) { /* the step before goes to HDF5 while the kernel runs */
      CHECK(gpuf_h5_future_wait(future, -1, &error));
      gpuf_h5_future_destroy(future);
    }
    future = append(series, step, &u);
  }
  if (future) {
    CHECK(gpuf_h5_future_wait(future, -1, &error));
    gpuf_h5_future_destroy(future);
  }
  CHECK_H5(H5Dclose(series));
  CHECK_H5(H5Fclose(file)); /* the file has it all once this has succeeded */
  CHECK(gpuf_stream_destroy(device, stream, &error));
  CHECK(gpuf_tensor_free(&u, &error));
  return 0;
}
