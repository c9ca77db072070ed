/* The bytes and the text of a share's handle, which are untrusted input. */
#include "devices.h"
#include "share/handle.h"

static gpuf_error err;

/* A transposed slice of float32 in the middle of an allocation. */
static gpufi_share_fields fields_of_a_view(void) {
  gpufi_share_fields f = {0};
  f.tensor.device = (gpuf_device){GPUF_DEVICE_HOST, 1};
  f.tensor.dtype = GPUF_DTYPE_FLOAT32;
  f.tensor.ndim = 2;
  f.tensor.shape[0] = 10, f.tensor.shape[1] = 5;
  f.tensor.strides_nbytes[0] = -4, f.tensor.strides_nbytes[1] = 400;
  f.process_id = 4711;
  f.start_time = 99;
  f.generation = 3;
  f.allocation_nbytes = 4096;
  f.offset_nbytes = 36;
  fill_random(f.service, sizeof(f.service), 1);
  fill_random(f.token, sizeof(f.token), 2);
  fill_random(f.identity, sizeof(f.identity), 3);
  fill_random(f.name, sizeof(f.name), 4);
  return f;
}

static gpuf_share_handle handle_of_a_view(void) {
  const gpufi_share_fields fields = fields_of_a_view();
  gpuf_share_handle handle;
  gpufi_share_encode(&fields, &handle);
  return handle;
}

static void fields_come_back_from_bytes_and_text(void) {
  const gpufi_share_fields fields = fields_of_a_view();
  const gpuf_share_handle handle = handle_of_a_view();
  gpufi_share_fields decoded;
  gpuf_share_handle back;
  char text[GPUF_SHARE_TEXT_MAX_NBYTES], padded[GPUF_SHARE_TEXT_MAX_NBYTES + 8];
  CHECK_OK(gpufi_share_decode(&handle, &decoded, &err));
  CHECK(memcmp(&decoded.tensor, &fields.tensor, sizeof(fields.tensor)) == 0);
  CHECK(memcmp(decoded.name, fields.name, sizeof(fields.name)) == 0);
  CHECK_OK(gpuf_share_to_text(&handle, text, &err));
  snprintf(padded, sizeof(padded), "  %s\n", text);
  CHECK_OK(gpuf_share_from_text(padded, &back, &err));
  CHECK(memcmp(&back, &handle, sizeof(handle)) == 0);
}

static void a_handle_describes_itself(void) {
  const gpuf_share_handle handle = handle_of_a_view();
  gpuf_share_info info = GPUF_SHARE_INFO_INIT;
  CHECK_OK(gpuf_share_describe(&handle, &info, &err));
  CHECK(info.process_id == 4711 && info.generation == 3 && info.offset_nbytes == 36);
  CHECK(info.tensor.data == NULL && info.tensor.shape[0] == 10 && !info.readonly);
}

static void a_handle_of_32_axes_fits(void) {
  gpufi_share_fields fields = fields_of_a_view(), decoded;
  gpuf_share_handle handle, back;
  char text[GPUF_SHARE_TEXT_MAX_NBYTES];
  fields.tensor.ndim = GPUF_NDIM_MAX;
  for (int i = 0; i < GPUF_NDIM_MAX; i++) {
    fields.tensor.shape[i] = 1 + i % 2;
    fields.tensor.strides_nbytes[i] = 4;
  }
  gpufi_share_encode(&fields, &handle);
  CHECK_OK(gpuf_share_to_text(&handle, text, &err));
  CHECK_OK(gpuf_share_from_text(text, &back, &err));
  CHECK_OK(gpufi_share_decode(&back, &decoded, &err));
  CHECK(decoded.tensor.shape[31] == 2);
}

static void a_flipped_bit_is_refused(void) {
  const gpuf_share_handle handle = handle_of_a_view();
  gpufi_share_fields decoded;
  for (uint32_t bit = 0; bit < 8 * handle.nbytes; bit++) {
    gpuf_share_handle flipped = handle;
    flipped.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    CHECK_FAILS(gpufi_share_decode(&flipped, &decoded, &err), GPUF_ERR_CORRUPT, "");
  }
}

static void a_truncated_handle_is_refused(void) {
  const gpuf_share_handle handle = handle_of_a_view();
  gpufi_share_fields decoded;
  char text[GPUF_SHARE_TEXT_MAX_NBYTES];
  gpuf_share_handle back;
  for (uint32_t nbytes = 0; nbytes < handle.nbytes; nbytes++) {
    gpuf_share_handle cut = handle;
    cut.nbytes = nbytes;
    CHECK_FAILS(gpufi_share_decode(&cut, &decoded, &err), GPUF_ERR_CORRUPT, "copy all");
  }
  CHECK_OK(gpuf_share_to_text(&handle, text, &err));
  for (size_t length = strlen(text); length-- > 0;) {
    text[length] = '\0';
    CHECK(gpuf_share_from_text(text, &back, &err) == GPUF_ERR_CORRUPT);
  }
}

