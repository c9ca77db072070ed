/* Results do not depend on the floating-point environment of the program, which keeps its own. */
#include <float.h>
#include <gpufetch/reduce.h>
#include <math.h>

#include "base/thread.h"
#include "codec/codec.h"
#include "environments.h"
#include "reductions.h"

#define COUNT 3000

/* Elements of every kind in turns: any bits, subnormal numbers, decimals, NaN and numbers that
 * overflow when they are squared. */
static void fill_elements(gpuf_dtype dtype, void *elements) {
  const size_t nbytes = gpuf_dtype_nbytes(dtype);
  char *at = elements;
  fill_random(elements, COUNT * nbytes, dtype);
  for (int i = 0; i < COUNT; i++, at += nbytes) {
    const int kind = i % 5;
    const double number = kind == 4 ? 1e300 * i : kind == 3 && i % 4 == 0 ? NAN : 0.01 * (i - 900);
    const float narrow = kind == 4 ? 1e35F * (float)i : (float)number;
    if (kind == 1) {
      memset(at + nbytes - 1, 0, 1); /* a small exponent */
      memset(at + nbytes - (nbytes > 1 ? 2 : 1), 0, 1);
    } else if (kind > 1 && dtype == GPUF_DTYPE_FLOAT64) {
      memcpy(at, &number, nbytes);
    } else if (kind > 1 && (dtype == GPUF_DTYPE_FLOAT32 || dtype == GPUF_DTYPE_BFLOAT16)) {
      memcpy(at, (const char *)&narrow + sizeof(narrow) - nbytes, nbytes);
    } else if (dtype == GPUF_DTYPE_BOOL) {
      *at &= 1;
    }
  }
}

/* The elements on the CPU and on the host backend, as a matrix. */
typedef struct elements {
  gpuf_tensor cpu, device;
} elements;

static elements elements_create(gpuf_dtype dtype) {
  static char bytes[COUNT * 8];
  const int64_t shape[2] = {COUNT / 50, 50};
  const size_t nbytes = COUNT * gpuf_dtype_nbytes(dtype);
  elements e;
  fill_elements(dtype, bytes);
  void *const d_ptr = device_alloc(nbytes);
  upload(d_ptr, bytes, nbytes);
  CHECK_OK(gpuf_tensor_init(&e.cpu, bytes, cpu_device, dtype, 2, shape, &err));
  CHECK_OK(gpuf_tensor_init(&e.device, d_ptr, test_device, dtype, 2, shape, &err));
  return e;
}

static const char *label(const char *what, const gpuf_tensor *src, int number) {
  static char text[60];
  snprintf(text, sizeof(text), "%s %d of %s %s", what, number, gpuf_dtype_name(src->dtype),
           src->device.kind == GPUF_DEVICE_CPU ? "on the CPU" : "on a device");
  return text;
}

/* --- Casts -------------------------------------------------------------------------- */

static void cast_to_all(const gpuf_tensor *src, const environment_state *state) {
  static char result[COUNT * 8];
  const gpuf_copy_options options = {.struct_nbytes = sizeof(options), .cast = true};
  gpuf_tensor dst;
  for (size_t i = 0; i < REAL_DTYPE_COUNT; i++) {
    if (real_dtypes[i] != GPUF_DTYPE_FLOAT8_E8M0FNU) { /* to which nothing is cast */
      CHECK_OK(gpuf_tensor_init(&dst, result, cpu_device, real_dtypes[i], 2, src->shape, &err));
      CHECK_OK(gpuf_copy(&dst, src, &options, &err));
      CHECK_ENVIRONMENT(*state);
      record(label("cast", src, (int)real_dtypes[i]), result, gpuf_tensor_nbytes(&dst));
    }
  }
}

static void cast_all(const environment *e) {
  test_device = host_device;
  for (size_t i = 0; i < REAL_DTYPE_COUNT; i++) {
    leave_environment();
    const elements of = elements_create(real_dtypes[i]);
    const environment_state state = enter_environment(e);
    cast_to_all(&of.cpu, &state);
    cast_to_all(&of.device, &state);
    CHECK_OK(gpuf_free(test_device, of.device.data, &err));
  }
}

static void casts_are_the_same_in_any_environment(void) {
  run_in_environments(cast_all);
}

/* --- Reductions --------------------------------------------------------------------- */

static void reduce(const gpuf_tensor *src, const environment_state *state) {
  const int64_t shape[2] = {7, 11};
  const double ranges[2][2] = {{-0.3, 0.7}, {1, 1 + DBL_EPSILON}};
  gpuf_stats stats = GPUF_STATS_INIT;
  CHECK_OK(gpuf_reduce_stats(src, &stats, &err));
  CHECK_ENVIRONMENT(*state);
  record(label("statistics", src, 0), &stats, sizeof(stats));
  for (int method = GPUF_OVERVIEW_MEAN; method <= GPUF_OVERVIEW_FIRST; method++) {
    char cells[2][77 * 8] = {0};
    CHECK_OK(gpuf_reduce_overview(src, (gpuf_overview_method)method, shape, cells[0], cells[1],
                                  NULL, &err));
    CHECK_ENVIRONMENT(*state);
    record(label("overview", src, method), cells, sizeof(cells));
  }
  for (int i = 0; i < 3; i++) { /* the elements' own range, one that fits and one that does not */
    uint64_t bins[10] = {0};
    double edges[11] = {0};
    memset(&err, 0, sizeof(err));
    const gpuf_status status =
        gpuf_reduce_histogram(src, 10, i > 0 ? ranges[i - 1] : NULL, bins, edges, NULL, &err);
    CHECK_ENVIRONMENT(*state);
    record(label("histogram", src, i), bins, sizeof(bins));
    record(label("edges", src, i), edges, sizeof(edges));
    record(label("message", src, i), err.message, strlen(err.message));
    CHECK(i == 0 || (status == GPUF_OK) == (i == 1));
  }
}

