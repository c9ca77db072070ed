/* Times the codec on a device, step by step, for `run.py --case gpucodec`.
 *
 *   codec_device DEVICE DTYPE SHAPE FILE
 *
 * FILE holds the packed elements of an array of SHAPE ("1024,64,64,64"; the first axis counts the
 * chunks) and DTYPE ("float32"); DEVICE is "cuda:0" or "host:0". Each line of the output is one
 * JSON object. The first says how many bytes there are and how many when encoded. Then each line of
 * the input is a request:
 *
 *   STEP REPEATS   do it and wait for the end: {"step": STEP, "repeats": N, "seconds": of all N}.
 *                  STEP is encode or decode
 *   check          is what was decoded last the file's contents? {"same": true}
 *
 * A failure is {"error": "..."}, and the end. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "coder.h"

#define LINE_NBYTES 64

/* The input: a file's contents, mapped. */
typedef struct input {
  gpuf_device device;
  gpuf_dtype dtype;
  int32_t ndim;
  int64_t shape[GPUF_NDIM_MAX];
  void *data;
  size_t nbytes;
} input;

/* --- Arguments ----------------------------------------------------------- */

/* The whole number >= 0 that `text` is, or -1. */
static int64_t parse_number(const char *text) {
  char *end;
  errno = 0;
  const long long number = strtoll(text, &end, 10);
  return end == text || *end != '\0' || errno != 0 || number < 0 ? -1 : number;
}

static gpuf_status parse_device(const char *text, gpuf_device *device, gpuf_error *err) {
  const bool cuda = strncmp(text, "cuda:", 5) == 0, host = strncmp(text, "host:", 5) == 0;
  const int64_t index = cuda || host ? parse_number(text + 5) : -1;
  if (index < 0 || index > INT32_MAX) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "device %s; it is cuda:N or host:N", text);
  }
  *device = (gpuf_device){cuda ? GPUF_DEVICE_CUDA : GPUF_DEVICE_HOST, (int32_t)index};
  return GPUF_OK;
}

static gpuf_status parse_dtype(const char *text, gpuf_dtype *dtype, gpuf_error *err) {
  for (int i = 1; i <= GPUF_DTYPE_MAX; i++) {
    if (strcmp(text, gpuf_dtype_name((gpuf_dtype)i)) == 0) {
      *dtype = (gpuf_dtype)i;
      return GPUF_OK;
    }
  }
  return gpufi_fail(err, GPUF_ERR_INVALID, 0, "dtype %s; it is float32, uint8 ...", text);
}

static gpuf_status parse_shape(const char *text, input *in, gpuf_error *err) {
  for (const char *at = text;; at++) {
    char *end;
    if (in->ndim == GPUF_NDIM_MAX) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0, "shape %s has more than %d axes", text,
                        GPUF_NDIM_MAX);
    }
    in->shape[in->ndim++] = strtoll(at, &end, 10);
    if (end == at || (*end != ',' && *end != '\0')) {
      return gpufi_fail(err, GPUF_ERR_INVALID, 0, "shape %s; it is 1024,64,64", text);
    }
    if (*end == '\0') {
      return GPUF_OK;
    }
    at = end;
  }
}

static gpuf_status map_file(const char *path, input *in, gpuf_error *err) {
  struct stat status;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0 || fstat(file, &status) != 0 || status.st_size == 0) {
    if (file >= 0) {
      close(file);
    }
    return gpufi_fail(err, GPUF_ERR_IO, 0, "%s cannot be read, or is empty", path);
  }
  in->nbytes = (size_t)status.st_size;
  in->data = mmap(NULL, in->nbytes, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  return in->data == MAP_FAILED ? gpufi_fail(err, GPUF_ERR_IO, 0, "%s cannot be mapped", path)
                                : GPUF_OK;
}

