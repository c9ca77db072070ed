/* Conversion on the way from and to a device, against the reference of cast.c. That the reference
 * itself agrees with NumPy and ml_dtypes is tested from Python. */
#include <math.h>

#include "backend/cast.h"
#include "backend/strided.h"
#include "devices.h"

static gpuf_error err;

#define COUNT 20000

static char source[COUNT * 8 + 16], packed[COUNT * 8], expected[COUNT * 8];
static char uploaded[sizeof(source)], wanted[sizeof(source)];

static bool is_real(gpuf_dtype dtype) {
  return dtype != GPUF_DTYPE_COMPLEX64 && dtype != GPUF_DTYPE_COMPLEX128;
}

/* A reversed, transposed, unaligned view into `bytes` of the size of `source`. */
static gpuf_tensor awkward_view(char *bytes, gpuf_dtype dtype, int pair) {
  const int64_t shape[2] = {100, 200}, element_nbytes = (int64_t)gpuf_dtype_nbytes(dtype);
  gpuf_tensor view;
  CHECK_OK(gpuf_tensor_init(&view, bytes + pair % 2, cpu_device, dtype, 2, shape, &err));
  view.strides_nbytes[0] = element_nbytes;
  view.strides_nbytes[1] = -element_nbytes * shape[0];
  view.data = (char *)view.data + 199 * 100 * element_nbytes;
  return view;
}

/* All bytes between the device and host memory. */
static void transfer(void *d_ptr, char *bytes, bool upload) {
  const int64_t nbytes[1] = {sizeof(source)};
  gpuf_tensor whole, host;
  CHECK_OK(gpuf_tensor_init(&whole, d_ptr, test_device, GPUF_DTYPE_INT8, 1, nbytes, &err));
  CHECK_OK(gpuf_tensor_init(&host, bytes, cpu_device, GPUF_DTYPE_INT8, 1, nbytes, &err));
  CHECK_OK(upload ? gpuf_copy(&whole, &host, NULL, &err) : gpuf_copy(&host, &whole, NULL, &err));
}

/* Memory of the device, of the size of `source`, and pinned memory of the size of `packed`. */
typedef struct memories {
  void *d_ptr, *pinned;
} memories;

static memories memories_create(void) {
  memories m;
  CHECK_OK(gpuf_alloc(test_device, sizeof(source), &m.d_ptr, &err));
  CHECK_OK(gpuf_pool_acquire(test_device, sizeof(packed), &m.pinned, &err));
  return m;
}

static void memories_destroy(const memories *m) {
  gpuf_pool_release(m->pinned, NULL);
  CHECK_OK(gpuf_free(test_device, m->d_ptr, &err));
}

#define PAIR_COUNT (GPUF_DTYPE_MAX * GPUF_DTYPE_MAX)

/* The cast from one type to another; false where there is none. */
static bool cast_of_pair(int pair, gpufi_cast *cast) {
  *cast = (gpufi_cast){1 + pair / GPUF_DTYPE_MAX, 1 + pair % GPUF_DTYPE_MAX};
  return cast->from != cast->to && is_real(cast->from) && gpufi_cast_offered(*cast);
}

/* Copy with a cast; pieces and the memory of the CPU's side differ from pair to pair. */
static gpuf_status copy_pair(const gpuf_tensor *dst, const gpuf_tensor *src, int pair) {
  const gpuf_copy_options options = {
      .struct_nbytes = sizeof(options), .cast = true, .piece_nbytes = pair % 3 ? 0 : 5000};
  return gpuf_copy(dst, src, &options, &err);
}

static gpuf_tensor cpu_side(const memories *m, gpuf_dtype dtype, int pair) {
  const int64_t shape[2] = {100, 200};
  gpuf_tensor side;
  void *data = pair % 4 ? m->pinned : packed;
  CHECK_OK(gpuf_tensor_init(&side, data, cpu_device, dtype, 2, shape, &err));
  return side;
}

/* All pairs, from such a view, to pinned and to pageable memory. */
static void every_pair_of_types_agrees_with_the_reference(void) {
  const memories m = memories_create();
  gpufi_cast cast;
  fill_random(source, sizeof(source), 3);
  transfer(m.d_ptr, source, true);
  for (int pair = 0; pair < PAIR_COUNT; pair += test_every()) {
    if (!cast_of_pair(pair, &cast)) {
      continue;
    }
    gpuf_tensor src = awkward_view(source, cast.from, pair);
    gpufi_strided layout;
    gpufi_strided_init(&layout, &src);
    gpufi_strided_pack(&layout, src.data, 0, COUNT, packed);
    gpufi_cast_elements(cast, packed, COUNT, expected);
    src.data = (char *)m.d_ptr + ((char *)src.data - source);
    src.device = test_device;
    const gpuf_tensor dst = cpu_side(&m, cast.to, pair);
    CHECK_OK(copy_pair(&dst, &src, pair));
    CHECK(memcmp(dst.data, expected, gpuf_tensor_nbytes(&dst)) == 0);
  }
  memories_destroy(&m);
}