static void reduce_all(const environment *e) {
  test_device = host_device;
  for (size_t i = 0; i < REAL_DTYPE_COUNT; i++) {
    leave_environment();
    const elements of = elements_create(real_dtypes[i]);
    const environment_state state = enter_environment(e);
    reduce(&of.cpu, &state);
    reduce(&of.device, &state);
    CHECK_OK(gpuf_free(test_device, of.device.data, &err));
  }
}

static void reductions_are_the_same_in_any_environment(void) {
  run_in_environments(reduce_all);
}

/* --- Chunks ------------------------------------------------------------------------- */

/* Numbers that the codec takes for decimals, multiples of a step, and quotients. */
static double number_of(int kind, int i) {
  switch (kind) {
  case 0:
    return (i * 7919 % 20000 - 10000) * 0.01;
  case 1:
    return i % 40 == 0 ? (double)NAN : 273.15 + 0.01 * (i * 7919 % 3000);
  case 2:
    return i * 7919 % 65536 * 0.00152590218966964 + 1.5;
  case 3:
    return i * 7919 % 256 / 255.0;
  case 4:
    return i * 7919 % 1000 * 4.94e-324;
  case 5:
    return sin(i * 0.01) * (i % 50 == 0 ? (double)INFINITY : 1e-39);
  default:
    return rint(1000 * sin(i * 0.01)) * 0.001;
  }
}
enum { NUMBER_KINDS = 7, CHUNK_COUNT = 20000 };

static void fill_chunk(int kind, bool is_double, bool is_big_endian, unsigned char *raw) {
  const size_t nbytes = is_double ? 8 : 4;
  for (int i = 0; i < CHUNK_COUNT; i++) {
    const double number = number_of(kind, i);
    const float narrow = (float)number;
    const unsigned char *from =
        is_double ? (const unsigned char *)&number : (const unsigned char *)&narrow;
    for (size_t k = 0; k < nbytes; k++) {
      raw[(size_t)i * nbytes + k] = from[is_big_endian ? nbytes - 1 - k : k];
    }
  }
}

static void code_chunk(const environment *e, int kind, bool is_double, bool is_big_endian) {
  static unsigned char raw[CHUNK_COUNT * 8], encoded[CHUNK_COUNT * 8 + 1024],
      decoded[CHUNK_COUNT * 8];
  const gpufi_chunk_shape shape = {
      is_double ? GPUF_DTYPE_FLOAT64 : GPUF_DTYPE_FLOAT32, 2, {100, CHUNK_COUNT / 100}};
  const size_t nbytes = (size_t)CHUNK_COUNT * (is_double ? 8 : 4);
  void *const scratch = aligned_alloc(64, (gpufi_codec_scratch_nbytes(&shape) + 63) & ~(size_t)63);
  size_t encoded_nbytes;
  leave_environment();
  fill_chunk(kind, is_double, is_big_endian, raw);
  const environment_state state = enter_environment(e);
  CHECK_OK((is_big_endian ? gpufi_codec_encode_big_endian : gpufi_codec_encode)(
      &shape, raw, encoded, sizeof(encoded), &encoded_nbytes, scratch, &err));
  CHECK_ENVIRONMENT(state);
  CHECK(encoded_nbytes < nbytes);
  record("chunk", encoded, encoded_nbytes);
  CHECK_OK(gpufi_codec_decode(encoded, encoded_nbytes, decoded, nbytes, &err));
  CHECK_ENVIRONMENT(state);
  CHECK(memcmp(decoded, raw, nbytes) == 0);
  free(scratch);
}

static void code_all(const environment *e) {
  for (int i = 0; i < 4 * NUMBER_KINDS; i++) {
    code_chunk(e, i / 4, i % 2 == 1, i / 2 % 2 == 1);
  }
}

static void chunks_are_the_same_in_any_environment(void) {
  run_in_environments(code_all);
}

/* --- Every trap ---------------------------------------------------------------------- */

/* HDF5 and the system's libraries do not live with these traps; the library's arithmetic does. */
static void nothing_traps_whatever_the_program_traps(void) {
  static const environment all = {"all traps", FE_TONEAREST, FE_ALL_EXCEPT, false};
  static outcomes unused;
  run_in_environment(cast_all, &all, &unused);
  memset(&unused, 0, sizeof(unused));
  run_in_environment(reduce_all, &all, &unused);
  memset(&unused, 0, sizeof(unused));
  run_in_environment(code_all, &all, &unused);
}

/* --- Threads ------------------------------------------------------------------------- */

static void *note_environment(void *arg) {
  *(environment_state *)arg = environment_now();
  return NULL;
}

static void a_thread_begins_in_the_default_environment(void) {
  for (int i = 0; i < ENVIRONMENT_COUNT; i++) {
    environment_state found = {-1, -1, -1, true};
    pthread_t thread;
    const environment_state state = enter_environment(&environments[i]);
    const int code = gpufi_thread_start(&thread, "test", 0, note_environment, &found);
    CHECK_ENVIRONMENT(state);
    leave_environment();
    CHECK(code == 0 && pthread_join(thread, NULL) == 0);
    CHECK(found.rounding == FE_TONEAREST && found.traps == 0 && !found.flushes);
  }
}

int main(void) {
  TEST(casts_are_the_same_in_any_environment);
  TEST(reductions_are_the_same_in_any_environment);
  TEST(chunks_are_the_same_in_any_environment);
  TEST(nothing_traps_whatever_the_program_traps);
  TEST(a_thread_begins_in_the_default_environment);
  return test_finish();
}
