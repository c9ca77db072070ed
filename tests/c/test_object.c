/* Taking JSON objects apart: by itself, and against jansson's parser on random and damaged text. */
#include "comm/object.h"

#include <stdint.h>
#include <string.h>

#include "test.h"

static gpufi_raw raw_of(const char *text) {
  return (gpufi_raw){text, strlen(text)};
}

static bool is_text(gpufi_raw raw, const char *text) {
  return raw.nbytes == strlen(text) && memcmp(raw.data, text, raw.nbytes) == 0;
}

static void members_come_as_they_were_written(void) {
  gpufi_object object;
  gpufi_object_split(raw_of(" { \"a\" :1e5,\"b\\u0063\":[ {\"]\": \"}\\\"\"} ] ,\n\"d\":NaN} "),
                     &object);
  CHECK(!object.problem && object.count == 3);
  CHECK(is_text(gpufi_object_get(&object, "a"), "1e5"));
  CHECK(is_text(gpufi_object_get(&object, "bc"), "[ {\"]\": \"}\\\"\"} ]"));
  CHECK(is_text(gpufi_object_get(&object, "d"), "NaN"));
  CHECK(!gpufi_object_get(&object, "").data && !gpufi_object_get(&object, "e").data);
}

static void members_before_the_damage_are_there(void) {
  gpufi_object object;
  gpufi_object_split(raw_of("{\"a\": 1, \"b\": \"x"), &object);
  CHECK(object.problem && object.count == 1 && is_text(gpufi_object_get(&object, "a"), "1"));
  gpufi_object_split(raw_of("{\"a\": 1, \"a\": 2}"), &object);
  CHECK(object.problem && is_text(gpufi_object_get(&object, "a"), "1"));
  gpufi_object_split((gpufi_raw){"{\"a\": 1\0}", 10}, &object);
  CHECK(object.problem);
  gpufi_object_split((gpufi_raw){NULL, 0}, &object);
  CHECK(object.problem && object.count == 0);
}

static void no_more_members_are_taken_than_there_are_places(void) {
  char text[1024] = "{";
  gpufi_object object;
  for (int i = 0; i < GPUFI_OBJECT_MEMBERS_MAX; i++) {
    sprintf(text + strlen(text), "%s\"%d\":%d", i ? "," : "", i, i);
  }
  strcat(text, "}");
  gpufi_object_split(raw_of(text), &object);
  CHECK(!object.problem && object.count == GPUFI_OBJECT_MEMBERS_MAX);
  strcpy(text + strlen(text) - 1, ",\"more\":1}");
  gpufi_object_split(raw_of(text), &object);
  CHECK(object.problem && object.count == GPUFI_OBJECT_MEMBERS_MAX);
}

static void untrusted_text_is_shown_in_plain_ascii_and_cut(void) {
  char shown[GPUFI_SHOWN_NBYTES], text[300];
  CHECK(strcmp(gpufi_raw_show(raw_of("a\n\xff\"b"), shown), "a??\"b") == 0);
  memset(text, 'x', sizeof(text));
  gpufi_raw_show((gpufi_raw){text, sizeof(text)}, shown);
  CHECK(strlen(shown) == GPUFI_SHOWN_NBYTES - 1 && strcmp(shown + strlen(shown) - 4, "x...") == 0);
}

/* --- Against jansson ----------------------------------------------------------- */

static uint64_t state = 2026;

static uint32_t below(uint32_t count) { /* by xorshift */
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 32) % count;
}

#define TEXT_NBYTES 400

/* Append a random value; mostly such that JSON has it. */
static void append_value(char *text, int depth) {
  static const char *const values[] = {"1",
                                       "-2.5e3",
                                       "\"x\"",
                                       "\"\\u00e9\\\"\"",
                                       "null",
                                       "true",
                                       "NaN",
                                       "1e999",
                                       "\"\\ud800\"",
                                       "\"\xff\"",
                                       "9e",
                                       "\"\\u0000\"",
                                       "99999999999999999999",
                                       "\"}\"",
                                       "\"[\\\\\""};
  const uint32_t kind = below(depth > 0 ? 4 : 2);
  const bool is_object = kind == 3;
  if (strlen(text) > TEXT_NBYTES / 2 || kind < 2) {
    strcat(text, values[below(8) ? below(6) : below(15)]);
    return;
  }
  strcat(text, is_object ? "{" : "[");
  for (uint32_t i = below(4); i > 0; i--) {
    if (is_object) {
      sprintf(text + strlen(text), "%s\"%c\" :", below(2) ? " " : "", 'a' + below(6));
    }
    append_value(text, depth - 1);
    strcat(text, i > 1 ? "," : "");
  }
  strcat(text, is_object ? "}" : "]");
}

static size_t damage(char *text) {
  static const char bytes[] = "{}[]\",:\\ x\xff";
  size_t nbytes = strlen(text);
  for (uint32_t i = below(3); i > 0 && nbytes > 0; i--) {
    const size_t at = below((uint32_t)nbytes);
    switch (below(4)) {
    case 0:
      nbytes = at;
      break;
    case 1:
      text[at] = bytes[below(sizeof(bytes) - 1)]; /* no NUL: jansson passes over some */
      break;
    case 2:
      memmove(text + at, text + at + 1, nbytes - at - 1);
      nbytes--;
      break;
    default:
      break;
    }
  }
  return nbytes;
}

/* The object that the members are, if each can be read; else NULL. */
static json_t *put_together(const gpufi_object *object) {
  const char *problem = object->problem;
  json_t *whole = json_object();
  for (size_t i = 0; i < object->count; i++) {
    json_t *name = gpufi_raw_parse(object->names[i], 0, &problem);
    json_t *value = gpufi_raw_parse(object->values[i], 100, &problem);
    if (name && value) {
      json_object_set(whole, json_string_value(name), value);
    }
    json_decref(name);
    json_decref(value);
  }
  if (problem) {
    json_decref(whole);
    return NULL;
  }
  return whole;
}

static void what_is_accepted_is_what_jansson_accepts(void) {
  int accepted = 0;
  for (int i = 0; i < 200000; i++) {
    char text[4 * TEXT_NBYTES] = "";
    do {
      text[0] = '\0';
      append_value(text, 4);
    } while (text[0] != '{' && below(20));
    const size_t nbytes = damage(text);
    gpufi_object object;
    gpufi_object_split((gpufi_raw){text, nbytes}, &object);
    json_t *ours = put_together(&object);
    json_t *theirs = json_loadb(text, nbytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    if (!json_is_object(theirs)) {
      json_decref(theirs);
      theirs = NULL;
    }
    if (!ours != !theirs || (ours && !json_equal(ours, theirs))) {
      printf("# %d: %.*s: %s\n", i, (int)nbytes, text, object.problem ? object.problem : "taken");
    }
    CHECK(!ours == !theirs);
    CHECK(!ours || json_equal(ours, theirs));
    accepted += ours != NULL;
    json_decref(ours);
    json_decref(theirs);
  }
  printf("# %d of 200000 were objects\n", accepted);
  CHECK(accepted > 20000 && accepted < 180000);
}

int main(void) {
  TEST(members_come_as_they_were_written);
  TEST(members_before_the_damage_are_there);
  TEST(no_more_members_are_taken_than_there_are_places);
  TEST(untrusted_text_is_shown_in_plain_ascii_and_cut);
  TEST(what_is_accepted_is_what_jansson_accepts);
  return test_finish();
}
