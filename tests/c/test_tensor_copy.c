/* Tensors in memory of their own on a device, and copies between them on a stream. */
#include <semaphore.h>

#include "backend/host/host.h"
#include "devices.h"

static gpuf_error err;

enum { ROWS = 700, COLUMNS = 900 }; /* of int32: more than the scratch that a copy has at a time */

/* A tensor of ROWS by COLUMNS, and what its memory is made of on the host. */
typedef struct matrix {
  gpuf_tensor whole; /* of uint8: all of the memory */
  gpuf_tensor view;
  uint8_t *bytes;
} matrix;

typedef enum layout { C_ORDER, F_ORDER, PADDED, BACKWARDS, UNALIGNED, LAYOUT_COUNT } layout;

static gpuf_tensor view_of(void *data, gpuf_device device, layout how) {
  const int64_t shape[2] = {ROWS, COLUMNS};
  gpuf_tensor t;
  CHECK_OK(gpuf_tensor_init(&t, data, device, GPUF_DTYPE_INT32, 2, shape, &err));
  switch (how) {
  case F_ORDER:
    t.strides_nbytes[0] = 4;
    t.strides_nbytes[1] = 4 * ROWS;
    break;
  case PADDED:
    t.strides_nbytes[0] = 4 * 2 * COLUMNS + 12;
    t.strides_nbytes[1] = 8;
    break;
  case BACKWARDS:
    t.data = (char *)t.data + (ROWS - 1) * 4 * COLUMNS;
    t.strides_nbytes[0] = -4 * COLUMNS;
    break;
  case UNALIGNED:
    t.data = (char *)t.data + 3;
    break;
  default:
    break;
  }
  return t;
}

static matrix matrix_create(layout how, uint64_t seed) {
  const int64_t nbytes[1] = {ROWS * (4 * 2 * COLUMNS + 12)};
  matrix m = {.bytes = malloc((size_t)nbytes[0])};
  gpuf_tensor source;
  fill_random(m.bytes, (size_t)nbytes[0], seed);
  CHECK_OK(gpuf_tensor_alloc(test_device, GPUF_DTYPE_UINT8, 1, nbytes, &m.whole, &err));
  CHECK(m.whole.stream == GPUF_STREAM_NONE && (uintptr_t)m.whole.data % 256 == 0);
  CHECK_OK(gpuf_tensor_init(&source, m.bytes, cpu_device, GPUF_DTYPE_UINT8, 1, nbytes, &err));
  CHECK_OK(gpuf_copy(&m.whole, &source, NULL, &err));
  m.view = view_of(m.whole.data, test_device, how);
  return m;
}

static void matrix_destroy(matrix *m) {
  CHECK_OK(gpuf_tensor_free(&m->whole, &err));
  CHECK(m->whole.data == NULL);
  CHECK_OK(gpuf_tensor_free(&m->whole, &err)); /* nothing is left to free */
  free(m->bytes);
}

/* The memory of `dst` is what its bytes are after the same copy on the host, to the last. */
static void check_copied(const matrix *dst, layout dst_how, const matrix *src, layout src_how) {
  const gpuf_tensor to = view_of(dst->bytes, cpu_device, dst_how);
  const gpuf_tensor from = view_of(src->bytes, cpu_device, src_how);
  const size_t nbytes = gpuf_tensor_nbytes(&dst->whole);
  uint8_t *got = malloc(nbytes);
  gpuf_tensor all = dst->whole;
  all.data = got;
  all.device = cpu_device;
  CHECK_OK(gpuf_copy(&to, &from, NULL, &err));
  CHECK_OK(gpuf_copy(&all, &dst->whole, NULL, &err));
  CHECK(memcmp(got, dst->bytes, nbytes) == 0);
  free(got);
}

