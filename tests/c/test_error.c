#include <gpufetch/gpufetch.h>
#include <string.h>

#include "base/error.h"
#include "test.h"

static void a_null_error_is_allowed(void) {
  CHECK(gpufi_fail(NULL, GPUF_ERR_IO, 5, "never seen %d", 1) == GPUF_ERR_IO);
}

static void a_long_message_is_cut_and_terminated(void) {
  char text[4 * GPUF_ERROR_MESSAGE_NBYTES];
  gpuf_error err;
  memset(text, 'x', sizeof(text));
  text[sizeof(text) - 1] = '\0';
  CHECK(gpufi_fail(&err, GPUF_ERR_INVALID, -7, "%s", text) == GPUF_ERR_INVALID);
  CHECK(strlen(err.message) == GPUF_ERROR_MESSAGE_NBYTES - 1);
  CHECK(err.native_code == -7);
}

static void an_unknown_status_has_a_name(void) {
  CHECK(strcmp(gpuf_status_name(GPUF_OK), "GPUF_OK") == 0);
  CHECK(strcmp(gpuf_status_name(GPUF_ERR_TIMEOUT), "GPUF_ERR_TIMEOUT") == 0);
  CHECK(strcmp(gpuf_status_name((gpuf_status)12345), "GPUF_ERR_UNKNOWN") == 0);
  CHECK(strcmp(gpuf_status_name((gpuf_status)-1), "GPUF_ERR_UNKNOWN") == 0);
}

int main(void) {
  TEST(a_null_error_is_allowed);
  TEST(a_long_message_is_cut_and_terminated);
  TEST(an_unknown_status_has_a_name);
  return test_finish();
}
