/* A JSON object taken apart into the text of its members. Each value is parsed by itself, so that
 * one that cannot be read does not hide the others: an error can be sent to whoever asked, and name
 * the value that was wrong. The transport and the dispatcher both read untrusted objects by this.
 *
 * Nothing here owns or changes the text. Thread-safety: any thread. */
#ifndef GPUFI_COMM_OBJECT_H
#define GPUFI_COMM_OBJECT_H

#include "comm/json.h"

#define GPUFI_OBJECT_MEMBERS_MAX 32

/* Untrusted bytes, not NUL-terminated; `data` is NULL if there are none. */
typedef struct gpufi_raw {
  const char *data;
  size_t nbytes;
} gpufi_raw;

typedef struct gpufi_object {
  size_t count;
  gpufi_raw names[GPUFI_OBJECT_MEMBERS_MAX]; /* in their quotes, escapes as they came */
  gpufi_raw values[GPUFI_OBJECT_MEMBERS_MAX];
  const char *problem; /* why the text is not one JSON object with every member once; else NULL */
} gpufi_object;

/* Take `text` apart. Where there is a problem, *object has the members before it; of a member that
 * is there twice, the first. Values are as long as their brackets and quotes say, and not checked
 * beyond that. */
void gpufi_object_split(gpufi_raw text, gpufi_object *object);
/* The text of a member's value; no text if there is no such member. */
gpufi_raw gpufi_object_get(const gpufi_object *object, const char *name);
/* Whether `quoted`, one of an object's names, is `name`. */
bool gpufi_raw_is_name(gpufi_raw quoted, const char *name);

/* The value that a text is; NULL, with what is wrong in *problem, where the text is not a JSON
 * value in UTF-8 that can be held: one with numbers beyond 64 bits, NaN, \u0000, half of a
 * surrogate pair or duplicate members, or that nests deeper than `depth_max`. */
json_t *gpufi_raw_parse(gpufi_raw text, int depth_max, const char **problem);

/* Write a text as a message quotes it: in printable ASCII, with '?' for other bytes, cut to what
 * fits. `shown` holds GPUFI_SHOWN_NBYTES. Gives `shown`. */
const char *gpufi_raw_show(gpufi_raw text, char *shown);

#endif