/* All pairs, from pinned and from pageable memory, to such a view, and nothing beside it. */
static void every_pair_of_types_is_cast_on_the_way_to_a_device(void) {
  const memories m = memories_create();
  gpufi_cast cast;
  fill_random(m.pinned, sizeof(packed), 4);
  memcpy(packed, m.pinned, sizeof(packed));
  fill_random(source, sizeof(source), 3);
  for (int pair = 0; pair < PAIR_COUNT; pair += test_every()) {
    if (!cast_of_pair(pair, &cast)) {
      continue;
    }
    gpuf_tensor dst = awkward_view(wanted, cast.to, pair);
    gpufi_strided layout;
    gpufi_strided_init(&layout, &dst);
    memcpy(wanted, source, sizeof(wanted));
    gpufi_cast_elements(cast, packed, COUNT, expected);
    gpufi_strided_unpack(&layout, dst.data, 0, COUNT, expected);
    dst.data = (char *)m.d_ptr + ((char *)dst.data - wanted);
    dst.device = test_device;
    const gpuf_tensor src = cpu_side(&m, cast.from, pair);
    transfer(m.d_ptr, source, true);
    CHECK_OK(copy_pair(&dst, &src, pair));
    transfer(m.d_ptr, uploaded, false);
    CHECK(memcmp(uploaded, wanted, sizeof(wanted)) == 0);
  }
  memories_destroy(&m);
}

static uint16_t cast_to_16(gpuf_dtype to, float value) {
  uint16_t bits;
  gpufi_cast_elements((gpufi_cast){GPUF_DTYPE_FLOAT32, to}, &value, 1, &bits);
  return bits;
}

static void ties_go_to_even_and_too_much_to_infinity(void) {
  CHECK(cast_to_16(GPUF_DTYPE_FLOAT16, 1.0f + 0x1p-11f) == 0x3c00);
  CHECK(cast_to_16(GPUF_DTYPE_FLOAT16, 1.0f + 3 * 0x1p-11f) == 0x3c02);
  CHECK(cast_to_16(GPUF_DTYPE_FLOAT16, 1.0f + 0x1p-11f + 0x1p-20f) == 0x3c01);
  CHECK(cast_to_16(GPUF_DTYPE_FLOAT16, 65519.996f) == 0x7bff);
  CHECK(cast_to_16(GPUF_DTYPE_FLOAT16, 65520.0f) == 0x7c00);
  CHECK(cast_to_16(GPUF_DTYPE_FLOAT16, 0x1p-25f) == 0);
  CHECK(cast_to_16(GPUF_DTYPE_FLOAT16, 0x1.8p-25f) == 1);
  CHECK(cast_to_16(GPUF_DTYPE_FLOAT16, -0.0f) == 0x8000);
  CHECK(cast_to_16(GPUF_DTYPE_BFLOAT16, 1.0f + 0x1p-8f) == 0x3f80);
  CHECK(cast_to_16(GPUF_DTYPE_BFLOAT16, 1.0f + 3 * 0x1p-8f) == 0x3f82);
  CHECK(cast_to_16(GPUF_DTYPE_BFLOAT16, 3.4e38f) == 0x7f80);
  CHECK(cast_to_16(GPUF_DTYPE_BFLOAT16, -NAN) == 0xffc0 ||
        cast_to_16(GPUF_DTYPE_BFLOAT16, -NAN) == 0x7fc0);
}

static void casts_that_are_not_asked_for_or_not_offered_are_refused(void) {
  const int64_t shape[1] = {4};
  const gpuf_copy_options casts = {.struct_nbytes = sizeof(casts), .cast = true};
  gpuf_tensor src, dst;
  void *d_ptr;
  float values[8] = {0};
  CHECK_OK(gpuf_alloc(test_device, 64, &d_ptr, &err));
  CHECK_OK(gpuf_tensor_init(&src, d_ptr, test_device, GPUF_DTYPE_COMPLEX64, 1, shape, &err));
  CHECK_OK(gpuf_tensor_init(&dst, values, cpu_device, GPUF_DTYPE_FLOAT32, 1, shape, &err));
  CHECK_FAILS(gpuf_copy(&dst, &src, NULL, &err), GPUF_ERR_INVALID, "unless options.cast is set");
  CHECK_FAILS(gpuf_copy(&dst, &src, &casts, &err), GPUF_ERR_UNSUPPORTED, "complex64 to float32");
  src.dtype = GPUF_DTYPE_FLOAT16;
  src.strides_nbytes[0] = 2;
  CHECK_FAILS(gpuf_copy(&src, &dst, NULL, &err), GPUF_ERR_INVALID, "unless options.cast is set");
  dst.dtype = GPUF_DTYPE_FLOAT8_E8M0FNU;
  CHECK_FAILS(gpuf_copy(&dst, &src, &casts, &err), GPUF_ERR_UNSUPPORTED, "float8_e8m0fnu");
  CHECK_OK(gpuf_free(test_device, d_ptr, &err));
}

static void arrays_on_the_cpu_are_cast_too(void) {
  static double values[3000];
  static float narrow[3000];
  const int64_t shape[1] = {1500};
  const gpuf_copy_options casts = {.struct_nbytes = sizeof(casts), .cast = true};
  gpuf_tensor src, dst;
  for (int i = 0; i < 3000; i++) {
    values[i] = i * 1.1;
  }
  CHECK_OK(gpuf_tensor_init(&src, values, cpu_device, GPUF_DTYPE_FLOAT64, 1, shape, &err));
  CHECK_OK(gpuf_tensor_init(&dst, narrow, cpu_device, GPUF_DTYPE_FLOAT32, 1, shape, &err));
  src.strides_nbytes[0] = 16;
  CHECK_OK(gpuf_copy(&dst, &src, &casts, &err));
  for (int i = 0; i < 1500; i++) {
    CHECK(narrow[i] == (float)values[2 * i]);
  }
}

int main(void) {
  TEST_ON_DEVICES(every_pair_of_types_agrees_with_the_reference);
  TEST_ON_DEVICES(every_pair_of_types_is_cast_on_the_way_to_a_device);
  TEST(ties_go_to_even_and_too_much_to_infinity);
  TEST_ON_DEVICES(casts_that_are_not_asked_for_or_not_offered_are_refused);
  TEST(arrays_on_the_cpu_are_cast_too);
  return test_finish();
}
