/* What the HDF5 tests share: a file in the working folder, tensors with data, and reading back. */
#ifndef GPUFI_TEST_HDF5_FILES_H
#define GPUFI_TEST_HDF5_FILES_H

#include <gpufetch/hdf5.h>
#include <hdf5.h>

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "devices.h"

static gpuf_error err;
static char file_path[64];

static inline hid_t create_file(void) {
  hid_t file;
  snprintf(file_path, sizeof(file_path), "test_hdf5_%ld.h5", (long)getpid());
  file = H5Fcreate(file_path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  CHECK(file >= 0);
  return file;
}

/* No identifier may be left open but the file's own. */
static inline void close_file(hid_t file) {
  CHECK(H5Fget_obj_count(file, H5F_OBJ_ALL) == 1);
  CHECK(H5Fclose(file) >= 0);
  CHECK(unlink(file_path) == 0);
}

/* Elements of a smooth field with some noise, in a packed CPU tensor. */
static inline gpuf_tensor create_cpu(gpuf_dtype dtype, int32_t ndim, const int64_t *shape,
                                     uint64_t seed) {
  gpuf_tensor tensor;
  size_t nbytes = gpuf_dtype_nbytes(dtype);
  unsigned char *bytes;
  for (int32_t axis = 0; axis < ndim; axis++) {
    nbytes *= (size_t)shape[axis];
  }
  bytes = malloc(nbytes + 1);
  CHECK(bytes);
  fill_random(bytes, nbytes, seed);
  if (dtype == GPUF_DTYPE_FLOAT32) {
    for (size_t i = 0; i < nbytes / 4; i++) {
      const float value = sinf((float)i * 0.01f) + (float)bytes[4 * i] * 1e-4f;
      memcpy(bytes + 4 * i, &value, 4);
    }
  } else if (dtype == GPUF_DTYPE_BOOL) {
    for (size_t i = 0; i < nbytes; i++) {
      bytes[i] &= 1;
    }
  }
  CHECK_OK(gpuf_tensor_init(&tensor, bytes, cpu_device, dtype, ndim, shape, &err));
  tensor.data = bytes; /* the tensor owns them from here on: see destroy */
  return tensor;
}

static inline gpuf_tensor create_on_device(const gpuf_tensor *like) {
  gpuf_tensor tensor;
  void *d_data;
  CHECK_OK(gpuf_alloc(test_device, gpuf_tensor_nbytes(like), &d_data, &err));
  CHECK_OK(
      gpuf_tensor_init(&tensor, d_data, test_device, like->dtype, like->ndim, like->shape, &err));
  return tensor;
}

static inline gpuf_tensor copy_to_device(const gpuf_tensor *src) {
  const gpuf_tensor tensor = create_on_device(src);
  CHECK_OK(gpuf_copy(&tensor, src, NULL, &err));
  return tensor;
}

static inline void destroy(gpuf_tensor *tensor) {
  if (tensor->device.kind == GPUF_DEVICE_CPU) {
    free(tensor->data);
  } else {
    CHECK_OK(gpuf_free(tensor->device, tensor->data, &err));
  }
}

/* Bytes of `tensor` are those of the packed CPU tensor `expected`. */
static inline void check_equal(const gpuf_tensor *tensor, const gpuf_tensor *expected) {
  gpuf_tensor copy = create_cpu(expected->dtype, expected->ndim, expected->shape, 99);
  CHECK_OK(gpuf_copy(&copy, tensor, NULL, &err));
  CHECK(!memcmp(copy.data, expected->data, gpuf_tensor_nbytes(expected)));
  destroy(&copy);
}

/* Dataset `name` reads back as `expected`, into device and host memory. */
static inline void check_stored(hid_t file, const char *name, const gpuf_tensor *expected) {
  gpuf_tensor on_device = create_on_device(expected);
  gpuf_tensor on_cpu = create_cpu(expected->dtype, expected->ndim, expected->shape, 98);
  CHECK_OK(gpuf_h5_read(file, name, &on_device, NULL, &err));
  check_equal(&on_device, expected);
  CHECK_OK(gpuf_h5_read(file, name, &on_cpu, NULL, &err));
  check_equal(&on_cpu, expected);
  destroy(&on_device);
  destroy(&on_cpu);
}

/* Write `expected` from device memory as dataset `name`, and read it back. */
static inline void check_written(hid_t file, const char *name, const gpuf_tensor *expected,
                                 const gpuf_h5_options *options) {
  gpuf_tensor src = copy_to_device(expected);
  CHECK_OK(gpuf_h5_write(file, name, &src, options, &err));
  check_stored(file, name, expected);
  destroy(&src);
}

/* HDF5's own H5Dread, through the filter, gives the same bytes. */
static inline void check_stored_by_hdf5(hid_t file, const char *name, const gpuf_tensor *expected) {
  const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
  const hid_t type = H5Dget_type(dataset);
  void *bytes = malloc(gpuf_tensor_nbytes(expected) + 1);
  CHECK(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes) >= 0);
  CHECK(!memcmp(bytes, expected->data, gpuf_tensor_nbytes(expected)));
  free(bytes);
  H5Tclose(type);
  H5Dclose(dataset);
}

/* Create an empty dataset of `type` with the given property list, which is closed. */
static inline hid_t create_dataset(hid_t file, const char *name, hid_t type, int ndim,
                                   const hsize_t *shape, hid_t plist) {
  const hid_t space = H5Screate_simple(ndim, shape, NULL);
  const hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  CHECK(dataset >= 0);
  H5Sclose(space);
  H5Pclose(plist);
  return dataset;
}

/* A lock for gpuf_h5_options that must not be taken twice. */
static int lock_depth, lock_count;

static inline void lock(void *arg) {
  CHECK(lock_depth++ == 0);
  lock_count++;
}
static inline void unlock(void *arg) {
  CHECK(--lock_depth == 0);
}

#endif
