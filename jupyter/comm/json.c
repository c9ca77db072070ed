#include "comm/json.h"

#include "base/floating_point.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX_NBYTES 1024

json_t *gpufi_json_f64(double value) {
  if (isnan(value)) {
    return json_string("nan");
  }
  return isinf(value) ? json_string(value > 0 ? "inf" : "-inf") : json_real(value);
}

json_t *gpufi_json_u64(uint64_t value) {
  char text[24];
  if (value <= INT64_MAX) {
    return json_integer((json_int_t)value);
  }
  snprintf(text, sizeof(text), "%" PRIu64, value);
  return json_string(text);
}

json_t *gpufi_json_shape(const int64_t *shape, int32_t count) {
  json_t *array = json_array();
  for (int32_t axis = 0; axis < count; axis++) {
    gpufi_json_append(&array, json_integer(shape[axis]));
  }
  return array;
}

json_t *gpufi_json_text(const char *text) {
  char plain[TEXT_MAX_NBYTES];
  json_t *string = json_string(text);
  if (!string) { /* cut in the middle of a character, or not UTF-8 at all */
    snprintf(plain, sizeof(plain), "%s", text);
    gpufi_text_make_utf8(plain);
    string = json_string(plain);
  }
  return string;
}

static void give_up(json_t **whole) {
  json_decref(*whole);
  *whole = NULL;
}

void gpufi_json_put(json_t **object, const char *key, json_t *value) {
  if (json_object_set_new(*object, key, value) != 0) {
    give_up(object);
  }
}

void gpufi_json_append(json_t **array, json_t *value) {
  if (json_array_append_new(*array, value) != 0) {
    give_up(array);
  }
}

/* Digits are rounded as the thread rounds. */
char *gpufi_json_dump(const json_t *value, size_t flags) {
  const gpufi_floating_point callers = gpufi_floating_point_begin();
  const size_t nbytes = json_dumpb(value, NULL, 0, flags); /* 0 after a failure */
  char *text = nbytes > 0 ? malloc(nbytes + 1) : NULL;
  if (text && json_dumpb(value, text, nbytes, flags) != nbytes) {
    free(text);
    text = NULL;
  }
  gpufi_floating_point_end(callers);
  if (text) {
    text[nbytes] = '\0';
  }
  return text;
}

/* The text that a value is written to; what does not fit is left out. */
typedef struct shown_text {
  char *text;
  size_t used, capacity;
} shown_text;

static int append_shown(const char *more, size_t nbytes, void *arg) {
  shown_text *shown = arg;
  const size_t left = shown->capacity - shown->used;
  const size_t taken = nbytes < left ? nbytes : left;
  memcpy(shown->text + shown->used, more, taken);
  shown->used += taken;
  return taken < nbytes ? -1 : 0; /* -1 ends the writing */
}

const char *gpufi_json_show(const json_t *value, char *text) {
  shown_text shown = {.text = text, .capacity = GPUFI_SHOWN_NBYTES - sizeof("...")};
  const size_t flags = JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_COMPACT;
  const bool whole = json_dump_callback(value, append_shown, &shown, flags) == 0;
  memcpy(text + shown.used, whole ? "" : "...", whole ? 1 : sizeof("..."));
  return text;
}

int gpufi_json_choice(const json_t *value, int last, const char *(*name_of)(int index)) {
  const char *text = json_string_value(value);
  for (int i = 1; text && i <= last; i++) {
    if (strcmp(text, name_of(i)) == 0) {
      return i;
    }
  }
  return 0;
}

bool gpufi_json_is_plain(const json_t *value, size_t max_nbytes) {
  const size_t nbytes = json_string_length(value);
  if (nbytes < 1 || nbytes > max_nbytes) { /* a value that is no string has length 0 */
    return false;
  }
  for (const char *c = json_string_value(value); *c; c++) {
    if (*c < 0x20 || *c > 0x7e) {
      return false;
    }
  }
  return true;
}

bool gpufi_json_text_is_deeper(const char *text, size_t nbytes, int depth_max) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < nbytes; i++) {
    const char c = text[i];
    if (in_string) {
      i += c == '\\';
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > depth_max) {
        return true;
      }
    } else if (c == ']' || c == '}') {
      depth--;
    }
  }
  return false;
}