static void every_layout_arrives_and_nothing_else_is_written(void) {
  gpuf_stream stream;
  CHECK_OK(gpuf_stream_create(test_device, &stream, &err));
  for (int i = 0; i < LAYOUT_COUNT * LAYOUT_COUNT; i++) {
    const layout from = (layout)(i % LAYOUT_COUNT), to = (layout)(i / LAYOUT_COUNT);
    matrix src = matrix_create(from, 3), dst = matrix_create(to, 4);
    CHECK_OK(gpuf_tensor_copy(&dst.view, &src.view, stream, &err));
    CHECK_OK(gpuf_stream_synchronize(test_device, stream, &err));
    check_copied(&dst, to, &src, from);
    matrix_destroy(&src);
    matrix_destroy(&dst);
  }
  CHECK_OK(gpuf_stream_destroy(test_device, stream, &err));
}

/* 20 MiB: as several pieces where it is flat, and in turns through the scratch where it is not. */
static void a_long_tensor_arrives(void) {
  const int64_t shape[1] = {20 << 20}, half[1] = {10 << 20};
  gpuf_tensor a, b, target;
  uint8_t *bytes = malloc(20 << 20), *got = malloc(20 << 20);
  fill_random(bytes, 20 << 20, 9);
  CHECK_OK(gpuf_tensor_alloc(test_device, GPUF_DTYPE_UINT8, 1, shape, &a, &err));
  CHECK_OK(gpuf_tensor_alloc(test_device, GPUF_DTYPE_UINT8, 1, shape, &b, &err));
  CHECK_OK(gpuf_tensor_init(&target, bytes, cpu_device, GPUF_DTYPE_UINT8, 1, shape, &err));
  CHECK_OK(gpuf_copy(&a, &target, NULL, &err));
  CHECK_OK(gpuf_tensor_copy(&b, &a, GPUF_STREAM_PER_THREAD, &err));
  b.stream = GPUF_STREAM_PER_THREAD;
  target.data = got;
  CHECK_OK(gpuf_copy(&target, &b, NULL, &err));
  CHECK(memcmp(got, bytes, 20 << 20) == 0);
  gpuf_tensor even = a, odd = b;
  CHECK_OK(gpuf_tensor_slice(&even, 0, 0, 2, half[0], &err));
  CHECK_OK(gpuf_tensor_slice(&odd, 0, 1, 2, half[0], &err));
  CHECK_OK(gpuf_tensor_copy(&odd, &even, GPUF_STREAM_PER_THREAD, &err));
  CHECK_OK(gpuf_copy(&target, &b, NULL, &err));
  for (int64_t i = 0; i < shape[0]; i++) {
    CHECK(got[i] == bytes[i & ~INT64_C(1)]);
  }
  b.stream = GPUF_STREAM_NONE;
  CHECK_OK(gpuf_tensor_free(&a, &err));
  CHECK_OK(gpuf_tensor_free(&b, &err));
  free(bytes);
  free(got);
}

static sem_t gate;

static void gated_kernel(const void *args) {
  sem_wait(&gate);
}

/* The sides' streams are held up in turn: the copy must not wait for them, but its work must. */
static void the_copy_is_ordered_behind_the_streams_of_both_sides(void) {
  for (int side = 0; side < 3; side++) {
    gpuf_stream held, stream;
    matrix src = matrix_create(C_ORDER, 1), dst = matrix_create(PADDED, 2);
    CHECK_OK(gpuf_stream_create(test_device, &held, &err));
    CHECK_OK(gpuf_stream_create(test_device, &stream, &err));
    CHECK(sem_init(&gate, 0, 0) == 0);
    CHECK_OK(gpuf_host_launch(test_device, side < 2 ? held : stream, gated_kernel, "", 0, &err));
    *(side == 0 ? &src.view.stream : &dst.view.stream) = side < 2 ? held : stream;
    CHECK_OK(gpuf_tensor_copy(&dst.view, &src.view, stream, &err));
    dst.view.stream = stream;
    gpuf_future *future;
    int32_t *got = malloc(sizeof(int32_t) * ROWS * COLUMNS);
    const gpuf_tensor target = view_of(got, cpu_device, C_ORDER);
    CHECK_OK(gpuf_copy_async(&target, &dst.view, NULL, &future, &err));
    CHECK_FAILS(gpuf_future_wait(future, 20000000, &err), GPUF_ERR_TIMEOUT, "");
    sem_post(&gate);
    CHECK_OK(gpuf_future_wait(future, -1, &err));
    CHECK(memcmp(got, src.bytes, sizeof(int32_t) * ROWS * COLUMNS) == 0);
    gpuf_future_destroy(future);
    free(got);
    matrix_destroy(&src);
    matrix_destroy(&dst);
    CHECK_OK(gpuf_stream_destroy(test_device, held, &err));
    CHECK_OK(gpuf_stream_destroy(test_device, stream, &err));
  }
}