static gpuf_status parse(char **argv, input *in, gpuf_error *err) {
  gpuf_tensor tensor;
  gpuf_status status = parse_device(argv[1], &in->device, err);
  if (status == GPUF_OK) {
    status = parse_dtype(argv[2], &in->dtype, err);
  }
  if (status == GPUF_OK) {
    status = parse_shape(argv[3], in, err);
  }
  if (status == GPUF_OK) {
    status = map_file(argv[4], in, err);
  }
  if (status == GPUF_OK) {
    status = gpuf_tensor_init(&tensor, in->data, (gpuf_device){GPUF_DEVICE_CPU, 0}, in->dtype,
                              in->ndim, in->shape, err);
  }
  if (status == GPUF_OK && gpuf_tensor_nbytes(&tensor) != in->nbytes) {
    return gpufi_fail(err, GPUF_ERR_INVALID, 0, "%s has %zu bytes; the shape and dtype make %zu",
                      argv[4], in->nbytes, gpuf_tensor_nbytes(&tensor));
  }
  return status;
}

/* --- Requests ------------------------------------------------------------ */

static gpuf_status run_step(coder *c, const char *step, int64_t repeats, gpuf_error *err) {
  if (strcmp(step, "encode") == 0) {
    return coder_encode(c, repeats, err);
  }
  if (strcmp(step, "decode") == 0) {
    return coder_decode(c, repeats, err);
  }
  return gpufi_fail(err, GPUF_ERR_INVALID, 0, "%s is not encode, decode or check", step);
}

static gpuf_status answer_step(coder *c, const char *step, int64_t repeats, gpuf_error *err) {
  gpuf_status status = coder_wake(c, err);
  const int64_t start_ns = gpufi_clock_ns();
  if (status == GPUF_OK) {
    status = run_step(c, step, repeats, err);
  }
  const int64_t end_ns = gpufi_clock_ns();
  if (status == GPUF_OK) {
    printf("{\"step\": \"%s\", \"repeats\": %" PRId64 ", \"seconds\": %.9f}\n", step, repeats,
           (double)(end_ns - start_ns) / (double)GPUFI_NS_PER_S);
  }
  return status;
}

static gpuf_status answer_check(const coder *c, const input *in, gpuf_error *err) {
  void *decoded = malloc(in->nbytes);
  if (!decoded || !in->data) {
    free(decoded);
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %zu bytes", in->nbytes);
  }
  const gpuf_status status = coder_decoded(c, decoded, err);
  if (status == GPUF_OK) {
    printf("{\"same\": %s}\n", memcmp(decoded, in->data, in->nbytes) == 0 ? "true" : "false");
  }
  free(decoded);
  return status;
}

/* One line of the input. */
static gpuf_status answer(coder *c, const input *in, char *line, gpuf_error *err) {
  char *rest = NULL;
  const char *step = strtok_r(line, " \n", &rest);
  const char *repeats = strtok_r(NULL, " \n", &rest);
  if (!step) {
    return GPUF_OK;
  }
  if (strcmp(step, "check") == 0) {
    return answer_check(c, in, err);
  }
  const int64_t count = repeats ? parse_number(repeats) : 1;
  return count < 0 ? gpufi_fail(err, GPUF_ERR_INVALID, 0, "%s is no number of repeats", repeats)
                   : answer_step(c, step, count, err);
}

static gpuf_status answer_all(coder *c, const input *in, gpuf_error *err) {
  char line[LINE_NBYTES];
  gpuf_status status = GPUF_OK;
  printf("{\"nbytes\": %zu, \"encoded_nbytes\": %zu}\n", in->nbytes, coder_encoded_nbytes(c));
  fflush(stdout);
  while (status == GPUF_OK && fgets(line, sizeof(line), stdin)) {
    status = answer(c, in, line, err);
    fflush(stdout);
  }
  return status;
}

static void print_error(const char *message) {
  printf("{\"error\": \"");
  for (; *message; message++) {
    if (*message == '"' || *message == '\\') {
      putchar('\\');
    }
    putchar(*message);
  }
  printf("\"}\n");
}

int main(int argc, char **argv) {
  input in = {0};
  coder c = {0};
  gpuf_error err = {0};
  if (argc != 5) {
    fprintf(stderr, "usage: codec_device DEVICE DTYPE SHAPE FILE\n");
    return 2;
  }
  gpuf_status status = parse(argv, &in, &err);
  if (status == GPUF_OK) {
    status = coder_init(&c, in.device, in.dtype, in.ndim, in.shape, in.data, &err);
  }
  if (status == GPUF_OK) {
    status = answer_all(&c, &in, &err);
  }
  if (status != GPUF_OK) {
    print_error(err.message);
  }
  coder_fini(&c);
  return status == GPUF_OK ? 0 : 1;
}
