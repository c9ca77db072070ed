/* chunk_encode and chunk_decode: chunks of docs/format.md that travel without a file. */
#include "arguments.h"
#include "dtypes.h"
#include "errors.h"
#include "methods.h"

#include "codec/codec.h"

#include <stdlib.h>

#define SCRATCH_ALIGNMENT 64

PyDoc_STRVAR(
    chunk_encode_doc,
    "chunk_encode(data, dtype, shape, /)\n--\n\n"
    "A chunk of the elements whose bytes these are, in C order, as bytes. Releases the GIL.");

static int shape_from(const gpufi_py_state *state, PyObject *dtype, PyObject *lengths,
                      gpufi_chunk_shape *shape) {
  int64_t dims[GPUF_NDIM_MAX];
  if (gpufi_py_dtype_parse(state, dtype, &shape->dtype) < 0 ||
      gpufi_py_axes_any(lengths, "shape", &shape->ndim, dims) < 0) {
    return -1;
  }
  if (shape->ndim > GPUFI_CODEC_NDIM_MAX) {
    PyErr_Format(PyExc_ValueError, "shape has %d axes: a chunk has %d at most", (int)shape->ndim,
                 GPUFI_CODEC_NDIM_MAX);
    return -1;
  }
  for (int32_t a = 0; a < shape->ndim; a++) {
    if (dims[a] < 1 || dims[a] > UINT32_MAX) {
      PyErr_Format(PyExc_ValueError, "shape[%d] is %lld: give 1 to 2**32 - 1", (int)a,
                   (long long)dims[a]);
      return -1;
    }
    shape->dims[a] = (uint32_t)dims[a];
  }
  return 0;
}

/* Without the GIL. *encoded is from malloc. */
static gpuf_status encode(const gpufi_chunk_shape *shape, const char *raw, size_t raw_nbytes,
                          void **encoded, size_t *encoded_nbytes, gpuf_error *err) {
  const size_t capacity = gpufi_codec_bound(raw_nbytes);
  void *scratch = NULL;
  gpuf_status status = GPUF_ERR_NO_MEMORY;
  *encoded = malloc(capacity);
  if (*encoded != NULL &&
      posix_memalign(&scratch, SCRATCH_ALIGNMENT, gpufi_codec_scratch_nbytes(shape)) == 0) {
    status = gpufi_codec_encode(shape, raw, *encoded, capacity, encoded_nbytes, scratch, err);
  } else {
    *err = (gpuf_error){.status = status, .message = "no memory to encode a chunk"};
    scratch = NULL;
  }
  free(scratch);
  return status;
}

static PyObject *chunk_encode(PyObject *module, PyObject *args) {
  const gpufi_py_state *state = gpufi_py_state_of_module(module);
  PyObject *data, *dtype, *lengths, *result = NULL;
  gpufi_chunk_shape shape = {0};
  gpuf_error err;
  size_t raw_nbytes, encoded_nbytes = 0;
  void *encoded = NULL;
  gpuf_status status;
  if (!PyArg_ParseTuple(args, "SOO:chunk_encode", &data, &dtype, &lengths) ||
      shape_from(state, dtype, lengths, &shape) < 0) {
    return NULL;
  }
  if (gpufi_chunk_raw_nbytes(&shape, &raw_nbytes, &err) != GPUF_OK) {
    return gpufi_py_raise(state, &err);
  }
  if ((size_t)PyBytes_Size(data) != raw_nbytes) {
    return PyErr_Format(PyExc_ValueError, "data has %zd bytes: the shape needs %zu",
                        PyBytes_Size(data), raw_nbytes);
  }
  const char *const raw = PyBytes_AsString(data);
  Py_BEGIN_ALLOW_THREADS
    status = encode(&shape, raw, raw_nbytes, &encoded, &encoded_nbytes, &err);
  Py_END_ALLOW_THREADS
  result = status == GPUF_OK ? PyBytes_FromStringAndSize(encoded, (Py_ssize_t)encoded_nbytes)
                             : gpufi_py_raise(state, &err);
  free(encoded);
  return result;
}

PyDoc_STRVAR(
    chunk_decode_doc,
    "chunk_decode(chunk, nbytes, /)\n--\n\n"
    "The bytes of a chunk's elements, which are so many. gpufetch.Error, or TypeError for\n"
    "another version of the format, says what is wrong with it. Releases the GIL.");

static PyObject *chunk_decode(PyObject *module, PyObject *args) {
  PyObject *chunk, *size, *result;
  gpuf_error err;
  gpuf_status status;
  size_t nbytes;
  if (!PyArg_ParseTuple(args, "SO:chunk_decode", &chunk, &size) ||
      gpufi_py_nbytes(size, &nbytes) < 0) {
    return NULL;
  }
  result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)nbytes);
  if (result == NULL) {
    return NULL;
  }
  const char *const encoded = PyBytes_AsString(chunk);
  const size_t encoded_nbytes = (size_t)PyBytes_Size(chunk);
  char *const raw = PyBytes_AsString(result);
  Py_BEGIN_ALLOW_THREADS
    status = gpufi_codec_decode(encoded, encoded_nbytes, raw, nbytes, &err);
  Py_END_ALLOW_THREADS
  if (status != GPUF_OK) {
    Py_CLEAR(result);
    gpufi_py_raise(gpufi_py_state_of_module(module), &err);
  }
  return result;
}

PyMethodDef gpufi_py_chunk_methods[] = {
    {"chunk_encode", chunk_encode, METH_VARARGS, chunk_encode_doc},
    {"chunk_decode", chunk_decode, METH_VARARGS, chunk_decode_doc},
    {0},
};