static void an_oversized_count_is_refused(void) {
  gpuf_share_handle handle = handle_of_a_view();
  gpufi_share_fields decoded;
  handle.nbytes = UINT32_MAX;
  CHECK_FAILS(gpufi_share_decode(&handle, &decoded, &err), GPUF_ERR_CORRUPT, "4294967295");
}

static void text_with_anything_more_is_refused(void) {
  const gpuf_share_handle handle = handle_of_a_view();
  gpuf_share_handle back;
  char text[GPUF_SHARE_TEXT_MAX_NBYTES], changed[6 * GPUF_SHARE_TEXT_MAX_NBYTES];
  CHECK_OK(gpuf_share_to_text(&handle, text, &err));
  snprintf(changed, sizeof(changed), "%s more", text);
  CHECK_FAILS(gpuf_share_from_text(changed, &back, &err), GPUF_ERR_CORRUPT, "followed");
  snprintf(changed, sizeof(changed), "%s=", text);
  CHECK_FAILS(gpuf_share_from_text(changed, &back, &err), GPUF_ERR_CORRUPT, "0x3d");
  snprintf(changed, sizeof(changed), "%s%s%s%s%s", text, text + 17, text + 17, text + 17,
           text + 17);
  CHECK_FAILS(gpuf_share_from_text(changed, &back, &err), GPUF_ERR_CORRUPT, "longer than any");
  snprintf(changed, sizeof(changed), "gpufetch-share:2:%s", text + 17);
  CHECK_FAILS(gpuf_share_from_text(changed, &back, &err), GPUF_ERR_CORRUPT, "gpufetch-share:1:");
}

/* Handles that a malicious exporter may write, with a correct checksum. */
static void check_refused(const gpufi_share_fields *fields, const char *text) {
  gpuf_share_handle handle;
  gpufi_share_fields decoded;
  gpufi_share_encode(fields, &handle);
  CHECK_FAILS(gpufi_share_decode(&handle, &decoded, &err), GPUF_ERR_CORRUPT, text);
}

static void elements_outside_the_allocation_are_refused(void) {
  gpufi_share_fields f = fields_of_a_view();
  f.offset_nbytes = 35; /* one byte below */
  check_refused(&f, "outside");
  f = fields_of_a_view();
  f.allocation_nbytes = 36 + 4 * 400 + 3; /* one byte above */
  check_refused(&f, "outside");
  f.offset_nbytes = UINT64_MAX - 8;
  check_refused(&f, "outside");
  f = fields_of_a_view();
  f.allocation_nbytes = UINT64_MAX;
  check_refused(&f, "outside");
  f = fields_of_a_view();
  f.tensor.shape[0] = 0;
  f.offset_nbytes = f.allocation_nbytes + 1;
  check_refused(&f, "outside");
}

static void shapes_that_overflow_are_refused(void) {
  gpufi_share_fields f = fields_of_a_view();
  f.tensor.shape[0] = f.tensor.shape[1] = INT64_C(1) << 62;
  check_refused(&f, "span more than");
  f = fields_of_a_view();
  f.tensor.strides_nbytes[0] = INT64_MIN;
  check_refused(&f, "span more than");
  f = fields_of_a_view();
  f.tensor.shape[0] = -1;
  check_refused(&f, "shape[0]");
}

static void values_outside_their_enumerations_are_refused(void) {
  gpufi_share_fields f = fields_of_a_view();
  f.tensor.dtype = (gpuf_dtype)200;
  check_refused(&f, "dtype 200");
  f = fields_of_a_view();
  f.tensor.device.kind = GPUF_DEVICE_CPU;
  check_refused(&f, "device kind 0");
  f.tensor.device.kind = (gpuf_device_kind)9;
  check_refused(&f, "device kind 9");
  f = fields_of_a_view();
  f.tensor.device.index = -1;
  check_refused(&f, "index -1");
  f = fields_of_a_view();
  f.generation = 0;
  check_refused(&f, "generation 0");
}

static void handles_of_other_versions_and_kinds_are_refused(void) {
  gpuf_share_handle handle = handle_of_a_view();
  gpufi_share_fields decoded;
  handle.bytes[4] = 2;
  gpufi_share_seal(&handle);
  CHECK_FAILS(gpufi_share_decode(&handle, &decoded, &err), GPUF_ERR_CORRUPT, "version 2");
  handle.bytes[0] = 'x';
  gpufi_share_seal(&handle);
  CHECK_FAILS(gpufi_share_decode(&handle, &decoded, &err), GPUF_ERR_CORRUPT, "not a share handle");
}

int main(void) {
  TEST(fields_come_back_from_bytes_and_text);
  TEST(a_handle_describes_itself);
  TEST(a_handle_of_32_axes_fits);
  TEST(a_flipped_bit_is_refused);
  TEST(a_truncated_handle_is_refused);
  TEST(an_oversized_count_is_refused);
  TEST(text_with_anything_more_is_refused);
  TEST(elements_outside_the_allocation_are_refused);
  TEST(shapes_that_overflow_are_refused);
  TEST(values_outside_their_enumerations_are_refused);
  TEST(handles_of_other_versions_and_kinds_are_refused);
  return test_finish();
}