static void what_does_not_fit_is_refused(void) {
  const int64_t shape[1] = {6}, longer[1] = {7}, none[1] = {0};
  static float data[6];
  const gpuf_stream stream = GPUF_STREAM_LEGACY;
  gpuf_tensor a, b, c, other, cpu, empty;
  CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_FLOAT32, 1, shape, &a, &err));
  CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_INT32, 1, shape, &b, &err));
  CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_FLOAT32, 1, longer, &c, &err));
  CHECK_OK(gpuf_tensor_alloc(host_device, GPUF_DTYPE_FLOAT32, 1, none, &empty, &err));
  CHECK_OK(gpuf_tensor_init(&cpu, data, cpu_device, GPUF_DTYPE_FLOAT32, 1, shape, &err));
  CHECK_FAILS(gpuf_tensor_copy(&a, &b, stream, &err), GPUF_ERR_INVALID, "int32");
  CHECK_FAILS(gpuf_tensor_copy(&a, &c, stream, &err), GPUF_ERR_INVALID, "shape[0] is 6");
  CHECK_FAILS(gpuf_tensor_copy(&a, &cpu, stream, &err), GPUF_ERR_INVALID, "gpuf_copy");
  CHECK_FAILS(gpuf_tensor_copy(&cpu, &a, stream, &err), GPUF_ERR_INVALID, "gpuf_copy");
  CHECK_FAILS(gpuf_tensor_copy(&a, &a, GPUF_STREAM_NONE, &err), GPUF_ERR_INVALID, "STREAM_NONE");
  other = a;
  other.device.index = 1;
  CHECK_FAILS(gpuf_tensor_copy(&other, &a, stream, &err), GPUF_ERR_UNSUPPORTED, "host:1");
  other = a;
  other.strides_nbytes[0] = 0;
  CHECK_FAILS(gpuf_tensor_copy(&other, &a, stream, &err), GPUF_ERR_INVALID, "repeats one element");
  CHECK(empty.data == NULL);
  CHECK_OK(gpuf_tensor_copy(&empty, &empty, stream, &err));
  CHECK_FAILS(gpuf_tensor_alloc(cpu_device, GPUF_DTYPE_FLOAT32, 1, shape, &other, &err),
              GPUF_ERR_INVALID, "device kind 0");
  CHECK_FAILS(gpuf_tensor_alloc(host_device, (gpuf_dtype)99, 1, shape, &other, &err),
              GPUF_ERR_INVALID, "dtype 99");
  CHECK_OK(gpuf_tensor_free(&a, &err));
  CHECK_OK(gpuf_tensor_free(&b, &err));
  CHECK_OK(gpuf_tensor_free(&c, &err));
}

int main(void) {
  TEST_ON_DEVICES(every_layout_arrives_and_nothing_else_is_written);
  TEST_ON_DEVICES(a_long_tensor_arrives);
  test_device = host_device;
  TEST(the_copy_is_ordered_behind_the_streams_of_both_sides);
  TEST(what_does_not_fit_is_refused);
  return test_finish();
}
