#include "comm/object.h"

#include <string.h>

/* --- Over the text ------------------------------------------------------------- */

typedef struct cursor {
  const char *next, *end;
} cursor;

static void skip_space(cursor *c) {
  while (c->next < c->end &&
         (*c->next == ' ' || *c->next == '\t' || *c->next == '\n' || *c->next == '\r')) {
    c->next++;
  }
}

/* Skip white space and then `wanted`; false if something else comes. */
static bool take(cursor *c, char wanted) {
  skip_space(c);
  const bool found = c->next < c->end && *c->next == wanted;
  c->next += found;
  return found;
}

/* Skip a string, whose first quote is next; false if it has no end. */
static bool skip_string(cursor *c) {
  for (c->next++; c->next < c->end; c->next++) {
    if (*c->next == '"') {
      c->next++;
      return true;
    }
    if (*c->next == '\\' && c->end - c->next > 1) {
      c->next++;
    }
  }
  return false;
}

/* What is no string and no bracket: a number, a word, or what the parser will refuse. */
static bool skip_word(cursor *c) {
  const char *start = c->next;
  while (c->next < c->end && !strchr(" \t\n\r,:[]{}\"", *c->next)) {
    c->next++;
  }
  if (c->next < c->end && *c->next == '\0') {
    return false; /* strchr finds the end of the list too */
  }
  return c->next > start;
}

static bool skip_brackets(cursor *c) {
  size_t depth = 0;
  do {
    const char next = *c->next;
    if (next == '"') {
      if (!skip_string(c)) {
        return false;
      }
      continue;
    }
    depth += next == '[' || next == '{';
    depth -= next == ']' || next == '}';
    c->next++;
  } while (depth > 0 && c->next < c->end);
  return depth == 0;
}

/* Skip a value, before which there may be white space. */
static bool take_value(cursor *c, gpufi_raw *value) {
  skip_space(c);
  const char *start = c->next;
  bool whole = false;
  if (c->next < c->end) {
    whole = *c->next == '"'                      ? skip_string(c)
            : *c->next == '[' || *c->next == '{' ? skip_brackets(c)
                                                 : skip_word(c);
  }
  *value = (gpufi_raw){start, (size_t)(c->next - start)};
  return whole;
}

/* --- Names --------------------------------------------------------------------- */

static json_t *unquoted(gpufi_raw quoted) {
  return json_loadb(quoted.data, quoted.nbytes, JSON_DECODE_ANY, NULL);
}

static bool has_escape(gpufi_raw text) {
  return memchr(text.data, '\\', text.nbytes) != NULL;
}

bool gpufi_raw_is_name(gpufi_raw quoted, const char *name) {
  const size_t nbytes = strlen(name);
  if (!has_escape(quoted)) {
    return quoted.nbytes == nbytes + 2 && memcmp(quoted.data + 1, name, nbytes) == 0;
  }
  json_t *value = unquoted(quoted);
  const bool same = value && strcmp(json_string_value(value), name) == 0;
  json_decref(value);
  return same;
}

static bool is_same_name(gpufi_raw a, gpufi_raw b) {
  if (!has_escape(a) && !has_escape(b)) {
    return a.nbytes == b.nbytes && memcmp(a.data, b.data, a.nbytes) == 0;
  }
  json_t *x = unquoted(a), *y = unquoted(b);
  const bool same = json_equal(x, y);
  json_decref(x);
  json_decref(y);
  return same;
}

static bool has_name(const gpufi_object *object, gpufi_raw name) {
  bool found = false;
  for (size_t i = 0; i < object->count; i++) {
    found = found || is_same_name(object->names[i], name);
  }
  return found;
}

/* --- Objects ------------------------------------------------------------------- */

/* One member into the object; what is wrong with it, or NULL. */
static const char *take_member(cursor *c, gpufi_object *object) {
  gpufi_raw name, value;
  skip_space(c);
  const char *start = c->next;
  if (c->next == c->end || *c->next != '"' || !skip_string(c)) {
    return "a member has no name";
  }
  name = (gpufi_raw){start, (size_t)(c->next - start)};
  if (!take(c, ':') || !take_value(c, &value)) {
    return "a member has no value, or one without an end";
  }
  if (has_name(object, name)) {
    return "a member is there twice";
  }
  if (object->count == GPUFI_OBJECT_MEMBERS_MAX) {
    return "there are too many members";
  }
  object->names[object->count] = name;
  object->values[object->count++] = value;
  return NULL;
}

void gpufi_object_split(gpufi_raw text, gpufi_object *object) {
  cursor c = {text.data, text.data + text.nbytes};
  object->count = 0;
  object->problem = NULL;
  if (!text.data || !take(&c, '{')) {
    object->problem = "it is no JSON object";
    return;
  }
  bool more = !take(&c, '}');
  while (more && !object->problem) {
    object->problem = take_member(&c, object);
    more = take(&c, ',');
    if (!object->problem && !more && !take(&c, '}')) {
      object->problem = "it has no end, or something between its members";
    }
  }
  skip_space(&c);
  if (!object->problem && c.next != c.end) {
    object->problem = "something follows the object";
  }
}

gpufi_raw gpufi_object_get(const gpufi_object *object, const char *name) {
  for (size_t i = 0; i < object->count; i++) {
    if (gpufi_raw_is_name(object->names[i], name)) {
      return object->values[i];
    }
  }
  return (gpufi_raw){NULL, 0};
}

/* --- Values -------------------------------------------------------------------- */

json_t *gpufi_raw_parse(gpufi_raw text, int depth_max, const char **problem) {
  if (gpufi_json_text_is_deeper(text.data, text.nbytes, depth_max)) {
    *problem = "it nests too deep";
    return NULL;
  }
  const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY;
  json_t *value = json_loadb(text.data, text.nbytes, flags, NULL);
  if (!value) { /* jansson does not tell bad text from a lack of memory, which may have passed */
    value = json_loadb(text.data, text.nbytes, flags, NULL);
  }
  if (!value) {
    *problem =
        "write JSON in UTF-8 with numbers of 64 bits, without NaN, \\u0000, half a surrogate "
        "pair or duplicate members";
  }
  return value;
}

const char *gpufi_raw_show(gpufi_raw text, char *shown) {
  const size_t nbytes_max = GPUFI_SHOWN_NBYTES - sizeof("...");
  const size_t nbytes = text.nbytes < nbytes_max ? text.nbytes : nbytes_max;
  for (size_t i = 0; i < nbytes; i++) {
    shown[i] = text.data[i] >= ' ' && text.data[i] <= '~' ? text.data[i] : '?';
  }
  const bool whole = nbytes == text.nbytes;
  memcpy(shown + nbytes, whole ? "" : "...", whole ? 1 : sizeof("..."));
  return shown;
}
