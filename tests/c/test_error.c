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

static void a_message_is_never_cut_within_a_character(void) {
  static const char *const characters[] = {"x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x9a\x80"};
  for (size_t k = 0; k < 4; k++) {
    const size_t nbytes = strlen(characters[k]);
    for (int offset = 0; offset < 4; offset++) {
      char text[2 * GPUF_ERROR_MESSAGE_NBYTES] = "";
      gpuf_error err;
      for (size_t i = 0; i < (GPUF_ERROR_MESSAGE_NBYTES + 8) / nbytes; i++) {
        strcat(text, characters[k]);
      }
      gpufi_fail(&err, GPUF_ERR_INVALID, 0, "%.*s%s", offset, "abcd", text);
      const size_t room = GPUF_ERROR_MESSAGE_NBYTES - 1 - (size_t)offset;
      CHECK(strlen(err.message) == (size_t)offset + room / nbytes * nbytes);
      CHECK(strncmp(err.message + offset, text, room / nbytes * nbytes) == 0);
    }
  }
}

static void what_is_not_utf8_in_a_message_becomes_question_marks(void) {
  static const char *const cases[][2] = {
      {"plain", "plain"},
      {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x9a\x80.", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x9a\x80."},
      {"\xe2\x82'", "?\?'"},                       /* cut within a message */
      {"\xe9t\xe9 ", "?t? "},                      /* Latin-1 */
      {"\x80", "?"},                               /* the rest of a character alone */
      {"\xc0\xaf", "??"},                          /* longer than needed */
      {"\xe0\x9f\xbf", "???"},                     /* longer than needed */
      {"\xf0\x8f\xbf\xbf", "????"},                /* longer than needed */
      {"\xed\xa0\x80", "???"},                     /* a surrogate */
      {"\xf4\x90\x80\x80", "????"},                /* above U+10FFFF */
      {"\xf5\x80\x80\x80", "????"},                /* above U+10FFFF */
      {"\xff\xfe", "??"},                          /* no character begins so */
      {"a\xf0\x9f\x9a", "a"},                      /* cut at the end */
      {"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf", /* the last ones that there are */
       "\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    gpuf_error err;
    gpufi_fail(&err, GPUF_ERR_INVALID, 0, "%s", cases[i][0]);
    CHECK(strcmp(err.message, cases[i][1]) == 0);
  }
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
  TEST(a_message_is_never_cut_within_a_character);
  TEST(what_is_not_utf8_in_a_message_becomes_question_marks);
  TEST(an_unknown_status_has_a_name);
  return test_finish();
}
